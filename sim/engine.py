"""The SimPy model of a program: all its ranks, and the meetings between them.

Per rank the host process walks the plan and puts items into hardware queues; one process per queue
takes them in launch order. An item at a queue's head waits for its stream's previous item, for its
latencies and for SMs; once it has started the queue goes on. Requests for SMs of one instant are
granted in plan order, so the same input gives the same timeline, bit for bit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import inf

import simpy

from dbo_sched.errors import InputError, TimeLimitError
from dbo_sched.plan import HostWait, Launch, Op, Plan, Program
from dbo_sched.timeline import Edge, Span
from sim.bandwidth import memories
from sim.costs import Costs, Kernel, Sources
from sim.deadlock import explain
from sim.pace import Countdown
from sim.rank import Place, Rank, Work
from sim.settings import Gpu, Host
from sim.streams import Run

TELL_EVERY = 20_000
"""Events between two words on progress."""


class Model:
    """A program ready to run once.

    Raises:
        InputError: the plan asks for what the model does not have, or an op has no duration.
    """

    def __init__(
        self,
        program: Program,
        costs: Costs,
        host: Host,
        gpu: Gpu,
        starts: Mapping[int, int],
        represents: Mapping[int, tuple[int, ...]] | None = None,
    ) -> None:
        """``starts`` maps each rank to simulate to the time at which its host begins,
        ``represents`` to the ranks that it stands for (by default itself alone).
        """
        self.env = simpy.Environment()
        self.meetings: dict[tuple[str, str], list[Run]] = defaultdict(list)
        _check_meetings(program)
        work: dict[int, Work] = {}
        for plan in program.plans:
            work |= dict.fromkeys(plan.ranks, _prepare(program, plan, costs, gpu))
        self.sources = _sources(work.values())
        represents = represents or {rank: (rank,) for rank in starts}
        memory = memories(gpu, represents)
        self.ranks = [
            Rank(
                self.env,
                rank,
                work[rank],
                program,
                host,
                gpu,
                starts[rank],
                len(represents[rank]),
                memory[rank],
                self._meet,
            )
            for rank in sorted(starts)
        ]

    def run(
        self, limit_ns: int | None = None, progress: Callable[[float], None] | None = None
    ) -> tuple[tuple[Span, ...], tuple[Edge, ...]]:
        """Run to the end; spans and edges in order of rank and time.

        ``progress`` is told every few ten thousand events which part of the commands is issued.

        Raises:
            DeadlockError: nothing can happen any more and work is left, whatever the limit.
            TimeLimitError: work still goes on at ``limit_ns``.
        """
        try:
            if limit_ns is not None:
                self._run_until(limit_ns)
            elif progress is not None:
                self._run_telling(progress)
            else:
                self.env.run()
            if any(self.leftovers().values()):
                raise explain(self.ranks, self.meetings)
        finally:
            self._give_up()
        spans = [span for rank in self.ranks for _, span in sorted(rank.spans, key=_place)]
        edges = [edge for rank in self.ranks for _, edge in sorted(rank.edges, key=_place)]
        return tuple(spans), tuple(edges)

    def _run_telling(self, progress: Callable[[float], None]) -> None:
        """Run to the end and tell how far it is."""
        total = sum(len(rank.work.plan.commands) for rank in self.ranks)
        while self.env.peek() < inf:
            progress(sum(rank.at + 1 for rank in self.ranks) / max(1, total + len(self.ranks)))
            for _ in range(TELL_EVERY):
                if self.env.peek() == inf:
                    break
                self.env.step()

    def _run_until(self, limit_ns: int) -> None:
        """Run up to and with ``limit_ns``.

        What is still due then may come to nothing (a look at SMs that was overtaken), so only what
        really happens later tells a model that goes on from one that stands still.
        """
        while self.env.peek() <= limit_ns:
            self.env.step()
        before = self._progress()
        while any(self.leftovers().values()) and self.env.peek() < inf:
            self.env.step()
            if self._progress() != before:
                raise TimeLimitError(
                    f"the model still runs at its limit of {limit_ns} ns; raise the limit"
                )

    def _progress(self) -> list[tuple[int, int, int, int]]:
        return [(len(r.spans), len(r.edges), r.at, r.running) for r in self.ranks]

    def leftovers(self) -> dict[str, int]:
        """What has not ended: processes, queued items, kernels that run, wait or hold SMs."""
        return {
            "processes": sum(p.is_alive for rank in self.ranks for p in rank.processes),
            "queued": sum(len(queue.items) for rank in self.ranks for queue in rank.queues),
            "running": sum(rank.running for rank in self.ranks),
            "meeting": sum(len(runs) for runs in self.meetings.values()),
            "holding SMs": sum(len(rank.sms.holders()) for rank in self.ranks),
        }

    def _meet(self, run: Run) -> None:
        """Hold a kernel until all ranks run it; then all end together, after the longest."""
        key = run.op.id, run.kernel.phase
        runs = self.meetings[key]
        runs.append(run)
        if len(runs) == len(self.ranks):
            del self.meetings[key]
            ns = max(run.kernel.ns for run in runs)
            moves = [(run.rank.memory, run.kernel.bytes) for run in runs]
            Countdown(self.env, ns, moves, partial(_finish, runs))

    def _give_up(self) -> None:
        """End every process, empty every queue, take every SM back."""
        for rank in self.ranks:
            for process in rank.processes:
                if process.is_alive:
                    process.interrupt()
        while any(p.is_alive for rank in self.ranks for p in rank.processes):
            self.env.step()
        for rank in self.ranks:
            rank.sms.clear()
            rank.running = 0
            for queue in rank.queues:
                queue.items.clear()
        self.meetings.clear()


def _place(entry: tuple[Place, object]) -> Place:
    return entry[0]


def _finish(runs: list[Run]) -> None:
    for run in sorted(runs, key=lambda run: run.rank.number):
        run.finish()


def _check_meetings(program: Program) -> None:
    """Ranks meet by op id: refuse one id for different collectives."""
    known: dict[str, Op] = {}
    for plan in program.plans:
        for op in plan.ops:
            other = known.setdefault(op.id, op)
            if (other.kind, other.comm) != (op.kind, op.comm) and (other.comm or op.comm):
                raise InputError(
                    f"op '{op.id}' is a {other.kind} on {other.comm or 'no communicator'} in one "
                    f"plan and a {op.kind} on {op.comm or 'no communicator'} in another",
                    where="sim",
                    mend="give counterparts one kind and communicator, other ops other names",
                )


def _sources(works: Iterable[Work]) -> Sources:
    """Where the durations of each kind of op, or of a collective's phases, came from."""
    found: dict[str, dict[str, None]] = {}
    for work in {id(work): work for work in works}.values():
        for op, kernels in work.kernels.values():
            for kernel in kernels:
                thing = f"{op.kind} {kernel.phase}" if op.comm is not None else op.kind
                found.setdefault(thing, {})[kernel.source] = None
    return {thing: tuple(sources) for thing, sources in found.items()}


