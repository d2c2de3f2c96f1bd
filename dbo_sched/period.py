"""One layer period of a plan: what fits on a screen of a step of many layers."""

from __future__ import annotations

from dbo_sched.errors import InputError
from dbo_sched.plan import Alloc, AnyCommand, Free, Guard, Launch, Plan, Program, rank_spans
from dbo_sched.text import command_lines


def period_text(
    program: Program, *, rank: int = 0, layer: int | None = None, memory: bool = False
) -> str:
    """A heading and the commands of one period, without those on memory unless ``memory``.

    Raises:
        InputError: no such rank or layer, or nothing is launched.
    """
    if not 0 <= rank < program.ranks:
        raise InputError(
            f"rank {rank} does not exist", where="--rank", mend=f"give 0 to {program.ranks - 1}"
        )
    plan = program.plan_of(rank)
    commands, shown, layers = period(plan, layer)
    if not memory:
        commands = [c for c in commands if not isinstance(c, Alloc | Free | Guard)]
    head = (
        f"{program.schedule or 'program'} {program.hash}, ranks {program.ranks}, "
        f"ubatches {len(plan.ubatches)}, layer {shown} of {layers} layers "
        f"({len(commands)} of {len(plan.commands)} commands)"
    )
    return "\n".join([head, *command_lines(commands)])


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
