"""Where the shared experts run: decided as vLLM 0.33 does, and put there in a schedule.

Source: vLLM 0.33, ``fused_moe/runner/shared_experts.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from dbo_sched.errors import InputError
from dbo_sched.layers import Layer
from dbo_sched.weave import UBatch


class Order(StrEnum):
    """Where the shared experts run."""

    NO_OVERLAP = "no-overlap"
    """On the compute stream, before routing and dispatch."""
    MK_INTERNAL_OVERLAPPED = "mk-internal"
    """On the compute stream, between the launch of combine and the wait for it."""
    MULTI_STREAM_OVERLAPPED = "multi-stream"
    """On the aux stream, from before routing to after the routed experts."""


ASYNC_BACKENDS = ("deepep_high_throughput", "deepep_low_latency", "deepep_v2", "nixl_ep")
"""All-to-all backends whose kernel can go on between the launch of combine and its end."""

EPLB_SAFE_BACKENDS = ("allgather_reducescatter", "deepep_v2", "flashinfer_nvlink_one_sided")
"""Backends with which rebalancing experts and overlap were found to go together."""


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What the decision depends on.

    ``rows``: tokens of the step, or of the ubatch under DBO. ``monolithic``: one fused kernel does
    dispatch, experts and combine. ``shard_sequence_parallel``: that attribute of the layer.
    ``aux_stream``: false under ``VLLM_DISABLE_SHARED_EXPERTS_STREAM=1``. ``threshold``:
    ``VLLM_SHARED_EXPERTS_STREAM_TOKEN_THRESHOLD``.
    """

    rows: int
    backend: str = "deepep_high_throughput"
    monolithic: bool = False
    fully_sharded_loras: bool = False
    eplb: bool = False
    shard_sequence_parallel: bool = False
    cuda_like: bool = True
    aux_stream: bool = True
    threshold: int = 256


Rule = Callable[[Situation], bool]

DISABLING: tuple[tuple[Rule, str], ...] = (
    (
        lambda s: s.fully_sharded_loras,
        "fully sharded LoRA layers issue collectives of their own: two in flight on one "
        "communicator can deadlock",
    ),
    (
        lambda s: s.eplb and s.backend not in EPLB_SAFE_BACKENDS,
        "expert rebalancing (EPLB) gave wrong results with overlap on this backend",
    ),
    (
        lambda s: s.backend == "flashinfer_nvlink_two_sided",
        "FlashInfer's two-sided NVLink kernels have nothing to gain",
    ),
    (lambda s: s.shard_sequence_parallel, "the layer is sharded by sequence (not done yet)"),
)
"""Rules that forbid any overlap, in the order in which they are tested."""


@dataclass(frozen=True)
class Decision:
    """An order and why."""

    order: Order
    reason: str


def decide(situation: Situation) -> Decision:
    """Where vLLM runs the shared experts."""
    for forbids, reason in DISABLING:
        if forbids(situation):
            return Decision(Order.NO_OVERLAP, reason)
    if situation.backend in ASYNC_BACKENDS and not situation.monolithic:
        return Decision(
            Order.MK_INTERNAL_OVERLAPPED, f"{situation.backend} can finish combine asynchronously"
        )
    if not situation.cuda_like:
        return Decision(Order.NO_OVERLAP, "no aux stream on this platform")
    if not situation.aux_stream:
        return Decision(Order.NO_OVERLAP, "the aux stream is disabled")
    if situation.rows > situation.threshold:
        return Decision(
            Order.NO_OVERLAP, f"{situation.rows} rows are more than {situation.threshold}"
        )
    return Decision(
        Order.MULTI_STREAM_OVERLAPPED, f"{situation.rows} rows are at most {situation.threshold}"
    )


class SharedExperts:
    """Puts one ubatch's shared experts where an order says; nothing where the model has none.

    A schedule calls the three methods at the three places where they may run or be waited for.
    """

    def __init__(self, ubatch: UBatch, order: str) -> None:
        """Raises InputError for an unknown order."""
        if order not in list(Order):
            raise InputError(
                f"order '{order}' of the shared experts is not known",
                where="option 'shared'",
                mend=f"use one of {', '.join(Order)}",
            )
        self.ubatch, self.order = ubatch, Order(order)
        self._output_ready = ""

    def before_routing(self, layer: Layer) -> None:
        """Behind the attention, before the gate."""
        if layer.shared_experts is None:
            return
        u = self.ubatch
        if self.order is Order.NO_OVERLAP:
            u.launch(layer.shared_experts)
        elif self.order is Order.MULTI_STREAM_OVERLAPPED:
            u.wait(u.record("compute", "shared_input_ready"), "aux")
            u.launch(layer.shared_experts, "aux")
            self._output_ready = u.record("aux", "shared_output_ready")

    def beside_combine(self, layer: Layer) -> None:
        """Behind the launch of combine."""
        if self.order is Order.MK_INTERNAL_OVERLAPPED:
            self.ubatch.launch(layer.shared_experts)

    def join(self, layer: Layer) -> None:
        """Before the merge: the compute stream waits for what runs beside it."""
        if self.order is Order.MULTI_STREAM_OVERLAPPED and layer.shared_experts is not None:
            self.ubatch.wait(self._output_ready, "compute")
