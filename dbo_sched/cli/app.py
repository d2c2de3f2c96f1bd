"""The application, and how errors become one line and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

from cyclopts import App, CycloptsError
from rich.console import Console

from dbo_sched.cli.compare import compare
from dbo_sched.cli.output import warn
from dbo_sched.cli.plan import plan
from dbo_sched.cli.schedules import schedules
from dbo_sched.cli.show import show
from dbo_sched.cli.simulate import simulate
from dbo_sched.errors import DboSchedError

app = App(
    name="dbo-sched",
    help=(
        "Schedules for dual batch overlap (DBO) in MoE serving: write one, get its stream/event "
        "plan, predict its timeline.\n\nExit codes: 0 fine; 1 a finding, such as a deadlock; "
        "2 bad input; 3 a run failed; 130 interrupted."
    ),
    version=lambda: version("dbo-sched"),
    help_format="plaintext",
)
for command in (compare, plan, simulate, show, schedules):
    app.command(command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    if sys.stdout is None:
        return _fail("standard output is closed; open it, or send it to a file", 2)
    try:
        app(
            arguments,
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
            console=Console(highlight=False),
        )
        sys.stdout.flush()
    except CycloptsError as error:
        return _fail(f"{error}; see dbo-sched --help", 2)
    except DboSchedError as error:
        return _fail(str(error), error.exit_code)
    except BrokenPipeError:
        _discard_output()
        return 0
    except OSError as error:
        _discard_output()
        return _fail(f"standard output: {error.strerror}; send it elsewhere", 2)
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    return 0


def _fail(message: str, code: int) -> int:
    warn(" ".join(message.split()))
    return code


def _discard_output() -> None:
    """Nobody reads on: keep Python from failing once more when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
