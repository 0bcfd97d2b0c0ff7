"""Probes of the same GPUs, one after the other, side by side: engines, or GPUDirect on and off. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from wirewatch.core.probe import Probed
from wirewatch.core.types import Finding, Health, worst
from wirewatch.probe.gate import Reason, Refusal
from wirewatch.probe.measurement import GPU_ENGINES, Measured, not_as_asked
from wirewatch.probe.setup import REQUIREMENTS


@dataclass(frozen=True, slots=True)
class ProbeRun:
    """One of several probes, by the name of what differs; without a probe, why it did not run."""

    name: str
    probed: Probed | None = None
    measured: tuple[Measured, ...] = ()
    findings: tuple[Finding, ...] = ()
    refusal: Refusal | None = None

    @property
    def has_no_engine(self) -> bool:
        """Whether its engine is not installed."""
        return self.refusal is not None and self.refusal.reason is Reason.NO_ENGINE

    @property
    def problem(self) -> str:
        """Why it is not compared; empty where it is."""
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
        """What it shows about the node; an engine that is not installed shows nothing, and is not a fault."""
        if self.has_no_engine:
            return Health.OK
        if self.probed is None or self.probed.outcome != "ok" or not_as_asked(self.probed):
            return max(Health.UNKNOWN, worst(self.findings))
        return worst(self.findings)


@dataclass(frozen=True, slots=True)
class RunDifference:
    """By what share the busbw of a run differs from that of the run `against`.

    Spreads: of single timed runs, highest less lowest busbw as a share of the mean; None where they were not
    timed one by one. `beyond`: whether the difference is more than both spreads; None where one is not known.
    """

    op: str
    size_bytes: int
    gpus: str
    run: str
    against: str
    share: float
    spread: float | None
    against_spread: float | None

    @property
    def beyond(self) -> bool | None:
        if self.spread is None or self.against_spread is None:
            return None
        return abs(self.share) > max(self.spread, self.against_spread)


def run_differences(runs: Sequence[ProbeRun], against: str = "") -> tuple[RunDifference, ...]:
    """All runs that can be compared, with the run `against` if there is one of that name, else the first."""
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
                share, spreads = one.busbw / other.busbw - 1, (run_spread(one), run_spread(other))
                found.append(
                    RunDifference(one.op, one.size_bytes, one.gpus, run.name, base.name, share, *spreads)
                )
    return tuple(found)


def run_spread(one: Measured) -> float | None:
    """Highest less lowest busbw of single runs, as a share of the mean; None for no or one single run."""
    return (one.best - one.lowest) / one.busbw if one.busbw > 0 and one.best > one.lowest else None


def runs_health(runs: Sequence[ProbeRun]) -> Health:
    """UNKNOWN where nothing ran, else the worst of all."""
    ran = any(run.probed is not None and run.probed.outcome == "ok" for run in runs)
    return max((run.health for run in runs), default=Health.UNKNOWN) if ran else Health.UNKNOWN
