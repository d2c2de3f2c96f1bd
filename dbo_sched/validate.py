"""Whether the parts of a program name each other rightly; whether it is safe is another matter."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from math import isfinite
from typing import TypeAlias

import msgspec

from dbo_sched.errors import InputError
from dbo_sched.plan import (
    FORMAT_VERSION,
    HOST,
    Alloc,
    Buffer,
    Communicator,
    Free,
    Guard,
    HostWait,
    Launch,
    Op,
    Plan,
    Program,
    Record,
    Stream,
    Wait,
    ranks_text,
)

_ID = re.compile(r"[^\s=#,:/]+")


def check_version(version: int, where: str) -> None:
    """Refuse a format that this release does not read."""
    if version != FORMAT_VERSION:
        raise InputError(
            f"format version {version} is not known",
            where=where,
            mend=f"this release reads version {FORMAT_VERSION}; emit the program again",
        )


Lines: TypeAlias = Mapping[tuple[int, str], int]
"""Where a thing stands in the text form: (plan number, "op 'x'" or "command 3") -> line."""


def check(program: Program, where: str = "program", lines: Lines | None = None) -> None:
    """Refuse a program whose parts do not name each other rightly. Hazards are another matter.

    ``lines`` lets errors name the line of the text form.

    Raises:
        InputError: on an id that is malformed, unknown or given twice, an op launched twice, and
            ranks that no plan or two plans cover.
    """
    check_version(program.version, where)
    _check_options(program, where)
    try:
        msgspec.json.decode(msgspec.json.encode(program), type=Program)
    except (msgspec.MsgspecError, TypeError, OverflowError) as error:
        raise InputError(str(error), where=where, mend="mend the field of the path") from None
    _check_names(program, where)
    streams = _unique("stream", program.streams, partial(_place_in, where, 0, lines))
    comms = _unique("comm", program.comms, partial(_place_in, where, 0, lines))
    owners: dict[int, int] = {}
    for number, plan in enumerate(program.plans):
        if not plan.ranks:
            raise InputError(
                f"plan {number} covers no rank", where=where, mend="name its ranks, or delete it"
            )
        place = f"{where}, plan {number}" if len(program.plans) > 1 else where
        for rank in plan.ranks:
            if rank >= program.ranks:
                raise InputError(
                    f"rank {rank} does not exist: the program has {program.ranks} ranks",
                    where=place,
                    mend=f"name ranks 0 to {program.ranks - 1}",
                )
            if rank in owners:
                raise InputError(
                    f"rank {rank} is given two plans", where=place, mend="name it in one of them"
                )
            owners[rank] = number
        _check_plan(plan, streams, comms, partial(_place_in, place, number, lines))
    workload = program.workload
    if workload is not None and workload.deployment.ep != program.ranks:
        raise InputError(
            f"the program has {program.ranks} ranks, its deployment {workload.deployment.ep}",
            where=where,
            mend="give both the same number",
        )
    missing = sorted(set(range(program.ranks)) - set(owners))
    if missing:
        raise InputError(
            f"no plan covers {ranks_text(missing)}",
            where=where,
            mend="add them to a plan's ranks, or lower the program's rank count",
        )


def _check_options(program: Program, where: str) -> None:
    for option, value in program.options.items():
        if not option.isidentifier():
            raise InputError(
                f"option {option!r} is no Python name", where=where, mend="name it like comm_sms"
            )
        if isinstance(value, float) and not isfinite(value):
            raise InputError(
                f"option '{option}' is {value}", where=where, mend="give it a finite number"
            )


def _check_names(program: Program, where: str) -> None:
    """Names in the header go into one word of the text form."""
    names = [("schedule", program.schedule or "-")]
    if program.workload is not None:
        names.append(("model name", program.workload.model.name))
        names.append(("system", program.workload.deployment.system))
    for op in (op for plan in program.plans for op in plan.ops):
        names += [(f"phase '{phase}' of op '{op.id}'", phase) for phase, _ in op.ns or ()]
        names.append((f"kind of op '{op.id}'", op.kind))
        names.append((f"scratch of op '{op.id}'", op.scratch or "-"))
    for noun, name in names:
        if not _ID.fullmatch(name):
            raise InputError(
                f"{noun} {name!r} is not a name",
                where=where,
                mend="use letters, digits and . _ - without blanks or any of = # , : /",
            )


Place: TypeAlias = Callable[[str], str]
"""Where a thing of a plan stands, for an error to name."""


def _place_in(where: str, plan: int, lines: Lines | None, thing: str) -> str:
    line = (lines or {}).get((plan, thing))
    return where if line is None else f"{where}, line {line}"


def _unique(
    noun: str, things: Iterable[Stream | Communicator | Buffer | Op], place: Place
) -> set[str]:
    seen: set[str] = set()
    for thing in things:
        where = place(f"{noun} '{thing.id}'")
        if thing.id == HOST and noun == "stream":
            raise InputError(
                "a stream is called 'host', as the host's own lane is",
                where=where,
                mend="rename it",
            )
        if not _ID.fullmatch(thing.id):
            raise InputError(
                f"{noun} id {thing.id!r} is not a name",
                where=where,
                mend="use letters, digits and . _ - without blanks or any of = # , : /",
            )
        if thing.id in seen:
            raise InputError(
                f"{noun} '{thing.id}' is given twice", where=where, mend="rename or delete one"
            )
        seen.add(thing.id)
    return seen


def _check_plan(plan: Plan, streams: set[str], comms: set[str], place: Place) -> None:
    buffers = _unique("buffer", plan.buffers, place)
    ops = _unique("op", plan.ops, place)
    for name, noun, known, user in _references(plan, streams, comms, buffers, ops):
        if name not in known:
            near = ", ".join(sorted(known)[:6]) + (", ..." if len(known) > 6 else "")
            raise InputError(
                f"{user} names {noun} '{name}', which is not declared",
                where=place(user),
                mend=f"declare it ({noun} {name} ...), or use one of: {near or 'none is declared'}",
            )
    views = {buffer.id: buffer.view_of for buffer in plan.buffers if buffer.view_of is not None}
    for name in views:
        seen, at = {name}, views.get(name)
        while at is not None and at not in seen:
            seen.add(at)
            at = views.get(at)
        if at is not None:
            raise InputError(
                f"buffer '{name}' is a view of itself",
                where=place(f"buffer '{name}'"),
                mend="let one buffer of the circle own the storage",
            )
    for op in plan.ops:
        phases = [phase for phase, _ in op.ns or ()]
        if len(set(phases)) < len(phases):
            raise InputError(
                f"op '{op.id}' names a phase twice",
                where=place(f"op '{op.id}'"),
                mend="give each phase one duration",
            )
        follows = op.follows
        if follows is not None and (follows.producer == op.id or follows.threshold > follows.tiles):
            raise InputError(
                f"op '{op.id}' follows {follows.threshold} of {follows.tiles} tiles of "
                f"'{follows.producer}'",
                where=place(f"op '{op.id}'"),
                mend="name another op, and no more tiles than it has",
            )
    launched: set[str] = set()
    for number, command in enumerate(plan.commands):
        where = place(f"command {number}")
        if isinstance(command, Launch):
            if command.op in launched:
                raise InputError(
                    f"op '{command.op}' is launched a second time",
                    where=where,
                    mend="give the second launch an op of its own",
                )
            launched.add(command.op)
        elif isinstance(command, Record | Wait | HostWait) and not _ID.fullmatch(command.event):
            raise InputError(
                f"event name {command.event!r} is not a name",
                where=where,
                mend="use letters, digits and . _ - without blanks",
            )


def _references(
    plan: Plan, streams: set[str], comms: set[str], buffers: set[str], ops: set[str]
) -> Iterator[tuple[str, str, set[str], str]]:
    """Every name that the plan uses: (name, what it must be, the declared ones, who uses it)."""
    for buffer in plan.buffers:
        user = f"buffer '{buffer.id}'"
        yield buffer.pool, "stream", streams, user
        if buffer.view_of is not None:
            yield buffer.view_of, "buffer", buffers, user
        if buffer.workspace is not None:
            yield buffer.workspace, "comm", comms, user
    for op in plan.ops:
        user = f"op '{op.id}'"
        for name in (*op.reads, *op.writes):
            yield name, "buffer", buffers, user
        if op.comm is not None:
            yield op.comm, "comm", comms, user
        if op.follows is not None:
            yield op.follows.producer, "op", ops, user
    for number, command in enumerate(plan.commands):
        user = f"command {number}"
        if isinstance(command, Launch):
            yield command.op, "op", ops, user
        if isinstance(command, Launch | Record | Wait | Guard):
            yield command.stream, "stream", streams, user
        if isinstance(command, Alloc | Free | Guard):
            yield command.buffer, "buffer", buffers, user
