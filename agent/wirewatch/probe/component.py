"""The probe as a component: each turn it looks whether a probe is due and may run, and runs it."""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from wirewatch.collectors import discover
from wirewatch.collectors.lockstep import NAME, LockstepFacts
from wirewatch.core.collector import UNKNOWN, AnyCollector, Collector, Component, Rule, blind_rule
from wirewatch.core.ports import Gpu, Hardware
from wirewatch.core.probe import Probed
from wirewatch.core.types import Absent, Expect
from wirewatch.probe import model
from wirewatch.probe.gate import Facts, Reason, Refusal, Stillness, nobody, read_facts, refuse, watch_users
from wirewatch.probe.judge import RULES, confirming, judge
from wirewatch.probe.metrics import METRICS, samples
from wirewatch.probe.model import Memory, ProbeOptions, ProbePolicy, Reading, complete
from wirewatch.probe.remote import Elsewhere, Vanished, vanished
from wirewatch.probe.setup import NOWHERE, Wanted, prepare
from wirewatch.verdict.drift.component import Around, DriftOptions, drift_component
from wirewatch.verdict.drift.watch import DriftPolicy
from wirewatch.verdict.ledger import LOST

log = logging.getLogger(__name__)
PROBE_NAME = "probe"
GUESS = 6.0
"""Seconds that a probe holds each GPU, before one has told."""
AGAIN = 60.0
"""Seconds after which a probe that found something new is repeated, to confirm or clear it."""
ANSWERED, IN_TIME = 0.95, 0.8
"""Part of the turn's deadline by which a prober must have answered; of what is left, that of its worker."""
LATER = 300.0
"""Seconds until Slurm, the topology and the lock are asked again once one of them said no."""
AT_ONCE = 1e-3
"""Seconds between probes while one is wanted: the gate and the budget alone decide."""


class Hints:
    """When a hint was last seen (monotonic seconds): from who looks at jobs to who probes.

    Each of the two has a thread of its own; the value between them is replaced as a whole.
    """

    def __init__(self) -> None:
        self._mono: float | None = None

    def heard(self, collector: AnyCollector) -> AnyCollector:
        """The collector, which tells of its hints from now on; any other as it is."""
        offered = collector.facts
        if collector.name != NAME or offered is None:
            return collector

        def facts(reading: Any, memory: Any) -> object:
            known = offered(reading, memory)
            if isinstance(known, LockstepFacts) and known.last_hint is not None:
                self._mono = known.last_hint.last.mono
            return known

        return replace(collector, facts=facts)

    def wanted(self, memory: Memory) -> bool:
        """Whether no probe was tried since the newest hint."""
        mono = self._mono
        return mono is not None and (memory.tried_mono is None or memory.tried_mono < mono)

    def hastening(
        self, component: Collector[Reading, Memory, ProbeOptions, ProbePolicy]
    ) -> Collector[Reading, Memory, ProbeOptions, ProbePolicy]:
        """The probe's component, due at once after a hint; it waits for idle GPUs as ever."""

        def read(hardware: Hardware, memory: Memory, options: ProbeOptions) -> Reading | Absent:
            soon = replace(options, every=AT_ONCE) if self.wanted(memory) else options
            return component.read(hardware, memory, soon)

        return replace(component, read=read)


POINTLESS = frozenset({Reason.FEW_GPUS, Reason.MIG})
"""No engine is not one of them: the node could be probed, and nobody knows what would come of it."""


@dataclass(frozen=True, slots=True)
class ProbeSummary:
    """The newest complete probe that counts; forced ones and those that were broken off do not.

    `at`: when it began, Unix seconds, 0 for never; `age_seconds`: since it ended, None for never; `fresh`:
    whether its results still say something about now. `complete`: such probes since start; `clean`: the
    newest was of GPUs and found nothing at all. `watched`: whether there is something here to probe, and
    something to probe it with; `pointless`: there is nothing to probe. Neither says so before it is known.
    """

    at: float = 0.0
    age_seconds: float | None = None
    fresh: bool = False
    complete: int = 0
    clean: bool = False
    watched: bool = True
    pointless: bool = False


