"""What all data of the project is made of: immutable structs that refuse unknown fields."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]
RankCount: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=65_536)]
"""Ranks of a program; the bound keeps a slip of the pen from filling the memory."""
Size: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=2**24)]
"""One side of a tensor."""


class Frozen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of every struct that is saved and read back."""
