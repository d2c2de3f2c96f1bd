"""``dbo-sched compare``: several schedules of one workload, beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from dbo_sched import plot, text
from dbo_sched.cli.options import SimFlags, WorkloadFlags
from dbo_sched.cli.output import ms, percent, print_json, print_notes, print_table, signed, us
from dbo_sched.errors import InputError
from dbo_sched.files import write
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
    schedules: Annotated[list[str] | None, Parameter(consume_multiple=True, negative=())] = None,
    ubatches: int = 2,
    out: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
    workload: WorkloadFlags = WorkloadFlags(),  # noqa: B008
    sim: SimFlags = SimFlags(),  # noqa: B008
) -> None:
    """Predict the step of several schedules for one workload and compare them.

    gain is the step of sequential over the schedule's; comm hidden is the share of the transfer
    (data phases of dispatch and combine) that runs under compute.

    Parameters
    ----------
    schedules
        Names, by comma or blank; by default all (dbo-sched schedules lists them).
    ubatches
        Parts that schedules with overlap split the batch into; the others run it whole.
    out
        Folder to write to: picture, Chrome trace and program of each schedule, a picture of all.
    json
        Print one JSON document instead of the table.
    """
    if ubatches < 1:
        raise InputError(f"{ubatches} is not possible", where="--ubatches", mend="give 1 or more")
    chosen = _chosen(schedules)
    job = workload.workload()
    entries = rank_schedules(job, chosen, sim.backend(), ubatches=ubatches)
    if json:
        print_json(_document(job, entries))
    else:
        _print(job, entries)
    if out is not None:
        _write(out, entries, quiet=json)


def _chosen(names: list[str] | None) -> list[Schedule]:
    if not names:
        return all_schedules()[0]
    chosen = [name for part in names for name in part.split(",") if name]
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
    return (
        f"{model.name}, {model.num_hidden_layers} layers, EP{deployment.ep} on "
        f"{deployment.nodes} x {deployment.ep // deployment.nodes} {deployment.system}, "
        f"{workload.tokens} tokens per rank in {len(workload.sequences)} prompts, "
        f"{deployment.comm_sms} comm SMs (predicted)"
    )


def _document(workload: Workload, entries: list[Entry]) -> dict[str, Any]:
    return {
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


def _write(out: Path, entries: list[Entry], *, quiet: bool) -> None:
    timelines = [signed(entry.timeline) for entry in entries]
    files = {"timelines.png": plot.timeline_png(timelines)}
    for entry, timeline in zip(entries, timelines, strict=True):
        files[f"{entry.schedule}.png"] = plot.timeline_png([timeline])
        files[f"{entry.schedule}.trace.json"] = export.to_json(timeline)
        files[f"{entry.schedule}.program.txt"] = text.to_text(entry.program).encode()
    for name, data in files.items():
        write(out / name, data)
    if not quiet:
        print(
            f"wrote {len(files)} files to {out}: timelines.png, and for each schedule its picture"
        )
        print("(.png), Chrome trace (.trace.json, for ui.perfetto.dev) and program (.program.txt)")
