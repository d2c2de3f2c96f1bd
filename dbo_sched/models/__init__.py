"""Model shapes, read from Hugging Face ``config.json`` values.

The presets beside this file keep the keys of the published ``config.json`` that decide shapes
(facts about the models, no weights): huggingface.co/ deepseek-ai/DeepSeek-V3,
deepseek-ai/DeepSeek-V2-Lite, Qwen/Qwen3-30B-A3B, Qwen/Qwen3-235B-A22B, moonshotai/Kimi-K2-Instruct,
zai-org/GLM-4.5, mistralai/Mixtral-8x7B-v0.1. ``tiny`` is nobody's model: four small layers.
"""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec

from dbo_sched.errors import InputError
from dbo_sched.models.families import FAMILIES, Config
from dbo_sched.structs import Frozen, Size

Few: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=65_536)]
Many: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=65_536)]

MOST_BYTES = 2**22
"""A config.json has some kilobytes."""


class Mla(Frozen, frozen=True, kw_only=True, tag_field="kind", tag="mla"):
    """Multi-head latent attention; without ``q_lora_rank`` queries are projected directly."""

    q_lora_rank: Size | None = None
    kv_lora_rank: Size
    qk_nope_head_dim: Size
    qk_rope_head_dim: Size
    v_head_dim: Size


class Gqa(Frozen, frozen=True, kw_only=True, tag_field="kind", tag="gqa"):
    """Grouped-query attention."""

    num_key_value_heads: Size
    head_dim: Size


class Model(Frozen, frozen=True, kw_only=True):
    """Shapes of an MoE transformer; names as in DeepSeek's config.json.

    The first ``first_k_dense_replace`` layers are dense, all others MoE. A model's shared experts
    are one MLP of ``n_shared_experts`` times the width of an expert.
    """

    name: str
    num_hidden_layers: Many
    first_k_dense_replace: Few
    hidden_size: Size
    num_attention_heads: Size
    attention: Mla | Gqa
    intermediate_size: Size
    moe_intermediate_size: Size
    n_routed_experts: Many
    num_experts_per_tok: Many
    n_shared_experts: Few

    @property
    def dense_layers(self) -> int:
        """Layers without experts."""
        return min(self.first_k_dense_replace, self.num_hidden_layers)

    @property
    def moe_layers(self) -> int:
        """Layers with experts."""
        return self.num_hidden_layers - self.dense_layers

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
    read = next((FAMILIES[known] for known in given if known in FAMILIES), None)
    if read is None:
        names = ", ".join(map(str, given)) if architectures else "(none given)"
        raise InputError(
            f"architecture {names} is not known",
            where=where,
            mend=f"use a model of one of: {', '.join(FAMILIES)}",
        )
    source = Config(config, where)
    fields = read(source)
    if source.missing:
        keys = ", ".join(dict.fromkeys(source.missing))
        raise InputError(f"key {keys} is missing or null", where=where, mend="give it a number")
    try:
        model = msgspec.convert({"name": name, **fields}, Model)
    except msgspec.ValidationError as error:
        raise InputError(f"wrong value: {error}", where=where, mend="mend that key") from None
    groups = getattr(model.attention, "num_key_value_heads", 1)
    if model.num_attention_heads % groups:
        raise InputError(
            f"num_attention_heads {model.num_attention_heads} is no multiple of "
            f"num_key_value_heads {groups}",
            where=where,
            mend="mend one of the two keys",
        )
    if model.num_experts_per_tok > model.n_routed_experts:
        raise InputError(
            f"num_experts_per_tok {model.num_experts_per_tok} is more than the "
            f"{model.n_routed_experts} routed experts",
            where=where,
            mend="mend one of the two keys",
        )
    return model
