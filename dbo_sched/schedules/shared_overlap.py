"""DeepEP HT without DBO, as vLLM runs it: the shared experts run beside combine."""

from dbo_sched.registry import schedule
from dbo_sched.weave import UBatch


@schedule("shared-overlap", least=1, most=1)
def shared_overlap(u: UBatch) -> None:
    """One batch; only the shared experts overlap, with combine: vLLM over DeepEP HT without DBO.

    Source: vLLM 0.33 ``DeepEPHTPrepareAndFinalize``, order MK_INTERNAL_OVERLAPPED.

    Steady period per layer, unit costs: A + layout + notify + D + G + max(C, S) + K.
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
        combined = u.record("a2a", "combined")
        u.launch(layer.shared_experts)
        u.wait(combined, "compute")
        u.launch(layer.output_copy)
        u.launch(layer.merge)
