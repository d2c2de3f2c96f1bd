"""Model shapes, read from Hugging Face ``config.json`` values.

The presets beside this file keep the keys of the published ``config.json`` that decide shapes
(deepseek-v3.json: huggingface.co/deepseek-ai/DeepSeek-V3, facts about the model, no weights).
"""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec

from dbo_sched.errors import InputError
from dbo_sched.structs import Frozen, Size

Few: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=65_536)]
Many: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=65_536)]

MOST_BYTES = 2**22
"""A config.json has some kilobytes."""

MLA_ARCHITECTURES = ("DeepseekV3ForCausalLM",)


class Model(Frozen, frozen=True, kw_only=True):
    """Shapes of an MoE transformer with multi-head latent attention; names as in config.json."""

    name: str
    num_hidden_layers: Many
    first_k_dense_replace: Few
    hidden_size: Size
    num_attention_heads: Size
    q_lora_rank: Size
    kv_lora_rank: Size
    qk_nope_head_dim: Size
    qk_rope_head_dim: Size
    v_head_dim: Size
    intermediate_size: Size
    moe_intermediate_size: Size
    n_routed_experts: Many
    num_experts_per_tok: Many
    n_shared_experts: Few

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
    if path.suffix != ".json" and not path.is_file():
        raise InputError(
            f"model '{name}' is not known, nor is it a file",
            where="--model",
            mend=f"use {', '.join(preset_names())}, or the path of a config.json",
        )
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MOST_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"cannot be read: {getattr(error, 'strerror', None) or error}",
            where=name,
            mend="give the path of a Hugging Face config.json",
        ) from None
    folder = path.resolve().parent.name or path.stem
    return model_from_config(text, name=re.sub(r"[^\w.-]+", "-", folder), where=name)


def model_from_config(text: str, *, name: str, where: str) -> Model:
    """A :class:`Model` from the text of a Hugging Face ``config.json``.

    Raises:
        InputError: not JSON, an architecture whose shapes are not known, a missing or wrong key.
    """
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON: {error}", where=where, mend="give a config.json") from None
    if not isinstance(config, dict):
        raise InputError("not a JSON object", where=where, mend="give a config.json")
    architectures = config.get("architectures")
    given = architectures if isinstance(architectures, list) else [architectures]
    if not any(known in given for known in MLA_ARCHITECTURES):
        names = ", ".join(map(str, given)) if architectures else "(none given)"
        raise InputError(
            f"architecture {names} is not known",
            where=where,
            mend=f"use a model of one of: {', '.join(MLA_ARCHITECTURES)}",
        )
    if config.get("moe_layer_freq", 1) != 1:
        raise InputError(
            f"moe_layer_freq is {config['moe_layer_freq']}: only 1 is known",
            where=where,
            mend="use a model whose layers after first_k_dense_replace are all MoE (1)",
        )
    return _shapes(config, name=name, where=where)


def _shapes(config: dict[str, Any], *, name: str, where: str) -> Model:
    keys = [field for field in Model.__struct_fields__ if field != "name"]
    missing = [key for key in keys if config.get(key) is None]
    if missing:
        raise InputError(
            f"key {', '.join(missing)} is missing or null", where=where, mend="give it a number"
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
