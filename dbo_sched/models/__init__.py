"""Model shapes, read from Hugging Face ``config.json`` values.

The presets beside this file keep the keys of the published ``config.json`` that decide shapes
(deepseek-v3.json: huggingface.co/deepseek-ai/DeepSeek-V3, facts about the model, no weights).
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from dbo_sched.errors import InputError
from dbo_sched.structs import Count, Frozen, Positive

MLA_ARCHITECTURES = ("DeepseekV3ForCausalLM",)


class Model(Frozen, frozen=True, kw_only=True):
    """Shapes of an MoE transformer with multi-head latent attention; names as in config.json."""

    name: str
    num_hidden_layers: Positive
    first_k_dense_replace: Count
    hidden_size: Positive
    num_attention_heads: Positive
    q_lora_rank: Positive
    kv_lora_rank: Positive
    qk_nope_head_dim: Positive
    qk_rope_head_dim: Positive
    v_head_dim: Positive
    intermediate_size: Positive
    moe_intermediate_size: Positive
    n_routed_experts: Positive
    num_experts_per_tok: Positive
    n_shared_experts: Count

    def with_layers(self, layers: int) -> Model:
        """The same model cut to its first ``layers`` layers, dense ones first."""
        return msgspec.structs.replace(self, num_hidden_layers=layers)


def preset_names() -> list[str]:
    """Names that :func:`load_model` knows."""
    files = resources.files(__name__).iterdir()
    return sorted(file.name.removesuffix(".json") for file in files if file.name.endswith(".json"))


def load_model(name: str) -> Model:
    """A preset by name, or the ``config.json`` at a path.

    Raises:
        InputError: unknown preset, unreadable file, unknown architecture, missing or wrong key.
    """
    if name in preset_names():
        text = resources.files(__name__).joinpath(f"{name}.json").read_text(encoding="utf-8")
        return model_from_config(text, name=name, where=f"preset {name}")
    path = Path(name)
    if not path.suffix and not path.exists():
        raise InputError(
            f"model '{name}' is not known",
            where="--model",
            mend=f"use one of {', '.join(preset_names())}, or the path of a config.json",
        )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot be read: {error}",
            where=name,
            mend="give the path of a Hugging Face config.json",
        ) from None
    return model_from_config(text, name=path.resolve().parent.name or path.stem, where=name)


def model_from_config(text: str, *, name: str, where: str) -> Model:
    """A :class:`Model` from the text of a Hugging Face ``config.json``.

    Raises:
        InputError: not JSON, an architecture whose shapes are not known, a missing or wrong key.
    """
    try:
        config = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"not JSON: {error}", where=where, mend="give a config.json") from None
    if not isinstance(config, dict):
        raise InputError("not a JSON object", where=where, mend="give a config.json")
    architectures = config.get("architectures") or []
    if not any(known in architectures for known in MLA_ARCHITECTURES):
        raise InputError(
            f"architecture {', '.join(map(str, architectures)) or '(none given)'} is not known",
            where=where,
            mend=f"use a model of one of: {', '.join(MLA_ARCHITECTURES)}",
        )
    if config.get("moe_layer_freq", 1) != 1:
        raise InputError(
            f"moe_layer_freq is {config['moe_layer_freq']}: only 1 is known",
            where=where,
            mend="use a model whose layers after first_k_dense_replace are all MoE (1)",
        )
    return _shapes(config, name=name.replace(" ", "-"), where=where)


def _shapes(config: dict[str, Any], *, name: str, where: str) -> Model:
    keys = [field for field in Model.__struct_fields__ if field != "name"]
    missing = [key for key in keys if config.get(key) is None]
    if missing:
        raise InputError(
            f"key {', '.join(missing)} is missing", where=where, mend="add it to the config.json"
        )
    try:
        model = msgspec.convert({"name": name, **{key: config[key] for key in keys}}, Model)
    except msgspec.ValidationError as error:
        raise InputError(f"wrong value: {error}", where=where, mend="mend that key") from None
    if model.num_experts_per_tok > model.n_routed_experts:
        raise InputError(
            f"num_experts_per_tok {model.num_experts_per_tok} is more than the "
            f"{model.n_routed_experts} routed experts",
            where=where,
            mend="mend one of the two keys",
        )
    return model
