"""Cost models by name."""

from __future__ import annotations

from dbo_sched.errors import InputError
from sim.costs import Costs
from sim.costs.auto import AutoCosts
from sim.costs.fixed import FixedCosts
from sim.costs.roofline import Roofline

NAMES = ("auto", "fixed")


def load_costs(name: str, roofline: Roofline | None = None) -> Costs:
    """A cost model by name; ``roofline`` is what ``auto`` takes for compute.

    Raises:
        InputError: naming the known ones.
    """
    if name not in NAMES:
        raise InputError(
            f"costs '{name}' are not known", where="--costs", mend=f"use one of {', '.join(NAMES)}"
        )
    return FixedCosts() if name == "fixed" else AutoCosts(roofline)
