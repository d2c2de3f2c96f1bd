"""Dispatch and combine from measured tables of DeepEP V1's high-throughput kernels."""

from __future__ import annotations

import csv
from bisect import bisect_left
from functools import cache
from importlib import resources
from typing import NamedTuple

from dbo_sched.errors import InputError
from dbo_sched.plan import Op, Program
from dbo_sched.systems import SYSTEMS
from dbo_sched.workload import Workload
from sim.costs import Kernel
from sim.costs.deepep import phase_sms

TABLE = "deepep_normal.csv"

LAYOUT_NS_PER_CHOICE = 23_000 / (4096 * 6)
"""Layout reads every top-k choice: 23 us for 4096 tokens, top-6, measured on one H200."""

NOTIFY_NS = {"dispatch": 9_000, "combine": 30_000}
"""Notify within one node, where the table has none: measured on one H200 with two ranks."""


class Row(NamedTuple):
    """Microseconds of one table row."""

    dispatch_data: float
    dispatch_notify: float
    combine_data: float
    combine_notify: float


class Table(NamedTuple):
    """All rows of one system, node count and shape: ``rows[tokens][sms]``."""

    name: str
    rows: dict[int, dict[int, Row]]


class Lookup(NamedTuple):
    """What a table says of one call, and whether it is a row or lies between rows."""

    data_ns: int
    notify_ns: int
    origin: str


@cache
def _tables() -> dict[tuple[str, int, int, int, int, int], Table]:
    """Every table by (system, nodes, ranks, hidden, top-k, experts)."""
    tables: dict[tuple[str, int, int, int, int, int], Table] = {}
    data = resources.files("sim.costs") / "data" / TABLE
    with data.open(encoding="utf-8") as file:
        for system, *shape, tokens, sms, t_d, n_d, t_c, n_c, _ in list(csv.reader(file))[1:]:
            nodes, ep, hidden, topk, experts = map(int, shape)
            key = system.removesuffix("_sxm"), nodes, ep, hidden, topk, experts
            if key not in tables:
                place = f"{key[0]} {nodes}x{ep // nodes} h{hidden} k{topk} e{experts}"
                tables[key] = Table(f"{TABLE} {place}", {})
            row = Row(float(t_d), float(n_d), float(t_c), float(n_c))
            tables[key].rows.setdefault(int(tokens), {})[int(sms)] = row
    return tables


def find_table(workload: Workload) -> Table:
    """The table of a workload's system, nodes and shape.

    Raises:
        InputError: naming what is covered instead.
    """
    model, deployment = workload.model, workload.deployment
    shape = model.hidden_size, model.num_experts_per_tok, model.n_routed_experts
    key = deployment.system, deployment.nodes, deployment.ep, *shape
    if deployment.dtype != "fp8":
        raise InputError(
            f"{TABLE} holds FP8 dispatch only, and the workload dispatches {deployment.dtype}",
            where="--dtype",
            mend="use fp8, or give durations on the ops and --costs fixed",
        )
    if key not in _tables():
        same_shape = [k for k in _tables() if k[3:] == shape and k[0] in SYSTEMS]
        covered = ", ".join(f"--system {k[0]} --nodes {k[1]}" for k in same_shape)
        raise InputError(
            f"{TABLE} has no row for {deployment.system}, {deployment.nodes} nodes, "
            f"{deployment.ep} ranks, hidden {shape[0]}, top-{shape[1]}, {shape[2]} experts",
            where="costs",
            mend=f"choose one of: {covered}"
            if covered
            else "no system covers this shape: give durations on the ops and --costs fixed",
        )
    return _tables()[key]


def look_up(table: Table, kind: str, tokens: int, sms: int) -> Lookup:
    """Data and notify phase of a call; linear in tokens and in 1/SMs between rows.

    A call without tokens is taken as the row of one token.

    Raises:
        InputError: tokens or SMs outside the table.
    """
    known_tokens, known_sms = list(table.rows), list(next(iter(table.rows.values())))
    for what, flag, value, known in (
        ("tokens", "--tokens", max(tokens, 1), known_tokens),
        ("SMs", "--comm-sms", sms, known_sms),
    ):
        if not known[0] <= value <= known[-1]:
            raise InputError(
                f"{table.name} ends at {known[0]} and {known[-1]} {what}: {value} is outside",
                where=flag,
                mend=f"stay within {known[0]} to {known[-1]} {what} per rank and call",
            )
    data, notify = (
        round(1000 * _value(table, f"{kind}_{phase}", max(tokens, 1), sms))
        for phase in ("data", "notify")
    )
    exact = max(tokens, 1) in known_tokens and sms in known_sms
    origin = f"table:{table.name}, {tokens} tokens, {sms} SMs" + ("" if exact else ", interpolated")
    return Lookup(data, notify, origin)


def _value(table: Table, field: str, tokens: int, sms: int) -> float:
    """A field between the rows around (tokens, SMs)."""
    few, many = _around(list(table.rows), tokens)
    low, high = _around(list(table.rows[few]), sms)

    def at(row_tokens: int) -> float:
        slow, fast = (getattr(table.rows[row_tokens][row_sms], field) for row_sms in (low, high))
        return _linear(1 / sms, 1 / low, slow, 1 / high, fast)

    return _linear(tokens, few, at(few), many, at(many))


def _around(known: list[int], value: int) -> tuple[int, int]:
    """The neighbours of a value that lies inside; twice itself where it is one of them."""
    place = bisect_left(known, value)
    return (value, value) if known[place] == value else (known[place - 1], known[place])


def _linear(x: float, x0: float, y0: float, x1: float, y1: float) -> float:
    return y0 if x0 == x1 else y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def kernels(program: Program, workload: Workload, op: Op) -> tuple[Kernel, ...]:
    """Layout (dispatch only), notify and data of a dispatch or combine.

    Raises:
        InputError: another kind of collective, no SM budget, or a call outside the tables.
    """
    if op.kind not in ("dispatch", "combine") or op.sms is None:
        raise InputError(
            f"op '{op.id}' is a collective of kind {op.kind}"
            + (" without SMs" if op.sms is None else ""),
            where="costs",
            mend="the tables hold dispatch and combine with sms=N; give the op ns=data:NANOSECONDS",
        )
    found = look_up(find_table(workload), op.kind, op.tokens, op.sms)
    choices = op.tokens * workload.model.num_experts_per_tok
    costs = {
        "layout": (round(choices * LAYOUT_NS_PER_CHOICE), "measured: layout on one H200, scaled"),
        "notify": (found.notify_ns, found.origin),
        "data": (found.data_ns, found.origin),
    }
    if not found.notify_ns:
        costs["notify"] = NOTIFY_NS[op.kind], "measured: notify on one H200, two ranks"
    if op.kind == "combine":
        del costs["layout"]
    return tuple(
        Kernel(
            phase,
            ns,
            origin,
            gang=True,
            sms=phase_sms(program, op, phase),
            meets=phase != "layout",
        )
        for phase, (ns, origin) in costs.items()
    )
