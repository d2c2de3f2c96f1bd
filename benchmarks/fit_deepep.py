"""Fits the formula of ``sim/costs/deepep_fit.py`` to the rows of the measured table.

Writes ``sim/costs/data/deepep_fit.json`` and prints how far off the rows are. Relative errors are
minimised in the mean (iteratively reweighted least squares); which of the two branches holds for a
row is found by repeating the fit until no row changes sides. Within one node all shapes are fitted
together; between nodes there is one shape, so that only the cost per copied byte can be told.

    python benchmarks/fit_deepep.py
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import median

import msgspec
import numpy as np

from dbo_sched.routing import fanout
from sim.costs.deepep_fit import DATA, Fit
from sim.costs.deepep_table import tables

ROOT = Path(__file__).parents[1]


def samples(kind: str):
    """(system, nodes) -> rows of tokens, copies, bytes, SMs, microseconds and notify."""
    found = defaultdict(list)
    for (system, nodes, ep, hidden, topk, experts), rows in tables().items():
        copies = fanout(experts, topk, ep)
        if nodes > 1:
            copies = fanout(experts, topk, nodes) * (nodes - 1) / nodes
        wire = hidden + hidden // 128 * 4 if kind == "dispatch" else 2 * hidden
        for tokens, by_sms in rows.items():
            for sms, row in by_sms.items():
                data, notify = getattr(row, f"{kind}_data"), getattr(row, f"{kind}_notify")
                found[system, nodes].append((tokens, copies, wire, sms, data, notify))
    return found


def least_relative(columns: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Coefficients, none negative, that minimise the mean of abs(columns @ x / times - 1)."""
    scaled = columns / times[:, None]
    kept = list(range(scaled.shape[1]))
    while True:
        weight = np.ones_like(times)
        for _ in range(15):
            part = scaled[:, kept] * weight[:, None]
            found = np.linalg.lstsq(part, weight, rcond=None)[0]
            weight = 1 / np.sqrt(np.maximum(np.abs(scaled[:, kept] @ found - 1), 0.02))
        if (found >= 0).all():
            whole = np.zeros(scaled.shape[1])
            whole[kept] = found
            return whole
        del kept[int(np.argmin(found))]


def fit(system: str, nodes: int, kind: str, rows) -> Fit:
    """The formula of one system, number of nodes and kind."""
    n, copies, wire, sms, times, notify = np.array(rows, float).T
    link = n * copies * wire
    busy = [n / sms, n * wire / sms, link / sms] if nodes == 1 else [link / sms]
    full = sms >= 16
    for _ in range(60):
        columns = [np.ones_like(times), *(np.where(full, 0, part) for part in busy)]
        found = least_relative(np.stack([*columns, np.where(full, link, 0)], axis=1), times)
        sides = link * found[-1] > sum(part * x for part, x in zip(busy, found[1:-1], strict=True))
        if (sides == full).all():
            break
        full = sides
    per_token, per_byte, per_copy = found[1:-1] if nodes == 1 else (0.0, 0.0, found[1])
    made = Fit(
        system=system,
        nodes=nodes,
        kind=kind,
        latency_us=round(float(found[0]), 1),
        token_us=round(float(per_token), 4),
        byte_us=float(f"{per_byte:.4g}"),
        copy_us=float(f"{per_copy:.4g}"),
        gbps=round(float(1 / found[-1] / 1e3), 1),
        notify_us=round(float(median(notify)), 1),
        mean_error=0.0,
        worst_error=0.0,
    )
    off = [abs(made.data_us(n, copies, wire, sms) / us - 1) for n, copies, wire, sms, us, _ in rows]
    mean, worst = round(float(sum(off) / len(off)), 3), round(float(max(off)), 3)
    return msgspec.structs.replace(made, mean_error=mean, worst_error=worst)


def main() -> None:
    """Fit, write, print."""
    fits = [
        fit(system, nodes, kind, rows)
        for kind in ("dispatch", "combine")
        for (system, nodes), rows in samples(kind).items()
    ]
    text = msgspec.json.format(msgspec.json.encode(fits), indent=1)
    (ROOT / "sim/costs/data" / DATA).write_bytes(text + b"\n")
    for made in fits:
        print(
            f"{made.system:6} {made.nodes} {made.kind:8}  mean {made.mean_error:.1%}  "
            f"worst {made.worst_error:.0%}  full wire {made.gbps:.0f} GB/s"
        )


if __name__ == "__main__":
    main()
