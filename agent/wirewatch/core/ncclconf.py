"""/etc/nccl.conf as NCCL reads it: NAME=VALUE a line, the first of a name wins, `#` begins a comment line.

Source: NCCL, src/misc/param.cc and src/graph/topo.cc; user guide, environment variables.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from wirewatch.core.pci import Path

GDR_LEVEL, TOPOLOGY, IB_OFF = "NCCL_NET_GDR_LEVEL", "NCCL_TOPO_FILE", "NCCL_IB_DISABLE"
_LEVELS: Mapping[str, Path | None] = {
    "LOC": None, "NVL": None, "NVB": None, "C2C": None, "PIX": Path.PIX, "PXB": Path.PXB,
    "P2C": Path.PXB, "PXN": Path.PXB, "PHB": Path.NODE, "SYS": Path.SYS,
    "0": None, "1": Path.PIX, "2": Path.PXB, "3": Path.NODE,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class NcclConf:
    """The settings, and every line that is neither a setting nor a comment."""

    settings: Mapping[str, str]
    unknown: tuple[str, ...] = ()


def parse_nccl_conf(text: str) -> NcclConf:
    settings: dict[str, str] = {}
    unknown = []
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if line.startswith("#") or not line.strip():
            continue
        if equals and name.isidentifier():
            settings.setdefault(name, value)
        else:
            unknown.append(line)
    return NcclConf(settings, tuple(unknown))


def gdr_level(value: str) -> tuple[bool, Path | None]:
    """Whether a value of NCCL_NET_GDR_LEVEL is known, and the farthest path that it lets GPUDirect take.

    A path of None switches GPUDirect off: no NIC is nearer than PIX. NCCL's PHB takes in what nvidia-smi
    calls NODE; a number above the highest is the highest.
    """
    if value.isascii() and value.isdigit() and value not in _LEVELS:
        return True, Path.SYS
    return value in _LEVELS, _LEVELS.get(value)
