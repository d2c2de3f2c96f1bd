"""DeepEP V1's high-throughput kernels: their phases, and where the phases' durations come from.

A source of durations answers one :class:`Call` with :class:`Times`, or with the reason why it
cannot. Sources are asked in order; what a later one answers carries the reason of the earlier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from typing import NamedTuple, TypeAlias

from dbo_sched.errors import InputError
from dbo_sched.plan import Op, Plan, Program
from dbo_sched.routing import fanout
from dbo_sched.workload import Workload, arrivals, busiest_tokens, wire_bytes
from sim.costs import Kernel
from sim.costs.roofline import part_of

PHASES = ("layout", "notify", "data")

LAYOUT_NS_PER_CHOICE = 23_000 / (4096 * 6)
"""Layout reads every top-k choice: 23 us for 4096 tokens, top-6, measured on one H200."""

NOTIFY_NS = {"dispatch": 9_000, "combine": 30_000}
"""Notify within one node: measured on one H200 with two ranks, since the tables have none."""

NOTIFY_ORIGIN = "measured: notify on one H200 with two ranks"


class Call(NamedTuple):
    """One dispatch or combine: ``tokens`` per rank of the balanced call that is as large."""

    kind: str
    tokens: int
    sms: int


class Times(NamedTuple):
    """Nanoseconds of the data and the notify phase alone on the GPU, and where each is from."""

    data_ns: int
    origin: str
    notify_ns: int
    notify_origin: str


Source: TypeAlias = Callable[[Workload, Call], Times | str]
"""What answers a call, or says why it cannot (a reason without ", ")."""


def collective(
    program: Program, workload: Workload, plan: Plan, op: Op, sources: Sequence[Source]
) -> tuple[Kernel, ...]:
    """Layout (dispatch only), notify and data of a dispatch or combine.

    Raises:
        InputError: another kind of collective, no SM budget, or no source has an answer.
    """
    if op.kind not in ("dispatch", "combine") or op.sms is None:
        raise InputError(
            f"op '{op.id}' is a collective of kind {op.kind}"
            + (" without SMs" if op.sms is None else ""),
            where="costs",
            mend="only dispatch and combine with sms=N are known; give the op ns=data:NANOSECONDS",
        )
    part = part_of(plan, op)
    times = _ask(workload, Call(op.kind, busiest_tokens(workload, part), op.sms), sources)
    rows = part.tokens * fanout_of(workload) + arrivals(workload, part).rows
    kernels = [
        Kernel("notify", times.notify_ns, times.notify_origin, meets=True),
        Kernel(
            "data",
            times.data_ns,
            times.origin,
            meets=True,
            bytes=round(rows * wire_bytes(workload, op.kind)),
        ),
    ]
    if op.kind == "dispatch":
        layout_ns = round(part.tokens * workload.model.num_experts_per_tok * LAYOUT_NS_PER_CHOICE)
        kernels.insert(0, Kernel("layout", layout_ns, "measured: layout on one H200 (scaled)"))
    return tuple(k._replace(gang=True, sms=phase_sms(program, op, k.phase)) for k in kernels)


def _ask(workload: Workload, call: Call, sources: Sequence[Source]) -> Times:
    reason = ""
    for source in sources:
        answer = source(workload, call)
        if isinstance(answer, Times):
            if not reason:
                return answer
            head, comma, detail = answer.origin.partition(", ")
            return answer._replace(origin=f"{head} ({reason}){comma}{detail}")
        reason = f"{reason}; {answer}" if reason else answer
    deployment = workload.deployment
    raise InputError(
        f"no duration of {call.kind} with {call.sms} SMs on {deployment.nodes} x "
        f"{deployment.ep // deployment.nodes} {deployment.system}: {reason}",
        where="costs",
        mend="take --costs auto or roofline, which also estimate what was never measured, or give "
        "durations on the ops",
    )


def fanout_of(workload: Workload) -> float:
    """Ranks that a token is sent to on average under balanced routing."""
    model = workload.model
    return fanout(model.n_routed_experts, model.num_experts_per_tok, workload.deployment.ep)


def sent_bytes(workload: Workload, kind: str) -> float:
    """Bytes that one token puts on the wire: to every rank of the node, or to other nodes.

    Within a node that is all it is sent, the own rank's part included (DeepEP copies it too).
    Between nodes it goes once to every other node that it reaches, over the NIC.
    """
    model, nodes = workload.model, workload.deployment.nodes
    reached = fanout_of(workload)
    if nodes > 1:
        experts, topk = model.n_routed_experts, model.num_experts_per_tok
        reached = fanout(experts, topk, nodes) * (nodes - 1) / nodes
    return reached * wire_bytes(workload, kind)


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
