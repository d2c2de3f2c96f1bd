"""What runs a program: the backend protocol, and how installed backends are found."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol, runtime_checkable

from dbo_sched.errors import InputError
from dbo_sched.plan import Program
from dbo_sched.timeline import Timeline

ENTRY_POINTS = "dbo_sched.backends"


class Backend(Protocol):
    """Predicts or measures the timeline of a program."""

    name: str

    def run(self, program: Program, steps: int = 1) -> list[Timeline]:
        """One timeline per step, all ranks merged."""


@runtime_checkable
class Predictor(Backend, Protocol):
    """A backend that can also say what would be if a kind of op took another time."""

    def scaled(self, factors: Mapping[str, float]) -> Predictor:
        """The same backend with every op of a kind taking ``factors[kind]`` times as long.

        The kind ``host`` stands for all that the host does itself.
        """


class BackendFactory(Protocol):
    """What an entry point of the group ``dbo_sched.backends`` names."""

    def configured(self, **settings: object) -> Backend:
        """A backend from settings as the command line gives them: plain numbers and text."""


def load_backend(name: str, **settings: object) -> Backend:
    """The installed backend ``name``, configured.

    Raises:
        InputError: no such backend, one that does not load, or a foreign module in its place.
    """
    found = {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}
    if name not in found:
        raise InputError(
            f"backend '{name}' is not installed",
            where="backend",
            mend=f"use one of {', '.join(sorted(found)) or '(none: install dbo-sched again)'}",
        )
    entry = found[name]
    _refuse_shadow(entry)
    try:
        factory: BackendFactory = entry.load()
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"backend '{name}' does not load: {error}",
            where=entry.value,
            mend="install what it needs, or the package that brings it again",
        ) from None
    return factory.configured(**settings)


def load_predictor(name: str, **settings: object) -> Predictor:
    """The installed backend ``name``, which must be one that predicts.

    Raises:
        InputError: as :func:`load_backend`, or for a backend that measures.
    """
    backend = load_backend(name, **settings)
    if not isinstance(backend, Predictor):
        raise InputError(
            f"backend '{name}' does not predict", where="backend", mend="use one that does, as sim"
        )
    return backend


def _refuse_shadow(entry: EntryPoint) -> None:
    """The project's own backends lie beside this package; another ``sim`` or ``hw`` is foreign."""
    if entry.dist is None or entry.dist.name != "dbo-sched":
        return
    module = entry.module.split(".")[0]
    spec = find_spec(module)
    home = Path(__file__).resolve().parent.parent
    origin = Path(spec.origin).resolve() if spec is not None and spec.origin else None
    if origin is None or origin.parent.parent != home:
        raise InputError(
            f"module '{module}' is not dbo-sched's: it was found at {origin or 'no file'}",
            where=f"backend '{entry.name}'",
            mend="rename that file, or start from another folder",
        )
