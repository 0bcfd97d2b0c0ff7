"""The content of the page: the documents of the JSON interface at one moment, and what ends each finding."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from wirewatch.core.collector import blind_rule
from wirewatch.core.topology import Topology
from wirewatch.core.types import Health
from wirewatch.core.words import span
from wirewatch.documents import judged as documents
from wirewatch.documents.drift import DriftDocument, drift_of_state
from wirewatch.documents.health import HealthDocument
from wirewatch.documents.jobs import ExplainedJob
from wirewatch.documents.judged import DaemonStatus
from wirewatch.documents.probed import probes_of
from wirewatch.documents.probes import ProbesDocument
from wirewatch.documents.state import FindingsDocument, StateDocument
from wirewatch.jobs.explain.held import HeldAnswers
from wirewatch.jobs.hangs import HangFacts
from wirewatch.jobs.times import JobsFacts
from wirewatch.page.tables import moment
from wirewatch.probe.collector import PROBE_NAME
from wirewatch.verdict.ledger import Entry, Stage, VerdictPolicy
from wirewatch.verdict.node import LATCHED, PROBATION, REPAIRED, Judged, Standing

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PageContext:
    """Where the page is: the name of the node, what is read, the URL of the runbook; "" for not known."""

    node: str = ""
    about: str = ""
    runbook: str = ""


NO_CONTEXT = PageContext()


@dataclass(frozen=True, slots=True)
class PageContent:
    """The documents of one moment; `ends`: how each finding ends, in words, by its id.

    `jobs` carry the tap, `hangs` are jobs that hang or did hang; None while their collectors cannot read.
    `explained`: all running jobs, with the first line about each.
    """

    place: PageContext
    health: HealthDocument
    findings: FindingsDocument
    state: StateDocument
    topology: Topology | None
    drift: DriftDocument
    probes: ProbesDocument
    ends: Mapping[str, str]
    jobs: JobsFacts | None = None
    hangs: HangFacts | None = None
    explained: tuple[ExplainedJob, ...] = ()

    @property
    def at(self) -> float:
        """Unix seconds."""
        return self.health.at


BACK = "FAILED at once if it comes back"
RESET = "a reboot, the reset that the driver asked for"
BLIND = blind_rule("")


def page_content(
    judged: Judged, daemon: DaemonStatus, source: str, policy: VerdictPolicy, place: PageContext,
    answers: HeldAnswers | None = None,
) -> PageContent:  # fmt: skip
    """The content of a published state; `source` is live, replay or synthetic.

    `answers`: what is shown of running jobs, which goes on.
    """
    at, state = daemon.at, judged.state
    health = documents.health(judged, daemon)
    return PageContent(
        place=place, health=health, findings=documents.findings(judged, at),
        state=documents.state(judged, at, source), topology=documents.topology(state, at).topology,
        drift=drift_of_state(state, at), probes=probes_of(state, at),
        ends=endings(judged, policy), jobs=_facts(judged, JobsFacts),
        hangs=_facts(judged, HangFacts),
        explained=tuple(documents.jobs(state, at, source, answers, place.node).jobs),
    )  # fmt: skip


def _facts(judged: Judged, kind: type[T]) -> T | None:
    facts = (one.facts for one in judged.state.components.values() if one.succeeding)
    return next((one for one in facts if isinstance(one, kind)), None)


def endings(judged: Judged, policy: VerdictPolicy) -> Mapping[str, str]:
    """Say what ends each finding, by its id."""
    entries, probe = judged.ledger.entries, judged.state.components.get(PROBE_NAME)
    watched = probe is not None and probe.applicable is not False
    every = judged.verdict.every
    return {one.id: _ending(one, entries.get(one.key), policy, watched=watched) for one in every}


def _ending(one: Standing, entry: Entry | None, policy: VerdictPolicy, *, watched: bool) -> str:
    rule = one.finding.rule
    if one.suppression is not None:
        until = moment(one.suppression.until, one.suppression.until).text
        unsuppress = f"`wirewatch findings unsuppress {one.id}`"
        return f"{until}, a worse health, or {unsuppress}; it does not count until then"
    if one.stage == REPAIRED:
        return "its return: then it counts again; an operator said that it is repaired"
    if one.stage == LATCHED:
        return f"{RESET}, a replaced GPU, or {_ack(one)}; time alone does not end it"
    if one.stage == PROBATION:
        return _probation(entry, policy, watched=watched)
    if one.measured is None:
        return _unseen(entry, policy)
    return _live(one, policy, latches=policy.latches(rule), forgets=policy.forgets(rule))


def _live(one: Standing, policy: VerdictPolicy, *, latches: bool, forgets: bool) -> str:
    finding = one.finding
    if finding.health is not Health.FAILED or forgets:
        if finding.last:
            return "time: it is shown for a while after the last event"
        if finding.rule.endswith(BLIND):
            return "the next poll that can read it again"
        return "the next poll that does not find it"
    if latches:
        return f"{RESET}, or {_ack(one)}; time alone does not end it"
    then = f"{span(policy.probation)} of probation: it counts as DEGRADED, and jobs may start"
    return f"{span(policy.settle)} in which it is not seen, and then {then}"


def _ack(one: Standing) -> str:
    return f"`wirewatch findings repaired {one.id}` once it is repaired"


def _unseen(entry: Entry | None, policy: VerdictPolicy) -> str:
    if entry is None or entry.mono is None:
        return "nothing until its part can be read again"
    if policy.latches(entry.rule):
        return RESET
    return f"{span(policy.settle)} without it, of which {span(entry.absent)} have passed; then probation"


def _probation(entry: Entry | None, policy: VerdictPolicy, *, watched: bool) -> str:
    if entry is None or entry.stage is not Stage.PROBATION:
        return f"{span(policy.probation)} without it; {BACK}"
    left = max(0.0, policy.probation - entry.absent)
    wait = f"{span(left)} more of watching without it" if left else "its time has passed"
    clean = min(entry.probes, policy.clean_probes)
    probes = f", and clean probes: {clean} of {policy.clean_probes} so far" if watched else ""
    return f"{wait}{probes}; {BACK}"
