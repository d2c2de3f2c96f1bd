"""DeepEP HT without DBO, as vLLM runs it: the shared experts run beside combine."""

from dbo_sched.policies.shared_experts import SharedExperts
from dbo_sched.registry import schedule
from dbo_sched.weave import UBatch


@schedule("shared-overlap", least=1, most=1)
def shared_overlap(u: UBatch, *, shared: str = "mk-internal") -> None:
    """One batch; only the shared experts overlap, with combine: vLLM over DeepEP HT without DBO.

    Source: vLLM 0.33 ``DeepEPHTPrepareAndFinalize``, order MK_INTERNAL_OVERLAPPED.

    Steady period per layer, unit costs: A + layout + notify + D + G + max(C, S) + K.

    ``shared`` says where they run: ``mk-internal`` (beside combine, vLLM over DeepEP),
    ``multi-stream`` (on the aux stream, vLLM over other backends with up to 256 tokens) or
    ``no-overlap`` (dbo_sched.policies.shared_experts).
    """
    experts = SharedExperts(u, shared)
    for layer in u.layers:
        u.launch(layer.attention)
        if layer.dense:
            u.launch(layer.mlp)
            continue
        experts.before_routing(layer)
        u.launch(layer.gate)
        u.wait(u.record("compute", "routed"), "a2a")
        u.launch(layer.dispatch, "a2a")
        u.wait(u.record("a2a", "dispatched"), "compute")
        u.launch(layer.experts)
        u.wait(u.record("compute", "computed"), "a2a")
        u.launch(layer.combine, "a2a")
        combined = u.record("a2a", "combined")
        experts.beside_combine(layer)
        u.wait(combined, "compute")
        u.launch(layer.output_copy)
        experts.join(layer)
        u.launch(layer.merge)
