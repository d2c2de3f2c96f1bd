"""Who gets how much memory bandwidth: 100 bytes/ns, latencies 0, all times derived by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_programs import programs, two_plans
from support import simulate, when

from dbo_sched import DeadlockError, InputError, TimeLimitError
from dbo_sched.text import from_text
from sim import Gpu, Host, SimBackend

IDEAL = Gpu(contention="none", memory_gbps=100)
REAL = Gpu(sms=10, memory_gbps=100)


def run(*lines, gpu=IDEAL, ranks=1, **more):
    head = [f"program v1 ranks={ranks}", "comm ep"]
    return simulate("\n".join([*head, *lines]), gpu=gpu, **more)


def op(name, demand, ns, more="kind=x", phase="run"):
    """A kernel that demands ``demand`` bytes/ns."""
    return f"op {name} {more} bytes={demand * ns} ns={phase}:{ns}"


def comm(demand, ns, sms=""):
    return op("comm", demand, ns, f"kind=dispatch comm=ep {sms}", "data")


TWO = (op("a", 80, 100), op("b", 60, 100), "u0 launch a compute", "u0 launch b aux")


def test_two_kernels_share_evenly():
    """Both get 50, speeds 5/8 and 5/6: b ends at 120, and a has 100 - 75 left, alone."""
    timeline = run(*TWO)
    assert when(timeline, "b") == (0, 120)
    assert when(timeline, "a") == (0, 145)


@pytest.mark.parametrize(("demand", "end"), [(80, 100), (90, 112), (200, 220)])
def test_a_small_demand_is_satisfied_first(demand, end):
    """b gets its 20, and a 80. 80 of 90: 100/9 of a's 100 are left at 100, whole ns count. 80 of
    200: 60 are left, and alone a still gets but half of what it demands."""
    lines = op("a", demand, 100), op("b", 20, 100), "u0 launch a compute", "u0 launch b aux"
    timeline = run(*lines)
    assert when(timeline, "b") == (0, 100)
    assert when(timeline, "a") == (0, end)


def test_who_moves_nothing_is_never_slowed():
    """c moves nothing, d takes no time; a alone gets half of its 200."""
    timeline = run(
        op("a", 200, 100),
        "op c kind=x ns=run:150",
        "op d kind=x bytes=1000 ns=run:0",
        "u0 launch a compute",
        "u0 launch c aux",
        "u0 launch d comm",
    )
    assert [when(timeline, name) for name in "acd"] == [(0, 200), (0, 150), (0, 0)]


def test_not_shared_where_no_bandwidth_is_given():
    timeline = run(*TWO, gpu=Gpu(contention="none"))
    assert timeline.makespan_ns == 100


def test_a_kernel_that_is_over_within_a_nanosecond_ends_with_it():
    """b, 102 at 5/6, ends at 123. a has 100 - 76.875 left and is over at 146.125; that c starts at
    147 does not matter to it, though c's start is looked at first."""
    timeline = run(
        op("a", 80, 100),
        op("b", 60, 102),
        "op before kind=x ns=run:47",
        op("c", 1000, 10),
        "u0 launch a compute",
        "u0 launch b aux",
        "u0 launch before comm",
        "u0 launch c comm",
        gpu=Gpu(contention="none", memory_gbps=100, stream_ns=100),
    )
    assert when(timeline, "b") == (0, 123)
    assert when(timeline, "a") == (0, 147)
    assert when(timeline, "c") == (147, 247)


# CTAs


def test_data_phase_slows_a_grid_in_the_middle():
    """Two waves of 100, 60 bytes/ns. From 20 on both get 50. The data phase, 50 at 5/9, ends at
    110; the grid has done 20 + 75 by then, its first wave ends at 115, its second at 215."""
    timeline = run(
        op("gemm", 60, 200, "kind=x tiles=16 sms=8"),
        "op before kind=x ns=run:20",
        comm(90, 50, "sms=2"),
        "u0 launch gemm compute",
        "u0 launch before a2a",
        "u0 launch comm a2a",
        gpu=REAL,
    )
    assert when(timeline, "comm") == (20, 110)
    assert when(timeline, "gemm") == (0, 215)


