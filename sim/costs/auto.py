"""The best source that there is for every op: its own ``ns``, a measured table, the roofline."""

from __future__ import annotations

from dbo_sched.errors import InputError
from dbo_sched.plan import Op, Plan, Program
from sim.costs import Kernel, silicon
from sim.costs.fixed import FixedCosts
from sim.costs.roofline import Roofline


class AutoCosts:
    """Fixed durations where ops have them, DeepEP's tables for collectives, else the roofline."""

    name = "auto"

    def __init__(self, roofline: Roofline | None = None) -> None:
        self.fixed = FixedCosts()
        self.roofline = roofline or Roofline()

    def kernels(self, program: Program, plan: Plan, op: Op) -> tuple[Kernel, ...]:
        """See :class:`sim.costs.Costs`."""
        if op.ns is not None:
            return self.fixed.kernels(program, plan, op)
        if program.workload is None:
            raise InputError(
                f"op '{op.id}' has no duration, and the program no model to derive one from",
                where="costs",
                mend="give the op ns=PHASE:NANOSECONDS, or the program a model",
            )
        if op.comm is not None:
            return silicon.kernels(program, program.workload, op)
        return self.roofline.kernels(program.workload, plan, op)

    def notes(self, program: Program) -> tuple[str, ...]:
        """See :class:`sim.costs.Costs`."""
        if program.workload is None:
            return ()
        deployment = program.workload.deployment
        notes = [
            f"compute: roofline of the {deployment.system} data sheet, assumed "
            f"{self.roofline.math_efficiency:.0%} of peak math and "
            f"{self.roofline.memory_efficiency:.0%} of memory bandwidth",
            "dispatch and combine: measured alone on the GPU (aiconfigurator, DeepEP V1, FP8 "
            "dispatch, BF16 combine); layout: measured on one H200, scaled by tokens x top-k",
            "routing: balanced; one rank per GPU (TP is 1)",
        ]
        if deployment.nodes == 1:
            notes.append("notify: measured on one H200 with two ranks; the table has none")
        if (deployment.system, deployment.nodes, deployment.comm_sms) == ("h100", 2, 12):
            notes.append("h100, 2 nodes, 12 SMs: dispatch is an outlier of the table, 30 % slow")
        return tuple(notes)
