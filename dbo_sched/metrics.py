"""What is computed from a timeline, predicted or measured alike.

Definitions, per rank: *compute* runs while a kernel of an op that is neither a collective nor the
output copy runs. A collective's phase first waits for its last peer to start it, then works: the
data phase's work is *hidden* while compute runs and *exposed transfer* while none does; waiting in
notify or data while no compute runs is *peer wait*.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from dbo_sched.intervals import Intervals, intersect, length, subtract, union
from dbo_sched.plan import HOST
from dbo_sched.structs import Frozen
from dbo_sched.timeline import Span, Timeline

BUBBLES = (
    "exposed transfer",
    "peer wait",
    "layout and notify",
    "output copy",
    "host block",
    "gaps",
)
"""Why the compute stream's kernels are not running, in order of precedence."""


class Times(Frozen, frozen=True, kw_only=True):
    """Nanoseconds of one rank, or means over ranks.

    ``busy_ns`` is the time in which any kernel runs, ``data_ns`` that of data phases, waiting
    included. ``bubbles`` splits the step's time without compute by cause.
    """

    compute_ns: int
    busy_ns: int
    data_ns: int
    hidden_ns: int
    exposed_ns: int
    peer_wait_ns: int
    host_blocked_ns: int
    bubbles: dict[str, int]


class Metrics(Frozen, frozen=True, kw_only=True):
    """A step: its length, the times of each rank in the timeline, and their mean over all ranks."""

    step_ns: int
    mean: Times
    ranks: dict[int, Times]

    @property
    def hidden_percent(self) -> float | None:
        """Share of the transfer that ran under compute; ``None`` where nothing was transferred."""
        moved = self.mean.hidden_ns + self.mean.exposed_ns
        return 100 * self.mean.hidden_ns / moved if moved else None


def is_compute(span: Span) -> bool:
    """Whether a GPU span counts as compute: no part of a collective, nor its output copy."""
    return span.comm is None and span.kind != "output_copy"


def meets(span: Span) -> bool:
    """Whether a span goes on only once every rank runs its counterpart."""
    return span.comm is not None and span.phase != "layout"


def measure(timeline: Timeline) -> Metrics:
    """All metrics of a step."""
    last_start = last_starts(timeline)
    step_ns = timeline.makespan_ns
    spans: dict[int, list[Span]] = defaultdict(list)
    for span in timeline.spans:
        spans[span.rank].append(span)
    ranks = {rank: _times(spans[rank], step_ns, last_start) for rank in timeline.ranks}
    weights = [len(timeline.header.represents[rank]) for rank in ranks]

    def mean(values: Iterable[int]) -> int:
        weighed = sum(weight * ns for weight, ns in zip(weights, values, strict=True))
        return round(weighed / sum(weights)) if weights else 0

    fields = [field for field in Times.__struct_fields__ if field != "bubbles"]
    means = {field: mean(getattr(times, field) for times in ranks.values()) for field in fields}
    bubbles = {cause: mean(times.bubbles[cause] for times in ranks.values()) for cause in BUBBLES}
    return Metrics(step_ns=step_ns, mean=Times(**means, bubbles=bubbles), ranks=ranks)


def last_starts(timeline: Timeline) -> dict[tuple[str, str], int]:
    """When the last rank started each (op, phase) that ranks meet on."""
    last_start: dict[tuple[str, str], int] = defaultdict(int)
    for span in timeline.gpu():
        if meets(span):
            key = span.op, span.phase
            last_start[key] = max(last_start[key], span.start_ns)
    return dict(last_start)


def waiting(span: Span, last_start: dict[tuple[str, str], int]) -> tuple[int, int]:
    """The stretch in which a span that meets its peers waits for the last of them to start."""
    arrived = last_start.get((span.op, span.phase), span.start_ns)
    return span.start_ns, min(span.end_ns, max(arrived, span.start_ns))


def _times(spans: list[Span], step_ns: int, last_start: dict[tuple[str, str], int]) -> Times:
    """The times of one rank from its own spans."""
    gpu = [span for span in spans if span.stream != HOST]
    blocks = [span for span in spans if span.stream == HOST and span.phase == "block"]
    meeting = [span for span in gpu if meets(span)]
    data = [span for span in meeting if span.phase == "data"]
    compute = union((s.start_ns, s.end_ns) for s in gpu if is_compute(s))
    waits = union(waiting(span, last_start) for span in meeting)
    moving = union((waiting(span, last_start)[1], span.end_ns) for span in data)
    blocked = union((block.start_ns, block.end_ns) for block in blocks)
    other = union((s.start_ns, s.end_ns) for s in gpu if not is_compute(s))
    copies = union((s.start_ns, s.end_ns) for s in gpu if s.kind == "output_copy")
    exposed = subtract(moving, compute)
    causes = (exposed, waits, subtract(other, copies), copies, blocked, [(0, step_ns)])
    bubbles: dict[str, int] = {}
    idle = subtract([(0, step_ns)] if step_ns else [], compute)
    for name, cause in zip(BUBBLES, causes, strict=True):
        bubbles[name] = length(intersect(idle, cause))
        idle = subtract(idle, cause)
    return Times(
        compute_ns=length(compute),
        busy_ns=length(union((s.start_ns, s.end_ns) for s in gpu)),
        data_ns=length(union((s.start_ns, s.end_ns) for s in data)),
        hidden_ns=length(intersect(moving, compute)),
        exposed_ns=length(exposed),
        peer_wait_ns=length(subtract(waits, compute)),
        host_blocked_ns=length(blocked),
        bubbles=bubbles,
    )


def overlaps(timeline: Timeline, rank: int) -> dict[tuple[str, str], int]:
    """Nanoseconds that each (collective, compute op) pair ran at once, data phases only."""
    spans = list(timeline.gpu(rank))
    compute: dict[str, Intervals] = defaultdict(list)
    for span in spans:
        if is_compute(span):
            compute[span.op].append((span.start_ns, span.end_ns))
    pairs: dict[tuple[str, str], int] = {}
    for span in spans:
        if span.comm is None or span.phase != "data":
            continue
        for op, ran in compute.items():
            together = length(intersect([(span.start_ns, span.end_ns)], union(ran)))
            if together:
                pairs[span.op, op] = together
    return pairs
