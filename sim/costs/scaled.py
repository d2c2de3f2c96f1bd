"""What if one kind of op were faster: another cost model's durations times a factor."""

from __future__ import annotations

from collections.abc import Mapping

from dbo_sched.errors import InputError
from dbo_sched.plan import Op, Plan, Program
from sim.costs import Costs, Kernel, Sources

MOST_FACTOR = 1e6


def check_factors(factors: Mapping[str, float]) -> None:
    """Refuse what is no sensible factor.

    Raises:
        InputError: not a number, or not from 0 to a million.
    """
    for kind, factor in factors.items():
        if not 0 <= factor <= MOST_FACTOR:
            raise InputError(
                f"{kind} is scaled by {factor}", where="--scale", mend=f"give 0 to {MOST_FACTOR:g}"
            )


class ScaledCosts:
    """``costs`` with every kernel of an op kind taking ``factors[kind]`` times as long.

    It moves as many times the bytes, so that memory is as much in demand while it runs.
    """

    def __init__(self, costs: Costs, factors: Mapping[str, float]) -> None:
        check_factors(factors)
        self.name, self.costs, self.factors = costs.name, costs, dict(factors)

    def kernels(self, program: Program, plan: Plan, op: Op) -> tuple[Kernel, ...]:
        """See :class:`sim.costs.Costs`."""
        kernels = self.costs.kernels(program, plan, op)
        factor = self.factors.get(op.kind)
        if factor is None:
            return kernels
        return tuple(
            kernel._replace(
                ns=round(kernel.ns * factor),
                bytes=int(kernel.bytes * factor),
                origin=f"{kernel.origin}, times {factor:g}",
            )
            for kernel in kernels
        )

    def notes(self, program: Program, sources: Sources) -> tuple[str, ...]:
        """See :class:`sim.costs.Costs`.

        Raises:
            InputError: a kind that the program does not have.
        """
        known = sorted({op.kind for plan in program.plans for op in plan.ops})
        foreign = [kind for kind in self.factors if kind not in known]
        if foreign:
            raise InputError(
                f"no op is of kind {', '.join(foreign)}",
                where="--scale",
                mend=f"use one of {', '.join(known)}",
            )
        scaled = [f"SCALED: {kind} takes {f:g} times as long" for kind, f in self.factors.items()]
        return (*self.costs.notes(program, sources), *scaled)
