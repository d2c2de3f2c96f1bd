"""vLLM's dual batch overlap as first merged (#24845): DeepEP waits for the comm stream's tail."""

from dbo_sched.registry import schedule
from dbo_sched.weave import Steps, UBatch


@schedule("dbo-ht-original")
def dbo_ht_original(u: UBatch) -> Steps:
    """dbo-ht with ``previous_event=None``: the a2a stream waits for the comm stream's tail.

    Source: vLLM 0.11 (#24845). The comm stream waits for the ubatch's own compute, DeepEP for the
    comm stream and back. Differs from dbo-ht in that combine of ubatch 1 also waits for the output
    copy of ubatch 0, which lies on the comm stream before it.

    Steady period per layer, unit costs: as dbo-ht.
    """
    for layer in u.layers:
        u.launch(layer.attention)
        if layer.dense:
            u.launch(layer.mlp)
            continue
        u.launch(layer.gate)
        routed = u.record("compute", "routed")
        yield
        u.wait(routed, "comm")
        u.wait(u.record("comm", "at_dispatch"), "a2a")
        u.launch(layer.dispatch, "a2a")
        u.wait(u.record("a2a", "dispatched"), "comm")
        u.wait(u.record("comm", "received"), "compute")
        u.launch(layer.experts)
        computed = u.record("compute", "computed")
        yield
        u.wait(computed, "comm")
        u.wait(u.record("comm", "at_combine"), "a2a")
        u.launch(layer.combine, "a2a")
        u.wait(u.record("a2a", "combined"), "comm")
        u.launch(layer.shared_experts)
        u.launch(layer.output_copy, "comm")
        copied = u.record("comm", "copied")
        yield
        u.wait(copied, "compute")
        u.launch(layer.merge)
