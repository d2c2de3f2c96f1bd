"""What vLLM itself would decide for a workload's step, in words."""

from __future__ import annotations

from dbo_sched.policies import microbatch, shared_experts
from dbo_sched.workload import Sequences, Workload


def engine_notes(workload: Workload) -> list[str]:
    """Whether vLLM with ``--enable-dbo`` splits this step, and where it runs the shared experts."""
    ranks = workload.deployment.ep
    batches = [workload.batch_of(rank) for rank in range(ranks)]
    decision = microbatch.decide([rank_step(batch) for batch in batches])
    split = "splits this step" if decision.ubatches > 1 else "does not split this step"
    notes = [f"vLLM {split}: {decision.reason}", *decision.warnings]
    if workload.model.n_shared_experts:
        rows = decision.padded // decision.ubatches
        order = shared_experts.decide(shared_experts.Situation(rows=rows))
        notes.append(f"vLLM runs the shared experts {order.order}: {order.reason}")
    return notes


def rank_step(batch: Sequences) -> microbatch.RankStep:
    """What a rank with this batch tells the others; a decode has one new token a sequence."""
    decode = bool(batch) and all(new == 1 and context for new, context in batch)
    return microbatch.RankStep(sum(new for new, _ in batch), query_len=1 if decode else None)
