"""What a GPU product has when nothing is wrong: NVLink counts and rates.

Sources: nvidia-smi nvlink -s listings of each product (docs/METRICS.md, "Expected links"); rates per
direction as the driver reports them, in bytes per second.
"""

import re
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class NvlinkProduct:
    """`counts`: how many links a healthy card may show active; several where bridges decide."""

    pattern: str
    counts: tuple[int, ...]
    link_rate: float
    source: str


NVLINK_PRODUCTS: tuple[NvlinkProduct, ...] = (
    NvlinkProduct(r"H100 (PCIe|NVL)|H200 NVL", (0, 4, 8, 12, 18), 26.562e9, "12 of 18 with three bridges"),
    NvlinkProduct(r"H800( SXM\d?)?$", (8,), 26.562e9, "nvidia-smi nvlink -s of an H800 SXM"),
    NvlinkProduct(r"GH200", (0, 18), 26.562e9, "18 with NVLink switches, none alone"),
    NvlinkProduct(r"H100|H200|H20\b", (18,), 26.562e9, "nvidia-smi nvlink -s; measured on H200"),
    NvlinkProduct(r"A800.*SXM", (8,), 25e9, "400 GB/s both ways over 25 GB/s links"),
    NvlinkProduct(r"A100.*SXM", (12,), 25e9, "nvidia-smi nvlink -s of an A100 SXM"),
    NvlinkProduct(r"A100.*PCI|A800.*PCI|\bA40\b|\bA30\b|RTX A6000\b", (0, 4, 8, 12), 25e9, "bridges decide"),
    NvlinkProduct(r"B300|GB300", (18,), 53.125e9, "nvidia-smi nvlink -s of a B300 SXM6"),
    NvlinkProduct(r"B200|GB200|B100", (18,), 50e9, "nominal; the driver may show 53.125"),
    NvlinkProduct(r"V100.*SXM2", (6,), 25e9, "nvidia-smi nvlink -s prints 25.781"),
)


@cache
def nvlink_product(name: str) -> NvlinkProduct | None:
    """The entry for a product name as NVML tells it, None for a product not listed."""
    return next((p for p in NVLINK_PRODUCTS if re.search(p.pattern, name)), None)
