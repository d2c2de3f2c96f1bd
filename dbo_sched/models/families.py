"""How the ``config.json`` of each family of models is read: one function per way to write shapes.

Keys and their defaults are those of Hugging Face transformers' configuration classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from dbo_sched.errors import InputError

Fields: TypeAlias = dict[str, Any]


class Config:
    """A parsed ``config.json``, where it came from, and the keys that were looked for in vain."""

    def __init__(self, keys: Mapping[str, Any], where: str) -> None:
        self.keys, self.where = keys, where
        self.missing: list[str] = []

    def get(self, key: str, default: Any = None) -> Any:
        """The number of a key; one that is left out or null, and has no default, is noted.

        Raises:
            InputError: something else than a whole number.
        """
        value = self.keys.get(key)
        if value is not None:
            if not isinstance(value, int) or isinstance(value, bool):
                raise InputError(
                    f"key {key} is {value!r}", where=self.where, mend="give it a whole number"
                )
            return value
        if default is None:
            self.missing.append(key)
        return default

    def refuse(self, key: str, only: str, mend: str) -> InputError:
        """The error for a layout of layers that is not known."""
        return InputError(
            f"{key} is {self.keys[key]}: only {only} is known", where=self.where, mend=mend
        )


def _common(config: Config) -> Fields:
    """What every family writes alike."""
    keys = ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_experts_per_tok")
    return {key: config.get(key) for key in keys}


def _grouped(config: Config) -> Fields:
    """Grouped-query attention."""
    keys = ("num_key_value_heads", "head_dim")
    return {"kind": "gqa", **{key: config.get(key) for key in keys}}


def _deepseek(config: Config) -> Fields:
    """DeepSeek V2 and V3, Kimi K2: latent attention, dense layers first, shared experts."""
    if config.keys.get("moe_layer_freq", 1) != 1:
        raise config.refuse(
            "moe_layer_freq",
            "1",
            "use a model whose layers after first_k_dense_replace are all MoE (1)",
        )
    ranks = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    attention = {"kind": "mla", **{key: config.get(key) for key in ranks}}
    if config.keys.get("q_lora_rank") is not None:
        attention["q_lora_rank"] = config.get("q_lora_rank")
    elif "q_lora_rank" not in config.keys:
        config.missing.append("q_lora_rank")  # null says that there is none; silence says nothing
    return _common(config) | _dense_first(config) | {"attention": attention}


def _glm(config: Config) -> Fields:
    """GLM-4.5: grouped-query attention, dense layers first, shared experts."""
    return _common(config) | _dense_first(config) | {"attention": _grouped(config)}


def _dense_first(config: Config) -> Fields:
    return {
        "first_k_dense_replace": config.get("first_k_dense_replace"),
        "intermediate_size": config.get("intermediate_size"),
        "moe_intermediate_size": config.get("moe_intermediate_size"),
        "n_routed_experts": config.get("n_routed_experts"),
        "n_shared_experts": config.get("n_shared_experts", 0),  # null: none
    }


def _qwen(config: Config) -> Fields:
    """Qwen3-MoE: grouped-query attention, no shared experts, dense layers listed one by one."""
    if config.keys.get("decoder_sparse_step", 1) != 1:
        raise config.refuse("decoder_sparse_step", "1", "use a model with an MoE in every layer")
    renamed = "num_experts" not in config.keys and "num_local_experts" in config.keys
    dense = config.keys.get("mlp_only_layers") or []
    if dense != list(range(len(dense))):
        raise config.refuse("mlp_only_layers", "the first layers", "use a model of that layout")
    return _common(config) | {
        "attention": _grouped(config),
        "first_k_dense_replace": len(dense),
        "intermediate_size": config.get("intermediate_size"),
        "moe_intermediate_size": config.get("moe_intermediate_size"),
        "n_routed_experts": config.get("num_local_experts" if renamed else "num_experts"),
        "n_shared_experts": 0,
    }


def _mixtral(config: Config) -> Fields:
    """Mixtral: grouped-query attention, every layer MoE, experts as wide as a dense layer.

    Its heads share out the hidden size unless ``head_dim`` says otherwise.
    """
    heads, hidden = config.get("num_attention_heads"), config.get("hidden_size")
    whole = isinstance(heads, int) and isinstance(hidden, int) and heads > 0
    return _common(config) | {
        "attention": {
            "kind": "gqa",
            "num_key_value_heads": config.get("num_key_value_heads"),
            "head_dim": config.get("head_dim", hidden // heads if whole else None),
        },
        "first_k_dense_replace": 0,
        "intermediate_size": config.get("intermediate_size"),
        "moe_intermediate_size": config.get("intermediate_size"),
        "n_routed_experts": config.get("num_local_experts"),
        "n_shared_experts": 0,
    }


FAMILIES: dict[str, Callable[[Config], Fields]] = {
    "DeepseekV2ForCausalLM": _deepseek,
    "DeepseekV3ForCausalLM": _deepseek,
    "Glm4MoeForCausalLM": _glm,
    "Qwen3MoeForCausalLM": _qwen,
    "MixtralForCausalLM": _mixtral,
}
"""Readers by architecture."""
