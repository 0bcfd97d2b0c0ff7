"""A machine as NCCL's topology file has it."""

import re
from collections.abc import Sequence

from wirewatch.core.pci import Place
from wirewatch.core.probe import Conditions, Pcie, RdmaPort
from wirewatch.core.topology import GpuPart, NicPart, NvlinkWires, Topology, groups, islands
from wirewatch.core.types import Absent, Why
from wirewatch_lab.advice.gpunic.locality import Locality, cpu_list, in_order
from wirewatch_lab.advice.machine import AdvisedMachine
from wirewatch_lab.study.curve import Study
from wirewatch_lab.study.topologyxml import (
    NcclTopology,
    XmlGpu,
    XmlNic,
    XmlPlace,
    path_in_file,
)  # fmt: skip

SOCKETS = "a network interface, which NCCL uses by sockets"
_INTERFACE = re.compile(r"(eth|en[opsx]|ib|bond|veth|docker|br-)\w*$", re.ASCII)
_MASK = re.compile(r"[0-9a-fA-F]{1,8}(,[0-9a-fA-F]{1,8}){0,255}", re.ASCII)
_MOST_LINKS = 64


def machine_of(found: NcclTopology, name: str, measured: Sequence[Study] = ()) -> AdvisedMachine:
    """The machine; GPUs go by their PCI addresses, and so do NICs whose names the file does not have."""
    numbers = _numbers(found.gpus)
    gpus = in_order(
        GpuPart(_key(gpu), number, "", _place(gpu.place))
        for gpu, number in zip(found.gpus, numbers, strict=True)
    )
    places = {_key(gpu): gpu for gpu in found.gpus}
    nics = {_device(nic): nic for nic in found.nics if not _INTERFACE.match(nic.name)}
    others = tuple((nic.name, SOCKETS) for nic in found.nics if _INTERFACE.match(nic.name))
    topology = Topology(
        gpus=gpus,
        nics=tuple(
            NicPart("", device, "", "", _place(nic.place), ((_port(nic), ""),))
            for device, nic in nics.items()
        ),
        nvlink=tuple(wire for gpu in found.gpus for wire in _wires(gpu, places)),
        paths=(), numa_nodes=None, versions=(), unread=_without_nvlink(found.gpus),
    )  # fmt: skip
    ports = tuple(
        RdmaPort(
            device=device, port=_port(nic), card=nic.place.address.rpartition(".")[0], state="", layer="",
            rate=Absent(Why.MISSING, "the file does not have it") if nic.rate is None else nic.rate,
            pcie=_pcie(nic.place),
            paths=tuple(path_in_file(places[gpu.uuid].place, nic.place).name for gpu in gpus),
        )
        for device, nic in nics.items()
    )  # fmt: skip
    cpus = {_key(gpu): _cpus(gpu.place.affinity) for gpu in found.gpus}
    known = {key: text for key, text in cpus.items() if text}
    near = Locality(gpus, ports, stated=False, others=others, cpus=known)
    conditions = tuple(Conditions(group) for group in groups(topology, islands(topology)))
    return AdvisedMachine(f"NCCL's topology in {name}", topology, conditions, tuple(measured), near)


def _numbers(gpus: Sequence[XmlGpu]) -> Sequence[int]:
    """NVML's numbers where each GPU has one of its own, else the order of the file."""
    given = [gpu.dev for gpu in gpus if gpu.dev is not None]
    return given if len(set(given)) == len(gpus) else range(len(gpus))


def _key(gpu: XmlGpu) -> str:
    return gpu.place.address


def _device(nic: XmlNic) -> str:
    return nic.name or nic.place.address


def _port(nic: XmlNic) -> str:
    return "" if nic.port is None else str(nic.port)


def _place(place: XmlPlace) -> Place:
    return Place(place.address, f"cpu{place.cpu}", place.bridges, place.numa)


def _wires(gpu: XmlGpu, known: "dict[str, XmlGpu]") -> Sequence[NvlinkWires]:
    """Links by peer; NCCL's file has no numbers of links."""
    found, first = [], 0
    for peer, count in gpu.nvlinks.items():
        if peer in known or ":" not in peer:
            found.append(NvlinkWires(_key(gpu), peer, tuple(range(first, first + min(count, _MOST_LINKS)))))
            first += count
    return found


def _without_nvlink(gpus: Sequence[XmlGpu]) -> tuple[str, ...]:
    """The GPUs of a file that has no NVLink because it was not written by NCCL, as those of providers."""
    own = any(gpu.nvlinks or gpu.dev is not None for gpu in gpus)
    return () if own else tuple(map(_key, gpus))


def _pcie(place: XmlPlace) -> Pcie | Absent:
    if place.generation is None or place.lanes is None:
        return Absent(Why.MISSING, "the file does not have its PCIe link")
    return Pcie(place.generation, place.lanes)


def _cpus(affinity: str) -> str:
    if not _MASK.fullmatch(affinity):
        return ""
    mask = int("".join(word.zfill(8) for word in affinity.split(",")), 16)
    return cpu_list(bit for bit in range(mask.bit_length()) if mask >> bit & 1)
