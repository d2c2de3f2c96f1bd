"""Compute from measured tables: rows come back, traps are heeded, the rest says so."""

from collections import defaultdict
from statistics import mean

import msgspec
import numpy as np
import pytest
from costing import kernels, workload

from dbo_sched import load_model, why
from dbo_sched.ranking import rank_schedules
from dbo_sched.routing import Routing
from sim import SimBackend
from sim.costs import silicon
from sim.costs.derived import DerivedCosts
from sim.costs.roofline import Roofline

SILICON = DerivedCosts("silicon")


def total(kind, job, **more):
    """Nanoseconds of an op, and the one source of them."""
    found = kernels(kind, job, costs=SILICON, **more).values()
    assert len({kernel.source for kernel in found}) == 1
    return sum(kernel.ns for kernel in found), next(iter(found)).origin


@pytest.mark.parametrize(
    ("kind", "job", "ms", "origin"),
    [
        ("attention", workload(4096), 2.4884, "mla_context.csv h100 fa3, 1 x 4096"),
        ("attention", workload(8192), 4.8047, "mla_context.csv h100 fa3, 2 x 4096"),
        ("attention", workload(8192, system="b200"), 2.4739, "b200 trtllm_mla, 2 x 4096"),
        ("shared_experts", workload(4096), 0.2986, "mlp_context.csv h100, 4096 tokens"),
        # half way between 4096 (0.2986) and 8192 (0.58288)
        (
            "shared_experts",
            workload(6144),
            0.44074,
            "h100, 6144 tokens, interpolated",
        ),
        # 131072 global tokens take 3.6469 ms, 8.31 ns of each of them not a rank's own
        ("experts", workload(4096), 3.6469 - 131072 * 8.31e-6, "131072 global tokens"),
    ],
)
def test_rows_come_back(kind, job, ms, origin):
    ns, found = total(kind, job)
    assert ns == round(ms * 1e6)
    assert found.startswith("table:") and found.endswith(origin)


def test_attention_between_rows_follows_the_time_per_token():
    """3072 is half way from 2048 (1.2538 ms) to 4096 (2.4884): the mean of both times a token."""
    ns, origin = total("attention", workload(3072, seq_len=3072))
    assert origin.endswith("1 x 3072, interpolated")
    assert ns == round(3072 * (1.2538e6 / 2048 + 2.4884e6 / 4096) / 2)


def test_time_is_shared_out_as_the_roofline_would():
    measured, roofline = (
        kernels("attention", workload(4096), costs=costs) for costs in (SILICON, DerivedCosts())
    )
    whole = sum(kernel.ns for kernel in roofline.values())
    assert list(measured) == list(roofline)
    for phase, kernel in measured.items():
        assert kernel.ns == pytest.approx(2_488_400 * roofline[phase].ns / whole, abs=1)
        assert (kernel.tiles, kernel.bytes) == (roofline[phase].tiles, roofline[phase].bytes)


@pytest.mark.parametrize(
    ("kind", "job", "reason"),
    [
        ("attention", workload(4096, context=1024), "equal prompts without context only"),
        ("attention", workload(5000), "equal prompts without context only"),  # 4096 and 904
        ("attention", workload(512, seq_len=512), "holds little but launch costs here"),
        ("attention", workload(8192, model=load_model("qwen3-30b-a3b"), nodes=1), "DeepSeek-V3's"),
        ("attention", workload(65536, seq_len=32768), "has no 2 prompts of 32768"),
        ("experts", workload(512), "holds little but launch costs here"),
        ("experts", workload(model=load_model("kimi-k2").with_layers(4)), "DeepSeek-V3's shape"),
        ("experts", workload(dtype="bf16", dispatch_dtype="bf16"), "the tables are of FP8"),
        ("shared_experts", workload(system="b200", nodes=1), "mlp_context.csv has no row for b200"),
        ("gate", workload(), "in no table"),
    ],
)
def test_what_tables_do_not_cover_is_the_rooflines_and_says_so(kind, job, reason):
    found = kernels(kind, job, costs=SILICON)
    plain = kernels(kind, job)
    for phase, kernel in found.items():
        assert kernel.ns == plain[phase].ns
        assert kernel.source.startswith("roofline:") and reason in kernel.source


def test_skewed_experts_are_not_in_the_table():
    job = msgspec.structs.replace(workload(), routing=Routing(popularity="zipf", exponent=1))
    found = kernels("experts", job, costs=SILICON)["gate_up"]
    assert "balanced routing of equal batches only" in found.source


def test_mixed_sources_are_pointed_out():
    """Of a prompt cut in two the second part has context, which the table lacks."""
    job = workload(8192, seq_len=8192)
    entries = rank_schedules(job, ["sequential", "dbo-ht"], SimBackend("silicon"))
    assert any(note.startswith("MIXED SOURCES for attention:") for note in why.notes(entries))
    entries = rank_schedules(workload(), ["sequential", "dbo-ht"], SimBackend("silicon"))
    assert not any("MIXED SOURCES" in note for note in why.notes(entries))


def test_kimi_has_half_the_heads_of_the_same_attention():
    ns, _ = total("attention", workload(4096, model=load_model("kimi-k2").with_layers(4)))
    assert ns < 0.7 * total("attention", workload(4096))[0]


@pytest.mark.parametrize("system", ["h100", "h200", "b200"])
def test_cost_of_foreign_tokens_follows_from_the_slopes(system):
    """slope = gather + c / ranks, from the two longest rows of every EP size above the floor."""
    slopes = []
    for (name, ranks), grid in silicon._experts_grids().items():
        high = [n for n in sorted(grid) if grid[n] > 3 * min(grid.values())]
        if name == system and len(high) > 1:
            few, many = high[-2:]
            slopes.append((1 / ranks, (grid[many] - grid[few]) / (many - few)))
    inverse, slope = np.array(slopes).T
    columns = np.stack([1 / slope, inverse / slope], axis=1)
    gather, per_rank = np.linalg.lstsq(columns, np.ones(len(slope)), rcond=None)[0]
    assert gather == pytest.approx(silicon.GATHER_NS[system], abs=0.01)
    assert abs((gather + per_rank * inverse) / slope - 1).max() < 0.05


@pytest.mark.parametrize(
    ("system", "kind", "worst_mean"),
    [
        *(("h100", kind, 0.08) for kind in ("attention", "shared_experts")),
        *(("h200", kind, 0.09) for kind in ("attention", "shared_experts")),
        ("h100", "experts", 0.15),
        ("h200", "experts", 0.20),
    ],
)
def test_roofline_meets_the_tables(system, kind, worst_mean):
    """Prefill sizes of DeepSeek-V3: 1 to 4 prompts of 2048 to 8192 tokens, EP8 to EP32."""
    errors = defaultdict(list)
    for nodes in (1, 2, 4):
        for prompts in (1, 2, 4):
            for length in (2048, 4096, 8192):
                job = workload(prompts * length, seq_len=length, system=system, nodes=nodes)
                ns, origin = total(kind, job)
                if origin.startswith("table:"):
                    plain = sum(k.ns for k in kernels(kind, job).values())
                    errors[kind].append(plain / ns - 1)
    assert len(errors[kind]) >= 15
    assert mean(map(abs, errors[kind])) < worst_mean
    assert Roofline() == Roofline(0.65, 0.8)
