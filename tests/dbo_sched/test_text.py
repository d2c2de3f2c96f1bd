"""The two forms of a program: exact round trips, hand-written text, errors that name the line."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import small_workload

from dbo_sched import InputError, build_program
from dbo_sched.json_form import from_json, to_json
from dbo_sched.plan import (
    Alloc,
    Buffer,
    Communicator,
    Follows,
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
    Yield,
    with_durations,
)
from dbo_sched.text import from_text, to_text
from dbo_sched.validate import check
from dbo_sched.workload import Slice

counts = st.integers(0, 10**12)
sizes = st.integers(1, 10**9)
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.\-]{0,8}", fullmatch=True)


@st.composite
def follows(draw, producers: list[str]) -> Follows:
    tiles = draw(sizes)
    threshold = draw(st.integers(1, tiles))
    return Follows(producer=draw(st.sampled_from(producers)), tiles=tiles, threshold=threshold)


@st.composite
def plans(draw, ranks: tuple[int, ...], streams: list[str], comms: list[str]) -> Plan:
    buffer_ids = draw(st.lists(names, unique=True, max_size=3))
    op_ids = draw(st.lists(names, unique=True, max_size=4))
    any_stream = st.sampled_from(streams)
    pick = st.sampled_from(buffer_ids) if buffer_ids else st.nothing()
    some = st.lists(pick, max_size=2).map(tuple) if buffer_ids else st.just(())
    buffers = [
        Buffer(
            id=name,
            bytes=draw(counts),
            pool=draw(any_stream),
            view_of=draw(st.none() | st.sampled_from(buffer_ids[:at])) if at else None,
            workspace=draw(st.none() | st.sampled_from(comms)) if comms else None,
            version=draw(counts),
        )
        for at, name in enumerate(buffer_ids)
    ]
    phases = st.dictionaries(names, counts, min_size=1, max_size=3).map(lambda ns: (*ns.items(),))
    ops = [
        Op(
            id=name,
            kind=draw(names),
            layer=draw(counts),
            ubatch=draw(counts),
            tokens=draw(counts),
            reads=draw(some),
            writes=draw(some),
            comm=draw(st.none() | st.sampled_from(comms)) if comms else None,
            sms=draw(st.none() | sizes),
            tiles=draw(st.none() | sizes),
            scratch=draw(st.none() | names),
            blocks_host=draw(st.booleans()),
            ns=draw(st.none() | phases),
            bytes=draw(counts),
            follows=draw(st.none() | follows(op_ids[:at])) if at else None,
        )
        for at, name in enumerate(op_ids)
    ]
    turns = st.integers(0, 3)
    guards = [Guard] if buffer_ids else []
    commands = [Launch(turn=draw(turns), op=name, stream=draw(any_stream)) for name in op_ids]
    commands += draw(
        st.lists(
            st.one_of(
                st.builds(Record, turn=turns, event=names, stream=any_stream),
                st.builds(Wait, turn=turns, event=names, stream=any_stream),
                st.builds(HostWait, turn=turns, event=names),
                st.builds(Yield, turn=turns),
                *(st.builds(c, turn=turns, buffer=pick) for c in (Alloc, Free) if buffer_ids),
                *(st.builds(c, turn=turns, buffer=pick, stream=any_stream) for c in guards),
            ),
            max_size=6,
        )
    )
    pairs = st.lists(st.tuples(counts, counts), max_size=3).map(tuple)
    slices = st.lists(st.builds(Slice, tokens=counts, sequences=pairs), max_size=2)
    return Plan(
        ranks=ranks,
        captured=draw(st.booleans()),
        ubatches=tuple(draw(slices)),
        buffers=tuple(buffers),
        ops=tuple(ops),
        commands=tuple(draw(st.permutations(commands))),
    )


@st.composite
def programs(draw) -> Program:
    extra = draw(st.lists(names, unique=True, max_size=2))
    extra = [name for name in extra if name not in ("compute", "a2a", "comm", "aux")]
    priorities = st.sampled_from(("normal", "high"))
    transports = st.sampled_from(("deepep", "nccl", "custom", "symm-mem"))
    comms = draw(st.lists(names, unique=True, max_size=2))
    workload = draw(st.none() | st.integers(0, 2).map(lambda n: small_workload(ep=2**n)))
    number = draw(st.integers(1, 5)) if workload is None else workload.deployment.ep
    ranks = draw(st.permutations(range(number)))
    cut = draw(st.integers(0, len(ranks) - 1))
    shares = [share for share in (ranks[:cut], ranks[cut:]) if share]
    values = (
        st.text(max_size=6)
        | st.integers()
        | st.booleans()
        | st.floats(allow_nan=False, allow_infinity=False)
    )
    return Program(
        schedule=draw(st.just("") | names),
        options=draw(st.dictionaries(st.from_regex(r"[a-z][a-z_]{0,5}", fullmatch=True), values)),
        ranks=len(ranks),
        workload=workload,
        more_streams=tuple(Stream(id=name, priority=draw(priorities)) for name in extra),
        comms=tuple(Communicator(id=name, transport=draw(transports)) for name in comms),
        plans=tuple(
            draw(plans(tuple(share), ["compute", "a2a", "comm", "aux", *extra], comms))
            for share in shares
        ),
    )


@settings(max_examples=300, deadline=None)
@given(programs())
def test_both_forms_round_trip(program):
    check(program)
    assert from_json(to_json(program)) == program
    assert from_text(to_text(program)) == program


@pytest.mark.parametrize("schedule", ["sequential", "dbo-ht", "dbo-ht-original"])
def test_made_programs_round_trip(schedule):
    program = build_program(small_workload(3, dense=1), schedule)
    assert from_text(to_text(program)) == from_json(to_json(program)) == program
    assert from_text(to_text(program)).hash == program.hash


def test_hand_written_text_is_read_as_meant():
    program = from_text("""
        # a comment, then the program line
        program v1 schedule=by-hand ranks=4
        option size=8
        option name="8"
        stream fast priority=high
        comm ep transport=nccl
        plan ranks=0-1,3
        op d kind=dispatch comm=ep sms=20 blocks-host ns=layout:3,notify:10,data:60  # trailing
        u1 launch d fast
        plan ranks=2 captured
        buffer x bytes=8 pool=a2a view-of=y
        buffer y
        op d kind=dispatch comm=ep
        op e kind=experts reads=x,y follows=d/8/4
        u0 launch e
    """)
    assert program == Program(
        schedule="by-hand",
        options={"size": 8, "name": "8"},
        ranks=4,
        more_streams=(Stream(id="fast", priority="high"),),
        comms=(Communicator(id="ep", transport="nccl"),),
        plans=(
            Plan(
                ranks=(0, 1, 3),
                ops=(
                    Op(
                        id="d",
                        kind="dispatch",
                        comm="ep",
                        sms=20,
                        blocks_host=True,
                        ns=(("layout", 3), ("notify", 10), ("data", 60)),
                    ),
                ),
                commands=(Launch(turn=1, op="d", stream="fast"),),
            ),
            Plan(
                ranks=(2,),
                captured=True,
                buffers=(Buffer(id="x", bytes=8, pool="a2a", view_of="y"), Buffer(id="y")),
                ops=(
                    Op(id="d", kind="dispatch", comm="ep"),
                    Op(
                        id="e",
                        kind="experts",
                        reads=("x", "y"),
                        follows=Follows(producer="d", tiles=8, threshold=4),
                    ),
                ),
                commands=(Launch(turn=0, op="e", stream="compute"),),
            ),
        ),
    )


BAD_TEXT = [
    ("", "p: empty"),
    ("op a kind=x", "p, line 1: begins with 'op'"),
    ("program", "p, line 1: no format version"),
    ("program v2", "p, line 1: format version 2 is not known"),
    ("program v1\nprogram v1", "p, line 2: a second program line"),
    ("program v1 rank=2", "p, line 1: field 'rank' is not known"),
    ("program v1 ranks=0", "Expected `int` >= 1"),
    ("program v1\nplan ranks=1-0", "p, line 2: field 'ranks' has value '1-0'"),
    ("program v1 ranks=2\nplan ranks=0", "p: no plan covers rank 1"),
    ("program v1\nplan ranks=0\nplan ranks=0", "rank 0 is given two plans"),
    ("program v1\nplan ranks=3", "rank 3 does not exist: the program has 1 ranks"),
    ("program v1\nlaunch a", "p, line 2: 'launch' begins no known line"),
    ("program v1\nu0 lunch a", "p, line 2: 'lunch' is no command"),
    ("program v1\nu0", "p, line 2: '' is no command"),
    ("program v1\nu0 wait e", "p, line 2: wait has 1 operands; write: u0 wait EVENT STREAM"),
    ("program v1\nu0 launch a", "p, line 2: command 0 names op 'a', which is not declared"),
    ("program v1\nop a", "p, line 2: Object missing required field `kind`"),
    ("program v1\nop kind=x", "p, line 2: the op has no name"),
    ("program v1\nop a kind=x\nop a kind=y", "p, line 2: op 'a' is given twice"),
    ("program v1\nop a kind=x kind=y", "p, line 2: field 'kind' is given twice"),
    ("program v1\nop a kind=x tokens=-1", "p, line 2: Expected `int` >= 0"),
    ("program v1\nop a kind=x tokens=many", "p, line 2: Expected `int`, got `str`"),
    ("program v1\nop a kind=x comm=ep", "p, line 2: op 'a' names comm 'ep', which is not"),
    ("program v1\nop a kind=x reads=b", "p, line 2: op 'a' names buffer 'b', which is not"),
    ("program v1\nop a kind=x blocks-host=1", "p, line 2: flag 'blocks-host' is given a value"),
    ("program v1\nop a kind=x sms", "p, line 2: field 'sms' has no value"),
    ("program v1\nop a kind=x ns=5", "p, line 2: field 'ns' has value '5'; write phase:nanosec"),
    ("program v1\nop a kind=x ns=a:1,a:2", "p, line 2: op 'a' names a phase twice"),
    ("program v1\nop a kind=x follows=b", "p, line 2: field 'follows' has value 'b'"),
    ("program v1\nop a kind=x\nu0 launch a\nu0 launch a", "p, line 4: op 'a' is launched a second"),
    ("program v1\nop a kind=x\nu0 launch a nowhere", "p, line 3: command 0 names stream 'nowhere'"),
    ("program v1\nu0 record a=b compute", "p, line 2: event name 'a=b' is not a name"),
    ("program v1\nstream compute", "p, line 2: stream 'compute' is given twice"),
    ("program v1\ncomm ep transport=mpi", "p, line 2: Invalid enum value 'mpi'"),
    ("program v1\nbuffer b pool=nowhere", "p, line 2: buffer 'b' names stream 'nowhere'"),
    ("program v1\noption size=inf", "p: option 'size' is inf"),
    ("program v1\noption a-b=1", "p: option 'a-b' is no Python name"),
    ('program v1\noption b="x y"', "p, line 2: field 'b' has value"),
    ("program v1\noption", "p, line 2: the option line is empty"),
    ("program v1\noption a=1\noption a=2", "p, line 3: 'a' is given a second time"),
    ("program v1\nbatch sequences=1+0\nbatch sequences=2+0", "p, line 3: a rank is given two"),
    ("program v1\nstream host", "p, line 2: a stream is called 'host'"),
    ("program v1 ranks=99999999999999", "Expected `int` <= 65536"),
    ("program v1\nbuffer b view-of=b", "p, line 2: buffer 'b' is a view of itself"),
    ("program v1\nop a kind=x follows=a/2/1", "p, line 2: op 'a' follows 1 of 2 tiles of 'a'"),
    ("program v1 ranks=99999999", "Expected `int` <= 65536"),
    ("program v1\nbatch sequences=5+0", "p: the workload has no model and no deployment line"),
    ("program v1\nbatch sequences=5", "p, line 2: field 'sequences' has value '5'"),
]


@pytest.mark.parametrize(("text", "message"), BAD_TEXT)
def test_bad_text_names_the_line_and_the_mend(text, message):
    with pytest.raises(InputError) as caught:
        from_text(text, "p")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.mend


BAD_JSON = [
    (b"", "Input data was truncated"),
    (b"{", "Input data was truncated"),
    (b"[]", "Expected `object`, got `array`"),
    (b"{}", "Object missing required field `version`"),
    (b'{"version": 7}', "format version 7 is not known"),
    (b'{"version": 1, "plan": []}', "Object contains unknown field `plan`"),
    (b'{"version": 1}', "no plan covers rank 0"),
    (
        b'{"version": 1, "plans": [{"ranks": [0], "ops": [{"id": "a", "kind": 3}]}]}',
        "Expected `str`, got `int` - at `$.plans[0].ops[0].kind`",
    ),
    (
        b'{"version": 1, "plans": [{"ranks": [0], "commands": [{"do": "jump"}]}]}',
        "Invalid value 'jump' - at `$.plans[0].commands[0].do`",
    ),
    (
        b'{"version": 1, "plans": [{"ranks": [0], "ops": [{"id": "a b", "kind": "x"}]}]}',
        "op id 'a b' is not a name",
    ),
    (
        b'{"version": 1, "plans": [{"ranks": [0], "ops": [{"id": "a", "kind": "x", "ns": []}]}]}',
        "Expected `array` of length >= 1 - at `$.plans[0].ops[0].ns`",
    ),
]


@pytest.mark.parametrize(("data", "message"), BAD_JSON)
def test_bad_json_names_the_path(data, message):
    with pytest.raises(InputError) as caught:
        from_json(data, "p.json")
    assert message in str(caught.value)
    assert str(caught.value).startswith("p.json")


@pytest.mark.parametrize(("ns", "what"), [(-5, "Expected `int` >= 0"), (2.5, "got `float`")])
def test_programs_from_python_are_checked_too(ns, what):
    program = build_program(small_workload(1), "sequential")
    with pytest.raises(InputError, match=what):
        check(with_durations(program, lambda op: {"data" if op.comm else "run": ns}))


def test_a_bad_name_is_found_in_any_plan():
    plans = [
        Plan(ranks=(rank,), ops=(Op(id="a", kind=kind),))
        for rank, kind in enumerate(("my kernel", "ok"))
    ]
    with pytest.raises(InputError, match="kind of op 'a' 'my kernel' is not a name"):
        check(Program(ranks=2, plans=tuple(plans)))
