"""When and where a step is split: vLLM's rules, and the field's cases around them."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import small_workload

from dbo_sched import Deployment, InputError, Workload, build_program, load_model
from dbo_sched.plan import Launch
from dbo_sched.policies.engine import engine_notes, rank_step
from dbo_sched.policies.microbatch import (
    RankStep,
    Rules,
    attention_cuts,
    decide,
    even_cuts,
    pairs,
    split,
)


def decodes(*tokens):
    return [RankStep(count, query_len=1) for count in tokens]


def mixed(*tokens):
    return [RankStep(count) for count in tokens]


V1, V2 = Rules(), Rules(runner="v2")


@pytest.mark.parametrize(
    ("ranks", "rules", "ubatches", "reason"),
    [
        # vllm-project/vllm#27771: ranks near the threshold agree
        (decodes(25, 30), Rules(decode_threshold=26), 1, "rank 0 has 25 tokens, below the 26"),
        (decodes(30, 31), Rules(decode_threshold=26), 2, "all 2 ranks agree"),
        # vllm-project/vllm#25622: a mixed batch is held to the prefill limit
        (mixed(200, 200), V1, 1, "rank 0 has 200 tokens, below the 512 of a prefill or mixed"),
        ([*decodes(200), *mixed(200)], V1, 1, "rank 1 has 200 tokens, below the 512"),
        (mixed(512, 512), V1, 2, "agree"),  # reached at equality
        (decodes(32, 32), V1, 2, "agree"),
        (decodes(0, 4096), V1, 1, "rank 0 has 0 tokens"),  # an idle rank
        (mixed(4096), V1, 1, "one rank alone"),
        ([RankStep(4096), RankStep(4096, allowed=False)], V1, 1, "rank 1 may not be split"),
        # the last ubatch would be empty: 4096 // 2 x 1 >= 2048
        (mixed(4096, 2048), V1, 1, "the last ubatch would be empty on a rank: 2048 tokens there"),
        (mixed(4096, 2049), V1, 2, "agree"),
        (
            mixed(1030, 600, 687),
            Rules(ubatches=3),
            1,
            "last ubatch would be empty",
        ),  # 343 x 2 = 686
        (mixed(1030, 687, 687), Rules(ubatches=3), 2 + 1, "agree"),
        # the V2 runner tests the smallest rank and lets ubatches be empty
        (mixed(4096, 600), V2, 2, "agree"),
        (mixed(4096, 500), V2, 1, "the smallest rank has 500 tokens, below the 512"),
        (decodes(40, 33), V2, 2, "agree"),
        ([RankStep(40, 1), RankStep(40, 2)], V2, 1, "below the 512"),  # no common query length
    ],
)
def test_decision(ranks, rules, ubatches, reason):
    decision = decide(ranks, rules)
    assert decision.ubatches == ubatches
    assert reason in decision.reason
    assert len(decision.cuts) == ubatches - 1


def test_padding_and_cuts_are_of_the_fullest_rank():
    decision = decide(mixed(5001, 4000))
    assert (decision.padded, decision.cuts) == (5001, (2500,))


def test_empty_ubatches_of_the_v2_runner_cost_the_graphs():
    """vLLM asks 2 x fewest < padded, and takes half exactly as enough."""
    assert decide(mixed(4096, 600), V2).warnings == (
        "a rank has 600 of 4096 tokens, its last ubatch none: no graphs",
    )
    assert decide(mixed(4096, 2047), V2).warnings != ()
    assert decide(mixed(4096, 2048), V2).warnings == ()


@pytest.mark.parametrize("numbers", [(1, 32, 512), (4, 3, 512), (2, 32, 1)])
def test_rules_that_do_not_fill_the_ubatches_are_refused(numbers):
    with pytest.raises(InputError, match="give two ubatches or more"):
        Rules(*numbers)


def test_unsplit_decode_without_a_graph_is_warned_of():
    """vllm-project/vllm#27771: 30 tokens fall back to sizes captured only split."""
    rules = Rules(decode_threshold=26)
    assert decide(decodes(25, 30), rules, whole_graphs=(8, 16)).warnings == (
        "no graph of a whole step covers 30 tokens: the step runs eagerly",
    )
    assert decide(decodes(25, 30), rules, whole_graphs=(8, 32)).warnings == ()
    assert decide(mixed(25, 30), rules, whole_graphs=(8,)).warnings == ()  # prefills use none


steps = st.lists(
    st.builds(RankStep, st.integers(0, 2000), st.sampled_from([None, 1, 2]), st.booleans()),
    min_size=1,
    max_size=6,
)
rules = st.builds(
    Rules,
    st.integers(2, 4),
    st.integers(4, 64),
    st.integers(64, 1024),
    st.sampled_from(["v1", "v2"]),
)


@given(steps, rules, st.randoms())
def test_decision_is_the_same_whoever_takes_it(ranks, rules, random):
    """It depends on the gathered vector only, and neither on its order nor on who looks."""
    decision = decide(ranks, rules)
    shuffled = list(ranks)
    random.shuffle(shuffled)
    again = decide(shuffled, rules)
    assert (decision.ubatches, decision.padded, decision.cuts) == (
        again.ubatches,
        again.padded,
        again.cuts,
    )
    if decision.ubatches > 1 and rules.runner == "v1":
        assert all(rank.tokens > decision.cuts[-1] for rank in ranks)


