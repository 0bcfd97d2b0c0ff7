"""The probe as a component: each turn it looks whether a probe is due and may run, and runs it."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from wirewatch.core.collector import Collector
from wirewatch.core.ports import Gpu, Hardware
from wirewatch.core.probing.order import Order
from wirewatch.core.probing.plan import MIB, Plan
from wirewatch.core.types import Absent, Expect
from wirewatch.probes import budget
from wirewatch.probes.facts import new_allocations, read_facts
from wirewatch.probes.gate import Facts, Reason, Refusal, Stillness, refuse, watch_users
from wirewatch.probes.judge import confirming, judge
from wirewatch.probes.policy import ProbeOptions, ProbePolicy
from wirewatch.probes.samples import METRICS, samples
from wirewatch.probes.scene import Scene, cpu_scene, read_scene
from wirewatch.probes.values import Memory, Reading

log = logging.getLogger(__name__)

NAME = "probe"
GUESS = 6.0
"""Seconds that a probe holds each GPU, before one has told."""
AGAIN = 60.0
"""Seconds after which a probe that found something new is repeated, to confirm or clear it."""
LATER = 300.0
"""Seconds until Slurm, the topology and the lock are asked again once one of them said no."""
NOWHERE = frozenset({Reason.FEW_GPUS, Reason.NO_ENGINE, Reason.MIG})
"""Reasons for which there is nothing here to probe."""


def read(hardware: Hardware, memory: Memory, options: ProbeOptions, *, expect: Expect) -> Reading | Absent:
    """One turn: a look, and a probe if one is due and may run."""
    if options.engine == "gloo":
        return _read_cpu(hardware, memory, options)
    gpus = hardware.nvml.gpus()
    if isinstance(gpus, Absent):
        return gpus
    engine = hardware.probe.engine(options.engine)
    due = hardware.clock.mono() >= when(memory, options, gpus)
    facts = read_facts(hardware, gpus, slurm=False)
    still = watch_users(memory.still, facts)
    refusal = _refusal(memory, options, engine, facts, still)
    if due and refusal is None and memory.late is not None and facts.mono - memory.late[0] < LATER:
        refusal = memory.late[1]
    reading = Reading(facts, still, engine, due, refusal)
    if not due or refusal is not None or isinstance(engine, Absent):
        return reading
    return _ask_the_rest(hardware, memory, options, expect, reading, engine)


def _ask_the_rest(
    hardware: Hardware, memory: Memory, options: ProbeOptions, expect: Expect, reading: Reading, engine: str
) -> Reading:
    """What is asked last and not every turn, since Slurm's controller answers for thousands of nodes."""
    gpus = tuple(use.gpu for use in reading.facts.uses)
    facts = read_facts(hardware, gpus, slurm=True)
    still = watch_users(memory.still, facts)
    asked = replace(reading, facts=facts, still=still, late=True)
    refusal = refuse(facts, still, options.rules())
    if refusal is not None:
        return replace(asked, refusal=refusal)
    scene = read_scene(hardware, gpus, hardware.probe.settings(), expect, options.pins)
    if isinstance(scene, Absent):
        return replace(asked, refusal=Refusal(Reason.BLIND, f"the topology cannot be read: {scene}"))
    return _probe(hardware, options, scene, asked, engine, new_allocations(hardware, gpus, facts))


def _read_cpu(hardware: Hardware, memory: Memory, options: ProbeOptions) -> Reading:
    """A turn of the gloo engine: it touches no GPU, so nobody can be in its way."""
    mono = hardware.clock.mono()
    engine = hardware.probe.engine(options.engine)
    refusal = Refusal(Reason.NO_ENGINE, engine.detail) if isinstance(engine, Absent) else None
    due = mono >= when(memory, options, ())
    reading = Reading(Facts((), (), None, mono), Stillness(), engine, due, refusal)
    if not due or isinstance(engine, Absent):
        return reading
    return _probe(hardware, options, cpu_scene(options.ranks), reading, engine, lambda: None)


def when(memory: Memory, options: ProbeOptions, gpus: Sequence[Gpu]) -> float:
    """When (monotonic seconds) the next probe is due.

    The first comes up to `settle` late, so that nodes that were started together do not ask Slurm together.
    """
    if memory.tried_mono is None:
        seen = min(memory.still.since.values(), default=0.0)
        return seen + budget.draw([gpu.key for gpu in gpus], 0) * options.settle
    every = min(AGAIN, options.every) if confirming(memory) else options.every
    return budget.due(memory.tried_mono, every, options.jitter, [gpu.key for gpu in gpus], memory.count())


def _refusal(
    memory: Memory, options: ProbeOptions, engine: str | Absent, facts: Facts, still: Stillness
) -> Refusal | None:
    found = refuse(facts, still, options.rules())
    if found is not None and found.reason in NOWHERE:
        return found
    if isinstance(engine, Absent):
        return Refusal(Reason.NO_ENGINE, engine.detail)
    if found is not None:
        return found
    held = memory.tried.held_seconds if memory.tried else 0.0
    cost = (held or GUESS) * len(facts.uses)
    left = budget.left(memory.spent, facts.mono, len(facts.uses), options.budget)
    # A budget below a single probe still allows one an hour.
    if left < cost and budget.spent_within(memory.spent, facts.mono):
        return Refusal(
            Reason.BUDGET, f"{left:.0f} GPU-seconds are left of this hour, a probe takes {cost:.0f}"
        )
    return None


def _probe(
    hardware: Hardware, options: ProbeOptions, scene: Scene, reading: Reading, engine: str,
    allocations: Callable[[], str | None],
) -> Reading:  # fmt: skip
    with hardware.probe.lock() as other:
        if other is not None:
            return replace(reading, refusal=Refusal(Reason.LOCKED, other))
        order = Order(
            plan=plan_of(options, engine, scene), gpus=scene.gpus, conditions=scene.conditions,
            settings=scene.settings, allocations=allocations, by="daemon", deadline=options.kill_after,
        )  # fmt: skip
        probed = hardware.probe.run(order)
    log.info("probe %s in %.1f s%s", probed.outcome, probed.seconds, f": {probed.why}" if probed.why else "")
    return replace(reading, probed=probed)


def plan_of(options: ProbeOptions, engine: str, scene: Scene) -> Plan:
    """The plan that the configuration makes of a scene."""
    return Plan(
        engine=engine, gpus=scene.ranks, groups=scene.groups, ops=options.ops,
        latency_sizes=options.latency_sizes, bandwidth=options.bandwidth,
        copy_bytes=256 * MIB if options.copies else 0, micro=options.micro,
    )  # fmt: skip


def applicable(reading: Reading) -> bool:
    """Whether there is something here to probe, and something to probe it with."""
    return reading.refusal is None or reading.refusal.reason not in NOWHERE


def probe_component(
    options: ProbeOptions, policy: ProbePolicy, expect: Expect, start: Memory | None = None
) -> Collector[Reading, Memory, ProbeOptions, ProbePolicy]:
    """The component, with what an earlier daemon remembered."""
    return Collector(
        name=NAME,
        about="a short run of NCCL's collectives on idle GPUs, against what this topology should give",
        lane="probe",
        options=options,
        policy=policy,
        metrics=METRICS,
        start=start or Memory(),
        read=partial(read, expect=expect),
        samples=samples,
        judge=lambda memory, ok, used, _expect: judge(options, memory, ok, used),
        applicable=applicable,
    )
