"""A sweep's results for NCCL's settings: each beside NCCL's own choice, on the same node and sizes. Pure.

Only a difference above the spread of the repeats counts. With many settings the odds of a chance winner are
shared among all contests, as in study.compare.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from statistics import fmean, median
from typing import Literal

from wirewatch.core.probe import ALL_GATHER, ALL_REDUCE, BROADCAST, REDUCE, REDUCE_SCATTER
from wirewatch.core.statistics import grouped
from wirewatch.nccl.lists import ALGO, PROTO
from wirewatch_lab.study.compare import CONTEST_ALPHA, Contest, contests, groups
from wirewatch_lab.study.curve import AUTO, Curve, Study
from wirewatch_lab.study.spread import Regime

Judged = Literal["faster", "slower", "same", "not judged"]
WORTH = 0.02
"""Least share of time that a setting must save, since settings outlive the software that they suit."""
_LISTED: Mapping[str, str] = {
    ALL_REDUCE: "allreduce", ALL_GATHER: "allgather", REDUCE_SCATTER: "reducescatter", BROADCAST: "broadcast",
    REDUCE: "reduce",
}  # fmt: skip
"""Names of operations in lists of NCCL_ALGO and NCCL_PROTO."""


class JobPurpose(Enum):
    """The main work of a job: `inference` has small messages, and `training` large messages."""

    INFERENCE = "inference"
    TRAINING = "training"

    @property
    def regime(self) -> Regime:
        """Return the sizes whose time decides."""
        return Regime.LATENCY if self is JobPurpose.INFERENCE else Regime.BANDWIDTH

    @property
    def heeded(self) -> tuple[Regime, ...]:
        """Return the sizes where a setting must not be slower; prefill and small buckets are middle sizes."""
        return self.regime, Regime.MIDDLE


@dataclass(frozen=True, slots=True)
class MeasuredSetting:
    """One setting beside NCCL's own choice, of one operation in one regime (sizes in bytes).

    `speed`: with the setting, as a share of that without; by the mean over all sizes. `at_bytes`: the size of
    the two medians, in seconds. `spread`: relative standard deviation of the repeats, of both, None from one
    repeat. `noise`: how much more time, as a share, may be noise, None from one repeat. `around`: other
    settings that the sweep was run with, so that NCCL's choice was not all its own.
    """

    name: str
    value: str
    op: str
    ranks: int
    launch: str
    registered: bool
    regime: Regime
    first_bytes: int
    last_bytes: int
    speed: float
    spread: tuple[float, float] | None
    verdict: Judged
    at_bytes: int
    without_seconds: float
    with_seconds: float
    source: str
    around: str = ""
    noise: float | None = None


@dataclass(frozen=True, slots=True)
class Winner:
    """The setting that a sweep favours, with its measurements."""

    name: str
    value: str
    measured: tuple[MeasuredSetting, ...]


def measured_settings(studies: Sequence[Study]) -> tuple[MeasuredSetting, ...]:
    """Return all settings of all studies, each at the most ranks that it shares with NCCL's own choice."""
    pairs = [(study, *pair) for study in studies for pair in _pairs(study)]
    alpha = CONTEST_ALPHA / max(1, len(pairs) * len(Regime))
    return tuple(
        _measured(study, contest, own, other)
        for study, own, other in pairs
        for contest in contests((own, other), alpha, study.curves)
    )


def winner(measured: Sequence[MeasuredSetting], purpose: JobPurpose) -> Winner | None:
    """Return the setting that saves most where it decides, saves enough, and is slower at no heeded size.

    Each setting was measured alone, so only one variable is set. Its lists for several collectives are
    independent of each other.
    """
    found = grouped(((one.name, one.value), one) for one in measured if one.regime in purpose.heeded)
    good = {key: all_of for key, all_of in found.items() if _good(all_of, purpose)}
    if not good:
        return None
    name, value = max(good, key=lambda key: _gain(good[key], purpose))
    if ":" not in value:
        return Winner(name, value, tuple(good[name, value]))
    best: dict[str, tuple[str, str]] = {}
    for key in sorted((one for one in good if one[0] == name), key=lambda one: _gain(good[one], purpose)):
        best[key[1].partition(":")[0]] = key
    together = ";".join(sorted(value for _, value in best.values()))
    return Winner(name, together, tuple(one for key in best.values() for one in good[key]))


