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


def console() -> Console:
    """Standard output; wide where it is no terminal, so that nothing is cut."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else 200)


def print_json(value: Any) -> None:
    """One JSON document, indented."""
    print(json.dumps(msgspec.to_builtins(value, str_keys=True), indent=2))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "") -> None:
    """A table; the first column is text, the others numbers."""
    table = Table(box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left", no_wrap=number == 0)
    for row in rows:
        table.add_row(*row)
    if title:
        print(title)
    console().print(table)


def print_notes(notes: Sequence[str]) -> None:
    """What a reader must know of the numbers above."""
    for note in notes:
        print(f"  * {note}")


def signed(timeline: Timeline) -> Timeline:
    """The timeline with the command that made it in its header."""
    command = "dbo-sched " + shlex.join(sys.argv[1:])
    header = msgspec.structs.replace(timeline.header, command=command)
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
