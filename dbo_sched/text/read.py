"""Programs from text, with errors that name the line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from dbo_sched.errors import InputError
from dbo_sched.models import Gqa, Mla, Model
from dbo_sched.plan import Buffer, Communicator, Op, Plan, Program, Stream
from dbo_sched.routing import Routing
from dbo_sched.structs import RankCount
from dbo_sched.text.words import OPERANDS, VERBS, option
from dbo_sched.validate import check, check_version
from dbo_sched.workload import Deployment, Slice

_COMMAND = re.compile(r"u(\d{1,6})")

T = TypeVar("T", bound=msgspec.Struct)


def from_text(text: str | Iterable[str], where: str = "program") -> Program:
    """Parse and check the text form, given whole or line by line.

    Raises:
        InputError: naming the line and the word, or the id that is unknown or given twice.
    """
    reader = _Reader(where)
    for number, line in enumerate(text.splitlines() if isinstance(text, str) else text, start=1):
        words = line.split("#", 1)[0].split()
        if words:
            reader.read(number, words)
    return reader.program()


class _Reader:
    """Collects lines; ``program`` puts them together."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.line = 0
        self.head: dict[str, Any] | None = None
        self.options: dict[str, str | int | float | bool] = {}
        self.workload: dict[str, Any] = {}
        self.streams: list[Stream] = []
        self.comms: list[Communicator] = []
        self.plans: list[dict[str, Any]] = []
        self.lines: dict[tuple[int, str], int] = {}

    def read(self, number: int, words: list[str]) -> None:
        self.line = number
        word, rest = words[0], words[1:]
        if self.head is None and word != "program":
            raise self.error(f"begins with '{word[:40]}'", "begin with a line like: program v1")
        if word in ("option", "batch") and not rest:
            raise self.error(f"the {word} line is empty", f"write: {word} name=value")
        match word:
            case "program":
                self.read_head(rest)
            case "option":
                options = self.fields((), rest, read=lambda _, value: option(value))
                self.once(self.options, options)
            case "model":
                self.once(self.workload, {"model": self.model(rest)})
            case "deployment":
                self.once(self.workload, {"deployment": self.struct(Deployment, rest)})
            case "routing":
                self.once(self.workload, {"routing": self.struct(Routing, rest)})
            case "batch":
                self.batch(rest)
            case "stream":
                self.streams.append(self.named(Stream, rest, 0))
            case "comm":
                self.comms.append(self.named(Communicator, rest, 0))
            case "plan":
                fields = self.fields(("ranks", "captured"), rest, read=_read_ranked)
                self.new_plan(fields.get("ranks"), captured=fields.get("captured", False))
            case "ubatch":
                self.plan()["ubatches"].append(self.struct(Slice, rest))
            case "buffer":
                self.plan()["buffers"].append(self.named(Buffer, rest))
            case "op":
                self.plan()["ops"].append(self.named(Op, rest))
            case _:
                self.read_command(word, rest)

    def error(self, what: str, mend: str) -> InputError:
        return InputError(what, where=f"{self.where}, line {self.line}", mend=mend)

    def once(self, kept: dict[str, Any], given: dict[str, Any]) -> None:
        """Keep what is given, and refuse what was given before."""
        for key, value in given.items():
            if key in kept:
                raise self.error(f"'{key}' is given a second time", "delete one")
            kept[key] = value

    def read_head(self, rest: list[str]) -> None:
        if self.head is not None:
            raise self.error("a second program line", "keep one program a file")
        if not rest or not re.fullmatch(r"v\d{1,9}", rest[0]):
            raise self.error("no format version", "begin with: program v1")
        check_version(int(rest[0][1:]), f"{self.where}, line {self.line}")
        self.head = self.fields(("schedule", "ranks"), rest[1:])

    def model(self, words: list[str]) -> Model:
        """One line holds the model's shapes and, flat among them, those of its attention."""
        inner = {*Mla.__struct_fields__, *Gqa.__struct_fields__}
        fields = self.fields((*Model.__struct_fields__, *inner), words)
        if "attention" not in fields:
            raise self.error("the model line has no attention", "add attention=mla or =gqa")
        shape = {key: fields.pop(key) for key in inner if key in fields}
        fields["attention"] = {"kind": fields["attention"], **shape}
        return self.convert(fields, Model)

    def batch(self, words: list[str]) -> None:
        """The batch of all ranks, or of some."""
        fields = self.fields(("sequences", "ranks"), words, read=_read_ranked)
        if "sequences" not in fields:
            raise self.error("the batch line has no sequences", _HINTS["sequences"])
        batches: dict[int | None, Any] = self.workload.setdefault("batches", {})
        for rank in fields.get("ranks", [None]):
            if rank in batches or ((None in batches) != (rank is None) and batches):
                raise self.error("a rank is given two batches", "name each rank once, or none")
            batches[rank] = fields["sequences"]

    def read_command(self, word: str, rest: list[str]) -> None:
        turn = _COMMAND.fullmatch(word)
        if turn is None:
            raise self.error(
                f"'{word[:40]}' begins no known line",
                "begin with program, option, model, deployment, routing, batch, stream, comm, "
                "plan, ubatch, buffer, op, or a command such as 'u0 launch OP STREAM'",
            )
        verb = rest[0] if rest else ""
        if verb not in VERBS:
            raise self.error(f"'{verb[:40]}' is no command", f"use one of {', '.join(VERBS)}")
        operands = OPERANDS[verb]
        if len(rest) - 1 != len(operands) and not (verb == "launch" and len(rest) == 2):
            wanted = " ".join([word, verb, *(name.upper() for name in operands)])
            raise self.error(f"{verb} has {len(rest) - 1} operands", f"write: {wanted}")
        commands = self.plan()["commands"]
        self.lines[len(self.plans) - 1, f"command {len(commands)}"] = self.line
        values = dict(zip(operands, rest[1:], strict=False))
        commands.append(VERBS[verb](turn=int(turn[1]), **values))

    def plan(self) -> dict[str, Any]:
        if not self.plans:
            self.new_plan(None, captured=False)
        return self.plans[-1]

    def new_plan(self, ranks: Any, *, captured: bool) -> None:
        parts = ("ubatches", "buffers", "ops", "commands")
        self.plans.append({"ranks": ranks, "captured": captured, **{part: [] for part in parts}})

    def named(self, kind: type[T], rest: list[str], plan: int | None = None) -> T:
        noun = "comm" if kind is Communicator else kind.__name__.lower()
        if not rest or "=" in rest[0]:
            raise self.error(f"the {noun} has no name", f"write: {noun} NAME key=value ...")
        number = max(len(self.plans) - 1, 0) if plan is None else plan
        self.lines.setdefault((number, f"{noun} '{rest[0]}'"), self.line)
        return self.struct(kind, rest[1:], id=rest[0])

    def struct(self, kind: type[T], words: list[str], **more: str) -> T:
        return self.convert(self.fields(kind.__struct_fields__, words) | more, kind)

    def convert(self, fields: dict[str, Any], kind: type[T]) -> T:
        try:
            return msgspec.convert(fields, kind, strict=False)
        except msgspec.ValidationError as error:
            raise self.error(str(error), "mend that value") from None

    def fields(
        self, known: Iterable[str], words: list[str], read: Callable[[str, str], Any] | None = None
    ) -> dict[str, Any]:
        """``key=value`` words and flags as a dict; keys in ``known``, any where it is empty."""
        known = set(known)
        fields: dict[str, Any] = {}
        for word in words:
            name, equals, value = word.partition("=")
            key = name.replace("-", "_") if known else name
            if known and (key not in known or key == "id"):
                names = ", ".join(sorted(n.replace("_", "-") for n in known - {"id"}))
                raise self.error(f"field '{name[:40]}' is not known", f"use one of: {names}")
            if key in fields:
                raise self.error(f"field '{name}' is given twice", "delete one")
            flag = bool(known) and key in _FLAGS
            if equals and flag:
                raise self.error(f"flag '{name}' is given a value", f"write just: {name}")
            if not equals and not flag:
                raise self.error(f"field '{name[:40]}' has no value", f"write: {name[:40]}=VALUE")
            try:
                fields[key] = (read or _read)(key, value) if equals else True
            except ValueError:
                hint = _HINTS.get(key, "mend the value") if known else _OPTION_HINT
                raise self.error(f"field '{name}' has value '{value[:60]}'", hint) from None
        return fields

    def program(self) -> Program:
        if self.head is None:
            raise InputError("empty", where=self.where, mend="begin with a line like: program v1")
        workload = {"model": "model", "deployment": "deployment", "batches": "batch"}
        missing = [line for field, line in workload.items() if field not in self.workload]
        if self.workload and missing:
            raise InputError(
                f"the workload has no {' and no '.join(missing)} line",
                where=self.where,
                mend="give model, deployment and batch lines, or none of them",
            )
        if self.workload:
            self.workload["batches"] = self.batches_in_order(self.workload["batches"])
        head = {"ranks": 1, **self.head, "options": self.options}
        self.line = 1
        program = self.struct_of_program(head)
        check(program, self.where, self.lines)
        return program

    def batches_in_order(self, batches: dict[int | None, Any]) -> list[Any]:
        ranks = [rank for rank in batches if rank is not None]
        missing = sorted(set(range(len(ranks))) - set(ranks))
        if missing:
            raise InputError(
                f"no batch line names rank {missing[0]}",
                where=self.where,
                mend="give each rank from 0 up a batch, or one batch line without ranks",
            )
        return [batches[rank] for rank in sorted(ranks)] or [batches[None]]

    def struct_of_program(self, head: dict[str, Any]) -> Program:
        try:
            ranks = msgspec.convert(head["ranks"], RankCount, strict=False)
            everyone = tuple(range(ranks))
            plans = [
                {**plan, "ranks": everyone if plan["ranks"] is None else plan["ranks"]}
                for plan in self.plans or [{"ranks": None}]
            ]
            return msgspec.convert(
                {
                    **head,
                    "workload": self.workload or None,
                    "more_streams": tuple(self.streams),
                    "comms": tuple(self.comms),
                    "plans": [msgspec.convert(plan, Plan, strict=False) for plan in plans],
                },
                Program,
                strict=False,
            )
        except msgspec.ValidationError as error:
            raise self.error(str(error), "mend that value") from None


