"""Cost models by name."""

from __future__ import annotations

from dbo_sched.errors import InputError
from sim.costs import Costs
from sim.costs.auto import AutoCosts
from sim.costs.fixed import FixedCosts

COSTS: dict[str, type[Costs]] = {"auto": AutoCosts, "fixed": FixedCosts}


def load_costs(name: str) -> Costs:
    """A cost model by name.

    Raises:
        InputError: naming the known ones.
    """
    if name not in COSTS:
        raise InputError(
            f"costs '{name}' are not known", where="--costs", mend=f"use one of {', '.join(COSTS)}"
        )
    return COSTS[name]()
