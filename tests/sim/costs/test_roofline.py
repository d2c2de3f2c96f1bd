"""The roofline against counts by hand: one DeepSeek-V3 layer, one prompt of 4096 tokens, H100."""

from math import ceil

import msgspec
import pytest
from costing import V3, kernels, workload
from support import IDEAL

from dbo_sched import Deployment, InputError, Workload, build_program, load_model
from dbo_sched.plan import Plan
from dbo_sched.ranking import fastest, rank_schedules
from dbo_sched.routing import Routing
from dbo_sched.workload import Slice
from sim import Host, SimBackend
from sim.costs import Kernel
from sim.costs.derived import DerivedCosts
from sim.costs.roofline import PIECES, Roofline, gemm

MATH, BF16 = 1978.9e3 * 0.65, 989.4e3 * 0.65
"""Operations per nanosecond of FP8 and BF16."""
MEMORY = 3350 * 0.8
"""Bytes per nanosecond."""

PROMPT = workload(4096)


def tile(k, rate=MATH):
    """Nanoseconds of one 128 x 128 tile over ``k`` on one of 132 SMs."""
    return 2 * 128 * 128 * k / (rate / 132)


def moved(size):
    """Whole nanoseconds in which so many bytes go through memory."""
    return ceil(size / MEMORY)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (
            "attention",
            {
                "norm": moved(4096 * 2 * 7168 * 2),
                # 2112 columns are 17 tiles: 32 x 17 = 544, 5 waves of 132
                "qkv_a": 5 * tile(7168),
                # 32 x 192 = 6144 tiles, 47 waves
                "q_b": 47 * tile(1536),
                # 32 x 256 = 8192 tiles, 63 waves; its 287 MB take 107 us, the tiles 108
                "kv_b": 63 * tile(512),
                # query times key over 192, weights times value over 128, causal pairs
                "attend": 2 * 128 * (192 + 128) * (4096 * 4097 // 2) / BF16,
                # 32 x 56 = 1792 tiles, 14 waves
                "o": 14 * tile(128 * 128),
                "mlp_norm": moved(4096 * 2 * 7168 * 2),
            },
        ),
        (
            "gate",
            {
                # 64 tiles on 132 SMs: one wave that leaves half of them idle
                "router": tile(7168, BF16),
                "quantise": moved(4096 * 7168 * 3),
            },
        ),
        (
            "experts",
            {
                # 32768 pairs computed; 29765 rows received: 4096 x 32 (1 - C(248,8) / C(256,8))
                "permute": moved((32768 + 29765) * 7168),
                # 8 experts x 32 x 32 tiles, 63 waves
                "gate_up": 63 * tile(7168),
                "act": moved(32768 * 2048 * (2 * 2 + 1)),
                # 8 x 32 x 56 tiles, 109 waves
                "down": 109 * tile(2048),
                "reduce": moved((32768 + 29765) * 7168 * 2),
            },
        ),
        (
            "shared_experts",
            {
                "gate_up": 8 * tile(7168),  # 32 x 32 tiles
                "act": moved(4096 * 2048 * 5),
                "down": 14 * tile(2048),  # 32 x 56
            },
        ),
        (
            "mlp",
            {
                "gate_up": 70 * tile(7168),  # 32 x 288 tiles
                "act": moved(4096 * 18432 * 5),
                "down": 14 * tile(18432),
            },
        ),
        ("output_copy", {"copy": moved(4096 * 2 * 7168 * 2)}),
        ("merge", {"add": moved(4096 * 4 * 7168 * 2)}),
    ],
)
def test_one_layer(kind, expected):
    found = {phase: kernel.ns for phase, kernel in kernels(kind, PROMPT).items()}
    assert found == {phase: round(ns) for phase, ns in expected.items()}