def test_a_grid_short_of_sms_demands_as_much_as_ever():
    """The gang asks at 20 and gets 4 of the 10 SMs at 100, when the first wave ends. 50 each: the
    gang, 60 at 5/8, ends at 196. The grid's last 4 CTAs, unslowed, run from 196."""
    timeline = run(
        op("gemm", 60, 200, "kind=x tiles=20"),
        "op before kind=x ns=run:20",
        comm(80, 60, "sms=4"),
        "u0 launch gemm compute",
        "u0 launch before a2a",
        "u0 launch comm a2a",
        gpu=REAL,
    )
    assert when(timeline, "comm") == (100, 196)
    assert when(timeline, "gemm") == (0, 296)


def test_a_grid_without_ctas_in_flight_moves_nothing():
    """The gang takes all SMs between the two waves, and all the bandwidth."""
    timeline = run(
        op("gemm", 60, 200, "kind=x tiles=20"),
        "op before kind=x ns=run:20",
        comm(100, 50, "sms=10"),
        "u0 launch gemm compute",
        "u0 launch before a2a",
        "u0 launch comm a2a",
        gpu=REAL,
    )
    assert when(timeline, "comm") == (100, 150)
    assert when(timeline, "gemm") == (0, 250)


def test_a_gang_waits_for_the_sms_of_a_slowed_grid():
    """a, one wave of 100 at 5/8, and b, without SMs, end at 160; the gang that wants a's SMs, and
    that the grid would have let in at 100, starts then."""
    timeline = run(
        op("a", 80, 100, "kind=x tiles=10"),
        op("b", 80, 100),
        comm(0, 30, "sms=10"),
        "u0 launch a compute",
        "u0 launch b aux",
        "u0 launch comm a2a",
        gpu=REAL,
    )
    assert when(timeline, "a") == when(timeline, "b") == (0, 160)
    assert when(timeline, "comm") == (160, 190)


# Ranks


def test_a_collective_goes_as_slowly_as_its_slowest_rank():
    """The data phase waits for rank 1 until 100 and moves nothing. Then rank 0 has 50 for each:
    data, 50 at 5/6, ends at 160 on both ranks; a has 12.5 of its 150 left then."""
    timeline = run(
        "plan ranks=0",
        op("a", 80, 150),
        comm(60, 50),
        "u0 launch comm a2a",
        "u0 launch a compute",
        "plan ranks=1",
        "op late kind=x ns=run:100",
        comm(60, 50),
        "u0 launch late a2a",
        "u0 launch comm a2a",
        ranks=2,
    )
    assert when(timeline, "comm", 0) == (0, 160)
    assert when(timeline, "comm", 1) == (100, 160)
    assert when(timeline, "a", 0) == (0, 173)


def test_a_rank_that_another_slows_demands_as_much_as_ever():
    """Rank 0 gives data a third, 5/9 of its demand, so it takes 180; b gets but 50 on rank 1."""
    timeline = run(
        "plan ranks=0",
        op("a1", 100, 1000),
        op("a2", 100, 1000),
        comm(60, 100),
        "u0 launch a1 compute",
        "u0 launch a2 aux",
        "u0 launch comm a2a",
        "plan ranks=1",
        op("b", 60, 100),
        comm(60, 100),
        "u0 launch b compute",
        "u0 launch comm a2a",
        ranks=2,
    )
    assert when(timeline, "comm", 0) == when(timeline, "comm", 1) == (0, 180)
    assert when(timeline, "b", 1) == (0, 120)


def test_a_collective_spreads_a_ranks_bytes_over_its_life():
    """Rank 1 would move its 8000 in 80 alone; over the 160 of rank 0 it is 50 bytes/ns."""
    timeline = run(
        "plan ranks=0",
        comm(0, 160),
        "u0 launch comm a2a",
        "plan ranks=1",
        op("b", 50, 160),
        comm(100, 80),
        "u0 launch b compute",
        "u0 launch comm a2a",
        ranks=2,
    )
    assert when(timeline, "comm", 1) == when(timeline, "b", 1) == (0, 160)


