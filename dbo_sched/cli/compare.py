"""``dbo-sched compare``: several schedules of one workload, beside each other, and why."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from dbo_sched import plot, tables
from dbo_sched.cli.options import SimFlags, Whole, WorkloadFlags, program_text
from dbo_sched.cli.output import (
    Bar,
    command_line,
    print_json,
    print_notes,
    print_table,
    signed,
    warn,
)
from dbo_sched.errors import InputError
from dbo_sched.files import write_all
from dbo_sched.policies.engine import engine_notes
from dbo_sched.ranking import Entry, Variant, fastest, rank_schedules, read_variant
from dbo_sched.registry import all_schedules
from dbo_sched.trace import export
from dbo_sched.why import explain, notes
from dbo_sched.workload import Workload

MOST_PROBED_RANKS = 16
"""With more different ranks than that, what limits a schedule is only looked for when asked."""


def compare(
    *,
    schedules: str | None = None,
    ubatches: Whole = 2,
    sensitivity: bool | None = None,
    out: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
    workload: WorkloadFlags = WorkloadFlags(),
    sim: SimFlags = SimFlags(),
) -> None:
    """Compare several schedules of one workload: how long, and why.

    gain is the step of sequential over the schedule's; comm hidden is the share
    of the transfer (data phases of dispatch and combine) that runs under compute.
    The second table says by how much the step changes when all ops of one kind
    are 10 % faster. With several --comm-sms a grid of steps comes first (* the
    best of a schedule, ** of all), and the tables are of the best.

    Parameters
    ----------
    schedules
        Names, separated by commas, options as in dbo-ht:shared=no-overlap; by default all
        (dbo-sched schedules lists them).
    ubatches
        Parts that schedules with overlap split the batch into; the others run it whole.
    sensitivity
        Find out what limits each schedule; by default unless more than 16 ranks differ.
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
    if sim.costs == "fixed":
        raise InputError(
            "a workload has no durations of its own",
            where="--costs",
            mend="take auto, silicon, roofline or profile:FILE",
        )
    jobs, variants = workload.workloads(), _chosen(schedules)

    def run(job: Workload, bar: Bar, *, limits: bool) -> list[Entry]:
        return rank_schedules(
            job,
            variants,
            sim.backend(progress=bar.inside),
            ubatches=ubatches,
            balance_attention=workload.balance_attention,
            sensitivity=limits,
            report=bar.report,
        )

    if sensitivity is None:
        sensitivity = all(_different_ranks(job) <= MOST_PROBED_RANKS for job in jobs)
    with Bar() as bar:
        grid = [run(job, bar, limits=False) for job in jobs] if len(jobs) > 1 else []
        best = _best(grid)
        job = jobs[best]
        entries = run(job, bar, limits=sensitivity)
    files = {} if out is None else _files(out, entries)
    write_all(files)
    if json:
        print_json(_document(job, entries, jobs, grid))
        return
    if grid:
        _print_table(tables.sm_grid([job.deployment.comm_sms for job in jobs], grid))
        print()
    _print(job, entries)
    if files:
        print(f"wrote {len(files)} files to {out}: timelines.png of all, and for each schedule a")
        print("picture (.png), a Chrome trace (.trace.json, ui.perfetto.dev) and its .program.txt")


def _chosen(names: str | None) -> list[Variant]:
    if names is None:
        known, broken = all_schedules()
        for entry, why in broken.items():
            warn(f"schedules of {entry} are left out: {why}")
        return [Variant(schedule) for schedule in known]
    chosen = [name.strip() for name in names.split(",") if name.strip()]
    if not chosen:
        raise InputError(
            "no schedule is named", where="--schedules", mend="write names separated by commas"
        )
    return [read_variant(name) for name in dict.fromkeys(chosen)]


def _different_ranks(job: Workload) -> int:
    """Ranks that have to be simulated one by one."""
    drawn = job.routing.popularity != "balanced"
    return job.deployment.ep if drawn else len(set(job.batches))


def _best(grid: list[list[Entry]]) -> int:
    """Which row of the grid holds the shortest step; 0 without a grid."""
    steps = [fastest(entries).metrics.step_ns for entries in grid]
    return steps.index(min(steps)) if steps else 0


def _print(workload: Workload, entries: list[Entry]) -> None:
    _print_table(tables.comparison(entries, _title(workload)))
    if entries[0].faster:
        print()
        _print_table(tables.sensitivities(entries))
    else:
        print("(what limits them is not looked for: --sensitivity does, and takes longer)")
    print("\nWhy:")
    print_notes(explain(entries))
    print("Engines:")
    print_notes(engine_notes(workload))
    print("Where the numbers come from:")
    print_notes(notes(entries))


def _print_table(table: tables.Table) -> None:
    print_table(table.columns, table.rows, title=table.title)


def _title(workload: Workload) -> str:
    model, deployment = workload.model, workload.deployment
    fewest, most = min(workload.tokens), max(workload.tokens)
    tokens = f"{most}" if fewest == most else f"{fewest} to {most}"
    if len(workload.batches) == 1:
        sequences = len(workload.batches[0])
        context = max(context for _, context in workload.batches[0])
        tokens += f" tokens per rank in {sequences} sequence{'s' * (sequences != 1)}"
        tokens += f" behind up to {context} of context" * (context > 0)
    else:
        tokens += " tokens per rank"
    return (
        f"{model.name}, {model.num_hidden_layers} layers, EP{deployment.ep} on "
        f"{deployment.nodes} x {deployment.ep // deployment.nodes} {deployment.system}, "
        f"{tokens}, {deployment.comm_sms} comm SMs (predicted)"
    )


def _document(
    workload: Workload, entries: list[Entry], jobs: list[Workload], grid: list[list[Entry]]
) -> dict[str, Any]:
    return {
        "command": command_line(),
        "workload": workload,
        "notes": notes(entries),
        "engines": engine_notes(workload),
        "why": explain(entries),
        "versions": entries[0].timeline.header.versions,
        "comm_sms_grid_ns": {
            job.deployment.comm_sms: {entry.schedule: entry.metrics.step_ns for entry in column}
            for job, column in zip(jobs, grid, strict=False)
        },
        "schedules": [
            {
                "schedule": entry.schedule,
                "ubatches": entry.ubatches,
                "program": entry.program.hash,
                "step_ns": entry.metrics.step_ns,
                "moe_layer_ns": entry.moe_layer_ns,
                "gain": entry.gain,
                "hidden_percent": entry.metrics.hidden_percent,
                "compute_ns": entry.metrics.mean.compute_ns,
                "exposed_ns": entry.metrics.mean.exposed_ns,
                "peer_wait_ns": entry.metrics.mean.peer_wait_ns,
                "host_blocked_ns": entry.metrics.mean.host_blocked_ns,
                "bubbles_ns": entry.metrics.mean.bubbles,
                "step_change_if_10_percent_faster": entry.faster,
            }
            for entry in entries
        ],
    }


def _files(out: Path, entries: list[Entry]) -> dict[Path, bytes]:
    timelines = [signed(entry.timeline) for entry in entries]
    files: dict[str, bytes] = {"timelines.png": plot.timeline_png(timelines)}
    for entry, timeline in zip(entries, timelines, strict=True):
        name = re.sub(r"[^\w.-]", "-", entry.schedule)
        files[f"{name}.png"] = plot.timeline_png([timeline])
        files[f"{name}.trace.json"] = export.to_json(timeline)
        files[f"{name}.program.txt"] = program_text(entry.program)
    return {out / name: data for name, data in files.items()}