def _prepare(program: Program, plan: Plan, costs: Costs, gpu: Gpu) -> Work:
    if plan.captured and any(isinstance(command, HostWait) for command in plan.commands):
        raise InputError(
            "a captured plan has a host-wait: a CUDA graph has no host",
            where="sim",
            mend="leave it out, or do not capture",
        )
    kernels: dict[str, tuple[Op, tuple[Kernel, ...]]] = {}
    launched = {command.op for command in plan.commands if isinstance(command, Launch)}
    for op in (op for op in plan.ops if op.id in launched):
        if op.follows is not None:
            raise InputError(
                f"op '{op.id}' follows tiles of '{op.follows.producer}': the SimPy model has no "
                "partial dependencies",
                where="sim",
                mend="leave follows out, and let an event order the two ops",
            )
        if op.blocks_host and plan.captured:
            raise InputError(
                f"op '{op.id}' blocks the host in a captured plan: a CUDA graph has no host",
                where="sim",
                mend="leave blocks-host out (worst-case token counts), or do not capture",
            )
        own = costs.kernels(program, plan, op)
        # Several CTAs of layout and notify fit on one SM; the data phase wants one SM for each.
        small = (k._replace(sms=min(k.sms, gpu.sms)) if k.phase != "data" else k for k in own)
        kernels[op.id] = op, tuple(small) if op.comm is not None else own
        for kernel in kernels[op.id][1]:
            if kernel.gang and kernel.sms > gpu.sms and gpu.contention != "none":
                raise InputError(
                    f"op '{op.id}' ({kernel.phase}) wants {kernel.sms} SMs at once, and the GPU "
                    f"has {gpu.sms}",
                    where="sim",
                    mend="lower its sms",
                )
    return Work(plan, kernels)
