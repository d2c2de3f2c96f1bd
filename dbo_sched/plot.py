"""Pictures of timelines: one panel each, a lane per stream and one for the host.

Ubatches are told apart by colour, waiting is hatched, thin arrows are event waits.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from dbo_sched.errors import InputError
from dbo_sched.metrics import last_starts, measure, waiting
from dbo_sched.plan import HOST, rank_spans, ranks_text
from dbo_sched.timeline import Span, Timeline, lanes_of
from dbo_sched.units import unit_for

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (
    *("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#9d755d"),
    *("#e45756", "#72b7b2", "#d6a800", "#ff9da6", "#79706e"),
)
"""Of ubatch 0, 1, 2, ...; from the eleventh on they repeat."""

LABELS = {
    "attention": ("attention", "attn", "A"),
    "dispatch": ("dispatch", "disp", "D"),
    "combine": ("combine", "comb", "C"),
    "experts": ("experts", "exp", "G"),
    "shared_experts": ("shared", "S"),
    "output_copy": ("copy", "K"),
}
"""Names of op kinds, the longest that fits is written; other kinds are written as they are."""

MOST_ARROWS = 150
"""More event waits than that would bury the picture; then none is drawn."""

LABEL = {"color": "white", "fontsize": 7.5, "fontweight": "bold"}

LETTERS = 130
"""How many letters fit on a panel's width."""


