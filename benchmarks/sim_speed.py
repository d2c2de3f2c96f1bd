"""How fast the model is: DeepSeek-V3, all layers, two ubatches, contention on.

    python benchmarks/sim_speed.py [-o benchmarks/results/sim_speed.json]

Prints medians beside the rate of a bare SimPy timeout loop in the same process, since machines and
their moods differ: compare the ratios, not the times.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from importlib.metadata import version
from pathlib import Path

import simpy

from dbo_sched import Deployment, Workload, build_program, load_model, prompts
from sim import SimBackend

ROUNDS = 9
TIMEOUTS = 50_000


def median_s(work: Callable[[], object]) -> float:
    """Median seconds of several rounds, after one to warm up."""
    work()
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def timeout_loop() -> None:
    """The cheapest thing that SimPy does: one process, one timeout after the other."""
    env = simpy.Environment()

    def ticks():
        for _ in range(TIMEOUTS):
            yield env.timeout(1)

    env.process(ticks())
    env.run()


def import_s(statement: str) -> float:
    """Median seconds of an import in a fresh interpreter, without the interpreter's own start."""
    code = f"import time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)"
    runs = [subprocess.check_output([sys.executable, "-c", code]) for _ in range(ROUNDS)]
    return statistics.median(map(float, runs))


def measure() -> dict[str, float | int]:
    """All figures."""
    workload = Workload(
        model=load_model("deepseek-v3"),
        deployment=Deployment(system="h100", nodes=4, ep=32),
        batches=(prompts(8192, 4096),),
    )
    program = build_program(workload, "dbo-ht")
    backend = SimBackend()
    kernels = sum(1 for _ in backend.run(program)[0].gpu())
    simulate_s = median_s(lambda: backend.run(program))
    timeout_us = median_s(timeout_loop) / TIMEOUTS * 1e6
    kernel_us = simulate_s / kernels * 1e6
    return {
        "kernels": kernels,
        "build_s": round(median_s(lambda: build_program(workload, "dbo-ht")), 4),
        "simulate_s": round(simulate_s, 4),
        "us_per_kernel": round(kernel_us, 2),
        "us_per_simpy_timeout": round(timeout_us, 3),
        "timeouts_per_kernel": round(kernel_us / timeout_us, 1),
        "import_dbo_sched_s": round(import_s("import dbo_sched"), 3),
        "import_sim_s": round(import_s("import sim"), 3),
    }


def main() -> None:
    """Print the figures, and write them with where they come from."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", "--out", type=Path, help="write the figures as JSON")
    out = parser.parse_args().out
    figures = measure()
    for name, value in figures.items():
        print(f"{name:22} {value}")
    if out is not None:
        about = {
            "command": f"python benchmarks/sim_speed.py -o {out}",
            "date": date.today().isoformat(),
            "hardware": f"{platform.machine()}, {os.cpu_count()} cores",
            "python": platform.python_version(),
            "simpy": version("simpy"),
            "dbo-sched": version("dbo-sched"),
        }
        out.write_text(json.dumps({**about, "figures": figures}, indent=2) + "\n")


if __name__ == "__main__":
    main()
