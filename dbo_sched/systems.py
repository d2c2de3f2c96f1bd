"""GPU data sheets.

Sources: NVIDIA H100 and H200 Tensor Core GPU data sheets (SXM5). Matrix rates are dense, without
sparsity; the SXM5 parts of both have 132 SMs.
"""

from __future__ import annotations

from dbo_sched.errors import InputError
from dbo_sched.structs import Frozen


class System(Frozen, frozen=True, kw_only=True):
    """One GPU and the node that it sits in."""

    name: str
    sms: int
    bf16_tflops: float
    fp8_tflops: float
    memory_gbps: float
    memory_gb: float
    gpus_per_node: int = 8

    def tflops(self, dtype: str) -> float:
        """Peak dense matrix rate of ``dtype``, ``fp8`` or ``bf16``."""
        return self.fp8_tflops if dtype == "fp8" else self.bf16_tflops


SYSTEMS = {
    system.name: system
    for system in (
        System(
            name="h100",
            sms=132,
            bf16_tflops=989.4,
            fp8_tflops=1978.9,
            memory_gbps=3350,
            memory_gb=80,
        ),
        System(
            name="h200",
            sms=132,
            bf16_tflops=989.4,
            fp8_tflops=1978.9,
            memory_gbps=4800,
            memory_gb=141,
        ),
    )
}


def load_system(name: str) -> System:
    """A data sheet by name.

    Raises:
        InputError: naming the known ones.
    """
    if name not in SYSTEMS:
        raise InputError(
            f"system '{name}' is not known",
            where="--system",
            mend=f"use one of {', '.join(SYSTEMS)}",
        )
    return SYSTEMS[name]
