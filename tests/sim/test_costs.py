"""Durations: table rows come back, rooflines equal what is counted by hand, the rest is refused."""

import msgspec
import pytest
from support import small_workload

from dbo_sched import Deployment, InputError, Workload, build_program, load_model, prompts
from dbo_sched.plan import Op
from dbo_sched.text import from_text
from sim import SimBackend
from sim.costs.auto import AutoCosts
from sim.costs.deepep import phase_sms
from sim.costs.fixed import FixedCosts
from sim.costs.roofline import Roofline
from sim.costs.silicon import find_table, look_up

V3 = load_model("deepseek-v3").with_layers(4)


def workload(tokens=8192, *, nodes=4, ep=32, system="h100", **more):
    deployment = Deployment(system=system, nodes=nodes, ep=ep, **more)
    return Workload(model=V3, deployment=deployment, sequences=prompts(tokens, 4096))


def kernels(kind, schedule="sequential", *, job=None, ubatches=None):
    """Kernels of layer 3's op of a kind, ubatch 0, as (phase -> kernel)."""
    program = build_program(job or workload(), schedule, ubatches=ubatches)
    plan = program.plans[0]
    op = next(op for op in plan.ops if op.kind == kind and op.layer in (0, 3) and op.ubatch == 0)
    return {kernel.phase: kernel for kernel in AutoCosts().kernels(program, plan, op)}


# Tables


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
    found = look_up(find_table(workload()), kind, tokens, sms)
    assert found.data_ns == round(data_us * 1000)
    assert found.notify_ns == round(notify_us * 1000)
    assert ("interpolated" in found.origin) == (tokens == 6144 or sms == 18)


def test_call_without_tokens_takes_the_row_of_one_token():
    table = find_table(workload())
    assert look_up(table, "dispatch", 0, 20).data_ns == look_up(table, "dispatch", 1, 20).data_ns


@pytest.mark.parametrize(
    ("job", "message"),
    [
        (workload(200_000), "ends at 1 and 131072 tokens: 200000 is outside"),
        (workload(comm_sms=2), "ends at 4 and 24 SMs: 2 is outside"),
        (workload(comm_sms=26), "ends at 4 and 24 SMs: 26 is outside"),
        (workload(nodes=8, ep=64), "no row for h100, 8 nodes, 64 ranks, hidden 7168, top-8, 256"),
        (
            workload(nodes=2, ep=16, system="h200"),
            "choose one of: --system h100 --nodes 1, --system h100",
        ),
        (workload(dtype="bf16"), "holds FP8 dispatch only"),
        (small_workload(), "no system covers this shape"),
    ],
)
def test_outside_the_tables_is_refused(job, message):
    with pytest.raises(InputError, match=message):
        SimBackend().run(build_program(job, "sequential"))


def test_phases_of_dispatch_and_combine():
    """Layout: 23 us per 4096 x 6 choices. SMs: 256 / 4 + 32 / 8; 1 + 4 nodes; 2 x 10 channels."""
    dispatch, combine = kernels("dispatch"), kernels("combine")
    assert [(k.phase, k.sms, k.meets) for k in dispatch.values()] == [
        ("layout", 68, False),
        ("notify", 5, True),
        ("data", 20, True),
    ]
    assert dispatch["layout"].ns == round(23_000 * 8192 * 8 / (4096 * 6))
    assert [(k.phase, k.sms) for k in combine.values()] == [("notify", 20), ("data", 20)]
    assert dispatch["data"].ns == 3_518_000
    assert dispatch["data"].origin.startswith(
        "table:deepep_normal.csv h100 4x8 h7168 k8 e256, 8192"
    )
    half = kernels("dispatch", "dbo-ht")
    assert half["data"].ns == 1_801_000


def test_notify_within_a_node_is_said_to_be_measured_elsewhere():
    found = kernels("combine", job=workload(nodes=1, ep=8))["notify"]
    assert (found.ns, found.sms) == (30_000, 11)
    assert found.origin == "measured: notify on one H200, two ranks"
    assert kernels("dispatch", job=workload(nodes=1, ep=8))["notify"].sms == 1 + 8


# Roofline: one DeepSeek-V3 layer, one prompt of 4096 tokens, counted by hand

MATH = 1978.9e3 * 0.6
"""FP8 operations per nanosecond."""
BF16 = 989.4e3 * 0.6
MEMORY = 3350 * 0.8
"""Bytes per nanosecond."""

