"""Runs the ubatches' schedule functions in turn and weaves what they emit into one host order."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeAlias

from dbo_sched.errors import ScheduleError
from dbo_sched.layers import Layer
from dbo_sched.plan import AnyCommand, Guard, HostWait, Launch, Op, Record, Wait, Yield

Steps: TypeAlias = Generator[None, None, None]
"""What a schedule returns: each ``yield`` hands the host to the next ubatch."""


MOST_STAGES = 100_000


class UBatch:
    """What a schedule function works on: the layers of one ubatch, and the verbs to order them.

    Events are named after the layer of the op that the ubatch launched last, ``L3.u0.routed``.
    """

    def __init__(self, index: int, tokens: int, layers: tuple[Layer, ...]) -> None:
        self.index = index
        self.tokens = tokens
        self.layers = layers
        self.next = self
        self.commands: list[AnyCommand] = []
        self._layer: int | None = None
        self._deferred: tuple[Op, str] | None = None
        self._ended = False

    def launch(self, op: Op | None, stream: str = "compute") -> None:
        """Put an op on a stream; nothing where the layer does not have the op."""
        if op is not None:
            self._layer = op.layer
            self._emit(Launch(turn=self.index, op=op.id, stream=stream))

    def record(self, stream: str, name: str) -> str:
        """Record an event at the stream's tail; returns the event's full name."""
        layer = "" if self._layer is None else f"L{self._layer}."
        event = f"{layer}u{self.index}.{name}"
        self._emit(Record(turn=self.index, event=event, stream=stream))
        return event

    def wait(self, event: str, stream: str) -> None:
        """Make a stream wait for the event's latest record."""
        self._emit(Wait(turn=self.index, event=event, stream=stream))

    def host_wait(self, event: str) -> None:
        """Block the host until the event's latest record is done."""
        self._emit(HostWait(turn=self.index, event=event))

    def guard(self, buffer: str, stream: str) -> None:
        """Keep a buffer alive until the stream's present tail is done; adds no order."""
        self._emit(Guard(turn=self.index, buffer=buffer, stream=stream))

    def defer(self, op: Op | None, stream: str = "compute") -> None:
        """Leave an op in the next ubatch's slot, for that one to launch (vLLM's receive hook).

        Raises:
            ScheduleError: the slot still holds an op, or its ubatch has ended.
        """
        if op is None:
            return
        if self.next._ended:
            raise ScheduleError(
                f"ubatch {self.index} defers '{op.id}' to ubatch {self.next.index}, which has "
                "ended",
                mend="yield once more behind the last u.defer(...), or launch the op itself",
            )
        if self.next._deferred is not None:
            raise ScheduleError(
                f"ubatch {self.index} defers '{op.id}' while '{self.next._deferred[0].id}' still "
                f"lies in the slot of ubatch {self.next.index}",
                mend="call u.run_deferred() in every ubatch between two u.defer(...)",
            )
        self.next._deferred = (op, stream)

    def run_deferred(self) -> None:
        """Launch the op that the ubatch before left in this one's slot, if any."""
        if self._deferred is not None:
            (op, stream), self._deferred = self._deferred, None
            self._emit(Launch(turn=self.index, op=op.id, stream=stream))

    def end(self) -> None:
        """Launch what still lies in the slot; the weaver calls it when the function ends."""
        self.run_deferred()
        self._ended = True

    def hand_over(self) -> None:
        """Note that the host goes to the next ubatch; the weaver calls it at every ``yield``."""
        self._emit(Yield(turn=self.index))

    def _emit(self, command: AnyCommand) -> None:
        operands = [getattr(command, name) for name in command.__struct_fields__ if name != "turn"]
        for operand in operands:
            if not isinstance(operand, str):
                raise ScheduleError(
                    f"{type(command).__name__} is given {operand!r}",
                    where=f"ubatch {self.index}",
                    mend="pass the names of events, streams and buffers",
                )
        self.commands.append(command)


def weave(
    ubatches: list[UBatch],
    function: Callable[[UBatch], Steps | None],
    *,
    stage_offset: int = 0,
) -> tuple[AnyCommand, ...]:
    """One host order from the ubatches' threads: round after round, each up to its next yield.

    ``function`` is called with each ubatch when its first turn comes: a generator function, or a
    plain one that emits the whole ubatch at once. Ubatch i starts i x ``stage_offset`` rounds late.
    A deferred op left in a slot is launched when the slot's ubatch ends.

    Raises:
        ScheduleError: the ubatches do not yield equally often, so that one would wait for ever, or
            the function returns something else than a generator or nothing.
    """
    for u, ubatch in enumerate(ubatches):
        ubatch.next = ubatches[(u + 1) % len(ubatches)]
    woven: list[AnyCommand] = []
    threads: dict[int, Steps] = {}
    live = list(range(len(ubatches)))
    stages = dict.fromkeys(live, 0)
    clock = 0
    while live:
        for u in [u for u in live if clock >= u * stage_offset]:
            ubatch = ubatches[u]
            if u not in threads:
                threads[u] = _thread(function(ubatch))
            if next(threads[u], ubatch) is ubatch:
                ubatch.end()
                live.remove(u)
            else:
                stages[u] += 1
                ubatch.hand_over()
            if stages[u] > MOST_STAGES:
                raise ScheduleError(
                    f"ubatch {u} still yields after {MOST_STAGES} stages",
                    mend="let the schedule function end",
                )
            woven.extend(ubatch.commands)
            ubatch.commands.clear()
        clock += 1
    if len(set(stages.values())) > 1:
        counts = ", ".join(f"ubatch {u} {n} times" for u, n in stages.items())
        raise ScheduleError(
            f"the ubatches yield unequally often: {counts}",
            mend="yield at the same places whatever the ubatch holds",
        )
    return tuple(woven)


def _no_stages() -> Steps:
    """What a plain function amounts to: all is emitted, nothing is left to run."""
    yield from ()


def _thread(returned: Steps | None) -> Steps:
    if returned is None:
        return _no_stages()
    if not isinstance(returned, Generator):
        raise ScheduleError(
            f"returns a {type(returned).__name__}",
            mend="write a generator, or a plain function that returns nothing",
        )
    return returned
