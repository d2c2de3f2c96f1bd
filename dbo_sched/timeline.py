"""What a backend answers: when each kernel ran, when the host was busy, what waited for what.

Predicted and measured timelines have the same shape, so that they can be laid over each other and
every metric means the same for both. Times are integer nanoseconds from the step's common start.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dbo_sched.errors import InputError
from dbo_sched.plan import HOST
from dbo_sched.structs import Frozen


class Span(Frozen, frozen=True, kw_only=True):
    """One kernel on a stream of one rank, or one stretch of its host (``stream`` is ``host``).

    ``phase`` is ``layout``, ``notify`` or ``data`` for a collective, the kernel's name otherwise;
    for the host ``launch``, ``record``, ``wait``, ``block``, ``resume`` or ``hand-over``.
    ``origin`` says where the duration came from. ``comm`` is a collective's
    communicator; but for ``layout``, its spans meet those of the same op and phase on other ranks.
    """

    op: str
    kind: str
    phase: str
    layer: int
    ubatch: int
    rank: int
    stream: str
    start_ns: int
    end_ns: int
    origin: str = ""
    comm: str | None = None


class Edge(Frozen, frozen=True, kw_only=True):
    """An event wait: ``event`` was done at ``recorded_ns``, the stream went on at ``passed_ns``."""

    event: str
    rank: int
    from_stream: str
    recorded_ns: int
    to_stream: str
    passed_ns: int


class Header(Frozen, frozen=True, kw_only=True):
    """Where a timeline comes from.

    ``clock_error_ns`` bounds how far two ranks' clocks may be apart. ``represents`` maps each rank
    in the timeline to the ranks that behave exactly like it. ``notes`` are what a reader must know
    before trusting the numbers.
    """

    backend: str
    versions: dict[str, str]
    program_hash: str
    schedule: str
    clock_error_ns: int = 0
    represents: dict[int, tuple[int, ...]] = msgspec.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    command: str = ""


class Timeline(Frozen, frozen=True, kw_only=True):
    """One step of one program. GPU and host ``spans`` are in order of rank and start."""

    header: Header
    spans: tuple[Span, ...]
    edges: tuple[Edge, ...] = ()

    @property
    def ranks(self) -> list[int]:
        """Ranks in the timeline."""
        return sorted(self.header.represents)

    @property
    def makespan_ns(self) -> int:
        """The step: from the common start to the end of the last GPU span."""
        return max((span.end_ns for span in self.gpu()), default=0)

    def gpu(self, rank: int | None = None) -> Iterator[Span]:
        """Kernels, of one rank or of all."""
        return (s for s in self.spans if s.stream != HOST and rank in (None, s.rank))

    def host(self, rank: int | None = None) -> Iterator[Span]:
        """Host spans, of one rank or of all."""
        return (s for s in self.spans if s.stream == HOST and rank in (None, s.rank))

    def _repr_png_(self) -> bytes:
        from dbo_sched.plot import timeline_png

        return timeline_png([self])


LANES = (HOST, "compute", "a2a", "comm", "aux")


def lanes_of(timeline: Timeline, rank: int | None = None) -> list[str]:
    """The lanes that hold spans of a rank, or of any: the host, the usual streams, then others."""
    used = {span.stream for span in timeline.spans if rank in (None, span.rank)}
    return [lane for lane in LANES if lane in used] + sorted(used - set(LANES))


def to_json(timeline: Timeline) -> bytes:
    """The JSON form."""
    return msgspec.json.encode(timeline)


def from_json(data: bytes, where: str) -> Timeline:
    """Parse the JSON form.

    Raises:
        InputError: naming the JSON path that does not fit.
    """
    mend = "give a file that simulate wrote"
    try:
        timeline = msgspec.json.decode(data, type=Timeline)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"not a timeline: {error}", where=where, mend=mend) from None
    for number, span in enumerate(timeline.spans):
        if span.end_ns < span.start_ns or span.rank not in timeline.header.represents:
            raise InputError(
                f"span {number} ({span.op}) ends before it starts, or is of a rank that the header "
                "does not list",
                where=where,
                mend=mend,
            )
    return timeline