PROMPT = workload(4096)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (
            "attention",
            {
                "norm": 4096 * 2 * 7168 * 2 / MEMORY,
                "qkv_a": 2 * 4096 * 7168 * (1536 + 512 + 64) / MATH,
                "q_b": 2 * 4096 * 1536 * 128 * (128 + 64) / MATH,
                "kv_b": 2 * 4096 * 512 * 128 * (128 + 128) / MATH,
                # query times key over 192, weights times value over 128, causal pairs
                "attend": 2 * 128 * (192 + 128) * (4096 * 4097 // 2) / BF16,
                "o": 2 * 4096 * 128 * 128 * 7168 / MATH,
            },
        ),
        (
            "gate",
            {
                "norm": 4096 * 2 * 7168 * 2 / MEMORY,
                # BF16; its 64.5 MB take 24.1 us, its arithmetic 25.3
                "router": 2 * 4096 * 7168 * 256 / BF16,
                "quantise": 4096 * 7168 * 3 / MEMORY,
            },
        ),
        (
            "experts",
            {
                # 32768 pairs computed; 29765 rows received: 4096 x 32 (1 - C(248,8) / C(256,8))
                "permute": (32768 + 29765) * 7168 / MEMORY,
                "gate_up": 2 * 32768 * 7168 * 4096 / MATH,
                "act": 32768 * 2048 * (2 * 2 + 1) / MEMORY,
                "down": 2 * 32768 * 2048 * 7168 / MATH,
                "reduce": (32768 + 29765) * 7168 * 2 / MEMORY,
            },
        ),
        (
            "shared_experts",
            {
                "gate_up": 2 * 4096 * 7168 * 4096 / MATH,
                "act": 4096 * 2048 * 5 / MEMORY,
                "down": 2 * 4096 * 2048 * 7168 / MATH,
            },
        ),
        (
            "mlp",
            {
                "gate_up": 2 * 4096 * 7168 * 2 * 18432 / MATH,
                "act": 4096 * 18432 * 5 / MEMORY,
                "down": 2 * 4096 * 18432 * 7168 / MATH,
            },
        ),
        ("output_copy", {"copy": 4096 * 2 * 7168 * 2 / MEMORY}),
        ("merge", {"add": 4096 * 4 * 7168 * 2 / MEMORY}),
    ],
)
def test_roofline(kind, expected):
    found = {phase: kernel.ns for phase, kernel in kernels(kind, job=PROMPT).items()}
    assert found == {phase: round(ns) for phase, ns in expected.items()}


def test_second_half_of_a_prompt_attends_to_the_first():
    """Halves of 4096: pairs 2048 x 2049 / 2, and 2048 more for each of the second half's tokens."""
    program = build_program(PROMPT, "dbo-ht")
    costs, plan = AutoCosts(), program.plans[0]
    attends = [
        kernel.ns
        for op in plan.ops
        if op.kind == "attention" and op.layer == 3
        for kernel in costs.kernels(program, plan, op)
        if kernel.phase == "attend"
    ]
    pairs = 2048 * 2049 // 2
    assert attends == [round(2 * 128 * 320 * p / BF16) for p in (pairs, pairs + 2048 * 2048)]


