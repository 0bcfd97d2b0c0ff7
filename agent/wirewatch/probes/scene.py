"""What a probe starts from: which groups of GPUs, on which wires, under which settings of NCCL."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from wirewatch.collectors.topology import read_topology
from wirewatch.core.nvml import as_int, count_links, link_speed
from wirewatch.core.ports import Gpu, Hardware, Nvml, Question
from wirewatch.core.probe import NOT_TOLD, Conditions, Pcie
from wirewatch.core.topology import Topology, groups, islands
from wirewatch.core.types import Absent, Expect
from wirewatch.nccl.settings import parse_nccl_conf

CONF = "/etc/nccl.conf"
OURS = frozenset({"NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS", "NCCL_RAS_ENABLE"})
"""What the probe sets itself."""
PCIE = (Question("MaxPcieLinkGeneration"), Question("MaxPcieLinkWidth"))
MBYTES = 1e6


@dataclass(frozen=True, slots=True)
class Scene:
    """Groups by position in `ranks`, with the conditions of each; `settings` are NCCL's, environment first.

    `ranks` names the GPUs, or the processes of the gloo engine, which has no `gpus` and no conditions.
    """

    ranks: tuple[str, ...]
    gpus: tuple[Gpu, ...]
    groups: tuple[tuple[int, ...], ...]
    conditions: tuple[Conditions, ...]
    settings: Mapping[str, str]


def read_scene(
    hardware: Hardware, gpus: Sequence[Gpu], environment: Mapping[str, str], expect: Expect,
    pins: Mapping[str, float],
) -> Scene | Absent:  # fmt: skip
    """The scene of some of the node's GPUs, in their order."""
    whole = read_topology(hardware)
    if isinstance(whole, Absent):
        return whole
    keys = [gpu.key for gpu in gpus]
    part = _only(whole, frozenset(keys))
    settings = _settings(hardware, environment)
    rate, pcie = _link_rate(hardware.nvml, gpus), _pcie(hardware.nvml, gpus)
    found = groups(part, islands(part))
    if not found:
        return Absent(NOT_TOLD.why, "no two GPUs whose place is known")
    return Scene(
        ranks=tuple(gpu.uuid for gpu in gpus),
        gpus=tuple(gpus),
        groups=tuple(tuple(keys.index(gpu.uuid) for gpu in group.gpus) for group in found),
        conditions=tuple(
            Conditions(
                group,
                link_rate=rate,
                links=expect.nvlink_links,
                pcie=pcie,
                settings=settings,
                pins=dict(pins),
            )
            for group in found
        ),
        settings=settings,
    )


def cpu_scene(count: int) -> Scene:
    """Ranks that are processes of this machine."""
    return Scene(tuple(f"cpu:{n}" for n in range(count)), (), (tuple(range(count)),), (), {})


def _only(whole: Topology, keys: frozenset[str]) -> Topology:
    return replace(
        whole,
        gpus=tuple(gpu for gpu in whole.gpus if gpu.uuid in keys),
        nvlink=tuple(wires for wires in whole.nvlink if wires.uuid in keys),
        unread=tuple(uuid for uuid in whole.unread if uuid in keys),
    )


def _settings(hardware: Hardware, environment: Mapping[str, str]) -> dict[str, str]:
    text = hardware.sysfs.read(CONF)
    conf = {} if isinstance(text, Absent) else dict(parse_nccl_conf(text).settings)
    told = {**conf, **environment}
    names = (name for name in sorted(told) if name.startswith("NCCL_") and name not in OURS)
    return {_text(name): _text(told[name]) for name in names}


def _text(told: str) -> str:
    """Text that JSON can hold: an environment may hold any bytes."""
    return told.encode("utf-8", "replace").decode()


def _link_rate(nvml: Nvml, gpus: Sequence[Gpu]) -> float | Absent:
    """Bytes per second of a link each way, as most links that are up show it."""
    seen: Counter[int] = Counter()
    for gpu in gpus:
        questions = [link_speed(link) for link in range(count_links(nvml, gpu.key))]
        speeds = [as_int(a.value) for a in nvml.ask(gpu.key, questions)]
        seen.update(s for s in speeds if not isinstance(s, Absent) and s > 0)
    return seen.most_common(1)[0][0] * MBYTES if seen else NOT_TOLD


def _pcie(nvml: Nvml, gpus: Sequence[Gpu]) -> Pcie | Absent:
    """The slowest of the cards, as it should train to."""
    told = [[as_int(a.value) for a in nvml.ask(gpu.key, PCIE)] for gpu in gpus]
    known = [Pcie(g, w) for g, w in told if not isinstance(g, Absent) and not isinstance(w, Absent)]
    if len(known) < len(told):
        return NOT_TOLD
    return min(known, key=lambda one: (one.generation, one.lanes), default=NOT_TOLD)