_OPTION_HINT = r'write a number, true, false, a word, or JSON without blanks, as in "a\u0020b"'

_FLAGS = ("blocks_host", "captured")

_HINTS = {
    "sequences": "write new+context for each sequence, as in 4096+0,2048+1024",
    "ns": "write phase:nanoseconds, as in layout:300,notify:1000,data:6000",
    "follows": "write producer/tiles/threshold, as in L0.u0.experts/64/8",
    "ranks": "write ranks as in 0-3,7",
    "arrivals": "write rows/pairs of each local expert, as in 29765/4096,4100,4090,4098",
    "weights": "write one number for each expert, separated by commas",
}


def _read(key: str, value: str) -> Any:
    """The value of a word, shaped for its field; msgspec turns digits into integers."""
    if key == "sequences":
        pairs = [pair.split("+") for pair in value.split(",") if value]
        return [(int(new), int(context)) for new, context in pairs]
    if key == "ns":
        phases = [entry.split(":") for entry in value.split(",")]
        return [(phase, int(time)) for phase, time in phases]
    if key == "follows":
        producer, tiles, threshold = value.split("/")
        return {"producer": producer, "tiles": int(tiles), "threshold": int(threshold)}
    if key == "arrivals":
        rows, counts = value.split("/")
        return {"rows": int(rows), "pairs": [int(count) for count in counts.split(",")]}
    if key == "weights":
        return [float(weight) for weight in value.split(",")]
    if key in ("reads", "writes"):
        return value.split(",")
    return value


def _read_ranked(key: str, value: str) -> Any:
    """Where ``ranks`` names some, not how many there are."""
    return _ranks(value) if key == "ranks" else _read(key, value)


def _ranks(value: str) -> list[int]:
    ranks: list[int] = []
    for run in value.split(","):
        first, _, last = run.partition("-")
        span = range(int(first), int(last or first) + 1)
        if not span or len(span) > 1_000_000:
            raise ValueError
        ranks.extend(span)
    return ranks
