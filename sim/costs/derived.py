"""Durations from the program's model and deployment: sources asked in order, each telling itself.

``auto`` asks for collectives the measured table, then the formula fitted to it, then the data
sheet; compute comes from the roofline, for every model and both halves of a batch alike.
``silicon`` takes measured tables for compute too, and refuses collectives that are neither in the
table nor near it. ``roofline`` is the data sheet alone. A profile goes before ``auto``'s sources.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from dbo_sched.errors import InputError
from dbo_sched.plan import Op, Plan, Program
from dbo_sched.systems import load_system
from dbo_sched.workload import Workload, busiest_tokens, weight_bytes
from sim.costs import Kernel, Sources, deepep, deepep_fit, deepep_table, silicon, wire
from sim.costs.fixed import FixedCosts
from sim.costs.profiled import Profiled
from sim.costs.roofline import Roofline, part_of

COLLECTIVES: dict[str, Sequence[deepep.Source]] = {
    "auto": (deepep_table.look_up, deepep_fit.estimate, wire.estimate),
    "silicon": (deepep_table.look_up, deepep_fit.estimate),
    "roofline": (wire.estimate,),
}
"""What each named cost model asks for dispatch and combine, in order."""


class DerivedCosts:
    """An op's own ``ns`` where it has some, else the profile if any, else the sources of ``name``.

    ``name``: ``auto``, ``silicon`` or ``roofline``.
    """

    def __init__(
        self, name: str = "auto", roofline: Roofline | None = None, profile: Profiled | None = None
    ) -> None:
        self.name = name
        self.fixed = FixedCosts()
        self.roofline = roofline or Roofline()
        self.profile = profile
        self._last: tuple[Program, Plan] | None = None
        self._known: dict[tuple[object, ...], tuple[Kernel, ...]] = {}

    def kernels(self, program: Program, plan: Plan, op: Op) -> tuple[Kernel, ...]:
        """See :class:`sim.costs.Costs`. The layers of a plan are alike and worked out once."""
        if op.ns is not None:
            return self.fixed.kernels(program, plan, op)
        if self._last is None or self._last[0] is not program or self._last[1] is not plan:
            self._last, self._known = (program, plan), {}
        alike = op.kind, op.ubatch, op.tokens, op.sms, op.comm
        if alike not in self._known:
            self._known[alike] = self._ask(program, plan, op)
        return self._known[alike]

    def _ask(self, program: Program, plan: Plan, op: Op) -> tuple[Kernel, ...]:
        workload = program.workload
        if workload is None:
            raise InputError(
                f"op '{op.id}' has no duration, and the program no model to derive one from",
                where="costs",
                mend="give the op ns=PHASE:NANOSECONDS, or the program a model",
            )
        if self.profile is None:
            return self._derived(program, workload, plan, op)
        tokens = busiest_tokens(workload, part_of(plan, op)) if op.comm else op.tokens
        found = self.profile.kernels(program, op, tokens)
        if isinstance(found, str):
            return _because(found, self._derived(program, workload, plan, op))
        return found

    def _derived(
        self, program: Program, workload: Workload, plan: Plan, op: Op
    ) -> tuple[Kernel, ...]:
        if op.comm is not None:
            return deepep.collective(program, workload, plan, op, COLLECTIVES[self.name])
        if self.name != "silicon":
            return self.roofline.kernels(workload, plan, op)
        found = silicon.measured(workload, plan, op, self.roofline)
        if isinstance(found, str):
            return _because(found, self.roofline.kernels(workload, plan, op))
        return found

    def notes(self, program: Program, sources: Sources) -> tuple[str, ...]:
        """See :class:`sim.costs.Costs`."""
        if program.workload is None or not any(
            ":" in source for found in sources.values() for source in found
        ):
            return ()
        foreign = self.profile.warnings(program.workload) if self.profile else ()
        return (*self._origins(sources), *foreign, *_warnings(program.workload))

    def _origins(self, sources: Sources) -> list[str]:
        """One line per source, best first, with the things that came from it."""
        things: dict[str, list[str]] = defaultdict(list)
        for thing, found in sources.items():
            for source in found:
                things[source].append(thing)
        return [
            f"{', '.join(things[source])}: {self._explain(source)}"
            for source in sorted(things, key=lambda source: _RANKS.index(_family(source)))
        ]

    def _explain(self, source: str) -> str:
        """A source in words."""
        family, _, what = source.partition(":")
        if family == "roofline":
            system, _, reason = what.partition(" ")
            return (
                f"roofline of the {system} data sheet at {self.roofline.math_efficiency:.0%} of "
                f"peak math and {self.roofline.memory_efficiency:.0%} of memory bandwidth"
                f"{' ' * bool(reason)}{reason}"
            )
        return _WORDS[family].format(what)


_WORDS = {
    "fixed": "as written on the ops",
    "profile": "measured, profile {}",
    "table": "measured alone on the GPU, {}",
    "measured": "measured,{}",
    "fit": "FITTED, {}",
    "wire": "NOT MEASURED, {}",
}
_RANKS = [*_WORDS, "roofline"]


def _family(source: str) -> str:
    return source.partition(":")[0]


def _because(reason: str, kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
    """The kernels, saying why a better source did not have them."""

    def told(origin: str) -> str:
        head, comma, detail = origin.partition(", ")
        return f"{head} ({reason}){comma}{detail}"

    return tuple(kernel._replace(origin=told(kernel.origin)) for kernel in kernels)


def _warnings(workload: Workload) -> list[str]:
    """What is wrong with the workload or the tables, whatever the durations."""
    deployment, notes = workload.deployment, []
    system = load_system(deployment.system)
    notes.append(f"routing: {workload.routing}, no limit on nodes; TP is 1; no tokens are padded")
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
    return notes
