"""GPU data sheets.

Sources: NVIDIA's data sheets of H100, H200 (SXM5), HGX B200 and B300, GB200 and GB300 NVL72, and
DGX user guides for NICs. Matrix rates are dense, without sparsity. NVLink and NIC rates are one
way, per GPU.
"""

from __future__ import annotations

from dbo_sched.errors import InputError
from dbo_sched.structs import Frozen


class System(Frozen, frozen=True):
    """One GPU and the node that it sits in. ``nic_gbps`` is in gigabytes, as all rates here."""

    name: str
    sms: int
    bf16_tflops: float
    fp8_tflops: float
    memory_gbps: float
    memory_gb: float
    nvlink_gbps: float
    nic_gbps: float
    gpus_per_node: int = 8

    def tflops(self, dtype: str) -> float:
        """Peak dense matrix rate of ``dtype``, ``fp8`` or ``bf16``."""
        return self.fp8_tflops if dtype == "fp8" else self.bf16_tflops


SYSTEMS = {
    system.name: system
    for system in (
        #        name  SMs  bf16  fp8  memory  GB  NVLink  NIC  a node
        System("h100", 132, 989.4, 1978.9, 3350, 80, 450, 50),
        System("h200", 132, 989.4, 1978.9, 4800, 141, 450, 50),
        System("b200", 148, 2250, 4500, 8000, 180, 900, 50),
        System("b300", 148, 2250, 4500, 8000, 270, 900, 100),
        System("gb200", 152, 2500, 5000, 8000, 186, 900, 50, 4),
        System("gb300", 152, 2500, 5000, 8000, 279, 900, 100, 4),
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
