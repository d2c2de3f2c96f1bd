"""What tests share: a small model, programs with the unit costs, and runs with free hosts."""

from __future__ import annotations

from dbo_sched import Deployment, Model, Program, Workload, build_program
from dbo_sched.models import Mla
from dbo_sched.plan import Op, with_durations
from dbo_sched.text import from_text
from dbo_sched.timeline import Timeline
from sim import Gpu, Host, SimBackend

FREE = Host()
IDEAL = Gpu(contention="none")
UNIT = 1000
"""Nanoseconds of one unit of time."""

UNIT_COSTS = {
    "attention": 10,
    "experts": 8,
    "combine": 8,
    "output_copy": 0.5,
    "gate": 0,
    "merge": 0,
}


def small_model(layers: int = 4, *, dense: int = 0, shared: int = 1) -> Model:
    return Model(
        name="small",
        num_hidden_layers=layers,
        first_k_dense_replace=dense,
        hidden_size=256,
        num_attention_heads=4,
        attention=Mla(
            q_lora_rank=64,
            kv_lora_rank=32,
            qk_nope_head_dim=32,
            qk_rope_head_dim=16,
            v_head_dim=32,
        ),
        intermediate_size=512,
        moe_intermediate_size=128,
        n_routed_experts=16,
        num_experts_per_tok=4,
        n_shared_experts=shared,
    )


def small_workload(
    layers: int = 4, *, dense: int = 0, shared: int = 1, ep: int = 2, tokens: int = 64
) -> Workload:
    return Workload(
        model=small_model(layers, dense=dense, shared=shared),
        deployment=Deployment(system="h100", ep=ep),
        batches=(((tokens, 0),),),
    )


def unit_program(
    schedule: str,
    *,
    layers: int,
    ubatches: int | None = None,
    shared: float = 0,
    options: dict[str, str] | None = None,
) -> Program:
    """Unit costs per ubatch; an unsplit batch takes the double of all but layout and notify."""
    workload = small_workload(layers, shared=int(shared > 0))
    program = build_program(workload, schedule, ubatches=ubatches, options=options)
    scale = 2 if len(program.plans[0].ubatches) == 1 else 1

    def durations(op: Op) -> dict[str, int]:
        def ns(units: float) -> int:
            return round(units * UNIT)

        if op.kind == "dispatch":
            return {"layout": ns(0.3), "notify": ns(1), "data": ns(6 * scale)}
        costs = UNIT_COSTS | {"shared_experts": shared}
        return {"data" if op.comm else "run": ns(costs[op.kind] * scale)}

    return with_durations(program, durations)


def simulate(
    program: Program | str, *, host: Host = FREE, gpu: Gpu = IDEAL, **more: object
) -> Timeline:
    """One step with a free host and no latencies; text is parsed first."""
    if isinstance(program, str):
        program = from_text(program)
    backend = SimBackend("fixed", host=host, gpu=gpu, **more)  # type: ignore[arg-type]
    return backend.run(program)[0]


def period(schedule: str, *, host: Host = FREE, ubatches: int | None = None, shared: float = 0):
    """Steady period per layer in units: (T(2n) - T(n)) / n."""
    n = 4
    short, long = (
        simulate(
            unit_program(schedule, layers=layers, ubatches=ubatches, shared=shared), host=host
        ).makespan_ns
        for layers in (n, 2 * n)
    )
    return (long - short) / n / UNIT


def when(timeline: Timeline, op: str, rank: int = 0, phase: str | None = None) -> tuple[int, int]:
    """Start and end of an op's (phase's) spans on one rank."""
    spans = [s for s in timeline.gpu(rank) if s.op == op and phase in (None, s.phase)]
    return min(s.start_ns for s in spans), max(s.end_ns for s in spans)
