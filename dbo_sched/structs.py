"""What all data of the project is made of: immutable structs that refuse unknown fields."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]


class Frozen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of every struct that is saved and read back."""
