"""The words of command lines, the same for writing and reading."""

from __future__ import annotations

import json

from dbo_sched.plan import COMMANDS

VERBS = {str(command.__struct_config__.tag): command for command in COMMANDS}
"""Commands by verb."""

OPERANDS = {
    verb: [name for name in command.__struct_fields__ if name != "turn"]
    for verb, command in VERBS.items()
}
"""What follows a verb, in order."""


def option(value: str) -> str | int | float | bool:
    """An option's value as it is written: true, false, JSON text, a number or a bare word."""
    if value in ("true", "false"):
        return value == "true"
    if value.startswith('"'):
        return str(json.loads(value))
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value
