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
