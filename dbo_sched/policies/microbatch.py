"""Whether a step is split into ubatches, and where: the same answer on every rank.

Source: vLLM 0.33, ``dp_utils`` and ``ubatch_utils`` (V1 runner), ``UBatchRunner`` (V2 runner).
Whether is decided from what all ranks have gathered and from nothing else, so that no rank can
disagree; where is a cut by token at the same place on every rank, or by attention work.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, NamedTuple

from dbo_sched.errors import InputError
from dbo_sched.workload import Sequences, Slice


class RankStep(NamedTuple):
    """What a rank tells the others of its step.

    ``query_len``: new tokens of each of its sequences where they all have the same few (a uniform
    decode), else ``None``. ``allowed``: whether this rank could run split at all (not where one
    sequence reads KV blocks that another writes in the same step).
    """

    tokens: int
    query_len: int | None = None
    allowed: bool = True


@dataclass(frozen=True)
class Rules:
    """An engine's rules. Thresholds are reached at equality, as in the code (the help says above).

    ``runner``: ``v1`` lets every rank test its own threshold and gives up where the last ubatch
    would be empty anywhere; ``v2`` tests the smallest rank, takes a step as a decode only if all
    ranks have one query length, and lets ubatches be empty.
    """

    ubatches: int = 2
    decode_threshold: int = 32
    prefill_threshold: int = 512
    runner: Literal["v1", "v2"] = "v1"

    def __post_init__(self) -> None:
        """Raises InputError for fewer than two ubatches, or thresholds that do not fill them."""
        least = min(self.decode_threshold, self.prefill_threshold)
        if self.ubatches < 2 or least < self.ubatches:
            raise InputError(
                f"{self.ubatches} ubatches from {least} tokens on",
                where="microbatch rules",
                mend="give two ubatches or more, and thresholds of at least one token each",
            )


@dataclass(frozen=True)
class Decision:
    """``ubatches`` is 1 for a step that runs whole.

    ``padded``: tokens that every rank is padded to. ``cuts``: token positions between ubatches.
    ``warnings``: what costs time although the decision is right.
    """

    ubatches: int
    padded: int
    cuts: tuple[int, ...]
    reason: str
    warnings: tuple[str, ...] = ()


def decide(
    ranks: Sequence[RankStep],
    rules: Rules = Rules(),
    *,
    whole_graphs: Collection[int] | None = None,
) -> Decision:
    """Whether the step that ``ranks`` describe is split.

    ``whole_graphs`` are the batch sizes for which graphs of the whole step were captured, ``None``
    where no graphs are used: a decode that is not split and fits none of them runs eagerly.
    """
    padded = max(rank.tokens for rank in ranks)
    refusal = _refusal(ranks, rules, padded)
    if refusal:
        warnings = _no_graph(ranks, padded, whole_graphs)
        return Decision(1, padded, (), refusal, warnings)
    fewest, parts = min(rank.tokens for rank in ranks), rules.ubatches
    warnings = ()
    if fewest * parts < padded * (parts - 1):  # with two ubatches vLLM's 2 x fewest < padded
        warnings = (f"a rank has {fewest} of {padded} tokens, its last ubatch none: no graphs",)
    cuts = even_cuts(padded, parts)
    return Decision(parts, padded, cuts, f"all {len(ranks)} ranks agree", warnings)


def _refusal(ranks: Sequence[RankStep], rules: Rules, padded: int) -> str:
    """Why the step is not split; empty where it is."""
    if len(ranks) < 2:
        return "one rank alone is never split (data parallel size 1)"
    for number, rank in enumerate(ranks):
        if not rank.allowed:
            return f"rank {number} may not be split in this step"
    if rules.runner == "v1":
        for number, rank in enumerate(ranks):
            limit, what = _limit(rules, decode=rank.query_len is not None)
            if rank.tokens < limit:
                return f"rank {number} has {rank.tokens} tokens, below the {limit} of a {what}"
        fewest = min(rank.tokens for rank in ranks)
        if padded // rules.ubatches * (rules.ubatches - 1) >= fewest:
            return (
                f"the last ubatch would be empty on a rank: {fewest} tokens there, "
                f"{padded} on the fullest"
            )
        return ""
    lengths = {rank.query_len for rank in ranks}
    limit, what = _limit(rules, decode=len(lengths) == 1 and None not in lengths)
    fewest = min(rank.tokens for rank in ranks)
    if fewest < limit:
        return f"the smallest rank has {fewest} tokens, below the {limit} of a {what}"
    return ""


def _limit(rules: Rules, *, decode: bool) -> tuple[int, str]:
    if decode:
        return rules.decode_threshold, "decode"
    return rules.prefill_threshold, "prefill or mixed batch"


def _no_graph(
    ranks: Sequence[RankStep], padded: int, whole_graphs: Collection[int] | None
) -> tuple[str, ...]:
    decode = all(rank.query_len is not None for rank in ranks)
    if whole_graphs is None or not decode or any(size >= padded for size in whole_graphs):
        return ()
    return (f"no graph of a whole step covers {padded} tokens: the step runs eagerly",)


def even_cuts(tokens: int, ubatches: int) -> tuple[int, ...]:
    """Cuts at tokens // n, 2 (tokens // n), ...; the last ubatch takes the rest."""
    return tuple(tokens // ubatches * u for u in range(1, ubatches))


def attention_cuts(sequences: Sequences, ubatches: int) -> tuple[int, ...]:
    """Cuts that give every ubatch the same attention work, to one token (DeepSeek's way).

    Work is counted in pairs of query and key under the causal mask: a sequence's t-th new token
    meets its context and t tokens. Of two places that miss by as much the first is taken.
    """
    if not sequences:
        return (0,) * (ubatches - 1)
    done = [0, *accumulate(pairs(new, context) for new, context in sequences)]
    starts = [0, *accumulate(new for new, _ in sequences)]

    def work(token: int) -> int:
        """Pairs of all tokens before ``token``."""
        at = min(bisect_left(starts, token + 1) - 1, len(sequences) - 1)
        return done[at] + pairs(token - starts[at], sequences[at][1])

    cuts = []
    for ubatch in range(1, ubatches):
        wanted = done[-1] * ubatch
        above = bisect_left(range(starts[-1]), wanted, key=lambda token: work(token) * ubatches)
        below = max(above - 1, 0)
        miss = {token: abs(work(token) * ubatches - wanted) for token in (below, above)}
        cuts.append(min(miss, key=lambda token: (miss[token], token)))
    return tuple(cuts)


def pairs(new: int, context: int) -> int:
    """Pairs of query and key that ``new`` tokens behind ``context`` make under the causal mask."""
    return new * context + new * (new + 1) // 2


def split(sequences: Sequences, cuts: Sequence[int]) -> tuple[Slice, ...]:
    """A batch cut at token positions.

    A sequence may straddle a cut: its second part has the first as context, like the next chunk of
    a chunked prefill. A batch that ends before a cut leaves the ubatches behind it empty.
    """
    slices: list[list[tuple[int, int]]] = [[]]
    token, ahead = 0, list(cuts)
    for new, context in sequences:
        while new:
            while ahead and ahead[0] <= token:
                del ahead[0]
                slices.append([])
            take = min(new, ahead[0] - token) if ahead else new
            slices[-1].append((take, context))
            new, context, token = new - take, context + take, token + take
    slices += [[] for _ in ahead]
    return tuple(
        Slice(tokens=sum(new for new, _ in part), sequences=tuple(part)) for part in slices
    )
