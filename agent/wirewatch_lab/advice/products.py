"""Properties of GPU products beside their links: memory and its rate, arithmetic, PCIe, NVLink's reach.

The products and their sources are rows of products.toml. Their GB count as 10^9 bytes; of HBM the driver
shows up to 7 % more (H200: 143,771 MiB). `nvlink_product` of core.topology describes the links.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import starmap
from typing import Any

from wirewatch.core.types import Absent
from wirewatch_lab.advice.machine import AdvisedMachine
from wirewatch_lab.advice.rows import rows

GIGA, TERA = 1e9, 1e12


@dataclass(frozen=True, slots=True)
class GpuProduct:
    """A GPU product. `name` is NVML's; `pattern` finds it in NVML's names and in people's.

    `memory` in bytes, `memory_rate` in bytes per second, `arithmetic` in BF16 operations per second (FP16
    before Ampere). `pcie`: generation of its 16 lanes. `domain`: the most GPUs in an NVLink switch fabric, 2
    for cards with bridges, 1 without NVLink.
    """

    name: str
    pattern: str
    memory: float
    memory_rate: float
    arithmetic: float
    pcie: int
    domain: int


def _product(name: str, row: Sequence[Any]) -> GpuProduct:
    pattern, gigabytes, gbs, teraflops, pcie, domain = row
    return GpuProduct(name, pattern, gigabytes * GIGA, gbs * GIGA, teraflops * TERA, pcie, domain)


PRODUCTS = tuple(starmap(_product, rows(__package__, "products.toml").items()))
"""Products in the order of the file: the first match counts."""
SOURCE = "NVIDIA's data sheet of the product, dense arithmetic"
_MAKER = re.compile(r"\b(NVIDIA|TESLA|GEFORCE|QUADRO|DGX|HGX)\b")
_GIGABYTES = re.compile(r"\b(\d{2,3})G(B\b|\b)")
_GRACE = 480
"""GB of the processor's memory in the name of a GH200."""
_DECORATION = r"( SXM\d?| \d{2,3}GB| HBM\d?E?| AC| 480GB| 144G| SERVER EDITION| BLACKWELL| GENERATION)*"


def gpu_product(name: str) -> GpuProduct | None:
    """Return the product of a name from NVML or people, such as `h100-sxm`; None for others.

    A name with another memory size, such as `H20-141GB`, gives the product with that memory.
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
    """Return NVML's names of the machine's GPUs; for a described machine, the names that NVML would give."""
    if machine.conditions:
        return tuple(gpu.name for gpu in machine.conditions[0].group.gpus)
    return () if isinstance(machine.topology, Absent) else tuple(gpu.name for gpu in machine.topology.gpus)


def product_of(machine: AdvisedMachine) -> GpuProduct | None:
    """Return the product of all its GPUs; None where they differ, or where it is not listed."""
    found = {gpu_product(name) for name in gpu_names(machine)}
    return found.pop() if len(found) == 1 else None
