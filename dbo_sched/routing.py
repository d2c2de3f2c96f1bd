"""Which experts the tokens pick, and what arrives at a rank in consequence.

Balanced routing has a closed form and is what the model assumes by default. Skewed routing is
drawn with numpy from a seed: the model counts the drawn indices, so that whoever runs the same
program with :func:`draw` sees the same skew. One draw serves every layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from math import comb, isfinite
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import msgspec

from dbo_sched.errors import InputError
from dbo_sched.structs import Count, Frozen

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Indices: TypeAlias = NDArray[np.int64]

MOST_EXPONENT = 10

Load: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]
"""How often an expert was picked, in any unit."""

CHUNK = 16_384
"""Tokens drawn at a time."""


class Routing(Frozen, frozen=True, kw_only=True):
    """How popular the experts are.

    ``balanced``: all alike. ``zipf``: the k-th most popular is picked in proportion to
    k ** -``exponent``, in an order that ``seed`` shuffles. ``given``: in proportion to ``weights``,
    one per expert (loads that an engine has counted). A token's experts are all different.
    """

    popularity: Literal["balanced", "zipf", "given"] = "balanced"
    exponent: Annotated[float, msgspec.Meta(ge=0, le=MOST_EXPONENT)] = 0.0
    weights: tuple[Load, ...] = ()
    seed: Count = 0

    def __str__(self) -> str:
        if self.popularity == "balanced":
            return "balanced over all experts"
        given = "the given loads" if self.popularity == "given" else f"zipf:{self.exponent:g}"
        return f"drawn from {given}, seed {self.seed}, one draw for all layers"


class Arrivals(Frozen, frozen=True, kw_only=True):
    """What one dispatch brings to a rank.

    ``rows``: tokens received, each once. ``pairs``: (token, expert) pairs of each local expert.
    """

    rows: Count
    pairs: tuple[Count, ...]


def check_routing(routing: Routing, experts: int, topk: int) -> None:
    """Refuse loads that do not fit the model.

    Raises:
        InputError: not one weight per expert, not a number, or fewer experts with load than a
            token picks.
    """
    if routing.popularity != "given":
        return
    loaded = sum(weight > 0 for weight in routing.weights)
    if len(routing.weights) != experts or loaded < topk or not all(map(isfinite, routing.weights)):
        raise InputError(
            f"{len(routing.weights)} loads, {loaded} of them above 0",
            where="--routing",
            mend=f"give one finite load for each of the {experts} experts, at least {topk} above 0",
        )


def fanout(experts: int, topk: int, groups: int) -> float:
    """Groups (ranks, or nodes) that a token reaches on average under balanced routing.

    Each token picks its experts uniformly without repetition, and goes once to every group that
    holds at least one of them: G (1 - C(E - E/G, k) / C(E, k)).
    """
    missed = comb(experts - experts // groups, topk) / comb(experts, topk)
    return groups * (1 - missed)


def balanced(experts: int, topk: int, ranks: int, tokens: float) -> Arrivals:
    """What arrives at a rank on average when the ranks send ``tokens`` tokens each on average."""
    local = experts // ranks
    each, rest = divmod(round(tokens * topk), local)
    pairs = tuple(each + (expert < rest) for expert in range(local))
    return Arrivals(rows=round(tokens * fanout(experts, topk, ranks)), pairs=pairs)


@cache
def shares(routing: Routing, experts: int) -> tuple[float, ...]:
    """Relative popularity of each expert."""
    import numpy as np

    if routing.popularity == "given":
        return routing.weights
    ranked = np.arange(1, experts + 1, dtype=float) ** -routing.exponent
    return tuple(np.random.default_rng(routing.seed).permutation(ranked).tolist())


def draw(routing: Routing, experts: int, topk: int, tokens: int, rank: int) -> Indices:
    """The experts that each token of a rank picks: int64 of shape [tokens, topk], unsorted.

    Experts are drawn one after the other without repetition, in proportion to their popularity:
    those with the least exponential variate over popularity (Efraimidis and Spirakis 2006).
    """
    import numpy as np

    generator = np.random.default_rng([routing.seed, rank])
    with np.errstate(divide="ignore"):
        rarity = (1 / np.array(shares(routing, experts))).astype(np.float32)
    picked = np.empty((tokens, topk), np.int64)
    for start in range(0, tokens, CHUNK):
        rows = min(CHUNK, tokens - start)
        keys = generator.standard_exponential((rows, experts), np.float32) * rarity
        picked[start : start + rows] = np.argpartition(keys, topk - 1, axis=1)[:, :topk]
    return picked


@lru_cache(maxsize=8)
def drawn(
    routing: Routing, experts: int, topk: int, parts: tuple[tuple[int, ...], ...]
) -> tuple[tuple[Arrivals, ...], ...]:
    """What arrives at each rank in each ubatch; ``parts`` holds each rank's tokens by ubatch."""
    import numpy as np

    ranks, ubatches = len(parts), len(parts[0])
    local = experts // ranks
    pairs = np.zeros((ubatches, experts), np.int64)
    rows = np.zeros((ubatches, ranks), np.int64)
    for rank, tokens in enumerate(parts):
        picked = draw(routing, experts, topk, sum(tokens), rank)
        for ubatch, chosen in enumerate(_cut(picked, tokens)):
            pairs[ubatch] += np.bincount(chosen.ravel(), minlength=experts)
            reached = np.zeros((len(chosen), ranks), bool)
            np.put_along_axis(reached, chosen // local, True, axis=1)
            rows[ubatch] += reached.sum(axis=0)
    by_rank = pairs.reshape(ubatches, ranks, local)
    return tuple(
        tuple(
            Arrivals(rows=int(rows[u, rank]), pairs=tuple(by_rank[u, rank].tolist()))
            for u in range(ubatches)
        )
        for rank in range(ranks)
    )


def _cut(picked: Indices, tokens: Sequence[int]) -> Iterator[Indices]:
    start = 0
    for count in tokens:
        yield picked[start : start + count]
        start += count
