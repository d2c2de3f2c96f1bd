"""vLLM's dual batch overlap over DeepEP HT, as it is since vllm-project/vllm#38451."""

from dbo_sched.policies.shared_experts import SharedExperts
from dbo_sched.registry import schedule
from dbo_sched.weave import Steps, UBatch


@schedule("dbo-ht")
def dbo_ht(u: UBatch, *, shared: str = "mk-internal") -> Steps:
    """vLLM's dual batch overlap over DeepEP HT; each event is captured before the hand-over.

    Source: vLLM 0.33 (#38451). Overlap pairs: D0 beside A1, D1 beside G0, C0 beside G1, C1 beside
    the shared experts and the next A0.

    Steady period per layer, n ubatches, unit costs: n (A + G + S), the compute stream's work,
    where communication hides; with two ubatches and no shared experts never less than
    A + A + G + C + K, the way through ubatch 0.

    ``shared`` says where the shared experts run: ``mk-internal`` (vLLM over DeepEP), ``no-overlap``
    or ``multi-stream`` (dbo_sched.policies.shared_experts).
    """
    experts = SharedExperts(u, shared)
    for layer in u.layers:
        u.launch(layer.attention)
        if layer.dense:
            u.launch(layer.mlp)
            continue
        experts.before_routing(layer)
        u.launch(layer.gate)
        routed = u.record("compute", "routed")
        yield
        u.wait(routed, "a2a")
        u.launch(layer.dispatch, "a2a")  # the host blocks until the counts have arrived
        u.wait(u.record("a2a", "dispatched"), "compute")
        u.launch(layer.experts)
        computed = u.record("compute", "computed")
        yield
        u.wait(computed, "a2a")
        u.launch(layer.combine, "a2a")
        combined = u.record("a2a", "combined")
        experts.beside_combine(layer)
        u.wait(combined, "comm")
        u.launch(layer.output_copy, "comm")
        copied = u.record("comm", "copied")
        yield
        u.wait(copied, "compute")
        experts.join(layer)
        u.launch(layer.merge)
