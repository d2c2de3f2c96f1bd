"""The plan language: what a schedule emits, what the model predicts and the GPU runs.

A :class:`Program` is what is saved: one :class:`Plan` per class of ranks. A plan is one list of
commands in host order over immutable ops, buffers, streams and communicators. Both forms of a
program, JSON (``dbo_sched.json_form``) and text (``dbo_sched.text``), round-trip exactly. Times are
integer nanoseconds, sizes are bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Annotated, Literal, TypeAlias

import msgspec

from dbo_sched.structs import Count, Frozen, Positive, RankCount
from dbo_sched.workload import Slice, Workload

FORMAT_VERSION = 1

HOST = "host"
"""The host's lane beside the streams; no stream may be called so."""


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
    otherwise. ``bytes`` go through memory: in ``data`` of a collective, otherwise spread over the
    kernels in proportion to their ns. ``scratch`` names hidden memory that all ops of that name
    share.
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
    ns: Annotated[tuple[tuple[str, Count], ...], msgspec.Meta(min_length=1)] | None = None
    bytes: Count = 0
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
    ranks: RankCount = 1
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
        """First 12 hex digits of the SHA-256 of the JSON form, keys sorted."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()[:12]

    def _repr_html_(self) -> str:
        from html import escape

        from dbo_sched.period import period_text

        return f"<pre>{escape(period_text(self))}</pre>"

    def plan_of(self, rank: int) -> Plan:
        """The plan that a rank runs."""
        return next(plan for plan in self.plans if rank in plan.ranks)


def with_durations(program: Program, durations: Callable[[Op], dict[str, int]]) -> Program:
    """The same program with ``ns`` of every op as ``durations`` says: nanoseconds per phase."""
    replace = msgspec.structs.replace
    plans = (
        replace(plan, ops=tuple(replace(op, ns=tuple(durations(op).items())) for op in plan.ops))
        for plan in program.plans
    )
    return replace(program, plans=tuple(plans))


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
