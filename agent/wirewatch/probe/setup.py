"""From a request to an order: groups of GPUs, their wires, NCCL's settings, the engine and the gate."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Literal

from wirewatch.collectors.topology import read_topology
from wirewatch.core.extras import install
from wirewatch.core.hostlink import HostPath, Pcie
from wirewatch.core.nvml import as_int, count_links, foreign_processes, link_speed
from wirewatch.core.ports import Gpu, Hardware, Nvml, Order
from wirewatch.core.probe import DTYPES, MIB, NOT_KNOWN, OPS, PRIMITIVES, Conditions, Plan, Probed
from wirewatch.core.topology import groups, islands
from wirewatch.core.types import Absent, Expect, Why, value_or
from wirewatch.nccl.settings import GDR_LEVEL, parse_nccl_conf, slowing_settings
from wirewatch.probe.gate import (
    GateFacts,
    Refusal,
    SkipReason,
    Stillness,
    candidates,
    new_allocations,
    new_holds,
    no_gpus,
    read_facts,
    refuse,
    watch_users,
)
from wirewatch.probe.hostpaths import HOST_BYTES, as_pcie, read_paths
from wirewatch.probe.model import ProbeOptions
from wirewatch.probe.network import (
    GDR_LEVELS,
    NETWORK_ONLY,
    PAIR,
    by_network,
    gpudirect_asked,
    is_rdma,
    nearest,
    rail_of,
    rail_settings,
    with_ports,
)  # fmt: skip

CONF = "/etc/nccl.conf"
OURS = frozenset(
    {"NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS", "NCCL_RAS_ENABLE", "NCCL_PROFILER_PLUGIN"}
)
"""Settings that the probe makes itself."""
MBYTES = 1e6
ITERATIONS = range(1, 10_001)
"""Timed runs of a size; a CUDA graph of small messages has as many nodes."""
_PLAN = Plan("", (), ())


@dataclass(frozen=True, slots=True)
class Variation:
    """The requested differences from a daemon's probe; None and empty: as the daemon.

    `ops`: any primitives in place of the configured collectives. `iterations`: timed runs of every size.
    `network`: P2P and shared memory are off in the worker, so that a network carries everything. `gpudirect`:
    whether NCCL may use GPUDirect RDMA. `rail`: the only RDMA port (`mlx5_0:1`) or network interface to use,
    by the two GPUs nearest to it.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid"}

    dtype: str | None = None
    in_place: bool | None = None
    iterations: int | None = None
    network: bool = False
    gpudirect: bool | None = None
    ops: tuple[str, ...] = ()
    rail: str = ""

    def wrong(self) -> str:
        """Return the first value that cannot be used, in words; empty when all can."""
        checks = (
            (set(self.ops) <= set(PRIMITIVES), f"ops are {', '.join(PRIMITIVES)}"),
            (self.dtype is None or self.dtype in DTYPES, f"dtypes are {', '.join(DTYPES)}"),
            (self.iterations in {None, *ITERATIONS}, f"iterations are 1 to {ITERATIONS[-1]}"),
        )
        return next((text for good, text in checks if not good), "")

    @property
    def environment(self) -> tuple[tuple[str, str], ...]:
        """Return NCCL's settings that override the worker's inherited settings."""
        level = () if self.gpudirect is None else ((GDR_LEVEL, GDR_LEVELS[self.gpudirect]),)
        return (*(NETWORK_ONLY if self.network else ()), *level, *rail_settings(self.rail))

    def of(self, plan: Plan) -> Plan:
        """Return the plan with the requested values in place of a daemon's."""
        runs = self.iterations
        return replace(
            plan,
            ops=self.ops or plan.ops,
            dtype=self.dtype or plan.dtype,
            in_place=plan.in_place if self.in_place is None else self.in_place,
            latency_iterations=runs or plan.latency_iterations,
            bandwidth=tuple((size, runs or count) for size, count in plan.bandwidth),
            environment=(*plan.environment, *self.environment),
        )

    @property
    def differences(self) -> tuple[str, ...]:
        """Return how such a probe differs from any of a daemon, in words; empty where it does not."""
        plan = self.of(_PLAN)
        others = [op for op in self.ops if op not in OPS]
        settings = " ".join(f"{name}={value}" for name, value in self.environment)
        found = (
            (bool(others), f"collectives that no daemon measures: {', '.join(others)}"),
            (plan.dtype != _PLAN.dtype, f"{plan.dtype} elements"),
            (not plan.in_place, "out of place"),
            (self.iterations is not None, f"{self.iterations} timed runs of each size"),
            (bool(self.environment), f"{'over the network, ' if self.network else ''}{settings}"),
        )
        return tuple(text for differs, text in found if differs)

    def missing_in(self, plan: Plan) -> tuple[str, ...]:
        """Return the requested parts that a recorded plan did not run, in words; sizes and runs apart."""
        asked = (
            (self.dtype is None or self.dtype == plan.dtype, f"dtype {self.dtype} (it is of {plan.dtype})"),
            (self.in_place in {None, plan.in_place}, "in place" if self.in_place else "out of place"),
            (not self.network or by_network(plan), "transport net"),
            (self.gpudirect in {None, gpudirect_asked(plan)}, "GPUDirect on or off"),
            (self.rail in {"", rail_of(plan)}, f"the NIC {self.rail}"),
        )
        return tuple(text for recorded, text in asked if not recorded)


