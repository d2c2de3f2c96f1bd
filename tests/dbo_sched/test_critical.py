"""The critical path against periods whose bounds are known."""

from collections import Counter

from support import UNIT, simulate, small_workload, unit_program

from dbo_sched import build_program
from dbo_sched.critical import critical_path, time_on_path
from dbo_sched.plan import with_durations
from sim import Host, SimBackend


def test_sequential_is_critical_all_through():
    times = time_on_path(simulate(unit_program("sequential", layers=3, shared=3)))
    assert times == {
        kind: round(3 * units * UNIT)
        for kind, units in {
            "attention": 20,
            "dispatch": 13.3,
            "experts": 16,
            "combine": 16,
            "shared_experts": 6,
            "output_copy": 1,
        }.items()
    }


def test_dbo_ht_without_shared_experts_goes_through_ubatch_0():
    """Period 36.5: A0 and A1 10 each, G0 8, C0 8, K0 .5; the last layer ends with ubatch 1."""
    timeline = simulate(unit_program("dbo-ht", layers=4))
    steady = [s for s in critical_path(timeline) if s.layer == 2 and s.end_ns > s.start_ns]
    assert Counter(s.op.split(".", 1)[1] for s in steady) == Counter(
        ["u0.attention", "u1.attention", "u0.experts", "u0.combine", "u0.output_copy"]
    )
    assert sum(time_on_path(timeline).values()) == timeline.makespan_ns


def test_late_peer_is_followed():
    """Rank 1's dispatch waits for rank 0's attention of 100."""
    timeline = simulate("""program v1 ranks=2
        comm ep
        plan ranks=0
        op a kind=attention ns=run:100
        op d kind=dispatch comm=ep ns=data:40
        u0 launch a compute
        u0 record e compute
        u0 wait e a2a
        u0 launch d a2a
        plan ranks=1
        op d kind=dispatch comm=ep ns=data:40
        op g kind=experts ns=run:60
        u0 launch d a2a
        u0 record e a2a
        u0 wait e compute
        u0 launch g compute
    """)
    path = [(span.rank, span.op) for span in critical_path(timeline)]
    assert path == [(0, "a"), (0, "d"), (1, "g")]
    assert time_on_path(timeline) == {"attention": 100, "dispatch": 40, "experts": 60}


def test_host_bound_step_is_the_hosts():
    """Kernels of 1 behind launches of 100: the path is the host's, and the last kernel."""
    program = build_program(small_workload(1, shared=0), "sequential")
    program = with_durations(program, lambda op: {"data" if op.comm else "run": 1})
    timeline = simulate(program, host=Host(launch_ns=100, comm_launch_ns=100, resume_ns=100))
    times = time_on_path(timeline)
    assert sum(times.values()) == timeline.makespan_ns
    assert times["host"] == 800  # 7 ops, dispatch twice: its notify and data
    assert times["merge"] == 1


def test_real_workload_adds_up():
    from dbo_sched import Deployment, Workload, load_model, prompts

    workload = Workload(
        model=load_model("deepseek-v3").with_layers(6),
        deployment=Deployment(system="h100", nodes=4, ep=32),
        batches=(prompts(8192, 4096),),
    )
    timeline = SimBackend().run(build_program(workload, "dbo-ht"))[0]
    assert sum(time_on_path(timeline).values()) == timeline.makespan_ns


def test_host_waits_lead_to_what_they_waited_for():
    """A 100, the host waits for it, then B 50 on another stream; with and without launch costs."""
    text = """program v1
        op A kind=attention ns=run:100
        op B kind=experts ns=run:50
        u0 launch A compute
        u0 record e compute
        u0 host-wait e
        u0 launch B aux
    """
    assert time_on_path(simulate(text)) == {"attention": 100, "experts": 50}
    costly = time_on_path(simulate(text, host=Host(launch_ns=5)))
    assert costly == {"attention": 100, "experts": 50, "host": 10}
