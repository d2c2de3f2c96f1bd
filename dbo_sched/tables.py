"""Tables of compared schedules, for the terminal and for notebooks alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from dbo_sched.ranking import Entry, fastest
from dbo_sched.units import change, ms, percent, us

COLUMNS = (
    "schedule",
    "ubatches",
    "step ms",
    "us per MoE layer",
    "gain",
    "comm hidden",
    "exposed transfer ms",
    "peer wait ms",
    "host blocked ms",
)


@dataclass(frozen=True)
class Table:
    """Headings and rows; the first column is text, the others numbers. Notebooks show it."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""

    def _repr_html_(self) -> str:
        def line(cells: Sequence[str], tag: str) -> str:
            first, *others = (escape(cell) for cell in cells)
            right = (f'<{tag} style="text-align:right">{cell}</{tag}>' for cell in others)
            left = f'<{tag} style="text-align:left">{first}</{tag}>'
            return f"<tr>{left}{''.join(right)}</tr>"

        caption = f"<caption>{escape(self.title)}</caption>" if self.title else ""
        body = "".join(line(row, "td") for row in self.rows)
        return f"<table>{caption}{line(self.columns, 'th')}{body}</table>"


def comparison(entries: Sequence[Entry], title: str = "") -> Table:
    """One row per schedule: its step and what becomes of the communication."""
    rows = (
        (
            entry.schedule,
            str(entry.ubatches),
            ms(entry.metrics.step_ns),
            us(entry.moe_layer_ns),
            f"{entry.gain:.2f}x",
            percent(entry.metrics.hidden_percent),
            ms(entry.metrics.mean.exposed_ns),
            ms(entry.metrics.mean.peer_wait_ns),
            ms(entry.metrics.mean.host_blocked_ns),
        )
        for entry in entries
    )
    return Table(COLUMNS, tuple(rows), title)


def sensitivities(entries: Sequence[Entry]) -> Table:
    """By how much each step changes when one kind of op, or the host, is 10 % faster."""
    kinds = list(dict.fromkeys(kind for entry in entries for kind in entry.faster))
    rows = (
        (entry.schedule, *(change(entry.faster[kind]) for kind in kinds))
        for entry in entries
        if entry.faster
    )
    return Table(("step change if 10 % faster", *kinds), tuple(rows))


def sm_grid(comm_sms: Sequence[int], grid: Sequence[Sequence[Entry]]) -> Table:
    """Steps by schedule and communication SMs, ``grid`` holding the entries of each number.

    The best of each schedule is marked with a star, the best of all with two.
    """
    best = fastest([fastest(entries) for entries in grid])
    rows = []
    for column in zip(*grid, strict=True):
        own = fastest(column)
        marks = ["**" if e is best else "*" if e is own else "" for e in column]
        cells = (f"{mark}{ms(e.metrics.step_ns)}" for e, mark in zip(column, marks, strict=True))
        rows.append((column[0].schedule, *cells))
    heads = ("step ms", *(f"{sms} SMs" for sms in comm_sms))
    return Table(heads, tuple(rows), "Split of the SMs: * best of a schedule, ** best of all")
