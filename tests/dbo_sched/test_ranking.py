"""Comparisons: variants, sensitivities against whole steps, reasons, tables and the SM grid."""

import json
import re
from dataclasses import replace

import msgspec
import pytest
from costing import workload
from support import IDEAL, small_workload

from dbo_sched import InputError, build_program, rank_schedules
from dbo_sched.models import load_model
from dbo_sched.ranking import fastest, read_variant
from dbo_sched.routing import Routing
from dbo_sched.tables import comparison, sensitivities, sm_grid
from dbo_sched.why import explain
from sim import Host, SimBackend


def test_variants_are_schedules_with_options():
    variant = read_variant("dbo-ht:shared=no-overlap")
    assert (variant.schedule.name, variant.options) == ("dbo-ht", {"shared": "no-overlap"})
    assert variant.name == "dbo-ht:shared=no-overlap"
    assert read_variant("sequential").name == "sequential"
    for text in ("dbo-ht:shared", "dbo-ht:shared=a:shared=b", "dbo-ht:x=1", "dbo"):
        with pytest.raises(InputError):
            read_variant(text)


def test_a_variant_runs_with_its_options_also_when_cut_short():
    job = workload(4096)
    plain, variant = rank_schedules(
        job, ["dbo-ht", "dbo-ht:shared=no-overlap"], SimBackend(), sensitivity=True
    )
    program = build_program(job, "dbo-ht", ubatches=2, options={"shared": "no-overlap"})
    assert variant.program == program
    assert variant.metrics.step_ns == SimBackend().run(program)[0].makespan_ns
    assert variant.metrics.step_ns != plain.metrics.step_ns
    assert variant.moe_layer_ns != plain.moe_layer_ns


@pytest.mark.parametrize("schedule", ["sequential", "dbo-ht", "dbo-ht-late-event"])
def test_sensitivities_are_those_of_the_whole_step(schedule):
    """Short steps tell by how much a step of all 61 layers changes."""
    job = workload(8192, model=load_model("deepseek-v3"))
    backend = SimBackend()
    entry = rank_schedules(job, [schedule], backend, sensitivity=True)[0]
    for kind in ("attention", "experts", "dispatch", "combine", "mlp", "host"):
        scaled = backend.scaled({kind: 0.9}).run(entry.program)[0].makespan_ns
        assert entry.faster[kind] == pytest.approx(scaled / entry.metrics.step_ns - 1, abs=0.004)


def test_sensitivities_of_a_serial_step_are_shares():
    """With a free host and no latencies a sequential step is a sum: 10 % of each part of it."""
    job = workload(8192)
    backend = SimBackend(host=Host(), gpu=IDEAL)
    entry = rank_schedules(job, ["sequential"], backend, sensitivity=True)[0]
    spent = {}
    for span in entry.timeline.gpu():
        spent[span.kind] = spent.get(span.kind, 0) + span.end_ns - span.start_ns
    for kind, ns in spent.items():
        assert entry.faster[kind] == pytest.approx(-0.1 * ns / entry.metrics.step_ns, abs=1e-4)
    assert entry.faster["host"] == 0


def test_a_model_cut_to_its_dense_layers_is_run_whole():
    job = workload(8192, model=load_model("deepseek-v3").with_layers(2))
    backend = SimBackend(host=Host(), gpu=IDEAL)
    entry = rank_schedules(job, ["sequential"], backend, sensitivity=True)[0]
    assert entry.moe_layer_ns is None
    assert list(entry.faster) == ["attention", "mlp", "host"]
    assert entry.faster["attention"] + entry.faster["mlp"] == pytest.approx(-0.1, abs=1e-5)


def test_progress_is_told_from_start_to_end():
    told, inside = [], []
    rank_schedules(
        workload(8192, model=load_model("deepseek-v3")),
        ["sequential", "dbo-ht"],
        SimBackend(progress=inside.append),
        report=lambda *turn: told.append(turn),
    )
    assert told == [
        ("sequential", 0, 0.25),
        ("dbo-ht", 0.25, 0.5),
        ("sequential: short steps", 0.5, 0.75),
        ("dbo-ht: short steps", 0.75, 1),
    ]
    assert inside and all(0 <= part <= 1 for part in inside)


def entries(*names, job=None, **more):
    return rank_schedules(job or workload(), names, SimBackend(), **more)


