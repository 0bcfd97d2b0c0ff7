"""The product matrix: what each product has by a public listing or our own recording, and what was drawn.

`tools.products` makes docs/products.md of it, `tests.node.products.machine` a recording.
test_matrix tries it.
"""

import re
from dataclasses import dataclass, replace
from typing import Any

SWITCH, MESH, BRIDGE, NONE = "NVSwitch", "mesh", "bridge", "none"
PASSED_ON, VGPU = 1, 2
"""VirtualizationMode of NVML: the whole GPU, or a share of it, in a virtual machine."""
OF_THREE_BRIDGES = tuple(n for n in range(18) if n not in {4, 9, 10, 15, 16, 17})


@dataclass(frozen=True, slots=True)
class Row:
    """One node.

    `active`: numbers of the links that are up on each GPU, of `links` that the driver reports; `rate` in MB/s
    as NVML has it. `generation`: which fields of NVML it has. `pcie`: generation of the slot. `fabric`: of
    the GPU registers with a fabric; a cluster for one beyond the node. `mig`: GPUs that are split. `c2c`:
    chip-to-chip links. `recording`: our own, in place of a drawing. `listing`: what somebody published;
    empty where nothing was found, and all is drawn by `drawn`.
    """

    id: str
    name: str
    gpus: int
    links: int
    active: tuple[int, ...]
    rate: int
    wires: str
    generation: str
    pcie: int
    listing: str = ""
    drawn: str = "all else"
    fabric: bool = False
    cluster: str = ""
    mig: tuple[int, ...] = ()
    virtual: int = 0
    c2c: int = 0
    ecc: bool = True
    recording: str = ""

    @property
    def faulty(self) -> int:
        """The GPU that the faults are drawn at: the last that is not split."""
        return max(set(range(self.gpus)) - set(self.mig), default=0)

    @property
    def watched(self) -> bool:
        """Whether it has links that are up on a GPU that is not split."""
        return bool(self.active) and len(self.mig) < self.gpus

    @property
    def splits(self) -> bool:
        """Whether it has MIG: NVIDIA's MIG user guide, "Supported GPUs"; the A800 as the A100."""
        chips = r"A100-|A100 80|A800|A30\b|H\d+|GH200|G?B[23]00"
        return self.virtual != VGPU and bool(re.search(chips, self.name))

    @property
    def proof(self) -> str:
        """How much of it was seen."""
        if self.recording:
            return "recorded"
        return "unproven: links by a listing" if self.listing else "unproven: drawn"


def sxm(row: str, name: str, links: int, rate: int, generation: str, **more: Any) -> Row:
    """Eight GPUs on NVSwitch with all links up, unless `more` says otherwise."""
    pcie = {"volta": 3, "ampere": 4}.get(generation, 5)
    made = Row(row, name, 8, links, tuple(range(links)), rate, SWITCH, generation, pcie)
    made = replace(made, **more)
    joined = generation in {"hopper", "blackwell"} and made.wires == SWITCH and bool(made.active)
    return replace(made, fabric=joined)


def cards(row: str, name: str, links: int, rate: int, generation: str, **more: Any) -> Row:
    """Two PCIe cards with bridges between them, unless `more` says otherwise."""
    pcie = {"turing": 3, "ampere": 4, "ada": 4}.get(generation, 5)
    wires = BRIDGE if links else NONE
    return replace(Row(row, name, 2, links, tuple(range(links)), rate, wires, generation, pcie), **more)


