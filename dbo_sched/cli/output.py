"""How commands print: tables for people, JSON for scripts."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import Progress

from dbo_sched.timeline import Timeline


def command_line() -> str:
    """The command that is running, as one would type it."""
    return "dbo-sched " + shlex.join(sys.argv[1:])


def print_json(value: Any) -> None:
    """One JSON document, indented."""
    print(json.dumps(msgspec.to_builtins(value, str_keys=True), indent=2))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "") -> None:
    """A table; the first column is text, the others numbers.

    Nothing is ever cut: where the terminal is narrow, headings break into lines, numbers never.
    """
    heads = [[column] for column in columns]
    if sys.stdout.isatty() and _width(heads, rows) > shutil.get_terminal_size().columns:
        heads = [column.split() for column in columns]
    deep = max(map(len, heads))
    lines = list(zip(*([""] * (deep - len(head)) + head for head in heads), strict=True))
    widths = _widths(heads, rows)
    if title:
        print(title)
    for line in [*lines, *rows]:
        cells = [
            cell.rjust(width) if number else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


def _widths(heads: Sequence[Sequence[str]], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, [*head, *(r[n] for r in rows)])) for n, head in enumerate(heads)]


def _width(heads: Sequence[Sequence[str]], rows: Sequence[Sequence[str]]) -> int:
    return sum(width + 2 for width in _widths(heads, rows)) - 2


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


class Bar:
    """A progress bar on standard error, where that is a terminal; silent elsewhere."""

    def __init__(self) -> None:
        self._bar = Progress(
            *Progress.get_default_columns(),
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task("", total=1.0)
        self.report("")

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def report(self, what: str, start: float = 0.0, end: float = 1.0) -> None:
        """What is being done, and from which part of all to which."""
        self._what, self._start, self._end = what, start, end
        self._bar.update(self._task, description=what, completed=start)

    def inside(self, part: float) -> None:
        """Which part of what is being done is done."""
        done = self._start + part * (self._end - self._start)
        self._bar.update(self._task, description=self._what, completed=done)
