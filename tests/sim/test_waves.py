"""The closed-form waves against one CTA after the other, on random mixes of kernels."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from support import simulate, when

from sim import Gpu

SMS = 8


@dataclass
class Kernel:
    arrives: int
    high: bool
    gang: int  # SMs held at once; 0 for a grid
    tiles: int
    cap: int
    tile_ns: int
    after: int | None  # the kernel before it on its stream, or none
    starts: int = -1
    ends: int = -1

    @property
    def alone_ns(self) -> int:
        return self.tile_ns if self.gang else self.tile_ns * -(-self.tiles // SMS)


def one_by_one(kernels: list[Kernel]) -> None:
    """Sets start and end of every kernel by following single CTAs, instant by instant."""
    flying: list[tuple[int, int, int]] = []  # (end, kernel, SMs)
    left = [1 if kernel.gang else kernel.tiles for kernel in kernels]
    waiting: list[int] = []
    now = 0
    while any(left) or flying:
        flying = [cta for cta in flying if cta[0] > now]

        def take(i: int, now: int = now, flying: list = flying) -> bool:
            """Start what fits of a kernel; whether it got anything."""
            kernel, got = kernels[i], False
            while left[i]:
                free = SMS - sum(sms for _, _, sms in flying)
                held = sum(sms for _, other, sms in flying if other == i)
                if free < (kernel.gang or 1) or (not kernel.gang and held == kernel.cap):
                    break
                left[i] -= 1
                got = True
                kernel.starts = now if kernel.starts < 0 else kernel.starts
                kernel.ends = max(kernel.ends, now + kernel.tile_ns)
                flying.append((now + kernel.tile_ns, i, kernel.gang or 1))
            return got

        begun = [i for i, k in enumerate(kernels) if k.starts >= 0 and left[i]]

        def rank(i: int) -> tuple[bool, int, int]:
            return not kernels[i].high, kernels[i].arrives, i

        for i in sorted(begun + waiting, key=rank):
            if take(i) and i in waiting:
                waiting.remove(i)
            if i in waiting:
                break
        for i, kernel in enumerate(kernels):
            if kernel.after is not None and not left[kernel.after]:
                kernel.arrives = kernels[kernel.after].ends
            if kernel.arrives == now and (
                any(rank(other) < rank(i) for other in waiting) or not take(i)
            ):
                waiting.append(i)
        now += 1


@st.composite
def kernels(draw) -> Kernel:
    gang = draw(st.sampled_from((0, 0, 2, 6)))
    return Kernel(
        arrives=draw(st.integers(0, 30)),
        after=None,
        high=draw(st.booleans()),
        gang=gang,
        tiles=draw(st.integers(1, 40)),
        cap=draw(st.sampled_from((SMS, SMS, 3, 5))),
        tile_ns=draw(st.integers(1, 12)),
    )


@st.composite
def mixes(draw) -> list[Kernel]:
    """Kernels on streams of their own, some of them behind an earlier one."""
    drawn = draw(st.lists(kernels(), min_size=1, max_size=6))
    free = list(range(len(drawn)))
    for i, kernel in enumerate(drawn):
        before = draw(st.sampled_from([None, *(j for j in free if j < i)]))
        if before is not None:
            free.remove(before)
            kernel.after, kernel.arrives = before, -1
            kernel.high = drawn[before].high
    return drawn


@settings(max_examples=800, deadline=None)
@given(mixes())
def test_waves_are_exact(drawn):
    lines = ["program v1", "comm x transport=custom"]
    launches: list[str] = []
    streams: dict[int, str] = {}
    for i, kernel in enumerate(drawn):
        if kernel.after is None:
            streams[i] = f"s{i}"
            lines.append(f"stream s{i}" + " priority=high" * kernel.high)
            lines.append(f"op delay{i} kind=x ns=run:{kernel.arrives}")
            launches.append(f"u0 launch delay{i} s{i}")
        else:
            streams[i] = streams[kernel.after]
        if kernel.gang:
            lines.append(f"op k{i} kind=x comm=x sms={kernel.gang} ns=data:{kernel.alone_ns}")
        else:
            size = f"tiles={kernel.tiles} sms={kernel.cap}"
            lines.append(f"op k{i} kind=x {size} ns=run:{kernel.alone_ns}")
    lines += launches + [f"u0 launch k{i} {streams[i]}" for i in range(len(drawn))]
    timeline = simulate("\n".join(lines), gpu=Gpu(sms=SMS, connections=99))
    one_by_one(drawn)
    for i, kernel in enumerate(drawn):
        assert when(timeline, f"k{i}") == (kernel.starts, kernel.ends), i
