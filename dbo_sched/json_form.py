"""The JSON form of a program: versioned, strict about unknown fields, errors that name the path."""

from __future__ import annotations

import msgspec

from dbo_sched.errors import InputError
from dbo_sched.plan import Program
from dbo_sched.validate import check, check_version


def to_json(program: Program) -> bytes:
    """The JSON form, one line."""
    return msgspec.json.encode(program)


def from_json(data: bytes, where: str = "program") -> Program:
    """Parse and check the JSON form.

    Raises:
        InputError: naming the JSON path, or the id that is unknown or given twice.
    """
    try:
        version = msgspec.json.decode(data, type=_Versioned).version
        check_version(version, where)
        program = msgspec.json.decode(data, type=Program)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        at = "mend the field that the path names" if " - at `" in str(error) else "emit it again"
        raise InputError(f"not a program: {error}", where=where, mend=at) from None
    check(program, where)
    return program


class _Versioned(msgspec.Struct):
    version: int
