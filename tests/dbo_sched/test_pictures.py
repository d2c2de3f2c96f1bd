"""Pictures and Chrome traces show what the timeline holds."""

import json
from collections import Counter

import pytest
from matplotlib.colors import to_hex
from support import simulate, unit_program

from dbo_sched import InputError
from dbo_sched.plot import COLOURS, draw, timeline_png
from dbo_sched.trace.export import to_chrome, to_json
from sim import Host

HOST = Host(launch_ns=50, comm_launch_ns=50, resume_ns=50)


@pytest.fixture(scope="module")
def timeline():
    return simulate(unit_program("dbo-ht", layers=3, shared=3), host=HOST)


def late_rank():
    text = "program v1 ranks=2\ncomm ep\nop d kind=dispatch comm=ep ns=data:50\nu0 launch d a2a"
    return simulate(text, skew_ns={1: 300})


def bars(axes):
    """(x, y, width, hatched, colour) of every bar."""
    return [
        (box.x0, round((box.y0 + box.y1) / 2), box.width, bool(bar.get_hatch()), bar)
        for bar in axes.collections
        for box in (path.get_extents() for path in bar.get_paths())
    ]


def test_one_lane_per_stream_and_one_for_the_host(timeline):
    axes = draw([timeline]).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        *("host", "compute", "a2a", "comm"),
    ]


def test_one_panel_per_timeline_on_one_scale(timeline):
    sequential = simulate(unit_program("sequential", layers=3), host=HOST)
    first, second = draw([sequential, timeline]).axes
    assert first.get_xlim() == second.get_xlim() == (0, pytest.approx(66.35 * 3, rel=0.01))
    assert "sequential" in first.get_title(loc="left")
    assert f"program {timeline.header.program_hash}" in second.get_title(loc="left")


def test_ubatches_have_their_colours(timeline):
    axes = draw([timeline]).axes[0]
    row = [tick.get_text() for tick in axes.get_yticklabels()].index("a2a")
    colours = Counter(to_hex(bar.get_facecolor()[0]) for _, y, _, _, bar in bars(axes) if y == -row)
    assert set(colours) == set(COLOURS[:2])


def test_ops_are_labelled_and_waits_are_arrows(timeline):
    axes = draw([timeline]).axes[0]
    labels = {text.get_text() for text in axes.texts}
    assert {"attention", "disp", "experts", "combine", "S"} <= labels
    arrows = [text for text in axes.texts if getattr(text, "arrow_patch", None) is not None]
    assert len(arrows) == len(timeline.edges)


def test_host_blocks_are_hatched(timeline):
    axes = draw([timeline]).axes[0]
    hatched = [(x, width) for x, y, width, hatch, _ in bars(axes) if hatch and y == 0]
    blocks = [s for s in timeline.host(0) if s.phase == "block"]
    assert len(hatched) == len(blocks) == 6
    assert hatched[0] == pytest.approx((blocks[0].start_ns / 1e3, 11.05 - 0.15), abs=0.2)


def test_waiting_for_a_peer_is_hatched_and_the_transfer_is_not():
    axes = draw([late_rank()], rank=0).axes[0]
    assert [(x, width, hatch) for x, _, width, hatch, _ in bars(axes)] == [
        (0, 300, True),
        (300, 50, False),
    ]


def test_layers_choose_the_window(timeline):
    axes = draw([timeline], layers=(1, 1)).axes[0]
    assert axes.get_xlim()[1] < draw([timeline]).axes[0].get_xlim()[1]
    with pytest.raises(InputError, match="no kernel of layers 7 to 9; choose from layers 0-2"):
        draw([timeline], layers=(7, 9))
    with pytest.raises(InputError, match="no kernel of rank 5"):
        draw([timeline], rank=5)


def test_png_carries_its_origin(timeline):
    data = timeline_png([timeline])
    assert data.startswith(b"\x89PNG")
    assert timeline.header.program_hash.encode() in data
    assert timeline._repr_png_() == timeline_png([timeline])


# Chrome trace


def test_one_process_per_rank_and_one_thread_per_stream():
    events = to_chrome(late_rank())["traceEvents"]
    names = {(e["pid"], e["args"].get("name")) for e in events if e["ph"] == "M"}
    assert {(0, "rank 0"), (1, "rank 1"), (0, "a2a"), (1, "a2a")} <= names


def test_slices_are_the_spans(timeline):
    trace = json.loads(to_json(timeline))
    slices = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert len(slices) == len(timeline.spans)
    for event, span in zip(slices, timeline.spans, strict=True):
        assert round(event["ts"] * 1000) == span.start_ns
        assert round((event["ts"] + event["dur"]) * 1000) == span.end_ns
        assert event["args"]["op"] == span.op
    assert trace["otherData"]["program"] == timeline.header.program_hash


def test_flow_arrows_start_and_end_in_slices(timeline):
    events = to_chrome(timeline)["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    starts = {e["id"]: e for e in events if e["ph"] == "s"}
    ends = {e["id"]: e for e in events if e["ph"] == "f"}
    assert starts.keys() == ends.keys()
    # All but the last: nothing runs on the streams that the end of the step joins.
    assert len(starts) == len(timeline.edges) - 2
    for flow in (*starts.values(), *ends.values()):
        assert any(
            s["tid"] == flow["tid"] and s["ts"] <= flow["ts"] <= s["ts"] + s["dur"] for s in slices
        )
    for number, start in starts.items():
        assert start["ts"] <= ends[number]["ts"]
