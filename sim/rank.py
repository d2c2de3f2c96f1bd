"""One rank of the model: the process of its host, and one for each of its hardware queues."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias

import simpy

from dbo_sched.plan import HOST, HostWait, Launch, Op, Plan, Program, Record, Wait
from dbo_sched.timeline import Edge, Span
from sim.bandwidth import Memory
from sim.costs import Kernel
from sim.gpu import NoContention, SmModel
from sim.settings import Gpu, Host
from sim.streams import Item, Queue, Recorded, Run, StreamState, StreamWait
from sim.waves import Waves

Place: TypeAlias = tuple[int, int, int, int]
"""Start, end, number of the command, number of the kernel: a total order over a rank's spans."""

Process: TypeAlias = Generator[simpy.Event, Any, None]


@dataclass(frozen=True)
class Work:
    """A plan with the kernels of its ops, shared by all ranks that run it."""

    plan: Plan
    kernels: dict[str, tuple[Op, tuple[Kernel, ...]]]


class Rank:
    """One rank: its host, its streams, its events and its SMs."""

    def __init__(
        self,
        env: simpy.Environment,
        number: int,
        work: Work,
        program: Program,
        host: Host,
        gpu: Gpu,
        start_ns: int,
        alike: int,
        memory: Memory,
        meet: Callable[[Run], None],
    ) -> None:
        """The rank stands for ``alike`` ranks.

        ``meet`` is called with every kernel that has to wait for its counterparts.
        """
        self.env, self.number, self.work, self.alike = env, number, work, alike
        self.host, self.gpu, self.meet = host, gpu, meet
        self.spans: list[tuple[Place, Span]] = []
        self.edges: list[tuple[Place, Edge]] = []
        self.memory = memory
        sm_model = Waves if gpu.contention == "waves" else NoContention
        self.sms: SmModel = sm_model(env, gpu.sms, memory)
        self.queues = [Queue() for _ in range(min(gpu.connections, len(program.streams)))]
        self.streams = {
            stream.id: StreamState(stream, self.queues[i % len(self.queues)])
            for i, stream in enumerate(program.streams)
        }
        self.at = -1
        self.running = 0
        self.blocked_on: Item | None = None
        self._events: dict[str, Recorded] = {}
        self._nccl = {comm.id for comm in program.comms if comm.transport == "nccl"}
        self._latest: dict[str, Run] = {}
        self.processes = [env.process(self._issue(start_ns))]
        self.processes += [env.process(self._feed(queue)) for queue in self.queues]

    def chain(self, run: Run) -> Run | None:
        """The kernel that has to end before ``run``: NCCL orders a communicator's ops itself."""
        comm = run.op.comm
        if comm not in self._nccl:
            return None
        before = self._latest.get(comm)
        self._latest[comm] = run
        return before

    def note_kernel(self, run: Run) -> None:
        """Keep the span of a kernel that has just ended."""
        self.running -= 1
        op = run.op
        span = Span(
            op=op.id,
            kind=op.kind,
            phase=run.kernel.phase,
            layer=op.layer,
            ubatch=op.ubatch,
            rank=self.number,
            stream=run.stream.id,
            start_ns=run.start_ns,
            end_ns=run.end_ns,
            origin=run.kernel.origin,
            comm=op.comm,
        )
        self.spans.append(((run.start_ns, run.end_ns, *run.order[2]), span))

    # The host

    def _issue(self, start_ns: int) -> Process:
        try:
            yield from self._walk(start_ns)
        except simpy.Interrupt:
            return
        for queue in self.queues:
            queue.close()

    def _walk(self, start_ns: int) -> Process:
        host, plan, turn = self.host, self.work.plan, None
        if start_ns:
            yield self.env.timeout(start_ns)
        if plan.captured:
            yield from self._spend(host.launch_ns, "launch", "graph", 0)
            host = Host()
        for self.at, command in enumerate(plan.commands):
            if host.threads and turn not in (None, command.turn):
                yield from self._spend(host.hand_over_ns, "hand-over", "", command.turn)
            turn = command.turn
            if isinstance(command, Launch):
                yield from self._launch(command, host)
            elif isinstance(command, Record):
                if host.record_ns:
                    yield from self._spend(host.record_ns, "record", command.event, turn)
                record = Recorded(self.streams[command.stream], int(self.env.now))
                self._events[command.event] = record
            elif isinstance(command, Wait):
                if host.wait_ns:
                    yield from self._spend(host.wait_ns, "wait", command.event, turn)
                if command.event in self._events:
                    stream = self.streams[command.stream]
                    record = self._events[command.event]
                    stream.queue.push(StreamWait(self, stream, command.event, record, self.at))
            elif isinstance(command, HostWait) and command.event in self._events:
                yield from self._block(self._events[command.event].open_tail, command.event, turn)
        self.at = len(plan.commands)

    def _launch(self, command: Launch, host: Host) -> Process:
        op, kernels = self.work.kernels[command.op]
        stream = self.streams[command.stream]
        cost = host.launch_ns if op.comm is None else host.comm_launch_ns
        blocking = -1
        if op.blocks_host:
            phases = [kernel.phase for kernel in kernels]
            blocking = phases.index("notify") if "notify" in phases else len(phases) - 1
        for number, kernel in enumerate(kernels):
            if blocking == number - 1 >= 0:
                yield from self._spend(host.resume_ns, "resume", op.id, op.ubatch)
            elif cost:
                yield from self._spend(cost, "launch", op.id, op.ubatch)
            run = Run(self, stream, op, kernel, (self.at, number))
            stream.queue.push(run)
            if number == blocking:
                yield from self._block(run, op.id, op.ubatch)

    def _block(self, item: Item | None, name: str, turn: int) -> Process:
        if item is not None and not item.finished:
            start = int(self.env.now)
            self.blocked_on = item
            yield item.done
            self.blocked_on = None
            self._note_host("block", name, turn, start)

    def _spend(self, ns: int, what: str, name: str, turn: int) -> Process:
        if ns:
            start = int(self.env.now)
            yield self.env.timeout(ns)
            self._note_host(what, name, turn, start)

    def _note_host(self, what: str, name: str, turn: int, start: int) -> None:
        span = Span(
            op=name,
            kind=HOST,
            phase=what,
            layer=self.work.kernels[name][0].layer if name in self.work.kernels else 0,
            ubatch=turn,
            rank=self.number,
            stream=HOST,
            start_ns=start,
            end_ns=int(self.env.now),
            origin="model",
        )
        self.spans.append(((start, span.end_ns, self.at, -1), span))

    # The GPU

    def _feed(self, queue: Queue) -> Process:
        try:
            while queue.items or not queue.closed:
                if not queue.items:
                    queue.wake = self.env.event()
                    yield queue.wake
                    continue
                item = queue.items[0]
                if item.previous is not None and not item.previous.finished:
                    yield item.previous.done
                if isinstance(item, StreamWait):
                    yield from self._pass(item)
                else:
                    yield from self._start(item)
                queue.items.popleft()
        except simpy.Interrupt:
            return

    def _pass(self, wait: StreamWait) -> Process:
        record = wait.record
        if record.open_tail is not None:
            yield record.open_tail.done
        own = record.stream == wait.stream.id  # stream order has seen to it already
        passes = record.end_ns + (0 if own else self.gpu.event_ns)
        if passes > self.env.now:
            yield self.env.timeout(passes - self.env.now)
        wait.finish()
        edge = Edge(
            event=wait.event,
            rank=self.number,
            from_stream=record.stream,
            recorded_ns=record.end_ns,
            to_stream=wait.stream.id,
            passed_ns=wait.end_ns,
        )
        self.edges.append(((edge.recorded_ns, wait.end_ns, wait.at, 0), edge))

    def _start(self, run: Run) -> Process:
        starts = run.launched_ns + self.gpu.idle_ns
        if run.stream.kernel_end_ns is not None:
            starts = max(starts, run.stream.kernel_end_ns + self.gpu.stream_ns)
        if starts > self.env.now:
            yield self.env.timeout(starts - self.env.now)
        if run.chained is not None and not run.chained.finished:
            yield run.chained.done
        run.ready()
        if not run.begun:
            yield run.started
