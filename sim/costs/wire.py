"""Dispatch and combine from the data sheet alone, where nobody has measured.

A call takes its bytes at a part of the link's rate: NVLink within a node, the NIC between nodes
(also where NVLink reaches further, as in an NVL72). It takes no less than its SMs can copy. Parts,
rates per SM, latency and notify are those that DeepEP's measured kernels show on H100 for hidden
7168; on another machine they are a guess.
"""

from __future__ import annotations

from dbo_sched.systems import load_system
from dbo_sched.workload import Workload
from sim.costs.deepep import NOTIFY_NS, NOTIFY_ORIGIN, Call, Times, sent_bytes

NVLINK_PART, NIC_PART = 0.72, 0.92
NVLINK_GBPS_PER_SM, NIC_GBPS_PER_SM = 20.0, {"dispatch": 4.2, "combine": 3.2}
LATENCY_US = {"dispatch": 40.0, "combine": 60.0}
NOTIFY_US = {"dispatch": 65.0, "combine": 100.0}
"""Between nodes: about the medians of H100's rows on four nodes."""


def estimate(workload: Workload, call: Call) -> Times:
    """Data and notify phase of a call; there is always an answer."""
    deployment = workload.deployment
    system = load_system(deployment.system)
    within = deployment.nodes == 1
    part, link, peak = (
        (NVLINK_PART, "NVLink", system.nvlink_gbps)
        if within
        else (NIC_PART, "NIC", system.nic_gbps)
    )
    per_sm = NVLINK_GBPS_PER_SM if within else NIC_GBPS_PER_SM[call.kind]
    rate = min(part * peak, per_sm * call.sms)
    data_us = LATENCY_US[call.kind] + call.tokens * sent_bytes(workload, call.kind) / rate / 1e3
    origin = (
        f"wire:{part:.0%} of {peak:g} GB/s {link} of {system.name}, {call.tokens} tokens, "
        f"{call.sms} SMs"
    )
    if within:
        return Times(round(1000 * data_us), origin, NOTIFY_NS[call.kind], NOTIFY_ORIGIN)
    return Times(round(1000 * data_us), origin, round(1000 * NOTIFY_US[call.kind]), origin)
