"""What a GPU of each product has beside its links: memory, its rate, arithmetic, PCIe, and NVLink's reach.

Sources: NVIDIA's data sheets of each product, of dense arithmetic without sparsity. Their GB are taken as
10^9 bytes; of HBM the driver shows up to 7 % more (H200: 143,771 MiB). `nvlink_product` of core.topology has
the links.
"""

import re
from dataclasses import dataclass, replace

from wirewatch.core.types import Absent
from wirewatch_lab.advice.machine import AdvisedMachine

GIGA, TERA = 1e9, 1e12


@dataclass(frozen=True, slots=True)
class GpuProduct:
    """A product; `name` as NVML gives it, `pattern` finds it in that and in what people write.

    `memory` in bytes, `memory_rate` in bytes per second, `arithmetic` in BF16 operations per second (FP16
    before Ampere). `pcie`: generation of its 16 lanes. `domain`: the most GPUs that one NVLink switch fabric
    joins, 2 for cards with bridges, 1 without NVLink.
    """

    name: str
    pattern: str
    memory: float
    memory_rate: float
    arithmetic: float
    pcie: int
    domain: int


def _product(
    name: str, pattern: str, gigabytes: float, gbs: float, teraflops: float, pcie: int, domain: int = 1
) -> GpuProduct:
    return GpuProduct(name, pattern, gigabytes * GIGA, gbs * GIGA, teraflops * TERA, pcie, domain)


_PRO_6000 = r"RTX ?PRO ?6000( BLACKWELL)?( (MAX Q )?WORKSTATION EDITION)?"
PRODUCTS: tuple[GpuProduct, ...] = (
    _product("NVIDIA GB300", r"GB300", 288, 8000, 2500, 6, 72),
    _product("NVIDIA GB200", r"GB200", 186, 8000, 2500, 5, 72),
    _product("NVIDIA B300 SXM6 AC", r"B300", 288, 8000, 2250, 6, 8),
    _product("NVIDIA B200", r"B200", 180, 8000, 2250, 5, 8),
    _product("NVIDIA B100", r"B100", 192, 8000, 1750, 5, 8),
    _product("NVIDIA GH200 480GB", r"GH200", 96, 4000, 990, 5),
    _product("NVIDIA H200 NVL", r"H200 NVL", 141, 4800, 835, 5, 2),
    _product("NVIDIA H200", r"H200", 141, 4800, 989, 5, 8),
    _product("NVIDIA H100 NVL", r"H100 NVL", 94, 3900, 835, 5, 2),
    _product("NVIDIA H100 PCIe", r"H100 PCIE?", 80, 2000, 756, 5, 2),
    _product("NVIDIA H100 80GB HBM3", r"H100", 80, 3350, 989, 5, 8),
    _product("NVIDIA H800", r"H800", 80, 3350, 989, 5, 8),
    _product("NVIDIA H20", r"H20", 96, 4000, 148, 5, 8),
    _product("NVIDIA A100-PCIE-40GB", r"A100 PCIE? 40GB", 40, 1555, 312, 4, 2),
    _product("NVIDIA A100 80GB PCIe", r"A100( 80GB)? PCIE?", 80, 1935, 312, 4, 2),
    _product("NVIDIA A100-SXM4-40GB", r"A100( SXM4?)? 40GB", 40, 1555, 312, 4, 16),
    _product("NVIDIA A100-SXM4-80GB", r"A100", 80, 2039, 312, 4, 16),
    _product("NVIDIA A800 80GB PCIe", r"A800( 80GB)? PCIE?", 80, 1935, 312, 4, 2),
    _product("NVIDIA A800-SXM4-80GB", r"A800", 80, 2039, 312, 4, 8),
    _product("NVIDIA A30", r"A30", 24, 933, 165, 4, 2),
    _product("NVIDIA A40", r"A40", 48, 696, 149.7, 4, 2),
    _product("NVIDIA A10", r"A10", 24, 600, 125, 4),
    _product("NVIDIA A10G", r"A10G", 24, 600, 70, 4),
    _product("NVIDIA RTX A6000", r"(RTX ?)?A6000", 48, 768, 154.8, 4, 2),
    _product("NVIDIA L40S", r"L40S", 48, 864, 362, 4),
    _product("NVIDIA L40", r"L40", 48, 864, 181, 4),
    _product("NVIDIA L4", r"L4", 24, 300, 121, 4),
    _product("Tesla V100-PCIE-32GB", r"V100 PCIE?( \d\dGB)?", 32, 900, 112, 3),
    _product("Tesla V100-SXM2-16GB", r"V100( SXM[23])? 16GB", 16, 900, 125, 3, 16),
    _product("Tesla V100-SXM2-32GB", r"V100", 32, 900, 125, 3, 16),
    _product("Tesla T4", r"T4", 16, 320, 65, 3),
    _product("NVIDIA RTX PRO 6000 Blackwell Server Edition", _PRO_6000, 96, 1597, 500, 5),
    _product("NVIDIA RTX 6000 Ada Generation", r"RTX ?6000 ?ADA", 48, 960, 364, 4),
    _product("NVIDIA GeForce RTX 5090", r"(RTX ?)?5090", 32, 1792, 209, 5),
    _product("NVIDIA GeForce RTX 4090", r"(RTX ?)?4090", 24, 1008, 165, 4),
    _product("NVIDIA GeForce RTX 3090", r"(RTX ?)?3090", 24, 936, 71, 4, 2),
)
SOURCE = "NVIDIA's data sheet of the product, dense arithmetic"
_MAKER = re.compile(r"\b(NVIDIA|TESLA|GEFORCE|QUADRO|DGX|HGX)\b")
_GIGABYTES = re.compile(r"\b(\d{2,3})G(B\b|\b)")
_GRACE = 480
"""GB of the processor's memory, which the name of a GH200 has."""
_DECORATION = r"( SXM\d?| \d{2,3}GB| HBM\d?E?| AC| 480GB| 144G| SERVER EDITION| BLACKWELL| GENERATION)*"


def gpu_product(name: str) -> GpuProduct | None:
    """The product of a name, as NVML gives it or as people write it, such as `h100-sxm`; None for others.

    A name with another memory than the product's, such as `H20-141GB`, is the product with that memory.
    """
    plain = " ".join(_MAKER.sub(" ", re.sub(r"[-_]", " ", name.upper())).split())
    known = next((one for one in PRODUCTS if re.fullmatch(one.pattern + _DECORATION, plain)), None)
    stated = _GIGABYTES.search(plain)
    if known is None or stated is None or int(stated[1]) in {_GRACE, round(known.memory / GIGA)}:
        return known
    usual = _GIGABYTES.sub(f"{stated[1]}GB", known.name)
    named = usual if usual != known.name else f"{known.name} {stated[1]}GB"
    return replace(known, name=named, memory=int(stated[1]) * GIGA)


def gpu_names(machine: AdvisedMachine) -> tuple[str, ...]:
    """Names of the machine's GPUs as NVML gives them; of one that was described, those that it would give."""
    if machine.conditions:
        return tuple(gpu.name for gpu in machine.conditions[0].group.gpus)
    return () if isinstance(machine.topology, Absent) else tuple(gpu.name for gpu in machine.topology.gpus)


def product_of(machine: AdvisedMachine) -> GpuProduct | None:
    """The product of all its GPUs; None where they differ, or it is not listed."""
    found = {gpu_product(name) for name in gpu_names(machine)}
    return found.pop() if len(found) == 1 else None
