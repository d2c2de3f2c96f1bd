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
from dbo_sched.plan import Alloc, AnyCommand, Free, Guard, Launch, Plan, Program, rank_spans
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

    A period goes from the first launch of a layer to the first launch of the next one, in host
    order, so it holds the other ubatches' work that falls between.

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
        _print_period(found, rank or 0, layer, memory=memory)


def _print_period(program: Program, rank: int, layer: int | None, *, memory: bool) -> None:
    if not 0 <= rank < program.ranks:
        raise InputError(
            f"rank {rank} does not exist", where="--rank", mend=f"give 0 to {program.ranks - 1}"
        )
    plan = program.plan_of(rank)
    commands, shown, layers = period(plan, layer)
    if not memory:
        commands = [c for c in commands if not isinstance(c, Alloc | Free | Guard)]
    print(
        f"{program.schedule or 'program'} {program.hash}, ranks {program.ranks}, "
        f"ubatches {len(plan.ubatches)}, layer {shown} of {layers} layers "
        f"({len(commands)} of {len(plan.commands)} commands; --all prints everything)"
    )
    print("\n".join(text.command_lines(commands)))


def period(plan: Plan, layer: int | None = None) -> tuple[list[AnyCommand], int, int]:
    """The commands of one layer period, the layer, and the number of layers.

    Raises:
        InputError: the plan launches nothing, or nothing of that layer.
    """
    ops = {op.id: op for op in plan.ops}
    first: dict[int, int] = {}
    for number, command in enumerate(plan.commands):
        if isinstance(command, Launch):
            first.setdefault(ops[command.op].layer, number)
    if not first or (layer is not None and layer not in first):
        raise InputError(
            "the plan launches nothing" if not first else f"no op of layer {layer} is launched",
            where="--layer",
            mend=f"choose one of {rank_spans(sorted(first))}" if first else "print it with --all",
        )
    chosen = sorted(first)[len(first) // 2] if layer is None else layer
    end = min((at for at in first.values() if at > first[chosen]), default=len(plan.commands))
    start = 0 if first[chosen] == min(first.values()) else first[chosen]
    return list(plan.commands[start:end]), chosen, len(first)
