"""Reading programs and timelines, writing results: whole or not at all."""

from __future__ import annotations

import os
import tempfile
from itertools import chain
from pathlib import Path

from dbo_sched import json_form, text, timeline
from dbo_sched.errors import InputError
from dbo_sched.plan import Program
from dbo_sched.timeline import Timeline

HEAD_BYTES = 4096


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
            head = file.read(HEAD_BYTES)
            if head.lstrip().startswith(b"{"):
                data = head + file.read()
                if b'"header"' in head and b'"backend"' in head:
                    return timeline.from_json(data, str(path))
                return json_form.from_json(data, str(path))
        if b"\0" in head:
            raise InputError("binary data", where=str(path), mend="give a program as text or JSON")
        with path.open(encoding="utf-8") as lines:
            first = lines.readline(HEAD_BYTES)
            return text.from_text(chain([first], lines), str(path))
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror}", where=str(path), mend="give the path of a file"
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"not UTF-8 text: {error.reason} at byte {error.start}",
            where=str(path),
            mend="give a program as text or JSON",
        ) from None


def write(path: Path, data: bytes) -> None:
    """Write a file so that it is there whole or not at all; folders are made.

    Raises:
        InputError: the place cannot be written to.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}", where=str(path), mend="choose another place"
        ) from None
