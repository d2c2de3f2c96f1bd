"""Places ``Alloc`` and ``Free``: who owns which memory until when, proved from the plan's order.

A buffer is taken just before the first launch that uses it, from the pool of the stream that
uses it first. It goes back once the host has launched its last use *and* the pool's stream is
ordered behind all of them, by its own FIFO or by a wait: only then may the next op on that stream
be given the same block without a race. What is not ordered by the end of the step is joined there.
The step's results, written and read by no op, stay with the caller.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from dbo_sched.plan import Alloc, AnyCommand, Buffer, Free, Launch, Op, Record, Wait

Knowledge = dict[str, int]
"""How many launches of each stream are known to be done."""


class Order:
    """Which launches each stream is ordered behind, followed command by command."""

    def __init__(self) -> None:
        self.launched: Knowledge = defaultdict(int)
        self.known: dict[str, Knowledge] = defaultdict(dict)
        self.events: dict[str, Knowledge] = {}

    def follow(self, command: AnyCommand) -> None:
        """Take the next command in host order into account."""
        if isinstance(command, Launch):
            self.launched[command.stream] += 1
        elif isinstance(command, Record):
            stream = command.stream
            self.events[command.event] = {
                **self.known[stream],
                stream: self.launched[stream],
            }
        elif isinstance(command, Wait):
            known = self.known[command.stream]
            for stream, count in self.events.get(command.event, {}).items():
                known[stream] = max(known.get(stream, 0), count)

    def behind(self, stream: str, uses: Knowledge) -> bool:
        """Whether whatever comes next on ``stream`` runs after all of ``uses``."""
        known = self.known[stream]
        return all(user == stream or known.get(user, 0) >= n for user, n in uses.items())


def place_memory(
    commands: Iterable[AnyCommand], ops: dict[str, Op], buffers: dict[str, Buffer]
) -> tuple[tuple[AnyCommand, ...], tuple[Buffer, ...]]:
    """The commands with ``Alloc`` and ``Free`` among them, and the buffers with their pools."""
    commands = tuple(commands)
    left: dict[str, int] = defaultdict(int)
    read: set[str] = set()
    for command in commands:
        if isinstance(command, Launch):
            read.update(ops[command.op].reads)
            for name in _used(ops[command.op]):
                left[name] += 1

    order = Order()
    pools: dict[str, str] = {}
    uses: dict[str, Knowledge] = defaultdict(dict)
    pending: list[str] = []
    placed: list[AnyCommand] = []
    turn = 0
    for command in commands:
        turn = command.turn
        if isinstance(command, Launch):
            for name in _used(ops[command.op]):
                if name not in pools:
                    pools[name] = command.stream
                    placed.append(Alloc(turn=turn, buffer=name))
        placed.append(command)
        order.follow(command)
        if isinstance(command, Launch):
            for name in _used(ops[command.op]):
                uses[name][command.stream] = order.launched[command.stream]
                left[name] -= 1
                if not left[name] and name in read:
                    pending.append(name)
        if isinstance(command, Launch | Wait):
            free = [name for name in pending if order.behind(pools[name], uses[name])]
            placed.extend(Free(turn=turn, buffer=name) for name in free)
            pending = [name for name in pending if name not in free]

    placed.extend(_join(order, pools, uses, pending, turn))
    placed.extend(Free(turn=turn, buffer=name) for name in pending)
    owned = (msgspec.structs.replace(buffers[name], pool=pool) for name, pool in pools.items())
    return tuple(placed), tuple(owned)


def _used(op: Op) -> dict[str, None]:
    """The op's buffers, once each, in order."""
    return dict.fromkeys((*op.reads, *op.writes))


def _join(
    order: Order, pools: dict[str, str], uses: dict[str, Knowledge], pending: list[str], turn: int
) -> Iterable[AnyCommand]:
    """Order every pool's stream behind the last uses that it does not know of yet."""
    recorded: set[str] = set()
    for name in pending:
        for user in uses[name]:
            if order.behind(pools[name], {user: uses[name][user]}):
                continue
            event = f"step.{user}"
            commands: list[AnyCommand] = [Wait(turn=turn, event=event, stream=pools[name])]
            if user not in recorded:
                recorded.add(user)
                commands.insert(0, Record(turn=turn, event=event, stream=user))
            for command in commands:
                order.follow(command)
                yield command
