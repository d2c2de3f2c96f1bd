"""The plan language: what a schedule emits, what the model predicts and the GPU runs.

A :class:`Program` is what is saved: one :class:`Plan` per class of ranks. A plan is one list of
commands in host order over immutable ops, buffers, streams and communicators. Both forms of a
program, JSON (here) and text (``dbo_sched.text``), round-trip exactly. Times are integer
nanoseconds, sizes are bytes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from math import isfinite
from typing import Annotated, Literal, TypeAlias

import msgspec

from dbo_sched.errors import InputError
from dbo_sched.structs import Count, Frozen, Positive
from dbo_sched.workload import Slice, Workload

FORMAT_VERSION = 1


_ID = re.compile(r"[^\s=#,:/]+")


class Stream(Frozen, frozen=True, kw_only=True):
    """A CUDA stream of every rank; ``priority`` orders kernels that wait for SMs."""

    id: str
    priority: Literal["normal", "high"] = "normal"


class Communicator(Frozen, frozen=True, kw_only=True):
    """What collectives meet on. All ranks of the program take part.

    ``transport`` decides what two ops of one communicator may do at once: NCCL chains them with
    events of its own, the others share their arrival state and must be ordered by the plan.
    """

    id: str
    transport: Literal["deepep", "nccl", "custom", "symm-mem"] = "deepep"


class Buffer(Frozen, frozen=True, kw_only=True):
    """Memory that ops read and write.

    ``pool`` is the stream whose memory pool it comes from; ``view_of`` names the buffer whose
    storage it shares; ``workspace`` the communicator that owns it; ``version`` tells states of one
    resource apart (an expert map before and after rebalancing).
    """

    id: str
    bytes: Count = 0
    pool: str = "compute"
    view_of: str | None = None
    workspace: str | None = None
    version: Count = 0


class Follows(Frozen, frozen=True, kw_only=True):
    """A partial dependency: start once ``threshold`` of the producer's ``tiles`` are done."""

    producer: str
    tiles: Positive
    threshold: Positive


class Op(Frozen, frozen=True, kw_only=True):
    """One unit of work that a single launch command puts on a stream.

    ``tokens`` counts the rows that the op processes on this rank: tokens, or (token, expert) pairs
    for experts. ``comm`` makes it a collective: gang-launched on ``sms`` SMs, meeting all ranks.
    For other ops ``sms`` caps the SMs used and ``tiles`` says into how many CTAs the work is cut
    (without it the op holds no SMs in the model). ``blocks_host``: the call returns only when a
    collective's notify phase, or else the whole op, has ended. ``ns`` fixes durations, alone on the
    GPU, per phase: ``layout``, ``notify``, ``data`` for collectives, one entry per kernel
    otherwise. ``scratch`` names hidden memory that all ops of that name share.
    """

    id: str
    kind: str
    layer: Count = 0
    ubatch: Count = 0
    tokens: Count = 0
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    comm: str | None = None
    sms: Positive | None = None
    tiles: Positive | None = None
    scratch: str | None = None
    blocks_host: bool = False
    ns: Annotated[dict[str, Count], msgspec.Meta(min_length=1)] | None = None
    follows: Follows | None = None


class Command(Frozen, frozen=True, kw_only=True, tag_field="do"):
    """One step of the host; ``turn`` is the ubatch whose host turn issues it."""

    turn: Count = 0


class Launch(Command, frozen=True, kw_only=True, tag="launch"):
    """Put an op on a stream."""

    op: str
    stream: str = "compute"


class Record(Command, frozen=True, kw_only=True, tag="record"):
    """Record an event at the tail of a stream; recording again overwrites."""

    event: str
    stream: str


class Wait(Command, frozen=True, kw_only=True, tag="wait"):
    """Make a stream wait for the latest record of the event *before this command in host order*.

    With no such record it passes at once, as in CUDA.
    """

    event: str
    stream: str


class HostWait(Command, frozen=True, kw_only=True, tag="host-wait"):
    """Block the host until the event's latest record is done."""

    event: str


class Yield(Command, frozen=True, kw_only=True, tag="yield"):
    """Hand the host to the next ubatch."""


class Alloc(Command, frozen=True, kw_only=True, tag="alloc"):
    """Take a buffer from its pool."""

    buffer: str


class Free(Command, frozen=True, kw_only=True, tag="free"):
    """Return a buffer to its pool."""

    buffer: str


