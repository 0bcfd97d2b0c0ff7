"""All that the page and the picture show, by simulation."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from proof.simulation.fit import Fitted, fit, scales
from proof.simulation.healthy import Run
from proof.simulation.noise import Scales, times
from proof.simulation.simulate import HORIZON, Alarms, Case, Outcome, faults, replayed, well
from wirewatch.core.statistics import low_median
from wirewatch.verdict.straggler.signals import Resource

SEED = "2026"
FACTORS = (1, 3)
"""Times the noise that was measured."""
PROBES: Mapping[int, int] = {2: 40_000, 4: 8_000, 8: 3_000}
"""Of healthy nodes, by GPUs, with each factor."""
TRIALS: Mapping[int, int] = {2: 200, 4: 80, 8: 16}
"""Nodes with each fault, by GPUs, with each factor."""
LOST = (0.02, 0.04, 0.05, 0.055, 0.06, 0.065, 0.07, 0.08, 0.1, 0.15, 0.2, 0.25, 0.27, 0.3, 0.5)
LOST_FROM_START = (0.05, 0.08, 0.1, 0.12, 0.15, 0.2, 0.3, 0.5)
ALONE = (Resource.COMPUTE, Resource.MEMORY, Resource.PAIR)
ENDS = (Resource.SOURCE, Resource.DESTINATION)


@dataclass(frozen=True, slots=True)
class Kind:
    """Of what outcomes are: noise times `factor`, GPUs, the part at fault, and whether it had a history."""

    factor: int
    count: int
    resource: Resource
    lost: float
    history: bool


@dataclass(frozen=True, slots=True)
class Results:
    """`runs`: of real probes, `spacing`: median seconds between them, `real`: what the detector made of them.

    `well`: of healthy nodes by factor and GPUs.
    """

    fitted: Sequence[Fitted]
    real: Alarms
    runs: int
    spacing: float
    well: Mapping[tuple[int, int], Alarms] = field(default_factory=dict)
    faults: Mapping[Kind, Sequence[Outcome]] = field(default_factory=dict)

    @property
    def scales(self) -> Scales:
        return scales(self.fitted)

    def of(
        self, factor: int, lost: float, *, history: bool = True, resource: Resource | None = None,
        count: int | None = None,
    ) -> tuple[Outcome, ...]:  # fmt: skip
        """Outcomes, of all resources and numbers of GPUs unless given."""
        return tuple(
            outcome
            for kind, outcomes in self.faults.items()
            if (kind.factor, kind.lost, kind.history) == (factor, lost, history)
            and resource in {None, kind.resource}
            and count in {None, kind.count}
            for outcome in outcomes
        )


def of_real(runs: Sequence[Run]) -> Results:
    """What needs no drawing."""
    pauses = [pause for run in runs for pause in run.pauses()]
    return Results(fit(runs), replayed(runs), len(runs), low_median(pauses))


def results(runs: Sequence[Run]) -> Results:
    real = of_real(runs)
    noise = {factor: times(real.scales, factor) for factor in FACTORS}
    healthy = {
        (factor, count): well(count, noise[factor], number, SEED)
        for factor in FACTORS
        for count, number in PROBES.items()
    }
    return replace(real, well=healthy, faults=dict(_faults(noise)))


def _faults(noise: Mapping[int, Scales]) -> Iterator[tuple[Kind, Sequence[Outcome]]]:
    for factor, scale in noise.items():
        for count, trials in TRIALS.items():
            for history in (True, False):
                cases = list(_cases(count, LOST if history else LOST_FROM_START))
                found = faults(count, scale, cases, trials, SEED, history=history)
                for (resource, lost), outcomes in found.items():
                    yield Kind(factor, count, resource, lost, history), outcomes


def _cases(count: int, losses: Sequence[float]) -> Iterator[Case]:
    """Of two GPUs a direction is one pair."""
    for resource in (*ALONE, *(ENDS if count > 2 else ())):
        yield from ((resource, lost) for lost in losses)


def quantile(delays: Sequence[int | None], part: float) -> int | None:
    """Of delays, the smallest by which this part has come; None: later than `HORIZON`."""
    known = sorted(HORIZON + 1 if one is None else one for one in delays)
    value = known[max(0, math.ceil(part * len(known)) - 1)]
    return None if value > HORIZON else value


def within(delays: Sequence[int | None], probes: int) -> float:
    """The part of them that came so soon."""
    return sum(one is not None and one <= probes for one in delays) / len(delays)
