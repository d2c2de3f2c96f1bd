"""Faults from public reports, as plans with the timeline that they really have.

Each test names the report that it stands for; times are units of the report, here nanoseconds.
"""

import pytest
from support import simulate, small_workload, when

from dbo_sched import build_program
from dbo_sched.metrics import measure
from dbo_sched.plan import with_durations
from sim import Gpu


@pytest.mark.parametrize(("waits_for", "makespan"), [("merged", 30), ("dgrad", 20)])
def test_merge_node_delays_ready_work(waits_for, makespan):
    """NVIDIA/Megatron-LM#7390: wgrad reads A only, but is submitted behind the merge."""
    timeline = simulate(f"""program v1
        stream wgrad
        op A kind=experts ns=run:10
        op S kind=shared_experts ns=run:8
        op M kind=merge ns=run:2
        op W kind=wgrad ns=run:10
        u0 launch A compute
        u0 record dgrad compute
        u0 launch S compute
        u0 launch M compute
        u0 record merged compute
        u0 wait {waits_for} wgrad
        u0 launch W wgrad
    """)
    assert timeline.makespan_ns == makespan


@pytest.mark.parametrize(
    ("recorded_after", "dispatch", "makespan"), [("A1", (100, 140), 200), ("A0", (50, 90), 160)]
)
def test_dispatch_without_previous_event_waits_for_everything(recorded_after, dispatch, makespan):
    """vllm-project/vllm#38451: DeepEP without an event waits for all that compute holds."""
    record = "u0 record e compute"
    first, second = (record, "") if recorded_after == "A0" else ("", record)
    timeline = simulate(f"""program v1
        comm ep
        op A0 kind=attention ns=run:50
        op A1 kind=attention ns=run:50
        op D0 kind=dispatch comm=ep ns=data:40
        op G0 kind=experts ns=run:60
        u0 launch A0 compute
        {first}
        u1 launch A1 compute
        {second}
        u0 wait e a2a
        u0 launch D0 a2a
        u0 record d a2a
        u0 wait d compute
        u0 launch G0 compute
    """)
    assert when(timeline, "D0") == dispatch
    assert timeline.makespan_ns == makespan


@pytest.mark.parametrize("phases", ["data:50", "notify:0,data:50"])
def test_long_collective_on_the_early_rank_is_waiting(phases):
    """deepseek-ai/DeepEP#261: starts at 0 and 300, both end at 350; 300 of it is waiting."""
    timeline = simulate(
        f"program v1 ranks=2\ncomm ep\nop d kind=dispatch comm=ep ns={phases}\nu0 launch d a2a",
        skew_ns={1: 300},
    )
    assert when(timeline, "d", rank=0) == (0, 350)
    assert when(timeline, "d", rank=1) == (300, 350)
    early, late = measure(timeline).ranks.values()
    assert (early.exposed_ns, early.peer_wait_ns) == (50, 300)
    assert (late.exposed_ns, late.peer_wait_ns) == (50, 0)


@pytest.mark.parametrize(
    ("schedule", "experts", "makespan"),
    [("sequential", 200, 450_000), ("dbo-ht", 100, 337_500), ("dbo-ht", 200, 537_500)],
)
def test_half_the_tokens_is_not_half_the_time(schedule, experts, makespan):
    """sgl-project/sglang#9660: tile-bound experts take as long for half the tokens."""
    program = build_program(small_workload(1, shared=0), schedule)
    scale = 1 if schedule == "sequential" else 0.5

    def durations(op):
        costs = {"attention": 100 * scale, "dispatch": 75 * scale, "combine": 75 * scale}
        costs["experts"] = experts
        return {"data" if op.comm else "run": round(1000 * costs.get(op.kind, 0))}

    assert simulate(with_durations(program, durations)).makespan_ns == makespan


