"""Hypothesis strategies for small programs of one to three ranks."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from dbo_sched.plan import Communicator, HostWait, Launch, Op, Plan, Program, Record, Wait, Yield

STREAMS = ("compute", "a2a", "comm", "aux")
EVENTS = ("e0", "e1", "e2")
COMMS = (Communicator(id="x"), Communicator(id="y"))
times = st.integers(0, 60)
sizes = st.sampled_from((0, 500, 1000, 3000))


@st.composite
def ops(draw, name: str) -> Op:
    if draw(st.booleans()):
        phases = [phase for phase in ("layout", "notify") if draw(st.booleans())]
        return Op(
            id=name,
            kind="dispatch",
            comm=draw(st.sampled_from(("x", "y"))),
            sms=draw(st.sampled_from((None, 2, 4, 6))),
            blocks_host=draw(st.booleans()),
            ns=tuple((phase, draw(times)) for phase in (*phases, "data")),
            bytes=draw(sizes),
        )
    return Op(
        id=name,
        kind="experts",
        blocks_host=draw(st.integers(0, 9)) == 0,
        tiles=draw(st.sampled_from((None, 1, 5, 8, 9, 40))),
        sms=draw(st.sampled_from((None, 3, 8))),
        ns=tuple((f"k{i}", draw(times)) for i in range(draw(st.integers(1, 2)))),
        bytes=draw(sizes),
    )


@st.composite
def varied(draw, op: Op) -> Op:
    """The same op with other durations, as on a rank with other tokens."""
    return msgspec.structs.replace(op, ns=tuple((phase, draw(times)) for phase, _ in op.ns))


@st.composite
def commands(draw, launched: list[Op]) -> list:
    issued: list = []
    for op in launched:
        for _ in range(draw(st.integers(0, 2))):
            turn = draw(st.integers(0, 1))
            event, stream = draw(st.sampled_from(EVENTS)), draw(st.sampled_from(STREAMS))
            issued.append(
                draw(
                    st.sampled_from(
                        (
                            Record(turn=turn, event=event, stream=stream),
                            Record(turn=turn, event=event, stream=stream),
                            Wait(turn=turn, event=event, stream=stream),
                            Wait(turn=turn, event=event, stream=stream),
                            HostWait(turn=turn, event=event),
                            Yield(turn=turn),
                        )
                    )
                )
            )
        stream = draw(st.sampled_from(STREAMS))
        issued.append(Launch(turn=draw(st.integers(0, 1)), op=op.id, stream=stream))
    return issued


@st.composite
def programs(draw, spmd: bool | None = None) -> Program:
    """SPMD programs, or ones whose ranks have orders and durations of their own, or lack an op."""
    ranks = draw(st.integers(1, 3))
    everyone = tuple(range(ranks))
    base = [draw(ops(f"op{i}")) for i in range(draw(st.integers(1, 8)))]
    if draw(st.booleans()) if spmd is None else spmd:
        plan = Plan(ranks=everyone, ops=tuple(base), commands=tuple(draw(commands(base))))
        return Program(ranks=ranks, comms=COMMS, plans=(plan,))
    plans = []
    for rank in everyone:
        own = [op if draw(st.booleans()) else draw(varied(op)) for op in base]
        if draw(st.integers(0, 3)) == 0:
            own = draw(st.permutations(own))
        if draw(st.integers(0, 7)) == 0:
            own = own[1:]
        plans.append(Plan(ranks=(rank,), ops=tuple(own), commands=tuple(draw(commands(own)))))
    return Program(ranks=ranks, comms=COMMS, plans=tuple(plans))


@st.composite
def two_plans(draw) -> Program:
    """Four ranks, some of which run one plan and the rest the same with other durations."""
    base = [draw(ops(f"op{i}")) for i in range(draw(st.integers(1, 8)))]
    issued = tuple(draw(commands(base)))
    first = draw(st.sets(st.integers(0, 3), min_size=1))
    groups = [tuple(sorted(ranks)) for ranks in (first, {0, 1, 2, 3} - first) if ranks]
    contents = [tuple(base), tuple(draw(varied(op)) for op in base)]
    plans = (
        Plan(ranks=ranks, ops=own, commands=issued)
        for ranks, own in zip(groups, contents, strict=False)
    )
    return Program(ranks=4, comms=COMMS, plans=tuple(plans))
