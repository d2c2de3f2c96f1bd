# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Explore schedules
#
# Does dual batch overlap (DBO) pay for a model, on a system, at a batch? And what limits it? This
# notebook needs no GPU: every number is predicted, and says where it comes from.

# %%
import matplotlib.pyplot as plt

from dbo_sched import (
    Deployment,
    Steps,
    UBatch,
    Workload,
    build_program,
    load_model,
    prompts,
    rank_schedules,
    schedule,
)
from dbo_sched.plot import timeline_png
from dbo_sched.tables import comparison, sensitivities, sm_grid
from dbo_sched.why import explain, notes
from sim import SimBackend

# %% [markdown]
# ## A model, a deployment, a batch
#
# Presets hold the public shapes; `load_model("path/config.json")` reads any Hugging Face model of
# those families. A batch is (new tokens, context tokens) per sequence; here two prompts of 4096.


# %%
def workload(model="deepseek-v3", tokens=8192, seq_len=4096, nodes=4, comm_sms=20, **more):
    """One step on H100 nodes of eight GPUs each."""
    return Workload(
        model=load_model(model),
        deployment=Deployment(system="h100", nodes=nodes, ep=8 * nodes, comm_sms=comm_sms),
        batches=(prompts(tokens, seq_len, **more),),
    )


job = workload()
job.model

# %% [markdown]
# ## A schedule is a plan, a plan is data
#
# What `dbo-ht` makes of that step, one layer of it: `u0` and `u1` are the host turns of both
# ubatches. The host blocks in dispatch until the counts of all ranks have arrived.

# %%
program = build_program(job, "dbo-ht")
program

# %% [markdown]
# The model predicts when each kernel runs. Waiting is hatched, arrows are event waits.

# %%
backend = SimBackend()
timeline = backend.run(program)[0]
timeline

# %% [markdown]
# ## The same kernels in three orders
#
# `dbo-ht-late-event` launches what `dbo-ht` launches, in the same order, but captures each event
# when DeepEP is called, behind whatever the other ubatch has enqueued by then
# (vllm-project/vllm#38451).

# %%
orders = ["sequential", "dbo-ht-late-event", "dbo-ht"]
timeline_png([backend.run(build_program(job, name))[0] for name in orders])

# %% [markdown]
# ## Does it pay here, and why?

# %%
entries = rank_schedules(job, orders, backend, sensitivity=True)
comparison(entries, "DeepSeek-V3, EP32 on H100, 8192 tokens per rank")

# %%
sensitivities(entries)

# %%
print("\n".join(explain(entries)))

# %% [markdown]
# Where these numbers come from, and what the model leaves out:

# %%
print("\n".join(notes(entries)))

# %% [markdown]
# ## How many SMs for communication?
#
# Few SMs make communication slow, many take them from compute.

# %%
sms = [4, 8, 12, 16, 20, 24]
grid = [rank_schedules(workload(comm_sms=count), orders, backend) for count in sms]
sm_grid(sms, grid)

# %%
_, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
for name, column in zip(orders, zip(*grid, strict=True), strict=True):
    axes.plot(sms, [entry.metrics.step_ns / 1e6 for entry in column], marker="o", label=name)
axes.set(xlabel="SMs per dispatch or combine", ylabel="step (ms)", xticks=sms, ylim=(0, None))
axes.legend()
plt.show()

# %% [markdown]
# ## Where does it start to pay?
#
# Prefill batches from 128 to 16384 tokens per rank. Small ones lose: the host launches every kernel
# twice, tiles are half empty, weights are read twice.

# %%
counts = [128, 256, 512, 1024, 2048, 4096, 8192, 16384]
deployments = {"deepseek-v3": 4, "qwen3-30b-a3b": 1, "glm-4.5": 1}
gains = {}
for model, nodes in deployments.items():
    for tokens in counts:
        step = workload(model, tokens, seq_len=min(tokens, 4096), nodes=nodes)
        gains[model, tokens] = rank_schedules(step, ["dbo-ht"], backend)[0].gain

_, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
for model, nodes in deployments.items():
    gain = [gains[model, tokens] for tokens in counts]
    axes.plot(counts, gain, marker="o", label=f"{model}, {nodes} node{'s' * (nodes > 1)}")
axes.axhline(1, color="black", lw=0.8)
axes.set_xscale("log", base=2)
axes.set_xticks(counts, [str(count) for count in counts])
axes.set(xlabel="tokens per rank", ylabel="gain of dbo-ht over sequential")
axes.legend()
plt.show()

# %% [markdown]
# What limits the small ones? Ask which 10 % would help:

# %%
small = rank_schedules(
    workload("qwen3-30b-a3b", 512, seq_len=512, nodes=1),
    ["sequential", "dbo-ht"],
    backend,
    sensitivity=True,
)
sensitivities(small)

# %%
print("\n".join(explain(small)))

# %% [markdown]
# The host. With launches at no cost (CUDA graphs would come near, but DeepEP's normal dispatch
# cannot be captured) the same step would gain:

# %%
free = rank_schedules(
    workload("qwen3-30b-a3b", 512, seq_len=512, nodes=1),
    ["sequential", "dbo-ht"],
    backend.scaled({"host": 0}),
)
comparison(free)

# %% [markdown]
# ## A schedule of your own
#
# Written as a generator over one ubatch; every `yield` hands the host to the other one. This one
# dispatches beside the other's attention, but combines at once instead of after a hand-over.


# %%
@schedule("early-combine")
def early_combine(u: UBatch) -> Steps:
    """dbo-ht with combine in the turn of its experts."""
    for layer in u.layers:
        u.launch(layer.attention)
        if layer.dense:
            u.launch(layer.mlp)
            continue
        u.launch(layer.gate)
        routed = u.record("compute", "routed")
        yield
        u.wait(routed, "a2a")
        u.launch(layer.dispatch, "a2a")
        u.wait(u.record("a2a", "dispatched"), "compute")
        u.launch(layer.experts)
        u.wait(u.record("compute", "computed"), "a2a")
        u.launch(layer.combine, "a2a")
        combined = u.record("a2a", "combined")
        yield
        u.launch(layer.shared_experts)
        u.wait(combined, "compute")
        u.launch(layer.output_copy)
        u.launch(layer.merge)


# %%
mine = rank_schedules(job, [*orders, "early-combine"], backend)
comparison(mine)

# %% [markdown]
# Combine now stands in front of the other ubatch's dispatch on the a2a stream: that dispatch waits
# for it, and everything behind the dispatch on the compute stream waits too:

# %%
timeline_png([mine[-2].timeline, mine[-1].timeline])
