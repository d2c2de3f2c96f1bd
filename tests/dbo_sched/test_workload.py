"""Models, deployments and how batches are cut."""

import json

import pytest
from support import small_workload

from dbo_sched import Deployment, InputError, Workload, load_model, prompts
from dbo_sched.layers import buffers_of, layers_of
from dbo_sched.models import model_from_config
from dbo_sched.workload import Slice, check_workload, received_rows, split


def test_deepseek_v3_has_its_published_shapes():
    model = load_model("deepseek-v3")
    assert (model.num_hidden_layers, model.first_k_dense_replace) == (61, 3)
    assert (model.hidden_size, model.num_attention_heads) == (7168, 128)
    assert (model.q_lora_rank, model.kv_lora_rank) == (1536, 512)
    assert (model.n_routed_experts, model.num_experts_per_tok, model.n_shared_experts) == (
        256,
        8,
        1,
    )
    assert (model.intermediate_size, model.moe_intermediate_size) == (18432, 2048)


def config(**changes):
    keys = {
        **dict.fromkeys(("num_hidden_layers", "hidden_size", "num_attention_heads"), 8),
        **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim"), 4),
        **dict.fromkeys(("qk_rope_head_dim", "v_head_dim", "intermediate_size"), 4),
        **dict.fromkeys(("moe_intermediate_size", "n_routed_experts", "num_experts_per_tok"), 4),
        **dict.fromkeys(("first_k_dense_replace", "n_shared_experts"), 0),
        "architectures": ["DeepseekV3ForCausalLM"],
    }
    return json.dumps({key: value for key, value in (keys | changes).items() if value is not ...})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "c: not JSON"),
        ("[]", "c: not a JSON object"),
        (config(architectures=["LlamaForCausalLM"]), "architecture LlamaForCausalLM is not known"),
        (config(architectures=...), r"architecture \(none given\) is not known"),
        (config(kv_lora_rank=...), "key kv_lora_rank is missing or null"),
        (
            config(hidden_size="big"),
            r"Expected `int`, got `str` - at `\$.hidden_size`",
        ),
        (config(hidden_size=-1), "Expected `int` >= 1"),
        (config(num_experts_per_tok=5), "num_experts_per_tok 5 is more than the 4 routed"),
        (config(moe_layer_freq=2), "moe_layer_freq is 2"),
    ],
)
def test_bad_config_names_the_key(text, message):
    with pytest.raises(InputError, match=message):
        model_from_config(text, name="m", where="c")


def test_config_of_that_architecture_is_read(tmp_path):
    path = tmp_path / "my-model" / "config.json"
    path.parent.mkdir()
    path.write_text(config(hidden_size=16))
    assert load_model(str(path)).hidden_size == 16
    assert load_model(str(path)).name == "my-model"
    with pytest.raises(InputError, match="'deepseek' is not known, nor is it a file; use deepseek"):
        load_model("deepseek")
    with pytest.raises(InputError, match="cannot be read: No such file"):
        load_model(str(tmp_path / "other.json"))


@pytest.mark.parametrize(
    ("deployment", "message"),
    [
        (Deployment(system="h800"), "system 'h800' is not known"),
        (Deployment(system="h100", nodes=1, ep=16), "16 ranks do not fit evenly on 1 nodes"),
        (Deployment(system="h100", nodes=2, ep=9), "9 ranks do not fit evenly on 2 nodes"),
        (Deployment(system="h100", ep=6), "16 experts do not divide over 6 ranks"),
        (Deployment(system="h100", comm_sms=7), "7 communication SMs are not possible"),
        (Deployment(system="h100", comm_sms=132), "132 communication SMs are not possible"),
    ],
)
def test_impossible_deployments_are_refused(deployment, message):
    job = Workload(model=small_workload().model, deployment=deployment, sequences=((8, 0),))
    with pytest.raises(InputError, match=message):
        check_workload(job)


@pytest.mark.parametrize(
    ("tokens", "seq_len", "expected"),
    [(8, 4, ((4, 0), (4, 0))), (9, 4, ((4, 0), (4, 0), (1, 0))), (3, 4, ((3, 0),))],
)
def test_prompts(tokens, seq_len, expected):
    assert prompts(tokens, seq_len) == expected


@pytest.mark.parametrize(
    ("sequences", "ubatches", "expected"),
    [
        (((4, 0), (4, 0)), 2, [((4, 0),), ((4, 0),)]),
        (((8, 0),), 2, [((4, 0),), ((4, 4),)]),  # the second part has the first as context
        (((5, 3), (4, 0)), 2, [((4, 3),), ((1, 7), (4, 0))]),  # 9 // 2, the last takes the rest
        (((7, 0),), 3, [((2, 0),), ((2, 2),), ((3, 4),)]),
        (((1, 0),), 2, [(), ((1, 0),)]),
    ],
)
def test_split_by_token(sequences, ubatches, expected):
    found = split(sequences, ubatches)
    assert [part.sequences for part in found] == expected
    assert [part.tokens for part in found] == [sum(n for n, _ in part) for part in expected]


@pytest.mark.parametrize(
    ("experts", "topk", "ep", "rows"),
    [(4, 1, 2, 100), (4, 4, 2, 200), (4, 4, 4, 400), (4, 2, 2, 167), (4, 2, 1, 100)],
)
def test_received_rows(experts, topk, ep, rows):
    """One expert: one rank. All experts: all ranks. Two of four over two ranks: 2 (1 - 1/6)."""
    import msgspec

    model = msgspec.structs.replace(
        small_workload().model, n_routed_experts=experts, num_experts_per_tok=topk
    )
    job = Workload(model=model, deployment=Deployment(system="h100", ep=ep), sequences=((100, 0),))
    assert received_rows(job, 100) == rows


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
    declared = [buffer.id for layer in layers for buffer in buffers_of(job, layer)]
    used = {name for layer in layers for op in layer.ops for name in (*op.reads, *op.writes)}
    assert sorted(declared) == sorted(used)
    sizes = {buffer.id: buffer.bytes for layer in layers for buffer in buffers_of(job, layer)}
    assert sizes["L1.u0.hidden"] == 64 * 256 * 2
    assert sizes["L1.u0.routed_tokens"] == 64 * (256 + 2 * 4)  # FP8 and two scales a token
    assert sizes["L1.u0.topk"] == 64 * 4 * 12
