"""What is served, on what, and how a rank's batch is cut into ubatches."""

from __future__ import annotations

from math import comb
from typing import Literal, TypeAlias

import msgspec

from dbo_sched.errors import InputError
from dbo_sched.models import Model
from dbo_sched.structs import Count, Frozen, Positive, RankCount
from dbo_sched.systems import load_system

Sequences: TypeAlias = tuple[tuple[Count, Count], ...]
"""A rank's batch: (new tokens, context tokens that were there before) of each sequence."""


class Deployment(Frozen, frozen=True, kw_only=True):
    """Where the model runs: one rank per GPU, experts spread evenly over all of them (TP is 1)."""

    system: str
    nodes: RankCount = 1
    ep: RankCount = 8
    comm_sms: Positive = 20
    dtype: Literal["fp8", "bf16"] = "fp8"


class Workload(Frozen, frozen=True, kw_only=True):
    """One step: a model on a deployment, with the same batch on every rank, balanced routing."""

    model: Model
    deployment: Deployment
    sequences: Sequences

    @property
    def tokens(self) -> int:
        """New tokens of one rank in one step."""
        return sum(new for new, _ in self.sequences)


class Slice(Frozen, frozen=True, kw_only=True):
    """The part of a rank's batch that one ubatch holds."""

    tokens: Count
    sequences: Sequences = ()


def check_workload(workload: Workload) -> None:
    """Refuse values out of bounds and a deployment that the model cannot be spread over.

    Raises:
        InputError: unknown system, more GPUs a node than there are, experts that do not divide,
            an odd or too large number of communication SMs, an empty batch.
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
    if not workload.tokens:
        raise InputError("the batch is empty", where="--tokens", mend="give at least one token")


def prompts(tokens: int, seq_len: int) -> Sequences:
    """A prefill batch of ``tokens`` new tokens in whole prompts of ``seq_len``, the rest in one."""
    if seq_len < 1 or tokens < 0:
        raise InputError(
            f"{tokens} tokens in prompts of {seq_len}",
            where="prompts",
            mend="give at least one token a prompt",
        )
    full, rest = divmod(tokens, seq_len)
    return ((seq_len, 0),) * full + (((rest, 0),) if rest else ())


def split(sequences: Sequences, ubatches: int) -> tuple[Slice, ...]:
    """Cut a batch by token into ``ubatches`` slices, as vLLM does: at total // n, 2 total // n, ...

    The last slice takes the rest. A sequence may straddle a cut: its second part has the first
    as context, like the next chunk of a chunked prefill.
    """
    size = sum(new for new, _ in sequences) // ubatches
    slices: list[list[tuple[int, int]]] = [[] for _ in range(ubatches)]
    room, at = size, 0
    for new, context in sequences:
        while new:
            if at == ubatches - 1:
                room = new
            take = min(new, room)
            if take:
                slices[at].append((take, context))
            new, context, room = new - take, context + take, room - take
            if not room and at < ubatches - 1:
                at, room = at + 1, size
    return tuple(
        Slice(tokens=sum(new for new, _ in part), sequences=tuple(part)) for part in slices
    )


def received_rows(workload: Workload, tokens: int) -> int:
    """Rows that one rank receives in a dispatch when every rank sends ``tokens`` tokens.

    Balanced routing: each token picks its experts uniformly without repetition, and goes once to
    every rank that holds at least one of them. The expected number of such ranks is
    R (1 - C(E - E/R, k) / C(E, k)); what ranks send on average is what they receive.
    """
    model, ranks = workload.model, workload.deployment.ep
    experts, topk = model.n_routed_experts, model.num_experts_per_tok
    missed = comb(experts - experts // ranks, topk) / comb(experts, topk)
    return round(tokens * ranks * (1 - missed))


def weight_bytes(workload: Workload) -> int:
    """Bytes of the layers' weights on one GPU: experts spread, all else on every rank (TP is 1)."""
    model, deployment = workload.model, workload.deployment
    hidden, heads = model.hidden_size, model.num_attention_heads
    query = model.qk_nope_head_dim + model.qk_rope_head_dim
    attention = (
        hidden * (model.q_lora_rank + model.kv_lora_rank + model.qk_rope_head_dim)
        + model.q_lora_rank * heads * query
        + model.kv_lora_rank * heads * (model.qk_nope_head_dim + model.v_head_dim)
        + heads * model.v_head_dim * hidden
    )
    expert = 3 * hidden * model.moe_intermediate_size
    experts = model.n_routed_experts // deployment.ep + model.n_shared_experts
    dense = min(model.first_k_dense_replace, model.num_hidden_layers)
    per_weight = 1 if deployment.dtype == "fp8" else 2
    return per_weight * (
        model.num_hidden_layers * attention
        + dense * 3 * hidden * model.intermediate_size
        + (model.num_hidden_layers - dense) * experts * expert
    )
