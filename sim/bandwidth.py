"""Memory bandwidth that the kernels on one GPU share, max-min fair.

While all kernels that move data demand no more than the GPU has, each runs at full speed. Otherwise
bandwidth is handed out evenly, to nobody more than it demands, and a kernel's speed is what it gets
over what it demands. Shares are exact fractions and change only when a kernel starts or stops
moving data, in whole nanoseconds; speeds are counted in 2 ** -40, rounded up, so that no step is
off by a picosecond.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cached_property
from math import ceil
from operator import attrgetter

from sim.settings import Gpu

FULL_SPEED = 2**40
"""The speed of a kernel that nobody slows."""


class Flow:
    """What one kernel moves: at full speed ``moved`` bytes in ``ns`` on each of ``ranks`` ranks.

    ``paced`` is called whenever ``speed`` changes; it must not start or stop a flow.
    """

    def __init__(
        self, domain: Domain, moved: int, ns: int, ranks: int, paced: Callable[[], None]
    ) -> None:
        self.domain, self.moved, self.ns, self.ranks = domain, moved, ns, ranks
        self.paced = paced
        self.speed = FULL_SPEED

    @cached_property
    def demand(self) -> Fraction:
        """Bytes/ns that one rank's kernel wants."""
        return Fraction(self.moved, self.ns)

    @property
    def moving(self) -> bool:
        """Whether it takes part in the sharing now."""
        return self in self.domain.flows

    def start(self) -> None:
        """The kernel begins to move data."""
        self.domain.flows[self] = None
        self.domain.share(self._bound())

    def stop(self) -> None:
        """The kernel moves no more data."""
        del self.domain.flows[self]
        self.set_speed(FULL_SPEED)
        self.domain.share(-self._bound())

    def set_speed(self, speed: int) -> None:
        """Go on at ``speed``."""
        if speed != self.speed:
            self.speed = speed
            self.paced()

    def _bound(self) -> int:
        """A whole number of bytes/ns that all its ranks do not exceed."""
        return -(-self.moved // self.ns) * self.ranks


class Domain:
    """The memory of one GPU: ``capacity`` in bytes/ns, and the flows that share it.

    While whole numbers show that there is enough for all, no fraction is worked out.
    """

    def __init__(self, capacity: Fraction) -> None:
        self.capacity = capacity
        self.flows: dict[Flow, None] = {}
        self._bound = 0
        self._short = False

    def share(self, change: int) -> None:
        """Set all speeds anew; ``change`` is that of what all flows do not exceed."""
        self._bound += change
        level = self._level() if self._bound > self.capacity else None
        if level is not None or self._short:
            for flow in self.flows:
                if level is not None and flow.demand > level:
                    flow.set_speed(ceil(level / flow.demand * FULL_SPEED))
                else:
                    flow.set_speed(FULL_SPEED)
        self._short = level is not None

    def _level(self) -> Fraction | None:
        """What everybody gets that demands more; ``None`` where nobody does."""
        left, ranks = self.capacity, sum(flow.ranks for flow in self.flows)
        for flow in sorted(self.flows, key=attrgetter("demand")):
            if flow.demand * ranks > left:
                return left / ranks
            left -= flow.demand * flow.ranks
            ranks -= flow.ranks
        return None


class Memory:
    """A simulated rank's way to its GPU's memory, where it counts as ``ranks`` ranks.

    Without a domain nothing is shared.
    """

    def __init__(self, domain: Domain | None = None, ranks: int = 1) -> None:
        self.domain, self.ranks = domain, ranks

    def flow(self, moved: int, ns: int, paced: Callable[[], None]) -> Flow | None:
        """The flow of ``moved`` bytes in ``ns``; none where they cannot slow anybody."""
        if self.domain is None or not moved or not ns:
            return None
        return Flow(self.domain, moved, ns, self.ranks, paced)


def memories(gpu: Gpu, represents: Mapping[int, tuple[int, ...]]) -> dict[int, Memory]:
    """The memory of each rank that is simulated.

    A rank counts as all those that it represents on its own GPU.
    """
    if gpu.memory_gbps is None:
        return {rank: Memory() for rank in represents}
    capacity = Fraction(str(gpu.memory_gbps))
    domains: dict[int, Domain] = {}
    found: dict[int, Memory] = {}
    for rank, ranks in represents.items():
        number = rank // gpu.ranks_per_gpu
        here = sum(other // gpu.ranks_per_gpu == number for other in ranks)
        found[rank] = Memory(domains.setdefault(number, Domain(capacity)), here)
    return found