DAEMONS = Variation()
"""No difference from a daemon's probe."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Groups by position in `ranks`, with the conditions of each; `settings` are NCCL's, environment first.

    `ranks` names the GPUs, or the processes of the gloo engine, which has no `gpus` and no conditions.
    `paths`: from each GPU to the host's memory.
    """

    ranks: tuple[str, ...]
    gpus: tuple[Gpu, ...]
    groups: tuple[tuple[int, ...], ...]
    conditions: tuple[Conditions, ...]
    settings: Mapping[str, str]
    paths: tuple[HostPath, ...] = ()


NOTHING_TO_PROBE = frozenset({SkipReason.FEW_GPUS, SkipReason.NO_ENGINE, SkipReason.MIG})
"""Reasons why this node has nothing to probe."""


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """The requested measurement, its holder, and its deadline.

    `links`: due NVLink links of a GPU, as the operator says. `owner` holds the GPUs and asks: they count as
    idle. `force`: beside other processes. `within`: seconds from now until the worker must be gone; None for
    no more than `options.kill_after`. `live`: whether the asker watches a machine, and not a recording.
    `variation`: a study's differences.
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
    """The facts of the gate, how long they have held, and the order, or why there is none."""

    facts: GateFacts
    still: Stillness
    order: Order | Refusal


REQUIREMENTS = {
    "nccl": f"nccl4py and cuda-core ({install('nccl')})",
    "torch": "torch with CUDA",
    "distributed": "torch with CUDA",
    "gloo": f"torch and numpy ({install('torch')})",
}
AUTO = ("nccl", "torch")
"""The engines that `auto` tries; gloo measures no GPU."""


def read_scene(
    hardware: Hardware, gpus: Sequence[Gpu], environment: Mapping[str, str], expect: Expect,
    pins: Mapping[str, float], *, network: bool = False,
) -> Scene | Absent:  # fmt: skip
    """The scene of some of the node's GPUs, in their order; `network`: with the node's RDMA ports."""
    whole = read_topology(hardware)
    if isinstance(whole, Absent):
        return whole
    keys = [gpu.key for gpu in gpus]
    part = replace(
        whole,
        gpus=tuple(gpu for gpu in whole.gpus if gpu.uuid in keys),
        nvlink=tuple(wires for wires in whole.nvlink if wires.uuid in keys),
        unread=tuple(uuid for uuid in whole.unread if uuid in keys),
    )
    settings = _settings(hardware, environment)
    rate, pcie = _link_rate(hardware.nvml, gpus), _pcie(hardware.nvml, gpus)
    found = groups(part, islands(part))
    if not found:
        return Absent(NOT_KNOWN.why, "no two GPUs whose place is known")
    same = Conditions(
        found[0], link_rate=rate, links=expect.nvlink_links, pcie=pcie, settings=settings, pins=dict(pins)
    )
    conditions = tuple(replace(same, group=group) for group in found)
    if network:
        conditions = with_ports(hardware, whole, conditions)
    places = tuple(tuple(keys.index(gpu.uuid) for gpu in group.gpus) for group in found)
    uuids = tuple(gpu.uuid for gpu in gpus)
    return Scene(uuids, tuple(gpus), places, conditions, settings, read_paths(hardware, gpus))


def cpu_scene(count: int) -> Scene:
    """Return the scene of ranks that are processes of this machine."""
    return Scene(tuple(f"cpu:{n}" for n in range(count)), (), (tuple(range(count)),), (), {})


def prepare(hardware: Hardware, wanted: ProbeRequest, still: Stillness) -> Prepared:
    """Ask all sources, Slurm's controller too, which answers for thousands of nodes."""
    order: Order | Refusal
    engine = hardware.probe.engine(wanted.options.engine)
    if isinstance(engine, Absent):
        return Prepared(no_gpus(hardware), still, Refusal(SkipReason.NO_ENGINE, engine.detail))
    if wanted.options.engine == "gloo":
        # It touches no GPU, so no process can be in its way.
        order = _order(wanted, engine, cpu_scene(wanted.options.ranks))
        return Prepared(no_gpus(hardware), still, order)
    listed = hardware.nvml.gpus()
    if isinstance(listed, Absent):
        order = Refusal(SkipReason.BLIND, f"the GPUs cannot be listed: {listed}")
        return Prepared(no_gpus(hardware), still, order)
    facts = read_facts(hardware, listed, slurm=True)
    still = watch_users(still, facts)
    refusal = refuse(facts, still, wanted.options.limits(), wanted.owner)
    if refusal and wanted.force and refusal.reason not in NOTHING_TO_PROBE:
        refusal = None
    return Prepared(facts, still, refusal or _gpu_order(hardware, wanted, engine, facts))


