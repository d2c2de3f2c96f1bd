"""``dbo-sched plan``: the program that a schedule makes of a workload."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from dbo_sched import json_form
from dbo_sched.build import build_program
from dbo_sched.cli.options import Settings, Ubatches, WorkloadFlags, program_text, read_settings
from dbo_sched.files import write


def plan(
    schedule: str,
    /,
    *,
    out: Annotated[Path | None, Parameter(alias="-o")] = None,
    json: Annotated[bool, Parameter(negative=())] = False,
    ubatches: Ubatches = None,
    settings: Settings = None,
    workload: WorkloadFlags = WorkloadFlags(),
) -> None:
    """Print the program that a schedule makes: ops, buffers and the host's commands in order.

    Parameters
    ----------
    schedule
        Name of the schedule (dbo-sched schedules lists them).
    out
        Write to this file instead: JSON where it ends in .json, else text.
    json
        Print JSON instead of text.
    ubatches
        Parts to split each rank's batch into; by default the least that the schedule takes.
    settings
        An option of the schedule as name=value; may be given several times.
    """
    program = build_program(
        workload.workload(),
        schedule,
        ubatches=ubatches,
        balance_attention=workload.balance_attention,
        options=read_settings(settings or []),
    )
    as_json = json or (out is not None and out.suffix == ".json")
    data = json_form.to_json(program) if as_json else program_text(program)
    if out is None:
        print(data.decode(), end="\n" if as_json else "")
        return
    write(out, data)
    print(f"wrote {out}: {schedule}, program {program.hash}, {len(program.plans[0].ops)} ops")
