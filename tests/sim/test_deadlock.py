"""A model that stops with work left says who waits for whom, and is never a makespan."""

import pytest
from support import FREE, simulate

from dbo_sched import DeadlockError, TimeLimitError
from dbo_sched.text import from_text
from sim import Gpu
from sim.costs.fixed import FixedCosts
from sim.engine import Model

OPPOSITE = """program v1 ranks=2
    comm x
    comm y
    plan ranks=0
    op X kind=dispatch comm=x ns=data:10
    op Y kind=combine comm=y ns=data:10
    u0 launch X a2a
    u0 launch Y a2a
    plan ranks=1
    op X kind=dispatch comm=x ns=data:10
    op Y kind=combine comm=y ns=data:10
    u0 launch Y a2a
    u0 launch X a2a
"""

MISSING = """program v1 ranks=2
    comm ep
    plan ranks=0
    op D kind=dispatch comm=ep ns=data:10
    u0 launch D a2a
    plan ranks=1
    op A kind=attention ns=run:5
    u0 launch A compute
"""

HOST_WAIT = """program v1 ranks=2
    comm x
    comm y
    plan ranks=0
    op X kind=dispatch comm=x blocks-host ns=notify:1,data:10
    op Y kind=combine comm=y ns=data:10
    u0 launch X a2a
    u0 launch Y comm
    plan ranks=1
    op X kind=dispatch comm=x ns=notify:1,data:10
    op Y kind=combine comm=y ns=data:10
    u0 launch Y comm
    u0 record done comm
    u0 host-wait done
    u0 launch X a2a
"""

SMS = """program v1 ranks=2
    comm x
    comm y
    plan ranks=0
    op X kind=dispatch comm=x sms=100 ns=data:10
    op Y kind=combine comm=y sms=100 ns=data:10
    u0 launch X a2a
    u0 launch Y comm
    plan ranks=1
    op X kind=dispatch comm=x sms=100 ns=data:10
    op Y kind=combine comm=y sms=100 ns=data:10
    u0 launch Y comm
    u0 launch X a2a
"""


@pytest.mark.parametrize("limit_ns", [None, 100])
@pytest.mark.parametrize(
    ("text", "cycle", "left"),
    [
        (
            OPPOSITE,
            {
                "X (data) on rank 0 waits for rank 1",
                "X (data) on rank 1 stands behind Y (data) on a2a",
                "Y (data) on rank 1 waits for rank 0",
                "Y (data) on rank 0 stands behind X (data) on a2a",
            },
            4,
        ),
        (
            HOST_WAIT,
            {
                "the host of rank 0 is blocked until X (notify) ends",
                "X (notify) on rank 0 waits for rank 1, whose host has not launched it",
                "the host of rank 1 is blocked until Y (data) ends",
                "Y (data) on rank 1 waits for rank 0, whose host has not launched it",
            },
            6,
        ),
    ],
)
def test_cycle(text, cycle, left, limit_ns):
    with pytest.raises(DeadlockError) as caught:
        simulate(text, limit_ns=limit_ns)
    assert caught.value.cyclic
    assert set(caught.value.chain) == cycle
    assert caught.value.left == left


@pytest.mark.parametrize("limit_ns", [None, 100])
def test_missing_participant(limit_ns):
    with pytest.raises(DeadlockError) as caught:
        simulate(MISSING, limit_ns=limit_ns)
    assert not caught.value.cyclic
    assert caught.value.chain == ("D (data) on rank 0 waits for rank 1, which never launches it",)
    assert caught.value.left == 1


def test_host_wait_behind_a_missing_participant():
    text = MISSING.replace(
        "u0 launch D a2a", "u0 launch D a2a\nu0 record done a2a\nu0 host-wait done"
    )
    with pytest.raises(DeadlockError) as caught:
        simulate(text)
    assert caught.value.chain == (
        "the host of rank 0 is blocked until D (data) ends",
        "D (data) on rank 0 waits for rank 1, which never launches it",
    )


def test_gangs_that_hold_each_others_sms():
    """deepseek-ai/DeepEP#496: two spinning kernels, each wanting most of the SMs."""
    with pytest.raises(DeadlockError) as caught:
        simulate(SMS, gpu=Gpu(sms=132))
    assert set(caught.value.chain) == {
        "X (data) on rank 0 waits for rank 1",
        "X (data) on rank 1 wants SMs that Y (data) holds",
        "Y (data) on rank 1 waits for rank 0",
        "Y (data) on rank 0 wants SMs that X (data) holds",
    }


