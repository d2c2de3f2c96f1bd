"""vLLM's dual batch overlap before #38451: the right order, the events captured too late."""

from dbo_sched.registry import schedule
from dbo_sched.weave import Steps, UBatch


@schedule("dbo-ht-late-event")
def dbo_ht_late_event(u: UBatch) -> Steps:
    """dbo-ht with each event captured at the call, after the other ubatch has enqueued its work.

    Source: vLLM 0.18 and 0.19 (#27666). Dispatch and combine wait for more of the compute stream
    than they need; only combine of ubatch 0 beside the shared experts and combine of ubatch 1
    beside the next A0 still overlap.

    Steady period per layer, two ubatches, unit costs:
    2 A + 2 (layout + notify + D) + 2 G + C + K, where both shared experts hide behind C.
    """
    for layer in u.layers:
        u.launch(layer.attention)
        if layer.dense:
            u.launch(layer.mlp)
            continue
        u.launch(layer.gate)
        yield
        u.wait(u.record("compute", "routed"), "a2a")
        u.launch(layer.dispatch, "a2a")
        u.wait(u.record("a2a", "dispatched"), "compute")
        u.launch(layer.experts)
        yield
        u.wait(u.record("compute", "computed"), "a2a")
        u.launch(layer.combine, "a2a")
        combined = u.record("a2a", "combined")
        u.launch(layer.shared_experts)
        u.wait(combined, "comm")
        u.launch(layer.output_copy, "comm")
        copied = u.record("comm", "copied")
        yield
        u.wait(copied, "compute")
        u.launch(layer.merge)
