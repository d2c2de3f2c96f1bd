"""The schedules that ship with dbo-sched, one file each; importing this registers them all."""

from dbo_sched.schedules import (
    dbo_ht,
    dbo_ht_late_event,
    dbo_ht_original,
    early_dispatch,
    sequential,
    shared_overlap,
)

__all__ = [
    "dbo_ht",
    "dbo_ht_late_event",
    "dbo_ht_original",
    "early_dispatch",
    "sequential",
    "shared_overlap",
]
