"""Who gets which SMs when: 66 SMs, one CTA per SM, latencies 0; a GEMM of 64 CTAs x 100."""

import pytest
from support import FREE, simulate, when

from sim import Gpu

GPU = Gpu(sms=66)
GEMM = "op gemm kind=experts tiles=64 ns=run:100"


def run(*lines, gpu=GPU, host=FREE):
    return simulate("\n".join(["program v1", "comm ep", *lines]), gpu=gpu, host=host)


def comm(ns, sms=8, name="comm"):
    return f"op {name} kind=dispatch comm=ep sms={sms} ns=data:{ns}"


FIRST, SECOND = "u0 launch comm a2a", "u0 launch gemm compute"


@pytest.mark.parametrize(("comm_ns", "gemm_end"), [(50, 150), (500, 200)])
def test_communication_first(comm_ns, gemm_end):
    """58 CTAs start; the other 6 when communication ends, or when the first 58 have."""
    timeline = run(GEMM, comm(comm_ns), FIRST, SECOND)
    assert when(timeline, "comm") == (0, comm_ns)
    assert when(timeline, "gemm") == (0, gemm_end)


def test_gemm_first_lets_no_gang_in_before_its_ctas_end():
    timeline = run(GEMM, comm(50), SECOND, FIRST)
    assert when(timeline, "gemm") == (0, 100)
    assert when(timeline, "comm") == (100, 150)


def test_capped_gemm_leaves_room_and_needs_a_second_wave():
    timeline = run(GEMM + " sms=58", comm(50), SECOND, FIRST)
    assert when(timeline, "gemm") == (0, 200)
    assert when(timeline, "comm") == (0, 50)


def test_without_contention_both_run_as_if_alone():
    timeline = run(GEMM, comm(500), FIRST, SECOND, gpu=Gpu(sms=66, contention="none"))
    assert when(timeline, "gemm") == (0, 100)
    assert when(timeline, "comm") == (0, 500)


def test_alone_a_kernel_takes_its_duration_whatever_its_tiles():
    """Waves of 1000 tiles on 66 SMs do not divide 1001 ns; the total still comes out exactly."""
    timeline = run("op gemm kind=experts tiles=1000 ns=run:1001", SECOND)
    assert when(timeline, "gemm") == (0, 1001)


def test_gang_goes_before_the_next_wave_of_a_running_kernel():
    """132 tiles: waves 0-100 and 100-200. The gang comes at 10, gets 8 SMs at 100 and keeps them
    until 150; 58 tiles start at 100, 8 at 150, so the GEMM ends at 250."""
    lines = ("op gemm kind=experts tiles=132 ns=run:200", "op before kind=gate ns=run:10", comm(50))
    order = (SECOND, "u0 launch before a2a", FIRST)
    timeline = run(*lines, *order)
    assert when(timeline, "comm") == (100, 150)
    assert when(timeline, "gemm") == (0, 250)


def test_waiting_gang_keeps_freed_sms_for_itself():
    """a holds 40 SMs until 100, b 20 until 50; a gang of 46 waits. c, later in the plan, must not
    take the SMs that b leaves."""
    timeline = run(
        "op a kind=x tiles=40 ns=run:100",
        "op b kind=x tiles=20 ns=run:50",
        "op c kind=x tiles=20 ns=run:30",
        comm(10, sms=46),
        "u0 launch a compute",
        "u0 launch b aux",
        "u0 launch comm a2a",
        "u0 launch c comm",
    )
    assert when(timeline, "comm") == (100, 110)
    assert when(timeline, "c") == (100, 130)


def test_older_kernel_is_served_first_when_sms_fall_free():
    """66 tiles of a run 0-100; b and c want 60 each. b, earlier in the plan, gets its 60 first; c
    starts with the 6 left and takes 54 more at 110."""
    timeline = run(
        "op a kind=x tiles=66 ns=run:100",
        "op b kind=x tiles=60 ns=run:10",
        "op c kind=x tiles=60 ns=run:10",
        "u0 launch a compute",
        "u0 launch b aux",
        "u0 launch c comm",
    )
    assert when(timeline, "b") == (100, 110)
    assert when(timeline, "c") == (100, 120)


