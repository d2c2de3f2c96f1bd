"""Nothing overlaps: the baseline that every gain is measured against."""

from dbo_sched.registry import schedule
from dbo_sched.weave import UBatch


@schedule("sequential", least=1)
def sequential(u: UBatch) -> None:
    """One op after the other, one ubatch after the other: the baseline without any overlap.

    Source: DeepEP's synchronous calls (``async_finish=False``): the a2a stream waits for the
    compute stream's tail and the compute stream for the a2a stream's.

    Steady period per layer, unit costs: the sum of all, A + layout + notify + D + G + C + S + K.
    """
    for layer in u.layers:
        u.launch(layer.attention)
        if layer.dense:
            u.launch(layer.mlp)
            continue
        u.launch(layer.gate)
        u.wait(u.record("compute", "routed"), "a2a")
        u.launch(layer.dispatch, "a2a")
        u.wait(u.record("a2a", "dispatched"), "compute")
        u.launch(layer.experts)
        u.wait(u.record("compute", "computed"), "a2a")
        u.launch(layer.combine, "a2a")
        u.wait(u.record("a2a", "combined"), "compute")
        u.launch(layer.shared_experts)
        u.launch(layer.output_copy)
        u.launch(layer.merge)