def plan_of(options: ProbeOptions, engine: str, scene: Scene) -> Plan:
    """The plan that the configuration makes of a scene."""
    return Plan(
        engine=engine, gpus=scene.ranks, groups=scene.groups, ops=options.ops,
        latency_sizes=options.latency_sizes, bandwidth=options.bandwidth,
        copy_bytes=256 * MIB if options.copies else 0, micro=options.micro,
        host_bytes=HOST_BYTES if options.host_links and scene.paths else 0,
        near=tuple(path.cpus for path in scene.paths) if options.host_links else (),
    )  # fmt: skip


def find_engine(wanted: str) -> str | Absent:
    """Return the engine of this name, or the first installed engine for `auto`."""
    names = AUTO if wanted == "auto" else (wanted,)
    missing = f"no engine: {' nor '.join(REQUIREMENTS[name] for name in names)} is installed"
    return next(filter(_is_here, names), Absent(Why.MISSING, missing))


def _settings(hardware: Hardware, environment: Mapping[str, str]) -> dict[str, str]:
    merged = {**parse_nccl_conf(value_or(hardware.sysfs.read(CONF), "")).settings, **environment}
    names = (name for name in sorted(merged) if name.startswith("NCCL_") and name not in OURS)
    return {_text(name): _text(merged[name]) for name in names}


def _text(text: str) -> str:
    """Return text that JSON can hold: an environment may hold any bytes."""
    return text.encode("utf-8", "replace").decode()


def _link_rate(nvml: Nvml, gpus: Sequence[Gpu]) -> float | Absent:
    """Return bytes per second of a link each way, as most links that are up show it."""
    seen: Counter[int] = Counter()
    for gpu in gpus:
        questions = [link_speed(link) for link in range(count_links(nvml, gpu.key))]
        speeds = [as_int(a.value) for a in nvml.ask(gpu.key, questions)]
        seen.update(s for s in speeds if not isinstance(s, Absent) and s > 0)
    return seen.most_common(1)[0][0] * MBYTES if seen else NOT_KNOWN


def _pcie(nvml: Nvml, gpus: Sequence[Gpu]) -> Pcie | Absent:
    """Return the slowest of the cards, at its full training."""
    links = [as_pcie(nvml, gpu) for gpu in gpus]
    known = [one for one in links if not isinstance(one, Absent)]
    if len(known) < len(links):
        return NOT_KNOWN
    return min(known, key=lambda one: (one.generation, one.lanes), default=NOT_KNOWN)


def _gpu_order(hardware: Hardware, wanted: ProbeRequest, engine: str, facts: GateFacts) -> Order | Refusal:
    gpus = candidates(facts, wanted.owner)
    expect = Expect(nvlink_links=wanted.links)
    read = partial(
        read_scene, hardware, environment=hardware.probe.settings(), expect=expect, pins=wanted.options.pins,
        network=wanted.variation.network,
    )  # fmt: skip
    scene, rail = read(gpus), wanted.variation.rail
    if rail and not isinstance(scene, Absent):
        near = nearest(scene.conditions[0], rail) if is_rdma(rail) else scene.ranks[:PAIR]
        scene = read([gpu for gpu in gpus if gpu.key in near])
    if isinstance(scene, Absent):
        return Refusal(SkipReason.BLIND, f"the topology cannot be read: {scene}")
    settings = {**scene.settings, **dict(rail_settings(rail))}
    scene = replace(scene, conditions=tuple(replace(one, settings=settings) for one in scene.conditions))
    given = new_allocations(hardware, gpus, facts)
    others = [gpu for gpu in gpus if gpu not in scene.gpus]

    def came() -> str | None:
        """Return who came; also to a GPU that the probe leaves alone: a job may send by the same NIC."""
        nvml, sysfs = hardware.nvml, hardware.sysfs
        used = (gpu.index for gpu in others if foreign_processes(nvml, sysfs, gpu) != frozenset())
        return given() or next((f"GPU {index}, beside the probe, may be in use" for index in used), None)

    holds = new_holds(hardware, gpus, facts, wanted.owner)
    return _order(wanted, engine, scene, (lambda: None) if wanted.force else came, holds)


