"""Who holds which SMs when: the seam between the streams and the hardware that they share.

An :class:`SmModel` is told of kernels that are ready and says when they start; for compute kernels
also when they end, since that depends on the SMs they get and on how far its ``memory`` slows them.
:class:`NoContention` is one such model, ``sim.waves`` the other.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

import simpy

from sim.bandwidth import Memory
from sim.costs import Kernel
from sim.pace import Countdown

Order: TypeAlias = tuple[bool, int, tuple[int, int]]
"""Place in the line for SMs: (not high priority, ready at, place in the plan); lowest first."""


class Tenant(Protocol):
    """A kernel that is ready to run, as the SM model sees it.

    ``order`` is its place in the line for SMs. The model calls ``begin`` when the kernel starts
    and, unless it is a gang, ``finish`` when it ends.
    """

    kernel: Kernel
    order: Order

    def begin(self) -> None:
        """The first CTA, or the whole gang, has its SMs."""

    def finish(self) -> None:
        """The last CTA has ended."""


class SmModel(Protocol):
    """Shares the SMs of one GPU."""

    def submit(self, tenant: Tenant) -> None:
        """The kernel is at the head of its stream and could start now."""

    def release(self, tenant: Tenant) -> None:
        """A gang has ended: its SMs come back."""

    def holders(self) -> list[Tenant]:
        """Kernels that hold SMs at this moment."""

    def clear(self) -> None:
        """Give up all kernels and take every SM back."""


class NoContention:
    """Every kernel runs as if it had all SMs, so nobody holds an SM that another wants."""

    def __init__(self, env: simpy.Environment, sms: int, memory: Memory) -> None:
        self.env = env
        self.sms, self.memory = sms, memory

    def submit(self, tenant: Tenant) -> None:
        """See :class:`SmModel`."""
        kernel = tenant.kernel
        tenant.begin()
        if not kernel.gang:
            ns = kernel.alone_ns(self.sms)
            Countdown(self.env, ns, [(self.memory, kernel.bytes)], tenant.finish)

    def release(self, tenant: Tenant) -> None:
        """See :class:`SmModel`."""

    def holders(self) -> list[Tenant]:
        """See :class:`SmModel`."""
        return []

    def clear(self) -> None:
        """See :class:`SmModel`."""
