"""Compute kernels from the GPU's data sheet: tiles, waves and weights counted, efficiencies stated.

Matrix products are cut into tiles of 128 columns by 128 rows (64 where no matrix has more), padded
to whole ones; each SM computes one tile at a time at ``math_efficiency`` of its share of the peak,
so that a product takes whole waves of tiles. It takes no less than its memory traffic at
``memory_efficiency`` of the bandwidth: activations and outputs once, and the weights of every
matrix that has any row. Half the rows are therefore not half the time where tiles are not full,
waves not whole, or weights the larger part. Elementwise kernels move memory, one CTA per row.

Both efficiencies are set to meet the measured tables of DeepSeek-V3's shapes on H100 and H200
(sim/costs/data/README.md says how well); for other kernels and GPUs they are assumptions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from dbo_sched.errors import InputError
from dbo_sched.models import Gqa, Mla
from dbo_sched.plan import Op, Plan
from dbo_sched.policies.microbatch import pairs
from dbo_sched.systems import System, load_system
from dbo_sched.workload import Slice, Workload, arrivals
from sim.costs import Kernel
from sim.settings import MEMORY_EFFICIENCY

BYTES = {"fp8": 1, "bf16": 2}
TILE = 128
SMALL_TILE = 64
DECODE_TOKENS = 4
"""A sequence with context and at most so many new tokens is decoded: MLA in its absorbed form."""


class Piece(NamedTuple):
    """One kernel's demand: floating-point operations of whole tiles, bytes through memory, CTAs.

    ``waves``: the CTAs are alike, so that the last wave takes as long as a full one.
    """

    name: str
    flops: float
    bytes: float
    tiles: int
    dtype: str = "bf16"
    waves: bool = False


@dataclass(frozen=True)
class Roofline:
    """Efficiencies of the roofline, as parts of 1."""

    math_efficiency: float = 0.65
    memory_efficiency: float = MEMORY_EFFICIENCY

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
        pieces = PIECES[op.kind](workload, part_of(plan, op))
        return tuple(self.kernel(system, piece, op.sms or 0) for piece in pieces)

    def kernel(self, system: System, piece: Piece, sms: int = 0) -> Kernel:
        """One kernel's duration alone on all SMs; ``sms`` caps how many it takes (0: no cap)."""
        peak = system.tflops(piece.dtype)
        math_ns = piece.flops / (peak * self.math_efficiency * 1e3)
        if piece.tiles:
            whole = ceil(piece.tiles / system.sms) if piece.waves else piece.tiles / system.sms
            math_ns *= max(1.0, whole) * system.sms / piece.tiles
        memory_ns = ceil(piece.bytes / (system.memory_gbps * self.memory_efficiency))
        bound = (
            f"{self.math_efficiency:.0%} of {peak:g} TFLOP/s {piece.dtype}"
            if math_ns > memory_ns
            else f"{self.memory_efficiency:.0%} of {system.memory_gbps:g} GB/s"
        )
        return Kernel(
            piece.name,
            round(max(math_ns, memory_ns)),
            f"roofline:{system.name}, {bound}",
            sms=sms,
            tiles=piece.tiles,
            bytes=round(piece.bytes),
            full_sms=system.sms,
        )


def part_of(plan: Plan, op: Op) -> Slice:
    """The slice of the batch that an op works on.

    Raises:
        InputError: the plan does not declare it.
    """
    if op.ubatch >= len(plan.ubatches):
        raise InputError(
            f"op '{op.id}' is of ubatch {op.ubatch}, and the plan declares "
            f"{len(plan.ubatches)} ubatches",
            where="costs",
            mend="add a line such as: ubatch tokens=4096 sequences=4096+0",
        )
    return plan.ubatches[op.ubatch]


def gemm(name: str, rows: Sequence[int], n: int, k: int, dtype: str) -> Piece:
    """One product per entry of ``rows``, each with weights of its own, k x n; BF16 out."""
    height = TILE if max(rows, default=0) > SMALL_TILE else SMALL_TILE
    tiles = sum(ceil(m / height) for m in rows) * ceil(n / TILE)
    total, matrices = sum(rows), sum(m > 0 for m in rows)
    return Piece(
        name,
        2.0 * tiles * height * TILE * k,
        (total * k + matrices * k * n) * BYTES[dtype] + 2.0 * total * n,
        tiles,
        dtype,
        waves=True,
    )


def elementwise(name: str, rows: int, bytes_per_row: int) -> Piece:
    """A kernel that only moves memory."""
    return Piece(name, 0.0, float(rows * bytes_per_row), rows)


def _attention(workload: Workload, part: Slice) -> Iterator[Piece]:
    """From the layer's input to the normalised input of its MLP or experts."""
    model = workload.model
    norm = 2 * model.hidden_size * BYTES["bf16"]
    yield elementwise("norm", part.tokens, norm)
    if isinstance(model.attention, Gqa):
        yield from _grouped(workload, part, model.attention)
    else:
        yield from _latent(workload, part, model.attention)
    yield elementwise("mlp_norm", part.tokens, norm)


def _grouped(workload: Workload, part: Slice, shape: Gqa) -> Iterator[Piece]:
    model, dtype, size = workload.model, workload.deployment.dtype, shape.head_dim
    heads, tokens = model.num_attention_heads, part.tokens
    both = 2 * shape.num_key_value_heads
    yield gemm("qkv", [tokens], (heads + both) * size, model.hidden_size, dtype)
    yield _attend("attend", part, heads, size, size, float(both * size))
    yield gemm("o", [tokens], model.hidden_size, heads * size, dtype)


