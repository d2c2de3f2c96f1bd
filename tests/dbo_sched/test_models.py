"""Model shapes: those published, those of a config.json, and what is refused."""

import json

import pytest

from dbo_sched import InputError, load_model
from dbo_sched.models import Gqa, Mla, model_from_config, preset_names

LATENT = {
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}

PUBLISHED = {
    # layers, dense, hidden, heads, attention, dense width, experts' width, routed, top-k, shared
    "deepseek-v3": (61, 3, 7168, 128, Mla(q_lora_rank=1536, **LATENT), 18432, 2048, 256, 8, 1),
    "deepseek-v2-lite": (27, 1, 2048, 16, Mla(**LATENT), 10944, 1408, 64, 6, 2),
    "kimi-k2": (61, 1, 7168, 64, Mla(q_lora_rank=1536, **LATENT), 18432, 2048, 384, 8, 1),
    "qwen3-30b-a3b": (
        *(48, 0, 2048, 32, Gqa(num_key_value_heads=4, head_dim=128)),
        *(6144, 768, 128, 8, 0),
    ),
    "qwen3-235b-a22b": (
        *(94, 0, 4096, 64, Gqa(num_key_value_heads=4, head_dim=128)),
        *(12288, 1536, 128, 8, 0),
    ),
    "glm-4.5": (
        *(92, 3, 5120, 96, Gqa(num_key_value_heads=8, head_dim=128)),
        *(12288, 1536, 160, 8, 1),
    ),
    "mixtral-8x7b": (
        *(32, 0, 4096, 32, Gqa(num_key_value_heads=8, head_dim=128)),
        *(14336, 14336, 8, 2, 0),
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_presets_have_their_published_shapes(name):
    model = load_model(name)
    assert (
        model.num_hidden_layers,
        model.first_k_dense_replace,
        model.hidden_size,
        model.num_attention_heads,
        model.attention,
        model.intermediate_size,
        model.moe_intermediate_size,
        model.n_routed_experts,
        model.num_experts_per_tok,
        model.n_shared_experts,
    ) == PUBLISHED[name]


def test_presets_are_those_and_a_tiny_one():
    assert preset_names() == sorted([*PUBLISHED, "tiny"])


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


COMMON = ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_experts_per_tok")


def dumped(keys, changes):
    return json.dumps({key: value for key, value in (keys | changes).items() if value is not ...})


def qwen(**changes):
    widths = ("num_key_value_heads", "head_dim", "intermediate_size", "moe_intermediate_size")
    keys = dict.fromkeys((*COMMON, *widths, "num_experts"), 4)
    return dumped(keys | {"architectures": ["Qwen3MoeForCausalLM"]}, changes)


def mixtral(**changes):
    keys = dict.fromkeys((*COMMON, "num_key_value_heads", "intermediate_size"), 4)
    return dumped(keys | {"num_local_experts": 8, "architectures": ["MixtralForCausalLM"]}, changes)


def test_each_family_reads_its_own_keys():
    def read(text):
        return model_from_config(text, name="m", where="c")

    assert read(config(q_lora_rank=None)).attention.q_lora_rank is None
    assert read(qwen(mlp_only_layers=[0, 1])).first_k_dense_replace == 2
    assert read(qwen(num_experts=..., num_local_experts=16)).n_routed_experts == 16
    found = read(mixtral(hidden_size=64, num_attention_heads=8))
    assert found.attention == Gqa(num_key_value_heads=4, head_dim=8)  # 64 / 8
    assert (found.n_routed_experts, found.moe_intermediate_size) == (8, 4)
    assert read(mixtral(head_dim=128)).attention.head_dim == 128


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "c: not JSON"),
        ("[]", "c: not a JSON object"),
        (config(architectures=["LlamaForCausalLM"]), "architecture LlamaForCausalLM is not known"),
        (config(architectures=...), r"architecture \(none given\) is not known"),
        (config(kv_lora_rank=...), "key kv_lora_rank is missing or null"),
        (config(hidden_size="big"), "key hidden_size is 'big'; give it a whole number"),
        (config(hidden_size=2.5), r"key hidden_size is 2\.5"),
        (config(q_lora_rank=True), "key q_lora_rank is True"),
        (qwen(num_experts="128"), "key num_experts is '128'"),
        (
            qwen(num_key_value_heads=3),
            "num_attention_heads 4 is no multiple of num_key_value_heads",
        ),
        (config(hidden_size=-1), "Expected `int` >= 1"),
        (config(num_experts_per_tok=5), "num_experts_per_tok 5 is more than the 4 routed"),
        (config(moe_layer_freq=2), "moe_layer_freq is 2: only 1 is known"),
        (config(q_lora_rank=...), "key q_lora_rank is missing or null"),
        (qwen(num_experts=...), "key num_experts is missing or null"),
        (qwen(head_dim=..., num_key_value_heads=...), "key num_key_value_heads, head_dim is"),
        (qwen(decoder_sparse_step=2), "decoder_sparse_step is 2: only 1 is known"),
        (qwen(mlp_only_layers=[3]), r"mlp_only_layers is \[3\]: only the first layers is known"),
        (mixtral(num_local_experts=...), "key num_local_experts is missing or null"),
        (mixtral(intermediate_size=...), "key intermediate_size is missing or null"),
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