@pytest.mark.parametrize("collapse", [True, False])
@pytest.mark.parametrize(("ranks_per_gpu", "end"), [(1, 100), (2, 160), (4, 320)])
def test_ranks_on_one_gpu_share_its_memory(ranks_per_gpu, end, collapse):
    """80 bytes/ns each: alone all of them, for two 50, for four 25."""
    gpu = Gpu(contention="none", memory_gbps=100, ranks_per_gpu=ranks_per_gpu)
    lines = op("a", 80, 100), "u0 launch a compute"
    timeline = run(*lines, ranks=4, gpu=gpu, collapse=collapse)
    assert len(timeline.ranks) == (1 if collapse else 4)
    assert {when(timeline, "a", rank) for rank in timeline.ranks} == {(0, end)}


GPU_MATES = """program v1 ranks=6
    plan ranks=0-2,4-5
    op a kind=x bytes=8000 ns=run:100
    u0 launch a compute
    plan ranks=3
    op a kind=x bytes=4000 ns=run:100
    u0 launch a compute
"""


def test_ranks_are_alike_only_where_their_gpus_are():
    """Two of 80 get 50 each. Beside 40, which are satisfied, 80 get 60: 75 are done at 100."""
    gpu = Gpu(contention="none", memory_gbps=100, ranks_per_gpu=2)
    timeline = simulate(GPU_MATES, gpu=gpu)
    assert timeline.header.represents == {0: (0, 1, 4, 5), 2: (2,), 3: (3,)}
    assert [when(timeline, "a", rank)[1] for rank in (0, 2, 3)] == [160, 125, 100]


def test_a_late_rank_makes_its_gpu_another():
    gpu = Gpu(contention="none", memory_gbps=100, ranks_per_gpu=2)
    timeline = simulate(GPU_MATES, gpu=gpu, skew_ns={4: 1000})
    assert timeline.header.represents == {0: (0, 1), 2: (2,), 4: (4,), 5: (5,), 3: (3,)}
    assert when(timeline, "a", 5) == (0, 100)


@pytest.mark.parametrize("gpu", [Gpu(ranks_per_gpu=2), Gpu(memory_gbps=100)])
def test_gpu_mates_do_not_matter_where_nothing_is_shared(gpu):
    assert simulate(GPU_MATES, gpu=gpu).header.represents == {0: (0, 1, 2, 4, 5), 3: (3,)}


# Settings


@pytest.mark.parametrize(
    ("gpu", "message"),
    [
        (Gpu(memory_gbps=0), "memory_gbps is 0"),
        (Gpu(memory_gbps=-1), "memory_gbps is -1; give GB/s above 0"),
        (Gpu(memory_gbps=-1.5), "memory_gbps is -1.5"),
        (Gpu(memory_gbps=float("nan")), "memory_gbps is nan"),
        (Gpu(memory_gbps=float("inf")), "memory_gbps is inf"),
        (Gpu(ranks_per_gpu=0), "ranks_per_gpu is 0"),
        (Gpu(ranks_per_gpu=2), "3 ranks do not fill GPUs of 2 ranks"),
    ],
)
def test_impossible_settings(gpu, message):
    with pytest.raises(InputError, match=message):
        run("op a kind=x ns=run:1", "u0 launch a compute", ranks=3, gpu=gpu)


def test_the_timeline_says_what_is_shared():
    gpu = Gpu(memory_gbps=2680.5, ranks_per_gpu=2)
    notes = simulate(GPU_MATES, gpu=gpu).header.notes
    assert any("2 ranks on each, 2680.5 GB/s of memory for all kernels" in note for note in notes)
    assert any("bandwidth shared max-min fair" in note for note in notes)
    assert not any("no shared bandwidth" in note for note in notes)