def test_reasons_are_made_of_the_timelines_numbers():
    found = entries("sequential", "dbo-ht", sensitivity=True)
    base, dbo = found
    first, sequential, overlapped = explain(found)
    assert first == "fastest is dbo-ht with 2 ubatches"
    computed, step = (base.metrics.mean.compute_ns / 1e6, base.metrics.step_ns / 1e6)
    assert sequential.startswith(
        f"sequential is the baseline: compute is {computed:.1f} of {step:.1f} ms, so hiding "
        f"everything else would gain {step / computed:.2f}x"
    )
    assert f"dbo-ht pays here ({dbo.gain:.2f}x): compute is" in overlapped
    assert f"dispatch {100 * dbo.faster['dispatch']:+.1f} %" in overlapped


def test_what_does_not_pay_says_so_and_names_the_host():
    job = workload(512, model=load_model("qwen3-30b-a3b"), nodes=1, seq_len=512)
    found = entries("sequential", "dbo-ht", job=job, sensitivity=True)
    first, _, overlapped = explain(found)
    assert first == "fastest is sequential with one ubatch"
    assert f"dbo-ht does not pay here ({found[1].gain:.2f}x)" in overlapped
    assert "longer than unsplit and alone on the SMs)" in overlapped
    assert "idle: gaps" in overlapped and "step if 10 % faster: host -9." in overlapped


def test_what_could_be_gained_is_bounded_by_the_busiest_rank():
    job = msgspec.structs.replace(workload(), routing=Routing(popularity="zipf", exponent=1))
    (entry,) = entries("sequential", job=job)
    busiest = max(rank.compute_ns for rank in entry.metrics.ranks.values())
    assert busiest > 1.2 * entry.metrics.mean.compute_ns
    told = explain([entry])[1]
    assert f"{busiest / 1e6:.1f} on the busiest rank, so hiding everything else" in told
    assert f"would gain {entry.metrics.step_ns / busiest:.2f}x" in told


def test_fastest_of_equals_is_the_first():
    found = entries("dbo-ht", "sequential", "dbo-ht")
    assert fastest(found) is found[0]


def test_tables_hold_what_the_entries_do_and_show_themselves():
    found = entries("sequential", "dbo-ht", sensitivity=True)
    table = comparison(found, "a <title>")
    assert table.columns[0] == "schedule" and table.rows[1][0] == "dbo-ht"
    assert table.rows[1][2] == f"{found[1].metrics.step_ns / 1e6:,.3f}"
    html = table._repr_html_()
    assert "a &lt;title&gt;" in html and html.count("<tr>") == 3
    kinds = sensitivities(found)
    assert kinds.columns[1:] == tuple(found[0].faster)
    assert len(kinds.rows) == 2
    assert sensitivities(entries("sequential")).rows == ()


def test_grid_marks_the_best():
    real = entries("sequential", job=small_workload(1))[0]

    def fake(name, step_ns):
        metrics = msgspec.structs.replace(real.metrics, step_ns=step_ns)
        return replace(real, schedule=name, metrics=metrics)

    grid = [[fake("a", 3_000_000), fake("b", 2_000_000)], [fake("a", 4_000_000), fake("b", 1_500)]]
    table = sm_grid([8, 16], grid)
    assert table.columns == ("step ms", "8 SMs", "16 SMs")
    assert table.rows == (("a", "*3.000", "4.000"), ("b", "2.000", "**0.002"))


# The command


def test_several_sms_print_a_grid_and_the_best_one_in_full(run):
    code, out, _ = run(
        *("compare", "--nodes", 4, "--layers", 5, "--comm-sms", "4,8,...,24"),
        *("--schedules", "sequential,dbo-ht", "--no-sensitivity"),
    )
    assert code == 0
    lines = out.splitlines()
    assert lines[1].split() == [
        "step",
        "ms",
        *["4", "SMs", "8", "SMs", "12", "SMs", "16", "SMs", "20", "SMs", "24", "SMs"],
    ]
    best = re.search(r"\*\*([\d.]+)", out)[1]
    column = re.split(r"\s{2,}", lines[3]).index(f"**{best}")
    assert lines[5].endswith(f", {4 * column} comm SMs (predicted)")
    assert lines[8].split()[:3] == ["dbo-ht", "2", best]


