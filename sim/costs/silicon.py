"""Attention, experts and shared experts from measured tables, where those measured the same thing.

The tables hold whole ops; an op is several kernels, so the table's time is shared out among the
kernels as the roofline would. What a table cannot answer (another shape, a batch of unequal or
continued prompts, a time near the eager launch costs that it holds) it says, with the reason.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import TypeAlias

from dbo_sched.models import Mla
from dbo_sched.plan import Op, Plan
from dbo_sched.workload import Slice, Workload
from sim.costs import Kernel
from sim.costs.deepep_table import around, linear
from sim.costs.roofline import Roofline, part_of

Grid: TypeAlias = Mapping[int, float]
"""Nanoseconds by tokens (or by sequence length)."""

DEEPSEEK_LATENT = Mla(
    q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128
)

ATTENTION_KERNELS = {"h100": "fa3", "h200": "fa3", "b200": "trtllm_mla"}
"""Which of a system's measured attention backends is taken."""

GATHER_NS = {"h100": 8.31, "h200": 6.77, "b200": 5.68}
"""What a global token costs in moe_context.csv though no rank of a real deployment sees it: the
slope over global tokens that is left for infinitely many ranks (slope = this + c / ranks, fitted
to the longest rows of each EP size; within 5 %)."""

LAUNCH_FLOORS = 2.0
"""A time counts as the GPU's where it is at least so many times the curve's smallest."""


def measured(
    workload: Workload, plan: Plan, op: Op, roofline: Roofline
) -> tuple[Kernel, ...] | str:
    """The kernels of a compute op with the table's time, or why the tables have none."""
    part = part_of(plan, op)
    if op.kind not in TABLES:
        return "in no table"
    if workload.deployment.dtype != "fp8" or workload.deployment.dispatch_dtype != "fp8":
        return "the tables are of FP8"
    shares = roofline.kernels(workload, plan, op)
    if not part.tokens:
        return shares
    found = TABLES[op.kind](workload, part)
    if isinstance(found, str):
        return found
    ns, origin = found
    return _share_out(round(ns), shares, origin)


def _share_out(ns: int, kernels: tuple[Kernel, ...], origin: str) -> tuple[Kernel, ...]:
    """The kernels with durations in proportion that add up to ``ns``."""
    total, done, shared = sum(kernel.ns for kernel in kernels), 0, []
    given = 0
    for kernel in kernels:
        done += kernel.ns
        until = ns * done // total
        shared.append(kernel._replace(ns=until - given, origin=origin))
        given = until
    return tuple(shared)


def _attention(workload: Workload, part: Slice) -> tuple[float, str] | str:
    """mla_context.csv: equal whole prompts; between rows linear in the time per token."""
    table, model = "mla_context.csv", workload.model
    system = workload.deployment.system
    if model.attention != DEEPSEEK_LATENT or model.hidden_size != 7168:
        return f"{table} has DeepSeek-V3's shape only"
    if len(set(part.sequences)) != 1 or part.sequences[0][1]:
        return f"{table} has equal prompts without context only"
    batch, length = len(part.sequences), part.sequences[0][0]
    grid = _attention_grids().get((system, model.num_attention_heads))
    if grid is None:
        return f"{table} has no row for {system} with {model.num_attention_heads} heads"
    batches = sorted(grid)
    if not batches[0] <= batch <= batches[-1]:
        return f"{table} ends at {batches[-1]} prompts"
    few, many = around(batches, batch)
    each, exact = [], few == many
    for row_batch in (few, many):
        lengths = sorted(grid[row_batch])
        if not lengths[0] <= length <= lengths[-1]:
            return f"{table} has no {row_batch} prompts of {length}"
        short, long = around(lengths, length)
        exact = exact and short == long
        times = [grid[row_batch][row_length] for row_length in (short, long)]
        if min(times) < LAUNCH_FLOORS * min(grid[batches[0]].values()):
            return f"{table} holds little but launch costs here"
        per_token = [
            time / row_batch / row_length
            for time, row_length in zip(times, (short, long), strict=True)
        ]
        each.append(linear(length, short, per_token[0], long, per_token[1]))
    ns = linear(batch, few, each[0], many, each[1]) * batch * length
    origin = f"table:{table} {system} {ATTENTION_KERNELS[system]}, {batch} x {length}"
    return ns, origin + ("" if exact else ", interpolated")