class Guard(Command, frozen=True, kw_only=True, tag="guard"):
    """Extend a buffer's lifetime to a stream's present tail; adds no order (``record_stream``)."""

    buffer: str
    stream: str


AnyCommand: TypeAlias = Launch | Record | Wait | HostWait | Yield | Alloc | Free | Guard
COMMANDS: tuple[type[AnyCommand], ...] = (
    Launch,
    Record,
    Wait,
    HostWait,
    Yield,
    Alloc,
    Free,
    Guard,
)

DEFAULT_STREAMS = (
    Stream(id="compute"),
    Stream(id="a2a", priority="high"),
    Stream(id="comm"),
    Stream(id="aux"),
)


class Plan(Frozen, frozen=True, kw_only=True):
    """What the host of every rank in ``ranks`` issues, in order.

    ``captured``: a CUDA graph holds the plan; one launch replays it and the host cannot take part.
    """

    ranks: tuple[Count, ...]
    captured: bool = False
    ubatches: tuple[Slice, ...] = ()
    buffers: tuple[Buffer, ...] = ()
    ops: tuple[Op, ...] = ()
    commands: tuple[AnyCommand, ...] = ()


class Program(Frozen, frozen=True, kw_only=True):
    """What is saved, checked, simulated and run. Its ``plans`` cover ranks 0..ranks-1 once each."""

    version: int = FORMAT_VERSION
    schedule: str = ""
    options: dict[str, str | int | float | bool] = msgspec.field(default_factory=dict)
    ranks: Positive = 1
    workload: Workload | None = None
    more_streams: tuple[Stream, ...] = ()
    comms: tuple[Communicator, ...] = ()
    plans: tuple[Plan, ...] = ()

    @property
    def streams(self) -> tuple[Stream, ...]:
        """The four that every program has, and those that this one adds."""
        return DEFAULT_STREAMS + self.more_streams

    @property
    def hash(self) -> str:
        """First 12 hex digits of the SHA-256 of the JSON form."""
        return hashlib.sha256(to_json(self)).hexdigest()[:12]

    def plan_of(self, rank: int) -> Plan:
        """The plan that a rank runs."""
        return next(plan for plan in self.plans if rank in plan.ranks)


def with_durations(program: Program, durations: Callable[[Op], dict[str, int]]) -> Program:
    """The same program with ``ns`` of every op as ``durations`` says: nanoseconds per phase."""
    replace = msgspec.structs.replace
    plans = (
        replace(plan, ops=tuple(replace(op, ns=durations(op)) for op in plan.ops))
        for plan in program.plans
    )
    return replace(program, plans=tuple(plans))


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
        raise InputError(
            f"not a program: {error}", where=where, mend="mend the field that the path names"
        ) from None
    check(program, where)
    return program


class _Versioned(msgspec.Struct):
    version: int


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
            if owners.setdefault(rank, number) != number or plan.ranks.count(rank) > 1:
                raise InputError(
                    f"rank {rank} is given two plans", where=place, mend="name it in one of them"
                )
        _check_plan(plan, streams, comms, partial(_place_in, place, number, lines))
    missing = sorted(set(range(program.ranks)) - set(owners))
    if missing:
        raise InputError(
            f"no plan covers {ranks_text(missing)}",
            where=where,
            mend="add them to a plan's ranks, or lower the program's rank count",
        )


def ranks_text(ranks: Iterable[int]) -> str:
    """``rank 3`` or ``ranks 0-2,5``."""
    spans = rank_spans(ranks)
    return f"rank {spans}" if spans.isdigit() else f"ranks {spans}"


def rank_spans(ranks: Iterable[int]) -> str:
    """Runs of ranks, in the order given, as ``0-2,5``."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _check_names(program: Program, where: str) -> None:
    """Names in the header go into one word of the text form."""
    names = {"schedule": program.schedule or "-", **{f"option {k}": k for k in program.options}}
    if program.workload is not None:
        names["model name"] = program.workload.model.name
        names["system"] = program.workload.deployment.system
    for plan in program.plans:
        names.update({f"phase of op '{op.id}'": phase for op in plan.ops for phase in op.ns or ()})
    for option, value in program.options.items():
        if isinstance(value, float) and not isfinite(value):
            raise InputError(
                f"option '{option}' is {value}", where=where, mend="give it a finite number"
            )
    for noun, name in names.items():
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
                mend=f"declare it with a {noun} line, or use one of: {near or 'none is declared'}",
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
