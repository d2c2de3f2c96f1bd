"""From a workload and a schedule to a program."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Mapping
from functools import partial

import msgspec

from dbo_sched.errors import DboSchedError, ScheduleError
from dbo_sched.layers import COMMUNICATOR, buffers_of, layers_of
from dbo_sched.lifetimes import place_memory
from dbo_sched.plan import (
    AnyCommand,
    Communicator,
    HostWait,
    Launch,
    Op,
    Plan,
    Program,
    Record,
    Wait,
)
from dbo_sched.policies import microbatch
from dbo_sched.registry import OptionValue, Schedule, get_schedule
from dbo_sched.routing import Arrivals, balanced, drawn
from dbo_sched.validate import check
from dbo_sched.weave import UBatch, weave
from dbo_sched.workload import Slice, Workload, check_workload


def build_program(
    workload: Workload,
    schedule: str | Schedule,
    *,
    ubatches: int | None = None,
    balance_attention: bool = False,
    options: Mapping[str, OptionValue] | None = None,
) -> Program:
    """The program that ``schedule`` makes of one step of ``workload``.

    ``ubatches`` is the number of parts that each rank's batch is split into, by default the least
    that the schedule takes. All ranks are cut at the same tokens, as vLLM does, or with
    ``balance_attention`` each where its own parts have the same attention work. Ranks whose parts
    are alike share one plan.

    Raises:
        InputError: an unknown schedule or option, an impossible workload or number of ubatches.
        ScheduleError: the schedule function raises, leaves an op out, waits for an event that it
            never records, or its ubatches yield unequally often.
    """
    if isinstance(schedule, str):
        schedule = get_schedule(schedule)
    number = schedule.least if ubatches is None else ubatches
    schedule.check_ubatches(number)
    values = schedule.read_options(options or {})
    check_workload(workload)

    ranks: dict[tuple[Slice, ...], list[int]] = {}
    for rank, parts in enumerate(rank_parts(workload, number, balance_attention)):
        ranks.setdefault(parts, []).append(rank)
    program = Program(
        schedule=schedule.name,
        options=values,
        ranks=workload.deployment.ep,
        workload=workload,
        more_streams=schedule.streams,
        comms=(Communicator(id=COMMUNICATOR),),
        plans=tuple(
            _plan(workload, schedule, values, parts, tuple(alike)) for parts, alike in ranks.items()
        ),
    )
    check(program, f"schedule '{schedule.name}'")
    return program


def rank_parts(
    workload: Workload, ubatches: int, balance_attention: bool
) -> list[tuple[Slice, ...]]:
    """The slices of every rank's batch, with what arrives for each."""
    ranks, model = workload.deployment.ep, workload.model
    common = microbatch.even_cuts(max(workload.tokens), ubatches)
    parts = [
        microbatch.split(
            batch, microbatch.attention_cuts(batch, ubatches) if balance_attention else common
        )
        for batch in workload.batches
    ]
    if len(parts) == 1:
        parts *= ranks
    tokens = tuple(tuple(part.tokens for part in own) for own in parts)
    experts, topk = model.n_routed_experts, model.num_experts_per_tok
    if workload.routing.popularity != "balanced":
        arrived = drawn(workload.routing, experts, topk, tokens)
        return [_arrive(own, came) for own, came in zip(parts, arrived, strict=True)]
    if len(set(tokens)) == 1:
        return parts
    means = [sum(counts) / ranks for counts in zip(*tokens, strict=True)]
    everywhere = tuple(balanced(experts, topk, ranks, mean) for mean in means)
    return [_arrive(own, everywhere) for own in parts]


def _arrive(parts: tuple[Slice, ...], arrived: tuple[Arrivals, ...]) -> tuple[Slice, ...]:
    return tuple(
        msgspec.structs.replace(part, arrivals=came)
        for part, came in zip(parts, arrived, strict=True)
    )


def _plan(
    workload: Workload,
    schedule: Schedule,
    values: Mapping[str, OptionValue],
    parts: tuple[Slice, ...],
    ranks: tuple[int, ...],
) -> Plan:
    """The plan of the ranks whose batches are cut into ``parts``."""
    ubatches = [
        UBatch(u, part.tokens, layers_of(workload, u, part)) for u, part in enumerate(parts)
    ]
    commands = _run(schedule, ubatches, values)
    ops = {op.id: op for ubatch in ubatches for layer in ubatch.layers for op in layer.ops}
    buffers = {
        buffer.id: buffer
        for ubatch, part in zip(ubatches, parts, strict=True)
        for layer in ubatch.layers
        for buffer in buffers_of(workload, layer, part)
    }
    _check_complete(schedule, commands, ops)
    commands, owned = place_memory(commands, ops, buffers)
    return Plan(
        ranks=ranks, ubatches=parts, buffers=owned, ops=tuple(ops.values()), commands=commands
    )


def _run(
    schedule: Schedule, parts: list[UBatch], values: Mapping[str, OptionValue]
) -> tuple[AnyCommand, ...]:
    """Run the schedule function for every ubatch; whatever it raises names its own line."""
    try:
        function = partial(schedule.function, **values)
        return weave(parts, function, stage_offset=schedule.stage_offset)
    except ScheduleError as error:
        where = f"schedule '{schedule.name}'" + (f", {error.where}" if error.where else "")
        raise ScheduleError(error.what, where=where, mend=error.mend) from error
    except DboSchedError:
        raise
    except Exception as error:  # the function is the user's and may raise anything
        frames = traceback.extract_tb(error.__traceback__)
        home = inspect.getsourcefile(schedule.function)
        frame = next((f for f in reversed(frames) if f.filename == home), frames[-1])
        raise ScheduleError(
            f"schedule '{schedule.name}' raised {type(error).__name__}: {error}",
            where=f"{frame.filename}, line {frame.lineno}",
            mend="mend the schedule function",
        ) from error


def _check_complete(
    schedule: Schedule, commands: tuple[AnyCommand, ...], ops: Mapping[str, Op]
) -> None:
    """A step without one of its ops, or with a wait for nothing, is fast for the wrong reason."""
    where = f"schedule '{schedule.name}'"
    launched = {command.op for command in commands if isinstance(command, Launch)}
    missing = [name for name in ops if name not in launched]
    if missing:
        more = f" and {len(missing) - 1} more ops" if len(missing) > 1 else ""
        raise ScheduleError(
            f"never launches '{missing[0]}'{more}",
            where=where,
            mend="launch every op of every layer once (those that a layer lacks are None)",
        )
    foreign = sorted(launched - set(ops))
    if foreign:
        raise ScheduleError(
            f"launches '{foreign[0]}', which is no op of its layers",
            where=where,
            mend="launch the ops of u.layers",
        )
    recorded = {command.event for command in commands if isinstance(command, Record)}
    for command in commands:
        if isinstance(command, Wait | HostWait) and command.event not in recorded:
            raise ScheduleError(
                f"waits for event '{command.event}', which it never records",
                where=where,
                mend="wait for what u.record(...) returned",
            )
