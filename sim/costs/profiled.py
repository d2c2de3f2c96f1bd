"""Durations from a calibrated profile: what was measured, and lines between token counts."""

from __future__ import annotations

from collections import defaultdict

from dbo_sched.errors import InputError
from dbo_sched.plan import Op, Program
from dbo_sched.profile import Measured, Profile
from dbo_sched.systems import load_system
from dbo_sched.workload import Workload
from sim.costs import Kernel
from sim.costs.deepep import PHASES, phase_sms
from sim.costs.deepep_table import around, linear


class Profiled:
    """Looks kernels up by kind, SMs and phase."""

    def __init__(self, profile: Profile, file: str) -> None:
        """Raises InputError where one point was measured twice."""
        self.profile = profile
        self.source = f"profile:{file} {profile.gpu}".replace(", ", " ")
        self.points: dict[tuple[str, int], dict[str, dict[int, Measured]]] = defaultdict(dict)
        for point in profile.kernels:
            phases = self.points[point.kind, point.sms]
            if point.tokens in phases.setdefault(point.phase, {}):
                raise InputError(
                    f"{point.kind} {point.phase} with {point.tokens} tokens is there twice",
                    where=file,
                    mend="keep one of them",
                )
            phases[point.phase][point.tokens] = point

    def kernels(self, program: Program, op: Op, tokens: int) -> tuple[Kernel, ...] | str:
        """The kernels of an op on ``tokens`` tokens, or why there are none."""
        sms = op.sms or 0 if op.comm is not None else 0
        phases = self.points.get((op.kind, sms))
        if phases is None:
            return f"the profile has no {op.kind}" + f" with {sms} SMs" * (op.comm is not None)
        kernels = []
        for phase, points in phases.items():
            known = sorted(points)
            if not known[0] <= tokens <= known[-1]:
                return f"the profile has {op.kind} from {known[0]} to {known[-1]} tokens only"
            few, many = (points[count] for count in around(known, tokens))

            def between(field: str, few: Measured = few, many: Measured = many) -> int:
                values = (getattr(few, field), getattr(many, field))
                return round(linear(tokens, few.tokens, values[0], many.tokens, values[1]))

            exact = "" if few is many else ", interpolated"
            kernels.append(
                Kernel(
                    phase,
                    between("ns"),
                    f"{self.source}, {tokens} tokens{exact}",
                    tiles=between("tiles"),
                    bytes=between("bytes"),
                    full_sms=self.profile.sms,
                )
            )
        return self._collective(program, op, kernels) if op.comm is not None else tuple(kernels)

    def warnings(self, workload: Workload) -> tuple[str, ...]:
        """Where the profile is of something else than the workload."""
        profile, deployment = self.profile, workload.deployment
        measured = (profile.model, profile.ranks, profile.sms)
        asked = (workload.model.name, deployment.ep, load_system(deployment.system).sms)
        if measured == asked:
            return ()
        words = ("{} on {} ranks of {} SMs".format(*numbers) for numbers in (measured, asked))
        return (f"PROFILE OF ANOTHER SETTING: measured {next(words)}, asked for {next(words)}",)

    def _collective(self, program: Program, op: Op, kernels: list[Kernel]) -> tuple[Kernel, ...]:
        wrong = {kernel.phase for kernel in kernels} - set(PHASES)
        if wrong or all(kernel.phase != "data" for kernel in kernels):
            raise InputError(
                f"{op.kind} has phases {', '.join(kernel.phase for kernel in kernels)}",
                where=self.source,
                mend=f"give a collective its data phase, and of {', '.join(PHASES)} what it has",
            )
        order = sorted(kernels, key=lambda kernel: PHASES.index(kernel.phase))
        return tuple(
            kernel._replace(
                gang=True,
                sms=phase_sms(program, op, kernel.phase),
                tiles=0,
                full_sms=0,
                meets=kernel.phase != "layout",
            )
            for kernel in order
        )