A100, A6000, H100, B300, V100 = 25_000, 14_062, 26_562, 53_125, 25_781
ALL_ELSE = "all but count and rate of the links"
ROWS: tuple[Row, ...] = (
    sxm("h200-8", "NVIDIA H200", 18, H100, "hopper", recording="demo-dgx-h200", virtual=PASSED_ON,
        listing="proof/hardware", drawn="PCI tree and network cards"),
    sxm("h200-4", "NVIDIA H200", 18, H100, "hopper", gpus=4, recording="h200x4-idle", virtual=PASSED_ON,
        listing="proof/hardware", drawn="nothing"),
    sxm("h200-2", "NVIDIA H200", 18, H100, "hopper", gpus=2, recording="h200x2-idle", virtual=PASSED_ON,
        listing="proof/hardware", drawn="nothing"),
    sxm("h200-1", "NVIDIA H200", 0, 0, "hopper", gpus=1, recording="h200x1-idle", virtual=PASSED_ON,
        listing="proof/hardware", drawn="nothing"),
    sxm("h100-sxm", "NVIDIA H100 80GB HBM3", 18, H100, "hopper",
        listing="nvidia-smi nvlink -s: waynehacking8/nccl-collectives-bench", drawn=ALL_ELSE),
    sxm("h100-4", "NVIDIA H100", 18, H100, "hopper", gpus=4, wires=MESH,
        listing="nvidia-smi topo -m, NV6 to each: NVIDIA/nccl#1617", drawn="all but the count of the links"),
    sxm("h100-mig", "NVIDIA H100 80GB HBM3", 18, H100, "hopper", mig=(0, 1),
        drawn="links of split GPUs read as down (DCGM's source)"),
    sxm("h800", "NVIDIA H800", 8, H100, "hopper",
        listing="nvidia-smi nvlink --status of eight H800, published notes (not verified)", drawn=ALL_ELSE),
    sxm("h20", "NVIDIA H20", 18, H100, "hopper",
        listing="nvidia-smi nvlink -s of an H20, published notes (not verified)", drawn=ALL_ELSE),
    sxm("h100-vm-1", "NVIDIA H100 80GB HBM3", 18, H100, "hopper", gpus=1, active=(), virtual=PASSED_ON,
        drawn="one GPU of eight in a virtual machine, its links reported and inactive"),
    sxm("a100-vm-1", "NVIDIA A100-SXM4-80GB", 12, A100, "ampere", gpus=1, active=(), virtual=PASSED_ON,
        drawn="one GPU of eight in a virtual machine, its links reported and inactive"),
    sxm("a100-sxm", "NVIDIA A100-SXM4-80GB", 12, A100, "ampere",
        listing="nvidia-smi nvlink -s: NVIDIA/nccl-tests#228", drawn=ALL_ELSE),
    sxm("a100-4", "NVIDIA A100-SXM4-40GB", 12, A100, "ampere", gpus=4, wires=MESH,
        listing="nvidia-smi topo -m, NV4 to each: NVIDIA/nccl-tests#331",
        drawn="all but the count of the links"),
    sxm("a100-mig", "NVIDIA A100-SXM4-40GB", 12, A100, "ampere", mig=tuple(range(8)),
        drawn="links of split GPUs read as down (DCGM's source)"),
    sxm("a100-vgpu", "GRID A100X-40C", 0, 0, "ampere", gpus=1, wires=NONE, virtual=VGPU,
        drawn="a share of a GPU in a virtual machine, which has no links"),
    sxm("a800-sxm", "NVIDIA A800-SXM4-80GB", 8, A100, "ampere", drawn="400 GB/s both ways by the data sheet"),
    sxm("v100", "Tesla V100-SXM2-32GB", 6, V100, "volta", wires=MESH,
        listing="6 of 25 GB/s: alibabacloud.com/help/en/ack/topology-aware-gpu-scheduling", drawn=ALL_ELSE),
    sxm("b200", "NVIDIA B200", 18, 50_000, "blackwell",
        listing="nvidia-smi topo -m, NV18: docs.vultr.com", drawn="the rate is nominal"),
    sxm("b300", "NVIDIA B300 SXM6 AC", 18, B300, "blackwell",
        listing="nvidia-smi nvlink --status of a B300 SXM6, published notes (not verified)", drawn=ALL_ELSE),
    sxm("gb200", "NVIDIA GB200", 18, B300, "blackwell", gpus=4, cluster="b1f3", c2c=2,
        drawn="18 links of 53125 MB/s by docs.nvidia.com/health-validation (NVLink checks), trays of four"),
    sxm("gb300", "NVIDIA GB300", 18, B300, "blackwell", gpus=4, cluster="b1f3", c2c=2,
        drawn="18 links of 53125 MB/s by docs.nvidia.com/health-validation (NVLink checks), trays of four"),
    sxm("gh200", "NVIDIA GH200 480GB", 18, H100, "hopper", gpus=1, active=(), wires=NONE, c2c=10,
        drawn="alone: no link is active (leptonai/gpud#1206)"),
    sxm("gh200-2", "NVIDIA GH200 144G HBM3e", 18, H100, "hopper", gpus=2, wires=MESH, c2c=10,
        drawn="two on a board, joined by all links"),
    cards("h100-pcie", "NVIDIA H100 PCIe", 18, H100, "hopper", active=OF_THREE_BRIDGES,
          listing="nvidia-smi nvlink -s of an H100 PCIe, published notes (not verified)", drawn=ALL_ELSE),
    cards("h100-nvl", "NVIDIA H100 NVL", 18, H100, "hopper", active=OF_THREE_BRIDGES,
          drawn="as the H100 PCIe"),
    cards("h100-pcie-alone", "NVIDIA H100 PCIe", 18, H100, "hopper", active=(), wires=NONE,
          drawn="without bridges no link is active"),
    cards("a100-pcie", "NVIDIA A100 80GB PCIe", 12, A100, "ampere",
          drawn="three bridges, 600 GB/s both ways by product brief PB-10577-001"),
    cards("a800-pcie", "NVIDIA A800 80GB PCIe", 8, A100, "ampere",
          drawn="400 GB/s both ways by the data sheet"),
    cards("a30", "NVIDIA A30", 4, A100, "ampere", drawn="one bridge, 200 GB/s both ways by the data sheet"),
    cards("a40", "NVIDIA A40", 4, A6000, "ampere",
          drawn="as the RTX A6000; four links of 14.0625 GB/s by NVIDIA's GA102 white paper"),
    cards("a6000", "NVIDIA RTX A6000", 4, A6000, "ampere",
          listing="nvidia-smi nvlink -s: hpc-community.unige.ch, 2024-11-28", drawn=ALL_ELSE),
    cards("rtx3090", "NVIDIA GeForce RTX 3090", 4, A6000, "ampere", ecc=False,
          listing="nvidia-smi nvlink -s: noonghunna/club-3090, rig reports", drawn=ALL_ELSE),
    cards("rtx8000", "Quadro RTX 8000", 2, V100, "turing",
          listing="100 GB/s both ways: pnypartners.com (NVLink of Quadro RTX 8000)", drawn=ALL_ELSE),
    cards("l40s", "NVIDIA L40S", 0, 0, "ada", gpus=8, drawn="no NVLink by the data sheet"),
    cards("rtx4090", "NVIDIA GeForce RTX 4090", 0, 0, "ada", ecc=False, drawn="no NVLink by the data sheet"),
)  # fmt: skip
