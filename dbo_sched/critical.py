"""The critical path of a timeline: the chain of spans that made the step as long as it is.

Found by walking back from the last kernel: what ended last of all that a span had to wait for, its
stream's previous kernel, an event, its own launch on the host, or a peer. Needs nothing but the
timeline, so it means the same for predicted and measured ones.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator

from dbo_sched.metrics import meets
from dbo_sched.plan import HOST
from dbo_sched.timeline import Edge, Span, Timeline

GAPS = "gaps"
"""Time on the path in which no span of it ran: latencies, and waiting for SMs."""


def critical_path(timeline: Timeline) -> tuple[Span, ...]:
    """The spans of the path in order of time, from the start of the step to its last kernel."""
    search = _Search(timeline)
    span = max(timeline.gpu(), key=lambda s: (s.end_ns, -s.rank), default=None)
    path: list[Span] = []
    while span is not None:
        span = search.last_to_arrive(span)
        path.append(span)
        span = search.before(span)
    return tuple(reversed(path))


def time_on_path(timeline: Timeline) -> dict[str, int]:
    """Nanoseconds of the path by op kind, ``host`` and ``gaps``, most first.

    They add up to the makespan.
    """
    times: dict[str, int] = defaultdict(int)
    now = 0
    for span in critical_path(timeline):
        times[GAPS] += max(0, span.start_ns - now)
        times[span.kind] += max(0, span.end_ns - max(now, span.start_ns))
        now = max(now, span.end_ns)
    return {kind: ns for kind, ns in sorted(times.items(), key=lambda item: -item[1]) if ns}


class _Search:
    """Looks up what a span had to wait for."""

    def __init__(self, timeline: Timeline) -> None:
        self.lanes: dict[tuple[int, str], list[Span]] = defaultdict(list)
        self.launches: dict[tuple[int, str], list[Span]] = defaultdict(list)
        self.kernels: dict[tuple[int, str], list[Span]] = defaultdict(list)
        self.of_rank: dict[int, list[Span]] = defaultdict(list)
        self.peers: dict[tuple[str, str], list[Span]] = defaultdict(list)
        self.waits: dict[tuple[int, str], list[Edge]] = defaultdict(list)
        for span in timeline.spans:
            self.lanes[span.rank, span.stream].append(span)
            if span.stream != HOST:
                self.kernels[span.rank, span.op].append(span)
                self.of_rank[span.rank].append(span)
            elif span.phase in ("launch", "resume"):
                self.launches[span.rank, span.op].append(span)
            if meets(span):
                self.peers[span.op, span.phase].append(span)
        self.seen: set[int] = set()
        self.place = {id(span): number for number, span in enumerate(timeline.spans)}
        for edge in timeline.edges:
            self.waits[edge.rank, edge.to_stream].append(edge)

    def last_to_arrive(self, span: Span) -> Span:
        """The counterpart that started last, where a span has any that started after it."""
        others = self.peers[span.op, span.phase] if meets(span) else []
        last = max(others, key=lambda other: other.start_ns, default=span)
        return last if last.start_ns > span.start_ns else span

    def before(self, span: Span) -> Span | None:
        """What ended last of all that ``span`` waited for."""
        self.seen.add(id(span))
        found = (earlier for earlier in self._candidates(span) if id(earlier) not in self.seen)
        return max(found, key=lambda c: (c.end_ns, c.stream != HOST), default=None)

    def _candidates(self, span: Span) -> Iterator[Span]:
        rank = span.rank
        yield from self._latest(span, span.stream, span.start_ns)
        if span.stream == HOST:
            if span.phase == "block":
                awaited = self.kernels.get((rank, span.op)) or self.of_rank[rank]
                yield from (k for k in awaited if k.end_ns == span.end_ns)
            return
        for edge in self.waits[rank, span.stream]:
            if edge.passed_ns <= span.start_ns:
                yield from self._latest(span, edge.from_stream, edge.recorded_ns)
        launches = [c for c in self.launches[rank, span.op] if c.end_ns <= span.start_ns]
        if launches:
            yield max(launches, key=lambda launch: launch.end_ns)
        elif not self.launches[rank, span.op]:  # launched at no cost, perhaps right behind a block
            yield from (b for b in self._latest(span, HOST, span.start_ns) if b.phase == "block")

    def _latest(self, span: Span, stream: str, at: int) -> Iterator[Span]:
        """The last span of a lane before ``span`` that has ended by ``at``.

        A timeline lists a rank's spans in order of time and, where they tie, in plan order, so a
        cause always stands before its effect.
        """
        lane = self.lanes[span.rank, stream]
        index = bisect_right(lane, at, key=lambda earlier: earlier.end_ns)
        while index and self.place[id(lane[index - 1])] >= self.place[id(span)]:
            index -= 1
        if index:
            yield lane[index - 1]
