"""From a request to an order: groups of GPUs, their wires, NCCL's settings, the engine and the gate."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Literal

from wirewatch.collectors.topology import read_topology
from wirewatch.core.nvml import as_int, count_links, link_speed
from wirewatch.core.ports import Gpu, Hardware, Nvml, Order, Question
from wirewatch.core.probe import MIB, NOT_KNOWN, Conditions, Pcie, Plan
from wirewatch.core.topology import Topology, groups, islands
from wirewatch.core.types import Absent, Expect, Why
from wirewatch.nccl.settings import parse_nccl_conf
from wirewatch.probe.gate import (
    GateFacts,
    Reason,
    Refusal,
    Stillness,
    candidates,
    new_allocations,
    no_gpus,
    read_facts,
    refuse,
    watch_users,
)
from wirewatch.probe.model import ProbeOptions
from wirewatch.probe.network import with_ports
from wirewatch.probe.variation import DAEMONS, Variation

CONF = "/etc/nccl.conf"
OURS = frozenset(
    {"NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS", "NCCL_RAS_ENABLE", "NCCL_PROFILER_PLUGIN"}
)
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


NOTHING_TO_PROBE = frozenset({Reason.FEW_GPUS, Reason.NO_ENGINE, Reason.MIG})
"""Reasons for which there is nothing here to probe."""


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """What shall be measured, for which holder, by when.

    `links`: how many NVLink links a GPU must have, as the operator says. `owner` holds the GPUs and asks:
    they count as idle. `force`: beside other processes. `within`: seconds from now until the worker must be
    gone; None for no more than `options.kill_after`. `live`: whether the asker watches a machine, and not a
    recording. `variation`: what a study measures otherwise.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid"}

    options: ProbeOptions
    by: Literal["daemon", "command"]
    links: int | None = None
    owner: str | None = None
    force: bool = False
    within: float | None = None
    live: bool = True
    variation: Variation = DAEMONS


@dataclass(frozen=True, slots=True)
class Prepared:
    """What the gate saw, since when it is so, and the order, or why there is none."""

    facts: GateFacts
    still: Stillness
    order: Order | Refusal


REQUIREMENTS = {
    "nccl": "nccl4py and cuda-core (pip install 'wirewatch[nccl]')",
    "torch": "torch with CUDA",
    "distributed": "torch with CUDA",
    "gloo": "torch and numpy (pip install 'wirewatch[torch]')",
}
AUTO = ("nccl", "torch")
"""What `auto` tries; gloo measures no GPU."""


def read_scene(
    hardware: Hardware, gpus: Sequence[Gpu], environment: Mapping[str, str], expect: Expect,
    pins: Mapping[str, float], *, network: bool = False,
) -> Scene | Absent:  # fmt: skip
    """The scene of some of the node's GPUs, in their order; `network`: with the node's RDMA ports."""
    whole = read_topology(hardware)
    if isinstance(whole, Absent):
        return whole
    keys = [gpu.key for gpu in gpus]
    part = _only(whole, frozenset(keys))
    settings = _settings(hardware, environment)
    rate, pcie = _link_rate(hardware.nvml, gpus), _pcie(hardware.nvml, gpus)
    found = groups(part, islands(part))
    if not found:
        return Absent(NOT_KNOWN.why, "no two GPUs whose place is known")
    conditions = tuple(
        Conditions(
            group,
            link_rate=rate,
            links=expect.nvlink_links,
            pcie=pcie,
            settings=settings,
            pins=dict(pins),
        )
        for group in found
    )
    return Scene(
        ranks=tuple(gpu.uuid for gpu in gpus),
        gpus=tuple(gpus),
        groups=tuple(tuple(keys.index(gpu.uuid) for gpu in group.gpus) for group in found),
        conditions=with_ports(hardware, whole, conditions) if network else conditions,
        settings=settings,
    )


def cpu_scene(count: int) -> Scene:
    """Ranks that are processes of this machine."""
    return Scene(tuple(f"cpu:{n}" for n in range(count)), (), (tuple(range(count)),), (), {})


def prepare(hardware: Hardware, wanted: ProbeRequest, still: Stillness) -> Prepared:
    """Ask all sources, Slurm's controller too, which answers for thousands of nodes."""
    order: Order | Refusal
    engine = hardware.probe.engine(wanted.options.engine)
    if isinstance(engine, Absent):
        return Prepared(no_gpus(hardware), still, Refusal(Reason.NO_ENGINE, engine.detail))
    if wanted.options.engine == "gloo":
        # It touches no GPU, so no process can be in its way.
        order = _order(wanted, engine, cpu_scene(wanted.options.ranks), lambda: None)
        return Prepared(no_gpus(hardware), still, order)
    listed = hardware.nvml.gpus()
    if isinstance(listed, Absent):
        order = Refusal(Reason.BLIND, f"the GPUs cannot be listed: {listed}")
        return Prepared(no_gpus(hardware), still, order)
    facts = read_facts(hardware, listed, slurm=True)
    still = watch_users(still, facts)
    return Prepared(
        facts, still, _refusal(facts, still, wanted) or _gpu_order(hardware, wanted, engine, facts)
    )


