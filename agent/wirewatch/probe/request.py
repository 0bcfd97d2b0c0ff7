"""Probes on request: the gate without settling time; repeated to confirm, or several side by side."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product

from wirewatch.core import words
from wirewatch.core.ports import Hardware
from wirewatch.core.probe import (
    ALL_REDUCE,
    ENGINES,
    MIB,
    OFF,
    ON,
    OPS,
    Case,
    Conditions,
    Difference,
    Plan,
    Probed,
    Timed,
)
from wirewatch.core.types import Absent, Expect, Finding, Health
from wirewatch.probe.gate import Refusal, SkipReason, Stillness
from wirewatch.probe.history import History
from wirewatch.probe.judge import fold_probe
from wirewatch.probe.measurement import GPU_ENGINES, Measured, health_of, not_as_asked
from wirewatch.probe.model import ProbeMemory, ProbeOptions, ProbePolicy
from wirewatch.probe.remote import LostOrder, RemoteProber
from wirewatch.probe.restore import accepted, boot_id, keep
from wirewatch.probe.setup import DAEMONS, REQUIREMENTS, ProbeRequest, Variation, prepare, read_scene
from wirewatch.statefolder import StateFolder
from wirewatch.verdict.straggler.naming import NamedStragglers

SMALL = MIB
"""Sizes below this measure latency."""
LATE, ASKING = 0.8, 50.0
"""Seconds that a prober may take to answer after the end of a probe, and to ask all sources before it."""
ENGINES_SIZES = (256 * MIB,)
"""The size of the comparison of engines unless sizes are given."""
GPUDIRECT_SIZES = (104_856, *(size * MIB for size in (1, 4, 16, 64, 256)))
"""0.1, 1, 4, 16, 64 and 256 MB of 2^20 bytes, in whole elements: for GPUDirect on and off."""
Start = Callable[[float], Probed | Refusal]
"""Runs one probe that must end within a number of seconds."""


@dataclass(frozen=True, slots=True)
class ProbeOverrides:
    """The request; empty and None for the values of the configuration.

    `engines`: several, side by side. `gpudirect`: with it on, off, or both side by side.
    """

    ops: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    engine: str | None = None
    owner: str | None = None
    force: bool = False
    variation: Variation = DAEMONS
    engines: tuple[str, ...] = ()
    gpudirect: tuple[bool, ...] = ()

    @property
    def varied(self) -> Variation:
        """Return the variation with the collectives, where a daemon cannot measure all of them."""
        return replace(self.variation, ops=self.ops) if set(self.ops) - set(OPS) else self.variation

    @property
    def study(self) -> tuple[str, ...]:
        """Return how the probe differs from any of a daemon, in words; empty where it does not."""
        side_by_side = (f"engines {', '.join(self.engines)} side by side",) if self.engines else ()
        if self.gpudirect:
            words = " and ".join("on" if on else "off" for on in self.gpudirect)
            side_by_side = (*side_by_side, f"GPUDirect {words}")
        return (*side_by_side, *self.varied.differences)

    def several(self) -> Iterator[tuple[str, "ProbeOverrides"]]:
        """Return the probes to run side by side, by the name of the difference; none for a single probe."""
        for engine in self.engines:
            sizes = self.sizes or ENGINES_SIZES
            yield engine, replace(self, engine=engine, engines=(), ops=self.ops or OPS, sizes=sizes)
        for on in self.gpudirect:
            variation = replace(self.variation, gpudirect=on)
            sizes, ops = self.sizes or GPUDIRECT_SIZES, self.ops or (ALL_REDUCE,)
            one = replace(self, gpudirect=(), variation=variation, sizes=sizes, ops=ops)
            yield ON if on else OFF, one


@dataclass(frozen=True, slots=True)
class ProbeRun:
    """One of several probes, by the name of its difference; without a probe, why it did not run."""

    name: str
    probed: Probed | None = None
    measured: tuple[Measured, ...] = ()
    findings: tuple[Finding, ...] = ()
    refusal: Refusal | None = None

    @property
    def has_no_engine(self) -> bool:
        """Return whether its engine is not installed."""
        return self.refusal is not None and self.refusal.reason is SkipReason.NO_ENGINE

    @property
    def problem(self) -> str:
        """Return why it is not compared; empty where it is."""
        if self.has_no_engine and self.name in REQUIREMENTS:
            return f"not installed: it needs {REQUIREMENTS[self.name]}"
        if self.probed is None:
            return f"{self.refusal.reason.value}: {self.refusal.detail}" if self.refusal else "not run"
        if self.probed.outcome != "ok":
            return f"{self.probed.outcome}: {self.probed.why}"
        if self.probed.plan.engine not in GPU_ENGINES:
            return "it measures this machine's processors, not its GPUs"
        return not_as_asked(self.probed)

    @property
    def health(self) -> Health:
        """Return the node's health by this run; a missing engine shows nothing and is no fault."""
        if self.has_no_engine:
            return Health.OK
        return health_of(self.probed, self.findings)


