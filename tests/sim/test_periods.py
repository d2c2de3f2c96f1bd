"""Steady periods of the shipped schedules under unit costs, each derived by hand.

Per ubatch: attention A 10, layout .3, notify n 1, dispatch data D 6, experts G 8, combine C 8,
output copy K .5 on the comm stream, merge 0, shared experts S 0 or 3. An unsplit batch takes the
double of all but layout and notify. C lane, A2A lane: what bounds the period is written beside it.
"""

import pytest
from support import UNIT, period, simulate, unit_program, when

from dbo_sched.metrics import overlaps
from sim import Host

CASES = [
    # schedule, ubatches, S = 0, S = 3
    ("sequential", None, 66.3, 72.3),  # 20 + 1.3 + 12 + 16 + 16 + 1 (+ 6)
    ("shared-overlap", None, 66.3, 66.3),  # the same, S under combine
    ("early-dispatch", None, 39.1, 44.6),  # 10 + 1.3 + 10 + 1.3 + 8 + 8 + .5; 2 (10 + 8 + 3 + 1.3)
    ("dbo-ht-late-event", None, 59.1, 59.1),  # 20 + 2 (1.3 + 6) + 16 + 8 + .5
    ("dbo-ht", None, 36.5, 42.0),  # 10 + 10 + 8 + 8 + .5; 2 (10 + 8 + 3)
    ("dbo-ht-original", None, 36.5, 42.0),
    ("dbo-ht", 3, 54.0, 63.0),  # 3 (10 + 8); 3 (10 + 8 + 3)
]


@pytest.mark.parametrize(("schedule", "ubatches", "without", "with_shared"), CASES)
def test_period(schedule, ubatches, without, with_shared):
    assert period(schedule, ubatches=ubatches) == without
    assert period(schedule, ubatches=ubatches, shared=3) == with_shared


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [("shared-overlap", 66.35), ("dbo-ht-late-event", 59.2), ("dbo-ht", 36.5)],
)
def test_period_with_launch_costs(schedule, expected):
    """Each launch .05, the resume one launch: exposed once per dispatch that nothing hides."""
    host = Host(launch_ns=50, comm_launch_ns=50, resume_ns=50)
    assert period(schedule, host=host) == expected


@pytest.mark.parametrize("ubatches", [1, 2, 3])
def test_sequential_runs_ubatch_after_ubatch(ubatches):
    program = unit_program("sequential", layers=2, ubatches=ubatches)
    scale = 2 if ubatches == 1 else 1
    layer = 1.3 + scale * (10 + 6 + 8 + 8 + 0.5)
    assert simulate(program).makespan_ns == round(2 * ubatches * layer * UNIT)


@pytest.mark.parametrize(("schedule", "gap"), [("dbo-ht-original", 500), ("dbo-ht", 0)])
def test_combine_of_ubatch_1_waits_for_the_copy_only_in_the_original(schedule, gap):
    timeline = simulate(unit_program(schedule, layers=3))
    _, end = when(timeline, "L1.u0.combine")
    start, _ = when(timeline, "L1.u1.combine")
    assert start - end == gap


def pairs(schedule, shared):
    """Which ops of layer 1 and the next attention each collective of layer 1 runs beside."""
    timeline = simulate(unit_program(schedule, layers=3, shared=shared))
    return {
        (collective.removeprefix("L1."), compute.removeprefix("L1."))
        for collective, compute in overlaps(timeline, 0)
        if collective.startswith("L1.")
    }


DBO_PAIRS = {
    ("u0.dispatch", "u1.attention"),
    ("u1.dispatch", "u0.experts"),
    ("u0.combine", "u1.experts"),
    ("u1.combine", "L2.u0.attention"),
}


def test_overlap_pairs_of_dbo_ht():
    assert pairs("dbo-ht", 0) == DBO_PAIRS
    shared = {("u1.combine", "u0.shared_experts"), ("u1.combine", "u1.shared_experts")}
    assert pairs("dbo-ht", 3) == DBO_PAIRS | shared


def test_overlap_pairs_of_the_late_event():
    assert pairs("dbo-ht-late-event", 0) == {("u1.combine", "L2.u0.attention")}
    assert pairs("dbo-ht-late-event", 3) == {
        ("u0.combine", "u0.shared_experts"),
        ("u0.combine", "u1.shared_experts"),
        ("u1.combine", "L2.u0.attention"),
    }
