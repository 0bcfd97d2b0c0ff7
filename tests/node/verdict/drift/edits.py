"""Changes to a drawn node, and the kinds that mirror each other."""

from collections.abc import Callable
from dataclasses import replace

from tests.node.verdict.drift.drawn import (
    Box,
    below,
    guid,
    uuid,
)
from wirewatch.core.topology import SWITCH, UNKNOWN_PEER
from wirewatch.verdict.drift.change import ChangeKind

Make = Callable[[], Box]


def gpu_lost(box: Box) -> None:
    box.drop_gpu(3)


def gpu_new(box: Box) -> None:
    box.add_gpu(8, "NVIDIA H200", below(0, 5))
    box.links[8] = dict.fromkeys(range(18), SWITCH)


def gpu_replaced(box: Box) -> None:
    box.gpu(3, uuid=uuid(9999))


def gpu_product(box: Box) -> None:
    box.gpu(3, name="NVIDIA H200 NVL")


def link_lost(box: Box) -> None:
    box.cut(3, 7)


def link_new(box: Box) -> None:
    box.links[2] |= {18: SWITCH, 19: SWITCH}


def wire_lost(box: Box) -> None:
    box.cut(0, 3)
    box.cut(1, 3)


def bridge_lost(box: Box) -> None:
    box.cut(0, *range(12))
    box.cut(1, *range(12))


def peers_swapped(box: Box) -> None:
    """The cable of two links of GPU 0 goes to the switch instead of GPU 1, whose ends cannot tell."""
    box.links[0] |= {0: SWITCH, 1: SWITCH}
    box.links[1] |= {0: UNKNOWN_PEER, 1: UNKNOWN_PEER}


def clique(box: Box) -> None:
    for n in range(4):
        box.gpu(n, clique="b1f3/7")


def nic_lost(box: Box) -> None:
    del box.nics[4]


def nic_new(box: Box) -> None:
    box.add_nic(10, below(1, 6))


def nic_replaced(box: Box) -> None:
    box.nic(5, guid=guid(99), firmware="28.44.1036")


def nic_model(box: Box) -> None:
    box.nic(5, model="MT4131", firmware="28.99.1")


def nic_firmware(box: Box) -> None:
    box.nic(6, firmware="28.44.1036")


def nic_ports(box: Box) -> None:
    box.nic(6, ports=(("1", "Ethernet"),))


def nic_moved(box: Box) -> None:
    box.nic(4, place=below(0, 1))


def gpu_moved(box: Box) -> None:
    box.gpu(1, place=below(7, 4))


def retimer(box: Box) -> None:
    """A switch that hangs one port lower: no path of another class."""
    box.shift(2, lambda p: replace(p, bridges=(p.bridges[0], "0000:fd:00.0", "0000:fe:00.0", *p.bridges[1:])))


def other_socket(box: Box) -> None:
    box.nics.clear()
    box.gpu(2, place=replace(box.gpus[2].place, numa=1))


def clustering(box: Box) -> None:
    """Four NUMA nodes instead of two, and every part on the one nearest to it."""
    box.numa_nodes = 4
    for n in range(8):
        box.gpu(n, place=replace(box.gpus[n].place, numa=n // 2))
        box.nic(n, place=replace(box.nics[n].place, numa=n // 2))


def driver(box: Box) -> None:
    box.versions["driver"] = "590.2"


def no_nics(make: Make) -> Make:
    def made() -> Box:
        box = make()
        box.nics.clear()
        return box

    return made


MIRROR = {
    ChangeKind.GPU_LOST: ChangeKind.GPU_NEW,
    ChangeKind.NIC_LOST: ChangeKind.NIC_NEW,
    ChangeKind.NVLINK_LOST: ChangeKind.NVLINK_NEW,
}
MIRROR |= {there: here for here, there in MIRROR.items()}
