"""Calibrated profiles, and durations times a factor."""

import msgspec
import pytest
from costing import notes, workload

from dbo_sched import InputError, build_program
from dbo_sched.profile import Measured, Profile, read_profile, to_json
from sim import SimBackend
from sim.costs.choose import load_costs
from sim.costs.derived import DerivedCosts
from sim.costs.profiled import Profiled


def measured(*points):
    fields = ("kind", "phase", "tokens", "ns", "sms", "tiles")
    return tuple(Measured(**dict(zip(fields, point, strict=False))) for point in points)


POINTS = measured(
    ("attention", "qkv", 1024, 100_000, 0, 80),
    ("attention", "attend", 1024, 50_000, 0, 40),
    ("attention", "qkv", 4096, 400_000, 0, 320),
    ("attention", "attend", 4096, 800_000, 0, 160),
    ("dispatch", "data", 1024, 60_000, 20),
    ("dispatch", "data", 4096, 200_000, 20),
    ("dispatch", "notify", 1024, 9_000, 20),
    ("dispatch", "notify", 4096, 9_000, 20),
)


def profile(*points):
    return Profile(gpu="H200", sms=66, model="m", ranks=2, kernels=points or POINTS)


def costs(*points):
    return DerivedCosts(profile=Profiled(profile(*points), "p.json"))


def of(kind, tokens, costs, **more):
    program = build_program(workload(tokens, **more), "sequential")
    plan = program.plans[0]
    op = next(op for op in plan.ops if op.kind == kind)
    return costs.kernels(program, plan, op)


def test_points_come_back_and_lie_on_lines_between():
    found = of("attention", 4096, costs())
    assert [(k.phase, k.ns, k.tiles) for k in found] == [
        ("qkv", 400_000, 320),
        ("attend", 800_000, 160),
    ]
    assert found[0].origin == "profile:p.json H200, 4096 tokens"
    half = of("attention", 2560, costs())  # half way
    assert [(k.ns, k.tiles) for k in half] == [(250_000, 200), (425_000, 100)]
    assert half[0].origin == "profile:p.json H200, 2560 tokens, interpolated"


def test_collectives_keep_their_phases_gangs_and_layout_where_it_was_measured():
    found = of("dispatch", 4096, costs())
    assert [(k.phase, k.ns, k.sms, k.gang, k.meets) for k in found] == [
        ("notify", 9_000, 5, True, True),
        ("data", 200_000, 20, True, True),
    ]


@pytest.mark.parametrize(
    ("kind", "tokens", "more", "reason"),
    [
        ("attention", 8192, {}, "the profile has attention from 1024 to 4096 tokens only"),
        ("gate", 4096, {}, "the profile has no gate"),
        ("dispatch", 4096, {"comm_sms": 16}, "the profile has no dispatch with 16 SMs"),
    ],
)
def test_what_was_not_measured_is_auto_and_says_so(kind, tokens, more, reason):
    found = of(kind, tokens, costs(), **more)
    plain = of(kind, tokens, DerivedCosts(), **more)
    assert [k.ns for k in found] == [k.ns for k in plain]
    assert all(f"({reason})" in kernel.source for kernel in found)


def test_notes_name_the_profile_and_what_it_lacks():
    told = notes(workload(4096), costs())
    assert "attention, dispatch notify, dispatch data: measured, profile p.json H200" in told
    assert "(the profile has no combine with 20 SMs)" in told
    assert (
        "PROFILE OF ANOTHER SETTING: measured m on 2 ranks of 66 SMs, asked for deepseek-v3 on 32 "
        "ranks of 132 SMs"
    ) in told
    same = msgspec.structs.replace(profile(), model="deepseek-v3", ranks=32, sms=132)
    assert "ANOTHER" not in notes(workload(4096), DerivedCosts(profile=Profiled(same, "p")))


def test_commas_in_names_stay_out_of_the_source():
    named = msgspec.structs.replace(profile(), gpu="H200, 141 GB")
    found = of("attention", 4096, DerivedCosts(profile=Profiled(named, "p.json")))
    assert found[0].source == "profile:p.json H200 141 GB"


def test_file_round_trips_and_is_loaded_by_name(tmp_path):
    path = tmp_path / "h200.json"
    path.write_bytes(to_json(profile()))
    assert read_profile(path) == profile()
    found = of("attention", 4096, load_costs(f"profile:{path}"))
    assert found[0].origin.startswith("profile:h200.json H200")


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (measured(("a", "run", 1, 5), ("a", "run", 1, 6)), "a run with 1 tokens is there twice"),
        (
            measured(("dispatch", "send", 4096, 5, 20)),
            "dispatch has phases send; give a collective",
        ),
    ],
)
def test_senseless_profiles_are_refused(points, message):
    with pytest.raises(InputError, match=message):
        of("dispatch", 4096, costs(*points))


def test_other_versions_are_refused(tmp_path):
    path = tmp_path / "p.json"
    path.write_bytes(to_json(msgspec.structs.replace(profile(), version=2)))
    with pytest.raises(InputError, match="format version 2 is not known"):
        read_profile(path)


def test_factors_scale_one_kind_and_say_so():
    program = build_program(workload(), "sequential")
    plain = SimBackend().run(program)[0]
    scaled = SimBackend().scaled({"dispatch": 0.5}).run(program)[0]

    def spans(timeline, kind):
        return [s.end_ns - s.start_ns for s in timeline.gpu() if s.kind == kind]

    assert spans(scaled, "dispatch") == [round(ns * 0.5) for ns in spans(plain, "dispatch")]
    assert spans(scaled, "experts") == spans(plain, "experts")
    assert "SCALED: dispatch takes 0.5 times as long" in scaled.header.notes
    assert next(s for s in scaled.gpu() if s.kind == "dispatch").origin.endswith(", times 0.5")


def test_factors_of_the_host_scale_what_it_does_itself():
    program = build_program(workload(), "sequential")
    slow, free = (
        [s for s in SimBackend().scaled({"host": f}).run(program)[0].host() if s.phase == "launch"]
        for f in (2, 0)
    )
    assert {s.end_ns - s.start_ns for s in slow} == {2 * 15_700, 2 * 47_000}
    assert free == []