@pytest.mark.parametrize(
    ("sequences", "ubatches", "expected"),
    [
        (((4, 0), (4, 0)), 2, [((4, 0),), ((4, 0),)]),
        (((8, 0),), 2, [((4, 0),), ((4, 4),)]),  # the second part has the first as context
        (((5, 3), (4, 0)), 2, [((4, 3),), ((1, 7), (4, 0))]),  # 9 // 2, the last takes the rest
        (((7, 0),), 3, [((2, 0),), ((2, 2),), ((3, 4),)]),
        (((1, 0),), 2, [(), ((1, 0),)]),
        (((0, 5), (2, 0)), 2, [((1, 0),), ((1, 1),)]),
    ],
)
def test_split_by_token(sequences, ubatches, expected):
    found = split(sequences, even_cuts(sum(new for new, _ in sequences), ubatches))
    assert [part.sequences for part in found] == expected
    assert [part.tokens for part in found] == [sum(n for n, _ in part) for part in expected]


def test_a_short_batch_leaves_the_ubatches_behind_its_end_empty():
    assert [part.tokens for part in split(((3, 0),), (4, 8))] == [3, 0, 0]
    assert [part.tokens for part in split((), (4,))] == [0, 0]


@pytest.mark.parametrize(
    ("sequences", "cuts"),
    [
        (((4096, 0), (4096, 0)), (4096,)),
        # n (n + 1) / 2 of 8192 x 8193 / 2 = 33558528: 5792 miss by 1008, 5793 by more
        (((8192, 0),), (5792,)),
        (((100, 0), (1, 99)), (71,)),  # 5150 in all: 71 x 72 / 2 = 2556, 72: 2628; wanted 2575
        (((1, 1000), (1, 10), (1, 10)), (1,)),  # the long one alone
        ((), (0,)),
    ],
)
def test_cuts_of_equal_attention(sequences, cuts):
    assert attention_cuts(sequences, 2) == cuts


batches = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 80)), min_size=1, max_size=5)


@given(batches, st.integers(1, 4))
def test_attention_cuts_miss_by_less_than_any_other(batch, ubatches):
    batch = tuple(batch)
    tokens = sum(new for new, _ in batch)
    total = sum(pairs(new, context) for new, context in batch)

    def before(cut):
        return sum(pairs(n, c) for n, c in split(batch, (cut,))[0].sequences)

    for number, cut in enumerate(attention_cuts(batch, ubatches), start=1):
        misses = [abs(before(t) * ubatches - total * number) for t in range(tokens + 1)]
        assert abs(before(cut) * ubatches - total * number) == min(misses)


@given(batches, st.lists(st.integers(0, 200), max_size=3))
def test_split_loses_neither_tokens_nor_pairs(batch, cuts):
    parts = split(tuple(batch), sorted(cuts))
    assert len(parts) == len(cuts) + 1
    assert sum(part.tokens for part in parts) == sum(new for new, _ in batch)
    assert sum(pairs(n, c) for part in parts for n, c in part.sequences) == sum(
        pairs(n, c) for n, c in batch
    )


@pytest.mark.parametrize(
    ("batch", "tokens"),
    [(((1, 0),), [1, 0]), (((4, 0),), [4, 0]), ((), [0, 0])],
)
def test_empty_ubatches_still_communicate(batch, tokens):
    """sgl-project/sglang#30238: a rank with next to nothing takes part in the same collectives."""
    job = msgspec.structs.replace(small_workload(1, ep=2), batches=(batch, ((8192, 0),)))
    program = build_program(job, "dbo-ht")
    assert [part.tokens for part in program.plan_of(0).ubatches] == tokens
    sequences = []
    for rank in (0, 1):
        plan = program.plan_of(rank)
        kinds = {op.id: op.kind for op in plan.ops if op.comm is not None}
        sequences.append([c.op for c in plan.commands if isinstance(c, Launch) and c.op in kinds])
    assert sequences[0] == sequences[1]
    assert [name.split(".", 1)[1] for name in sequences[0]] == [
        *("u0.dispatch", "u1.dispatch", "u0.combine", "u1.combine"),
    ]


def test_first_ubatch_may_be_the_empty_one():
    """vllm-project/afd-plugin#100: 0 and 4 tokens, with the other rank's cut at 0."""
    assert [part.tokens for part in split(((4, 0),), (0,))] == [0, 4]
    assert decide(mixed(0, 0)).ubatches == 1  # one unsplit step for nobody's tokens


def test_what_vllm_would_do_in_words():
    deployment = Deployment(system="h100", nodes=4, ep=32)
    model = load_model("deepseek-v3")
    job = Workload(model=model, deployment=deployment, batches=(((400, 0),),))
    assert engine_notes(job) == [
        "vLLM does not split this step: rank 0 has 400 tokens, below the 512 of a prefill or mixed "
        "batch",
        "vLLM runs the shared experts mk-internal: deepep_high_throughput can finish combine "
        "asynchronously",
    ]
    job = msgspec.structs.replace(job, batches=(((1, 4000),) * 400,))
    assert engine_notes(job)[0] == "vLLM splits this step: all 32 ranks agree"
    assert rank_step(((1, 0),)) == RankStep(1)  # a prompt of one token is no decode