def test_a_grid_that_lost_its_sms_is_part_of_the_cycle():
    """Rank 0's G gives way to the gang D at its first wave; E waits behind G, and rank 1 for E."""
    with pytest.raises(DeadlockError) as caught:
        simulate(
            """program v1 ranks=2
            comm x
            comm y
            plan ranks=0
            op G kind=x tiles=264 ns=run:20
            op D kind=dispatch comm=x sms=132 ns=data:10
            op E kind=combine comm=y ns=data:10
            op d kind=x ns=run:5
            u0 launch G compute
            u0 launch d a2a
            u0 launch D a2a
            u0 launch E compute
            plan ranks=1
            op D kind=dispatch comm=x ns=data:10
            op E kind=combine comm=y ns=data:10
            u0 launch E compute
            u0 launch D compute
            """,
            gpu=Gpu(sms=132),
        )
    assert caught.value.cyclic
    assert set(caught.value.chain) == {
        "D (data) on rank 0 waits for rank 1",
        "D (data) on rank 1 stands behind E (data) on compute",
        "E (data) on rank 1 waits for rank 0",
        "E (data) on rank 0 stands behind G (run) on compute",
        "G (run) on rank 0 wants SMs that D (data) holds",
    }


def test_a_long_queue_is_not_recited():
    """A thousand combines that the peer lacks: one sentence tells why, whichever is asked first."""
    ops = "".join(f"op C{i} kind=combine comm=ep ns=data:1\n" for i in range(1000))
    launches = "".join(f"u0 launch C{i} a2a\n" for i in range(1000))
    text = f"program v1 ranks=2\ncomm ep\nplan ranks=0\n{ops}{launches}plan ranks=1\n{ops}"
    with pytest.raises(DeadlockError) as caught:
        simulate(text)
    assert caught.value.chain[-1] == "C0 (data) on rank 0 waits for rank 1, which never launches it"
    assert len(caught.value.chain) <= 2
    assert caught.value.left == 1000


def test_kernels_left_are_those_of_all_ranks():
    text = """program v1 ranks=8
        comm ep
        plan ranks=0-3
        op D kind=dispatch comm=ep ns=data:10
        u0 launch D a2a
        plan ranks=4-7
        op A kind=attention ns=run:5
        u0 launch A compute
    """
    for collapse in (True, False):
        with pytest.raises(DeadlockError) as caught:
            simulate(text, collapse=collapse)
        assert (caught.value.left, caught.value.at_ns) == (4, 5)


def test_a_deadlock_at_a_limit_is_none_that_goes_on():
    """What is left of the SM case after 150 is a look that was overtaken: still a DEADLOCK."""
    text = """program v1 ranks=2
        comm ep
        plan ranks=0
        op C kind=x comm=ep sms=8 ns=data:50
        op G kind=experts tiles=64 ns=run:100
        op D kind=dispatch comm=ep ns=data:10
        u0 launch C a2a
        u0 launch G compute
        u0 launch D comm
        plan ranks=1
        op C kind=x comm=ep sms=8 ns=data:50
        u0 launch C a2a
    """
    for limit_ns in (None, 150, 160, 1000):
        with pytest.raises(DeadlockError) as caught:
            simulate(text, gpu=Gpu(sms=66), limit_ns=limit_ns)
        assert caught.value.at_ns == 150


def test_a_running_model_at_its_limit_is_no_deadlock():
    text = "program v1\nop a kind=x ns=run:100\nu0 launch a compute"
    with pytest.raises(TimeLimitError, match="limit of 99 ns"):
        simulate(text, limit_ns=99)
    assert simulate(text, limit_ns=100).makespan_ns == 100


@pytest.mark.parametrize("text", [OPPOSITE, MISSING, HOST_WAIT, SMS])
def test_nothing_is_left_after_a_deadlock(text):
    model = Model(from_text(text), FixedCosts(), FREE, Gpu(), {0: 0, 1: 0})
    with pytest.raises(DeadlockError):
        model.run()
    assert not any(model.leftovers().values())