@pytest.mark.parametrize(
    ("order", "connections", "makespan"),
    [("D1 D2 C1", 8, 24), ("D1 D2 C1", 1, 32), ("D1 C1 D2", 1, 24)],
)
def test_one_hardware_queue_serialises_streams(order, connections, makespan):
    """NVIDIA/Megatron-LM#1468: with one connection a kernel that waits blocks those behind it."""
    streams = {"D1": "comm", "D2": "comm", "C1": "compute"}
    launches = "\n".join(f"u0 launch {op} {streams[op]}" for op in order.split())
    timeline = simulate(
        "program v1\n"
        "op D1 kind=x ns=run:12\nop D2 kind=x ns=run:12\nop C1 kind=experts ns=run:20\n" + launches,
        gpu=Gpu(contention="none", connections=connections),
    )
    assert timeline.makespan_ns == makespan


@pytest.mark.parametrize(("transport", "makespan"), [("nccl", 40), ("deepep", 20)])
def test_nccl_serialises_one_communicator(transport, makespan):
    """sgl-project/sglang#31117: NCCL chains a communicator's ops by itself, from any stream."""
    timeline = simulate(f"""program v1
        stream m0
        stream m1
        comm k transport={transport}
        op d kind=dispatch comm=k ns=data:20
        op c kind=combine comm=k ns=data:20
        u0 launch d m0
        u1 launch c m1
    """)
    assert timeline.makespan_ns == makespan


def test_wait_before_the_record_passes_at_once():
    """sgl-project/sglang#14214: the event is unrecorded when waited for, so B does not wait."""
    timeline = simulate("""program v1
        op A kind=x ns=run:10
        op B kind=x ns=run:10
        u0 wait e aux
        u0 launch B aux
        u0 launch A compute
        u0 record e compute
    """)
    assert when(timeline, "B") == (0, 10)


def test_wait_sees_the_record_before_it_and_no_later_one():
    """CUDA: a wait refers to the latest record made before the wait call."""
    timeline = simulate("""program v1
        op A kind=x ns=run:10
        op B kind=x ns=run:10
        op C kind=x ns=run:1
        u0 launch A compute
        u0 record e compute
        u0 wait e aux
        u0 launch B compute
        u0 record e compute
        u0 launch C aux
    """)
    assert when(timeline, "C") == (10, 11)


def test_empty_rank_meets_the_busy_one():
    """vllm-project/vllm#51984: a rank without tokens takes part, and waits for the other."""
    timeline = simulate("""program v1 ranks=2
        comm ep
        plan ranks=0
        op a kind=attention ns=run:100
        op d kind=dispatch comm=ep tokens=128 ns=data:40
        u0 launch a compute
        u0 record e compute
        u0 wait e a2a
        u0 launch d a2a
        plan ranks=1
        op d kind=dispatch comm=ep ns=data:0
        u0 launch d a2a
    """)
    assert when(timeline, "d", rank=0) == (100, 140)
    assert when(timeline, "d", rank=1) == (0, 140)


def test_normal_dispatch_holds_the_host_until_notify_ends():
    """deepseek-ai/DeepEP#62: launches after it cannot be issued before its notify has ended."""
    timeline = simulate("""program v1
        comm ep
        op d kind=dispatch comm=ep blocks-host ns=layout:3,notify:10,data:60
        op x kind=attention ns=run:5
        u0 launch d a2a
        u0 launch x compute
    """)
    assert when(timeline, "d", phase="data") == (13, 73)
    assert when(timeline, "x") == (13, 18)
    assert measure(timeline).mean.host_blocked_ns == 13


def test_event_of_the_same_stream_costs_no_latency():
    """Stream order has seen to it already; only another stream's event takes event_ns."""
    text = """program v1
        op A kind=x ns=run:100
        op B kind=x ns=run:10
        u0 launch A compute
        u0 record e compute
        u0 wait e {stream}
        u0 launch B {stream}
    """
    gpu = Gpu(contention="none", event_ns=1500)
    assert when(simulate(text.format(stream="compute"), gpu=gpu), "B") == (100, 110)
    assert when(simulate(text.format(stream="aux"), gpu=gpu), "B") == (1600, 1610)
