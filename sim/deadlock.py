"""Why a model stopped with work left: who waits for whom, over ops and ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TypeAlias

from dbo_sched.errors import DeadlockError
from dbo_sched.plan import Launch
from dbo_sched.timeline import HOST
from sim.rank import Rank
from sim.streams import Item, Run, StreamWait

Meetings: TypeAlias = Mapping[tuple[str, str], list[Run]]
Blocker: TypeAlias = tuple[str, "Item | Rank | None"]
"""A sentence, and what it waits for: an item, a rank's host, or nothing that will ever come."""


def explain(ranks: list[Rank], meetings: Meetings, now: int) -> DeadlockError:
    """The error that names a cycle of waits or, where there is none, a chain that nothing ends."""
    import networkx as nx

    graph: nx.DiGraph[object] = nx.DiGraph()
    open_nodes: list[Item | Rank] = [rank for rank in ranks if rank.blocked_on is not None]
    open_nodes += [item for rank in ranks for queue in rank.queues for item in queue.items]
    open_nodes += [run for runs in meetings.values() for run in runs]
    first = list(open_nodes)
    seen: set[object] = set()
    while open_nodes:
        node = open_nodes.pop(0)
        if node in seen:
            continue
        seen.add(node)
        for sentence, target in _blockers(node, ranks, meetings):
            graph.add_edge(node, sentence if target is None else target, why=sentence)
            if target is not None:
                open_nodes.append(target)
    left = sum(_kernels(rank) - sum(s.stream != HOST for _, s in rank.spans) for rank in ranks)
    try:
        edges = [(a, b) for a, b, *_ in nx.find_cycle(graph)]
        cyclic = True
    except nx.NetworkXNoCycle:
        ends = [node for node in graph if isinstance(node, str)]
        paths = [
            nx.shortest_path(graph, start, end)
            for end in ends
            for start in first
            if start in graph and nx.has_path(graph, start, end)
        ]
        longest = max(paths, key=len, default=[])
        edges = list(pairwise(longest))
        cyclic = False
    chain = tuple(graph.edges[edge]["why"] for edge in edges)
    return DeadlockError(chain, cyclic=cyclic, left=left, at_ns=now)


def _kernels(rank: Rank) -> int:
    launches = (c for c in rank.work.plan.commands if isinstance(c, Launch))
    return sum(len(rank.work.kernels[launch.op][1]) for launch in launches)


def _blockers(node: Item | Rank, ranks: list[Rank], meetings: Meetings) -> Iterator[Blocker]:
    if isinstance(node, Rank):
        if node.blocked_on is not None:
            blocked = f"the host of rank {node.number} is blocked until"
            yield f"{blocked} {_name(node.blocked_on)} ends", node.blocked_on
        return
    if node.finished:
        return
    where = f"{_name(node)} on rank {node.rank.number}"
    if isinstance(node, Run) and node.begun:
        if node in meetings.get((node.op.id, node.kernel.phase), []):
            for rank in ranks:
                yield from _absent(node, where, rank, meetings)
        return
    if node.previous is not None and not node.previous.finished:
        yield f"{where} stands behind {_name(node.previous)} on {node.stream.id}", node.previous
        return
    head = node.stream.queue.items[0]
    if head is not node:
        yield f"{where} stands behind {_name(head)} in its hardware queue", head
    elif isinstance(node, StreamWait):
        tail = node.record.open_tail
        if tail is not None:
            yield f"{where} stands until {_name(tail)} ends", tail
    elif node.chained is not None and not node.chained.finished:
        yield f"{where} stands behind {_name(node.chained)} in NCCL's own order", node.chained
    else:
        for holder in node.rank.sms.holders():
            if isinstance(holder, Run):
                yield f"{where} wants SMs that {_name(holder)} holds", holder


def _absent(node: Run, where: str, rank: Rank, meetings: Meetings) -> Iterator[Blocker]:
    """What keeps ``rank`` from a kernel that waits for it."""
    op, phase = node.op.id, node.kernel.phase
    if any(run.rank is rank for run in meetings[op, phase]):
        return
    waits = f"{where} waits for rank {rank.number}"
    for queue in rank.queues:
        for item in queue.items:
            if isinstance(item, Run) and (item.op.id, item.kernel.phase) == (op, phase):
                yield waits, item
                return
    plan = rank.work.plan
    to_come = plan.commands[max(rank.at, 0) :]
    if any(isinstance(command, Launch) and command.op == op for command in to_come):
        yield f"{waits}, whose host has not launched it", rank
    elif any(run.op.id == op for runs in meetings.values() for run in runs if run.rank is rank):
        yield f"{waits}, which is in another phase of it", None
    else:
        yield f"{waits}, which never launches it", None


def _name(item: Item) -> str:
    if isinstance(item, Run):
        return f"{item.op.id} ({item.kernel.phase})"
    return f"the wait for {item.event}" if isinstance(item, StreamWait) else "a wait"
