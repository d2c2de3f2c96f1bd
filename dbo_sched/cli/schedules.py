"""``dbo-sched schedules``: what there is to choose from."""

from __future__ import annotations

import inspect
from typing import Annotated

from cyclopts import Parameter

from dbo_sched.cli.output import print_json, warn
from dbo_sched.registry import Schedule, all_schedules, get_schedule


def schedules(
    name: str | None = None, /, *, json: Annotated[bool, Parameter(negative=())] = False
) -> None:
    """List the schedules, those of installed packages too, or tell all of one.

    Parameters
    ----------
    name
        Tell everything of this schedule: source, figure in words, steady period, options.
    json
        Print JSON.
    """
    known, broken = all_schedules()
    if name is not None:
        known, broken = [get_schedule(name)], {}
    if json:
        print_json([_document(schedule) for schedule in known])
    elif name is not None:
        _print_one(known[0])
    else:
        width = max(len(schedule.name) for schedule in known)
        for schedule in known:
            print(f"{schedule.name.ljust(width)}  {schedule.summary}")
    for entry, why in broken.items():
        warn(f"schedules of {entry} are left out: {why}")


def _document(schedule: Schedule) -> dict[str, object]:
    return {
        "name": schedule.name,
        "summary": schedule.summary,
        "least_ubatches": schedule.least,
        "most_ubatches": schedule.most,
        "stage_offset": schedule.stage_offset,
        "options": {
            name: {"type": kind.__name__, "default": default}
            for name, (kind, default) in schedule.options.items()
        },
        "module": schedule.function.__module__,
    }


def _print_one(schedule: Schedule) -> None:
    print(f"{schedule.name} ({schedule.function.__module__}), ubatches: {schedule.ubatches}\n")
    print(inspect.getdoc(schedule.function) or "(no description)")
    for name, (kind, default) in schedule.options.items():
        print(f"\n--set {name}={default}  ({kind.__name__})")