def draw(
    timelines: Sequence[Timeline], *, layers: tuple[int, int] | None = None, rank: int | None = None
) -> Figure:
    """The timelines of one rank, one panel each, on one scale.

    ``layers`` is the first and last layer to show, by default two in the middle where there are
    more than four; each panel starts where the first of them starts. ``rank`` is by default the
    lowest that the timelines hold.

    Raises:
        InputError: no kernel to draw, a rank or layers that a timeline does not hold.
    """
    from matplotlib.figure import Figure

    windows = [_window(timeline, layers, rank) for timeline in timelines]
    span_ns = max(1, *(end - start for start, end, _ in windows))
    windows = [(start, start + span_ns, shown) for start, _, shown in windows]
    lanes = [lanes_of(t, shown) for t, (_, _, shown) in zip(timelines, windows, strict=True)]
    heights = [len(names) + 1.2 for names in lanes]
    figure = Figure(figsize=(13, 0.42 * sum(heights) + 1.0), layout="constrained")
    panels = figure.subplots(len(timelines), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, timeline, window, names in zip(panels, timelines, windows, lanes, strict=True):
        _panel(axes, timeline, window, names)
    panels[-1].set_xlabel(f"{unit_for(span_ns)[1]} from the start of what is shown")
    _legend(figure, timelines)
    return figure


class Picture(bytes):
    """A PNG file's bytes; notebooks show it."""

    def _repr_png_(self) -> bytes:
        return bytes(self)


def timeline_png(
    timelines: Sequence[Timeline], *, layers: tuple[int, int] | None = None, rank: int | None = None
) -> Picture:
    """The picture as a PNG, with program hashes and command in its metadata."""
    buffer = io.BytesIO()
    headers = [timeline.header for timeline in timelines]
    about = "; ".join(f"{h.schedule} program {h.program_hash} {h.backend}" for h in headers)
    command = next((h.command for h in headers if h.command), "")
    figure = draw(timelines, layers=layers, rank=rank)
    figure.savefig(buffer, dpi=130, metadata={"Description": about, "Source": command})
    return Picture(buffer.getvalue())


def _window(
    timeline: Timeline, layers: tuple[int, int] | None, rank: int | None
) -> tuple[int, int, int]:
    """Start and end of what to show, and the rank that stands for the one asked for."""
    alike = timeline.header.represents
    asked = rank if rank is not None else min(alike, default=0)
    shown = next((known for known, ranks in alike.items() if asked in ranks), asked)
    spans = list(timeline.gpu(shown))
    if not spans:
        raise InputError(
            f"the timeline of '{timeline.header.schedule}' holds no kernel of rank {asked}",
            where="picture",
            mend=f"choose one of {ranks_text(sorted(chain.from_iterable(alike.values())))}",
        )
    known = sorted({span.layer for span in spans})
    middle = known[len(known) // 2 - 1 : len(known) // 2 + 1] if len(known) > 4 else known
    first, final = layers or (middle[0], middle[-1])
    chosen = [span for span in spans if first <= span.layer <= final]
    if not chosen:
        raise InputError(
            f"no kernel of layers {first} to {final}",
            where="picture",
            mend=f"choose from layers {rank_spans(known)}",
        )
    start = 0 if first <= known[0] else min(span.start_ns for span in chosen)
    end = max(span.end_ns for span in chosen)
    ahead = [span.start_ns for span in spans if span.layer > final]
    return start, end if not ahead else max(end, min(ahead)), shown


def _panel(axes: Axes, timeline: Timeline, window: tuple[int, int, int], lanes: list[str]) -> None:
    start, end, rank = window
    unit = unit_for(end - start)[0]
    rows = {lane: -row for row, lane in enumerate(lanes)}
    arrived = last_starts(timeline)
    ops: dict[tuple[str, str], list[Span]] = defaultdict(list)
    for span in timeline.spans:
        if span.rank == rank and span.end_ns > start and span.start_ns < end:
            ops[span.op, span.stream].append(span)
    for (_, lane), spans in ops.items():
        for span in spans:
            _bar(axes, span, rows[lane], window, arrived)
        if lane != HOST:
            _label(axes, spans, rows[lane], window)
    edges = [
        edge
        for edge in timeline.edges
        if edge.rank == rank and start <= edge.recorded_ns and edge.passed_ns <= end
    ]
    for edge in edges if len(edges) <= MOST_ARROWS else []:
        tail = ((edge.recorded_ns - start) / unit, rows.get(edge.from_stream, 0))
        head = ((edge.passed_ns - start) / unit, rows.get(edge.to_stream, 0))
        style = {"arrowstyle": "->", "color": "#333333", "lw": 0.5, "alpha": 0.6}
        axes.annotate("", head, tail, arrowprops=style)
    axes.set_xlim(0, (end - start) / unit)
    axes.set_ylim(-len(lanes) + 0.4, 0.6)
    axes.set_yticks(list(rows.values()), list(rows), parse_math=False)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_title(_title(timeline, rank), loc="left", fontsize=10, parse_math=False)


def _bar(
    axes: Axes,
    span: Span,
    row: int,
    window: tuple[int, int, int],
    arrived: dict[tuple[str, str], int],
) -> None:
    colour = COLOURS[span.ubatch % len(COLOURS)]
    start, stop, _ = window
    unit = unit_for(stop - start)[0]

    def box(begin: int, end: int, **style: Any) -> None:
        if end > begin:
            place = [((begin - start) / unit, (end - begin) / unit)]
            axes.broken_barh(place, (row - 0.36, 0.72), **style)

    hatched = {"facecolor": "white", "edgecolor": colour, "hatch": "////", "lw": 0.6}
    if span.phase == "block":
        box(span.start_ns, span.end_ns, **hatched)
        return
    _, ready = waiting(span, arrived)
    box(span.start_ns, ready, **hatched)
    light = span.phase in ("layout", "notify") or span.stream == HOST
    wide = (span.end_ns - ready) * 500 > stop - start
    edge = {"edgecolor": "white" if wide else colour, "lw": 0.3 if wide else 0 if light else 0.5}
    box(ready, span.end_ns, facecolor=colour, alpha=0.55 if light else 1, **edge)


def _label(axes: Axes, spans: list[Span], row: int, window: tuple[int, int, int]) -> None:
    """The longest of the op's names that fits on its bars, with the layer where there is room."""
    start, end, _ = window
    spans = [span for span in spans if span.comm is None or span.phase == "data"] or spans
    first = max(start, min(span.start_ns for span in spans))
    last = min(end, max(span.end_ns for span in spans))
    if sum(span.end_ns - span.start_ns for span in spans) < 0.7 * (last - first):
        return  # the label would lie on the gaps
    room = (last - first) / (end - start) * LETTERS
    kind, layer = spans[0].kind, spans[0].layer
    names = LABELS.get(kind, (kind,))
    text = next((n for n in (f"{names[0]} {layer}", *names) if len(n) + 0.6 < room), "")
    if not text:
        return
    middle = ((first + last) / 2 - start) / unit_for(end - start)[0]
    place = {"ha": "center", "va": "center"}
    axes.text(middle, row, text, place | LABEL, parse_math=False)


def _title(timeline: Timeline, rank: int) -> str:
    metrics = measure(timeline)
    factor, unit = unit_for(metrics.step_ns)
    hidden = metrics.hidden_percent
    parts = [
        f"{(timeline.header.schedule or 'program')[:40]} ({timeline.header.backend})",
        f"step {metrics.step_ns / factor:.4g} {unit}",
        "no transfer" if hidden is None else f"{hidden:.0f} % of the transfer hidden",
        f"program {timeline.header.program_hash}",
    ]
    return ",  ".join(parts + ([f"rank {rank}"] if len(timeline.ranks) > 1 else []))


def _legend(figure: Figure, timelines: Sequence[Timeline]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    ubatches = sorted({span.ubatch for timeline in timelines for span in timeline.spans})
    handles: list[Patch | Line2D] = [
        Patch(facecolor=COLOURS[u % len(COLOURS)], label=f"ubatch {u}")
        for u in ubatches[: len(COLOURS)]
    ]
    handles += [
        Patch(facecolor="#777777", alpha=0.55, label="host busy, layout, notify"),
        Patch(
            facecolor="white",
            edgecolor="#555555",
            hatch="////",
            label="host blocked, waiting for a peer",
        ),
        Line2D([], [], color="#333333", lw=0.8, marker=">", markersize=4, label="event wait"),
    ]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=min(len(handles), 7), fontsize=8
    )
