"""From schedule functions to one host order, and what the weaver refuses."""

import pytest
from support import small_workload

from dbo_sched import InputError, ScheduleError, Steps, UBatch, build_program, schedule
from dbo_sched.plan import HostWait, Launch, Op, Wait, Yield
from dbo_sched.registry import get_schedule
from dbo_sched.schedules.dbo_ht import dbo_ht


def launches(program, *, layer=None):
    """Launched ops in host order, ``u0.experts``, of one layer or all."""
    plan = program.plans[0]
    ops = {op.id: op for op in plan.ops}
    order = [ops[c.op] for c in plan.commands if isinstance(c, Launch)]
    return [f"u{op.ubatch}.{op.kind}" for op in order if layer in (None, op.layer)]


def launch_all(u: UBatch) -> None:
    for op in u.layers[0].ops:
        u.launch(op)


def stages(name, *, ubatches, stage_offset=0):
    """The turns of a schedule of four stages, as the weaver orders them."""

    @schedule(name, stage_offset=stage_offset)
    def four(u: UBatch) -> Steps:
        for i in range(4):
            u.record("compute", f"stage{i}")
            if i == 3:
                launch_all(u)
            if i < 3:
                yield

    commands = build_program(small_workload(1), name, ubatches=ubatches).plans[0].commands
    events = [c.event for c in commands if "stage" in getattr(c, "event", "")]
    return [event.removeprefix("u").replace(".stage", ":") for event in events]


def test_ubatches_take_turns():
    assert stages("turns", ubatches=2) == [f"{u}:{i}" for i in range(4) for u in range(2)]


def test_stage_offset_lets_later_ubatches_lag():
    """SGLang's decode: two stages of ubatch 0, then both in turn, then two of ubatch 1."""
    assert stages("lag", ubatches=2, stage_offset=2) == [
        *("0:0", "0:1", "0:2", "1:0", "0:3", "1:1", "1:2", "1:3"),
    ]


def test_host_order_of_dbo_ht_is_vllms():
    """A0 | A1 | D0 G0 | D1 G1 | C0 S0 K0 | C1 S1 K1 | A0' ..., facts of vLLM 0.33."""
    program = build_program(small_workload(3), "dbo-ht")
    front = [f"u{u}.{kind}" for u in (0, 1) for kind in ("attention", "gate")]
    middle = [f"u{u}.{kind}" for u in (0, 1) for kind in ("dispatch", "experts")]
    back = [f"u{u}.{k}" for u in (0, 1) for k in ("combine", "shared_experts", "output_copy")]
    assert launches(program, layer=1) == front + middle + back + ["u0.merge", "u1.merge"]
    yields = sum(isinstance(c, Yield) for c in program.plans[0].commands)
    assert yields == 3 * 3 * 2  # 3 per MoE layer and ubatch


def test_dense_layers_do_not_yield():
    """Leading dense layers of ubatch 0 run before ubatch 1's."""
    order = launches(build_program(small_workload(3, dense=2), "dbo-ht"))
    assert order[:8] == ["u0.attention", "u0.mlp"] * 2 + [
        *("u0.attention", "u0.gate", "u1.attention", "u1.mlp"),
    ]


def test_events_are_named_after_the_layer():
    commands = build_program(small_workload(2), "dbo-ht").plans[0].commands
    waits = [c.event for c in commands if isinstance(c, Wait) and c.turn == 1]
    assert waits[:4] == ["L0.u1.routed", "L0.u1.dispatched", "L0.u1.computed", "L0.u1.combined"]


def test_plain_function_runs_ubatch_after_ubatch():
    order = launches(build_program(small_workload(1, shared=0), "sequential", ubatches=2))
    one = ["attention", "gate", "dispatch", "experts", "combine", "output_copy", "merge"]
    assert order == [f"u{u}.{kind}" for u in (0, 1) for kind in one]


def test_deferred_op_is_launched_by_the_next_ubatch():
    @schedule("hooks")
    def hooks(u: UBatch) -> Steps:
        """Each ubatch leaves its dispatch to the other; what is left over runs at the end."""
        u.run_deferred()
        dispatch = u.layers[0].dispatch
        first, *rest = (op for op in u.layers[0].ops if op is not dispatch)
        u.launch(first)
        u.defer(dispatch, "a2a")
        yield
        u.run_deferred()
        for op in rest:
            u.launch(op)

    commands = build_program(small_workload(1), "hooks").plans[0].commands
    order = [(c.turn, c.op) for c in commands if isinstance(c, Launch)]
    assert order[:4] == [
        (0, "L0.u0.attention"),
        (1, "L0.u0.dispatch"),
        (1, "L0.u1.attention"),
        (0, "L0.u1.dispatch"),
    ]


