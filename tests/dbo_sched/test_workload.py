"""Deployments, batches, and the ops and buffers of a layer."""

import msgspec
import pytest
from support import small_workload

from dbo_sched import Deployment, InputError, Workload, load_model, prompts
from dbo_sched.layers import buffers_of, layers_of
from dbo_sched.routing import Arrivals, Routing
from dbo_sched.workload import Slice, busiest_tokens, check_workload, weight_bytes


@pytest.mark.parametrize(
    ("deployment", "message"),
    [
        (Deployment(system="h800"), "system 'h800' is not known"),
        (Deployment(system="h100", nodes=1, ep=16), "16 ranks do not fit evenly on 1 nodes"),
        (Deployment(system="h100", nodes=2, ep=9), "9 ranks do not fit evenly on 2 nodes"),
        (Deployment(system="h100", ep=6), "16 experts do not divide over 6 ranks"),
        (Deployment(system="h100", comm_sms=7), "7 communication SMs are not possible"),
        (Deployment(system="h100", comm_sms=132), "132 communication SMs are not possible"),
        (Deployment(system="h100", dtype="bf16"), "dispatched in FP8 to experts that compute in"),
        (Deployment(system="gb200", ep=8), "8 ranks do not fit evenly on 1 nodes of 4 GPUs"),
    ],
)
def test_impossible_deployments_are_refused(deployment, message):
    job = Workload(model=small_workload().model, deployment=deployment, batches=(((8, 0),),))
    with pytest.raises(InputError, match=message):
        check_workload(job)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batches": (((8, 0),),) * 3}, "3 batches for 8 ranks"),
        ({"batches": ((),) * 8}, "the batch is empty"),
        ({"batches": (((8, -1),),)}, r"Expected `int` >= 0 - at `\$.batches"),
        ({"routing": Routing(popularity="given", weights=(1.0,) * 15)}, "15 loads, 15 of them"),
        (
            {"routing": Routing(popularity="given", weights=(1.0,) * 3 + (0.0,) * 13)},
            "16 loads, 3 of them above 0: give one finite load for each of the 16 experts, at "
            "least 4",
        ),
        ({"routing": Routing(popularity="given", weights=(float("inf"),) * 16)}, "16 loads"),
    ],
)
def test_batches_and_routings_that_do_not_fit_are_refused(changes, message):
    job = msgspec.structs.replace(small_workload(ep=8), **changes)
    with pytest.raises(InputError, match=message.replace("above 0:", "above 0;")):
        check_workload(job)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((8, 4), ((4, 0), (4, 0))),
        ((9, 4), ((4, 0), (4, 0), (1, 0))),
        ((3, 4), ((3, 0),)),
        ((3, 1, 100), ((1, 100),) * 3),
        ((9, 4, 50), ((4, 50), (4, 50), (1, 50))),
    ],
)
def test_prompts(arguments, expected):
    assert prompts(*arguments) == expected


def test_ranks_have_one_batch_or_each_its_own():
    job = small_workload(ep=2)
    assert (job.tokens, job.batch_of(1)) == ((64, 64), ((64, 0),))
    job = msgspec.structs.replace(job, batches=(((5, 0), (2, 9)), ()))
    assert (job.tokens, job.batch_of(1)) == ((7, 0), ())


def test_busiest_direction_of_the_wire():
    """16 experts, top-4, 2 ranks: a token reaches 2 (1 - C(8,4) / C(16,4)) = 2 x 25/26 ranks.

    1000 rows received are what 1000 / (25/13) = 520 tokens per rank would bring.
    """
    job = small_workload(ep=2)
    part = Slice(tokens=400, arrivals=Arrivals(rows=1000, pairs=(1,) * 8))
    assert busiest_tokens(job, part) == 520
    assert busiest_tokens(job, msgspec.structs.replace(part, tokens=600)) == 600
    assert busiest_tokens(job, Slice(tokens=400)) == 400


@pytest.mark.parametrize(
    ("model", "ep", "dtype", "expected"),
    [
        # 61 x (7168 x 2112 + 1536 x 24576 + 512 x 32768 + 16384 x 7168), 3 dense, 58 x 9 experts
        (
            *("deepseek-v3", 32, "fp8"),
            61 * (7168 * 2112 + 1536 * 24576 + 512 * 32768 + 16384 * 7168)
            + 3 * 3 * 7168 * 18432
            + 58 * 9 * 3 * 7168 * 2048,
        ),
        # 48 x (2048 x 128 x (32 + 2 x 4) + 4096 x 2048), 48 x 16 experts, two bytes each
        (
            *("qwen3-30b-a3b", 8, "bf16"),
            2 * 48 * (2048 * 128 * 40 + 4096 * 2048 + 16 * 3 * 2048 * 768),
        ),
        # without a low rank queries are projected directly: 2048 x 16 x 192
        (
            *("deepseek-v2-lite", 8, "fp8"),
            27 * (2048 * 3072 + 2048 * 576 + 512 * 16 * 256 + 2048 * 2048)
            + 3 * 2048 * 10944
            + 26 * (8 + 2) * 3 * 2048 * 1408,
        ),
    ],
)
def test_weights_of_one_gpu(model, ep, dtype, expected):
    deployment = Deployment(system="h100", nodes=ep // 8, ep=ep, dtype=dtype, dispatch_dtype=dtype)
    job = Workload(model=load_model(model), deployment=deployment, batches=(((1, 0),),))
    assert weight_bytes(job) == expected


def test_layers_hold_the_ops_that_the_model_has():
    job = small_workload(2, dense=1)
    dense, moe = layers_of(job, 0, Slice(tokens=64))
    assert [op.kind for op in dense.ops] == ["attention", "mlp"]
    assert [op.kind for op in moe.ops] == [
        *("attention", "gate", "dispatch", "experts", "combine"),
        *("shared_experts", "output_copy", "merge"),
    ]
    assert moe.experts.tokens == 64 * 4
    assert moe.dispatch.blocks_host and moe.dispatch.sms == 20
    assert layers_of(small_workload(1, shared=0), 0, Slice(tokens=64))[0].shared_experts is None


def test_every_buffer_that_an_op_uses_is_declared_once():
    job = small_workload(3, dense=1)
    layers = layers_of(job, 0, Slice(tokens=64))
    part = Slice(tokens=64)
    declared = [buffer.id for layer in layers for buffer in buffers_of(job, layer, part)]
    used = {name for layer in layers for op in layer.ops for name in (*op.reads, *op.writes)}
    assert sorted(declared) == sorted(used)
    sizes = {b.id: b.bytes for layer in layers for b in buffers_of(job, layer, part)}
    assert sizes["L1.u0.hidden"] == 64 * 256 * 2
    assert sizes["L1.u0.routed_tokens"] == 64 * (256 + 2 * 4)  # FP8 and two scales a token
    assert sizes["L1.u0.topk"] == 64 * 4 * 12
    # 64 tokens reach 2 x 25/26 ranks each: 123 rows
    assert sizes["L1.u0.recv"] == 123 * (256 + 2 * 4)
    arrived = Slice(tokens=64, arrivals=Arrivals(rows=7, pairs=(3,) * 8))
    skewed = {b.id: b.bytes for layer in layers for b in buffers_of(job, layer, arrived)}
    assert (skewed["L1.u0.recv"], skewed["L1.u0.expert_out"]) == (7 * (256 + 8), 7 * 512)
    assert layers_of(job, 0, arrived)[1].experts.tokens == 24