def test_tiles_of_matrix_products_and_rows():
    assert kernels("attention", job=PROMPT)["o"].tiles == 4096 // 128 * 7168 // 128
    assert kernels("attention", job=PROMPT)["attend"].tiles == 128 * 4096 // 128
    # 8 local experts with 4096 rows each
    assert kernels("experts", job=PROMPT)["gate_up"].tiles == 8 * (4096 // 128) * (4096 // 128)
    assert kernels("merge", job=PROMPT)["add"].tiles == 4096


def test_efficiencies_scale_and_are_named():
    program = build_program(PROMPT, "sequential")
    plan = program.plans[0]
    op = next(op for op in plan.ops if op.kind == "merge")
    full = Roofline(1.0, 0.5).kernels(PROMPT, plan, op)[0]
    assert full.ns == round(4096 * 4 * 7168 * 2 / (3350 * 0.5))
    assert full.origin == "roofline:h100 50% of 3350 GB/s"
    with pytest.raises(InputError, match=r"math_efficiency is 1\.5"):
        Roofline(1.5)


def test_ubatch_without_tokens_costs_nothing_but_its_collectives():
    job = msgspec.structs.replace(workload(), sequences=((1, 0),))
    program = build_program(job, "dbo-ht")
    plan = program.plans[0]
    empty = [op for op in plan.ops if op.ubatch == 0 and op.layer == 3]
    assert [part.tokens for part in plan.ubatches] == [0, 1]
    for op in empty:
        total = sum(kernel.ns for kernel in AutoCosts().kernels(program, plan, op))
        assert (total > 0) == (op.kind in ("dispatch", "combine")), op
    assert SimBackend().run(program)[0].makespan_ns > 0


# Fixed


def test_fixed_durations_win_over_tables_and_roofline():
    program = build_program(workload(), "sequential")
    plan = program.plans[0]
    op = Op(id="L3.u0.merge", kind="merge", ns=(("run", 5),))
    assert [(k.phase, k.ns, k.origin) for k in AutoCosts().kernels(program, plan, op)] == [
        ("run", 5, "fixed")
    ]


@pytest.mark.parametrize(
    ("op", "moved"),
    [
        ("kind=x bytes=100 ns=a:30,b:10,c:60", {"a": 30, "b": 10, "c": 60}),
        ("kind=x bytes=10 ns=a:1,b:1,c:1", {"a": 3, "b": 3, "c": 4}),
        ("kind=x bytes=10 ns=a:0,b:0", {"a": 0, "b": 0}),
        ("kind=x ns=a:5", {"a": 0}),
        ("kind=x comm=ep bytes=10 ns=layout:5,data:5", {"layout": 0, "data": 10}),
        ("kind=x comm=ep blocks-host bytes=10 ns=data:5", {"notify": 0, "data": 10}),
    ],
)
def test_bytes_of_an_op_are_spread_over_its_kernels(op, moved):
    program = from_text(f"program v1\ncomm ep\nop a {op}\n")
    (plan,) = program.plans
    kernels = FixedCosts().kernels(program, plan, plan.ops[0])
    assert {kernel.phase: kernel.bytes for kernel in kernels} == moved


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("op a kind=x", "op 'a' has no duration"),
        ("op a kind=x comm=ep ns=run:5", "op 'a' is a collective with phases run"),
        ("op a kind=x comm=ep ns=notify:5", "op 'a' is a collective with phases notify"),
        ("op a kind=x comm=ep sms=200 ns=data:5", r"op 'a' \(data\) wants 200 SMs at once, and"),
        (
            "op b kind=x\nop a kind=x follows=b/2/1 ns=run:5",
            "op 'a' follows tiles of 'b': the SimPy",
        ),
    ],
)
def test_what_the_model_cannot_do_is_refused(line, message):
    with pytest.raises(InputError, match=message):
        SimBackend(FixedCosts()).run(from_text(f"program v1\ncomm ep\n{line}\nu0 launch a"))


def test_captured_plan_cannot_block_the_host():
    text = "program v1\ncomm ep\nplan ranks=0 captured\n"
    text += "op a kind=dispatch comm=ep blocks-host ns=data:5\nu0 launch a a2a"
    with pytest.raises(InputError, match="op 'a' blocks the host in a captured plan"):
        SimBackend(FixedCosts()).run(from_text(text))


def test_phase_sms_without_a_workload():
    program = from_text("program v1 ranks=4\ncomm ep\nop a kind=dispatch comm=ep sms=8 ns=data:1")
    op = program.plans[0].ops[0]
    assert [phase_sms(program, op, phase) for phase in ("layout", "notify", "data")] == [2, 5, 8]


def test_one_id_for_different_collectives_is_refused():
    text = """program v1 ranks=2
        comm x
        comm y
        plan ranks=0
        op D kind=dispatch comm=x ns=data:5
        u0 launch D a2a
        plan ranks=1
        op D kind=combine comm=y ns=data:5
        u0 launch D a2a
    """
    with pytest.raises(InputError, match="'D' is a dispatch on x in one plan and a combine on y"):
        SimBackend(FixedCosts()).run(from_text(text))


def test_host_wait_in_a_captured_plan_is_refused():
    text = "program v1\nplan ranks=0 captured\nu0 record e compute\nu0 host-wait e"
    with pytest.raises(InputError, match="a captured plan has a host-wait"):
        SimBackend(FixedCosts()).run(from_text(text))


def test_outlier_rows_are_pointed_out():
    def notes(sms):
        program = build_program(workload(nodes=2, ep=16, comm_sms=sms), "sequential")
        return SimBackend().run(program)[0].header.notes

    for sms, told in [(8, False), (10, True), (12, True), (14, True), (16, False)]:
        assert any("DISPATCH TOO SLOW" in note for note in notes(sms)) == told
