"""The text form of a program: one thing or command a line, made to be written by hand and diffed.

A file is a ``program`` line, then declarations and commands in any sensible order; ``#`` starts a
comment. Fields at their default are left out, names use ``-`` for ``_``, flags stand alone::

    program v1 schedule=by-hand ranks=2
    comm ep
    op a kind=attention ns=run:1000
    op d kind=dispatch comm=ep sms=20 blocks-host ns=layout:300,notify:1000,data:6000
    u0 launch a compute
    u0 record routed compute
    u0 wait routed a2a
    u0 launch d a2a

A program with several plans has a ``plan`` line before each; with one plan that covers all ranks
the line may be left out.
"""

from dbo_sched.text.read import from_text
from dbo_sched.text.write import command_lines, to_text

__all__ = ["command_lines", "from_text", "to_text"]