def _latent(workload: Workload, part: Slice, shape: Mla) -> Iterator[Piece]:
    """Prompts expand keys and values from the latent; decodes work on the latent itself."""
    model, dtype = workload.model, workload.deployment.dtype
    heads, hidden, tokens = model.num_attention_heads, model.hidden_size, part.tokens
    query, value = shape.qk_nope_head_dim + shape.qk_rope_head_dim, shape.v_head_dim
    rank, latent = shape.kv_lora_rank, shape.kv_lora_rank + shape.qk_rope_head_dim
    if shape.q_lora_rank is None:
        yield gemm("qkv_a", [tokens], heads * query + latent, hidden, dtype)
    else:
        yield gemm("qkv_a", [tokens], shape.q_lora_rank + latent, hidden, dtype)
        yield gemm("q_b", [tokens], heads * query, shape.q_lora_rank, dtype)
    prompts, decodes = _by_kind(part)
    if prompts.tokens:
        seen = sum(new + context for new, context in prompts.sequences)
        yield gemm("kv_b", [seen], heads * (shape.qk_nope_head_dim + value), rank, dtype)
        yield _attend("attend", prompts, heads, query, value, float(heads * (query + value)))
    if decodes.tokens:
        yield gemm("absorb_k", [decodes.tokens] * heads, rank, shape.qk_nope_head_dim, "bf16")
        yield _attend("attend_latent", decodes, heads, latent, rank, float(latent))
        yield gemm("absorb_v", [decodes.tokens] * heads, value, rank, "bf16")
    yield gemm("o", [tokens], hidden, heads * value, dtype)


def _by_kind(part: Slice) -> tuple[Slice, Slice]:
    """The slice's prompts and its decodes."""
    sorted_out: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
    for new, context in part.sequences:
        sorted_out[bool(context) and new <= DECODE_TOKENS].append((new, context))
    prompts, decodes = (
        Slice(tokens=sum(new for new, _ in some), sequences=tuple(some)) for some in sorted_out
    )
    return prompts, decodes


def _attend(name: str, part: Slice, heads: int, query: int, value: int, cached: float) -> Piece:
    """Causal attention; ``cached`` is the number of values that each key-value row holds.

    Query times key over ``query``, weights times value over ``value``; queries, outputs and every
    cached row go through memory once. A CTA takes 128 queries of a head, or where there are few
    queries a stretch of 128 keys.
    """
    met = sum(pairs(new, context) for new, context in part.sequences)
    rows = sum(new + context for new, context in part.sequences)
    tiles = heads * sum(ceil(new / TILE) for new, _ in part.sequences)
    if part.sequences and part.tokens <= DECODE_TOKENS * len(part.sequences):
        tiles = sum(ceil((new + context) / TILE) for new, context in part.sequences)
    moved = part.tokens * heads * (query + value) + rows * cached
    return Piece(name, 2.0 * heads * (query + value) * met, 2.0 * moved, tiles)


def _gate(workload: Workload, part: Slice) -> Iterator[Piece]:
    hidden = workload.model.hidden_size
    yield gemm("router", [part.tokens], workload.model.n_routed_experts, hidden, "bf16")
    if workload.deployment.dispatch_dtype == "fp8":
        yield elementwise("quantise", part.tokens, hidden * (BYTES["bf16"] + BYTES["fp8"]))


def _experts(workload: Workload, part: Slice) -> Iterator[Piece]:
    """The (token, expert) pairs that arrive at this rank, expert by expert."""
    model, deployment = workload.model, workload.deployment
    arrived, hidden = arrivals(workload, part), model.hidden_size
    total, size = sum(arrived.pairs), BYTES[deployment.dtype]
    moved = arrived.rows + total
    if deployment.dtype != deployment.dispatch_dtype:
        yield elementwise("quantise", arrived.rows, hidden * (BYTES["bf16"] + size))
    yield Piece("permute", 0.0, float(moved * hidden * size), total)
    yield from _mlp(workload, arrived.pairs, model.moe_intermediate_size)
    yield Piece("reduce", 0.0, float(moved * hidden * BYTES["bf16"]), arrived.rows)


def _shared(workload: Workload, part: Slice) -> Iterator[Piece]:
    model = workload.model
    return _mlp(workload, [part.tokens], model.moe_intermediate_size * model.n_shared_experts)


def _dense(workload: Workload, part: Slice) -> Iterator[Piece]:
    return _mlp(workload, [part.tokens], workload.model.intermediate_size)


def _mlp(workload: Workload, rows: Sequence[int], width: int) -> Iterator[Piece]:
    """Gate and up projection, activation, down projection."""
    hidden, dtype = workload.model.hidden_size, workload.deployment.dtype
    yield gemm("gate_up", rows, 2 * width, hidden, dtype)
    yield elementwise("act", sum(rows), width * (2 * BYTES["bf16"] + BYTES[dtype]))
    yield gemm("down", rows, hidden, width, dtype)


def _output_copy(workload: Workload, part: Slice) -> Iterator[Piece]:
    yield elementwise("copy", part.tokens, 2 * workload.model.hidden_size * BYTES["bf16"])


def _merge(workload: Workload, part: Slice) -> Iterator[Piece]:
    """Adds routed and shared outputs to the residual."""
    tensors = 3 + (workload.model.n_shared_experts > 0)
    yield elementwise("add", part.tokens, tensors * workload.model.hidden_size * BYTES["bf16"])


PIECES: dict[str, Callable[[Workload, Slice], Iterator[Piece]]] = {
    "attention": _attention,
    "gate": _gate,
    "experts": _experts,
    "shared_experts": _shared,
    "mlp": _dense,
    "output_copy": _output_copy,
    "merge": _merge,
}
