"""What arrives where: closed forms, and the draws that must agree with them."""

import msgspec
import numpy as np
import pytest
from support import small_workload

import dbo_sched.build as build
from dbo_sched.routing import Arrivals, Routing, balanced, draw, drawn, fanout, shares


@pytest.mark.parametrize(
    ("experts", "topk", "groups", "reached"),
    [
        (4, 1, 2, 1),  # one expert: one rank
        (4, 4, 2, 2),  # all experts: all ranks
        (4, 2, 2, 2 * (1 - 1 / 6)),  # both in one of two pairs: 1 of 6
        (4, 2, 1, 1),
        (256, 8, 4, 4 * (1 - 0.09650)),  # C(192,8) / C(256,8)
    ],
)
def test_fanout(experts, topk, groups, reached):
    assert fanout(experts, topk, groups) == pytest.approx(reached, rel=1e-4)


def test_balanced_arrivals_are_whole_and_lose_nothing():
    assert balanced(4, 2, 2, 100) == Arrivals(rows=167, pairs=(100, 100))
    # 15 pairs on 4 experts; 5 x 2 (1 - C(4,3) / C(8,3)) = 5 x 13/7 rows
    assert balanced(8, 3, 2, 5) == Arrivals(rows=9, pairs=(4, 4, 4, 3))


def test_zipf_shares_fall_with_rank_in_a_shuffled_order():
    found = shares(Routing(popularity="zipf", exponent=2, seed=1), 4)
    assert sorted(found, reverse=True) == pytest.approx([1, 1 / 4, 1 / 9, 1 / 16])
    other = shares(Routing(popularity="zipf", exponent=2, seed=2), 4)
    assert found != other and sorted(found) == sorted(other)


def test_draw_is_without_repetition_and_from_its_seed():
    routing = Routing(popularity="zipf", exponent=1.5, seed=3)
    picked = draw(routing, 16, 4, 20_000, rank=0)
    assert picked.shape == (20_000, 4)
    assert all(len(set(row)) == 4 for row in picked[:500].tolist())
    assert (picked == draw(routing, 16, 4, 20_000, rank=0)).all()
    assert (picked != draw(routing, 16, 4, 20_000, rank=1)).any()


def test_first_picks_follow_popularity():
    """One pick of each token: expert e in proportion to its load, three of sixteen never."""
    loads = (0.0, 1.0, 2.0, 5.0)
    routing = Routing(popularity="given", weights=loads, seed=5)
    counts = np.bincount(draw(routing, 4, 1, 80_000, rank=0).ravel(), minlength=4)
    assert counts / 80_000 == pytest.approx(np.array(loads) / 8, abs=0.01)
    assert counts[0] == 0


def test_pairs_follow_from_sampling_without_repetition():
    """Loads 3, 1, 1 and two picks: the first expert is missed by 2/5 x 1/4 = 1/10 of the tokens."""
    routing = Routing(popularity="given", weights=(3.0, 1.0, 1.0), seed=0)
    picked = draw(routing, 3, 2, 100_000, rank=0)
    assert (picked == 0).any(axis=1).mean() == pytest.approx(0.9, abs=0.005)


def test_uniform_draws_meet_the_closed_form():
    routing = Routing(popularity="zipf", exponent=0, seed=0)
    arrived = drawn(routing, 64, 6, ((4000, 4000),) * 8)
    expected = balanced(64, 6, 8, 4000)
    for rank in arrived:
        for part in rank:
            assert part.rows == pytest.approx(expected.rows, rel=0.03)
            assert sum(part.pairs) == pytest.approx(sum(expected.pairs), rel=0.04)


def test_draws_lose_no_token_and_know_the_hot_rank():
    loads = tuple([100.0] * 2 + [1.0] * 6)  # both hot experts on rank 0 of 4
    parts = ((300, 200), (100, 0), (0, 0), (50, 50))
    arrived = drawn(Routing(popularity="given", weights=loads, seed=1), 8, 2, parts)
    for ubatch, sent in enumerate((450, 250)):
        assert sum(sum(rank[ubatch].pairs) for rank in arrived) == 2 * sent
        rows = [rank[ubatch].rows for rank in arrived]
        assert sent <= sum(rows) <= 2 * sent
        assert rows[0] > 0.9 * sent > 3 * max(rows[1:])


def test_ranks_with_unequal_tokens_receive_the_mean():
    """16 experts, top-4, 2 ranks, 60 and 20 tokens: 40 on average, 25/13 rows and 4 pairs each."""
    job = small_workload(ep=2)
    job = msgspec.structs.replace(job, batches=(((60, 0),), ((20, 0),)))
    first, second = build.rank_parts(job, 1, balance_attention=False)
    assert [part.tokens for part in (*first, *second)] == [60, 20]
    assert first[0].arrivals == second[0].arrivals == Arrivals(rows=77, pairs=(20,) * 8)


def test_equal_batches_need_no_arrivals_and_one_plan():
    job = small_workload(ep=2)
    assert {part.arrivals for rank in build.rank_parts(job, 2, False) for part in rank} == {None}
    assert len(build.build_program(job, "dbo-ht").plans) == 1


def test_skewed_ranks_get_plans_of_their_own():
    routing = Routing(popularity="zipf", exponent=1.2)
    job = msgspec.structs.replace(small_workload(ep=4), routing=routing)
    program = build.build_program(job, "dbo-ht")
    assert [plan.ranks for plan in program.plans] == [(0,), (1,), (2,), (3,)]
    pairs = [op.tokens for plan in program.plans for op in plan.ops if op.id == "L0.u1.experts"]
    assert sum(pairs) == 4 * 32 * 4 and len(set(pairs)) > 1