def test_kernel_that_was_ready_first_goes_on_first():
    """a and b, of 66 tiles, follow each other on compute; c, two waves of 10, is ready at 50 on
    comm. c gets a's SMs at 100 and its second wave before b, though b is earlier in the plan."""
    timeline = run(
        "op a kind=x tiles=66 ns=run:100",
        "op b kind=x tiles=66 ns=run:100",
        "op delay kind=x ns=run:50",
        "op c kind=x tiles=132 ns=run:20",
        "u0 launch a compute",
        "u0 launch b compute",
        "u0 launch delay comm",
        "u0 launch c comm",
    )
    assert when(timeline, "c") == (100, 120)
    assert when(timeline, "b") == (120, 220)


def test_layout_and_notify_hold_sms_too():
    """One rank, 8 SMs: layout 2, notify 1 + 1, data 8. A GEMM of 66 CTAs starts beside layout on
    64 SMs; its last 2 CTAs, which wait already, take layout's SMs before notify is ready, so notify
    has to wait for the first wave."""
    timeline = run(
        "op gemm kind=experts tiles=66 ns=run:100",
        "op comm kind=dispatch comm=ep sms=8 ns=layout:30,notify:5,data:50",
        FIRST,
        SECOND,
    )
    assert when(timeline, "comm", phase="layout") == (0, 30)
    assert when(timeline, "comm", phase="notify") == (100, 105)
    assert when(timeline, "gemm") == (0, 130)
    assert when(timeline, "comm", phase="data") == (105, 155)


@pytest.mark.parametrize("first", ["three", "one"])
def test_ties_are_decided_by_plan_order(first):
    """3 x 100 ns end together with 300 ns; whose gang then starts is decided by the plan."""
    lines = [
        *(f"op k{i} kind=x tiles=1 ns=run:100" for i in range(3)),
        "op k kind=x tiles=1 ns=run:300",
        comm(10, sms=66, name="three"),
        comm(10, sms=66, name="one"),
        *(f"u0 launch k{i} aux" for i in range(3)),
        "u0 launch k comm",
    ]
    gangs = {"three": "u0 launch three aux", "one": "u0 launch one comm"}
    lines.append(gangs.pop(first))
    lines.extend(gangs.values())
    timeline = run(*lines)
    second = "one" if first == "three" else "three"
    assert when(timeline, first) == (300, 310)
    assert when(timeline, second) == (310, 320)


def test_a_grids_successor_asks_as_early_as_a_gangs():
    """8 SMs: a grid G of 4 CTAs and a gang C of 4 SMs end together at 100; G1 and C1, behind them,
    both want all 8 SMs, and G1 comes first in the plan."""
    timeline = run(
        "op G kind=x tiles=4 ns=run:100",
        comm(100, sms=4, name="C"),
        "op G1 kind=x tiles=8 ns=run:50",
        comm(50, sms=8, name="C1"),
        "u0 launch G compute",
        "u0 launch C aux",
        "u0 launch G1 compute",
        "u0 launch C1 aux",
        gpu=Gpu(sms=8),
    )
    assert when(timeline, "G1") == (100, 150)
    assert when(timeline, "C1") == (150, 200)


@pytest.mark.parametrize("limit_ns", [150, 160, 199, 200])
def test_a_limit_behind_the_end_is_none(limit_ns):
    """The first of the cases above ends at 150, whatever else was planned for later."""
    lines = ["program v1", "comm ep", GEMM, comm(50), FIRST, SECOND]
    timeline = simulate("\n".join(lines), gpu=GPU, limit_ns=limit_ns)
    assert timeline.makespan_ns == 150


def test_layout_of_many_experts_fits_on_a_small_gpu():
    """Layout's CTAs share SMs; with the data phase's that is not so."""
    from dbo_sched import Deployment, Workload, build_program, load_model, prompts
    from sim import SimBackend

    workload = Workload(
        model=load_model("deepseek-v3").with_layers(4),
        deployment=Deployment(system="h100", nodes=4, ep=32),
        batches=(prompts(8192, 4096),),
    )
    program = build_program(workload, "dbo-ht")
    assert SimBackend(gpu=Gpu(sms=66)).run(program)[0].makespan_ns > 0
