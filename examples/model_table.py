"""Prints the README's table: three orders of the same kernels, for three models and two batches.

python examples/model_table.py
"""

from dbo_sched import Deployment, Workload, load_model, prompts, rank_schedules
from sim import SimBackend

CASES = (("deepseek-v3", 4), ("qwen3-30b-a3b", 1), ("glm-4.5", 1))
SCHEDULES = ("sequential", "dbo-ht-late-event", "dbo-ht")
HEADS = ("model", "H100 nodes", "tokens per rank", *SCHEDULES, "10 % faster that helps dbo-ht most")


def main() -> None:
    """One row for each model and batch."""
    print(f"| {' | '.join(HEADS)} |")
    print(f"| --- | {' | '.join(['---:'] * (len(HEADS) - 2))} | --- |")
    for name, nodes in CASES:
        for tokens in (1024, 8192):
            workload = Workload(
                model=load_model(name),
                deployment=Deployment(system="h100", nodes=nodes, ep=8 * nodes),
                batches=(prompts(tokens, seq_len=4096),),
            )
            entries = rank_schedules(workload, SCHEDULES, SimBackend(), sensitivity=True)
            steps = [f"{e.metrics.step_ns / 1e6:,.1f} ms ({e.gain:.2f}x)" for e in entries]
            faster = entries[-1].faster
            most = min(faster, key=lambda kind: faster[kind])
            helps = f"{most} ({100 * faster[most]:+.1f} %)"
            print(f"| {' | '.join([name, str(nodes), str(tokens), *steps, helps])} |")


if __name__ == "__main__":
    main()
