"""Shared bandwidth against a fluid that is followed nanosecond by nanosecond, on random mixes.

One rank, kernels on streams of their own or behind each other: without SMs, as gangs, or as CTAs.
The fluid hands out bandwidth by turns: while anybody's demand is below an even share of what is
left, it gets its demand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st
from support import simulate, when

from sim import Gpu

SMS = 8


@dataclass
class Kernel:
    arrives: int
    after: int | None  # the kernel before it on its stream, or none
    high: bool
    ns: int
    moved: int
    gang: int = 0  # SMs held at once
    tiles: int = 0  # neither a gang nor tiles: it holds no SMs
    left: int = 1  # CTAs, or the whole, not yet started
    flying: list[Fraction] = field(default_factory=list)  # what each has left, in ns at full speed
    starts: int = -1
    ends: int = -1

    @property
    def demand(self) -> Fraction:
        return Fraction(self.moved, self.ns or 1)

    @property
    def tile(self) -> Fraction:
        return Fraction(self.ns, -(-self.tiles // SMS) or 1)

    @property
    def held(self) -> int:
        return self.gang * bool(self.flying) if self.gang else len(self.flying) * bool(self.tiles)

    def take(self, now: int, free: int) -> bool:
        """Start what fits; whether anything did."""
        count = min(free, self.left) if self.tiles else int(self.gang <= free)
        self.left -= count
        self.flying += [self.tile] * count
        self.starts = now if count and self.starts < 0 else self.starts
        return count > 0

    def run(self, speed: Fraction, *, keep: bool) -> None:
        """One nanosecond; where ``keep``, CTAs that end within take the next tile at once."""
        self.flying = [rest - speed for rest in self.flying]
        while keep and self.left and min(self.flying) <= 0:
            first = self.flying.index(min(self.flying))
            self.flying[first] += self.tile
            self.left -= 1


def speeds(demands: list[Fraction], capacity: Fraction) -> list[Fraction]:
    """What part of its demand everybody gets."""
    got: dict[int, Fraction] = {}
    while len(got) < len(demands):
        even = (capacity - sum(got.values())) / (len(demands) - len(got))
        small = {i: d for i, d in enumerate(demands) if i not in got and d <= even}
        got |= small or {i: even for i in range(len(demands)) if i not in got}
    return [got[i] / d if d else Fraction(1) for i, d in enumerate(demands)]


def flow(kernels: list[Kernel], capacity: Fraction) -> None:
    """Sets start and end of every kernel. No two kernels of CTAs may meet."""
    waiting: list[int] = []
    now = 0

    def order(i: int) -> tuple[bool, int, int]:
        return not kernels[i].high, kernels[i].arrives, i

    def free() -> int:
        return SMS - sum(kernel.held for kernel in kernels)

    while any(kernel.ends < 0 for kernel in kernels):
        new: list[int] = []
        for i, kernel in enumerate(kernels):  # those behind others come later in the list
            if kernel.after is not None and kernels[kernel.after].ends == now:
                kernel.arrives = now
            if kernel.arrives == now:
                new.append(i)
                if not kernel.gang and not kernel.tiles:
                    kernel.take(now, 0)
            kernel.flying = [rest for rest in kernel.flying if rest > 0]
            if kernel.starts >= 0 > kernel.ends and not kernel.left and not kernel.flying:
                kernel.ends = now
        begun = [i for i, kernel in enumerate(kernels) if kernel.starts >= 0 and kernel.left]
        for i in sorted(begun + waiting, key=order):
            if kernels[i].take(now, free()) and i in waiting:
                waiting.remove(i)
            if i in waiting:
                break
        for i in (i for i in new if kernels[i].gang or kernels[i].tiles):
            outranked = any(order(other) < order(i) for other in waiting)
            if outranked or not kernels[i].take(now, free()):
                waiting.append(i)
        running = [i for i, kernel in enumerate(kernels) if kernel.flying]
        paces = speeds([kernels[i].demand for i in running], capacity)
        for i, speed in zip(running, paces, strict=True):
            kernels[i].run(speed, keep=all(order(i) < order(other) for other in waiting))
        now += 1


@st.composite
def mixes(draw, *, sms: bool) -> list[Kernel]:
    """With ``sms`` gangs, and one stream of kernels that are CTAs, beside what holds no SMs."""
    drawn: list[Kernel] = []
    free: set[int] = set()
    for i in range(draw(st.integers(1, 7))):
        kind = draw(st.sampled_from(("gang", "ctas", "loose"))) if sms else "loose"
        last = max((j for j, kernel in enumerate(drawn) if kernel.tiles), default=None)
        if kind == "ctas" and last is not None:
            after = last if last in free else None
            kind = kind if last in free else "loose"
        else:
            after = draw(st.sampled_from([None, *sorted(free)]))
        free = (free - {after}) | {i}
        tiles = draw(st.integers(1, 40)) if kind == "ctas" else 0
        drawn.append(
            Kernel(
                arrives=draw(st.integers(0, 30)) if after is None else -1,
                after=after,
                high=draw(st.booleans()) if after is None else drawn[after].high,
                ns=draw(st.integers(int(sms), 25)),
                moved=draw(st.sampled_from((0, 10, 77, 300)) | st.integers(1, 1000)),
                gang=draw(st.sampled_from((2, 5, 8))) if kind == "gang" else 0,
                tiles=tiles,
                left=tiles or 1,
            )
        )
    return drawn


def check(drawn: list[Kernel], capacity: float, gpu: Gpu) -> None:
    lines, launches = ["program v1", "comm x transport=custom"], []
    streams: dict[int, str] = {}
    for i, kernel in enumerate(drawn):
        if kernel.after is None:
            streams[i] = f"s{i}"
            lines.append(f"stream s{i}" + " priority=high" * kernel.high)
            lines.append(f"op delay{i} kind=x ns=run:{kernel.arrives}")
            launches.append(f"u0 launch delay{i} s{i}")
        else:
            streams[i] = streams[kernel.after]
        size = f" tiles={kernel.tiles}" * bool(kernel.tiles)
        if kernel.gang:
            size = f" comm=x sms={kernel.gang}"
        phase = "data" if kernel.gang else "run"
        lines.append(f"op k{i} kind=x{size} bytes={kernel.moved} ns={phase}:{kernel.ns}")
    launches += [f"u0 launch k{i} {streams[i]}" for i in range(len(drawn))]
    timeline = simulate("\n".join(lines + launches), gpu=gpu)
    flow(drawn, Fraction(str(capacity)))
    for i, kernel in enumerate(drawn):
        assert when(timeline, f"k{i}") == (kernel.starts, kernel.ends), i


capacities = st.sampled_from((3, 9.7, 30, 100))


@settings(max_examples=500, deadline=None)
@given(mixes(sms=False), capacities)
def test_sharing_is_exact(drawn, capacity):
    check(drawn, capacity, Gpu(contention="none", connections=99, memory_gbps=capacity))


@settings(max_examples=800, deadline=None)
@given(mixes(sms=True), capacities)
def test_sharing_is_exact_among_ctas(drawn, capacity):
    check(drawn, capacity, Gpu(sms=SMS, connections=99, memory_gbps=capacity))
