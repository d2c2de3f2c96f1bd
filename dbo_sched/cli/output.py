"""How commands print: tables for people, JSON for scripts."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from dbo_sched.timeline import Timeline


def command_line() -> str:
    """The command that is running, as one would type it."""
    return "dbo-sched " + shlex.join(sys.argv[1:])


def print_json(value: Any) -> None:
    """One JSON document, indented."""
    print(json.dumps(msgspec.to_builtins(value, str_keys=True), indent=2))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "") -> None:
    """A table; the first column is text, the others numbers, and none is ever cut."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    least = 0
    for number, column in enumerate(columns):
        cells = [row[number] for row in rows]
        width = max(map(len, [*cells, *column.split()]), default=1)
        least += width + 2
        table.add_column(column, justify="right" if number else "left", min_width=width)
    for row in rows:
        table.add_row(*row)
    if title:
        print(title)
    console = Console(highlight=False)
    console.width = max(least, console.width if sys.stdout.isatty() else 200)
    console.print(table)


def print_notes(notes: Sequence[str]) -> None:
    """What a reader must know of the numbers above."""
    for note in notes:
        print(f"  * {note}")


def warn(message: str) -> None:
    """One line on standard error."""
    print(f"dbo-sched: {message}", file=sys.stderr)


def signed(timeline: Timeline) -> Timeline:
    """The timeline with the command that made it in its header."""
    header = msgspec.structs.replace(timeline.header, command=command_line())
    return msgspec.structs.replace(timeline, header=header)


def ms(ns: float) -> str:
    """Milliseconds with microseconds."""
    return f"{ns / 1e6:,.3f}"


def us(ns: float | None) -> str:
    """Microseconds with one decimal."""
    return "-" if ns is None else f"{ns / 1e3:,.1f}"


def percent(value: float | None) -> str:
    """A share, or a dash where there is none."""
    return "-" if value is None else f"{value:.1f} %"
