"""Dispatch and combine: table rows come back, what lies between is near, the rest says so."""

import sys
from pathlib import Path
from statistics import mean

import msgspec
import pytest
from costing import V3, kernels, notes, workload
from support import small_workload

from dbo_sched import InputError, build_program, load_model
from dbo_sched.routing import Routing, fanout
from dbo_sched.workload import Slice, busiest_tokens
from sim import SimBackend
from sim.costs import deepep_table, wire
from sim.costs.deepep import Call
from sim.costs.deepep_fit import estimate, fits
from sim.costs.derived import DerivedCosts

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
import fit_deepep


@pytest.mark.parametrize(
    ("kind", "tokens", "sms", "data_us", "notify_us"),
    [
        ("dispatch", 8192, 20, 3518.0, 67.73),
        ("combine", 8192, 20, 6912.0, 161.13),
        ("dispatch", 4096, 8, 2502.0, 68.07),
        ("combine", 1, 24, 60.63, 60.07),
        # half way between 4096 (1801.00, 59.47) and 8192 (3518.00, 67.73)
        ("dispatch", 6144, 20, 2659.5, 63.6),
        # 1/18 lies 5/9 of the way from 1/16 (3516.00, 66.13) to 1/20 (3518.00, 67.73)
        ("dispatch", 8192, 18, 3517.111, 67.019),
    ],
)
def test_table(kind, tokens, sms, data_us, notify_us):
    found = deepep_table.look_up(workload(), Call(kind, tokens, sms))
    assert found.data_ns == round(data_us * 1000)
    assert found.notify_ns == round(notify_us * 1000)
    assert ("interpolated" in found.origin) == (tokens == 6144 or sms == 18)


def test_every_row_of_the_table_comes_back():
    """No interpolation at a grid point, whatever the system and shape."""
    checked = 0
    for (system, nodes, ep, hidden, topk, experts), rows in deepep_table.tables().items():
        model = msgspec.structs.replace(
            V3, hidden_size=hidden, num_experts_per_tok=topk, n_routed_experts=experts
        )
        job = workload(model=model, system=system, nodes=nodes, ep=ep)
        for tokens, by_sms in rows.items():
            for sms, row in by_sms.items():
                found = deepep_table.look_up(job, Call("combine", tokens, sms))
                assert found.data_ns == round(1000 * row.combine_data)
                checked += 1
    assert checked == 15_456


def test_between_rows_within_two_percent():
    """Leave one token count out and find it from its neighbours: mean error per system and kind."""
    errors = {}
    for (system, nodes, *_), rows in deepep_table.tables().items():
        counts = list(rows)
        for few, middle, many in zip(counts, counts[1:], counts[2:], strict=False):
            for sms, row in rows[middle].items():
                for kind in ("dispatch_data", "combine_data"):
                    ends = (getattr(rows[count][sms], kind) for count in (few, many))
                    found = deepep_table.linear(middle, few, next(ends), many, next(ends))
                    off = abs(found / getattr(row, kind) - 1)
                    errors.setdefault((system, nodes, kind), []).append(off)
    assert len(errors) == 16
    assert {key: round(mean(off), 4) for key, off in errors.items() if mean(off) > 0.02} == {}


def test_call_without_tokens_takes_the_row_of_one_token():
    none, one = (deepep_table.look_up(workload(), Call("dispatch", n, 20)) for n in (0, 1))
    assert none.data_ns == one.data_ns


@pytest.mark.parametrize(
    ("job", "call", "reason"),
    [
        (workload(), Call("dispatch", 200_000, 20), "ends at 1 and 131072 tokens"),
        (workload(), Call("dispatch", 100, 2), "ends at 4 and 24 SMs"),
        (workload(), Call("dispatch", 100, 26), "ends at 4 and 24 SMs"),
        (workload(nodes=8), Call("dispatch", 100, 20), "no row for h100 8x8 h7168 k8 e256"),
        (workload(nodes=2, system="b200"), Call("combine", 100, 20), "no row for b200 2x8 h7168"),
        (workload(dispatch_dtype="bf16"), Call("dispatch", 100, 20), "has FP8 dispatch only"),
        (small_workload(), Call("dispatch", 100, 20), "no row for h100 1x2 h256 k4 e16"),
    ],
)
def test_table_says_what_it_does_not_cover(job, call, reason):
    assert reason in deepep_table.look_up(job, call)
    assert ", " not in deepep_table.look_up(job, call)  # it goes into an origin


