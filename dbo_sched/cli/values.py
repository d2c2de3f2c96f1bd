"""Flag values that hold more than one number: lists, factors, and files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec

from dbo_sched.errors import InputError
from dbo_sched.routing import MOST_EXPONENT, Load, Routing
from dbo_sched.workload import Sequences

MOST_VALUES = 64


def counts(words: str, flag: str) -> list[int]:
    """Whole numbers separated by commas; ``4,8,...,24`` goes on in equal steps.

    Raises:
        InputError: something else, a number twice, or more than 64 of them.
    """
    known = [word.strip() for word in words.replace("…", "...").split(",")]
    found: list[int] = []
    try:
        for place, word in enumerate(known):
            if word != "...":
                found.append(int(word))
                continue
            step, last = found[-1] - found[-2], int(known[place + 1])
            if step <= 0 or (last - found[-1]) % step or last <= found[-1]:
                raise ValueError
            found += range(found[-1] + step, last, step)[:MOST_VALUES]
        if len(set(found)) < len(found) or len(found) > MOST_VALUES:
            raise ValueError
    except (ValueError, IndexError):
        raise InputError(
            f"'{words}' is no list of numbers",
            where=flag,
            mend="write 20, or 8,16,24, or in equal steps 4,8,...,24",
        ) from None
    return found


def factors(words: str) -> dict[str, float]:
    """``kind=factor`` pairs separated by commas.

    Raises:
        InputError: something else, or a kind given twice.
    """
    found: dict[str, float] = {}
    for word in words.split(","):
        kind, _, factor = word.partition("=")
        try:
            if not kind.strip() or kind.strip() in found:
                raise ValueError
            found[kind.strip()] = float(factor)
        except ValueError:
            raise InputError(
                f"'{word}' is not KIND=FACTOR, or given twice",
                where="--scale",
                mend="write for example dispatch=0.5,experts=1.2",
            ) from None
    return found


def read_routing(words: str, seed: int | None) -> Routing:
    """``balanced``, ``zipf:S``, or a JSON file with one load per expert.

    Raises:
        InputError: an exponent that is none, a file that cannot be read, something else in it, or a
            seed where nothing is drawn.
    """
    if words == "balanced":
        if seed is not None:
            raise InputError(
                "nothing is drawn under balanced routing",
                where="--seed",
                mend="leave it out, or give --routing zipf:S",
            )
        return Routing()
    law, colon, exponent = words.partition(":")
    if law == "zipf" and colon:
        if not re.fullmatch(r"\d+(\.\d*)?|\.\d+", exponent) or float(exponent) > MOST_EXPONENT:
            raise InputError(
                f"'{exponent}' is no exponent",
                where="--routing",
                mend=f"write zipf:S, S from 0 to {MOST_EXPONENT}",
            )
        return Routing(popularity="zipf", exponent=float(exponent), seed=seed or 0)
    mend = "write balanced, zipf:S, or the path of a JSON list with one load for each expert"
    loads = _convert(_json(words, "--routing", mend), tuple[Load, ...], words, mend)
    return Routing(popularity="given", weights=loads, seed=seed or 0)


def read_batches(path: Path) -> tuple[Sequences, ...]:
    """One batch for all ranks, or one for each.

    Raises:
        InputError: the file cannot be read or holds something else.
    """
    mend = "write [[new, context], ...], or a list of those, one for each rank"
    found = _json(str(path), "--batch", mend)
    numbers = isinstance(found, list) and any(
        isinstance(pair, list) and any(isinstance(number, int) for number in pair) for pair in found
    )
    batches: tuple[Sequences, ...] = _convert(
        [found] if numbers else found, tuple[Sequences, ...], str(path), mend
    )
    return batches


def _json(path: str, flag: str, mend: str) -> Any:
    try:
        return msgspec.json.decode(Path(path).read_bytes())
    except OSError as error:
        raise InputError(f"'{path}': {error.strerror}", where=flag, mend=mend) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise InputError(f"not JSON: {error}", where=path, mend=mend) from None


def _convert(value: Any, kind: Any, where: str, mend: str) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise InputError(str(error), where=where, mend=mend) from None
