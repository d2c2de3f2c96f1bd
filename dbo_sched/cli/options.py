"""Flags that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter, Token

from dbo_sched.backend import Backend, load_backend
from dbo_sched.build import build_program
from dbo_sched.cli.output import command_line
from dbo_sched.errors import InputError
from dbo_sched.files import read_program
from dbo_sched.models import load_model
from dbo_sched.plan import Program
from dbo_sched.systems import load_system
from dbo_sched.text import to_text
from dbo_sched.workload import Deployment, Workload, check_workload, prompts


def _whole(kind: type, tokens: Sequence[Token]) -> int:
    """A whole number as digits only; the parser would round 1.5."""
    return int(tokens[0].value)


Whole = Annotated[int, Parameter(converter=_whole)]

WORKLOAD = Group("Workload", sort_key=1)
PREDICTION = Group("Prediction", sort_key=2)


MOST_TOKENS = 10_000_000


@Parameter(name="*", group=WORKLOAD)
@dataclass(frozen=True, kw_only=True)
class WorkloadFlags:
    """What is served, on what."""

    model: str = "deepseek-v3"
    "A preset (deepseek-v3), or the path of a Hugging Face config.json."

    system: str = "h100"
    "The GPU: h100 or h200."

    nodes: Whole = 4
    "Nodes; every GPU of a node is one rank."

    ep: Whole | None = None
    "Expert-parallel ranks; by default all GPUs of the nodes."

    tokens: Whole = 8192
    "New tokens per rank and step (prefill)."

    seq_len: Whole = 4096
    "Length of the prompts that these tokens come in; the rest is one shorter prompt."

    comm_sms: Whole = 20
    "SMs that DeepEP is given per call, even."

    dtype: Literal["fp8", "bf16"] = "fp8"
    "Data type of matrix products and of dispatch; the dispatch tables hold fp8 only."

    layers: Whole | None = None
    "Only the model's first N layers; by default all."

    def workload(self) -> Workload:
        """The workload that the flags describe.

        Raises:
            InputError: an unknown name, or numbers that do not fit each other.
        """
        for flag, value in vars(self).items():
            if isinstance(value, int) and value < 1:
                raise InputError(
                    f"{value} is not possible",
                    where=f"--{flag.replace('_', '-')}",
                    mend="give 1 or more",
                )
        if self.tokens > MOST_TOKENS:
            raise InputError(
                f"{self.tokens} tokens per rank are not possible",
                where="--tokens",
                mend=f"give at most {MOST_TOKENS}",
            )
        model = load_model(self.model)
        system = load_system(self.system)
        if self.layers is not None:
            if self.layers > model.num_hidden_layers:
                raise InputError(
                    f"{model.name} has {model.num_hidden_layers} layers, not {self.layers}",
                    where="--layers",
                    mend=f"give 1 to {model.num_hidden_layers}",
                )
            model = model.with_layers(self.layers)
        ep = self.nodes * system.gpus_per_node if self.ep is None else self.ep
        workload = Workload(
            model=model,
            deployment=Deployment(
                system=self.system,
                nodes=self.nodes,
                ep=ep,
                comm_sms=self.comm_sms,
                dtype=self.dtype,
            ),
            sequences=prompts(self.tokens, self.seq_len),
        )
        check_workload(workload)
        return workload


@Parameter(name="*", group=PREDICTION)
@dataclass(frozen=True, kw_only=True)
class SimFlags:
    """How the SimPy model predicts."""

    host: Literal["single", "threads", "free"] = "single"
    "Host: one thread, one thread per ubatch with hand-over cost, or free of cost."

    contention: Literal["waves", "none"] = "waves"
    "How kernels share SMs: in whole waves of CTAs, or not at all."

    latencies: bool = True
    "GPU latencies between kernels, across streams and after a launch."

    connections: Whole = 8
    "Hardware queues (CUDA_DEVICE_MAX_CONNECTIONS)."

    sms: Whole | None = None
    "SMs of the GPU; by default those of the system, 132 without one."

    math_efficiency: float | None = None
    "Part of the peak matrix rate that the roofline assumes; by default 0.6."

    memory_efficiency: float | None = None
    "Part of the peak memory bandwidth that the roofline assumes; by default 0.8."

    def backend(self, **more: object) -> Backend:
        """The SimPy backend as the flags want it."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        return load_backend("sim", **given, **more)


def program_from(
    file: Path | None,
    schedule: str | None,
    workload: WorkloadFlags,
    ubatches: int | None,
    settings: list[str],
) -> Program:
    """The program in ``file``, or the one that ``schedule`` makes of the workload flags.

    Raises:
        InputError: both or neither given, or whatever is wrong with either.
    """
    if schedule is not None and file is None:
        options = read_settings(settings)
        return build_program(workload.workload(), schedule, ubatches=ubatches, options=options)
    if file is None or schedule is not None:
        raise InputError(
            "give one program: a file, or a schedule",
            where="command line",
            mend="write a path, or --schedule NAME (dbo-sched schedules lists them)",
        )
    flags = [
        name for name, value in vars(workload).items() if value != getattr(WorkloadFlags, name)
    ]
    flags += ["ubatches"] * (ubatches is not None) + ["set"] * bool(settings)
    if flags:
        given = ", ".join(f"--{name.replace('_', '-')}" for name in flags)
        raise InputError(
            f"{given} has no effect on a program from a file",
            where="command line",
            mend="leave it out, or give --schedule NAME instead of the file",
        )
    return read_program(file)


def read_settings(settings: list[str]) -> dict[str, str]:
    """``name=value`` pairs.

    Raises:
        InputError: a pair without ``=``, or a name given twice.
    """
    options: dict[str, str] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name or name in options:
            raise InputError(
                f"'{setting}' is not name=value, or given twice",
                where="--set",
                mend="write --set name=value, once for each option",
            )
        options[name] = value
    return options


Ubatches = Annotated[Whole | None, Parameter(group=WORKLOAD)]
Settings = Annotated[
    list[str] | None,
    Parameter(name="--set", group=WORKLOAD, negative=(), consume_multiple=False),
]


def program_text(program: Program) -> bytes:
    """The text form as a file, saying first what made it."""
    made = f"# dbo-sched {version('dbo-sched')}, program {program.hash}: {command_line()}\n"
    return (made + to_text(program)).encode()
