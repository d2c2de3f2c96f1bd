"""Kernels whose pace changes while they run, since memory (sim.bandwidth) slows them.

What holds the same SMs all its life, or none, is a :class:`Countdown`; kernels cut into CTAs
(sim.waves) go by a :class:`Clock` of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import simpy

from sim.bandwidth import FULL_SPEED, Flow, Memory


class Clock:
    """A kernel's own time: the model's until the kernel is slowed, and slower while it is.

    It counts in ns / ``FULL_SPEED``.
    """

    __slots__ = ("_at", "_reads", "speed")

    def __init__(self) -> None:
        self._at = 0
        self._reads = 0
        self.speed = FULL_SPEED

    def read(self, now: int) -> int:
        """What it shows at ``now``."""
        return self._reads + (now - self._at) * self.speed

    def pace(self, now: int, speed: int) -> None:
        """Go at ``speed`` from ``now`` on."""
        self._reads, self._at, self.speed = self.read(now), now, speed

    def when(self, ticks: int, scale: int = 1) -> int:
        """The first nanosecond at which it shows ``ticks`` / ``scale``, at today's speed."""
        return self._at - (self._reads * scale - ticks) // (scale * self.speed)


class Countdown:
    """Kernels that run for ``ns`` and end together, later by as much as memory slows them.

    ``moves`` names what each moves where. The slowest sets the pace for all; the others go on
    demanding as much as at full speed. Bytes are spread over all of ``ns``.
    """

    def __init__(
        self,
        env: simpy.Environment,
        ns: int,
        moves: Iterable[tuple[Memory, int]],
        finish: Callable[[], None],
    ) -> None:
        self._env, self._finish = env, finish
        self._clock = Clock()
        self._end = (int(env.now) + ns) * FULL_SPEED
        self._flows: list[Flow] = []
        self._plan(ns)
        for memory, moved in moves:
            flow = memory.flow(moved, ns, self._pace)
            if flow is not None:
                self._flows.append(flow)
                flow.start()

    def _plan(self, ns: int) -> None:
        """Come to the end in ``ns``; an earlier plan is dropped."""
        self._timer = self._env.timeout(ns)
        self._timer.callbacks.append(self._let_end)

    def _pace(self) -> None:
        speed = min((flow.speed for flow in self._flows), default=self._clock.speed)
        if speed != self._clock.speed:
            now = int(self._env.now)
            self._clock.pace(now, speed)
            self._plan(max(self._clock.when(self._end) - now, 0))

    def _let_end(self, timer: simpy.Event) -> None:
        if timer is not self._timer:
            return
        flows, self._flows = self._flows, []  # one that stops must not set the others' pace
        for flow in flows:
            flow.stop()
        self._finish()