def read(
    hardware: Hardware, memory: Memory, options: ProbeOptions, *, expect: Expect,
    prober: Elsewhere | None = None,
) -> Reading | Absent:  # fmt: skip
    """One turn: a look, and a probe if one is due and may run; both by `prober` where there is one."""
    until = hardware.clock.mono() + ANSWERED * options.deadline
    gpus: Sequence[Gpu] | Absent = () if options.engine == "gloo" else hardware.nvml.gpus()
    if isinstance(gpus, Absent):
        return gpus
    due = hardware.clock.mono() >= when(memory, options, gpus)
    reading = (
        _look(hardware, memory, options, gpus, due=due)
        if prober is None
        else _look_elsewhere(hardware, prober, memory, options, gpus, until, due=due)
    )
    if due and reading.refusal is None and memory.late is not None:
        told, refusal = memory.late
        if reading.facts.mono - told < LATER:
            reading = replace(reading, refusal=refusal)
    if not due or reading.refusal is not None:
        return reading
    wanted = Wanted(options, "daemon", expect.nvlink_links)
    with hardware.probe.lock() as other:
        if other is not None:
            return replace(reading, refusal=Refusal(Reason.LOCKED, other), late=True)
        if prober is None:
            return _probe(hardware, wanted, reading)
        return _probe_elsewhere(hardware, prober, wanted, reading, until)


def when(memory: Memory, options: ProbeOptions, gpus: Sequence[Gpu]) -> float:
    """When (monotonic seconds) the next probe is due.

    The first comes up to `settle` late, so that nodes that were started together do not ask Slurm together.
    """
    if memory.tried_mono is None:
        seen = min(memory.still.since.values(), default=0.0)
        return seen + model.draw([gpu.key for gpu in gpus], 0) * options.settle
    every = min(AGAIN, options.every) if confirming(memory) else options.every
    return model.due(memory.tried_mono, every, options.jitter, [gpu.key for gpu in gpus], memory.count())


def applicable(reading: Reading) -> bool:
    """Whether there is something here to probe, and something to probe it with."""
    return reading.refusal is None or reading.refusal.reason not in NOWHERE


def probe_component(
    options: ProbeOptions, policy: ProbePolicy, expect: Expect, start: Memory | None = None,
    prober: Elsewhere | None = None,
) -> Collector[Reading, Memory, ProbeOptions, ProbePolicy]:  # fmt: skip
    """The component, with what an earlier daemon remembered; `prober` runs its probes where there is one."""
    return Collector(
        name=PROBE_NAME,
        about="a short run of NCCL's collectives on idle GPUs, against what this topology should give",
        lane="probe",
        options=options,
        policy=policy,
        metrics=METRICS,
        start=start or Memory(),
        read=partial(read, expect=expect, prober=prober),
        samples=samples,
        judge=lambda memory, ok, used, _expect: judge(options, memory, ok, used),
        applicable=applicable,
        rules=RULES,
        series=188,
    )


def probe_summary(component: Component | None, mono: float) -> ProbeSummary | None:
    """What the probe's component knows at `mono`, monotonic seconds; None where probing is switched off."""
    if component is None or component.name != PROBE_NAME or not isinstance(component.memory, Memory):
        return None
    return of_memory(component.memory, mono, watched=component.applicable is not False)


def of_memory(memory: Memory, mono: float, *, watched: bool = True) -> ProbeSummary:
    """What a memory tells at `mono`, monotonic seconds."""
    count, clean = complete(memory)
    pointless = memory.refusal is not None and memory.refusal.reason in POINTLESS
    if memory.last is None or memory.last_mono is None:
        return ProbeSummary(complete=count, watched=watched, pointless=pointless)
    return ProbeSummary(
        at=memory.last.at,
        age_seconds=max(0.0, mono - memory.last_mono),
        # Asked of the clock: a component that turns no more would be fresh for ever.
        fresh=memory.fresh_until is not None and mono <= memory.fresh_until,
        complete=count,
        clean=clean,
        watched=watched,
        pointless=pointless,
    )


def components() -> tuple[AnyCollector, ...]:
    """Every component with its defaults."""
    return (
        *discover(),
        probe_component(ProbeOptions(), ProbePolicy(), Expect()),
        drift_component(DriftOptions(), DriftPolicy(), Around()),
    )


def rules() -> tuple[Rule, ...]:
    """Every rule that a finding can carry."""
    every = components()
    own = (rule for one in every for rule in one.rules)
    blind = (Rule(blind_rule(one.name), UNKNOWN) for one in every)
    return (*own, *blind, Rule(LOST, UNKNOWN))


def rule_of(name: str, among: Iterable[Rule] | None = None) -> Rule | None:
    """The rule by that name, else the first whose pattern has it; None where nobody declared it."""
    known = rules() if among is None else tuple(among)
    exact = (one for one in known if one.name == name)
    return next(exact, None) or next((one for one in known if fnmatchcase(name, one.name)), None)


