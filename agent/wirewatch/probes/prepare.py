"""From what is wanted to an order, where the worker would run: the gate with all that it asks, the scene."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

from wirewatch.core.ports import Hardware, Order
from wirewatch.core.probe import MIB, Plan
from wirewatch.core.types import Absent, Expect
from wirewatch.probes.facts import new_allocations, nobody, read_facts
from wirewatch.probes.gate import Facts, Reason, Refusal, Stillness, candidates, refuse, watch_users
from wirewatch.probes.policy import ProbeOptions
from wirewatch.probes.scene import Scene, cpu_scene, read_scene

NOWHERE = frozenset({Reason.FEW_GPUS, Reason.NO_ENGINE, Reason.MIG})
"""Reasons for which there is nothing here to probe."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be measured, for whom, by when.

    `links`: how many NVLink links a GPU must have, by the operator's word. `owner` holds the GPUs and asks:
    they count as idle. `force`: beside whoever is there. `within`: seconds from now until the worker must be
    gone; None for no more than `options.kill_after`. `live`: whether who asks watches a machine, and not a
    recording.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid"}

    options: ProbeOptions
    by: Literal["daemon", "command"]
    links: int | None = None
    owner: str | None = None
    force: bool = False
    within: float | None = None
    live: bool = True


@dataclass(frozen=True, slots=True)
class Prepared:
    """What the gate saw, since when it is so, and the order, or why there is none."""

    facts: Facts
    still: Stillness
    order: Order | Refusal


def prepare(hardware: Hardware, wanted: Wanted, still: Stillness) -> Prepared:
    """Ask everybody, Slurm's controller too, which answers for thousands of nodes."""
    order: Order | Refusal
    engine = hardware.probe.engine(wanted.options.engine)
    if isinstance(engine, Absent):
        return Prepared(nobody(hardware), still, Refusal(Reason.NO_ENGINE, engine.detail))
    if wanted.options.engine == "gloo":
        # It touches no GPU, so nobody can be in its way.
        order = _order(wanted, engine, cpu_scene(wanted.options.ranks), lambda: None)
        return Prepared(nobody(hardware), still, order)
    listed = hardware.nvml.gpus()
    if isinstance(listed, Absent):
        order = Refusal(Reason.BLIND, f"the GPUs cannot be listed: {listed}")
        return Prepared(nobody(hardware), still, order)
    facts = read_facts(hardware, listed, slurm=True)
    still = watch_users(still, facts)
    return Prepared(facts, still, _refusal(facts, still, wanted) or _staged(hardware, wanted, engine, facts))


def _staged(hardware: Hardware, wanted: Wanted, engine: str, facts: Facts) -> Order | Refusal:
    gpus = candidates(facts, wanted.owner)
    expect = Expect(nvlink_links=wanted.links)
    scene = read_scene(hardware, gpus, hardware.probe.settings(), expect, wanted.options.pins)
    if isinstance(scene, Absent):
        return Refusal(Reason.BLIND, f"the topology cannot be read: {scene}")
    allocations = (lambda: None) if wanted.force else new_allocations(hardware, gpus, facts)
    return _order(wanted, engine, scene, allocations)


def _refusal(facts: Facts, still: Stillness, wanted: Wanted) -> Refusal | None:
    """What the gate says; with `force` only that there is nothing to probe."""
    found = refuse(facts, still, wanted.options.rules(), wanted.owner)
    return None if found is not None and wanted.force and found.reason not in NOWHERE else found


def _order(wanted: Wanted, engine: str, scene: Scene, allocations: Callable[[], str | None]) -> Order:
    return Order(
        plan=plan_of(wanted.options, engine, scene), gpus=scene.gpus, conditions=scene.conditions,
        settings=scene.settings, allocations=allocations, by=wanted.by, forced=wanted.force,
        deadline=wanted.options.kill_after,
    )  # fmt: skip


def plan_of(options: ProbeOptions, engine: str, scene: Scene) -> Plan:
    """The plan that the configuration makes of a scene."""
    return Plan(
        engine=engine, gpus=scene.ranks, groups=scene.groups, ops=options.ops,
        latency_sizes=options.latency_sizes, bandwidth=options.bandwidth,
        copy_bytes=256 * MIB if options.copies else 0, micro=options.micro,
    )  # fmt: skip
