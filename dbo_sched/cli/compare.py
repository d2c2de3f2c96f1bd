"""``dbo-sched compare``: several schedules of one workload, beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from dbo_sched import plot
from dbo_sched.cli.options import SimFlags, Whole, WorkloadFlags, program_text
from dbo_sched.cli.output import (
    command_line,
    ms,
    percent,
    print_json,
    print_notes,
    print_table,
    signed,
    us,
    warn,
)
from dbo_sched.errors import InputError
from dbo_sched.files import write_all
from dbo_sched.ranking import Entry, rank_schedules
from dbo_sched.registry import Schedule, all_schedules, get_schedule
from dbo_sched.trace import export
from dbo_sched.workload import Workload

COLUMNS = (
    "schedule",
    "ubatches",
    "step ms",
    "us per MoE layer",
    "gain",
    "comm hidden",
    "exposed transfer ms",
    "peer wait ms",
    "host blocked ms",
)


def compare(
    *,
    schedules: str | None = None,
    ubatches: Whole = 2,
    out: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
    workload: WorkloadFlags = WorkloadFlags(),
    sim: SimFlags = SimFlags(),
) -> None:
    """Predict the step of several schedules for one workload and compare them.

    gain is the step of sequential over the schedule's; comm hidden is the share of the transfer
    (data phases of dispatch and combine) that runs under compute.

    Parameters
    ----------
    schedules
        Names, separated by commas; by default all (dbo-sched schedules lists them).
    ubatches
        Parts that schedules with overlap split the batch into; the others run it whole.
    out
        Folder to write to: picture, Chrome trace and program of each schedule, a picture of all.
    json
        Print one JSON document instead of the table.
    """
    if ubatches < 2:
        raise InputError(
            f"{ubatches} is not possible: overlap takes 2 ubatches or more",
            where="--ubatches",
            mend="give 2 or more; sequential and shared-overlap run the batch whole",
        )
    job = workload.workload()
    entries = rank_schedules(job, _chosen(schedules), sim.backend(), ubatches=ubatches)
    files = {} if out is None else _files(out, entries)
    write_all(files)
    if json:
        print_json(_document(job, entries))
        return
    _print(job, entries)
    if files:
        print(f"wrote {len(files)} files to {out}: timelines.png of all, and for each schedule a")
        print("picture (.png), a Chrome trace (.trace.json, ui.perfetto.dev) and its .program.txt")


def _chosen(names: str | None) -> list[Schedule]:
    if names is None:
        known, broken = all_schedules()
        for entry, why in broken.items():
            warn(f"schedules of {entry} are left out: {why}")
        return known
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    if not chosen:
        raise InputError(
            "no schedule is named", where="--schedules", mend="write names separated by commas"
        )
    return [get_schedule(name) for name in dict.fromkeys(chosen)]


def _print(workload: Workload, entries: list[Entry]) -> None:
    rows = [
        (
            entry.schedule,
            str(entry.ubatches),
            ms(entry.metrics.step_ns),
            us(entry.moe_layer_ns),
            f"{entry.gain:.2f}x",
            percent(entry.metrics.hidden_percent),
            ms(entry.metrics.mean.exposed_ns),
            ms(entry.metrics.mean.peer_wait_ns),
            ms(entry.metrics.mean.host_blocked_ns),
        )
        for entry in entries
    ]
    print_table(COLUMNS, rows, title=_title(workload))
    print_notes(entries[0].timeline.header.notes)


def _title(workload: Workload) -> str:
    model, deployment = workload.model, workload.deployment
    prompts = len(workload.sequences)
    return (
        f"{model.name}, {model.num_hidden_layers} layers, EP{deployment.ep} on "
        f"{deployment.nodes} x {deployment.ep // deployment.nodes} {deployment.system}, "
        f"{workload.tokens} tokens per rank in {prompts} prompt{'s' * (prompts != 1)}, "
        f"{deployment.comm_sms} comm SMs (predicted)"
    )


def _document(workload: Workload, entries: list[Entry]) -> dict[str, Any]:
    return {
        "command": command_line(),
        "workload": workload,
        "notes": entries[0].timeline.header.notes,
        "versions": entries[0].timeline.header.versions,
        "schedules": [
            {
                "schedule": entry.schedule,
                "ubatches": entry.ubatches,
                "program": entry.program.hash,
                "step_ns": entry.metrics.step_ns,
                "moe_layer_ns": entry.moe_layer_ns,
                "gain": entry.gain,
                "hidden_percent": entry.metrics.hidden_percent,
                "exposed_ns": entry.metrics.mean.exposed_ns,
                "peer_wait_ns": entry.metrics.mean.peer_wait_ns,
                "host_blocked_ns": entry.metrics.mean.host_blocked_ns,
                "bubbles_ns": entry.metrics.mean.bubbles,
            }
            for entry in entries
        ],
    }


def _files(out: Path, entries: list[Entry]) -> dict[Path, bytes]:
    timelines = [signed(entry.timeline) for entry in entries]
    files = {"timelines.png": plot.timeline_png(timelines)}
    for entry, timeline in zip(entries, timelines, strict=True):
        files[f"{entry.schedule}.png"] = plot.timeline_png([timeline])
        files[f"{entry.schedule}.trace.json"] = export.to_json(timeline)
        files[f"{entry.schedule}.program.txt"] = program_text(entry.program)
    return {out / name: data for name, data in files.items()}