def test_what_the_table_lacks_is_fitted_and_says_so():
    """GLM-4.5 has no row; the formula's value is worked out here from its committed parameters."""
    glm = load_model("glm-4.5").with_layers(4)
    job = workload(4096, model=glm, nodes=1)
    fit = fits()["h100", 1, "combine"]
    copies, wide = fanout(160, 8, 8), 2 * 5120
    per_sm = (fit.token_us + (fit.byte_us + copies * fit.copy_us) * wide) / 20
    expected = fit.latency_us + 4096 * max(per_sm, copies * wide / fit.gbps / 1e3)
    found = kernels("combine", job)["data"]
    assert found.ns == round(1000 * expected)
    assert found.source == (
        "fit:deepep_fit.json h100 1x8 mean error 8% (deepep_normal.csv has no row for h100 1x8 "
        "h5120 k8 e160)"
    )
    assert "combine data: FITTED" in notes(job)
    assert "combine data: FITTED" in notes(job, "silicon")


@pytest.mark.parametrize(
    ("job", "sms"),
    [(workload(comm_sms=26), 26), (workload(comm_sms=2), 2), (workload(200_000), 20)],
)
def test_sms_and_tokens_outside_the_table_are_fitted(job, sms):
    found = kernels("dispatch", job)["data"]
    assert found.source.startswith("fit:") and "deepep_normal.csv ends at" in found.source
    assert found.origin.endswith(f"{sms} SMs")


@pytest.mark.parametrize(
    "job",
    [workload(nodes=8), workload(nodes=2, system="b200"), workload(nodes=8, system="b200")],
    ids=["EP64 on h100", "EP16 on b200", "EP64 on b200"],
)
def test_what_nobody_measured_is_flagged_or_refused(job):
    assert "dispatch data, combine data: NOT MEASURED, 92% of 50 GB/s NIC" in notes(job)
    with pytest.raises(InputError, match=r"nothing was measured on [28] nodes of"):
        SimBackend("silicon").run(build_program(job, "sequential"))


def test_networks_alike_share_a_fit_between_nodes_but_not_within_one():
    """H200 nodes have H100's NVLink and NICs; within a node each system has rows of its own."""
    call = Call("dispatch", 8192, 20)
    h200, h100 = (estimate(workload(system=system), call) for system in ("h200", "h100"))
    assert h200 == h100
    assert "fit:deepep_fit.json h100 4x8" in h200.origin
    assert "h200 1x8" in estimate(workload(system="h200", nodes=1), call).origin


def test_bf16_dispatch_moves_twice_the_bytes():
    """On a full wire: 2 x 7168 bytes a token where FP8 takes 7168 + 56 x 4."""
    fp8, bf16 = (
        estimate(workload(dispatch_dtype=dtype), Call("dispatch", 65536, 24)).data_ns
        for dtype in ("fp8", "bf16")
    )
    latency = fits()["h100", 4, "dispatch"].latency_us * 1000
    assert (bf16 - latency) / (fp8 - latency) == pytest.approx(14336 / 7392, rel=1e-6)


def test_fits_are_what_the_script_makes_of_the_table():
    for kind in ("dispatch", "combine"):
        for (system, nodes), rows in fit_deepep.samples(kind).items():
            made = fit_deepep.fit(system, nodes, kind, rows)
            kept = fits()[system, nodes, kind]
            numbers = (msgspec.structs.astuple(fit)[3:] for fit in (made, kept))
            assert next(numbers) == pytest.approx(next(numbers), rel=0.02, abs=0.002)
            assert kept.mean_error <= 0.1


