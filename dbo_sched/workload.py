"""What is served, and on what."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from dbo_sched.errors import InputError
from dbo_sched.models import Gqa, Model
from dbo_sched.routing import Arrivals, Routing, balanced, check_routing, fanout
from dbo_sched.structs import Count, Frozen, Positive, RankCount
from dbo_sched.systems import load_system

Dtype: TypeAlias = Literal["fp8", "bf16"]

Sequences: TypeAlias = tuple[tuple[Count, Count], ...]
"""A rank's batch: (new tokens, context tokens that were there before) of each sequence."""


class Deployment(Frozen, frozen=True, kw_only=True):
    """Where the model runs: one rank per GPU, experts spread evenly over all of them (TP is 1).

    ``dtype`` is that of weights and matrix products, ``dispatch_dtype`` that of tokens on the wire;
    combine is always BF16.
    """

    system: str
    nodes: RankCount = 1
    ep: RankCount = 8
    comm_sms: Positive = 20
    dtype: Dtype = "fp8"
    dispatch_dtype: Dtype = "fp8"


class Workload(Frozen, frozen=True, kw_only=True):
    """One step. ``batches`` holds one batch that all ranks have, or one for each rank."""

    model: Model
    deployment: Deployment
    batches: tuple[Sequences, ...]
    routing: Routing = Routing()

    def batch_of(self, rank: int) -> Sequences:
        """The batch of one rank."""
        return self.batches[rank if len(self.batches) > 1 else 0]

    @property
    def tokens(self) -> tuple[int, ...]:
        """New tokens of each rank."""
        counts = tuple(sum(new for new, _ in batch) for batch in self.batches)
        return counts if len(counts) > 1 else counts * self.deployment.ep


class Slice(Frozen, frozen=True, kw_only=True):
    """The part of a rank's batch that one ubatch holds.

    ``arrivals`` is what its dispatch brings to this rank; without it, what balanced routing brings
    on average when every rank sends as many tokens as this one.
    """

    tokens: Count
    sequences: Sequences = ()
    arrivals: Arrivals | None = None


def arrivals(workload: Workload, part: Slice) -> Arrivals:
    """What a slice's dispatch brings to its rank."""
    model, ranks = workload.model, workload.deployment.ep
    if part.arrivals is not None:
        return part.arrivals
    return balanced(model.n_routed_experts, model.num_experts_per_tok, ranks, part.tokens)


def busiest_tokens(workload: Workload, part: Slice) -> int:
    """Tokens per rank of the balanced dispatch that moves as much as this rank sends or receives.

    A rank's wire is as busy as the larger of both directions; under balanced routing each token
    reaches :func:`dbo_sched.routing.fanout` ranks.
    """
    model, ranks = workload.model, workload.deployment.ep
    if part.arrivals is None:
        return part.tokens
    reached = fanout(model.n_routed_experts, model.num_experts_per_tok, ranks)
    return max(part.tokens, round(part.arrivals.rows / reached))


def wire_bytes(workload: Workload, kind: str) -> int:
    """Bytes of one token on the wire.

    Dispatch: FP8 with one float32 scale per 128 values, or BF16. Combine: BF16.
    """
    hidden = workload.model.hidden_size
    if kind == "dispatch" and workload.deployment.dispatch_dtype == "fp8":
        return hidden + hidden // 128 * 4
    return 2 * hidden


