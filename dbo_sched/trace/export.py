"""Timelines as Chrome trace JSON, for Perfetto and chrome://tracing.

One process per rank, one thread per stream and one for the host, flow arrows for event waits.
Chrome's times are microseconds; they are written with three decimals, so nothing is rounded.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from dbo_sched.plan import HOST
from dbo_sched.timeline import Edge, Span, Timeline, lanes_of


def to_chrome(timeline: Timeline) -> dict[str, Any]:
    """The trace as an object of the JSON Object Format."""
    header = timeline.header
    return {
        "traceEvents": list(_events(timeline)),
        "displayTimeUnit": "ns",
        "otherData": {
            "backend": header.backend,
            "schedule": header.schedule,
            "program": header.program_hash,
            "command": header.command,
            "notes": "; ".join(header.notes),
            **{f"version of {name}": version for name, version in header.versions.items()},
        },
    }


def to_json(timeline: Timeline) -> bytes:
    """The trace as a JSON file's content."""
    return json.dumps(to_chrome(timeline)).encode()


def _events(timeline: Timeline) -> Iterator[dict[str, Any]]:
    threads = {lane: number for number, lane in enumerate(lanes_of(timeline))}
    for rank in timeline.ranks:
        alike = len(timeline.header.represents[rank])
        name = f"rank {rank}" + (f" (stands for {alike} ranks)" if alike > 1 else "")
        yield _meta("process_name", rank, 0, name=name)
        yield _meta("process_sort_index", rank, 0, sort_index=rank)
        for lane, thread in threads.items():
            yield _meta("thread_name", rank, thread, name=lane)
            yield _meta("thread_sort_index", rank, thread, sort_index=thread)
    for span in timeline.spans:
        yield _slice(span, threads[span.stream])
    kernels: dict[tuple[int, str], list[Span]] = defaultdict(list)
    for span in timeline.gpu():
        kernels[span.rank, span.stream].append(span)
    for number, edge in enumerate(timeline.edges):
        yield from _flow(number, edge, kernels, threads)


def _meta(what: str, pid: int, tid: int, **args: str | int) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args}


def _slice(span: Span, thread: int) -> dict[str, Any]:
    name = span.phase if span.stream == HOST else f"{span.kind} {span.phase}"
    return {
        "ph": "X",
        "name": name,
        "cat": "host" if span.stream == HOST else "comm" if span.comm else "compute",
        "pid": span.rank,
        "tid": thread,
        "ts": span.start_ns / 1000,
        "dur": (span.end_ns - span.start_ns) / 1000,
        "args": {
            "op": span.op,
            "layer": span.layer,
            "ubatch": span.ubatch,
            "origin": span.origin,
        },
    }


def _flow(
    number: int,
    edge: Edge,
    kernels: dict[tuple[int, str], list[Span]],
    threads: dict[str, int],
) -> Iterator[dict[str, Any]]:
    """An arrow from the last kernel before the record to the first one behind the wait."""
    before = kernels[edge.rank, edge.from_stream]
    behind = kernels[edge.rank, edge.to_stream]
    last = bisect_right(before, edge.recorded_ns, key=lambda span: span.end_ns) - 1
    first = bisect_left(behind, edge.passed_ns, key=lambda span: span.start_ns)
    if last < 0 or first == len(behind):
        return
    source, target = before[last], behind[first]
    common = {"name": edge.event, "cat": "event", "id": number, "pid": edge.rank}
    inside = max(source.start_ns, source.end_ns - 1)  # a flow binds to the slice around its time
    yield common | {"ph": "s", "tid": threads[edge.from_stream], "ts": inside / 1000}
    yield common | {
        "ph": "f",
        "bp": "e",
        "tid": threads[edge.to_stream],
        "ts": target.start_ns / 1000,
    }
