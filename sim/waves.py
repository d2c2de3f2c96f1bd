"""CTAs in whole waves: they take SMs one by one as these fall free and keep them for one tile.

Nothing is followed CTA by CTA: what happens between two changes of who runs is in closed form.
Where memory is short (sim.bandwidth) a kernel's CTAs all go at one pace, those that start later
too. It demands its full bandwidth while it has any CTA in flight, however few SMs it holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import simpy
from simpy.events import EventPriority

from sim.bandwidth import FULL_SPEED, Flow, Memory
from sim.gpu import Order, Tenant
from sim.pace import Clock, Countdown


class _Round(simpy.Event):
    """Fires behind everything else that happens at its instant."""

    def __init__(self, env: simpy.Environment, delay: int) -> None:
        super().__init__(env)
        self._ok, self._value = True, None
        env.schedule(self, EventPriority(2), delay)


@dataclass(eq=False)
class _Grid:
    """A compute kernel's CTAs. Times inside are its ``clock``'s, times ``scale``.

    Alone the kernel takes ``kernel.ns`` in ``scale`` waves; a tile takes ``tile`` ticks.
    ``waves`` holds (end in ticks, CTAs) of those in flight, ``left`` the tiles not yet started.
    """

    tenant: Tenant
    cap: int
    scale: int
    tile: int
    left: int
    waves: list[tuple[int, int]] = field(default_factory=list)
    held: int = 0
    clock: Clock = field(default_factory=Clock)
    flow: Flow | None = None

    def __post_init__(self) -> None:
        self.order = self.tenant.order

    @property
    def hungry(self) -> bool:
        """Whether it would take more SMs now."""
        return bool(self.left) and self.held < self.cap

    def start(self, now: int, sms: int) -> None:
        self.left -= sms
        self.held += sms
        self.waves.append((self.clock.read(now) * self.scale + self.tile, sms))
        self.waves.sort()

    def advance(self, now: int, *, keep: bool) -> None:
        """Let CTAs end up to ``now``; where ``keep``, each takes the next tile at once."""
        ticks, waves = self.clock.read(now) * self.scale, self.waves
        if keep and waves and self.left >= self.held and waves[-1][0] <= ticks:
            rounds = min(self.left // self.held, (ticks - waves[-1][0]) // self.tile + 1)
            self.left -= rounds * self.held
            waves[:] = [(end + rounds * self.tile, sms) for end, sms in waves]
        while waves and waves[0][0] <= ticks:
            end, sms = waves.pop(0)
            again = min(sms, self.left) if keep else 0
            if again:
                self.left -= again
                waves.append((end + self.tile, again))
                waves.sort()
            self.held -= sms - again

    def pace(self, now: int) -> None:
        """Go as fast as memory allows from ``now`` on."""
        if self.flow is not None:
            self.clock.pace(now, self.flow.speed)

    def move(self) -> None:
        """Move data while any CTA is in flight, and none otherwise."""
        if self.flow is not None and self.flow.moving != bool(self.held):
            if self.held:
                self.flow.start()
            else:
                self.flow.stop()

    def end_ns(self) -> int:
        """When the last CTA ends if nothing changes; needs CTAs in flight."""
        return self._ns(self._last_ticks())

    def _last_ticks(self) -> int:
        rounds, rest = divmod(self.left, self.held)
        last = self.waves[-1][0] + rounds * self.tile
        for end, sms in self.waves:
            if rest <= 0:
                break
            last = max(last, end + (rounds + 1) * self.tile)
            rest -= sms
        return last

    def first_release_ns(self) -> int:
        """When the first SM falls free if nothing changes; needs CTAs in flight."""
        rounds, rest = divmod(self.left, self.held)
        for end, sms in self.waves:
            rest -= sms
            if rest < 0:
                return self._ns(end + rounds * self.tile)
        return self._ns(self.waves[0][0] + (rounds + 1) * self.tile)

    def next_wave_ns(self) -> int:
        """When the next CTAs end."""
        return self._ns(self.waves[0][0])

    def _ns(self, ticks: int) -> int:
        return self.clock.when(ticks, self.scale)


class Waves:
    """CTAs in whole waves, starting as SMs fall free; communication kernels all or nothing.

    Who is ready first takes the SMs. Those that wait are served by stream priority, then by when
    they were ready, then by their place in the plan; a waiting gang keeps what falls free from
    those behind it. A running kernel's next CTAs wait like everybody else's. All requests of one
    instant are looked at together, in plan order, once nothing else happens at that instant. A
    kernel other than a gang that has no tiles or no duration takes no SMs.
    """

    def __init__(self, env: simpy.Environment, sms: int, memory: Memory) -> None:
        self.env = env
        self.sms = sms
        self.memory = memory
        self.grids: list[_Grid] = []
        self.gangs: list[Tenant] = []
        self.new: list[Tenant] = []
        self.waiting: list[Tenant] = []
        self._round: _Round | None = None
        self._round_at = -1

    def submit(self, tenant: Tenant) -> None:
        """See :class:`SmModel`."""
        kernel = tenant.kernel
        if kernel.gang and kernel.sms:
            self.new.append(tenant)
            self._call_round(int(self.env.now))
        elif kernel.gang:
            self.gangs.append(tenant)
            tenant.begin()
        elif kernel.tiles and kernel.ns:
            self.new.append(tenant)
            self._call_round(int(self.env.now))
        else:
            tenant.begin()
            Countdown(self.env, kernel.ns, [(self.memory, kernel.bytes)], tenant.finish)

    def release(self, tenant: Tenant) -> None:
        """See :class:`SmModel`."""
        self.gangs.remove(tenant)
        if tenant.kernel.sms:
            self._call_round(int(self.env.now))

    def holders(self) -> list[Tenant]:
        """See :class:`SmModel`."""
        running = [grid.tenant for grid in self.grids if grid.held]
        return running + [gang for gang in self.gangs if gang.kernel.sms]

    def clear(self) -> None:
        """See :class:`SmModel`."""
        for kernels in (self.grids, self.gangs, self.new, self.waiting):
            kernels.clear()

    def _call_round(self, at: int) -> None:
        """Look at all requests once more at ``at``; an earlier call for later is dropped."""
        if self._round is not None and self._round_at <= at:
            return
        self._round = _Round(self.env, at - int(self.env.now))
        self._round_at = at
        self._round.callbacks.append(self._look)

    def _look(self, event: simpy.Event) -> None:
        if event is not self._round:
            return
        self._round = None
        now = int(self.env.now)
        asked = self.new or self.waiting or any(grid.hungry for grid in self.grids)
        if self._let_end(now) and asked:
            self._call_round(now)  # successors may ask at this very instant; serve all together
            return
        free = self.sms - sum(grid.held for grid in self.grids)
        free -= sum(gang.kernel.sms for gang in self.gangs)
        free = self._serve_waiting(now, free)
        self._serve_new(now, free)
        for grid in self.grids:
            grid.move()
        self._call_next()

    def _claim(self, grid: _Grid) -> Order | None:
        """Whoever else is first in line for SMs that ``grid``'s CTAs leave."""
        first = None
        for tenant in self.waiting:
            if first is None or tenant.order < first:
                first = tenant.order
        for other in self.grids:
            if other is not grid and other.hungry and (first is None or other.order < first):
                first = other.order
        return first

    def _let_end(self, now: int) -> bool:
        """Let CTAs end up to ``now``; whether any kernel has ended with them."""
        claims = [self._claim(grid) for grid in self.grids]
        for grid, claim in zip(self.grids, claims, strict=True):
            grid.advance(now, keep=claim is None or grid.order < claim)
        done = [grid for grid in self.grids if not grid.held and not grid.left]
        for grid in done:
            self.grids.remove(grid)
            grid.move()
            grid.tenant.finish()
        return bool(done)

    def _serve_waiting(self, now: int, free: int) -> int:
        """Hand out ``free`` SMs in line, up to the first that does not fit; returns the rest."""
        line: list[tuple[Order, _Grid | Tenant]] = []
        line += [(grid.order, grid) for grid in self.grids if grid.hungry]
        line += [(tenant.order, tenant) for tenant in self.waiting]
        for _, waiter in sorted(line, key=lambda place: place[0]):
            if isinstance(waiter, _Grid):
                sms = min(free, waiter.left, waiter.cap - waiter.held)
                if sms > 0:
                    waiter.start(now, sms)
                    free -= sms
            else:
                sms = self._begin(now, waiter, free)
                if not sms:
                    break
                self.waiting.remove(waiter)
                free -= sms
        return free

    def _serve_new(self, now: int, free: int) -> None:
        """Start new kernels in plan order; what is free belongs to the first in line."""
        for tenant in sorted(self.new, key=lambda tenant: tenant.order[2]):
            outranked = any(other.order < tenant.order for other in self.waiting)
            sms = 0 if outranked else self._begin(now, tenant, free)
            if sms:
                free -= sms
            else:
                self.waiting.append(tenant)
        self.new.clear()

    def _begin(self, now: int, tenant: Tenant, free: int) -> int:
        """Start a kernel if it fits; returns the SMs that it took."""
        kernel = tenant.kernel
        if kernel.gang:
            if kernel.sms > free:
                return 0
            self.gangs.append(tenant)
            tenant.begin()
            return kernel.sms
        cap = min(kernel.sms or self.sms, self.sms)
        sms = min(free, kernel.tiles, cap)
        if sms:
            scale = -(-kernel.tiles // (kernel.full_sms or self.sms))
            grid = _Grid(tenant, cap, scale, kernel.ns * FULL_SPEED, kernel.tiles)
            alone_ns = kernel.alone_ns(self.sms)
            grid.flow = self.memory.flow(kernel.bytes, alone_ns, partial(self._pace, grid))
            grid.start(now, sms)
            self.grids.append(grid)
            tenant.begin()
        return sms

    def _pace(self, grid: _Grid) -> None:
        now = int(self.env.now)
        grid.pace(now)
        self._call_round(now)  # what comes next comes sooner or later than it was planned

    def _call_next(self) -> None:
        """Come back when the next thing happens that anybody waits for."""
        times = []
        for grid in self.grids:
            if grid.held:
                claim = self._claim(grid)
                if claim is None:
                    times.append(grid.end_ns())
                elif grid.order < claim:
                    times.append(grid.first_release_ns())
                else:
                    times.append(grid.next_wave_ns())
        if times:
            self._call_round(min(times))