def _experts(workload: Workload, part: Slice) -> tuple[float, str] | str:
    """moe_context.csv, balanced routing, less what it pays for the tokens of other ranks."""
    table, model, deployment = "moe_context.csv", workload.model, workload.deployment
    shape = (model.hidden_size, model.moe_intermediate_size)
    if (*shape, model.num_experts_per_tok, model.n_routed_experts) != (7168, 2048, 8, 256):
        return f"{table} has DeepSeek-V3's shape only"
    if part.arrivals is not None:
        return f"{table} is taken for balanced routing of equal batches only"
    grid = _experts_grids().get((deployment.system, deployment.ep))
    if grid is None:
        return f"{table} has no row for {deployment.system} EP{deployment.ep}"
    everyone = part.tokens * deployment.ep
    ns = _along(grid, everyone, table)
    if isinstance(ns, str):
        return ns
    gather = GATHER_NS[deployment.system]
    where = f"{deployment.system} EP{deployment.ep} less {gather:g} ns a global token"
    origin = f"table:{table} {where}, {everyone} global tokens"
    return ns - gather * everyone, origin + ("" if everyone in grid else ", interpolated")


def _shared(workload: Workload, part: Slice) -> tuple[float, str] | str:
    """mlp_context.csv: one MLP 7168 x 2048."""
    table, model, system = "mlp_context.csv", workload.model, workload.deployment.system
    if (model.hidden_size, model.moe_intermediate_size * model.n_shared_experts) != (7168, 2048):
        return f"{table} has DeepSeek-V3's shape only"
    grid = _shared_grids().get(system)
    if grid is None:
        return f"{table} has no row for {system}"
    ns = _along(grid, part.tokens, table)
    if isinstance(ns, str):
        return ns
    origin = f"table:{table} {system}, {part.tokens} tokens"
    return ns, origin + ("" if part.tokens in grid else ", interpolated")


TABLES = {"attention": _attention, "experts": _experts, "shared_experts": _shared}


def _along(grid: Grid, tokens: int, table: str) -> float | str:
    """Linear between rows, where these hold more than launch costs."""
    known = sorted(grid)
    if not known[0] <= tokens <= known[-1]:
        return f"{table} ends at {known[0]} and {known[-1]} tokens"
    few, many = around(known, tokens)
    if grid[few] < LAUNCH_FLOORS * min(grid.values()):
        return f"{table} holds little but launch costs here"
    return linear(tokens, few, grid[few], many, grid[many])


def _rows(table: str) -> Iterator[dict[str, str]]:
    with (resources.files("sim.costs") / "data" / table).open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            yield row | {"system": row["system"].removesuffix("_sxm")}


@cache
def _attention_grids() -> dict[tuple[str, int], dict[int, dict[int, float]]]:
    """By (system, heads): by number of prompts: nanoseconds by length."""
    grids: dict[tuple[str, int], dict[int, dict[int, float]]] = {}
    for row in _rows("mla_context.csv"):
        if row["kernel_source"] == ATTENTION_KERNELS[row["system"]]:
            grid = grids.setdefault((row["system"], int(row["num_heads"])), {})
            by_length = grid.setdefault(int(row["batch_size"]), {})
            by_length[int(row["isl"])] = float(row["latency"]) * 1e6
    return grids


@cache
def _experts_grids() -> dict[tuple[str, int], dict[int, float]]:
    """By (system, ranks): nanoseconds by global tokens, uniform routing."""
    grids: dict[tuple[str, int], dict[int, float]] = defaultdict(dict)
    for row in _rows("moe_context.csv"):
        if row["distribution"] == "uniform":
            grid = grids[row["system"], int(row["moe_ep_size"])]
            grid[int(row["num_tokens"])] = float(row["latency"]) * 1e6
    return dict(grids)


@cache
def _shared_grids() -> dict[str, dict[int, float]]:
    """By system: nanoseconds by tokens."""
    grids: dict[str, dict[int, float]] = defaultdict(dict)
    for row in _rows("mlp_context.csv"):
        grids[row["system"]][int(row["num_token"])] = float(row["avg_ms"]) * 1e6
    return dict(grids)
