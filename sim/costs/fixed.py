"""Durations written on the ops themselves (``ns=``)."""

from __future__ import annotations

from itertools import accumulate, pairwise

from dbo_sched.errors import InputError
from dbo_sched.plan import Op, Plan, Program
from sim.costs import Kernel, Sources
from sim.costs.deepep import PHASES, phase_sms


class FixedCosts:
    """Every op's own ``ns``. A collective that blocks the host has a notify phase, at least 0."""

    name = "fixed"

    def kernels(self, program: Program, plan: Plan, op: Op) -> tuple[Kernel, ...]:
        """See :class:`sim.costs.Costs`."""
        if op.ns is None:
            raise InputError(
                f"op '{op.id}' has no duration",
                where="fixed costs",
                mend="give it ns=PHASE:NANOSECONDS, or take costs auto and a program with a model",
            )
        if op.comm is None:
            shares = _spread(op.bytes, [ns for _, ns in op.ns])
            return tuple(
                Kernel(phase, ns, "fixed", sms=op.sms or 0, tiles=op.tiles or 0, bytes=share)
                for (phase, ns), share in zip(op.ns, shares, strict=True)
            )
        given = dict(op.ns)
        if set(given) - set(PHASES) or "data" not in given:
            raise InputError(
                f"op '{op.id}' is a collective with phases {', '.join(given)}",
                where="fixed costs",
                mend="give its data phase, and layout and notify where it has them",
            )
        phases = [p for p in PHASES if p in given or (p == "notify" and op.blocks_host)]
        return tuple(
            Kernel(
                phase,
                given.get(phase, 0),
                "fixed",
                gang=True,
                sms=phase_sms(program, op, phase),
                meets=phase != "layout",
                bytes=op.bytes if phase == "data" else 0,
            )
            for phase in phases
        )

    def notes(self, program: Program, sources: Sources) -> tuple[str, ...]:
        """See :class:`sim.costs.Costs`."""
        return ()


def _spread(total: int, times: list[int]) -> list[int]:
    """``total`` in whole parts, proportional to ``times`` to within 1; their sum is kept."""
    ends = [total * end // (sum(times) or 1) for end in accumulate(times, initial=0)]
    return [end - start for start, end in pairwise(ends)]
