"""The grounds of a check, and the answer that follows from them. Imported in milliseconds."""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from wirewatch.core.answer import answer_line
from wirewatch.core.exits import exit_of
from wirewatch.core.types import FAIL_ON, Finding, Health, Subject
from wirewatch.core.words import count, each_text, short_span
from wirewatch.documents.health import (
    HEALTH_NAMES,
    CheckDocument,
    CheckFinding,
    GateOrder,
    NodeFinding,
    NodeGpu,
    ProbeStatus,
)

HEALTHS = {name: health for health, name in HEALTH_NAMES.items()}
SUPPRESSED = "suppressed"
NOT_COUNTED = frozenset({"aside", "repaired", SUPPRESSED})
"""Stages of findings on which no verdict depends."""
Source = Literal["daemon", "demo", "own", "none"]


@dataclass(frozen=True, slots=True)
class GatePolicy:
    """The node's own terms: whether it requires a fresh probe, and the healths with which no job starts."""

    required: bool = False
    fail_on: frozenset[Health] = FAIL_ON


CONFIGURED = GatePolicy()
"""The terms without a configuration."""


@dataclass(frozen=True, slots=True)
class Grounds:
    """The knowledge of the node, its source, and why it is not the daemon's.

    `verdict_at`: Unix seconds, 0 for no verdict. `probe` None: probing is off, or nothing can be probed.
    `fail_on`: the healths with which no job may start, by the node's configuration. `required`: the policy
    requires a fresh probe, unless nothing can be probed here (`exempt`). `released`: the GPUs are released
    and must not be read. `suppressed`: findings that an operator suppressed. `orders`: all orders by which a
    finding keeps no job away. `base`: the health apart from all findings, and `gpus`: every GPU of the node;
    None where these are not known. `host`: the node's name, "" for a recording.
    """

    health: Health
    source: Source
    why: str = ""
    verdict_at: float = 0.0
    findings: tuple[CheckFinding, ...] = ()
    probe: ProbeStatus | None = None
    required: bool = False
    released: bool = False
    fail_on: frozenset[Health] = FAIL_ON
    exempt: bool = False
    suppressed: tuple[NodeFinding, ...] = ()
    orders: tuple[GateOrder, ...] = ()
    base: Health | None = None
    gpus: tuple[NodeGpu, ...] | None = None
    host: str = ""

    def at_least(self, health: Health) -> "Grounds":
        """Return the same grounds, with no part of the node better than this health."""
        base = None if self.base is None else max(self.base, health)
        return replace(self, health=max(self.health, health), base=base)


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms for the start of a job.

    `fail_on` always contains FAILED, None for the node's own; `max_age` of a probe in seconds, None for the
    daemon's own limit; `require`: no job starts without a fresh probe.
    """

    fail_on: frozenset[Health] | None = None
    max_age: float | None = None
    require: bool = False


@dataclass(frozen=True, slots=True)
class CheckAnswer:
    """The answer at `at`, Unix seconds, with the applied `fail_on` and `grounds.probe`.

    For a job on some GPUs: `said`, the line without its end, and `note`, its end; `gpus`, the numbers of the
    GPUs that count, None where the whole node does; `left_aside`, the findings of other GPUs.
    """

    at: float
    health: Health
    fail_on: frozenset[Health]
    required: bool
    grounds: Grounds
    said: str = ""
    note: str = ""
    gpus: tuple[str, ...] | None = None
    left_aside: tuple[CheckFinding, ...] = ()

    @property
    def may_start(self) -> bool:
        """Return whether a job may start."""
        return self.health not in self.fail_on

    @property
    def code(self) -> int:
        """The exit code."""
        return 0 if self.may_start else exit_of(self.health)


def found(finding: Finding) -> CheckFinding:
    """Return a finding as `check` prints it; without an entry in a ledger it has no `id` and no `stage`."""
    health, subject = HEALTH_NAMES[finding.health], finding.subject.levels()
    return CheckFinding(
        "", "", finding.rule, health, subject, finding.evidence, finding.action, finding.since,
        others=list(finding.others),
    )  # fmt: skip


def reported(one: NodeFinding) -> CheckFinding:
    """A finding of the node as `check` prints it."""
    part = Subject.of(one.subject).levels()
    return CheckFinding(
        one.id, one.stage, one.rule, one.health, part, one.evidence, one.action, one.since, one.same_cause,
        one.others,
    )  # fmt: skip


def nothing(why: str, policy: GatePolicy = CONFIGURED) -> Grounds:
    """Return grounds without any knowledge of the node, and `why`."""
    return Grounds(Health.UNKNOWN, "none", why, required=policy.required, fail_on=policy.fail_on)


def decide(grounds: Grounds, terms: Terms, at: float) -> CheckAnswer:
    """The answer at `at`, Unix seconds.

    A node without a required fresh probe is at least UNKNOWN, and then no job starts.
    """
    probe = aged(grounds.probe, terms.max_age)
    required = (terms.require or grounds.required) and not grounds.exempt
    probe = None if probe is None else replace(probe, required=required)
    wanted = grounds.fail_on if terms.fail_on is None else terms.fail_on
    health, fail_on = grounds.health, wanted | {Health.FAILED}
    if required and not (probe is not None and probe.fresh):
        health, fail_on = max(health, Health.UNKNOWN), fail_on | {Health.UNKNOWN}
    return CheckAnswer(at, health, fail_on, required, replace(grounds, probe=probe))


def aged(probe: ProbeStatus | None, max_age: float | None) -> ProbeStatus | None:
    """Return the probe, fresh or not by `max_age` seconds; None keeps the daemon's judgement."""
    if probe is None or max_age is None:
        return probe
    return replace(probe, fresh=probe.age_seconds is not None and probe.age_seconds <= max_age)


