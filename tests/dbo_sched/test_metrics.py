"""Metrics from timelines written down by hand."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbo_sched.intervals import intersect, length, subtract, union
from dbo_sched.metrics import BUBBLES, measure, overlaps
from dbo_sched.timeline import Header, Span, Timeline, from_json, to_json

spans_of = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)).map(sorted).map(tuple))


def points(intervals):
    return {point for start, end in intervals for point in range(start, end)}


@given(spans_of, spans_of)
def test_intervals_are_sets_of_points(left, right):
    a, b = union(left), union(right)
    assert points(a) == points(left)
    assert all(x[1] < y[0] for x, y in pairwise(a))
    assert points(intersect(a, b)) == points(a) & points(b)
    assert points(subtract(a, b)) == points(a) - points(b)
    assert length(a) == len(points(a))


def span(op, stream, start, end, *, kind="attention", phase="run", rank=0, comm=None):
    return Span(
        op=op,
        kind=kind,
        phase=phase,
        layer=0,
        ubatch=0,
        rank=rank,
        stream=stream,
        start_ns=start,
        end_ns=end,
        comm=comm,
    )


def timeline(*spans, represents=None):
    header = Header(
        backend="hand",
        versions={},
        program_hash="0",
        schedule="hand",
        represents=represents or {0: (0,)},
    )
    return Timeline(header=header, spans=spans)


def collective(start, end, *, phase="data", op="d", rank=0):
    return span(op, "a2a", start, end, kind="dispatch", phase=phase, rank=rank, comm="ep")


def test_transfer_under_compute_is_hidden_and_the_rest_exposed():
    """Compute 0-40 and 90-100, data 30-130: hidden 10 + 10, exposed 80."""
    metrics = measure(
        timeline(span("a", "compute", 0, 40), span("b", "aux", 90, 100), collective(30, 130))
    )
    assert (metrics.step_ns, metrics.mean.compute_ns) == (130, 50)
    assert (metrics.mean.data_ns, metrics.mean.hidden_ns, metrics.mean.exposed_ns) == (100, 20, 80)
    assert metrics.hidden_percent == pytest.approx(20)
    assert metrics.ranks[0].busy_ns == 130


def test_compute_on_two_streams_is_counted_once():
    metrics = measure(timeline(span("a", "compute", 0, 10), span("b", "aux", 5, 15)))
    assert (metrics.mean.compute_ns, metrics.hidden_percent) == (15, None)


def test_waiting_for_a_peer_is_no_transfer():
    """Notify: rank 0 from 0, rank 1 from 60, both to 70. Rank 0 computes until 20, so it waits
    from 20 to 60 without compute; 60 to 70 is notify itself."""
    spans = [span("a", "compute", 0, 20)]
    spans += [collective(0, 70, phase="notify"), collective(60, 70, phase="notify", rank=1)]
    metrics = measure(timeline(*spans, represents={0: (0,), 1: (1,)}))
    first, second = metrics.ranks.values()
    assert (first.peer_wait_ns, second.peer_wait_ns) == (40, 0)
    assert first.bubbles == {
        **dict.fromkeys(BUBBLES, 0),
        "peer wait": 40,
        "layout and notify": 10,
    }
    assert metrics.mean.peer_wait_ns == 20


def test_layout_meets_nobody():
    spans = [collective(0, 70, phase="layout"), collective(60, 90, phase="layout", rank=1)]
    metrics = measure(timeline(*spans, represents={0: (0,), 1: (1,)}))
    assert [rank.peer_wait_ns for rank in metrics.ranks.values()] == [0, 0]


def test_bubbles_split_the_time_without_compute():
    """0-10 compute, 10-14 layout, 14-20 host block alone, 20-30 data, 30-33 copy, 33-40 nothing,
    40-50 compute. The block goes on to 32 beneath the others and counts only where it is alone."""
    metrics = measure(
        timeline(
            span("a", "compute", 0, 10),
            collective(10, 14, phase="layout"),
            span("d", "host", 12, 32, kind="host", phase="block"),
            collective(20, 30),
            span("k", "comm", 30, 33, kind="output_copy", phase="copy"),
            span("b", "compute", 40, 50),
        )
    )
    assert metrics.mean.bubbles == {
        "exposed transfer": 10,
        "peer wait": 0,
        "layout and notify": 4,
        "output copy": 3,
        "host block": 6,
        "gaps": 7,
    }
    assert sum(metrics.mean.bubbles.values()) + metrics.mean.compute_ns == metrics.step_ns
    assert metrics.mean.host_blocked_ns == 20


def test_means_weigh_the_ranks_that_one_stands_for():
    spans = [span("a", "compute", 0, 10), span("a", "compute", 0, 40, rank=3)]
    metrics = measure(timeline(*spans, represents={0: (0, 1, 2), 3: (3,)}))
    assert metrics.mean.compute_ns == round((3 * 10 + 40) / 4)


def test_overlaps_name_pairs():
    found = overlaps(
        timeline(
            span("a", "compute", 0, 40), collective(30, 130), collective(0, 9, phase="layout")
        ),
        0,
    )
    assert found == {("d", "a"): 10}


def test_empty_timeline_has_no_step():
    metrics = measure(timeline())
    assert (metrics.step_ns, metrics.hidden_percent) == (0, None)


def test_timeline_round_trips():
    made = timeline(span("a", "compute", 0, 40), collective(30, 130))
    assert from_json(to_json(made), "t") == made
