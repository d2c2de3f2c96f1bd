"""Compute kernels from a plain roofline of the GPU's data sheet.

A kernel takes the longer of its arithmetic at ``math_efficiency`` of the peak and its memory
traffic at ``memory_efficiency`` of the bandwidth, every input read once and every output written
once. Both efficiencies are assumptions; every duration's origin says which of them decided it.
Matrices are cut into 128x128 tiles, one CTA each; elementwise kernels run one CTA per row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from dbo_sched.errors import InputError
from dbo_sched.plan import Op, Plan
from dbo_sched.systems import System, load_system
from dbo_sched.workload import Slice, Workload, received_rows
from sim.costs import Kernel

BYTES = {"fp8": 1, "bf16": 2}
TILE = 128


class Piece(NamedTuple):
    """One kernel's demand: floating-point operations, bytes through memory, CTAs."""

    name: str
    flops: float
    bytes: float
    tiles: int
    dtype: str = "bf16"


@dataclass(frozen=True)
class Roofline:
    """Efficiencies of the roofline, as parts of 1."""

    math_efficiency: float = 0.6
    memory_efficiency: float = 0.8

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 0 < value <= 1:
                raise InputError(
                    f"{name} is {value}", where="roofline", mend="give a part of 1, as in 0.6"
                )

    def kernels(self, workload: Workload, plan: Plan, op: Op) -> tuple[Kernel, ...]:
        """The kernels of a compute op.

        Raises:
            InputError: a kind of op that the roofline does not know.
        """
        if op.kind not in PIECES:
            raise InputError(
                f"op '{op.id}' is of kind {op.kind}, which the roofline does not know",
                where="costs",
                mend=f"use one of {', '.join(PIECES)}, or give the op ns=run:NANOSECONDS",
            )
        system = load_system(workload.deployment.system)
        if op.ubatch >= len(plan.ubatches):
            raise InputError(
                f"op '{op.id}' is of ubatch {op.ubatch}, and the plan declares "
                f"{len(plan.ubatches)} ubatches",
                where="costs",
                mend="add a line such as: ubatch tokens=4096 sequences=4096+0",
            )
        part = plan.ubatches[op.ubatch]
        pieces = PIECES[op.kind](workload, part, op.tokens)
        return tuple(self._kernel(system, piece, op) for piece in pieces)

    def _kernel(self, system: System, piece: Piece, op: Op) -> Kernel:
        peak = system.tflops(piece.dtype)
        math_ns = piece.flops / (peak * self.math_efficiency * 1e3)
        memory_ns = piece.bytes / (system.memory_gbps * self.memory_efficiency)
        bound = (
            f"{self.math_efficiency:.0%} of {peak:g} TFLOP/s {piece.dtype}"
            if math_ns > memory_ns
            else f"{self.memory_efficiency:.0%} of {system.memory_gbps:g} GB/s"
        )
        return Kernel(
            piece.name,
            round(max(math_ns, memory_ns)),
            f"roofline:{system.name} {bound}",
            sms=op.sms or 0,
            tiles=piece.tiles,
        )


def gemm(name: str, m: int, n: int, k: int, dtype: str, *, matrices: int = 1) -> Piece:
    """``m`` rows by ``matrices`` weights of k x n, grouped evenly; BF16 out."""
    size = BYTES[dtype]
    groups = matrices * ceil(m / matrices / TILE) if m else 0
    return Piece(
        name,
        2.0 * m * n * k,
        (m * k + (matrices * k * n if m else 0)) * size + 2.0 * m * n,
        groups * ceil(n / TILE),
        dtype,
    )


def elementwise(name: str, rows: int, bytes_per_row: int) -> Piece:
    """A kernel that only moves memory."""
    return Piece(name, 0.0, float(rows * bytes_per_row), rows)


