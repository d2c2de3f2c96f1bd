"""What is known of DeepEP V1's high-throughput kernels whatever their durations."""

from __future__ import annotations

from math import ceil

from dbo_sched.plan import Op, Program

PHASES = ("layout", "notify", "data")


def phase_sms(program: Program, op: Op, phase: str) -> int:
    """SMs that a phase of a collective holds; 0 for an op without an SM budget.

    Source: grid sizes in DeepEP V1. Layout counts 4 experts or 8 ranks per SM; dispatch's notify
    takes one SM and one per rank within a node, one and one per node between nodes; combine's
    notify one and one per channel (two SMs make a channel) within a node, two per channel between
    nodes; data the whole budget. The model caps all but data at the GPU's SMs. A program
    without a workload is taken to have 8 ranks a node and 2 SMs for layout.
    """
    if op.sms is None:
        return 0
    if phase == "data":
        return op.sms
    nodes, layout = ceil(program.ranks / 8), 2
    if program.workload is not None:
        nodes = program.workload.deployment.nodes
        layout = ceil(program.workload.model.n_routed_experts / 4) + ceil(program.ranks / 8)
    if phase == "layout":
        return layout
    if op.kind == "combine":
        return 1 + op.sms // 2 if nodes == 1 else op.sms
    return 1 + (program.ranks if nodes == 1 else nodes)
