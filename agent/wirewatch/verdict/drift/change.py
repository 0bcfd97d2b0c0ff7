"""One difference between two graphs, and what kinds there are."""

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """The value is the metric's label."""

    GPU_LOST = "gpu_lost"
    GPU_NEW = "gpu_new"
    GPU_REPLACED = "gpu_replaced"
    GPU_PRODUCT = "gpu_product"
    NVLINK_LOST = "nvlink_lost"
    NVLINK_NEW = "nvlink_new"
    NVLINK_PEER = "nvlink_peer"
    ISLAND = "island"
    CLIQUE = "clique"
    NIC_LOST = "nic_lost"
    NIC_NEW = "nic_new"
    NIC_REPLACED = "nic_replaced"
    NIC_MODEL = "nic_model"
    NIC_FIRMWARE = "nic_firmware"
    NIC_PORTS = "nic_ports"
    PCIE_PATH = "pcie_path"
    PCIE_PLACE = "pcie_place"
    NUMA = "numa"
    VERSION = "version"


@dataclass(frozen=True, slots=True)
class Change:
    """One cause.

    `part`: key of the GPU or NIC as it is called now (as it was, if lost), name of the version, empty for
    the node. `before` and `after` are for machines and the same however the parts are numbered; `text` is for
    people. `worse`: whether the node has less than it had; False for information.
    """

    kind: Kind
    part: str
    before: str
    after: str
    text: str
    worse: bool
