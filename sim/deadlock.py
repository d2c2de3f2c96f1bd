"""Why a model stopped with work left: who waits for whom, over ops and ranks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from dbo_sched.errors import DeadlockError
from dbo_sched.plan import HOST, Launch
from sim.rank import Rank
from sim.streams import Item, Run, StreamWait

if TYPE_CHECKING:
    import networkx as nx

Meetings: TypeAlias = Mapping[tuple[str, str], list[Run]]
Blocker: TypeAlias = tuple[str, "Item | Rank | None"]
"""A sentence, and what it waits for: an item, a rank's host, or nothing that will ever come."""


def explain(ranks: list[Rank], meetings: Meetings) -> DeadlockError:
    """The error that names a cycle of waits or, where there is none, a chain that nothing ends."""
    import networkx as nx

    graph: nx.DiGraph[object] = nx.DiGraph()
    first: list[Item | Rank] = [rank for rank in ranks if rank.blocked_on is not None]
    first += [queue.items[0] for rank in ranks for queue in rank.queues if queue.items]
    first += [run for runs in meetings.values() for run in runs]
    todo, seen = deque(first), set[object]()
    while todo:
        node = todo.popleft()
        if node in seen:
            continue
        seen.add(node)
        for sentence, target in _blockers(node, ranks, meetings):
            graph.add_edge(node, sentence if target is None else target, why=sentence)
            if target is not None:
                todo.append(target)
    try:
        edges = [(a, b) for a, b, *_ in nx.find_cycle(graph)]
        cyclic = True
    except nx.NetworkXNoCycle:
        edges = _first_chain(graph, first)
        cyclic = False
    return DeadlockError(
        tuple(graph.edges[edge]["why"] for edge in edges),
        cyclic=cyclic,
        left=sum(rank.alike * _kernels_left(rank) for rank in ranks),
        at_ns=max(max((s.end_ns for _, s in rank.spans), default=0) for rank in ranks),
    )


def _first_chain(
    graph: nx.DiGraph[object], first: list[Item | Rank]
) -> list[tuple[object, object]]:
    """The shortest way from the first node that has one to something that will never come."""
    import networkx as nx

    for start in (node for node in first if node in graph):
        best: list[object] = []
        for end, way in nx.single_source_shortest_path(graph, start).items():
            path: list[object] = [*way]
            if isinstance(end, str) and (not best or len(path) < len(best)):
                best = path
        if best:
            return list(pairwise(best))
    return []


def _kernels_left(rank: Rank) -> int:
    launches = (c for c in rank.work.plan.commands if isinstance(c, Launch))
    kernels = sum(len(rank.work.kernels[launch.op][1]) for launch in launches)
    return kernels - sum(span.stream != HOST for _, span in rank.spans)


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
        elif not node.kernel.gang:
            yield from _holders(node, where)
        return
    head = node.stream.queue.items[0]
    if head is not node:
        place = f"on {node.stream.id}" if head.stream is node.stream else "in its hardware queue"
        yield f"{where} stands behind {_name(head)} {place}", head
    elif node.previous is not None and not node.previous.finished:
        yield f"{where} stands behind {_name(node.previous)} on {node.stream.id}", node.previous
    elif isinstance(node, StreamWait):
        tail = node.record.open_tail
        if tail is not None:
            yield f"{where} stands until {_name(tail)} ends", tail
    elif node.chained is not None and not node.chained.finished:
        yield f"{where} stands behind {_name(node.chained)} in NCCL's own order", node.chained
    else:
        yield from _holders(node, where)


def _holders(node: Item, where: str) -> Iterator[Blocker]:
    """Who holds the SMs that a kernel wants."""
    for holder in node.rank.sms.holders():
        if isinstance(holder, Run) and holder is not node:
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
