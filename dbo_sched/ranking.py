"""Several schedules of one workload, beside each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from dbo_sched.backend import Backend
from dbo_sched.build import build_program
from dbo_sched.metrics import Metrics, measure
from dbo_sched.plan import Program
from dbo_sched.registry import OptionValue, Schedule
from dbo_sched.timeline import Timeline
from dbo_sched.workload import Workload

BASELINE = "sequential"

STEADY_LAYERS = 4
"""n of the time per MoE layer, (T(2n layers) - T(n layers)) / n."""


@dataclass(frozen=True)
class Entry:
    """One schedule's result. ``gain`` is the baseline's step over this one's."""

    schedule: str
    ubatches: int
    program: Program
    timeline: Timeline
    metrics: Metrics
    moe_layer_ns: float | None
    gain: float


def rank_schedules(
    workload: Workload,
    schedules: Iterable[Schedule],
    backend: Backend,
    *,
    ubatches: int = 2,
    options: Mapping[str, Mapping[str, OptionValue]] | None = None,
) -> list[Entry]:
    """Every schedule on one step of ``workload``, in the order given.

    Schedules that split a batch get ``ubatches`` parts, the others the least they take.
    ``options`` holds options by schedule name. The gain is over ``sequential`` on the whole batch,
    which runs once more where it is not among the schedules.
    """
    runs = [
        (schedule, ubatches if schedule.least > 1 else schedule.least) for schedule in schedules
    ]
    results: list[tuple[Schedule, int, Program, Timeline]] = []
    for schedule, parts in runs:
        chosen = (options or {}).get(schedule.name, {})
        program = build_program(workload, schedule, ubatches=parts, options=chosen)
        results.append((schedule, parts, program, backend.run(program)[0]))
    base = next(
        (t.makespan_ns for s, parts, _, t in results if s.name == BASELINE and parts == 1),
        None,
    )
    if base is None:
        base = backend.run(build_program(workload, BASELINE))[0].makespan_ns
    return [
        Entry(
            schedule=schedule.name,
            ubatches=parts,
            program=program,
            timeline=timeline,
            metrics=measure(timeline),
            moe_layer_ns=_moe_layer_ns(workload, program, schedule, parts, backend),
            gain=base / timeline.makespan_ns if timeline.makespan_ns else 1.0,
        )
        for schedule, parts, program, timeline in results
    ]


def _moe_layer_ns(
    workload: Workload, program: Program, schedule: Schedule, parts: int, backend: Backend
) -> float | None:
    """Steady time per MoE layer; ``None`` for a model without MoE layers."""
    model = workload.model
    dense = model.first_k_dense_replace
    if model.num_hidden_layers <= dense:
        return None

    def makespan(moe_layers: int) -> int:
        cut = msgspec.structs.replace(workload, model=model.with_layers(dense + moe_layers))
        again = build_program(cut, schedule, ubatches=parts, options=program.options)
        return backend.run(again)[0].makespan_ns

    return (makespan(2 * STEADY_LAYERS) - makespan(STEADY_LAYERS)) / STEADY_LAYERS
