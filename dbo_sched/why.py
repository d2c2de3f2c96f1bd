"""Why a schedule pays or does not, in plain sentences made of its timeline's numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from dbo_sched.ranking import BASELINE, Entry, fastest
from dbo_sched.units import change, unit_for

PAYS, LOSES = 1.02, 0.98
"""Gains in between make no difference worth having."""

WORTH_TELLING = 0.05
"""Part of the step below which a cause of idling, or a longer compute, is not mentioned."""


def explain(entries: Sequence[Entry]) -> list[str]:
    """Which is fastest, then one sentence per entry.

    A split is measured against ``sequential`` where that is among the entries.
    """
    baseline = next((e for e in entries if e.schedule == BASELINE and e.ubatches == 1), None)
    best = fastest(entries)
    parts = "one ubatch" if best.ubatches == 1 else f"{best.ubatches} ubatches"
    return [
        f"fastest is {best.schedule} with {parts}",
        *(f"{_verdict(entry)}: {'; '.join(_reasons(entry, baseline))}" for entry in entries),
    ]


def notes(entries: Sequence[Entry]) -> list[str]:
    """What a reader must know of all the entries' numbers: the notes of each, once.

    Durations of one thing that are measured for one schedule and estimated for another make gains
    that nobody would have; that is pointed out too.
    """
    known = list(dict.fromkeys(note for entry in entries for note in entry.timeline.header.notes))
    families: dict[str, set[str]] = defaultdict(set)
    for entry in entries:
        for span in entry.timeline.gpu():
            thing = f"{span.kind} {span.phase}" if span.comm is not None else span.kind
            families[thing].add(span.origin.partition(":")[0])
    mixed = [thing for thing, found in families.items() if len(found) > 1]
    if mixed:
        known.append(
            f"MIXED SOURCES for {', '.join(mixed)}: the schedules' durations are not all of one "
            "origin, gains may come from that"
        )
    return known


def _verdict(entry: Entry) -> str:
    name = entry.schedule
    if name == BASELINE and entry.ubatches == 1:
        return f"{name} is the baseline"
    if entry.gain >= PAYS:
        return f"{name} pays here ({entry.gain:.2f}x)"
    if entry.gain > LOSES:
        return f"{name} makes no difference here ({entry.gain:.2f}x)"
    return f"{name} does not pay here ({entry.gain:.2f}x)"


def _reasons(entry: Entry, baseline: Entry | None) -> list[str]:
    times, step = entry.metrics.mean, entry.metrics.step_ns
    if not step:
        return ["nothing runs"]
    per_unit, unit = unit_for(step)
    reasons = [f"compute is {times.compute_ns / per_unit:,.1f} of {step / per_unit:,.1f} {unit}"]
    busiest = max(rank.compute_ns for rank in entry.metrics.ranks.values())
    if busiest > PAYS * times.compute_ns:
        reasons[0] += f" in the mean and {busiest / per_unit:,.1f} on the busiest rank"
    if baseline is None or entry is baseline:
        best = step / busiest if busiest else 1.0
        reasons[0] += f", so hiding everything else would gain {best:.2f}x"
    else:
        longer = times.compute_ns / max(1, baseline.metrics.mean.compute_ns) - 1
        if longer >= WORTH_TELLING:
            reasons[0] += f" ({longer:.0%} longer than unsplit and alone on the SMs)"
    causes = sorted(times.bubbles.items(), key=lambda cause: -cause[1])
    idle = [f"{cause} {ns / step:.0%}" for cause, ns in causes if ns >= WORTH_TELLING * step]
    if idle:
        reasons.append(f"idle: {', '.join(idle)} of the step")
    if entry.faster:
        most = sorted(entry.faster, key=lambda kind: entry.faster[kind])[:2]
        kinds = dict.fromkeys([*most, *(k for k in ("dispatch", "combine") if k in entry.faster)])
        changes = ", ".join(f"{kind} {change(entry.faster[kind])}" for kind in kinds)
        reasons.append(f"step if 10 % faster: {changes}")
    return reasons
