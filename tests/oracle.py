"""The longest path of a program with fixed durations: an oracle independent of the SimPy model.

One graph over all ranks; each edge says "no earlier than that long after". It knows CUDA's rules
for events, the host order with its costs and blocks, stream order with its latencies, and the
meetings of collectives, but nothing of SMs and of hardware queues.
"""

from __future__ import annotations

import networkx as nx

from dbo_sched.plan import HostWait, Launch, Op, Program, Record, Wait
from sim import Gpu, Host

ORIGIN = ("origin",)


def phases(op: Op) -> list[tuple[str, int]]:
    """(phase, ns) of an op's kernels in launch order."""
    ns = dict(op.ns)
    if op.comm is None:
        return list(ns.items())
    if op.blocks_host:
        ns.setdefault("notify", 0)
    return [(phase, ns[phase]) for phase in ("layout", "notify", "data") if phase in ns]


def graph_of(program: Program, host: Host, gpu: Gpu, skew: dict[int, int]) -> nx.DiGraph:
    graph = nx.DiGraph()

    def after(node, earlier, ns=0):
        if graph.has_edge(earlier, node):
            ns = max(ns, graph.edges[earlier, node]["weight"])
        graph.add_edge(earlier, node, weight=ns)

    longest: dict[tuple, int] = {}
    met: dict[tuple, set[int]] = {}
    for rank in range(program.ranks):
        plan = program.plan_of(rank)
        ops = {op.id: op for op in plan.ops}
        now = (rank, "host", "start")
        after(now, ORIGIN, skew.get(rank, 0))
        tails: dict[str, tuple] = {}
        kernel_ends: dict[str, tuple] = {}
        events: dict[str, tuple] = {}
        turn = None
        for i, command in enumerate(plan.commands):

            def spend(ns, what, i=i, rank=rank):
                nonlocal now
                node = (rank, "host", i, what)
                after(node, now, ns)
                now = node

            if host.threads and turn not in (None, command.turn):
                spend(host.hand_over_ns, "hand-over")
            turn = command.turn
            if isinstance(command, Launch):
                op = ops[command.op]
                kernels = phases(op)
                names = [phase for phase, _ in kernels]
                block = names.index("notify") if "notify" in names else len(names) - 1
                for k, (phase, ns) in enumerate(kernels):
                    resuming = op.blocks_host and k == block + 1
                    cost = host.launch_ns if op.comm is None else host.comm_launch_ns
                    spend(host.resume_ns if resuming else cost, ("launch", k))
                    start, end = (rank, op.id, phase, "start"), (rank, op.id, phase, "end")
                    after(start, now, gpu.idle_ns)
                    if command.stream in tails:
                        after(start, tails[command.stream])
                    if command.stream in kernel_ends:
                        after(start, kernel_ends[command.stream], gpu.stream_ns)
                    if op.comm is None or phase == "layout":
                        after(end, start, ns)
                    else:
                        key = (op.id, phase)
                        longest[key] = max(ns, longest.get(key, 0))
                        met.setdefault(key, set()).add(rank)
                    tails[command.stream] = kernel_ends[command.stream] = end
                    if op.blocks_host and k == block:
                        node = (rank, "host", i, "blocked")
                        after(node, now)
                        after(node, end)
                        now = node
            elif isinstance(command, Record):
                spend(host.record_ns, "record")
                event = (rank, "event", i)
                after(event, now)
                if command.stream in tails:
                    after(event, tails[command.stream])
                events[command.event] = event, command.stream
            elif isinstance(command, Wait):
                spend(host.wait_ns, "wait")
                if command.event in events:
                    passed = (rank, "passed", i)
                    after(passed, now)
                    event, stream = events[command.event]
                    after(passed, event, 0 if stream == command.stream else gpu.event_ns)
                    if command.stream in tails:
                        after(passed, tails[command.stream])
                    tails[command.stream] = passed
            elif isinstance(command, HostWait) and command.event in events:
                node = (rank, "host", i, "blocked")
                after(node, now)
                after(node, events[command.event][0])
                now = node
    for key, ranks in met.items():
        meeting = ("meeting", *key)
        for rank in ranks:
            after(meeting, (rank, *key, "start"))
            after((rank, *key, "end"), meeting, longest[key])
        if len(ranks) < program.ranks:
            graph.add_edge(meeting, meeting, weight=0)
    return graph


def longest_path(program: Program, host: Host, gpu: Gpu, skew: dict[int, int]) -> int | None:
    """End of the last kernel, or ``None`` where the program deadlocks."""
    graph = graph_of(program, host, gpu, skew)
    if not nx.is_directed_acyclic_graph(graph):
        return None
    times: dict[tuple, int] = {}
    for node in nx.topological_sort(graph):
        times[node] = max(
            (times[earlier] + graph.edges[earlier, node]["weight"] for earlier in graph.pred[node]),
            default=0,
        )
    return max((at for node, at in times.items() if node[-1] == "end"), default=0)
