"""Cost models: how long each kernel of an op takes alone on the GPU, and how many SMs it wants."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from dbo_sched.plan import Op, Plan, Program


class Kernel(NamedTuple):
    """One launch of an op.

    ``ns`` is its duration alone on all SMs. A ``gang`` holds ``sms`` SMs, all or none, for its
    whole life; any other kernel is ``tiles`` CTAs, at most ``sms`` of them at once (0: no cap).
    With neither it holds no SMs. ``meets``: it goes on only once every rank runs it. ``bytes`` go
    through memory in its life, alone evenly over ``ns``. ``origin`` says where the duration came
    from.
    """

    phase: str
    ns: int
    origin: str
    gang: bool = False
    sms: int = 0
    tiles: int = 0
    meets: bool = False
    bytes: int = 0


class Costs(Protocol):
    """A cost model."""

    name: str

    def kernels(self, program: Program, plan: Plan, op: Op) -> tuple[Kernel, ...]:
        """The kernels of ``op`` in launch order; a collective's are layout, notify and data.

        Raises:
            InputError: the model has no duration for this op.
        """

    def notes(self, program: Program) -> tuple[str, ...]:
        """What a reader must know of these durations."""