def _look(
    hardware: Hardware, memory: Memory, options: ProbeOptions, gpus: Sequence[Gpu], *, due: bool
) -> Reading:
    engine = hardware.probe.engine(options.engine)
    facts = read_facts(hardware, gpus, slurm=False) if gpus else nobody(hardware)
    return _seen(memory, options, engine, facts, due=due)


def _seen(memory: Memory, options: ProbeOptions, engine: str | Absent, facts: Facts, *, due: bool) -> Reading:
    still = watch_users(memory.still, facts)
    return Reading(facts, still, engine, due, _refusal(memory, options, engine, facts, still))


def _probe(hardware: Hardware, wanted: Wanted, reading: Reading) -> Reading:
    """What is asked last and not every turn comes first."""
    prepared = prepare(hardware, wanted, reading.still)
    asked = replace(reading, facts=prepared.facts, still=prepared.still, late=True)
    if isinstance(prepared.order, Refusal):
        return replace(asked, refusal=prepared.order)
    return _told(asked, hardware.probe.run(prepared.order))


def _look_elsewhere(
    hardware: Hardware, prober: Elsewhere, memory: Memory, options: ProbeOptions, gpus: Sequence[Gpu],
    until: float, *, due: bool,
) -> Reading:  # fmt: skip
    looked = prober.look(options.engine, until)
    refusal = looked if isinstance(looked, Refusal) else looked.refusal
    if isinstance(looked, Refusal) or looked.facts is None:
        # Whose users are not seen may have changed them: they have to be still anew.
        engine = memory.engine if isinstance(looked, Refusal) else looked.engine
        return Reading(nobody(hardware), Stillness(), engine, due, refusal)
    reading = _seen(memory, options, looked.engine, _now(hardware, looked.facts), due=due)
    there, here = ({gpu.key for gpu in side} for side in ((use.gpu for use in looked.facts.uses), gpus))
    if there == here:
        return reading
    odd = f"the prober sees {len(there)} GPUs, this agent {len(here)}, and they are not the same"
    return replace(reading, refusal=Refusal(Reason.BLIND, odd))


def _probe_elsewhere(
    hardware: Hardware, prober: Elsewhere, wanted: Wanted, reading: Reading, until: float
) -> Reading:
    within = IN_TIME * (until - hardware.clock.mono())
    came = prober.attempt(replace(wanted, within=within), until)
    asked = replace(reading, late=True)
    if isinstance(came, Refusal):
        return replace(asked, refusal=came)
    if isinstance(came, Vanished):
        engine = "" if isinstance(reading.engine, Absent) else reading.engine
        gpus = [use.gpu for use in reading.facts.uses]
        return _told(asked, vanished(came, engine, gpus, hardware.clock.now()))
    facts = _now(hardware, came.facts)
    asked = replace(asked, facts=facts, still=watch_users(reading.still, facts), refusal=came.refusal)
    return asked if came.probed is None else _told(asked, came.probed)


def _now(hardware: Hardware, facts: Facts) -> Facts:
    """Facts by this process's clock, which another container may not share."""
    return replace(facts, mono=hardware.clock.mono())


def _told(reading: Reading, probed: Probed) -> Reading:
    log.info("probe %s in %.1f s%s", probed.outcome, probed.seconds, f": {probed.why}" if probed.why else "")
    return replace(reading, probed=probed)


def _refusal(
    memory: Memory, options: ProbeOptions, engine: str | Absent, facts: Facts, still: Stillness
) -> Refusal | None:
    # The gloo engine touches no GPU, so nobody can be in its way.
    found = None if options.engine == "gloo" else refuse(facts, still, options.rules())
    if isinstance(engine, Absent) and (found is None or found.reason not in NOWHERE):
        return Refusal(Reason.NO_ENGINE, engine.detail)
    if found is not None or options.engine == "gloo":
        return found
    held = memory.tried.held_seconds if memory.tried else 0.0
    cost = (held or GUESS) * len(facts.uses)
    left = model.left(memory.spent, facts.mono, len(facts.uses), options.budget)
    # A budget below a single probe still allows one an hour.
    if left < cost and model.spent_within(memory.spent, facts.mono):
        return Refusal(
            Reason.BUDGET, f"{left:.0f} GPU-seconds are left of this hour, a probe takes {cost:.0f}"
        )
    return None
