"""What may not be told of a drawn node."""

from collections.abc import Callable
from dataclasses import replace

from tests.node.verdict.drift.drawn import NOWHERE, Box
from wirewatch.core.topology import UNKNOWN_PEER


def _no_uuid(box: Box, number: int) -> None:
    """A GPU that is lost from the start tells neither its name nor its wires."""
    lost = box.gpus[number].uuid
    box.gpu(number, uuid=f"index:{box.gpus[number].index}", name="")
    box.unread.add(number)
    box.links = {
        n: {link: UNKNOWN_PEER if peer == lost else peer for link, peer in peers.items()}
        for n, peers in box.links.items()
    }


def _no_peers(box: Box, number: int) -> None:
    box.links[number] = dict.fromkeys(box.links[number], UNKNOWN_PEER)


def _no_layer(box: Box, number: int) -> None:
    box.nic(number, ports=tuple((port, "") for port, _ in box.nics[number].ports))


def _no_place(box: Box, number: int) -> None:
    box.gpu(number, place=replace(NOWHERE, address=box.gpus[number].place.address))


def _no_guid(box: Box, number: int) -> None:
    box.nic(number, guid="0000:0000:0000:0000")


def _no_version(box: Box, _number: int) -> None:
    box.versions = dict.fromkeys(box.versions, "")


def _no_nodes(box: Box, _number: int) -> None:
    box.numa_nodes = None


OF_GPUS: dict[str, Callable[[Box, int], None]] = {
    "uuid": _no_uuid,
    "peers": _no_peers,
    "wires": lambda box, n: box.unread.add(n),
    "product": lambda box, n: box.gpu(n, name=""),
    "gpu place": _no_place,
    "gpu address": lambda box, n: box.gpu(n, place=NOWHERE),
    "gpu numa": lambda box, n: box.gpu(n, place=replace(box.gpus[n].place, numa=None)),
    "versions": _no_version,
    "nodes": _no_nodes,
}
"""What may not be told of a GPU or of the node."""
OF_NICS: dict[str, Callable[[Box, int], None]] = {
    "guid": _no_guid,
    "model": lambda box, n: box.nic(n, model=""),
    "firmware": lambda box, n: box.nic(n, firmware=""),
    "ports": lambda box, n: box.nic(n, ports=()),
    "layer": _no_layer,
    "nic place": lambda box, n: box.nic(n, place=NOWHERE),
    "nic numa": lambda box, n: box.nic(n, place=replace(box.nics[n].place, numa=None)),
}
"""What may not be told of a NIC."""