def test_json_holds_reasons_sensitivities_and_the_grid(run):
    code, out, _ = run(
        *("compare", "--nodes", 4, "--layers", 5, "--comm-sms", "8,20", "--json"),
        *("--schedules", "sequential,dbo-ht"),
    )
    document = json.loads(out)
    assert code == 0
    assert set(document["comm_sms_grid_ns"]) == {"8", "20"}
    steps = {entry["schedule"]: entry["step_ns"] for entry in document["schedules"]}
    assert steps in document["comm_sms_grid_ns"].values()
    for entry in document["schedules"]:
        assert set(entry["step_change_if_10_percent_faster"]) >= {"dispatch", "experts", "host"}
    assert document["why"][0].startswith("fastest is ")
    assert document["engines"][0].startswith("vLLM splits this step")


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--model", "glm-4.5", "--nodes", "1"], "dispatch data: FITTED"),
        (["--nodes", "8"], "NOT MEASURED, 92% of 50 GB/s NIC of h100"),
        (["--system", "b200", "--nodes", "2"], "NOT MEASURED, 92% of 50 GB/s NIC of b200"),
        (["--costs", "roofline"], "NOT MEASURED, 92% of 50 GB/s NIC of h100"),
        (["--costs", "silicon"], "attention: measured alone on the GPU, mla_context.csv h100 fa3"),
        (["--scale", "dispatch=0.5"], "SCALED: dispatch takes 0.5 times as long"),
        (["--routing", "zipf:1"], "routing: drawn from zipf:1, seed 0, one draw for all layers"),
        (["--dispatch-dtype", "bf16"], "deepep_normal.csv has FP8 dispatch only"),
        (["--tokens", "64", "--seq-len", "1", "--context", "4096"], "64 sequences behind up to 40"),
        (["--tokens", "256", "--seq-len", "256"], "vLLM does not split this step: rank 0 has 256"),
        (
            ["--nodes", "1"],
            "DOES NOT FIT: the layers' weights take 97 GB of each GPU",
        ),
        (["--ranks-per-gpu", "2", "--nodes", "4"], "GPU: 66 SMs"),
        (["--no-memory-sharing"], "no shared bandwidth or clock"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_asked_for_shows(run, flags, told):
    defaults = ["--nodes", "4"] if "--nodes" not in flags else []
    layers = [] if flags == ["--nodes", "1"] else ["--layers", "4"]
    code, out, err = run(
        *("compare", *defaults, *layers, "--schedules", "sequential,dbo-ht", "--no-sensitivity"),
        *flags,
    )
    assert (code, err) == (0, "")
    assert told in out


def test_batches_and_loads_come_from_files(run, tmp_path):
    batch, loads = tmp_path / "batch.json", tmp_path / "loads.json"
    batch.write_text(json.dumps([[[1000 + 10 * rank, 0], [1, 500]] for rank in range(32)]))
    loads.write_text(json.dumps([1.0] * 255 + [40.0]))
    code, out, _ = run(
        *("compare", "--nodes", 4, "--layers", 4, "--batch", batch, "--routing", loads),
        *("--seed", 7, "--schedules", "sequential", "--json"),
    )
    assert code == 0
    document = json.loads(out)
    assert document["workload"]["batches"][3] == [[1030, 0], [1, 500]]
    assert document["workload"]["routing"] == {
        "popularity": "given",
        "exponent": 0.0,
        "weights": [1.0] * 255 + [40.0],
        "seed": 7,
    }
    assert document["schedules"][0]["peer_wait_ns"] > 0
    # 32 different ranks: what limits the step is not looked for unless asked
    assert document["schedules"][0]["step_change_if_10_percent_faster"] == {}


def test_program_of_uneven_skewed_ranks_round_trips_and_runs_from_its_file(run, tmp_path):
    batch, path = tmp_path / "batch.json", tmp_path / "p.txt"
    batch.write_text(json.dumps([[[100 + 5 * rank, 7]] for rank in range(8)]))
    flags = ("--nodes", 1, "--model", "tiny", "--batch", batch, "--routing", "zipf:1.1")
    assert run("plan", "dbo-ht", *flags, "--balance-attention", "-o", path)[0] == 0
    text = path.read_text()
    assert text.count("\nbatch ranks=") == 8 and text.count("\nplan ranks=") == 8
    assert "routing popularity=zipf exponent=1.1" in text and " arrivals=" in text
    code, from_file, _ = run("simulate", path, "--json")
    _, from_flags, _ = run(
        "simulate", "--schedule", "dbo-ht", *flags, "--balance-attention", "--json"
    )
    assert code == 0
    assert json.loads(from_file)["metrics"] == json.loads(from_flags)["metrics"]


def test_balanced_attention_changes_the_cut(run):
    flags = ("--nodes", 4, "--layers", 4, "--seq-len", 8192)
    _, even, _ = run("plan", "dbo-ht", *flags)
    _, balanced, _ = run("plan", "dbo-ht", *flags, "--balance-attention")
    assert re.findall(r"ubatch tokens=(\d+)", even) == ["4096", "4096"]
    assert re.findall(r"ubatch tokens=(\d+)", balanced) == ["5792", "2400"]
