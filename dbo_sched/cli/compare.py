"""``dbo-sched compare``: several schedules of one workload, beside each other, and why."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from dbo_sched import plot
from dbo_sched.cli.options import SimFlags, Whole, WorkloadFlags, program_text
from dbo_sched.cli.output import (
    Bar,
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
from dbo_sched.policies.engine import engine_notes
from dbo_sched.ranking import Entry, Variant, rank_schedules, read_variant
from dbo_sched.registry import all_schedules
from dbo_sched.trace import export
from dbo_sched.why import explain
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
    sensitivity: bool = True,
    out: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
    workload: WorkloadFlags = WorkloadFlags(),
    sim: SimFlags = SimFlags(),
) -> None:
    """Predict the step of several schedules for one workload, compare them and say why.

    gain is the step of sequential over the schedule's; comm hidden is the share of the transfer
    (data phases of dispatch and combine) that runs under compute. The second table says by how
    much the step changes when all ops of one kind are 10 % faster. With several --comm-sms a grid
    of steps comes first (* the best of a schedule, ** of all), and the tables are of the best.

    Parameters
    ----------
    schedules
        Names, separated by commas, options as in dbo-ht:shared=no-overlap; by default all
        (dbo-sched schedules lists them).
    ubatches
        Parts that schedules with overlap split the batch into; the others run it whole.
    sensitivity
        Find out what limits each schedule; without it the command is faster.
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
        _print_grid(jobs, grid)
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


def _best(grid: list[list[Entry]]) -> int:
    """Which row of the grid holds the shortest step; 0 without a grid."""
    steps = [min(entry.metrics.step_ns for entry in entries) for entries in grid]
    return steps.index(min(steps)) if steps else 0


def _print_grid(jobs: list[Workload], grid: list[list[Entry]]) -> None:
    """Steps by schedule and SMs; the best of each schedule marked, and the best of all."""
    rows = []
    overall = min(entry.metrics.step_ns for entries in grid for entry in entries)
    for column in zip(*grid, strict=True):
        steps = [entry.metrics.step_ns for entry in column]
        marks = ["**" if ns == overall else "*" if ns == min(steps) else "" for ns in steps]
        cells = [f"{mark}{ms(ns)}" for ns, mark in zip(steps, marks, strict=True)]
        rows.append((column[0].schedule, *cells))
    heads = ("step ms with", *(f"{job.deployment.comm_sms} SMs" for job in jobs))
    print_table(heads, rows, title="Which split of the SMs: * best of a schedule, ** best of all")
    print()


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
    if entries[0].faster:
        kinds = list(entries[0].faster)
        changes = [
            (entry.schedule, *(f"{100 * entry.faster[kind]:+.1f} %" for kind in kinds))
            for entry in entries
        ]
        print()
        print_table(("step change if 10 % faster:", *kinds), changes)
    print()
    print("Why:")
    print_notes(explain(entries))
    print("Engines:")
    print_notes(engine_notes(workload))
    print("Where the numbers come from:")
    print_notes(entries[0].timeline.header.notes)


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
        "notes": entries[0].timeline.header.notes,
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
    files = {"timelines.png": plot.timeline_png(timelines)}
    for entry, timeline in zip(entries, timelines, strict=True):
        name = re.sub(r"[^\w.-]", "-", entry.schedule)
        files[f"{name}.png"] = plot.timeline_png([timeline])
        files[f"{name}.trace.json"] = export.to_json(timeline)
        files[f"{name}.program.txt"] = program_text(entry.program)
    return {out / name: data for name, data in files.items()}
