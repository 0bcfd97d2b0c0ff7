"""The node's topology as one graph, for baseline and probes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wirewatch.core.collector import Collector, NoPolicy, Options, is_lost, is_unsupported
from wirewatch.core.nvml import (
    MIG_MODE,
    UP,
    Supported,
    as_int,
    as_mig_mode,
    as_str,
    ask_gpu,
    count_links,
    member,
    old_state,
    state,
)
from wirewatch.core.pci import Place, normal_pci, path_between
from wirewatch.core.ports import Gpu, Hardware, Nvml, Question, Sysfs
from wirewatch.core.topology import SWITCH, UNKNOWN_PEER, GpuPart, NicPart, NicPath, NvlinkWires, Topology
from wirewatch.core.tree import RDMA, count_nodes, rdma_devices, rdma_place, read_place
from wirewatch.core.types import Absent, Expect, Finding, Json, Ok, Sample, family, value_or

PEERS = family(
    "nvlink_peer_links",
    ("gpu", "uuid", "peer"),
    "NVLink links that are up from this GPU to a peer: a GPU's UUID, switch, or unknown.",
    "peers other than switch",
)
PARTS = family(
    "topology_parts", ("part",), "Parts of the topology graph, by what they are.", "bridges, NICs",
    undrawn="parts that are lost show as drift",
)  # fmt: skip


def read_topology(hardware: Hardware) -> Topology | Absent:
    """Read the node's graph; Absent when GPUs or RDMA devices cannot even be listed."""
    gpus = hardware.nvml.gpus()
    if isinstance(gpus, Absent):
        return gpus
    sysfs = hardware.sysfs
    nics = _nics(sysfs)
    if isinstance(nics, Absent):
        return nics
    nodes = count_nodes(sysfs)
    places = {gpu.key: read_place(sysfs, gpu.pci) for gpu in gpus}
    modes = {gpu.key: _modes(hardware.nvml, gpu) for gpu in gpus}
    wires = {gpu.key: _wires(hardware.nvml, gpu, gpus, modes[gpu.key]) for gpu in gpus}
    texts = [(name, _text(sysfs, path)) for name, path in _VERSIONS.items()]
    driver = as_str(hardware.nvml.ask(None, [_DRIVER])[0].value)
    return Topology(
        gpus=tuple(
            GpuPart(g.key, g.index, g.name, _pci(places[g.key], g.pci), modes[g.key].clique) for g in gpus
        ),
        nics=tuple(nic for nic, _ in nics),
        nvlink=tuple(one for found in wires.values() if found is not None for one in found),
        unread=tuple(key for key, found in wires.items() if found is None),
        paths=tuple(
            NicPath(gpu.key, nic.device, "" if isinstance(path, Absent) else path.name)
            for gpu in gpus
            for nic, place in nics
            for path in (path_between(places[gpu.key], place, nodes=nodes),)
        ),
        numa_nodes=nodes,
        versions=(("driver", value_or(driver, "")), *texts),
        split=tuple(key for key, one in modes.items() if one.split is True),
    )


def samples(graph: Topology, _memory: None) -> Iterable[Sample]:
    indexes = {gpu.uuid: str(gpu.index) for gpu in graph.gpus}
    for wires in graph.nvlink:
        yield PEERS.sample(len(wires.links), indexes[wires.uuid], wires.uuid, wires.peer)
    yield PARTS.sample(len(graph.gpus), "gpu")
    yield PARTS.sample(len(graph.nics), "nic")
    yield PARTS.sample(len(graph.bridges()), "bridge")
    yield PARTS.sample(sum(len(wires.links) for wires in graph.nvlink), "nvlink")


def judge(
    _memory: None, _ok: Ok[Topology], _policy: NoPolicy, _expect: Expect
) -> tuple[None, tuple[Finding, ...]]:
    """Return no findings: `verdict.drift` judges changes of the graph against a baseline."""
    return None, ()


COLLECTOR: Collector[Topology, None, Options, NoPolicy] = Collector(
    name="topology",
    about="one graph of GPUs, NVLink peers, PCIe tree, NICs and NUMA nodes",
    lane="nvml",
    options=Options(interval=300.0),
    policy=NoPolicy(),
    metrics=(PEERS, PARTS),
    start=None,
    read=lambda hardware, _memory, _options: read_topology(hardware),
    samples=samples,
    judge=judge,
    series=12,
    applicable=lambda graph: bool(graph.gpus),
    facts=lambda graph, _memory: graph,
)

