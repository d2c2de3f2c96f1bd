"""dbo-sched: stream/event schedules for dual batch overlap, written once, predicted and run.

A *schedule* is a generator over one ubatch; the weaver makes a *program* of it, plain data; a
*backend* predicts or measures its *timeline*; :func:`rank_schedules` compares several.
"""

from dbo_sched.build import build_program
from dbo_sched.errors import DboSchedError, DeadlockError, InputError, ScheduleError, TimeLimitError
from dbo_sched.models import Model, load_model
from dbo_sched.plan import Program
from dbo_sched.ranking import rank_schedules
from dbo_sched.registry import schedule
from dbo_sched.routing import Routing
from dbo_sched.weave import Steps, UBatch
from dbo_sched.workload import Deployment, Workload, prompts

__all__ = [
    "DboSchedError",
    "DeadlockError",
    "Deployment",
    "InputError",
    "Model",
    "Program",
    "Routing",
    "ScheduleError",
    "Steps",
    "TimeLimitError",
    "UBatch",
    "Workload",
    "build_program",
    "load_model",
    "prompts",
    "rank_schedules",
    "schedule",
]
