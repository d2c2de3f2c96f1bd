"""Alloc and Free: once each, around every use, and proved by the plan's own order."""

from collections import Counter

import networkx as nx
import pytest
from support import small_workload

from dbo_sched import build_program
from dbo_sched.plan import Alloc, Free, Launch, Record, Wait

SCHEDULES = [
    *(("sequential", 1), ("sequential", 2), ("shared-overlap", 1), ("early-dispatch", 2)),
    *(("dbo-ht", 2), ("dbo-ht", 3), ("dbo-ht-late-event", 2), ("dbo-ht-original", 2)),
]


def happens_before(commands):
    """Stream order and record -> wait edges over launch commands, built apart from the weaver."""
    graph, tails, events = nx.DiGraph(), {}, {}
    for number, command in enumerate(commands):
        if isinstance(command, Launch | Record | Wait):
            graph.add_node(number)
            if isinstance(command, Record):
                events[command.event] = number
            if command.stream in tails:
                graph.add_edge(tails[command.stream], number)
            if isinstance(command, Wait) and command.event in events:
                graph.add_edge(events[command.event], number)
            tails[command.stream] = number
    return graph


@pytest.mark.parametrize(("schedule", "ubatches"), SCHEDULES)
@pytest.mark.parametrize("shared", [0, 1])
def test_memory_goes_back_only_when_the_pools_stream_is_behind_every_use(
    schedule, ubatches, shared
):
    program = build_program(small_workload(3, dense=1, shared=shared), schedule, ubatches=ubatches)
    plan = program.plans[0]
    ops, pools = {op.id: op for op in plan.ops}, {b.id: b.pool for b in plan.buffers}
    graph = happens_before(plan.commands)
    allocs, frees, uses = {}, {}, {}
    for number, command in enumerate(plan.commands):
        if isinstance(command, Alloc):
            assert command.buffer not in allocs
            allocs[command.buffer] = number
        elif isinstance(command, Free):
            assert command.buffer not in frees
            frees[command.buffer] = number
        elif isinstance(command, Launch):
            op = ops[command.op]
            for name in {*op.reads, *op.writes}:
                uses.setdefault(name, []).append(number)
    results = {f"L3.u{u}.hidden" for u in range(ubatches)}
    assert set(allocs) == set(pools) == set(uses)
    assert set(frees) == set(uses) - results
    for name, numbers in uses.items():
        assert allocs[name] < min(numbers)
        if name in results:
            continue
        assert frees[name] > max(numbers)
        tail = max(
            (n for n in graph if n < frees[name] and plan.commands[n].stream == pools[name]),
        )
        for use in numbers:
            assert use == tail or nx.has_path(graph, use, tail), (name, plan.commands[use])


def test_outputs_come_from_the_pool_of_the_stream_that_writes_them():
    plan = build_program(small_workload(1), "dbo-ht").plans[0]
    pools = {buffer.id.rsplit(".", 1)[1]: buffer.pool for buffer in plan.buffers}
    assert pools == {
        **dict.fromkeys(("hidden", "attn_out", "normed", "routed_tokens", "topk"), "compute"),
        **dict.fromkeys(("expert_out", "shared_out"), "compute"),
        **dict.fromkeys(("recv", "handle", "combined"), "a2a"),
        "routed_out": "comm",
    }


def test_dispatchs_output_is_held_until_a2a_has_waited_for_the_experts():
    commands = build_program(small_workload(1), "dbo-ht").plans[0].commands
    free = commands.index(Free(turn=0, buffer="L0.u0.recv"))
    assert commands[free - 1] == Wait(turn=0, event="L0.u0.computed", stream="a2a")


def test_what_is_not_ordered_by_the_end_is_joined_there():
    commands = build_program(small_workload(2), "dbo-ht").plans[0].commands
    tail = Counter(type(command) for command in commands[-8:])
    assert commands[-8:-4] == (
        Record(turn=1, event="step.comm", stream="comm"),
        Wait(turn=1, event="step.comm", stream="a2a"),
        Record(turn=1, event="step.compute", stream="compute"),
        Wait(turn=1, event="step.compute", stream="comm"),
    )
    assert tail[Free] == 4
