"""Every error that a user can cause, each with the exit code that the command line gives it."""

from __future__ import annotations


class DboSchedError(Exception):
    """Base of all errors meant to be read by a person. Exit code 3: a run failed."""

    exit_code = 3


class InputError(DboSchedError):
    """Bad input: says what is wrong, where, and how to mend it. Exit code 2."""

    exit_code = 2

    def __init__(self, what: str, *, mend: str, where: str = "") -> None:
        self.what, self.mend, self.where = what, mend, where
        super().__init__(f"{where}: {what}; {mend}" if where else f"{what}; {mend}")


class ScheduleError(InputError):
    """A schedule that cannot be woven into a plan. Exit code 2."""


class DeadlockError(DboSchedError):
    """A program that stops with work left. Exit code 1: a finding of severity ERROR.

    ``chain`` holds one sentence per wait, each waiting for the next; where ``cyclic``, the last
    waits for the first again. ``left`` counts the kernels that never ended, over all ranks;
    ``at_ns`` is when the last one ended that did.
    """

    exit_code = 1

    def __init__(self, chain: tuple[str, ...], *, cyclic: bool, left: int, at_ns: int) -> None:
        self.chain, self.cyclic, self.left, self.at_ns = chain, cyclic, left, at_ns
        shape = "a cycle of waits" if cyclic else "a chain of waits that nothing ends"
        noun = "kernel" if left == 1 else "kernels"
        super().__init__(
            f"DEADLOCK at {at_ns} ns with {left} {noun} left, {shape}: " + " -> ".join(chain)
        )


class TimeLimitError(DboSchedError):
    """The model was still running, and not deadlocked, at the caller's time limit. Exit code 3."""
