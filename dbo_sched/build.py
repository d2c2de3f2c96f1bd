"""From a workload and a schedule to a program."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Mapping
from functools import partial

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
from dbo_sched.registry import OptionValue, Schedule, get_schedule
from dbo_sched.validate import check
from dbo_sched.weave import UBatch, weave
from dbo_sched.workload import Workload, check_workload, split


def build_program(
    workload: Workload,
    schedule: str | Schedule,
    *,
    ubatches: int | None = None,
    options: Mapping[str, OptionValue] | None = None,
) -> Program:
    """The program that ``schedule`` makes of one step of ``workload``.

    ``ubatches`` is the number of parts that each rank's batch is split into, by default the least
    that the schedule takes. All ranks hold the same batch, so one plan covers them.

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

    slices = split(workload.sequences, number)
    parts = [UBatch(u, part.tokens, layers_of(workload, u, part)) for u, part in enumerate(slices)]
    commands = _run(schedule, parts, values)
    layers = [layer for part in parts for layer in part.layers]
    ops = {op.id: op for layer in layers for op in layer.ops}
    buffers = {buffer.id: buffer for layer in layers for buffer in buffers_of(workload, layer)}
    _check_complete(schedule, commands, ops)
    commands, owned = place_memory(commands, ops, buffers)
    program = Program(
        schedule=schedule.name,
        options=values,
        ranks=workload.deployment.ep,
        workload=workload,
        more_streams=schedule.streams,
        comms=(Communicator(id=COMMUNICATOR),),
        plans=(
            Plan(
                ranks=tuple(range(workload.deployment.ep)),
                ubatches=slices,
                buffers=owned,
                ops=tuple(ops.values()),
                commands=commands,
            ),
        ),
    )
    check(program, f"schedule '{schedule.name}'")
    return program


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
