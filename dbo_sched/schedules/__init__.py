"""The schedules that ship with dbo-sched, one file each; importing this registers them in order."""

from importlib import import_module

SHIPPED = (
    "sequential",
    "shared_overlap",
    "early_dispatch",
    "dbo_ht_original",
    "dbo_ht_late_event",
    "dbo_ht",
)

for _module in SHIPPED:
    import_module(f"{__name__}.{_module}")