def test_last_deferred_op_is_drained_when_its_ubatch_ends():
    @schedule("drained")
    def drained(u: UBatch) -> Steps:
        last = u.layers[0].dispatch
        for op in u.layers[0].ops:
            if op is not last or u.index == 1:
                u.launch(op)
        yield
        if u.index == 0:
            u.defer(last)

    commands = build_program(small_workload(1), "drained").plans[0].commands
    assert [(c.turn, c.op) for c in commands if isinstance(c, Launch)][-1] == (
        1,
        "L0.u0.dispatch",
    )


def test_second_deferred_op_is_refused():
    @schedule("twice-deferred")
    def twice(u: UBatch) -> Steps:
        u.defer(u.layers[0].dispatch)
        u.defer(u.layers[0].combine)
        yield

    with pytest.raises(ScheduleError, match=r"'L0\.u0\.combine' while 'L0\.u0\.dispatch' still"):
        build_program(small_workload(1), "twice-deferred")


def test_unequal_yields_are_refused():
    @schedule("unequal")
    def unequal(u: UBatch) -> Steps:
        for _ in range(1 + u.index):
            yield

    with pytest.raises(ScheduleError, match="ubatch 0 1 times, ubatch 1 2 times"):
        build_program(small_workload(1), "unequal")


def test_error_in_a_schedule_names_its_line():
    @schedule("broken")
    def broken(u: UBatch) -> Steps:
        yield
        u.launch(u.layers[7].attention)

    with pytest.raises(ScheduleError, match=r"test_weave\.py, line \d+: schedule 'broken' raised"):
        build_program(small_workload(1), "broken")


def test_host_wait_is_issued_by_the_ubatch():
    @schedule("host-waits", least=1)
    def host_waits(u: UBatch) -> None:
        launch_all(u)
        u.host_wait(u.record("compute", "attended"))
        u.guard("L0.u0.attn_out", "a2a")

    commands = build_program(small_workload(1), "host-waits").plans[0].commands
    assert HostWait(turn=0, event="L0.u0.attended") in commands


def test_a_forgotten_op_is_refused():
    @schedule("forgetful", least=1)
    def forgetful(u: UBatch) -> None:
        for layer in u.layers:
            for op in layer.ops:
                if op.kind not in ("merge", "shared_experts"):
                    u.launch(op)

    with pytest.raises(ScheduleError, match=r"never launches 'L0\.u0\.shared_experts' and 3 more"):
        build_program(small_workload(2), "forgetful")


# Registry


def test_options_are_typed_and_land_in_the_program():
    @schedule("optional", least=1)
    def optional(u: UBatch, *, where: str = "aux", times: int = 1, twice: bool = False) -> None:
        for i in range(times * (1 + twice)):
            u.record(where, f"e{i}")
        launch_all(u)

    given = {"times": "2", "twice": "true"}
    program = build_program(small_workload(1), "optional", options=given)
    assert program.options == {"where": "aux", "times": 2, "twice": True}
    assert [c.event for c in program.plans[0].commands[:4]] == ["u0.e0", "u0.e1", "u0.e2", "u0.e3"]
    for options, message in [
        ({"tmes": "2"}, "has no option 'tmes'"),
        ({"times": "two"}, "option 'times' of schedule 'optional' is 'two'"),
        ({"twice": "perhaps"}, "option 'twice' of schedule 'optional' is 'perhaps'"),
    ]:
        with pytest.raises(InputError, match=message):
            build_program(small_workload(1), "optional", options=options)


def test_option_without_type_or_default_is_refused():
    with pytest.raises(ScheduleError, match="option 'size' of schedule 'untyped'"):

        @schedule("untyped")
        def untyped(u: UBatch, *, size) -> Steps:
            yield


def test_a_taken_name_is_refused():
    with pytest.raises(ScheduleError, match="'dbo-ht' is already defined by dbo_sched"):

        @schedule("dbo-ht")
        def mine(u: UBatch) -> Steps:
            yield

    assert get_schedule("dbo-ht").function is dbo_ht


def test_a_redefined_cell_replaces_its_schedule():
    def define(mark: str):
        @schedule("again", least=1)
        def again(u: UBatch) -> None:
            u.record("compute", mark)
            launch_all(u)

    define("first")
    define("second")
    program = build_program(small_workload(1), "again")
    assert program.plans[0].commands[0].event == "u0.second"


