"""Random programs: the model against the longest path, and against itself."""

from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import longest_path, phases
from random_programs import programs

from dbo_sched import DeadlockError
from dbo_sched.critical import time_on_path
from dbo_sched.plan import Launch
from sim import Gpu, Host, SimBackend

costs = st.integers(0, 9)
hosts = st.builds(
    Host,
    launch_ns=costs,
    comm_launch_ns=costs,
    resume_ns=costs,
    record_ns=costs,
    wait_ns=costs,
    hand_over_ns=costs,
    threads=st.booleans(),
)
latencies = {"stream_ns": costs, "event_ns": costs, "idle_ns": costs}
ideal_gpus = st.builds(Gpu, contention=st.just("none"), **latencies)
real_gpus = st.builds(Gpu, sms=st.just(8), connections=st.integers(1, 4), **latencies)
skews = st.dictionaries(st.just(0), st.integers(0, 99))


def run(program, host, gpu, skew, **more):
    """A timeline, or ``None`` for a deadlock."""
    try:
        return SimBackend("fixed", host=host, gpu=gpu, skew_ns=skew, **more).run(program)[0]
    except DeadlockError as error:
        assert error.chain
        return None


@settings(max_examples=600, deadline=None)
@given(programs(), hosts, ideal_gpus, skews)
def test_without_contention_the_makespan_is_the_longest_path(program, host, gpu, skew):
    timeline = run(program, host, gpu, skew)
    assert (timeline and timeline.makespan_ns) == longest_path(program, host, gpu, skew)


@settings(max_examples=600, deadline=None)
@given(programs(), hosts, real_gpus, skews)
def test_contention_only_adds(program, host, gpu, skew):
    timeline = run(program, host, gpu, skew)
    bound = longest_path(program, host, gpu, skew)
    if timeline is None:
        return
    assert bound is not None
    assert timeline.makespan_ns >= bound
    for plan in program.plans:
        ops = {op.id: op for op in plan.ops}
        busy = defaultdict(int)
        for command in plan.commands:
            if isinstance(command, Launch):
                busy[command.stream] += sum(ns for _, ns in phases(ops[command.op]))
        assert timeline.makespan_ns >= max(busy.values(), default=0)


@settings(max_examples=300, deadline=None)
@given(programs(), hosts, real_gpus, skews)
def test_same_input_same_timeline(program, host, gpu, skew):
    assert run(program, host, gpu, skew) == run(program, host, gpu, skew)


@settings(max_examples=300, deadline=None)
@given(programs(spmd=True), hosts, real_gpus)
def test_collapsed_and_full_agree(program, host, gpu):
    collapsed = run(program, host, gpu, {})
    full = run(program, host, gpu, {}, collapse=False)
    assert (collapsed is None) == (full is None)
    if full is not None:
        assert collapsed.header.represents == {0: tuple(range(program.ranks))}
        assert list(full.host(0)) + list(full.gpu(0)) == list(collapsed.host()) + list(
            collapsed.gpu()
        )
        for rank in full.ranks:
            spans = [(s.op, s.phase, s.start_ns, s.end_ns) for s in full.gpu(rank)]
            assert spans == [(s.op, s.phase, s.start_ns, s.end_ns) for s in collapsed.gpu()]


@settings(max_examples=300, deadline=None)
@given(programs(), hosts, real_gpus)
def test_critical_path_adds_up_to_the_makespan(program, host, gpu):
    timeline = run(program, host, gpu, {})
    if timeline is not None:
        times = time_on_path(timeline)
        assert sum(times.values()) == timeline.makespan_ns
