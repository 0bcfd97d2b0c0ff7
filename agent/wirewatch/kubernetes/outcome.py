"""The result of a request, and when the next one is due. Pure: random numbers are passed in."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Self

from wirewatch.client import HttpReply
from wirewatch.core.types import Kind, Metric, Sample, Tier
from wirewatch.kubernetes.apiserver import message_of
from wirewatch.kubernetes.condition import Condition, ConditionStatus


class RequestResult(Enum):
    """The result of a request: the label `result` of a metric, and its `meaning`."""

    meaning: str

    def __new__(cls, label: str, meaning: str) -> Self:
        made = object.__new__(cls)
        made._value_, made.meaning = label, meaning
        return made

    OK = "ok", "written, or read after a start"
    NO_CREDENTIALS = (
        "no_credentials", "token or CA cannot be read, or the name of the API server is not known",
    )  # fmt: skip
    UNREACHABLE = "unreachable", "no answer in time, the connection broke, or TLS failed"
    UNAUTHORIZED = "unauthorized", "401: the token is not valid, or no longer; each request reads it again"
    FORBIDDEN = "forbidden", "403: the ServiceAccount may not `patch` `nodes/status`, or a policy forbids it"
    NOT_FOUND = "not_found", "404: there is no node of that name"
    CONFLICT = "conflict", "409: the node changed meanwhile, again and again"
    THROTTLED = "throttled", "429: the API server asks to wait, and the agent waits"
    REJECTED = "rejected", "another 4xx: the request is not accepted"
    SERVER_ERROR = "server_error", "5xx: the API server has a fault"
    STRANGE = "strange", "a redirect, or an answer that no API server gives"


_BY_STATUS = {
    401: RequestResult.UNAUTHORIZED,
    403: RequestResult.FORBIDDEN,
    404: RequestResult.NOT_FOUND,
    409: RequestResult.CONFLICT,
    429: RequestResult.THROTTLED,
}
_FOR_PEOPLE = frozenset(
    {RequestResult.FORBIDDEN, RequestResult.NOT_FOUND, RequestResult.REJECTED, RequestResult.STRANGE}
)
"""Only people can repair these, so the next try is later."""
FIRST, LONGEST, LONGEST_FOR_PEOPLE = 2.0, 60.0, 300.0
"""Seconds until a request is tried again: after the first failure, and at most."""
LONGEST_WAIT = 3600.0
"""Seconds; the longest wait that a server can ask for."""
SPREAD = 10.0
"""Seconds over which nodes that learn of the same thing at once spread their requests."""
MESSAGE_INTERVAL = 60.0
"""Seconds between two writes that change only reason and message."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """`retry_after` in seconds, None when the server does not say; `detail` for people."""

    result: RequestResult
    detail: str = ""
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Pace:
    """When the next request may be made, and when it is made at the latest (monotonic seconds).

    `failures` in a row; `wrote`: the last success, None for never.
    """

    earliest: float
    latest: float
    failures: int = 0
    wrote: float | None = None


_UNDRAWN = "Kubernetes only, where kube-state-metrics shows node conditions"
STATUS = Metric(
    "node_condition_status", Kind.GAUGE, ("status",),
    "1 for the status of the node condition that the agent reports; all 0 while there is none.",
    undrawn=_UNDRAWN,
)  # fmt: skip
TRANSITION = Metric(
    "node_condition_last_transition_timestamp_seconds", Kind.GAUGE, (),
    "Since when the node condition has this status; 0 while there is none.", undrawn=_UNDRAWN,
)  # fmt: skip
UPDATED = Metric(
    "node_condition_last_update_timestamp_seconds", Kind.GAUGE, (),
    "When the API server last accepted the node condition; 0 for never.", undrawn=_UNDRAWN, tier=Tier.CORE,
)  # fmt: skip
UPDATES = Metric(
    "node_condition_updates_total", Kind.COUNTER, ("result",), "Requests to the API server, by result.",
    undrawn=_UNDRAWN,
)  # fmt: skip
METRICS = (STATUS, TRANSITION, UPDATED, UPDATES)


@dataclass(frozen=True, slots=True)
class ConditionReport:
    """The condition, when it was last accepted (Unix seconds, 0 for never), and requests by result."""

    condition: Condition | None = None
    updated_at: float = 0.0
    updates: Mapping[RequestResult, int] = field(default_factory=lambda: dict.fromkeys(RequestResult, 0))


def outcome_of(reply: HttpReply, now: float) -> Outcome:
    """What a reply means that came at `now`, Unix seconds."""
    if 200 <= reply.status < 300:  # noqa: PLR2004
        return Outcome(RequestResult.OK)
    result = _BY_STATUS.get(reply.status)
    if result is None:
        by_class = {4: RequestResult.REJECTED, 5: RequestResult.SERVER_ERROR}
        result = by_class.get(reply.status // 100, RequestResult.STRANGE)
    text = message_of(reply.body)
    wait = retry_after(reply.headers.get("retry-after", ""), now)
    return Outcome(result, f"{reply.status}{f': {text}' if text else ''}", wait)


def retry_after(text: str, now: float) -> float | None:
    """Seconds that the server wants us to wait, given as such or as a date; None when it does not say."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(text).timestamp() - now
        except (ValueError, OverflowError):
            return None
    return min(max(seconds, 0.0), LONGEST_WAIT) if math.isfinite(seconds) else None


def begin(now: float, chance: float) -> Pace:
    """The pace of an agent that has just started; `chance` in [0, 1), here and below."""
    at = now + SPREAD * chance
    return Pace(at, at)


def succeeded(pace: Pace, now: float, heartbeat: float, chance: float) -> Pace:
    """After a write; `heartbeat`: seconds to the next one when nothing changes, give or take a tenth."""
    return replace(pace, earliest=now, latest=now + heartbeat * (0.9 + 0.2 * chance), failures=0, wrote=now)


def failed(pace: Pace, now: float, outcome: Outcome, chance: float) -> Pace:
    """After a failure: twice as long each time, half of it chance; never sooner than the server says."""
    longest = LONGEST_FOR_PEOPLE if outcome.result in _FOR_PEOPLE else LONGEST
    wait = min(longest, FIRST * 2.0 ** min(pace.failures, 16)) * (0.5 + 0.5 * chance)
    if outcome.retry_after is not None:
        wait = max(wait, outcome.retry_after + SPREAD * chance)
    return replace(pace, earliest=now + wait, latest=now + wait, failures=pace.failures + 1)


def changed(pace: Pace, now: float, chance: float, *, status: bool) -> Pace:
    """After a change: `status` for a new status, else only reason or message. Earlier waits are kept."""
    soonest = now + SPREAD * chance
    if not status and pace.wrote is not None:
        soonest = max(soonest, pace.wrote + MESSAGE_INTERVAL)
    return replace(pace, latest=min(pace.latest, max(pace.earliest, soonest)))


def samples(report: ConditionReport) -> Iterator[Sample]:
    """The series of the report."""
    mine = report.condition
    for status in ConditionStatus:
        yield STATUS.sample(mine is not None and mine.status is status, status.value.lower())
    yield TRANSITION.sample(mine.transition if mine else 0.0)
    yield UPDATED.sample(report.updated_at)
    for result, count in report.updates.items():
        yield UPDATES.sample(count, result.value)
