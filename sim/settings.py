"""What the model assumes of a host and a GPU, each number with its source."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Literal

from dbo_sched.errors import InputError
from dbo_sched.plan import Program
from dbo_sched.systems import load_system


@dataclass(frozen=True)
class Host:
    """Host costs in nanoseconds.

    ``launch_ns`` per compute kernel and ``comm_launch_ns`` per kernel of a collective, both until
    the kernel lies in its stream; ``resume_ns`` from the arrival of dispatch's counts until its
    data kernel lies in its stream (read the counts, allocate, launch); ``record_ns`` and
    ``wait_ns`` per event call; ``hand_over_ns`` per change of turn, with ``threads`` (one per
    ubatch) only: with a single thread the woven order costs nothing extra.
    """

    launch_ns: int = 0
    comm_launch_ns: int = 0
    resume_ns: int = 0
    record_ns: int = 0
    wait_ns: int = 0
    hand_over_ns: int = 0
    threads: bool = False

    def scaled(self, factor: float) -> Host:
        """The same host with everything taking ``factor`` times as long."""
        times = {name: round(ns * factor) for name, ns in vars(self).items() if name != "threads"}
        return replace(self, **times)

    @property
    def note(self) -> str:
        """The settings in words."""
        if self == Host(threads=self.threads):
            return "host: free of cost"
        threads = "one thread per ubatch" if self.threads else "one thread"
        return (
            f"host: {threads}, {self.launch_ns / 1000:g} us a launch, "
            f"{self.comm_launch_ns / 1000:g} us of a collective's, {self.resume_ns / 1000:g} us to "
            "resume dispatch"
        )


EAGER_HOST = Host(
    launch_ns=15_700,
    comm_launch_ns=47_000,
    resume_ns=60_000,
    record_ns=1_950,
    wait_ns=1_950,
    hand_over_ns=29_000,
)
"""Eager PyTorch. Measured beside one H200 (torch 2.11, DeepEP V1): 15.7 us per small op, 3.9 us per
record and wait, dispatch 53 us (layout) + 40 us (notify), 60 us from the counts to the data launch,
combine 100 us for its two kernels. Hand-over: 29 us per ``threading.Event`` hand-over, median on a
2-core virtual machine, CPython 3.11."""


HOSTS = {
    "single": EAGER_HOST,
    "threads": replace(EAGER_HOST, threads=True),
    "free": Host(),
}
"""Hosts by name: eager PyTorch, from one thread or one per ubatch, and one without costs."""


@dataclass(frozen=True)
class Gpu:
    """One GPU as its streams see it.

    ``connections`` is the number of hardware queues that streams are dealt to in order of
    declaration (``CUDA_DEVICE_MAX_CONNECTIONS``). A kernel starts no earlier than ``stream_ns``
    after its predecessor on the stream, ``event_ns`` after an event of another stream that it waits
    for, ``idle_ns`` after it was launched. ``contention``: ``waves`` holds SMs (sim.waves),
    ``none`` gives every kernel all of them. ``memory_gbps`` is the memory bandwidth in GB/s
    (bytes/ns) that kernels really reach together (sim.bandwidth); without it nobody slows another.
    ``ranks_per_gpu`` neighbours in number share it, as under MPS; each has ``sms`` of its own.
    """

    sms: int = 132
    connections: int = 8
    stream_ns: int = 0
    event_ns: int = 0
    idle_ns: int = 0
    contention: Literal["waves", "none"] = "waves"
    memory_gbps: float | None = None
    ranks_per_gpu: int = 1

    @property
    def note(self) -> str:
        """The settings in words."""
        latencies = (self.stream_ns, self.event_ns, self.idle_ns)
        times = ", ".join(f"{ns / 1000:g} us" for ns in latencies)
        where = ("within a stream", "across streams", "after a launch")
        return (
            f"GPU: {self.sms} SMs, {self.connections} hardware queues, latencies {times} "
            f"({', '.join(where)})"
            + (f", {self.ranks_per_gpu} ranks on each" if self.ranks_per_gpu > 1 else "")
            + (f", {self.memory_gbps:g} GB/s of memory for all kernels" if self.memory_gbps else "")
        )


STREAM_NS, EVENT_NS, IDLE_NS = 2_000, 1_500, 4_000
"""Latencies of a Hopper part: median between kernels of a stream in DeepSeek's published training
trace on H800; across streams, measured on one H200; from launch to start, assumed."""


MEMORY_EFFICIENCY = 0.8
"""Part of the data sheet's memory bandwidth that kernels reach, alone or together."""


def default_gpu(program: Program, memory_efficiency: float = MEMORY_EFFICIENCY) -> Gpu:
    """The GPU of the program's deployment, with the latencies of a Hopper part.

    Without a deployment it has 132 SMs and its memory is not shared.
    """
    gpu = Gpu(stream_ns=STREAM_NS, event_ns=EVENT_NS, idle_ns=IDLE_NS)
    if program.workload is None:
        return gpu
    system = load_system(program.workload.deployment.system)
    return replace(gpu, sms=system.sms, memory_gbps=system.memory_gbps * memory_efficiency)


def check_settings(host: Host, gpu: Gpu, ranks: int) -> None:
    """Refuse numbers that no machine has, and GPUs that ``ranks`` ranks do not fill.

    Raises:
        InputError: a negative time, no SM, no hardware queue, no bandwidth, a GPU part filled.
    """
    if gpu.memory_gbps is not None and not 0 < gpu.memory_gbps < inf:
        raise InputError(
            f"memory_gbps is {gpu.memory_gbps}",
            where="sim settings",
            mend="give GB/s above 0, or nothing for memory that is not shared",
        )
    for thing in (host, gpu):
        for name, value in vars(thing).items():
            least = 1 if name in ("sms", "connections", "ranks_per_gpu") else 0
            if isinstance(value, int) and value < least:
                raise InputError(
                    f"{name} is {value}", where="sim settings", mend=f"give {least} or more"
                )
    if ranks % gpu.ranks_per_gpu:
        raise InputError(
            f"{ranks} ranks do not fill GPUs of {gpu.ranks_per_gpu} ranks each",
            where="sim settings",
            mend="give a ranks_per_gpu that divides the number of ranks",
        )
