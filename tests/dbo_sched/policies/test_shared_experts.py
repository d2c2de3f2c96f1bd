"""Where the shared experts run: every rule of the decision, and the plan of each order."""

import pytest
from support import simulate, small_workload, unit_program

from dbo_sched import InputError, build_program
from dbo_sched.plan import Launch, Record, Wait
from dbo_sched.policies.shared_experts import Order, Situation, decide

NO, INTERNAL, MULTI = Order


@pytest.mark.parametrize(
    ("situation", "order", "reason"),
    [
        ({}, INTERNAL, "can finish combine asynchronously"),
        ({"rows": 100_000}, INTERNAL, "asynchronously"),
        *(
            ({"backend": backend}, INTERNAL, backend)
            for backend in ("deepep_low_latency", "deepep_v2", "nixl_ep")
        ),
        ({"monolithic": True}, MULTI, "100 rows are at most 256"),
        ({"backend": "allgather_reducescatter"}, MULTI, "100 rows are at most 256"),
        ({"backend": "pplx", "rows": 256}, MULTI, "256 rows are at most 256"),
        ({"backend": "pplx", "rows": 257}, NO, "257 rows are more than 256"),
        ({"backend": "pplx", "rows": 300, "threshold": 400}, MULTI, "at most 400"),
        ({"backend": "pplx", "cuda_like": False}, NO, "no aux stream on this platform"),
        ({"backend": "pplx", "aux_stream": False}, NO, "the aux stream is disabled"),
        ({"aux_stream": False}, INTERNAL, "asynchronously"),  # only removes the aux stream
        ({"cuda_like": False}, INTERNAL, "asynchronously"),
        ({"fully_sharded_loras": True}, NO, "two in flight on one communicator can deadlock"),
        ({"fully_sharded_loras": True, "backend": "pplx"}, NO, "can deadlock"),
        ({"eplb": True}, NO, "EPLB"),
        ({"eplb": True, "backend": "deepep_low_latency"}, NO, "EPLB"),
        ({"eplb": True, "backend": "deepep_v2"}, INTERNAL, "asynchronously"),
        ({"eplb": True, "backend": "allgather_reducescatter"}, MULTI, "at most 256"),
        ({"eplb": True, "backend": "flashinfer_nvlink_one_sided"}, MULTI, "at most 256"),
        ({"backend": "flashinfer_nvlink_two_sided"}, NO, "nothing to gain"),
        ({"shard_sequence_parallel": True}, NO, "sharded by sequence"),
        ({"eplb": True, "fully_sharded_loras": True}, NO, "LoRA"),  # tested in this order
    ],
)
def test_decision(situation, order, reason):
    decision = decide(Situation(**{"rows": 100} | situation))
    assert decision.order is order
    assert reason in decision.reason


def commands(schedule, order, layers=1):
    """Host order of ubatch 0's commands, as (what, op or event, stream)."""
    program = build_program(small_workload(layers), schedule, options={"shared": order})
    return [
        (type(c).__name__, getattr(c, "op", None) or c.event, c.stream)
        for c in program.plans[0].commands
        if isinstance(c, Launch | Record | Wait) and c.turn == 0
    ]


@pytest.mark.parametrize("schedule", ["dbo-ht", "shared-overlap"])
def test_no_overlap_lengthens_the_attention(schedule):
    launched = [name for what, name, _ in commands(schedule, "no-overlap") if what == "Launch"]
    assert launched[:3] == ["L0.u0.attention", "L0.u0.shared_experts", "L0.u0.gate"]


@pytest.mark.parametrize("schedule", ["dbo-ht", "shared-overlap"])
def test_internal_runs_beside_combine(schedule):
    found = commands(schedule, "mk-internal")
    at = found.index(("Launch", "L0.u0.shared_experts", "compute"))
    assert ("Launch", "L0.u0.combine", "a2a") in found[:at]
    waits = [
        place for place, (what, _, to) in enumerate(found) if (what, to) == ("Wait", "compute")
    ]
    assert waits[-1] > at  # combine is waited for behind it


@pytest.mark.parametrize("schedule", ["dbo-ht", "shared-overlap"])
def test_multi_stream_has_an_event_pair_for_each_ubatch(schedule):
    found = commands(schedule, "multi-stream")
    assert found[1:6] == [
        ("Record", "L0.u0.shared_input_ready", "compute"),
        ("Wait", "L0.u0.shared_input_ready", "aux"),
        ("Launch", "L0.u0.shared_experts", "aux"),
        ("Record", "L0.u0.shared_output_ready", "aux"),
        ("Launch", "L0.u0.gate", "compute"),
    ]
    join = found.index(("Wait", "L0.u0.shared_output_ready", "compute"))
    assert found[join + 1] == ("Launch", "L0.u0.merge", "compute")
    launched = [name for what, name, _ in found[:join] if what == "Launch"]
    assert "L0.u0.combine" in launched


def test_order_is_refused_where_it_is_not_known():
    with pytest.raises(InputError, match="order 'aux' of the shared experts is not known"):
        build_program(small_workload(), "dbo-ht", options={"shared": "aux"})


@pytest.mark.parametrize("order", list(Order))
def test_without_shared_experts_all_orders_are_one(order):
    plain = build_program(small_workload(shared=0), "dbo-ht")
    program = build_program(small_workload(shared=0), "dbo-ht", options={"shared": order})
    assert program.plans == plain.plans


@pytest.mark.parametrize(
    ("order", "period"),
    [
        # A 20, layout 0.6 and notify 1 (unsplit: 0.3 and 1), D 12, G 16, C 16, S 6, K 1
        ("no-overlap", 20 + 0.3 + 1 + 12 + 16 + 16 + 6 + 1),
        ("mk-internal", 20 + 0.3 + 1 + 12 + 16 + 16 + 1),  # S hides beside C
        ("multi-stream", 20 + 0.3 + 1 + 12 + 16 + 16 + 1),  # S hides beside D
    ],
)
def test_period_of_the_unsplit_batch(order, period):
    """Unit costs, no contention: an unsplit batch takes the double of all but layout, notify."""
    ends = [
        simulate(
            unit_program("shared-overlap", layers=n, shared=3, options={"shared": order})
        ).makespan_ns
        for n in (4, 8)
    ]
    assert (ends[1] - ends[0]) / 4 / 1000 == pytest.approx(period)