def plan_of(options: ProbeOptions, engine: str, scene: Scene) -> Plan:
    """The plan that the configuration makes of a scene."""
    return Plan(
        engine=engine, gpus=scene.ranks, groups=scene.groups, ops=options.ops,
        latency_sizes=options.latency_sizes, bandwidth=options.bandwidth,
        copy_bytes=256 * MIB if options.copies else 0, micro=options.micro,
    )  # fmt: skip


def find_engine(wanted: str) -> str | Absent:
    """The engine of this name, or the first that is here for `auto`."""
    names = AUTO if wanted == "auto" else (wanted,)
    for name in names:
        if _is_here(name):
            return name
    return Absent(
        Why.MISSING, f"no engine: {' nor '.join(REQUIREMENTS[name] for name in names)} is installed"
    )


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
    merged = {**conf, **environment}
    names = (name for name in sorted(merged) if name.startswith("NCCL_") and name not in OURS)
    return {_text(name): _text(merged[name]) for name in names}


def _text(text: str) -> str:
    """Text that JSON can hold: an environment may hold any bytes."""
    return text.encode("utf-8", "replace").decode()


def _link_rate(nvml: Nvml, gpus: Sequence[Gpu]) -> float | Absent:
    """Bytes per second of a link each way, as most links that are up show it."""
    seen: Counter[int] = Counter()
    for gpu in gpus:
        questions = [link_speed(link) for link in range(count_links(nvml, gpu.key))]
        speeds = [as_int(a.value) for a in nvml.ask(gpu.key, questions)]
        seen.update(s for s in speeds if not isinstance(s, Absent) and s > 0)
    return seen.most_common(1)[0][0] * MBYTES if seen else NOT_KNOWN


def _pcie(nvml: Nvml, gpus: Sequence[Gpu]) -> Pcie | Absent:
    """The slowest of the cards, as it should train to."""
    links = [[as_int(a.value) for a in nvml.ask(gpu.key, PCIE)] for gpu in gpus]
    known = [Pcie(g, w) for g, w in links if not isinstance(g, Absent) and not isinstance(w, Absent)]
    if len(known) < len(links):
        return NOT_KNOWN
    return min(known, key=lambda one: (one.generation, one.lanes), default=NOT_KNOWN)


def _gpu_order(hardware: Hardware, wanted: ProbeRequest, engine: str, facts: GateFacts) -> Order | Refusal:
    gpus = candidates(facts, wanted.owner)
    expect = Expect(nvlink_links=wanted.links)
    network = wanted.variation.network
    scene = read_scene(
        hardware, gpus, hardware.probe.settings(), expect, wanted.options.pins, network=network
    )
    if isinstance(scene, Absent):
        return Refusal(Reason.BLIND, f"the topology cannot be read: {scene}")
    allocations = (lambda: None) if wanted.force else new_allocations(hardware, gpus, facts)
    return _order(wanted, engine, scene, allocations)


def _refusal(facts: GateFacts, still: Stillness, wanted: ProbeRequest) -> Refusal | None:
    """What the gate says; with `force` only that there is nothing to probe."""
    found = refuse(facts, still, wanted.options.limits(), wanted.owner)
    return None if found is not None and wanted.force and found.reason not in NOTHING_TO_PROBE else found


def _order(wanted: ProbeRequest, engine: str, scene: Scene, allocations: Callable[[], str | None]) -> Order:
    plan = wanted.variation.of(plan_of(wanted.options, engine, scene))
    return Order(
        plan=plan, gpus=scene.gpus, conditions=scene.conditions,
        settings=scene.settings, allocations=allocations, by=wanted.by, forced=wanted.force,
        deadline=wanted.options.kill_after,
    )  # fmt: skip


def _is_here(name: str) -> bool:
    if name == "nccl":
        return _has("nccl.bindings") and _has("cuda.core") and _has("cuda.bindings")
    if name == "gloo":
        return _has("torch")
    torch = _spec("torch")
    places = torch.submodule_search_locations if torch else None
    return any(Path(place, "lib", "libtorch_cuda.so").exists() for place in places or ())


def _has(module: str) -> bool:
    return _spec(module) is not None


def _spec(module: str) -> ModuleSpec | None:
    """Packages around a module are imported by this, and one of them may be broken."""
    try:
        return find_spec(module)
    except (ImportError, AttributeError, OSError, RuntimeError, SyntaxError, ValueError):
        return None