def line(answer: CheckAnswer) -> str:
    """Return the answer as one line, the worst finding first; at most LIMIT bytes, besides a note."""
    if answer.said:
        return f"{answer.said}{answer.note}"
    findings = [f for f in answer.grounds.findings if f.stage != SUPPRESSED]
    worst = max(findings, key=lambda f: HEALTHS[f.health], default=None)
    name = f"{answer.health.name} (demo)" if answer.grounds.source == "demo" else answer.health.name
    part = "" if worst is None else f"{worst.rule} {Subject.of(worst.subject)}"
    cause, then = ("", "") if worst is None else (worst.evidence, worst.action)
    if worst is None and answer.grounds.health is Health.UNKNOWN:
        # A suppressed finding counts no more, and what it says is still not known.
        cause = next((one.evidence for one in answer.grounds.suppressed if one.health == "unknown"), "")
    more = tuple(_more(answer, findings, worst))
    kept = tuple(_kept(answer.grounds))
    return answer_line(name, part, cause, then, kept=kept, more=more, host=answer.grounds.host)


def document(answer: CheckAnswer) -> dict[str, Any]:
    """The answer as a `CheckDocument`, ready for JSON."""
    grounds = answer.grounds
    fail_on = [HEALTH_NAMES[health] for health in sorted(answer.fail_on)]
    made = CheckDocument(
        "wirewatch.check/1", answer.at, HEALTH_NAMES[answer.health], answer.may_start, fail_on,
        grounds.source, grounds.why, grounds.verdict_at, grounds.probe, list(grounds.findings),
        grounds.exempt, list(grounds.suppressed), None if answer.gpus is None else list(answer.gpus),
        list(answer.left_aside), answer.note.removeprefix("; "), list(grounds.orders), grounds.host,
    )  # fmt: skip
    # Lone surrogates, which JSON and paths may hold, are refused by other languages.
    sound: dict[str, Any] = each_text(asdict(made), lambda text: text.encode("utf-8", "replace").decode())
    return sound


def _kept(grounds: Grounds) -> Iterator[str]:
    """Yield operators' orders by which a finding keeps no job away."""
    there = [one for one in grounds.suppressed if HEALTHS[one.health] is not Health.OK]
    if there:
        yield _suppressed(there[0], len(there) - 1)
    if said := [one for one in grounds.orders if one.order != "suppress"]:
        yield _order(said)


def _more(answer: CheckAnswer, findings: list[CheckFinding], worst: CheckFinding | None) -> Iterator[str]:
    if worst is not None and worst.same_cause:
        yield f"same cause: {', '.join(dict.fromkeys(one.rule for one in worst.same_cause))}"
    if answer.grounds.why:
        yield answer.grounds.why
    probe = answer.grounds.probe
    if probe is not None and not probe.fresh:
        age = probe.age_seconds
        yield "no probe yet" if age is None else f"the last probe is {short_span(age)} old"
    elif probe is None and answer.required:
        yield "a fresh probe is required, and probing is switched off or not known"
    elif probe is not None and probe.no_expectation:
        yield f"no expected bandwidth here for {', '.join(probe.no_expectation)}"
    if len(findings) > 1:
        yield count(len(findings) - 1, "more finding")


def _order(orders: list[GateOrder]) -> str:
    """Return the newest order by which a finding keeps no job away."""
    one = max(orders, key=lambda order: order.at)
    verb = "accepted" if one.order == "accept" else "repaired"
    more = f" and {len(orders) - 1} more" if len(orders) > 1 else ""
    return f"{verb} by {one.by}: {one.what}{more}"


def _suppressed(one: NodeFinding, others: int) -> str:
    until = time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime(one.suppressed_until))
    more = f" and {others} more" if others else ""
    return f"suppressed until {until}: {one.health.upper()} {one.rule} {Subject.of(one.subject)}{more}"
