"""Cost models by name."""

from __future__ import annotations

from pathlib import Path

from dbo_sched.errors import InputError
from dbo_sched.profile import read_profile
from sim.costs import Costs
from sim.costs.derived import COLLECTIVES, DerivedCosts
from sim.costs.fixed import FixedCosts
from sim.costs.profiled import Profiled
from sim.costs.roofline import Roofline

NAMES = (*COLLECTIVES, "fixed", "profile:FILE")


def load_costs(name: str, roofline: Roofline | None = None) -> Costs:
    """A cost model by name; ``roofline`` is what it takes for compute.

    Raises:
        InputError: a name that is not known, or a profile that cannot be read.
    """
    word, _, file = name.partition(":")
    if name == "fixed":
        return FixedCosts()
    if word == "profile" and file:
        path = Path(file)
        return DerivedCosts("auto", roofline, Profiled(read_profile(path), path.name))
    if name in COLLECTIVES:
        return DerivedCosts(name, roofline)
    raise InputError(
        f"costs '{name}' are not known", where="--costs", mend=f"use one of {', '.join(NAMES)}"
    )
