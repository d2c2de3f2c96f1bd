"""``dbo-sched simulate``: predict one program's timeline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from dbo_sched import plot
from dbo_sched import timeline as timelines
from dbo_sched.cli.options import (
    Settings,
    SimFlags,
    Ubatches,
    Whole,
    WorkloadFlags,
    program_from,
)
from dbo_sched.cli.output import Bar, print_json, print_notes, print_table, signed
from dbo_sched.critical import time_on_path
from dbo_sched.errors import InputError
from dbo_sched.files import write_all
from dbo_sched.metrics import Metrics, measure
from dbo_sched.timeline import Timeline
from dbo_sched.trace import export
from dbo_sched.units import percent, unit_for

DERIVING = ("costs", "math_efficiency", "memory_efficiency")
"""Flags that say how durations are derived from a model."""


def simulate(
    program: Path | None = None,
    /,
    *,
    schedule: str | None = None,
    out: Annotated[Path | None, Parameter(alias="-o")] = None,
    png: Path | None = None,
    trace: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
    skew: str | None = None,
    limit_us: float | None = None,
    all_ranks: Annotated[bool, Parameter(negative=())] = False,
    show_layers: str | None = None,
    rank: Whole | None = None,
    ubatches: Ubatches = None,
    settings: Settings = None,
    workload: WorkloadFlags = WorkloadFlags(),
    sim: SimFlags = SimFlags(),
) -> None:
    """Predict the timeline of a program, from a file or from a schedule.

    Ends with exit code 1 and the cycle of waits where the program deadlocks.

    Parameters
    ----------
    program
        A program file, text or JSON. Give this or --schedule.
    schedule
        A schedule to make the program with, from the workload flags.
    out
        Write the timeline as JSON.
    png
        Write a picture of the timeline.
    trace
        Write a Chrome trace, for ui.perfetto.dev.
    json
        Print the metrics as JSON.
    skew
        Late starts as RANK=US, separated by commas; ranks not named start at 0.
    limit_us
        Give up when the model still runs after so many microseconds.
    all_ranks
        Simulate every rank, also those that behave alike.
    show_layers
        Layers on the picture, as FIRST-LAST; by default two in the middle.
    rank
        Rank on the picture; by default the first.
    ubatches
        Parts to split each rank's batch into; by default the least that the schedule takes.
    settings
        An option of the schedule as name=value; may be given several times.
    """
    layers = _layers(show_layers)
    if png is None and (layers is not None or rank is not None):
        raise InputError(
            "no picture to apply it to", where="--show-layers, --rank", mend="give --png FILE too"
        )
    places = [path.resolve() for path in (png, trace, out) if path is not None]
    if len(set(places)) < len(places):
        raise InputError(
            "two results go to one file", where="--png, --trace, --out", mend="name different files"
        )
    source = program_from(program, schedule, workload, ubatches, settings or [])
    given = [flag for flag in DERIVING if getattr(sim, flag) != getattr(SimFlags, flag)]
    if source.workload is None and sim.costs != "fixed" and given:
        raise InputError(
            f"--{given[0].replace('_', '-')} has no effect on a program without a model",
            where="command line",
            mend="leave it out: durations are those written on the ops",
        )
    with Bar() as bar:
        bar.report(source.schedule or "program")
        backend = sim.backend(
            skew_us=_skew(skew), collapse=not all_ranks, limit_us=limit_us, progress=bar.inside
        )
        timeline = signed(backend.run(source)[0])
    metrics = measure(timeline)
    files: dict[Path, bytes] = {}
    if png is not None:
        files[png] = plot.timeline_png([timeline], layers=layers, rank=rank)
    if trace is not None:
        files[trace] = export.to_json(timeline)
    if out is not None:
        files[out] = timelines.to_json(timeline)
    write_all(files)
    if json:
        critical = time_on_path(timeline)
        print_json({"header": timeline.header, "metrics": metrics, "critical_path_ns": critical})
    else:
        print_metrics(timeline, metrics)
        for path in files:
            print(f"wrote {path}")


def print_metrics(timeline: Timeline, metrics: Metrics) -> None:
    """The step, its communication, why compute was idle, and what the step consists of."""
    header = timeline.header
    path = time_on_path(timeline)
    factor, unit = unit_for(metrics.step_ns)

    def row(what: str, ns: int, share: str = "") -> tuple[str, str, str]:
        return what, f"{ns / factor:,.3f}" if factor > 1 else str(ns), share

    rows = [
        row("step", metrics.step_ns),
        row("compute running", metrics.mean.compute_ns),
        row("transfer", metrics.mean.hidden_ns + metrics.mean.exposed_ns),
        row("  hidden under compute", metrics.mean.hidden_ns, percent(metrics.hidden_percent)),
        row("  exposed", metrics.mean.exposed_ns),
        row("peer wait without compute", metrics.mean.peer_wait_ns),
        row("host blocked", metrics.mean.host_blocked_ns),
        row("compute idle", sum(metrics.mean.bubbles.values())),
        *(row(f"  {cause}", ns) for cause, ns in metrics.mean.bubbles.items()),
        row("critical path", sum(path.values())),
        *(row(f"  {kind}", ns, percent(100 * ns / metrics.step_ns)) for kind, ns in path.items()),
    ]
    ranks = sum(map(len, header.represents.values()))
    title = f"{header.schedule or 'program'} {header.program_hash} ({header.backend})"
    print_table(("mean of ranks" if ranks > 1 else "time", unit, ""), rows, title=title)
    print_notes(header.notes)


def _skew(words: str | None) -> dict[int, float]:
    skew: dict[int, float] = {}
    for word in words.split(",") if words is not None else []:
        rank, _, late = word.partition("=")
        try:
            if int(rank) in skew:
                raise ValueError
            skew[int(rank)] = float(late)
        except ValueError:
            raise InputError(
                f"'{word}' is not RANK=US, or names a rank again",
                where="--skew",
                mend="write for example --skew 1=300,2=50",
            ) from None
    return skew


def _layers(words: str | None) -> tuple[int, int] | None:
    if words is None:
        return None
    first, _, last = words.partition("-")
    try:
        return int(first), int(last or first)
    except ValueError:
        raise InputError(
            f"'{words}' is not FIRST-LAST", where="--show-layers", mend="write for example 30-31"
        ) from None
