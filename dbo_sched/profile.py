"""A calibrated profile: durations measured on one machine, for the model to predict with.

Whoever measures writes it; ``--costs profile:FILE`` reads it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from dbo_sched.errors import InputError
from dbo_sched.structs import Count, Frozen, Positive

FORMAT_VERSION = 1


class Measured(Frozen, frozen=True, kw_only=True):
    """One kernel alone on the GPU, median over repetitions.

    ``kind`` is the op's, ``phase`` the kernel's name (``layout``, ``notify``, ``data`` of a
    collective). ``tokens`` counts what ``Op.tokens`` does. ``sms``: a collective's budget, else 0.
    ``tiles``: CTAs; 0 where they are not known, and then the kernel holds no SMs in the model.
    ``bytes``: what it moves through memory, 0 where that is not known.
    """

    kind: str
    phase: str
    tokens: Count
    ns: Count
    sms: Count = 0
    tiles: Count = 0
    bytes: Count = 0


class Profile(Frozen, frozen=True, kw_only=True):
    """What was measured, on what, how and when; ``kernels`` of one op in launch order."""

    version: int = FORMAT_VERSION
    gpu: str
    sms: Positive
    model: str
    ranks: Positive
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    command: str = ""
    date: str = ""
    kernels: tuple[Measured, ...] = ()


def to_json(profile: Profile) -> bytes:
    """The file's content."""
    return msgspec.json.format(msgspec.json.encode(profile), indent=1) + b"\n"


def read_profile(path: Path) -> Profile:
    """The profile in a file.

    Raises:
        InputError: it cannot be read, is no profile, or is of another format version.
    """
    mend = "give a profile that a calibration wrote"
    try:
        data = path.read_bytes()
        profile = msgspec.json.decode(data, type=Profile)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path), mend=mend) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"not a profile: {error}", where=str(path), mend=mend) from None
    if profile.version != FORMAT_VERSION:
        raise InputError(
            f"format version {profile.version} is not known",
            where=str(path),
            mend=f"this release reads version {FORMAT_VERSION}; calibrate again",
        )
    return profile
