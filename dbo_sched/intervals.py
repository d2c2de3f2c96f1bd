"""Sets of half-open time intervals, kept sorted and disjoint."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

Intervals: TypeAlias = list[tuple[int, int]]


def union(intervals: Iterable[tuple[int, int]]) -> Intervals:
    """Sorted and disjoint; empty ones dropped."""
    merged: Intervals = []
    for start, end in sorted(intervals):
        if start >= end:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def intersect(left: Intervals, right: Intervals) -> Intervals:
    """What lies in both; each sorted and disjoint."""
    common: Intervals = []
    i = j = 0
    while i < len(left) and j < len(right):
        start, end = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if start < end:
            common.append((start, end))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return common


def subtract(left: Intervals, right: Intervals) -> Intervals:
    """What lies in ``left`` but not in ``right``."""
    rest: Intervals = []
    j = 0
    for start, end in left:
        while j < len(right) and right[j][1] <= start:
            j += 1
        k = j
        while k < len(right) and right[k][0] < end:
            if right[k][0] > start:
                rest.append((start, right[k][0]))
            start = max(start, right[k][1])
            k += 1
        if start < end:
            rest.append((start, end))
    return rest


def length(intervals: Intervals) -> int:
    """Total time."""
    return sum(end - start for start, end in intervals)