def _order(
    wanted: ProbeRequest, engine: str, scene: Scene, allocations: Callable[[], str | None] = lambda: None,
    held: Callable[[], str | None] = lambda: None,
) -> Order:  # fmt: skip
    plan = wanted.variation.of(plan_of(wanted.options, engine, scene))
    return Order(
        plan=plan, gpus=scene.gpus, conditions=scene.conditions,
        settings=scene.settings, allocations=allocations, by=wanted.by, forced=wanted.force,
        deadline=wanted.options.kill_after, held=held, paths=scene.paths,
    )  # fmt: skip


def _is_here(name: str) -> bool:
    if name == "nccl":
        return all(map(_spec, ("nccl.bindings", "cuda.core", "cuda.bindings")))
    if name == "gloo":
        return _spec("torch") is not None
    torch = _spec("torch")
    places = torch.submodule_search_locations if torch else None
    return any(Path(place, "lib", "libtorch_cuda.so").exists() for place in places or ())


def _spec(module: str) -> ModuleSpec | None:
    """Return the module's spec, or None: a package around it is imported for this, and may be broken."""
    try:
        return find_spec(module)
    except (ImportError, AttributeError, OSError, RuntimeError, SyntaxError, ValueError):
        return None


Given = tuple[tuple[int | None, tuple[tuple[str, float], ...]], ...]


@dataclass(frozen=True, slots=True)
class ProbeTerms:
    """The terms that decide the result of a probe.

    `slowing`: NCCL's settings that lower bandwidth; `given`: links and pins of the operator, by group.
    """

    plan: Plan
    slowing: tuple[tuple[str, str, str], ...]
    given: Given
    boot_id: str


def read_terms(
    hardware: Hardware, options: ProbeOptions, expect: Expect, boot_id: str
) -> ProbeTerms | Absent:
    """Return the terms of the probe that would be ordered now, if the gate were open."""
    engine = hardware.probe.engine(options.engine)
    if isinstance(engine, Absent):
        return engine
    if options.engine == "gloo":
        return ProbeTerms(plan_of(options, engine, cpu_scene(options.ranks)), (), (), boot_id)
    gpus = hardware.nvml.gpus()
    if isinstance(gpus, Absent):
        return gpus
    scene = read_scene(hardware, gpus, hardware.probe.settings(), expect, options.pins)
    if isinstance(scene, Absent):
        return scene
    plan = plan_of(options, engine, scene)
    return ProbeTerms(plan, slowing_settings(scene.settings), _given(scene.conditions), boot_id)


def why_not_comparable(probed: Probed, boot_id: str, terms: ProbeTerms) -> str:
    """Return why a probe of that boot is not comparable, in words; empty where it is."""
    plan, wanted = probed.plan, terms.plan
    slowing = slowing_settings(probed.settings)
    others = f"of {len(plan.gpus)} GPUs, which are not the {len(wanted.gpus)} watched here"
    differ = sorted({name for name, _, _ in {*slowing} ^ {*terms.slowing}})
    checks = (
        (boot_id not in {"", terms.boot_id}, "before this boot"),
        (plan.engine != wanted.engine, f"with the engine {plan.engine}, not {wanted.engine}"),
        (plan.gpus != wanted.gpus, others),
        (plan.groups != wanted.groups, "over other groups of GPUs"),
        (
            _without_hosts(plan) != _without_hosts(wanted),
            "of other collectives or sizes than are configured here",
        ),
        (bool(differ), f"under other settings of NCCL: {', '.join(differ)}"),
        (_given(probed.conditions) != terms.given, "against other pins or counts of links"),
    )
    return next((why for wrong, why in checks if wrong), "")


def _without_hosts(plan: Plan) -> Plan:
    """Return the plan without host links, which change no collective and which older probes lack."""
    return replace(plan, host_bytes=0, near=())


def _given(conditions: tuple[Conditions, ...]) -> Given:
    return tuple((one.links, tuple(sorted(one.pins.items()))) for one in conditions)