def _good(measured: Sequence[MeasuredSetting], purpose: JobPurpose) -> bool:
    deciding = [one for one in measured if one.regime is purpose.regime and one.verdict == "faster"]
    worth = bool(deciding) and _gain(measured, purpose) >= math.log1p(WORTH)
    return worth and all(one.verdict in {"faster", "same"} for one in measured)


def _gain(measured: Sequence[MeasuredSetting], purpose: JobPurpose) -> float:
    return fmean(math.log(one.speed) for one in measured if one.regime is purpose.regime)


def _pairs(study: Study) -> list[tuple[Curve, Curve]]:
    """Return NCCL's own choice beside each single setting, at the most ranks that both have."""
    own_ones = [(own, group) for group in groups(study) for own in group if _is_own(own)]
    pairs = [(own, other) for own, group in own_ones for other in group if _setting(own, other) is not None]
    alike = grouped((_but_ranks(other), other.configuration.ranks) for _, other in pairs)
    return [pair for pair in pairs if pair[1].configuration.ranks == max(alike[_but_ranks(pair[1])])]


def _but_ranks(curve: Curve) -> tuple[object, ...]:
    return curve.op, replace(curve.configuration, ranks=0), curve.dtype, curve.in_place


def _is_own(curve: Curve) -> bool:
    one = curve.configuration
    return (one.algorithm, one.protocol, one.settings) == (AUTO, AUTO, ())


def _setting(own: Curve, other: Curve) -> tuple[str, str] | None:
    """Return name and value of the single setting in which a curve differs from NCCL's own choice."""
    a, b = own.configuration, other.configuration
    if (a.launch, a.registered) != (b.launch, b.registered):
        return None
    chosen = [(name, one) for name, one in ((ALGO, b.algorithm), (PROTO, b.protocol)) if one != AUTO]
    if chosen and own.op not in _LISTED:
        return None
    found = [*((name, f"{_LISTED[own.op]}:{one}") for name, one in chosen), *b.settings]
    return found[0] if len(found) == 1 else None


def _measured(study: Study, contest: Contest, own: Curve, other: Curve) -> MeasuredSetting:
    setting = _setting(own, other) or ("", "")
    first, last = contest.placings
    mine, theirs = (first, last) if first.configuration == own.configuration else (last, first)
    speed = (1 + mine.behind) / (1 + theirs.behind)
    spread = None if mine.spread is None or theirs.spread is None else (mine.spread, theirs.spread)
    judged: Judged = "faster" if mine.behind > 0 else "slower"
    verdict: Judged = "not judged" if spread is None else "same" if last.tied else judged
    at = contest.sizes[0 if contest.regime is Regime.LATENCY else -1]
    one, around = other.configuration, study.environment.get("nccl_settings", "none")
    return MeasuredSetting(
        name=setting[0], value=setting[1], op=other.op, ranks=one.ranks, launch=one.launch,
        registered=one.registered, regime=contest.regime, first_bytes=contest.sizes[0],
        last_bytes=contest.sizes[-1], speed=speed, spread=spread, verdict=verdict, at_bytes=at,
        without_seconds=_median(own, at), with_seconds=_median(other, at), source=study.source,
        around="" if around == "none" else around, noise=last.noise,
    )  # fmt: skip


def _median(curve: Curve, size_bytes: int) -> float:
    return next(median(point.seconds) for point in curve.points if point.size_bytes == size_bytes)
