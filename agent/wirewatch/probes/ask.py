"""One probe on somebody's word: the same gate, but for the waiting, and a second look at what is wrong."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from wirewatch.core.ports import Hardware
from wirewatch.core.probing.order import Order
from wirewatch.core.probing.plan import ENGINES, MIB
from wirewatch.core.probing.result import Probed
from wirewatch.core.types import Absent, Expect, Finding, Health, worst
from wirewatch.probes.collector import NOWHERE, plan_of
from wirewatch.probes.facts import new_allocations, read_facts
from wirewatch.probes.gate import Facts, Reason, Refusal, Stillness, candidates, refuse
from wirewatch.probes.history import History
from wirewatch.probes.judge import take
from wirewatch.probes.keeping import accepted, boot_id, keep
from wirewatch.probes.policy import ProbeOptions, ProbePolicy
from wirewatch.probes.scene import Scene, cpu_scene, read_scene
from wirewatch.probes.state import State
from wirewatch.probes.values import Memory
from wirewatch.verdict.straggler.fold import Watch
from wirewatch.verdict.straggler.naming import Named
from wirewatch.verdict.straggler.references import References

SMALL = MIB
"""Sizes below this measure latency."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is asked for; empty and None for what the configuration says."""

    ops: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    engine: str | None = None
    owner: str | None = None
    force: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """What came of it: the last probe with what is believed after all of them, or why none ran.

    `named`: who is slow by the last one alone.
    """

    at: float
    probed: Probed | None
    findings: tuple[Finding, ...]
    refusal: Refusal | None
    named: Named = field(default_factory=Named)

    @property
    def health(self) -> Health:
        """A probe that did not run, or not to its end, tells nothing of the node."""
        if self.probed is None or self.probed.outcome != "ok":
            return Health.UNKNOWN
        return worst(self.findings)

    @property
    def why(self) -> str:
        """Why there is no result; empty where there is one."""
        return self.refusal.detail if self.refusal else self.probed.why if self.probed else ""


def ask(
    hardware: Hardware, options: ProbeOptions, policy: ProbePolicy, expect: Expect, wish: Wish,
    state: State | None, end: float = math.inf,
) -> Asked:  # fmt: skip
    """Probe once, and again as often as it takes to confirm what was found, as long as there is time.

    `end`: monotonic seconds at which a probe under way is killed; no second one is begun that would be.
    """
    options = _wanted(options, wish)
    prepared = _prepare(hardware, options, expect, wish)
    if isinstance(prepared, Refusal):
        return Asked(hardware.clock.now(), None, (), prepared)
    history = History.open(state.history, hardware.clock) if state else None
    past = accepted(history, policy) if history is not None else References()
    memory = Memory(stragglers=Watch(past))
    try:
        with hardware.probe.lock() as other:
            if other is not None:
                return Asked(hardware.clock.now(), None, (), Refusal(Reason.LOCKED, other))
            took = 0.0
            for number in range(max(1, policy.confirm, policy.straggler.confirm)):
                left = end - hardware.clock.mono()
                if number and left < took:
                    break
                probed = hardware.probe.run(
                    replace(prepared, deadline=max(0.0, min(prepared.deadline, left)))
                )
                took = probed.seconds
                if history is not None:
                    keep(history, probed, hardware.clock.now(), boot_id(hardware), "command")
                memory = take(memory, replace(probed, forced=False), hardware.clock.mono(), policy)
                if probed.outcome != "ok" or not (memory.held or memory.unconfirmed):
                    break
    finally:
        if history is not None:
            history.close()
    return Asked(probed.at, probed, memory.held, None, memory.stragglers.named)


def _wanted(options: ProbeOptions, wish: Wish) -> ProbeOptions:
    """The configuration, with what was asked for in its place."""
    runs = dict(options.bandwidth)
    usual = max(runs.values(), default=5)
    made = replace(options, ops=tuple(dict.fromkeys(wish.ops)) or options.ops, settle=0.0)
    if wish.engine in {"auto", *ENGINES}:
        made = replace(made, engine=wish.engine)  # type: ignore[arg-type]
    if wish.sizes:
        sizes = tuple(dict.fromkeys(wish.sizes))
        large = tuple((size, runs.get(size, usual)) for size in sizes if size >= SMALL)
        made = replace(made, bandwidth=large, latency_sizes=tuple(s for s in sizes if s < SMALL))
    return made


def _prepare(hardware: Hardware, options: ProbeOptions, expect: Expect, wish: Wish) -> Order | Refusal:
    engine = hardware.probe.engine(options.engine)
    if isinstance(engine, Absent):
        return Refusal(Reason.NO_ENGINE, engine.detail)
    if engine == "gloo" and options.engine == "gloo":
        return _order(options, engine, cpu_scene(options.ranks), wish, lambda: None)
    listed = hardware.nvml.gpus()
    if isinstance(listed, Absent):
        return Refusal(Reason.BLIND, f"the GPUs cannot be listed: {listed}")
    facts = read_facts(hardware, listed, slurm=True)
    gpus = candidates(facts, wish.owner)
    refusal = _refusal(facts, options, wish)
    if refusal is not None:
        return refusal
    scene = read_scene(hardware, gpus, hardware.probe.settings(), expect, options.pins)
    if isinstance(scene, Absent):
        return Refusal(Reason.BLIND, f"the topology cannot be read: {scene}")
    allocations = (lambda: None) if wish.force else new_allocations(hardware, gpus, facts)
    return _order(options, engine, scene, wish, allocations)


def _refusal(facts: Facts, options: ProbeOptions, wish: Wish) -> Refusal | None:
    """What the gate says; with `force` only that there is nothing to probe."""
    found = refuse(facts, Stillness(), options.rules(), wish.owner)
    return None if found is not None and wish.force and found.reason not in NOWHERE else found


def _order(
    options: ProbeOptions, engine: str, scene: Scene, wish: Wish, allocations: Callable[[], str | None]
) -> Order:
    return Order(
        plan=plan_of(options, engine, scene), gpus=scene.gpus, conditions=scene.conditions,
        settings=scene.settings, allocations=allocations, by="command", forced=wish.force,
        deadline=options.kill_after,
    )  # fmt: skip