@pytest.mark.parametrize(
    ("kind", "gflop", "mbytes"),
    [
        # projections 2 x 4096 x (7168 x 2176 padded + 1536 x 24576 + 512 x 32768 + 16384 x 7168)
        # and 2 x 128 x 320 x 8390656 for the pairs
        (
            "attention",
            2 * 4096 * (7168 * 2176 + 1536 * 24576 + 512 * 32768 + 16384 * 7168) / 1e9
            + 2 * 128 * 320 * 8390656 / 1e9,
            # weights once; activations in, outputs out (BF16), two norms, queries, keys, values
            (
                (7168 * 2112 + 1536 * 24576 + 512 * 32768 + 16384 * 7168)
                + 4096 * (7168 + 1536 + 512 + 16384)
                + 2 * 4096 * (2112 + 24576 + 32768 + 7168)
                + 2 * 4 * 4096 * 7168
                + 2 * 2 * 4096 * 128 * 320
            )
            / 1e6,
        ),
        (
            "gate",
            2 * 4096 * 7168 * 256 / 1e9,
            (2 * (4096 + 256) * 7168 + 2 * 4096 * 256 + 3 * 4096 * 7168) / 1e6,
        ),
        # 32768 pairs through 3 matrices; 8 experts' weights; 29765 rows in and out
        (
            "experts",
            6 * 32768 * 7168 * 2048 / 1e9,
            (
                8 * 3 * 7168 * 2048
                + 32768 * (7168 + 2048)
                + 2 * 32768 * (4096 + 7168)
                + 5 * 32768 * 2048
                + 3 * (32768 + 29765) * 7168
            )
            / 1e6,
        ),
        (
            "shared_experts",
            6 * 4096 * 7168 * 2048 / 1e9,
            (3 * 7168 * 2048 + 4096 * 9216 + 2 * 4096 * 11264 + 5 * 4096 * 2048) / 1e6,
        ),
        (
            "mlp",
            6 * 4096 * 7168 * 18432 / 1e9,
            (3 * 7168 * 18432 + 4096 * 25600 + 2 * 4096 * 44032 + 5 * 4096 * 18432) / 1e6,
        ),
        ("output_copy", 0, 4 * 4096 * 7168 / 1e6),
        ("merge", 0, 8 * 4096 * 7168 / 1e6),
    ],
)
def test_operations_and_bytes_of_one_layer(kind, gflop, mbytes):
    part = Slice(tokens=4096, sequences=((4096, 0),))
    pieces = list(PIECES[kind](PROMPT, part))
    assert sum(piece.flops for piece in pieces) / 1e9 == pytest.approx(gflop)
    assert sum(piece.bytes for piece in pieces) / 1e6 == pytest.approx(mbytes)


