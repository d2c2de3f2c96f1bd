"""Streams of one rank as the hardware sees them: items in order, behind hardware queues."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import simpy

from dbo_sched.plan import Op, Stream
from sim.costs import Kernel
from sim.pace import Countdown

if TYPE_CHECKING:
    from sim.rank import Rank


class StreamState:
    """A stream's tail, the end of its latest kernel, and the hardware queue that feeds it."""

    def __init__(self, stream: Stream, queue: Queue) -> None:
        self.id = stream.id
        self.high_priority = stream.priority == "high"
        self.queue = queue
        self.tail: Item | None = None
        self.kernel_end_ns: int | None = None


class Queue:
    """A hardware queue: items enter in launch order; a head that cannot start holds the rest."""

    def __init__(self) -> None:
        self.items: deque[StreamWait | Run] = deque()
        self.wake: simpy.Event | None = None
        self.closed = False

    def push(self, item: StreamWait | Run) -> None:
        """Enter an item at the back."""
        self.items.append(item)
        self._rouse()

    def close(self) -> None:
        """Nothing more will come."""
        self.closed = True
        self._rouse()

    def _rouse(self) -> None:
        if self.wake is not None:
            self.wake.succeed()
            self.wake = None


class Item:
    """A kernel or a wait on a stream. ``done`` fires, once, when the stream may go on."""

    __slots__ = ("done", "end_ns", "finished", "previous", "rank", "stream")

    def __init__(self, rank: Rank, stream: StreamState) -> None:
        self.rank = rank
        self.stream = stream
        self.previous = stream.tail
        self.done = rank.env.event()
        self.finished = False
        self.end_ns = -1
        stream.tail = self

    def finish(self) -> None:
        """Let the stream go on, now."""
        self.finished = True
        self.end_ns = int(self.rank.env.now)
        self.previous = None
        self.done.succeed()


class Recorded:
    """What an event's record saw: its stream's tail at that moment."""

    __slots__ = ("at_ns", "stream", "tail")

    def __init__(self, stream: StreamState, at_ns: int) -> None:
        self.stream = stream.id
        self.tail = stream.tail
        self.at_ns = at_ns

    @property
    def open_tail(self) -> Item | None:
        """What the event still waits for."""
        return None if self.tail is None or self.tail.finished else self.tail

    @property
    def end_ns(self) -> int:
        """When the event was done; known once nothing is open."""
        return self.at_ns if self.tail is None else max(self.at_ns, self.tail.end_ns)


class StreamWait(Item):
    """A stream's wait for what an event's record saw."""

    __slots__ = ("at", "event", "record")

    def __init__(
        self, rank: Rank, stream: StreamState, event: str, record: Recorded, at: int
    ) -> None:
        super().__init__(rank, stream)
        self.at = at
        self.event = event
        self.record = record


class Run(Item):
    """One kernel of an op on its way through a stream; a tenant of the GPU (sim.gpu)."""

    __slots__ = (
        *("begun", "chained", "kernel", "launched_ns"),
        *("op", "order", "start_ns", "started"),
    )

    def __init__(
        self, rank: Rank, stream: StreamState, op: Op, kernel: Kernel, key: tuple[int, int]
    ) -> None:
        super().__init__(rank, stream)
        self.op = op
        self.kernel = kernel
        self.order = (not stream.high_priority, -1, key)
        self.launched_ns = int(rank.env.now)
        self.start_ns = -1
        self.begun = False
        self.started = rank.env.event()
        self.chained = rank.chain(self)

    def ready(self) -> None:
        """The kernel could start now if it had its SMs."""
        self.order = (self.order[0], int(self.rank.env.now), self.order[2])
        self.rank.sms.submit(self)

    def begin(self) -> None:
        """The kernel has its SMs."""
        self.begun = True
        self.rank.running += 1
        self.start_ns = int(self.rank.env.now)
        self.started.succeed()
        if self.kernel.meets:
            self.rank.meet(self)
        elif self.kernel.gang:
            moves = [(self.rank.memory, self.kernel.bytes)]
            Countdown(self.rank.env, self.kernel.ns, moves, self.finish)

    def finish(self) -> None:
        """The kernel has ended: its SMs go back and its stream goes on."""
        if self.kernel.gang:
            self.rank.sms.release(self)
        self.stream.kernel_end_ns = int(self.rank.env.now)
        super().finish()
        self.rank.note_kernel(self)
