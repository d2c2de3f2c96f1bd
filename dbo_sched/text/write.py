"""Programs as text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from dbo_sched.plan import AnyCommand, Program, rank_spans
from dbo_sched.routing import Routing
from dbo_sched.structs import Frozen
from dbo_sched.text.words import OPERANDS, option
from dbo_sched.workload import Sequences, Workload


def to_text(program: Program) -> str:
    """The text form; :func:`from_text` gives the same program back."""
    return "\n".join(_lines(program)) + "\n"


def _lines(program: Program) -> Iterator[str]:
    head = {"schedule": program.schedule} if program.schedule else {}
    yield " ".join([f"program v{program.version}", *_pairs({**head, "ranks": program.ranks})])
    for key, value in program.options.items():
        yield f"option {key}={_option_text(value)}"
    if program.workload is not None:
        yield from _workload_lines(program.workload)
    yield from (_line("stream", stream) for stream in program.more_streams)
    yield from (_line("comm", comm) for comm in program.comms)
    for plan in program.plans:
        if len(program.plans) > 1 or plan.captured or plan.ranks != tuple(range(program.ranks)):
            yield f"plan ranks={rank_spans(plan.ranks)}" + " captured" * plan.captured
        yield from (_line("ubatch", part) for part in plan.ubatches)
        names = [buffer.id for buffer in plan.buffers] + [op.id for op in plan.ops]
        width = max(map(len, names), default=0)
        yield from (_line("buffer", buffer, width) for buffer in plan.buffers)
        yield from (_line("op    ", op, width) for op in plan.ops)
        yield from command_lines(plan.commands)


def _workload_lines(workload: Workload) -> Iterator[str]:
    attention = workload.model.attention
    kind = str(attention.__struct_config__.tag)
    shape = {**_fields(workload.model), "attention": kind, **_fields(attention)}
    yield " ".join(["model", *_pairs(shape)])
    yield _line("deployment", workload.deployment)
    if workload.routing != Routing():
        yield _line("routing", workload.routing)
    batches: dict[Sequences, list[int]] = {}
    for rank, batch in enumerate(workload.batches):
        batches.setdefault(batch, []).append(rank)
    for batch, ranks in batches.items():
        of = f" ranks={rank_spans(ranks)}" if len(workload.batches) > 1 else ""
        yield f"batch{of} sequences={_write('sequences', batch)}"


def command_lines(commands: Iterable[AnyCommand]) -> Iterator[str]:
    """The lines of some commands, operands aligned."""
    rows = [
        (f"u{command.turn}", verb, *(getattr(command, name) for name in OPERANDS[verb]))
        for command in commands
        for verb in (str(command.__struct_config__.tag),)
    ]
    width = max((len(row[2]) for row in rows if len(row) > 3), default=0)
    for turn, verb, *operands in rows:
        first = operands[0].ljust(width) if len(operands) > 1 else "".join(operands)
        yield "  ".join([turn, verb.ljust(9), first, *operands[1:]]).rstrip()


def _fields(thing: Frozen) -> dict[str, Any]:
    """The fields that are not at their default."""
    return {
        field.name: getattr(thing, field.name)
        for field in msgspec.structs.fields(thing)
        if getattr(thing, field.name) != field.default
    }


def _line(word: str, thing: Frozen, width: int = 0) -> str:
    fields = _fields(thing)
    name = [fields.pop("id").ljust(width)] if "id" in fields else []
    return " ".join([word, *name, *_pairs(fields)]).rstrip()


def _pairs(fields: dict[str, Any]) -> list[str]:
    return [
        key.replace("_", "-") if value is True else f"{key.replace('_', '-')}={_write(key, value)}"
        for key, value in fields.items()
    ]


def _write(key: str, value: Any) -> str:
    if key == "sequences":
        return ",".join(f"{new}+{context}" for new, context in value)
    if key == "ns":
        return ",".join(f"{phase}:{ns}" for phase, ns in value)
    if key == "follows":
        return f"{value.producer}/{value.tiles}/{value.threshold}"
    if key == "arrivals":
        return f"{value.rows}/{','.join(map(str, value.pairs))}"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _option_text(value: str | int | float | bool) -> str:
    bare = isinstance(value, str) and re.fullmatch(r"[\w.-]+", value) and option(value) == value
    return str(value) if bare else json.dumps(value).replace(" ", r"\u0020").replace("#", r"\u0023")