def test_configured(monkeypatch):
    """The bandwidth comes from the GPU; sharing can be left out."""
    monkeypatch.setattr("sim.backend.default_gpu", lambda *_: Gpu(memory_gbps=100))
    program = from_text(GPU_MATES)

    def end(**settings):
        backend = SimBackend.configured(costs="fixed", host="free", latencies=False, **settings)
        return backend.run(program)[0].makespan_ns

    assert end() == 100
    assert end(ranks_per_gpu=2) == 160
    assert end(ranks_per_gpu=2, memory_sharing=False) == 100


@pytest.mark.parametrize("limit_ns", [145, 146, 1000])
def test_a_limit_behind_the_end_is_none(limit_ns):
    assert run(*TWO, limit_ns=limit_ns).makespan_ns == 145


@pytest.mark.parametrize("limit_ns", [99, 100, 120, 144])
def test_a_limit_before_the_end(limit_ns):
    with pytest.raises(TimeLimitError):
        run(*TWO, limit_ns=limit_ns)


# Random programs

costs = st.integers(0, 9)
hosts = st.builds(Host, launch_ns=costs, comm_launch_ns=costs, resume_ns=costs, record_ns=costs)
latencies = {"stream_ns": costs, "event_ns": costs, "idle_ns": costs}
bandwidths = st.sampled_from((7, 33.3, 60, 100))
ideal_gpus = st.builds(Gpu, contention=st.just("none"), memory_gbps=bandwidths, **latencies)
real_gpus = st.builds(
    Gpu, sms=st.just(8), memory_gbps=bandwidths, connections=st.integers(1, 4), **latencies
)
skews = st.dictionaries(st.integers(0, 3), st.sampled_from((0, 20)))


def predict(program, host, gpu, **more):
    """A timeline, or ``None`` for a deadlock."""
    try:
        return SimBackend("fixed", host=host, gpu=gpu, **more).run(program)[0]
    except DeadlockError as error:
        assert error.chain
        return None


def whole(gpu, **changes):
    return Gpu(**{**vars(gpu), **changes})


@settings(max_examples=300, deadline=None)
@given(programs(), hosts, real_gpus | ideal_gpus)
def test_below_capacity_nothing_changes(program, host, gpu):
    ample = predict(program, host, whole(gpu, memory_gbps=1e9, ranks_per_gpu=program.ranks))
    alone = predict(program, host, whole(gpu, memory_gbps=None))
    assert (ample and (ample.spans, ample.edges)) == (alone and (alone.spans, alone.edges))


@settings(max_examples=300, deadline=None)
@given(programs(), hosts, ideal_gpus)
def test_sharing_only_adds(program, host, gpu):
    shared = predict(program, host, whole(gpu, ranks_per_gpu=program.ranks))
    alone = predict(program, host, whole(gpu, memory_gbps=None))
    assert (shared is None) == (alone is None)
    if shared is not None:
        ends = {(s.rank, s.op, s.phase): s.end_ns for s in alone.gpu()}
        for span in shared.gpu():
            assert span.end_ns >= ends[span.rank, span.op, span.phase]


@settings(max_examples=400, deadline=None)
@given(two_plans(), hosts, real_gpus | ideal_gpus, st.sampled_from((1, 2, 4)), skews)
def test_collapsed_and_full_agree(program, host, gpu, ranks_per_gpu, skew_ns):
    gpu = whole(gpu, ranks_per_gpu=ranks_per_gpu)
    collapsed = predict(program, host, gpu, skew_ns=skew_ns)
    full = predict(program, host, gpu, skew_ns=skew_ns, collapse=False)
    assert (collapsed is None) == (full is None)
    if full is not None:
        for rank, twins in collapsed.header.represents.items():
            spans = [(s.op, s.phase, s.start_ns, s.end_ns) for s in collapsed.gpu(rank)]
            for twin in twins:
                assert spans == [(s.op, s.phase, s.start_ns, s.end_ns) for s in full.gpu(twin)]


@settings(max_examples=200, deadline=None)
@given(programs(), hosts, real_gpus)
def test_same_input_same_timeline(program, host, gpu):
    assert predict(program, host, gpu) == predict(program, host, gpu)