def test_wire_alone_by_hand():
    """Four H100 nodes: a token goes to 4 (1 - C(192,8) / C(256,8)) x 3/4 other nodes; 46 GB/s."""
    found = wire.estimate(workload(), Call("dispatch", 8192, 20))
    nodes = fanout(256, 8, 4) * 3 / 4
    assert nodes == pytest.approx(2.7107, abs=1e-4)
    assert found.data_ns == round(1000 * (40 + 8192 * nodes * 7392 / 46 / 1e3))
    few = wire.estimate(workload(), Call("combine", 8192, 4))
    assert few.data_ns == round(1000 * (60 + 8192 * nodes * 14336 / (3.2 * 4) / 1e3))
    assert found.origin == "wire:92% of 50 GB/s NIC of h100, 8192 tokens, 20 SMs"
    measured = deepep_table.look_up(workload(), Call("dispatch", 8192, 20))
    assert found.data_ns == pytest.approx(measured.data_ns, rel=0.05)


def test_phases_of_dispatch_and_combine():
    """Layout: 23 us per 4096 x 6 choices. SMs: 256 / 4 + 32 / 8; 1 + 4 nodes; 2 x 10 channels."""
    dispatch, combine = kernels("dispatch", workload()), kernels("combine", workload())
    assert [(k.phase, k.sms, k.meets) for k in dispatch.values()] == [
        ("layout", 68, False),
        ("notify", 5, True),
        ("data", 20, True),
    ]
    assert dispatch["layout"].ns == round(23_000 * 8192 * 8 / (4096 * 6))
    assert [(k.phase, k.sms) for k in combine.values()] == [("notify", 20), ("data", 20)]
    assert dispatch["data"].ns == 3_518_000
    assert dispatch["data"].source == "table:deepep_normal.csv h100 4x8 h7168 k8 e256"
    assert kernels("dispatch", workload(), "dbo-ht")["data"].ns == 1_801_000


def test_notify_within_a_node_is_said_to_be_measured_elsewhere():
    job = workload(nodes=1)
    found = kernels("combine", job)["notify"]
    assert (found.ns, found.sms) == (30_000, 11)
    assert found.origin == "measured: notify on one H200 with two ranks"
    assert kernels("dispatch", job)["notify"].sms == 1 + 8
    assert "combine notify: measured, notify on one H200 with two ranks" in notes(job)


def test_skewed_ranks_take_the_row_of_their_busier_direction():
    routing = Routing(popularity="zipf", exponent=1.0, seed=1)
    job = msgspec.structs.replace(workload(), routing=routing)
    program = build_program(job, "sequential")
    lengths = {}
    for plan in program.plans:
        op = next(op for op in plan.ops if op.kind == "dispatch")
        data = DerivedCosts().kernels(program, plan, op)[-1]
        tokens = busiest_tokens(job, plan.ubatches[0])
        assert f", {tokens} tokens, 20 SMs" in data.origin
        assert data.ns == deepep_table.look_up(job, Call("dispatch", tokens, 20)).data_ns
        lengths[tokens] = data.ns
    assert min(lengths) == 8192 < max(lengths)  # nobody sends less than its own tokens
    assert lengths[min(lengths)] == 3_518_000
    assert "zipf:1" in notes(job)


def test_bytes_through_memory_are_what_is_sent_and_received():
    """4096 tokens, each to 32 (1 - C(248,8) / C(256,8)) ranks, and as many rows back."""
    found = kernels("dispatch", workload(4096))["data"]
    rows = 4096 * fanout(256, 8, 32)
    assert found.bytes == pytest.approx(2 * rows * 7392, rel=1e-4)


def test_outlier_rows_are_pointed_out():
    for sms, told in [(8, False), (10, True), (12, True), (14, True), (16, False)]:
        assert ("DISPATCH TOO SLOW" in notes(workload(nodes=2, comm_sms=sms))) == told


def test_slices_of_no_plan_are_refused():
    with pytest.raises(InputError, match="op 'd' is of ubatch 0, and the plan declares 0 ubatches"):
        program = build_program(workload(), "sequential")
        plan = msgspec.structs.replace(program.plans[0], ubatches=())
        op = next(op for op in plan.ops if op.kind == "dispatch")
        DerivedCosts().kernels(program, plan, msgspec.structs.replace(op, id="d"))
    assert busiest_tokens(workload(), Slice(tokens=3)) == 3
