"""Several schedules of one workload, beside each other: how long, why, and what would help."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from dbo_sched.backend import Backend, Predictor
from dbo_sched.build import build_program
from dbo_sched.errors import InputError
from dbo_sched.metrics import Metrics, measure
from dbo_sched.plan import HOST, Program
from dbo_sched.registry import OptionValue, Schedule, get_schedule
from dbo_sched.timeline import Timeline
from dbo_sched.workload import Workload

BASELINE = "sequential"

STEADY_LAYERS = 4
"""n of the time per MoE layer, (T(2n layers) - T(n layers)) / n."""

PROBE_LAYERS = 2
"""n of the short steps that sensitivities are found with; there are many of those."""

FASTER = 0.9
"""The factor of the sensitivities: 10 % faster."""


@dataclass(frozen=True)
class Variant:
    """A schedule with options, written ``NAME`` or ``NAME:option=value:option=value``."""

    schedule: Schedule
    options: Mapping[str, OptionValue] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """As it is written."""
        settings = [f"{name}={value}" for name, value in self.options.items()]
        return ":".join([self.schedule.name, *settings])


def read_variant(text: str) -> Variant:
    """A variant as it is written.

    Raises:
        InputError: an unknown schedule or option, or a setting that is not ``option=value``.
    """
    name, *settings = text.split(":")
    options: dict[str, OptionValue] = {}
    for setting in settings:
        option, equals, value = setting.partition("=")
        if not equals or option in options:
            raise InputError(
                f"'{text}': '{setting}' is not option=value, or given twice",
                where="--schedules",
                mend="write for example dbo-ht:shared=no-overlap",
            )
        options[option] = value
    schedule = get_schedule(name)
    try:
        schedule.read_options(options)
    except InputError as error:
        raise InputError(error.what, where="--schedules", mend=error.mend) from None
    return Variant(schedule, options)


@dataclass(frozen=True)
class Entry:
    """One schedule's result.

    ``gain`` is the baseline's step over this one's. ``faster`` holds, per kind of op and for the
    host, by which part the step changes when that is 10 % faster; empty where it was not asked for.
    """

    schedule: str
    ubatches: int
    program: Program
    timeline: Timeline
    metrics: Metrics
    moe_layer_ns: float | None
    gain: float
    faster: Mapping[str, float]


Report = Callable[[str, float, float], None]
"""Told what is being done, and from which part of all to which (parts of 1)."""


def rank_schedules(
    workload: Workload,
    schedules: Iterable[str | Schedule | Variant],
    backend: Predictor,
    *,
    ubatches: int = 2,
    balance_attention: bool = False,
    sensitivity: bool = False,
    report: Report = lambda what, start, end: None,
) -> list[Entry]:
    """Every schedule on one step of ``workload``, in the order given.

    Schedules that split a batch get ``ubatches`` parts, the others the least they take. The gain is
    over ``sequential`` on the whole batch, which runs once more where it is not among the
    schedules. ``sensitivity`` fills :attr:`Entry.faster`, from short steps.
    """
    variants = [_variant(schedule) for schedule in schedules]
    steps = [_Step(workload, variant, ubatches, balance_attention) for variant in variants]
    results: list[tuple[_Step, Program, Timeline]] = []
    turns = 2 * len(steps)
    for number, step in enumerate(steps):
        report(step.variant.name, number / turns, (number + 1) / turns)
        program = step.program()
        results.append((step, program, backend.run(program)[0]))
    base = next((t.makespan_ns for step, _, t in results if step.is_baseline), None)
    if base is None:
        base = backend.run(build_program(workload, BASELINE))[0].makespan_ns
    entries = []
    for number, (step, program, timeline) in enumerate(results, start=len(steps)):
        tell = partial(_tell, report, step.variant.name, number / turns, 1 / turns)
        tell("short steps", 0.0)
        entries.append(
            Entry(
                schedule=step.variant.name,
                ubatches=step.ubatches,
                program=program,
                timeline=timeline,
                metrics=measure(timeline),
                moe_layer_ns=step.moe_layer_ns(backend),
                gain=base / timeline.makespan_ns if timeline.makespan_ns else 1.0,
                faster=step.faster(backend, program, tell) if sensitivity else {},
            )
        )
    return entries


def fastest(entries: Sequence[Entry]) -> Entry:
    """The entry with the shortest step; of equals the first."""
    return min(entries, key=lambda entry: entry.metrics.step_ns)


def _variant(schedule: str | Schedule | Variant) -> Variant:
    if isinstance(schedule, str):
        return read_variant(schedule)
    return schedule if isinstance(schedule, Variant) else Variant(schedule)


@dataclass(frozen=True)
class _Step:
    """One variant of the workload's step, to be run at full length and cut short."""

    workload: Workload
    variant: Variant
    asked: int
    balance_attention: bool

    @property
    def ubatches(self) -> int:
        """Parts that the batch is split into."""
        schedule = self.variant.schedule
        return self.asked if schedule.least > 1 else schedule.least

    @property
    def is_baseline(self) -> bool:
        """Whether this is what gains are measured against."""
        return self.variant.name == BASELINE and self.ubatches == 1

    def program(self, moe_layers: int | None = None) -> Program:
        """The program of the whole step, or of all dense and some MoE layers."""
        workload = self.workload
        if moe_layers is not None:
            model = workload.model.with_layers(workload.model.first_k_dense_replace + moe_layers)
            workload = msgspec.structs.replace(workload, model=model)
        return build_program(
            workload,
            self.variant.schedule,
            ubatches=self.ubatches,
            balance_attention=self.balance_attention,
            options=self.variant.options,
        )

    def moe_layer_ns(self, backend: Backend) -> float | None:
        """Steady time per MoE layer; ``None`` for a model without any."""
        if not self.workload.model.moe_layers:
            return None
        few, many = self._programs(STEADY_LAYERS)
        return (_step_ns(backend, many) - _step_ns(backend, few)) / STEADY_LAYERS

    def faster(
        self, backend: Predictor, program: Program, tell: Callable[[str, float], None]
    ) -> dict[str, float]:
        """By which part the step changes when each kind of op, or the host, is 10 % faster.

        The step of n MoE layers and what each further one adds tell of all of them; a model
        without any is run whole.
        """
        layers, n = self.workload.model.moe_layers, PROBE_LAYERS
        few, many = self._programs(n) if layers else (program, program)

        def whole_ns(backend: Backend) -> float:
            start = _step_ns(backend, few)
            more = _step_ns(backend, many) - start if layers else 0
            return start + (layers - n) * more / n

        before = whole_ns(backend)
        kinds = [*dict.fromkeys(op.kind for plan in few.plans for op in plan.ops), HOST]
        changes: dict[str, float] = {}
        for number, kind in enumerate(kinds):
            tell(f"{kind} 10 % faster", number / len(kinds))
            changes[kind] = whole_ns(backend.scaled({kind: FASTER})) / before - 1
        return changes

    def _programs(self, moe_layers: int) -> tuple[Program, Program]:
        """Steps of all dense layers with so many MoE layers, and with twice as many."""
        return self.program(moe_layers), self.program(2 * moe_layers)


def _tell(report: Report, name: str, start: float, share: float, what: str, part: float) -> None:
    """Report what is done of a schedule's turn, which is ``share`` of all."""
    report(f"{name}: {what}", start + share * part, start + share)


def _step_ns(backend: Backend, program: Program) -> int:
    return backend.run(program)[0].makespan_ns