@pytest.mark.parametrize(("name", "ubatches"), [("dbo-ht", 1), ("shared-overlap", 2)])
def test_number_of_ubatches_is_checked(name, ubatches):
    with pytest.raises(InputError, match=f"'{name}' takes"):
        build_program(small_workload(1), name, ubatches=ubatches)


def test_unknown_schedule_lists_the_known_ones():
    with pytest.raises(InputError, match=r"'dbo' is not known; use one of .*dbo-ht, dbo-ht-late"):
        build_program(small_workload(1), "dbo")


def broken_schedules():
    def typo(u: UBatch) -> None:
        launch_all(u)
        u.wait("L0.u0.rooted", "a2a")

    def none(u: UBatch) -> None:
        launch_all(u)
        u.wait(None, "a2a")

    def listed(u: UBatch):
        launch_all(u)
        return [1]

    def endless(u: UBatch) -> Steps:
        while True:
            yield

    def foreign(u: UBatch) -> None:
        launch_all(u)
        u.launch(Op(id="mine", kind="x"))

    return [
        (typo, "waits for event 'L0.u0.rooted', which it never records"),
        (none, "Wait is given None"),
        (listed, "returns a list"),
        (endless, "still yields after 100000 stages"),
        (foreign, "launches 'mine', which is no op of its layers"),
    ]


@pytest.mark.parametrize(("function", "message"), broken_schedules())
def test_what_a_schedule_does_wrong_is_named(function, message):
    name = f"bad-{function.__name__}"
    schedule(name, least=1)(function)
    with pytest.raises(ScheduleError, match=rf"^schedule '{name}'.*{message}"):
        build_program(small_workload(1), name)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"least": 0}, "takes 0 to None ubatches"),
        ({"least": 3, "most": 2}, "takes 3 to 2 ubatches"),
        ({"stage_offset": -1}, "at stage offset -1"),
    ],
)
def test_impossible_schedules_are_refused(arguments, message):
    with pytest.raises(ScheduleError, match=message):
        schedule("impossible", **arguments)
    with pytest.raises(ScheduleError, match="'a b' is no name"):
        schedule("a b")


@pytest.mark.parametrize("value", [None, [1], float("inf"), 2.7])
def test_option_values_of_other_types_are_refused(value):
    @schedule("sized", least=1)
    def sized(u: UBatch, *, size: int = 1) -> None:
        launch_all(u)

    with pytest.raises(InputError, match="option 'size' of schedule 'sized' is"):
        build_program(small_workload(1), "sized", options={"size": value})


@pytest.mark.parametrize("ubatches", [2.5, "2", 65])
def test_number_of_ubatches_is_a_small_whole_number(ubatches):
    with pytest.raises(InputError, match="takes 2 to 64 ubatches, not"):
        build_program(small_workload(1), "dbo-ht", ubatches=ubatches)


def test_plain_functions_defer_to_the_next_ubatch_and_the_last_to_none():
    """Ubatch 0's op is launched when ubatch 1 ends; ubatch 1's would have to come before it."""

    @schedule("plain-defer", least=1)
    def plain_defer(u: UBatch) -> None:
        launch_all_but_merge(u)
        if u.index == 0:
            u.defer(u.layers[0].merge)
        else:
            u.launch(u.layers[0].merge)

    def launch_all_but_merge(u: UBatch) -> None:
        for op in u.layers[0].ops[:-1]:
            u.launch(op)

    program = build_program(small_workload(1), "plain-defer", ubatches=2)
    order = launches(program)
    assert order[-2:] == ["u1.merge", "u0.merge"]
    assert order.index("u1.attention") < order.index("u0.merge")

    @schedule("late-defer", least=1)
    def late_defer(u: UBatch) -> None:
        launch_all_but_merge(u)
        u.defer(u.layers[0].merge)

    with pytest.raises(ScheduleError, match=r"defers 'L0\.u1\.merge' to ubatch 0, which has ended"):
        build_program(small_workload(1), "late-defer", ubatches=2)


def test_schedule_declares_streams_of_its_own():
    @schedule("own-stream", least=1, streams=("mine",))
    def own_stream(u: UBatch) -> None:
        for op in u.layers[0].ops:
            u.launch(op, "mine")

    program = build_program(small_workload(1), "own-stream")
    assert [stream.id for stream in program.more_streams] == ["mine"]

    @schedule("stray-stream", least=1)
    def stray_stream(u: UBatch) -> None:
        for op in u.layers[0].ops:
            u.launch(op, "mine")

    with pytest.raises(InputError, match="names stream 'mine', which is not declared"):
        build_program(small_workload(1), "stray-stream")
