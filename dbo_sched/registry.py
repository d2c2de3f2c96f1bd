"""Schedules by name: those in ``dbo_sched.schedules`` and those that other packages bring."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, TypeAlias, TypeVar

from dbo_sched.errors import InputError, ScheduleError
from dbo_sched.plan import Stream
from dbo_sched.weave import Steps

ENTRY_POINTS = "dbo_sched.schedules"

MOST_UBATCHES = 64
"""Engines split into two, research schedules into a few more."""

OptionValue: TypeAlias = str | int | float | bool
Function = TypeVar("Function", bound=Callable[..., Steps | None])

_TYPES: dict[str, type[OptionValue]] = {"str": str, "int": int, "float": float, "bool": bool}
_TRUE = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True)
class Schedule:
    """A named schedule function with what the weaver and the command line need to know of it.

    ``least`` and ``most`` bound the number of ubatches; ``options`` maps each keyword parameter to
    its type and default.
    """

    name: str
    function: Callable[..., Steps | None]
    stage_offset: int
    least: int
    most: int | None
    options: Mapping[str, tuple[type[OptionValue], OptionValue]]
    streams: tuple[Stream, ...] = ()

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring, on one line."""
        return " ".join((inspect.getdoc(self.function) or "").split("\n\n")[0].split())

    @property
    def ubatches(self) -> str:
        """The number of ubatches that it takes, in words."""
        if self.most == self.least:
            return str(self.least)
        return f"{self.least} to {MOST_UBATCHES if self.most is None else self.most}"

    def check_ubatches(self, ubatches: int) -> None:
        """Refuse a number of ubatches that the schedule is not made for."""
        most = MOST_UBATCHES if self.most is None else self.most
        if not isinstance(ubatches, int) or not self.least <= ubatches <= most:
            raise InputError(
                f"schedule '{self.name}' takes {self.ubatches} ubatches, not {ubatches}",
                where="--ubatches",
                mend=f"give {self.ubatches}",
            )

    def read_options(self, given: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
        """All options with their values; text is turned into the option's type.

        Raises:
            InputError: an unknown option, or a value that is not of its type.
        """
        values = {name: default for name, (_, default) in self.options.items()}
        for name, value in given.items():
            key = name.replace("-", "_")
            if key not in self.options:
                known = ", ".join(self.options) or "it has none"
                raise InputError(
                    f"schedule '{self.name}' has no option '{name}'",
                    where="--set",
                    mend=f"its options: {known}",
                )
            values[key] = _convert(self.name, key, value, self.options[key][0])
        return values


def schedule(
    name: str,
    *,
    stage_offset: int = 0,
    least: int = 2,
    most: int | None = None,
    streams: Iterable[Stream | str] = (),
) -> Callable[[Function], Function]:
    """Register a schedule function over one :class:`~dbo_sched.weave.UBatch`.

    The function is a generator whose every ``yield`` hands the host to the next ubatch, or a plain
    function that emits a whole ubatch at once. Its keyword-only parameters are options. ``streams``
    are those that it uses beside compute, a2a, comm and aux.

    Raises:
        ScheduleError: the name is taken by another function, or an option has no plain type or no
            default.
    """

    if not re.fullmatch(r"[\w.-]+", name):
        raise ScheduleError(f"{name!r} is no name", mend="use letters, digits and . _ -")
    if least < 1 or (most is not None and most < least) or not 0 <= stage_offset <= 1000:
        raise ScheduleError(
            f"schedule '{name}' takes {least} to {most} ubatches at stage offset {stage_offset}",
            mend="give least from 1, most from least, and an offset from 0 to 1000",
        )

    own = tuple(s if isinstance(s, Stream) else Stream(id=s) for s in streams)

    def register(function: Function) -> Function:
        known = _registry.get(name)
        if known is not None and _origin(known.function) != _origin(function):
            raise ScheduleError(
                f"schedule '{name}' is already defined by {_origin(known.function)}",
                where=_origin(function),
                mend="choose another name",
            )
        _registry[name] = Schedule(
            name, function, stage_offset, least, most, _options_of(name, function), own
        )
        return function

    return register


def get_schedule(name: str) -> Schedule:
    """A schedule by name.

    Raises:
        InputError: naming the known ones, and the packages whose schedules failed to load.
    """
    broken = _load_all()
    if name not in _registry:
        failed = "".join(f" ({entry}: {why})" for entry, why in broken.items())
        raise InputError(
            f"schedule '{name}' is not known{failed}",
            where="schedule",
            mend=f"use one of {', '.join(sorted(_registry))}",
        )
    return _registry[name]


def all_schedules() -> tuple[list[Schedule], dict[str, str]]:
    """Every schedule in order of registration, and why any entry point failed to load."""
    broken = _load_all()
    return list(_registry.values()), broken


_registry: dict[str, Schedule] = {}
_broken: dict[str, str] | None = None


def _load_all() -> dict[str, str]:
    """Import the shipped schedules and, once, every entry point; returns those that failed."""
    global _broken
    if _broken is None:
        import_module("dbo_sched.schedules")
        _broken = {}
        for entry in entry_points(group=ENTRY_POINTS):
            try:
                entry.load()
            except (Exception, SystemExit) as error:  # a foreign package may raise anything
                first = str(error).splitlines()[:1]
                _broken[entry.value] = ": ".join([type(error).__name__, *first])
    return _broken


def _origin(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def _options_of(
    name: str, function: Callable[..., Any]
) -> dict[str, tuple[type[OptionValue], OptionValue]]:
    options: dict[str, tuple[type[OptionValue], OptionValue]] = {}
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        kind = _TYPES.get(getattr(parameter.annotation, "__name__", parameter.annotation))
        keyword = parameter.kind is parameter.KEYWORD_ONLY
        if kind is None or not keyword or type(parameter.default) is not kind:
            raise ScheduleError(
                f"option '{parameter.name}' of schedule '{name}' is not keyword-only with a plain "
                "type and a default of that type",
                where=_origin(function),
                mend=f"write it as *, {parameter.name}: int = 0 (str, int, float or bool)",
            )
        options[parameter.name] = (kind, parameter.default)
    return options


def _convert(schedule: str, name: str, value: OptionValue, kind: type[OptionValue]) -> OptionValue:
    try:
        if kind is bool and isinstance(value, str):
            return _TRUE[value.lower()]
        converted = kind(value)
        if not isinstance(value, str) and converted != value:
            raise ValueError
        return converted
    except (KeyError, ValueError, TypeError, OverflowError):
        raise InputError(
            f"option '{name}' of schedule '{schedule}' is {value!r}",
            where="--set",
            mend=f"give a value of type {kind.__name__}",
        ) from None
