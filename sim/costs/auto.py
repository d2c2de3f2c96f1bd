"""The best source that there is for every op: its own ``ns``, a measured table, the roofline."""

from __future__ import annotations

from dbo_sched.errors import InputError
from dbo_sched.plan import Op, Plan, Program
from dbo_sched.systems import load_system
from dbo_sched.workload import weight_bytes
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
        derived = [op for plan in program.plans for op in plan.ops if op.ns is None]
        if program.workload is None or not derived:
            return ()
        workload, deployment = program.workload, program.workload.deployment
        system = load_system(deployment.system)
        notes = [
            f"compute: roofline of the {system.name} data sheet, assumed "
            f"{self.roofline.math_efficiency:.0%} of peak math and "
            f"{self.roofline.memory_efficiency:.0%} of memory bandwidth",
            "dispatch and combine: measured alone on the GPU (aiconfigurator, DeepEP V1, FP8 "
            "dispatch, BF16 combine); layout: measured on one H200, scaled by tokens x top-k",
            "routing: balanced over all experts, no limit on nodes; one rank per GPU (TP is 1)",
        ]
        if deployment.nodes == 1:
            notes.append("notify: measured on one H200 with two ranks; the table has none")
        if (system.name, deployment.nodes) == ("h100", 2) and 8 < deployment.comm_sms < 16:
            notes.append(
                "DISPATCH TOO SLOW: on 2 h100 nodes the table's rows at 12 SMs are outliers (data "
                "some 30 %, notify several times); take 8, or 16 and more"
            )
        weights_gb = weight_bytes(workload) / 1e9
        if weights_gb > system.memory_gb:
            notes.append(
                f"DOES NOT FIT: the layers' weights take {weights_gb:.0f} GB of each GPU, and "
                f"{system.name} has {system.memory_gb:g} GB"
            )
        return tuple(notes)
