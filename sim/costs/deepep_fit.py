"""Dispatch and combine of shapes that the table lacks, from a formula fitted to its rows.

t = L + n max((a + b w + c f w) / SMs, f w / B) with n tokens per rank, each of w bytes to f places:
every rank of the node, or every other node that it reaches. With few SMs each token, each of its
bytes and each copy of them cost the SMs time; with many the wire is full at B.
``benchmarks/fit_deepep.py`` makes the parameters and says how far off the rows are.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TypeAlias

import msgspec

from dbo_sched.structs import Frozen
from dbo_sched.systems import load_system
from dbo_sched.workload import Workload, wire_bytes
from sim.costs.deepep import NOTIFY_NS, NOTIFY_ORIGIN, Call, Times, sent_bytes

DATA = "deepep_fit.json"


class Fit(Frozen, frozen=True, kw_only=True):
    """One formula. Microseconds, the two of bytes per byte; ``gbps`` is the full wire, one way.

    ``notify_us`` is the median of the rows, 0 where they hold none. ``mean_error`` and
    ``worst_error`` are of the rows, as parts of 1.
    """

    system: str
    nodes: int
    kind: str
    latency_us: float
    token_us: float
    byte_us: float
    copy_us: float
    gbps: float
    notify_us: float
    mean_error: float
    worst_error: float

    def data_us(self, tokens: float, copies: float, wire: float, sms: float) -> float:
        """Microseconds of ``tokens`` per rank, each sent to ``copies`` places, ``wire`` bytes."""
        busy = (self.token_us + (self.byte_us + copies * self.copy_us) * wire) / sms
        return self.latency_us + tokens * max(busy, copies * wire / self.gbps / 1e3)


Key: TypeAlias = tuple[str, int, str]


@cache
def fits() -> dict[Key, Fit]:
    """Every formula by system, nodes and kind of op."""
    data = (resources.files("sim.costs") / "data" / DATA).read_bytes()
    found = msgspec.json.decode(data, type=tuple[Fit, ...])
    return {(fit.system, fit.nodes, fit.kind): fit for fit in found}


def estimate(workload: Workload, call: Call) -> Times | str:
    """Data phase by the formula of the system and its number of nodes; notify as in the rows.

    Between nodes a system counts as another with the same NVLink and NIC.
    """
    deployment = workload.deployment
    system, nodes = load_system(deployment.system), deployment.nodes
    if nodes == 1 and deployment.ep > system.gpus_per_node:
        return "more ranks than a node has"
    fit = next(
        (
            fit
            for (name, fitted_nodes, kind), fit in fits().items()
            if (kind, fitted_nodes) == (call.kind, nodes)
            and (name == system.name or (nodes > 1 and _same_wire(name, system.name)))
        ),
        None,
    )
    if fit is None:
        return f"nothing was measured on {nodes} nodes of {system.name}"
    wire = wire_bytes(workload, call.kind)
    data_us = fit.data_us(call.tokens, sent_bytes(workload, call.kind) / wire, wire, call.sms)
    origin = (
        f"fit:{DATA} {fit.system} {nodes}x{deployment.ep // nodes} mean error "
        f"{fit.mean_error:.0%}, {call.tokens} tokens, {call.sms} SMs"
    )
    if fit.notify_us:
        return Times(round(1000 * data_us), origin, round(1000 * fit.notify_us), origin)
    return Times(round(1000 * data_us), origin, NOTIFY_NS[call.kind], NOTIFY_ORIGIN)


def _same_wire(name: str, other: str) -> bool:
    left, right = load_system(name), load_system(other)
    return (left.nvlink_gbps, left.nic_gbps) == (right.nvlink_gbps, right.nic_gbps)