def check_workload(workload: Workload) -> None:
    """Refuse values out of bounds and a deployment that the model cannot be spread over.

    Raises:
        InputError: unknown system, more GPUs a node than there are, experts that do not divide,
            an odd or too large number of communication SMs, no token, or loads that do not fit.
    """
    try:
        workload = msgspec.convert(msgspec.to_builtins(workload), Workload)
    except msgspec.ValidationError as error:
        raise InputError(str(error), where="workload", mend="mend the field of the path") from None
    model, deployment = workload.model, workload.deployment
    system = load_system(deployment.system)
    if deployment.ep % deployment.nodes or deployment.ep // deployment.nodes > system.gpus_per_node:
        raise InputError(
            f"{deployment.ep} ranks do not fit evenly on {deployment.nodes} nodes of "
            f"{system.gpus_per_node} GPUs",
            where="--nodes, --ep",
            mend=f"give a multiple of the nodes, at most {system.gpus_per_node} a node",
        )
    if model.n_routed_experts % deployment.ep:
        raise InputError(
            f"{model.n_routed_experts} experts do not divide over {deployment.ep} ranks",
            where="--nodes, --ep",
            mend=f"choose a number of ranks that divides {model.n_routed_experts}",
        )
    if deployment.comm_sms % 2 or deployment.comm_sms >= system.sms:
        raise InputError(
            f"{deployment.comm_sms} communication SMs are not possible",
            where="--comm-sms",
            mend=f"give an even number below the {system.sms} SMs of {system.name} "
            "(DeepEP uses two SMs a channel)",
        )
    if deployment.dtype == "bf16" and deployment.dispatch_dtype == "fp8":
        raise InputError(
            "tokens are dispatched in FP8 to experts that compute in BF16",
            where="--dispatch-dtype",
            mend="dispatch bf16, or compute in fp8",
        )
    _check_batches(workload)
    check_routing(workload.routing, model.n_routed_experts, model.num_experts_per_tok)


def _check_batches(workload: Workload) -> None:
    ranks = workload.deployment.ep
    if len(workload.batches) not in (1, ranks):
        raise InputError(
            f"{len(workload.batches)} batches for {ranks} ranks",
            where="batch",
            mend="give one that all ranks have, or one for each rank",
        )
    if not any(workload.tokens):
        raise InputError("the batch is empty", where="--tokens", mend="give at least one token")


def prompts(tokens: int, seq_len: int, context: int = 0) -> Sequences:
    """A batch of ``tokens`` new tokens in sequences of ``seq_len`` of them, the rest in one more.

    Each has ``context`` tokens that were computed before: a prefix, or all of a decode's past.
    """
    if seq_len < 1 or tokens < 0 or context < 0:
        raise InputError(
            f"{tokens} tokens in prompts of {seq_len} behind {context}",
            where="prompts",
            mend="give at least one token a prompt, and no negative number",
        )
    full, rest = divmod(tokens, seq_len)
    return ((seq_len, context),) * full + (((rest, context),) if rest else ())


def weight_bytes(workload: Workload) -> int:
    """Bytes of the layers' weights on one GPU: experts spread, all else on every rank (TP is 1)."""
    model, deployment = workload.model, workload.deployment
    hidden = model.hidden_size
    expert = 3 * hidden * model.moe_intermediate_size
    experts = model.n_routed_experts // deployment.ep + model.n_shared_experts
    per_weight = 1 if deployment.dtype == "fp8" else 2
    return per_weight * (
        model.num_hidden_layers * _attention_weights(model)
        + model.dense_layers * 3 * hidden * model.intermediate_size
        + model.moe_layers * experts * expert
    )


def _attention_weights(model: Model) -> int:
    """Parameters of one layer's attention projections."""
    hidden, heads, shape = model.hidden_size, model.num_attention_heads, model.attention
    if isinstance(shape, Gqa):
        return hidden * shape.head_dim * 2 * (heads + shape.num_key_value_heads)
    query = heads * (shape.qk_nope_head_dim + shape.qk_rope_head_dim)
    low = shape.q_lora_rank
    queries = hidden * query if low is None else low * (hidden + query)
    return (
        queries
        + hidden * (shape.kv_lora_rank + shape.qk_rope_head_dim)
        + shape.kv_lora_rank * heads * (shape.qk_nope_head_dim + shape.v_head_dim)
        + heads * shape.v_head_dim * hidden
    )
