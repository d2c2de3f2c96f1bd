"""Time and memory of a step in which every rank is different: DeepSeek-V3, all layers, 64 ranks.

    python benchmarks/many_ranks.py [-o benchmarks/results/many_ranks.json]

Every rank has four prompts of its own, 500 to 3000 tokens each, from a fixed seed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import time
from datetime import date
from itertools import pairwise
from pathlib import Path

from dbo_sched import Deployment, Workload, build_program, load_model
from dbo_sched.metrics import measure
from sim import SimBackend

RANKS = 64


def workload() -> Workload:
    """Four prompts a rank, none alike."""
    draw = random.Random(1)
    batches = tuple(tuple((draw.randint(500, 3000), 0) for _ in range(4)) for _ in range(RANKS))
    deployment = Deployment(system="h100", nodes=RANKS // 8, ep=RANKS)
    return Workload(model=load_model("deepseek-v3"), deployment=deployment, batches=batches)


def main() -> None:
    """Build, simulate, measure; print and perhaps write what it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--out", type=Path)
    out = parser.parse_args().out
    marks = [time.perf_counter()]
    program = build_program(workload(), "dbo-ht")
    marks.append(time.perf_counter())
    timeline = SimBackend().run(program)[0]
    marks.append(time.perf_counter())
    metrics = measure(timeline)
    marks.append(time.perf_counter())
    build_s, simulate_s, measure_s = (b - a for a, b in pairwise(marks))
    result = {
        "command": "python benchmarks/many_ranks.py",
        "date": date.today().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "python": platform.python_version(),
        "plans": len(program.plans),
        "kernels": sum(1 for _ in timeline.gpu()),
        "step_ms": metrics.step_ns / 1e6,
        "build_s": round(build_s, 1),
        "simulate_s": round(simulate_s, 1),
        "measure_s": round(measure_s, 1),
        "peak_memory_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
    }
    text = json.dumps(result, indent=2)
    print(text)
    if out is not None:
        out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
