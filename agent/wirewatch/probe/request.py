"""One probe on request: the same gate, but for the waiting, and repeated to confirm what it finds."""

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial

from wirewatch.core.ports import Hardware
from wirewatch.core.probe import ENGINES, MIB, Probed
from wirewatch.core.types import Expect, Finding, Health, worst
from wirewatch.probe.gate import Reason, Refusal, Stillness
from wirewatch.probe.history import History
from wirewatch.probe.judge import fold_probe
from wirewatch.probe.measurement import Measured
from wirewatch.probe.model import ProbeMemory, ProbeOptions, ProbePolicy
from wirewatch.probe.remote import LostOrder, RemoteProber
from wirewatch.probe.restore import accepted, boot_id, keep
from wirewatch.probe.setup import ProbeRequest, prepare
from wirewatch.probe.statefolder import StateFolder
from wirewatch.verdict.straggler.naming import NamedStragglers

SMALL = MIB
"""Sizes below this measure latency."""
LATE, ASKING = 0.8, 50.0
"""Seconds that a prober may take to answer after the end of a probe, and to ask all sources before it."""


@dataclass(frozen=True, slots=True)
class ProbeOverrides:
    """What is asked for; empty and None for what the configuration says."""

    ops: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    engine: str | None = None
    owner: str | None = None
    force: bool = False


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The last probe with what is believed after all of them, or why none ran.

    `measured`, and what is slow (`named`): by the last one alone.
    """

    at: float
    probed: Probed | None
    findings: tuple[Finding, ...]
    refusal: Refusal | None
    measured: tuple[Measured, ...] = ()
    named: NamedStragglers = field(default_factory=NamedStragglers)

    @property
    def health(self) -> Health:
        """A probe that did not run, or not to its end, shows nothing of the node."""
        if self.probed is None or self.probed.outcome != "ok":
            return Health.UNKNOWN
        return worst(self.findings)

    @property
    def why(self) -> str:
        """Why there is no result; empty where there is one."""
        return self.refusal.detail if self.refusal else self.probed.why if self.probed else ""


def probe_now(
    hardware: Hardware, options: ProbeOptions, policy: ProbePolicy, expect: Expect, wish: ProbeOverrides,
    state: StateFolder | None, end: float = math.inf, prober: RemoteProber | None = None,
) -> ProbeResult:  # fmt: skip
    """Probe once, and again as often as it takes to confirm what was found, as long as there is time.

    `end`: monotonic seconds at which a probe under way is killed; no second one is begun that would be.
    `prober` runs them where there is one.
    """
    wanted = ProbeRequest(_wanted(options, wish), "command", expect.nvlink_links, wish.owner, wish.force)
    run = _here(hardware, wanted) if prober is None else partial(_there, hardware, prober, wanted)
    if isinstance(run, Refusal):
        return ProbeResult(hardware.clock.now(), None, (), run)
    with ExitStack() as stack:
        history = History.open(state.history, hardware.clock) if state else None
        memory = ProbeMemory() if history is None else accepted(history, policy)
        other = stack.enter_context(hardware.probe.lock())
        if other is not None:
            return ProbeResult(hardware.clock.now(), None, (), Refusal(Reason.LOCKED, other))
        last: Probed | None = None
        confirm = max(1, policy.confirm, policy.straggler.confirm)
        for number in range(1, 1 + max(confirm, policy.straggler.sure)):
            left = end - hardware.clock.mono()
            if last is not None and left < last.seconds:
                break
            probed = run(left)
            if isinstance(probed, Refusal):
                # A second probe that is refused takes nothing from the first.
                refusal = None if last is not None else probed
                break
            last, refusal = probed, None
            if history is not None:
                at, mono = hardware.clock.now(), hardware.clock.mono()
                keep(history, probed, at, boot_id(hardware), "command", mono)
            memory = fold_probe(memory, replace(probed, forced=False), hardware.clock.mono(), policy)
            again = memory.unconfirmed or (memory.held and number < confirm)
            if probed.outcome != "ok" or not again:
                break
    at = hardware.clock.now() if last is None else last.at
    measured = memory.measured if last is not None and last.outcome == "ok" else ()
    return ProbeResult(at, last, memory.held, refusal, measured, memory.stragglers.named)


def _here(hardware: Hardware, wanted: ProbeRequest) -> Callable[[float], Probed] | Refusal:
    """Probes of this process, after one answer of the gate: each may last so many seconds."""
    order = prepare(hardware, wanted, Stillness()).order
    if isinstance(order, Refusal):
        return order
    return lambda left: hardware.probe.run(replace(order, deadline=max(0.0, min(order.deadline, left))))


def _there(hardware: Hardware, prober: RemoteProber, wanted: ProbeRequest, left: float) -> Probed | Refusal:
    """One probe by the prober, over in so many seconds; its gate is asked each time."""
    patience = min(left + LATE, wanted.options.kill_after + ASKING)
    within = None if math.isinf(left) else max(0.0, left)
    came = prober.run(replace(wanted, within=within), hardware.clock.mono() + patience)
    if isinstance(came, LostOrder):
        return Refusal(Reason.PROBER_AWAY, f"it went away in the middle of it: {came.why}")
    if isinstance(came, Refusal):
        return came
    if came.probed is None:
        return came.refusal or Refusal(Reason.PROBER_AWAY, "it gave no probe, and no reason")
    return came.probed


def _wanted(options: ProbeOptions, wish: ProbeOverrides) -> ProbeOptions:
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
