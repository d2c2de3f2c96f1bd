"""The command line ``dbo-sched``: one file per command."""

from dbo_sched.cli.app import main

__all__ = ["main"]