def run_differences(runs: Sequence[ProbeRun], against: str = "") -> tuple[Difference, ...]:
    """Return all comparable runs beside the run `against`, or beside the first if no run has that name."""
    named = any(run.name == against for run in runs)
    able = [run for run in runs if not run.problem]
    base = next((run for run in able if not named or run.name == against), None)
    if base is None:
        return ()
    known = {(one.op, one.size_bytes, one.gpus): one for one in base.measured if one.busbw > 0}
    found = []
    for run in able:
        for one in run.measured if run is not base else ():
            other = known.get((one.op, one.size_bytes, one.gpus))
            if other is not None:
                share, own, others = one.busbw / other.busbw - 1, run_spread(one), run_spread(other)
                beyond = None if own is None or others is None else abs(share) > max(own, others)
                what = (one.op, one.size_bytes, one.gpus, run.name, base.name)
                found.append(Difference(*what, share, own, others, beyond))
    return tuple(found)


def run_spread(one: Measured) -> float | None:
    """Return highest less lowest busbw of single runs, as a share of the mean; None for 0 or 1 run."""
    return (one.best - one.lowest) / one.busbw if one.busbw > 0 and one.best > one.lowest else None


def runs_health(runs: Sequence[ProbeRun]) -> Health:
    """Return UNKNOWN where nothing ran, else the worst of all."""
    ran = any(run.probed is not None and run.probed.outcome == "ok" for run in runs)
    return max((run.health for run in runs), default=Health.UNKNOWN) if ran else Health.UNKNOWN


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The last probe with the findings after all of them, or why none ran.

    `measured` and `named` (slow parts) are of the last probe alone. `study`: how it differs from a daemon's
    probe. `not_recorded`: requested parts that the recording lacks. `runs`: the probes side by side; then
    `probed` is the first that came to its end. `conditions`: of a probe over the network.
    """

    at: float
    probed: Probed | None
    findings: tuple[Finding, ...]
    refusal: Refusal | None
    measured: tuple[Measured, ...] = ()
    named: NamedStragglers = field(default_factory=NamedStragglers)
    study: tuple[str, ...] = ()
    not_recorded: tuple[str, ...] = ()
    runs: tuple[ProbeRun, ...] = ()
    conditions: tuple[Conditions, ...] = ()

    @property
    def health(self) -> Health:
        """UNKNOWN at least where the probe did not run, not to its end, or not in the requested way."""
        return runs_health(self.runs) if self.runs else health_of(self.probed, self.findings)

    @property
    def why(self) -> str:
        """Return why there is no result; empty where there is one."""
        return self.refusal.detail if self.refusal else self.probed.why if self.probed else ""


def probe_now(
    hardware: Hardware, options: ProbeOptions, policy: ProbePolicy, expect: Expect, wish: ProbeOverrides,
    state: StateFolder | None, end: float = math.inf, prober: RemoteProber | None = None,
) -> ProbeResult:  # fmt: skip
    """Probe once, and again as often as a confirmation needs, as long as there is time.

    `end`: monotonic seconds at which a running probe is killed; no further probe begins that would be killed.
    `prober` runs them where there is one. A study is not kept, and is judged by no history.
    """
    if wish.study:
        # It measures what is asked for, and nothing beside it.
        options = replace(options, copies=False, micro=False, host_links=False)
    start = partial(_start, hardware, options, expect, prober)
    several = tuple(wish.several())
    found = (
        _side_by_side(hardware, policy, start, several, end)
        if several
        else _confirmed(hardware, policy, start, wish, None if wish.study else state, end)
    )
    if wish.variation.network and found.probed is None:
        found = replace(found, conditions=_conditions(hardware, options, expect))
    return replace(found, study=wish.study)


def _confirmed(
    hardware: Hardware, policy: ProbePolicy, start: Callable[[ProbeOverrides], Start | Refusal],
    wish: ProbeOverrides, state: StateFolder | None, end: float,
) -> ProbeResult:  # fmt: skip
    run = start(wish)
    if isinstance(run, Refusal):
        return _refused(hardware, run, wish)
    history = History.open(state.history, hardware.clock) if state else None
    memory = ProbeMemory() if history is None else accepted(history, policy)
    with hardware.probe.lock() as other:
        if other is not None:
            return _refused(hardware, Refusal(SkipReason.LOCKED, other), wish)
        last: Probed | None = None
        missing: tuple[str, ...] = ()
        confirm = max(1, policy.confirm, policy.straggler.confirm)
        for number in range(1, 1 + max(confirm, policy.straggler.sure)):
            left = end - hardware.clock.mono()
            if last is not None and left < last.seconds:
                break
            came = run(left)
            if isinstance(came, Refusal):
                # A second probe that is refused takes nothing from the first.
                refusal = None if last is not None else came
                break
            probed, missing = _asked(came, wish)
            if probed is None:
                return ProbeResult(hardware.clock.now(), None, (), None, not_recorded=missing)
            last, refusal = probed, None
            if history is not None:
                clock = hardware.clock
                keep(history, probed, clock.now(), boot_id(hardware), "command", clock.mono())
            memory = fold_probe(memory, replace(probed, forced=False), hardware.clock.mono(), policy)
            again = memory.unconfirmed or (memory.held and number < confirm)
            if probed.outcome != "ok" or not again:
                break
    at = hardware.clock.now() if last is None else last.at
    measured = memory.measured if last is not None and last.outcome == "ok" else ()
    named = memory.stragglers.named
    return ProbeResult(at, last, memory.held, refusal, measured, named, not_recorded=missing)


def _side_by_side(
    hardware: Hardware, policy: ProbePolicy, start: Callable[[ProbeOverrides], Start | Refusal],
    several: Sequence[tuple[str, ProbeOverrides]], end: float,
) -> ProbeResult:  # fmt: skip
    """Run each once, under one lock, and each through the gate; a probe that gives way to a user ends all."""
    runs: list[ProbeRun] = []
    with hardware.probe.lock() as other:
        shut = None if other is None else Refusal(SkipReason.LOCKED, other)
        for name, wish in several:
            if shut is None:
                runs.append(_one(hardware, policy, start, name, wish, end))
                shut = _shut(runs[-1])
            else:
                runs.append(ProbeRun(name, refusal=shut))
    first = next((run for run in runs if run.probed and run.probed.outcome == "ok"), None)
    first = first or next((run for run in runs if run.probed), runs[0])
    at = hardware.clock.now() if first.probed is None else first.probed.at
    said = ((run.name, one) for run in runs for one in run.findings)
    findings = tuple(replace(one, evidence=f"{name}: {one.evidence}") for name, one in said)
    return ProbeResult(at, first.probed, findings, first.refusal, first.measured, runs=tuple(runs))


def _one(
    hardware: Hardware, policy: ProbePolicy, start: Callable[[ProbeOverrides], Start | Refusal], name: str,
    wish: ProbeOverrides, end: float,
) -> ProbeRun:  # fmt: skip
    run = start(wish)
    came = run if isinstance(run, Refusal) else run(end - hardware.clock.mono())
    if isinstance(came, Refusal):
        return ProbeRun(name, refusal=came)
    memory = fold_probe(ProbeMemory(), replace(came, forced=False), hardware.clock.mono(), policy)
    return ProbeRun(name, came, memory.measured, memory.held)


def _shut(run: ProbeRun) -> Refusal | None:
    """Return why no further probe begins after this run; a missing engine does not stop the others."""
    if run.probed is None:
        return None if run.has_no_engine else run.refusal
    reason = {"preempted": SkipReason.BUSY, "stuck": SkipReason.LOCKED}.get(run.probed.outcome)
    return Refusal(reason, run.probed.why) if reason else None


def _refused(hardware: Hardware, refusal: Refusal, wish: ProbeOverrides) -> ProbeResult:
    """Return the refusal; in a recording an unrecorded engine is listed as not recorded."""
    recorded = hardware.source != "live" and refusal.reason is SkipReason.NO_ENGINE
    missing = (f"engine {wish.engine}",) if recorded and wish.engine not in {None, "auto"} else ()
    return ProbeResult(hardware.clock.now(), None, (), refusal, not_recorded=missing)


def _start(
    hardware: Hardware, options: ProbeOptions, expect: Expect, prober: RemoteProber | None,
    wish: ProbeOverrides,
) -> Start | Refusal:  # fmt: skip
    wanted = ProbeRequest(
        _wanted(options, wish), "command", expect.nvlink_links, wish.owner, wish.force,
        variation=wish.varied,
    )  # fmt: skip
    return _here(hardware, wanted) if prober is None else partial(_there, hardware, prober, wanted)


def _here(hardware: Hardware, wanted: ProbeRequest) -> Start | Refusal:
    """Return a function for probes of this process, after one answer of the gate; its argument is seconds."""
    order = prepare(hardware, wanted, Stillness()).order
    if isinstance(order, Refusal):
        return order

    def run(left: float) -> Probed | Refusal:
        probed = hardware.probe.run(replace(order, deadline=max(0.0, min(order.deadline, left))))
        others = probed.by == "recording" and set(probed.plan.gpus) != set(order.plan.gpus)
        if wanted.owner is not None and others:
            why = f"the recorded probe is of {len(probed.plan.gpus)} GPUs, not of the {len(order.plan.gpus)}"
            return Refusal(SkipReason.BLIND, f"{why} that {wanted.owner} holds")
        return probed

    return run


def _there(hardware: Hardware, prober: RemoteProber, wanted: ProbeRequest, left: float) -> Probed | Refusal:
    """Run one probe by the prober, within a number of seconds; its gate is asked each time."""
    patience = min(left + LATE, wanted.options.kill_after + ASKING)
    within = None if math.isinf(left) else max(0.0, left)
    came = prober.run(replace(wanted, within=within), hardware.clock.mono() + patience)
    if isinstance(came, LostOrder):
        return Refusal(SkipReason.PROBER_AWAY, f"it went away in the middle of it: {came.why}")
    if isinstance(came, Refusal):
        return came
    if came.probed is None:
        return came.refusal or Refusal(SkipReason.PROBER_AWAY, "it gave no probe, and no reason")
    return came.probed


def _conditions(hardware: Hardware, options: ProbeOptions, expect: Expect) -> tuple[Conditions, ...]:
    """Return the conditions of all GPUs with the RDMA ports, for an expectation where no probe could run."""
    gpus = hardware.nvml.gpus()
    if isinstance(gpus, Absent):
        return ()
    scene = read_scene(hardware, gpus, hardware.probe.settings(), expect, options.pins, network=True)
    return () if isinstance(scene, Absent) else scene.conditions


def _wanted(options: ProbeOptions, wish: ProbeOverrides) -> ProbeOptions:
    """Return the configuration with the requested values in place."""
    runs = dict(options.bandwidth)
    usual = max(runs.values(), default=5)
    ops = () if wish.varied.ops else tuple(dict.fromkeys(wish.ops))
    made = replace(options, ops=ops or options.ops, settle=0.0)
    if wish.engine in {"auto", *ENGINES}:
        made = replace(made, engine=wish.engine)  # type: ignore[arg-type]
    if wish.sizes:
        sizes = tuple(dict.fromkeys(wish.sizes))
        large = tuple((size, runs.get(size, usual)) for size in sizes if size >= SMALL)
        made = replace(made, bandwidth=large, latency_sizes=tuple(s for s in sizes if s < SMALL))
    return made


def _asked(probed: Probed, wish: ProbeOverrides) -> tuple[Probed | None, tuple[str, ...]]:
    """Return the requested part of a recorded probe and list what it lacks; any other probe whole."""
    recorded = probed.by == "recording"
    return only_asked(probed, wish.ops, wish.sizes, wish.variation) if recorded else (probed, ())


def only_asked(
    probed: Probed, ops: Sequence[str], sizes: Sequence[int], variation: Variation
) -> tuple[Probed | None, tuple[str, ...]]:
    """Return the probe with the requested collectives and sizes (bytes) alone; without a request, all of it.

    It is None where it holds none of the requested measurements. The second value lists missing parts in
    words.
    """
    if probed.document is None:
        return probed, ()
    missing = variation.missing_in(probed.plan)
    if missing:
        return None, missing
    held = probed.document.collectives
    of_op = [one for one in held if not ops or one.op in ops]
    named = [one for one in of_op if not sizes or one.size_bytes in sizes]
    runs = variation.iterations
    kept = tuple(one for one in named if runs is None or _runs(probed.plan, one) == runs)
    missing = _missing(held, ops, sizes)
    if len(kept) < len(named):
        others = sorted({_runs(probed.plan, one) for one in named} - {runs})
        missing += (f"{runs} timed runs (it has {', '.join(map(str, others))})",)
    if held and not kept:
        return None, missing
    return (probed if len(kept) == len(held) else _without_others(probed, kept)), missing


def _runs(plan: Plan, timed: Timed) -> int:
    """Return the planned number of timed runs of a measurement."""
    cases = (case.iterations for case in plan.cases if _key(case) == _key(timed))
    return next(cases, dict(plan.bandwidth).get(timed.size_bytes, plan.latency_iterations))


def _key(one: Timed | Case) -> tuple[int, str, int, str]:
    return one.group, one.op, one.size_bytes, one.launch


def _missing(held: Sequence[Timed], ops: Sequence[str], sizes: Sequence[int]) -> tuple[str, ...]:
    has_ops, has_sizes = {one.op for one in held}, {one.size_bytes for one in held}
    both = {(one.op, one.size_bytes) for one in held}
    asked = product(ops or sorted(has_ops), sizes)
    lacking = (one for one in asked if one[0] in has_ops and one[1] in has_sizes and one not in both)
    return (
        *(f"op {op}" for op in ops if op not in has_ops),
        *(f"size {words.size(size)}" for size in sizes if size not in has_sizes),
        *(f"{op} of {words.size(size)}" for op, size in lacking),
    )


def _without_others(probed: Probed, kept: tuple[Timed, ...]) -> Probed:
    """Return the probe without counts of incomplete collectives: a count covers all sizes of a collective."""
    assert probed.document is not None  # noqa: S101 - the caller has looked
    plan, held = probed.plan, probed.document.collectives
    ops, sizes, keys = {one.op for one in kept}, {one.size_bytes for one in kept}, set(map(_key, kept))
    partly = {f"{one.op}.{one.group}" for one in held if one not in kept}
    return replace(
        probed,
        plan=replace(
            plan,
            ops=tuple(op for op in plan.ops if op in ops),
            latency_sizes=tuple(size for size in plan.latency_sizes if size in sizes),
            bandwidth=tuple((size, runs) for size, runs in plan.bandwidth if size in sizes),
            cases=tuple(case for case in plan.cases if _key(case) in keys),
        ),
        document=replace(probed.document, collectives=kept),
        parts=tuple(part for part in probed.parts if part.name not in partly),
    )
