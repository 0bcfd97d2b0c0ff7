"""What came to the web hook against what a row says: a pure function of notices and times."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from proof.rehearsal.expected import CRITICAL, TICKET, Alert, Row
from proof.rehearsal.receiver import Notice


@dataclass(frozen=True, slots=True)
class Times:
    """Unix seconds: when the fault began, when it was over, and what the operator did about it then.

    `acted` is `over` where nobody had to do anything.
    """

    began: float
    over: float
    acted: float


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds at most until an alert fires, and until it is cleared; by alert."""

    fires: Mapping[str, float]
    clears: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Told:
    """An alert that was expected: seconds from the fault until it fired, from its end until it was over."""

    alert: str
    fired: float | None
    cleared: float | None


@dataclass(frozen=True, slots=True)
class Judged:
    """Nothing in `troubles` is a pass."""

    told: tuple[Told, ...]
    troubles: tuple[str, ...]


UNSURE = 3.0
"""Seconds within which it is not known when a play began: as long as a recording takes to load."""
RECEIVERS = {CRITICAL: "page", TICKET: "ticket"}
"""Who is told, by deploy/prometheus/alertmanager.yml."""
Life = Sequence[Notice]
"""The notices of one alert, in their order; firing and resolved take turns."""


def lives(notices: Sequence[Notice]) -> list[Life]:
    """One for each set of labels. Alertmanager says the same again whenever its group changes."""
    by_labels: dict[frozenset[tuple[str, str]], list[Notice]] = {}
    for notice in sorted(notices, key=lambda one: one.at):
        by_labels.setdefault(frozenset(notice.labels.items()), []).append(notice)
    return [[next(same) for _, same in groupby(told, lambda one: one.firing)] for told in by_labels.values()]


def judge(row: Row, notices: Sequence[Notice], times: Times, limits: Limits) -> Judged:
    """Whether just these alerts fired for this fault, in time, and are over."""
    every = lives(notices)
    of: dict[Alert, list[Life]] = {
        alert: [life for life in every if alert.is_told_by(life[0])] for alert in row.every
    }
    known = [life for found in of.values() for life in found]
    known += [life for life in every if any(alert.is_told_by(life[0]) for alert in row.besides)]
    strange = [f"{named(life[0])} fired, and should not" for life in every if life not in known]
    told, troubles = [], strange
    for alert, found in of.items():
        since = times.over if alert in row.later else times.began
        told.append(_told(alert, found, since, times))
        troubles += _wrong(alert, found, since, times, limits)
    return Judged(tuple(told), tuple(troubles))


def _told(alert: Alert, found: Sequence[Life], since: float, times: Times) -> Told:
    if not found:
        return Told(str(alert), None, None)
    life = found[0]
    end = next((one.at for one in life if not one.firing), None)
    return Told(str(alert), life[0].at - since, None if end is None else end - times.acted)


def _wrong(
    alert: Alert, found: Sequence[Life], since: float, times: Times, limits: Limits
) -> Iterator[str]:  # fmt: skip
    if not found:
        yield f"{alert} never fired"
        return
    if len(found) > 1:
        yield f"{alert} fired {len(found)} times over: {', '.join(named(life[0]) for life in found)}"
    for life in found:
        yield from _of_life(alert, life, since, times, limits)


def _of_life(alert: Alert, life: Life, since: float, times: Times, limits: Limits) -> Iterator[str]:
    if (receiver := RECEIVERS[alert.severity]) != life[0].receiver:
        yield f"{alert} went to {life[0].receiver}, not to {receiver}"
    first, ends = life[0], [one.at for one in life if not one.firing]
    late = first.at - since - limits.fires[str(alert)]
    if not first.firing:
        yield f"{alert} was cleared without having fired"
        return
    if first.at < since - UNSURE:
        yield f"{alert} fired {since - first.at:.1f} s before its fault"
    elif late > 0:
        yield f"{alert} fired {first.at - since:.1f} s after its fault, {late:.1f} s too late"
    if len(life) > 2:
        yield f"{alert} came and went {len(life)} times"
    if not ends:
        yield f"{alert} was never cleared"
        return
    if ends[0] < times.over - UNSURE:
        yield f"{alert} was cleared {times.over - ends[0]:.1f} s before its fault was over"
    late = ends[0] - times.acted - limits.clears[str(alert)]
    if late > 0:
        yield f"{alert} was cleared {ends[0] - times.acted:.1f} s after that, {late:.1f} s too late"


def named(notice: Notice) -> str:
    """An alert in words."""
    shown = ("rule", "gpu", "link", "device", "port", "collector")
    place = ", ".join(f"{key} {notice.labels[key]}" for key in shown if notice.labels.get(key))
    return f"{notice.name} {notice.labels.get('severity', '')}{f' ({place})' if place else ''}"