@pytest.mark.parametrize(
    ("preset", "columns", "attend"),
    [
        # (32 + 2 x 4) heads of 128; 4 x 32 x 128 per pair
        ("qwen3-30b-a3b", 40 * 128, 4 * 32 * 128 * (4096 * 4097 // 2)),
        ("glm-4.5", (96 + 16) * 128, 4 * 96 * 128 * (4096 * 4097 // 2)),
    ],
)
def test_grouped_query_attention(preset, columns, attend):
    model = load_model(preset)
    job = workload(4096, model=model, nodes=1)
    found = kernels("attention", job)
    assert list(found) == ["norm", "qkv", "attend", "o", "mlp_norm"]
    assert found["qkv"].ns == round(ceil(32 * columns / 128 / 132) * tile(model.hidden_size))
    assert found["attend"].ns == round(attend / BF16)


def test_queries_without_a_low_rank_are_projected_directly():
    job = workload(4096, model=load_model("deepseek-v2-lite"), nodes=1)
    found = kernels("attention", job)
    assert "q_b" not in found
    # 16 x 192 + 576 columns: 3648, 29 tiles of 128
    assert found["qkv_a"].ns == round(ceil(32 * 29 / 132) * tile(2048))


def test_decode_works_on_the_latent_and_reads_it_once():
    """128 sequences behind 4000 tokens: 576 values a cached row, 2 x (576 + 512) operations a pair
    and head; the cache's 590 MB decide."""
    found = kernels("attention", workload(128, seq_len=1, context=4000))
    assert list(found) == [
        *("norm", "qkv_a", "q_b", "absorb_k", "attend_latent", "absorb_v", "o", "mlp_norm"),
    ]
    flops = 2 * 128 * (576 + 512) * 128 * 4001
    size = 2 * (128 * 128 * (576 + 512) + 128 * 4001 * 576)
    assert flops / BF16 < size / MEMORY
    assert found["attend_latent"].ns == moved(size)
    # 128 heads of one 64-row tile each, 4 tiles wide, over 128: 512 tiles, 4 waves
    assert found["absorb_k"].tiles == 128 * 4


def test_prompts_and_decodes_of_one_batch_are_told_apart():
    job = msgspec.structs.replace(workload(), batches=(((1000, 0), (1, 4000), (1, 0)),))
    found = kernels("attention", job)
    assert found["attend"].tiles == 128 * (8 + 1)  # a prompt of one token is a prompt
    assert found["attend_latent"].bytes == 2 * (128 * 1088 + 4001 * 576)


def test_second_half_of_a_prompt_attends_to_the_first():
    """Halves of 4096: pairs 2048 x 2049 / 2, and 2048 more for each of the second half's tokens."""
    attends = [kernels("attention", PROMPT, "dbo-ht", ubatch=u)["attend"].ns for u in (0, 1)]
    pairs = 2048 * 2049 // 2
    assert attends == [round(2 * 128 * 320 * p / BF16) for p in (pairs, pairs + 2048 * 2048)]


def test_balanced_halves_have_the_same_attention():
    """One prompt of 8192: cut at 5792, each half has 16.78 million pairs."""
    job = workload(8192, seq_len=8192)
    program = build_program(job, "dbo-ht", balance_attention=True)
    assert [part.tokens for part in program.plans[0].ubatches] == [5792, 2400]
    times = []
    for op in (
        op for op in program.plans[0].ops if op.id in ("L3.u0.attention", "L3.u1.attention")
    ):
        parts = DerivedCosts().kernels(program, program.plans[0], op)
        times.append(next(kernel.ns for kernel in parts if kernel.phase == "attend"))
    assert times[0] == pytest.approx(times[1], rel=1e-3)


def test_tiles_of_matrix_products_and_rows():
    assert kernels("attention", PROMPT)["o"].tiles == 4096 // 128 * 7168 // 128
    assert kernels("attention", PROMPT)["attend"].tiles == 128 * 4096 // 128
    # 8 local experts with 4096 rows each
    assert kernels("experts", PROMPT)["gate_up"].tiles == 8 * (4096 // 128) * (4096 // 128)
    assert kernels("merge", PROMPT)["add"].tiles == 4096


@pytest.mark.parametrize(
    ("rows", "tiles", "flops", "size"),
    [
        # four matrices 1024 x 512: whole tiles of 64 rows where no matrix has more
        ([64] * 4, 4 * 4, 4 * 64, 256 * 1536 + 4 * 1024 * 512 + 256 * 512),
        ([32] * 4, 4 * 4, 4 * 64, 128 * 1536 + 4 * 1024 * 512 + 128 * 512),
        ([65, 1, 0, 0], 8, 2 * 128, 66 * 1536 + 2 * 1024 * 512 + 66 * 512),  # idle weights unread
        ([], 0, 0, 0),
        ([0, 0], 0, 0, 0),
    ],
)
def test_padding_and_weights_of_grouped_products(rows, tiles, flops, size):
    """FP8 inputs of 1024 values, BF16 outputs of 512: 1024 + 2 x 512 - 512 counted apart."""
    piece = gemm("g", rows, 512, 1024, "fp8")
    assert piece.tiles == tiles
    assert piece.flops == 2 * flops * 512 * 1024
    assert piece.bytes == size


def test_half_the_tokens_is_not_half_the_time():
    """sgl-project/sglang#9660: 64 and 32 rows an expert fill one 64-row tile each."""
    job = workload(64, seq_len=1, context=100)  # 64 x 8 pairs on 8 local experts
    whole = kernels("experts", job)["gate_up"]
    half = kernels("experts", job, "dbo-ht")["gate_up"]
    assert (whole.tiles, half.tiles) == (8 * 32, 8 * 32)
    assert half.ns > 0.95 * whole.ns


class TileBound:
    """Serial times of the report: attention 100, dispatch 75, experts 200, combine 75.

    Experts take 200 per begun tile of 64 rows an expert; all else is linear in tokens.
    """

    name = "tile-bound"

    def kernels(self, program, plan, op):
        part = plan.ubatches[op.ubatch].tokens / 64
        tiles = ceil(op.tokens / 8 / 64)
        units = {"attention": 100 * part, "dispatch": 75 * part, "combine": 75 * part}
        ns = round(1000 * (units | {"experts": 200 * tiles}).get(op.kind, 0))
        if op.comm is None:
            return (Kernel("run", ns, "fixed"),)
        notify = (Kernel("notify", 0, "fixed", gang=True, meets=True),) * op.blocks_host
        return (*notify, Kernel("data", ns, "fixed", gang=True, meets=True))

    def notes(self, program, sources):
        return ()


def test_one_ubatch_is_the_answer_where_tiles_are_the_cost():
    """sgl-project/sglang#9660: 450 unsplit; 32 rows an expert in a tile of 64 make 537.5 of it."""
    model = msgspec.structs.replace(
        V3, num_hidden_layers=1, first_k_dense_replace=0, n_shared_experts=0
    )
    job = workload(64, model=model)
    backend = SimBackend(TileBound(), host=Host(), gpu=IDEAL)
    entries = rank_schedules(job, ["sequential", "dbo-ht"], backend)
    assert [entry.metrics.step_ns for entry in entries] == [450_000, 537_500]
    assert (fastest(entries).schedule, fastest(entries).ubatches) == ("sequential", 1)
    assert entries[1].gain == pytest.approx(450 / 537.5)


def test_skewed_experts_are_counted_one_by_one():
    """Each local expert's rows in tiles of 128; the last rank holds the hot one."""
    routing = Routing(popularity="given", weights=(1.0,) * 255 + (1000.0,), seed=0)
    job = msgspec.structs.replace(workload(512), routing=routing)
    program = build_program(job, "sequential")
    last = program.plan_of(31)
    pairs = last.ubatches[0].arrivals.pairs
    assert pairs[-1] > 500 * 32 * 0.9  # nearly every token of all ranks
    op = next(op for op in last.ops if op.kind == "experts")
    found = {k.phase: k for k in DerivedCosts().kernels(program, last, op)}
    assert found["gate_up"].tiles == sum(ceil(rows / 128) for rows in pairs) * 32
    assert op.tokens == sum(pairs)


@pytest.mark.parametrize("contention", ["waves", "none"])
@pytest.mark.parametrize(("sms", "waves"), [(132, 14), (66, 28), (100, 18)])
def test_fewer_sms_take_more_waves(contention, sms, waves):
    """The output projection's 1792 tiles: each takes what it takes, however many SMs there are."""
    backend = SimBackend.configured(
        host="free", latencies=False, sms=sms, contention=contention, memory_sharing=False
    )
    timeline = backend.run(build_program(PROMPT, "sequential"))[0]
    span = next(span for span in timeline.gpu() if span.phase == "o")
    assert span.end_ns - span.start_ns == ceil(round(14 * tile(128 * 128)) * waves / 14)


def test_bf16_dispatch_quantises_behind_it():
    """Fewer kernels before the wire, one more on the 29765 rows received: read BF16, write FP8."""
    job = workload(4096, dispatch_dtype="bf16")
    assert list(kernels("gate", job)) == ["router"]
    found = kernels("experts", job)
    assert list(found) == ["quantise", "permute", "gate_up", "act", "down", "reduce"]
    assert found["quantise"].ns == moved(29765 * 7168 * 3)


def test_efficiencies_scale_and_are_named():
    program = build_program(PROMPT, "sequential")
    plan = program.plans[0]
    op = next(op for op in plan.ops if op.kind == "merge")
    full = Roofline(1.0, 0.5).kernels(PROMPT, plan, op)[0]
    assert full.ns == ceil(4096 * 4 * 7168 * 2 / (3350 * 0.5))
    assert full.origin == "roofline:h100, 50% of 3350 GB/s"
    with pytest.raises(InputError, match=r"math_efficiency is 1\.5"):
        Roofline(1.5)


def test_ubatch_without_tokens_costs_nothing_but_its_collectives():
    job = msgspec.structs.replace(workload(), batches=(((1, 0),),))
    program = build_program(job, "dbo-ht")
    plan = program.plans[0]
    empty = [op for op in plan.ops if op.ubatch == 0 and op.layer == 3]
    assert [part.tokens for part in plan.ubatches] == [0, 1]
    for op in empty:
        total = sum(kernel.ns for kernel in DerivedCosts().kernels(program, plan, op))
        assert (total > 0) == (op.kind in ("dispatch", "combine")), op
    assert SimBackend().run(program)[0].makespan_ns > 0


def test_unknown_kinds_and_undeclared_ubatches_are_refused():
    job = Workload(model=V3, deployment=Deployment(system="h100"), batches=(((8, 0),),))
    op = build_program(job, "sequential").plans[0].ops[0]
    with pytest.raises(InputError, match="is of kind lookup, which the roofline does not know"):
        Roofline().kernels(job, Plan(ranks=(0,)), msgspec.structs.replace(op, kind="lookup"))
    with pytest.raises(InputError, match="is of ubatch 0, and the plan declares 0 ubatches"):
        Roofline().kernels(job, Plan(ranks=(0,)), op)