_DRIVER = Question("SystemGetDriverVersion")
_FABRIC = Question("GpuFabricInfoV")
_NO_FABRIC, _REGISTERED = 0, 3
"""NVML_GPU_FABRIC_STATE_NOT_SUPPORTED and _COMPLETED (nvml.h)."""
_PEER_SWITCH = 2
"""NVML_NVLINK_DEVICE_TYPE_SWITCH (nvml.h)."""
_VERSIONS = {
    "kernel": "/proc/sys/kernel/osrelease",
    "mlx5_core": "/sys/module/mlx5_core/version",
    "nvidia_peermem": "/sys/module/nvidia_peermem/version",
}


def _pci(place: Place | Absent, address: str = "") -> Place:
    """Return the place for the graph: with an empty root where it is not known."""
    return Place(address, "", (), None) if isinstance(place, Absent) else place


@dataclass(frozen=True, slots=True)
class GpuModes:
    """A GPU's fabric clique as in `GpuPart`, and whether MIG splits it now or after its next reset."""

    clique: str | None
    split: bool | Absent


def _modes(nvml: Nvml, gpu: Gpu) -> GpuModes:
    """Return the modes; a GPU's fabric is believed only while the GPU is whole."""
    fabric, mig = (answer.value for answer in nvml.ask(gpu.key, (_FABRIC, MIG_MODE)))
    mode = as_mig_mode(mig)
    split = mode if isinstance(mode, Absent) else mode.now or mode.later
    return GpuModes(None if split is True else _clique(fabric), split)


def _clique(info: Json | Absent) -> str | None:
    """The fabric clique; boards whose fabric ends at the node report a cluster of zeros."""
    if isinstance(info, Absent):
        return "" if is_unsupported(info) else None
    state, cluster = as_int(member(info, "state")), as_str(member(info, "clusterUuid"))
    number = as_int(member(info, "cliqueId"))
    if state == _NO_FABRIC:
        return ""
    if state != _REGISTERED or isinstance(cluster, Absent) or isinstance(number, Absent):
        return None
    return f"{cluster}/{number}" if cluster.strip("0-") else ""


def _text(sysfs: Sysfs, path: str) -> str:
    return value_or(sysfs.read(path), "")


def _nics(sysfs: Sysfs) -> list[tuple[NicPart, Place | Absent]] | Absent:
    names = rdma_devices(sysfs)
    if isinstance(names, Absent):
        return names
    found = []
    for name in names:
        at = f"{RDMA}/{name}"
        place = rdma_place(sysfs, name)
        ports = value_or(sysfs.entries(f"{at}/ports"), ())
        part = NicPart(
            guid=_text(sysfs, f"{at}/node_guid"),
            device=name,
            model=_text(sysfs, f"{at}/hca_type"),
            firmware=_text(sysfs, f"{at}/fw_ver"),
            place=_pci(place),
            ports=tuple((port, _text(sysfs, f"{at}/ports/{port}/link_layer")) for port in ports),
        )
        found.append((part, place))
    return found


def _wires(nvml: Nvml, gpu: Gpu, gpus: Sequence[Gpu], modes: GpuModes) -> list[NvlinkWires] | None:
    """Return the peers of the active links; none for a GPU without NVLink.

    None when any link could not be read: a count with holes would pass for a change. It is None too in MIG
    mode, where the driver shows active links as down, and while the mode is not known.
    """
    if modes.split is not False:
        return None
    links = count_links(nvml, gpu.key)
    asked = ask_gpu(nvml, gpu.key, _questions(links), Supported())
    if isinstance(asked, Absent):
        return None
    peers: dict[str, list[int]] = {}
    for link in range(links):
        now = asked.whole(state(link))
        if is_unsupported(now):
            now = asked.whole(old_state(link))
        if is_lost(now):
            return None
        if now in UP:
            kind = asked.whole(Question("NvLinkRemoteDeviceType", (link,)))
            address = member(asked.json(Question("NvLinkRemotePciInfo", (link,))), "busId")
            peers.setdefault(_peer(kind, address, gpus), []).append(link)
    return [NvlinkWires(gpu.key, peer, tuple(numbers)) for peer, numbers in sorted(peers.items())]


def _questions(links: int) -> tuple[Question, ...]:
    calls = ("NvLinkRemoteDeviceType", "NvLinkRemotePciInfo")
    peers = [Question(call, (link,)) for call in calls for link in range(links)]
    return (*peers, *(ask(link) for ask in (state, old_state) for link in range(links)))


def _peer(kind: int | Absent, address: Json | Absent, gpus: Sequence[Gpu]) -> str:
    """Return the peer at the other end; in a virtual machine the address of a switch may be all ones."""
    if kind == _PEER_SWITCH:
        return SWITCH
    at = normal_pci(value_or(as_str(address), ""))
    return next((gpu.key for gpu in gpus if gpu.pci and gpu.pci == at), UNKNOWN_PEER)
