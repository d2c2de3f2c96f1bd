"""The ops and buffers of one ubatch, layer by layer: what a schedule puts in order."""

from __future__ import annotations

from dataclasses import dataclass

from dbo_sched.plan import Buffer, Op
from dbo_sched.workload import Slice, Workload, arrivals, wire_bytes

COMMUNICATOR = "ep"
"""The expert-parallel communicator that every dispatch and combine meets on."""


@dataclass(frozen=True)
class Layer:
    """One transformer layer of one ubatch. Ops that the layer does not have are ``None``.

    A dense layer has ``attention`` and ``mlp``; an MoE layer all others but ``mlp``, and
    ``shared_experts`` only where the model has some.
    """

    index: int
    dense: bool
    attention: Op
    mlp: Op | None = None
    gate: Op | None = None
    dispatch: Op | None = None
    experts: Op | None = None
    combine: Op | None = None
    shared_experts: Op | None = None
    output_copy: Op | None = None
    merge: Op | None = None

    @property
    def ops(self) -> tuple[Op, ...]:
        """The ops that the layer has, in data order."""
        order = (
            *(self.attention, self.mlp, self.gate, self.dispatch, self.experts),
            *(self.combine, self.shared_experts, self.output_copy, self.merge),
        )
        return tuple(op for op in order if op is not None)


def layers_of(workload: Workload, ubatch: int, part: Slice) -> tuple[Layer, ...]:
    """All layers of one ubatch, in order."""
    pairs = sum(arrivals(workload, part).pairs)
    return tuple(
        _layer(workload, index, ubatch, part.tokens, pairs)
        for index in range(workload.model.num_hidden_layers)
    )


def _layer(workload: Workload, index: int, ubatch: int, tokens: int, pairs: int) -> Layer:
    here = f"L{index}.u{ubatch}"
    after = f"L{index + 1}.u{ubatch}.hidden"

    def op(
        kind: str,
        reads: str,
        writes: str,
        *,
        rows: int = tokens,
        collective: bool = False,
        blocks_host: bool = False,
    ) -> Op:
        return Op(
            id=f"{here}.{kind}",
            kind=kind,
            layer=index,
            ubatch=ubatch,
            tokens=rows,
            reads=tuple(f"{here}.{name}" for name in reads.split()),
            writes=tuple(after if n == "next" else f"{here}.{n}" for n in writes.split()),
            comm=COMMUNICATOR if collective else None,
            sms=workload.deployment.comm_sms if collective else None,
            blocks_host=blocks_host,
        )

    attention = op("attention", "hidden", "attn_out normed")
    if index < workload.model.first_k_dense_replace:
        return Layer(index, True, attention, mlp=op("mlp", "attn_out normed", "next"))
    shared = workload.model.n_shared_experts > 0
    return Layer(
        index,
        False,
        attention,
        gate=op("gate", "normed", "routed_tokens topk"),
        dispatch=op(
            "dispatch",
            "routed_tokens topk",
            "recv handle",
            collective=True,
            blocks_host=True,
        ),
        experts=op("experts", "recv", "expert_out", rows=pairs),
        combine=op("combine", "expert_out handle", "combined", collective=True),
        shared_experts=op("shared_experts", "normed", "shared_out") if shared else None,
        output_copy=op("output_copy", "combined", "routed_out"),
        merge=op("merge", "attn_out routed_out" + " shared_out" * shared, "next"),
    )


def buffers_of(workload: Workload, layer: Layer, part: Slice) -> tuple[Buffer, ...]:
    """The buffers that a layer's ops write, with the step's input before the first layer.

    Sizes in bytes: hidden states BF16; tokens as they are on the wire; top-k as int64 ids and
    float32 weights; the handle's send heads as int32 per token and rank.
    """
    model, tokens = workload.model, part.tokens
    hidden, wire = model.hidden_size * 2, wire_bytes(workload, "dispatch")
    received = arrivals(workload, part).rows
    sizes = {
        "routed_tokens": tokens * wire,
        "topk": tokens * model.num_experts_per_tok * 12,
        "recv": received * wire,
        "handle": tokens * workload.deployment.ep * 4,
        "expert_out": received * hidden,
    }
    names = [name for op in layer.ops for name in op.writes]
    if layer.index == 0:
        names = [*layer.attention.reads, *names]
    return tuple(
        Buffer(id=name, bytes=sizes.get(name.rsplit(".", 1)[1], tokens * hidden)) for name in names
    )
