"""Reading programs and timelines, writing results: whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from dbo_sched import json_form, text, timeline
from dbo_sched.errors import InputError
from dbo_sched.plan import Program
from dbo_sched.timeline import Timeline

HEAD_BYTES = 65_536
"""How much of a file is looked at before the rest is read."""


def read_program(path: Path) -> Program:
    """A program in either form, told apart by its first character.

    Raises:
        InputError: the file cannot be read, or is no program.
    """
    found = read(path)
    if isinstance(found, Timeline):
        raise InputError(
            "a timeline, not a program", where=str(path), mend="give a file that plan wrote"
        )
    return found


def read(path: Path) -> Program | Timeline:
    """A program in either form, or a timeline.

    Raises:
        InputError: the file cannot be read, or is neither.
    """
    try:
        with path.open("rb") as file:
            return _parse(file, str(path))
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror}", where=str(path), mend="give the path of a file"
        ) from None


def _parse(file: BinaryIO, where: str) -> Program | Timeline:
    head = file.read(HEAD_BYTES)
    if head.lstrip().startswith((b"{", b"[")):
        data = head + file.read()
        if b'"header"' in head and b'"backend"' in head:
            return timeline.from_json(data, where)
        return json_form.from_json(data, where)
    lines = (line.split(b"#")[0].strip() for line in head.splitlines())
    first = next((line for line in lines if line), b"")
    if b"\0" in head or (first and not first.lstrip(b"\xef\xbb\xbf").startswith(b"program")):
        raise InputError(
            "neither a program nor a timeline",
            where=where,
            mend="give a text that begins with a line like 'program v1', or JSON",
        )
    try:
        return text.from_text((head + file.read()).decode("utf-8-sig"), where)
    except UnicodeDecodeError as error:
        raise InputError(
            f"not UTF-8 text: {error.reason} at byte {error.start}",
            where=where,
            mend="save it as UTF-8",
        ) from None


def write(path: Path, data: bytes) -> None:
    """Write one file; see :func:`write_all`."""
    write_all({path: data})


def write_all(files: Mapping[Path, bytes]) -> None:
    """Write files so that each is there whole, and none where one of them fails.

    Folders are made and links followed; devices and pipes are written to as they are.

    Raises:
        InputError: a place cannot be written to.
    """
    parts: list[tuple[Path, Path]] = []
    path = Path()
    try:
        for path, data in files.items():
            target = path.resolve()
            if target.exists() and not target.is_file():
                target.write_bytes(data)
                continue
            if target.exists() and not os.access(target, os.W_OK):
                raise PermissionError(13, "it is read-only")
            target.parent.mkdir(parents=True, exist_ok=True)
            part = target.with_name(f".{target.name}.{os.getpid()}.part")
            parts.append((part, target))
            part.write_bytes(data)
        for part, target in parts:
            part.replace(target)
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}", where=str(path), mend="choose another place"
        ) from None
    finally:
        for part, _ in parts:
            part.unlink(missing_ok=True)
