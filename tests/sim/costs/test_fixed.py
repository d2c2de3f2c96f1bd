"""Durations written on ops, and what the model refuses of them."""

import pytest
from costing import workload

from dbo_sched import InputError, build_program
from dbo_sched.plan import Op
from dbo_sched.text import from_text
from sim import SimBackend
from sim.costs.deepep import phase_sms
from sim.costs.derived import DerivedCosts
from sim.costs.fixed import FixedCosts


def test_fixed_durations_win_over_tables_and_roofline():
    program = build_program(workload(), "sequential")
    plan = program.plans[0]
    op = Op(id="L3.u0.merge", kind="merge", ns=(("run", 5),))
    assert [(k.phase, k.ns, k.origin) for k in DerivedCosts().kernels(program, plan, op)] == [
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
