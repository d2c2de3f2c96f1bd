"""What tests of cost models share: workloads, and the kernels of one of their ops."""

from __future__ import annotations

from dbo_sched import Deployment, Workload, build_program, load_model, prompts
from sim import SimBackend
from sim.costs import Costs, Kernel
from sim.costs.derived import DerivedCosts

V3 = load_model("deepseek-v3").with_layers(4)
"""Three dense layers and one MoE layer."""


def workload(
    tokens: int = 8192,
    *,
    model=V3,
    nodes=4,
    ep=None,
    system="h100",
    seq_len=4096,
    context=0,
    **more,
) -> Workload:
    """DeepSeek-V3 on four H100 nodes, or what the arguments say."""
    deployment = Deployment(system=system, nodes=nodes, ep=ep or 8 * nodes, **more)
    batch = prompts(tokens, seq_len, context)
    return Workload(model=model, deployment=deployment, batches=(batch,))


def kernels(
    kind: str,
    job: Workload,
    schedule: str = "sequential",
    costs: Costs | None = None,
    ubatch: int = 0,
) -> dict[str, Kernel]:
    """Kernels of the first op of a kind, by phase."""
    program = build_program(job, schedule)
    plan = program.plans[0]
    op = next(op for op in plan.ops if op.kind == kind and op.ubatch == ubatch)
    found = (costs or DerivedCosts()).kernels(program, plan, op)
    return {kernel.phase: kernel for kernel in found}


def notes(job: Workload, costs: Costs | str = "auto", schedule: str = "sequential") -> str:
    """What a reader is told of a step's numbers."""
    timeline = SimBackend(costs).run(build_program(job, schedule))[0]
    return "\n".join(timeline.header.notes)
