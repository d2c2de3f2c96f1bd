"""``dbo-sched show``: one layer period of a program on a screen, or a timeline's metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from dbo_sched import text
from dbo_sched.cli.options import Whole
from dbo_sched.cli.simulate import print_metrics
from dbo_sched.errors import InputError
from dbo_sched.files import read
from dbo_sched.metrics import measure
from dbo_sched.period import period_text
from dbo_sched.timeline import Timeline


def show(
    file: Path,
    /,
    *,
    layer: Whole | None = None,
    rank: Whole | None = None,
    memory: Annotated[bool, Parameter(negative=())] = False,
    all: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Show a program's commands for one layer period, or the metrics of a timeline.

    A period goes from the first launch of a layer to the first launch of the
    next one, in host order, so it holds the other ubatches' work that falls
    between.

    Parameters
    ----------
    file
        A program (text or JSON), or a timeline that simulate wrote.
    layer
        The layer whose period to show; by default one in the middle.
    rank
        The rank whose plan to show; by default 0.
    memory
        Show alloc, free and guard commands too.
    all
        Print the whole program in its text form.
    """
    found = read(file)
    chosen = layer is not None or rank is not None or memory
    if chosen and (all or isinstance(found, Timeline)):
        raise InputError(
            "--layer, --rank and --memory choose a part of a program",
            where="show",
            mend="leave them out" + (" or leave --all out" if all else ": this is a timeline"),
        )
    if isinstance(found, Timeline):
        print_metrics(found, measure(found))
    elif all:
        print(text.to_text(found), end="")
    else:
        print(period_text(found, rank=rank or 0, layer=layer, memory=memory))
        print("(--all prints everything)")
