"""Flags that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter, Token

from dbo_sched.backend import Predictor, load_predictor
from dbo_sched.build import build_program
from dbo_sched.cli.output import command_line
from dbo_sched.cli.values import (
    counts,
    factors,
    read_batches,
    read_routing,
)
from dbo_sched.errors import InputError
from dbo_sched.files import read_program
from dbo_sched.models import load_model
from dbo_sched.plan import Program
from dbo_sched.systems import load_system
from dbo_sched.text import to_text
from dbo_sched.workload import Deployment, Sequences, Workload, check_workload, prompts


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
    "A preset (deepseek-v3, kimi-k2, qwen3-30b-a3b, glm-4.5, ...) or a Hugging Face config.json."

    system: str = "h100"
    "The GPU: h100, h200, b200, b300, gb200 or gb300."

    nodes: Whole = 4
    "Nodes; every GPU of a node is one rank."

    ep: Whole | None = None
    "Expert-parallel ranks; by default all GPUs of the nodes. Tensor parallelism is 1."

    tokens: Whole = 8192
    "New tokens per rank and step."

    seq_len: Whole = 4096
    "New tokens of each sequence (1 for a decode); the rest comes in one shorter sequence."

    context: Whole = 0
    "Tokens of each sequence that were computed before: a cached prefix, or a decode's past."

    batch: Path | None = None
    "The batch from a JSON file instead: [[new, context], ...], or a list of those, one per rank."

    balance_attention: Annotated[bool, Parameter(negative=())] = False
    "Cut each rank's batch where the ubatches have equal attention work, not equal tokens."

    dtype: Literal["fp8", "bf16"] = "fp8"
    "Data type of weights and matrix products."

    dispatch_dtype: Literal["fp8", "bf16"] | None = None
    "Data type of tokens in dispatch; by default that of --dtype. Combine is always bf16."

    routing: str = "balanced"
    "balanced, zipf:S (skewed, exponent S), or a JSON file with the load of each expert."

    seed: Whole | None = None
    "Seed of skewed routing; by default 0."

    comm_sms: str = "20"
    "SMs that DeepEP is given per call, even; compare takes several: 8,16,24 or 4,8,...,24."

    layers: Whole | None = None
    "Only the model's first N layers; by default all."

    def workload(self) -> Workload:
        """The workload that the flags describe.

        Raises:
            InputError: an unknown name, numbers that do not fit each other, a file that does not
                hold what it should, or several numbers of SMs.
        """
        found = self.workloads()
        if len(found) > 1:
            raise InputError(
                f"{len(found)} numbers of SMs",
                where="--comm-sms",
                mend="give one (compare takes more)",
            )
        return found[0]

    def workloads(self) -> list[Workload]:
        """One workload for each number of communication SMs."""
        self._check_numbers()
        model, system = load_model(self.model), load_system(self.system)
        if self.layers is not None:
            if self.layers > model.num_hidden_layers:
                raise InputError(
                    f"{model.name} has {model.num_hidden_layers} layers, not {self.layers}",
                    where="--layers",
                    mend=f"give 1 to {model.num_hidden_layers}",
                )
            model = model.with_layers(self.layers)
        batches: tuple[Sequences, ...] = (prompts(self.tokens, self.seq_len, self.context),)
        if self.batch is not None:
            batches = read_batches(self.batch)
        found = [
            Workload(
                model=model,
                deployment=Deployment(
                    system=self.system,
                    nodes=self.nodes,
                    ep=self.nodes * system.gpus_per_node if self.ep is None else self.ep,
                    comm_sms=sms,
                    dtype=self.dtype,
                    dispatch_dtype=self.dispatch_dtype or self.dtype,
                ),
                batches=batches,
                routing=read_routing(self.routing, self.seed),
            )
            for sms in counts(self.comm_sms, "--comm-sms")
        ]
        for workload in found:
            check_workload(workload)
        return found

    def _check_numbers(self) -> None:
        for flag, value in vars(self).items():
            least = 0 if flag in ("context", "seed") else 1
            if isinstance(value, int) and not isinstance(value, bool) and value < least:
                raise InputError(
                    f"{value} is not possible",
                    where=f"--{flag.replace('_', '-')}",
                    mend=f"give {least} or more",
                )
        for flag, value in (("tokens", self.tokens), ("context", self.context)):
            if value > MOST_TOKENS:
                raise InputError(
                    f"{value} tokens per {'rank' if flag == 'tokens' else 'sequence'} are not "
                    "possible",
                    where=f"--{flag}",
                    mend=f"give at most {MOST_TOKENS}",
                )
        given = [
            flag
            for flag in ("tokens", "seq_len", "context")
            if getattr(self, flag) != getattr(WorkloadFlags, flag)
        ]
        if self.batch is not None and given:
            raise InputError(
                f"--{given[0].replace('_', '-')} has no effect on a batch from a file",
                where="--batch",
                mend="leave one of the two out",
            )


@Parameter(name="*", group=PREDICTION)
@dataclass(frozen=True, kw_only=True)
class SimFlags:
    """How the SimPy model predicts."""

    costs: str = "auto"
    (
        "Durations: auto (DeepEP tables, fits to them, roofline), silicon (compute tables too), "
        "roofline (data sheet only), profile:FILE, or fixed (what is written on the ops)."
    )

    scale: str | None = None
    "Times of op kinds, or of the host, times a factor: dispatch=0.5,host=0."

    host: Literal["single", "threads", "free"] = "single"
    "Host: one thread, one thread per ubatch with hand-over cost, or free of cost."

    contention: Literal["waves", "none"] = "waves"
    "How kernels share SMs: in whole waves of CTAs, or not at all."

    latencies: bool = True
    "GPU latencies between kernels, across streams and after a launch."

    connections: Whole = 8
    "Hardware queues (CUDA_DEVICE_MAX_CONNECTIONS)."

    memory_sharing: bool = True
    "Kernels that run at once share the memory bandwidth, max-min fair."

    ranks_per_gpu: Whole = 1
    "Ranks on one GPU (under MPS), which share its memory and out of which each has its SMs."

    sms: Whole | None = None
    "SMs of a rank; by default its share of those of the system, 132 without one."

    math_efficiency: float | None = None
    "Part of the peak matrix rate that the roofline assumes; by default 0.65."

    memory_efficiency: float | None = None
    "Part of the peak memory bandwidth that kernels reach; by default 0.8."

    def backend(self, **more: object) -> Predictor:
        """The SimPy backend as the flags want it."""
        given = {name: value for name, value in vars(self).items() if value is not None}
        if self.costs == "fixed" and (self.math_efficiency or self.memory_efficiency):
            raise InputError(
                "fixed costs have no roofline", where="--costs", mend="leave the efficiencies out"
            )
        if self.scale is not None:
            given["scale"] = factors(self.scale)
        return load_predictor("sim", **given, **more)


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
        return build_program(
            workload.workload(),
            schedule,
            ubatches=ubatches,
            balance_attention=workload.balance_attention,
            options=read_settings(settings),
        )
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
