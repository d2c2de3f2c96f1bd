"""Cost models: how long each kernel of an op takes alone on the GPU, and how many SMs it wants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import NamedTuple, Protocol, TypeAlias

from dbo_sched.plan import Op, Plan, Program


class Kernel(NamedTuple):
    """One launch of an op.

    ``ns`` is its duration alone on ``full_sms`` SMs (0: on as many as the GPU has). A ``gang``
    holds ``sms`` SMs, all or none, for its whole life; any other kernel is ``tiles`` CTAs, at most
    ``sms`` of them at once (0: no cap). With neither it holds no SMs. ``meets``: it goes on only
    once every rank runs it. ``bytes`` go through memory in its life, alone evenly over ``ns``.
    ``origin`` says where the duration came from: the source, and behind the first ", " what of it.
    """

    phase: str
    ns: int
    origin: str
    gang: bool = False
    sms: int = 0
    tiles: int = 0
    meets: bool = False
    bytes: int = 0
    full_sms: int = 0

    def alone_ns(self, sms: int) -> int:
        """Its duration alone on ``sms`` SMs, in whole waves of its tiles."""
        if not self.tiles or not self.full_sms:
            return self.ns
        return ceil(self.ns * ceil(self.tiles / sms) / ceil(self.tiles / self.full_sms))

    @property
    def source(self) -> str:
        """Where the duration came from, without the details of this one call."""
        return self.origin.split(", ", 1)[0]


Sources: TypeAlias = Mapping[str, Sequence[str]]
"""For each thing that a program's kernels do (an op kind; ``dispatch notify`` for a collective's
phases) the sources that its durations came from."""


class Costs(Protocol):
    """A cost model."""

    name: str

    def kernels(self, program: Program, plan: Plan, op: Op) -> tuple[Kernel, ...]:
        """The kernels of ``op`` in launch order; a collective's are layout, notify and data.

        Raises:
            InputError: the model has no duration for this op.
        """

    def notes(self, program: Program, sources: Sources) -> tuple[str, ...]:
        """What a reader must know of durations that came from ``sources``."""