def _attention(workload: Workload, part: Slice, tokens: int) -> Iterator[Piece]:
    """Multi-head latent attention as in a prefill: keys and values expanded from the latent."""
    model, dtype = workload.model, workload.deployment.dtype
    heads, hidden = model.num_attention_heads, model.hidden_size
    query = model.qk_nope_head_dim + model.qk_rope_head_dim
    value = model.v_head_dim
    latent = model.kv_lora_rank + model.qk_rope_head_dim
    seen = sum(new + context for new, context in part.sequences)
    pairs = sum(new * context + new * (new + 1) // 2 for new, context in part.sequences)
    yield elementwise("norm", tokens, 2 * hidden * BYTES["bf16"])
    yield gemm("qkv_a", tokens, model.q_lora_rank + latent, hidden, dtype)
    yield gemm("q_b", tokens, heads * query, model.q_lora_rank, dtype)
    yield gemm("kv_b", seen, heads * (model.qk_nope_head_dim + value), model.kv_lora_rank, dtype)
    yield Piece(
        "attend",
        2.0 * heads * (query + value) * pairs,
        2.0 * heads * (query + value) * (tokens + seen),
        heads * sum(ceil(new / TILE) for new, _ in part.sequences),
    )
    yield gemm("o", tokens, hidden, heads * value, dtype)


def _gate(workload: Workload, part: Slice, tokens: int) -> Iterator[Piece]:
    hidden = workload.model.hidden_size
    yield elementwise("norm", tokens, 2 * hidden * BYTES["bf16"])
    yield gemm("router", tokens, workload.model.n_routed_experts, hidden, "bf16")
    if workload.deployment.dtype == "fp8":
        yield elementwise("quantise", tokens, hidden * (BYTES["bf16"] + BYTES["fp8"]))


def _experts(workload: Workload, part: Slice, tokens: int) -> Iterator[Piece]:
    """``tokens`` (token, expert) pairs, spread evenly over the experts of this rank."""
    model, deployment = workload.model, workload.deployment
    hidden, size = model.hidden_size, BYTES[deployment.dtype]
    received = received_rows(workload, part.tokens)
    local = model.n_routed_experts // deployment.ep
    moved = tokens + received
    yield Piece("permute", 0.0, float(moved * hidden * size), tokens)
    yield from _mlp(workload, tokens, model.moe_intermediate_size, matrices=local)
    yield Piece("reduce", 0.0, float(moved * hidden * BYTES["bf16"]), received)


def _shared(workload: Workload, part: Slice, tokens: int) -> Iterator[Piece]:
    model = workload.model
    return _mlp(workload, tokens, model.moe_intermediate_size * model.n_shared_experts)


def _dense(workload: Workload, part: Slice, tokens: int) -> Iterator[Piece]:
    return _mlp(workload, tokens, workload.model.intermediate_size)


def _mlp(workload: Workload, rows: int, width: int, *, matrices: int = 1) -> Iterator[Piece]:
    """Gate and up projection, activation, down projection."""
    hidden, dtype = workload.model.hidden_size, workload.deployment.dtype
    yield gemm("gate_up", rows, 2 * width, hidden, dtype, matrices=matrices)
    yield elementwise("act", rows, width * (2 * BYTES["bf16"] + BYTES[dtype]))
    yield gemm("down", rows, hidden, width, dtype, matrices=matrices)


def _output_copy(workload: Workload, part: Slice, tokens: int) -> Iterator[Piece]:
    yield elementwise("copy", tokens, 2 * workload.model.hidden_size * BYTES["bf16"])


def _merge(workload: Workload, part: Slice, tokens: int) -> Iterator[Piece]:
    """Adds routed and shared outputs to the residual."""
    tensors = 3 + (workload.model.n_shared_experts > 0)
    yield elementwise("add", tokens, tensors * workload.model.hidden_size * BYTES["bf16"])


PIECES: dict[str, Callable[[Workload, Slice, int], Iterator[Piece]]] = {
    "attention": _attention,
    "gate": _gate,
    "experts": _experts,
    "shared_experts": _shared,
    "mlp": _dense,
    "output_copy": _output_copy,
    "merge": _merge,
}
