"""Dispatch and combine from the measured table: its rows, and what lies between them."""

from __future__ import annotations

import csv
from bisect import bisect_left
from functools import cache
from importlib import resources
from typing import NamedTuple, TypeAlias

from dbo_sched.workload import Workload
from sim.costs.deepep import NOTIFY_NS, NOTIFY_ORIGIN, Call, Times

TABLE = "deepep_normal.csv"

Key: TypeAlias = tuple[str, int, int, int, int, int]
"""System, nodes, ranks, hidden size, top-k, experts."""


class Row(NamedTuple):
    """Microseconds of one table row."""

    dispatch_data: float
    dispatch_notify: float
    combine_data: float
    combine_notify: float


Rows: TypeAlias = dict[int, dict[int, Row]]
"""``rows[tokens][sms]`` of one system, node count and shape."""


@cache
def tables() -> dict[Key, Rows]:
    """Every table."""
    found: dict[Key, Rows] = {}
    data = resources.files("sim.costs") / "data" / TABLE
    with data.open(encoding="utf-8") as file:
        for system, *shape, tokens, sms, t_d, n_d, t_c, n_c, _ in list(csv.reader(file))[1:]:
            nodes, ep, hidden, topk, experts = map(int, shape)
            key = system.removesuffix("_sxm"), nodes, ep, hidden, topk, experts
            row = Row(float(t_d), float(n_d), float(t_c), float(n_c))
            found.setdefault(key, {}).setdefault(int(tokens), {})[int(sms)] = row
    return found


def look_up(workload: Workload, call: Call) -> Times | str:
    """Data and notify phase of a call; linear in tokens and in 1/SMs between rows.

    A call without tokens is taken as the row of one token.
    """
    model, deployment = workload.model, workload.deployment
    shape = model.hidden_size, model.num_experts_per_tok, model.n_routed_experts
    where = f"{deployment.system} {deployment.nodes}x{deployment.ep // deployment.nodes}"
    rows = tables().get((deployment.system, deployment.nodes, deployment.ep, *shape))
    if call.kind == "dispatch" and deployment.dispatch_dtype != "fp8":
        return f"{TABLE} has FP8 dispatch only"
    if rows is None:
        return f"{TABLE} has no row for {where} h{shape[0]} k{shape[1]} e{shape[2]}"
    tokens, known_tokens, known_sms = (
        max(call.tokens, 1),
        list(rows),
        list(next(iter(rows.values()))),
    )
    for what, value, known in (
        ("tokens", tokens, known_tokens),
        ("SMs", call.sms, known_sms),
    ):
        if not known[0] <= value <= known[-1]:
            return f"{TABLE} ends at {known[0]} and {known[-1]} {what}"
    data, notify = (
        round(1000 * _value(rows, f"{call.kind}_{phase}", tokens, call.sms))
        for phase in ("data", "notify")
    )
    exact = tokens in known_tokens and call.sms in known_sms
    origin = (
        f"table:{TABLE} {where} h{shape[0]} k{shape[1]} e{shape[2]}, {call.tokens} tokens, "
        f"{call.sms} SMs" + ("" if exact else ", interpolated")
    )
    if notify:
        return Times(data, origin, notify, origin)
    return Times(data, origin, NOTIFY_NS[call.kind], NOTIFY_ORIGIN)


def _value(rows: Rows, field: str, tokens: int, sms: int) -> float:
    """A field between the rows around (tokens, SMs)."""
    few, many = around(list(rows), tokens)
    low, high = around(list(rows[few]), sms)

    def at(row_tokens: int) -> float:
        slow, fast = (getattr(rows[row_tokens][row_sms], field) for row_sms in (low, high))
        return linear(1 / sms, 1 / low, slow, 1 / high, fast)

    return linear(tokens, few, at(few), many, at(many))


def around(known: list[int], value: int) -> tuple[int, int]:
    """The neighbours of a value that lies inside; twice itself where it is one of them."""
    place = bisect_left(known, value)
    return (value, value) if known[place] == value else (known[place - 1], known[place])


def linear(x: float, x0: float, y0: float, x1: float, y1: float) -> float:
    """The line through two points, or the one point that both are."""
    return y0 if x0 == x1 else y0 + (y1 - y0) * (x - x0) / (x1 - x0)
