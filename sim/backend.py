"""The backend ``sim``: predicts the timeline of a program with the SimPy model."""

from __future__ import annotations

import gc
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from importlib.metadata import version
from math import isfinite
from typing import Literal

from dbo_sched.errors import InputError
from dbo_sched.plan import HOST, Program, ranks_text
from dbo_sched.timeline import Header, Timeline
from dbo_sched.validate import check
from sim.costs import Costs
from sim.costs.choose import load_costs
from sim.costs.roofline import Roofline
from sim.costs.scaled import ScaledCosts, check_factors
from sim.engine import Model
from sim.settings import (
    EAGER_HOST,
    HOSTS,
    MEMORY_EFFICIENCY,
    Gpu,
    Host,
    check_settings,
    default_gpu,
)

MOST_US = 1e9
"""A step of a quarter of an hour is a slip of the pen."""


class SimBackend:
    """Predicts timelines.

    Args:
        costs: a cost model, or its name (sim.costs.choose).
        host: host costs; by default those of eager PyTorch, one thread.
        gpu: SMs, hardware queues and latencies, or what makes them for a program; by default those
            of the program's system.
        skew_ns: how late each rank's host starts; ranks not named start at 0.
        collapse: simulate identical ranks once. The timeline says which ranks one stands for.
        limit_ns: give up when the model still runs at this time.
        progress: told from time to time which part of the plans' commands has been issued.
    """

    name = "sim"

    def __init__(
        self,
        costs: Costs | str = "auto",
        *,
        host: Host = EAGER_HOST,
        gpu: Gpu | Callable[[Program], Gpu] = default_gpu,
        skew_ns: Mapping[int, int] | None = None,
        collapse: bool = True,
        limit_ns: int | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        self.costs = load_costs(costs) if isinstance(costs, str) else costs
        self.host, self.gpu = host, gpu
        self.skew_ns = dict(skew_ns or {})
        self.collapse, self.limit_ns, self.progress = collapse, limit_ns, progress

    @classmethod
    def configured(
        cls,
        *,
        costs: str = "auto",
        math_efficiency: float = Roofline.math_efficiency,
        memory_efficiency: float = MEMORY_EFFICIENCY,
        scale: Mapping[str, float] | None = None,
        host: str = "single",
        latencies: bool = True,
        contention: Literal["waves", "none"] = "waves",
        connections: int = 8,
        sms: int | None = None,
        memory_sharing: bool = True,
        ranks_per_gpu: int = 1,
        skew_us: Mapping[int, float] | None = None,
        collapse: bool = True,
        limit_us: float | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> SimBackend:
        """A backend from plain settings, as the command line gives them.

        Raises:
            InputError: a name or number that is not possible.
        """
        if host not in HOSTS:
            raise InputError(
                f"host '{host}' is not known", where="--host", mend=f"use one of {', '.join(HOSTS)}"
            )

        def gpu(program: Program) -> Gpu:
            known = default_gpu(program, memory_efficiency)
            if not latencies:
                known = replace(known, stream_ns=0, event_ns=0, idle_ns=0)
            return replace(
                known,
                contention=contention,
                connections=connections,
                sms=known.sms // max(1, ranks_per_gpu) if sms is None else sms,
                memory_gbps=known.memory_gbps if memory_sharing else None,
                ranks_per_gpu=ranks_per_gpu,
            )

        times = [*(skew_us or {}).values(), 0.0 if limit_us is None else limit_us]
        if not all(isfinite(us) and 0 <= us <= MOST_US for us in times):
            raise InputError(
                f"a time of {next(us for us in times if not 0 <= us <= MOST_US)} us",
                where="--skew, --limit-us",
                mend=f"give 0 to {MOST_US:g} us",
            )
        roofline = Roofline(math_efficiency, memory_efficiency)
        backend = cls(
            load_costs(costs, roofline),
            host=HOSTS[host],
            gpu=gpu,
            skew_ns={rank: round(us * 1000) for rank, us in (skew_us or {}).items()},
            collapse=collapse,
            limit_ns=None if limit_us is None else round(limit_us * 1000),
        )
        backend = backend.scaled(scale) if scale else backend
        backend.progress = progress
        return backend

    def scaled(self, factors: Mapping[str, float]) -> SimBackend:
        """The same backend with every op of a kind taking ``factors[kind]`` times as long.

        The kind ``host`` stands for all that the host does itself.
        """
        check_factors(factors)
        kinds = {kind: factor for kind, factor in factors.items() if kind != HOST}
        other = copy(self)
        other.progress = None
        other.host = self.host.scaled(factors.get(HOST, 1.0))
        other.costs = ScaledCosts(self.costs, kinds) if kinds else self.costs
        return other

    def run(self, program: Program, steps: int = 1) -> list[Timeline]:
        """The timelines of ``steps`` steps; the model is deterministic, so they are all equal.

        Raises:
            InputError: a malformed program, an op without a duration, an impossible setting.
            DeadlockError: the program stops with work left.
            TimeLimitError: it still runs at ``limit_ns``.
        """
        check(program)
        if steps < 1:
            raise InputError(f"{steps} steps", where="sim", mend="ask for at least one")
        gpu = self.gpu if isinstance(self.gpu, Gpu) else self.gpu(program)
        check_settings(self.host, gpu, program.ranks)
        represents = self._classes(program, gpu)
        starts = {rank: self.skew_ns.get(rank, 0) for rank in represents}
        model = Model(program, self.costs, self.host, gpu, starts, represents)
        with _uncollected():
            spans, edges = model.run(self.limit_ns, self.progress)
        header = Header(
            backend=self.name,
            versions={
                "dbo-sched": version("dbo-sched"),
                "simpy": version("simpy"),
                "python": platform.python_version(),
            },
            program_hash=program.hash,
            schedule=program.schedule,
            represents=represents,
            notes=(
                *self.costs.notes(program, model.sources),
                self.host.note,
                gpu.note,
                *_warnings(gpu),
            ),
        )
        return [Timeline(header=header, spans=spans, edges=edges)] * steps

    def _classes(self, program: Program, gpu: Gpu) -> dict[int, tuple[int, ...]]:
        """Which rank to simulate for which ranks: same plan, same start.

        Where ranks share a GPU's memory, its other ranks too have to be the same. All ranks to
        simulate that have the same company are then on one GPU, the first that has it.
        """
        unknown = sorted(rank for rank in self.skew_ns if not 0 <= rank < program.ranks)
        late = [ns for ns in self.skew_ns.values() if ns < 0]
        if unknown or late:
            what = (
                f"{ranks_text(unknown)} does not exist" if unknown else f"a start at {late[0]} ns"
            )
            raise InputError(
                what, where="skew", mend=f"name ranks 0 to {program.ranks - 1}, times from 0 up"
            )
        if not self.collapse:
            return {rank: (rank,) for rank in range(program.ranks)}
        work = {
            rank: (number, self.skew_ns.get(rank, 0))
            for number, plan in enumerate(program.plans)
            for rank in sorted(plan.ranks)
        }
        together = 1 if gpu.memory_gbps is None else gpu.ranks_per_gpu
        classes: dict[tuple[object, ...], list[int]] = {}
        for rank, own in work.items():
            first = rank - rank % together
            company = sorted(work[mate] for mate in range(first, first + together))
            classes.setdefault((own, *company), []).append(rank)
        return {ranks[0]: tuple(ranks) for ranks in classes.values()}


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep the garbage collector from walking over all spans again and again: a third of the time.

    The model makes hardly any cycles while it runs.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _warnings(gpu: Gpu) -> tuple[str, str]:
    shared = gpu.memory_gbps is not None
    memory = "bandwidth shared max-min fair, no clock" if shared else "no shared bandwidth or clock"
    contention = f"SM contention is uncalibrated: CTAs in waves, {memory}"
    if gpu.contention == "none":
        contention = "no contention for SMs: every kernel runs as if alone on the GPU"
        contention += ", but for its bandwidth" if shared else ""
    return contention, "data hazards are not checked: a plan that lacks a wait runs as it stands"
