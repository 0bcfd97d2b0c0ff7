"""The node's verdict: the worst of what is found and what is remembered; knowing nothing is UNKNOWN."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from wirewatch.collectors.inventory import GPU_LOST
from wirewatch.core.collector import Component, NodeState
from wirewatch.core.types import FAIL_ON, Finding, Health, OperatorNote, Subject
from wirewatch.verdict.latching import covered
from wirewatch.verdict.ledger import LOST, Entry, Key, Ledger, Stage, Suppression, key_of_finding, name_of
from wirewatch.verdict.observation import found

LIVE, LATCHED, PROBATION, ASIDE, REPAIRED, SUPPRESSED = STAGES = (
    "live", "latched", "probation", "aside", "repaired", "suppressed",
)  # fmt: skip
"""The stages of findings, as people see them; `aside`: of a running job, which no verdict depends on."""
STAY = "none, unless it comes back; then: "
_ABSENT = {
    Stage.ACTIVE: "not seen now, not yet believed to be gone",
    Stage.LATCHED: "not seen since, but absence does not prove a repair",
    Stage.PROBATION: "over, on probation",
}


@dataclass(frozen=True, slots=True)
class Standing:
    """A finding with its stage; `measured`: its health now, `same_cause`: the findings that go with it.

    `seen`: who acknowledged it, which changes no verdict; `repaired`: who said that it is.
    """

    finding: Finding
    stage: str
    collector: str
    measured: Health | None = None
    times: int = 1
    repaired: OperatorNote | None = None
    seen: OperatorNote | None = None
    suppression: Suppression | None = None
    same_cause: tuple["Standing", ...] = ()

    @property
    def key(self) -> Key:
        return key_of_finding(self.finding)

    @property
    def id(self) -> str:
        """Eight hexadecimal digits by which a person names it."""
        return name_of(self.key)

    @property
    def takes_part(self) -> bool:
        return self.stage not in {ASIDE, REPAIRED, SUPPRESSED}

    @property
    def has_series(self) -> bool:
        """Tell whether it has series, and so alerts: it counts for the verdict, or stands aside."""
        return self.takes_part or self.stage == ASIDE


@dataclass(frozen=True, slots=True)
class Verdict:
    """Findings that count and all standings, worst first; no job may start with a health of `fail_on`.

    `base`: the health apart from all findings, as of a collector that has read nothing yet.
    """

    health: Health
    findings: tuple[Finding, ...]
    standings: tuple[Standing, ...] = ()
    fail_on: frozenset[Health] = FAIL_ON
    base: Health = Health.UNKNOWN

    @property
    def job_ready(self) -> bool:
        """Tell whether the next job may start."""
        return self.health not in self.fail_on

    @property
    def every(self) -> tuple[Standing, ...]:
        """Return all standings, also standings under others."""
        return tuple(each for one in self.standings for each in (one, *one.same_cause))


@dataclass(frozen=True, slots=True)
class Judged:
    """A state and its verdict: all that exporters may read; replaced by one assignment.

    `polled_at`: the newest poll of any collector, `released_until`: until when the GPUs are released; both
    Unix seconds, 0 for never and not.
    """

    state: NodeState
    verdict: Verdict
    ledger: Ledger = field(default_factory=Ledger)
    polled_at: float = 0.0
    released_until: float = 0.0


FIRST, LATER = "inventory.", ("drift.", "probe.", "verdict.")
"""Rules of the collector that explains a driver fault best, and rules of collectors that follow from
others."""
LAST = ("bursts.", "hangs.", "jobs.", "lockstep.")
"""Rules of collectors that do not gate: no finding that counts comes under theirs."""
Cause = tuple[object, ...]


def troubles(verdict: Verdict, but: str) -> tuple[str, ...]:
    """Return the rules of all findings that count, except findings of the collector `but`."""
    counted = (s for s in verdict.every if s.takes_part and s.collector != but)
    return tuple(s.finding.rule for s in counted if s.finding.health is not Health.OK)


def judge_state(state: NodeState, ledger: Ledger | None = None) -> Judged:
    """The state with its verdict, by an empty ledger where none is given."""
    known = ledger or Ledger()
    return Judged(state, judge_node(state, known), known)


def judge_node(
    state: NodeState, ledger: Ledger | None = None, fail_on: frozenset[Health] = FAIL_ON
) -> Verdict:
    """Return the verdict of a state, by collectors that gate; UNKNOWN where these have nothing to watch."""
    every = sorted(
        _standings(state, ledger or Ledger()),
        key=lambda one: (not one.takes_part, -one.finding.health, (one.finding.rule, one.finding.subject)),
    )
    bases = [health for health in map(_base, state.components.values()) if health is not None]
    takes_part = any(one.applicable and one.gates for one in state.components.values())
    base = max(bases, default=Health.UNKNOWN) if takes_part else max([*bases, Health.UNKNOWN])
    health = max([base, *(s.finding.health for s in every if s.takes_part)])
    parts = ([s for s in every if s.has_series is part] for part in (True, False))
    standings = tuple(one for standings in parts for one in _by_cause(standings))
    findings = tuple(s.finding for s in standings if s.takes_part)
    return Verdict(health, findings, standings, fail_on, base)


def heads(findings: Sequence[Finding]) -> tuple[int, ...]:
    """Return for each finding the position of its head: its own where it stands alone.

    A part that cannot be read comes under the loss of its GPU. Otherwise it comes under the first part that
    cannot be read for the same reason at the same place. A finding never comes under a milder finding.
    """
    lost = {_place(f.subject): n for n, f in enumerate(findings) if f.rule == GPU_LOST.name}
    blind = [n for n, f in enumerate(findings) if f.absent is not None]
    first: dict[Cause, int] = {}
    rules = {n: findings[n].rule for n in blind}
    ranks = {
        n: (rule.startswith(LAST), not rule.startswith(FIRST), rule.startswith(LATER), rule)
        for n, rule in rules.items()
    }
    for n in sorted(blind, key=lambda n: ranks[n]):
        first.setdefault(_cause(findings[n]), n)
    found = list(range(len(findings)))
    for n in blind:
        found[n] = first[_cause(findings[n])]
        gone = lost.get(_place(findings[n].subject))
        if gone is not None and findings[gone].health >= findings[n].health:
            found[n] = gone
    return tuple(found)


def _by_cause(standings: Sequence[Standing]) -> Iterator[Standing]:
    under = heads([s.finding for s in standings])
    for number, one in enumerate(standings):
        if under[number] == number:
            same = tuple(s for n, s in enumerate(standings) if under[n] == number != n)
            yield replace(one, same_cause=same)


def _base(component: Component) -> Health | None:
    """A component's health apart from its findings; None when it takes no part."""
    if not component.gates:
        return None
    if component.outcome is None and not component.findings:
        return Health.UNKNOWN
    return Health.OK if component.applicable else None


def _standings(state: NodeState, ledger: Ledger) -> Iterator[Standing]:
    shown = set()
    for collector, finding in found(state, ledger.cards):
        key = key_of_finding(finding)
        shown.add(key)
        gates = state.components[collector].gates
        live = _live(collector, finding, ledger.entries.get(key))
        yield _ordered(live if gates else Standing(finding, ASIDE, collector, finding.health), ledger)
    for key, entry in ledger.entries.items():
        # The findings of a collector that was switched off do not count.
        here = entry.collector in state.components or entry.rule == LOST
        if key not in shown and here and entry.stage is not Stage.REMEMBERED:
            yield _ordered(_held(entry), ledger)
            shown.add(key)
    # A suppression of what is not found now is listed, so that a forgotten one can be found.
    for one in (one for key, one in ledger.suppressions.items() if key not in shown):
        words = "not found now, but still suppressed"
        finding = Finding(one.rule, Health.OK, one.subject, words, "none", one.said.at)
        yield Standing(finding, SUPPRESSED, "", suppression=one)


def _live(collector: str, finding: Finding, entry: Entry | None) -> Standing:
    now = Standing(finding, LIVE, collector, finding.health)
    if entry is None:
        return now
    now = replace(now, times=entry.times, repaired=entry.repaired)
    if covered(entry, finding):
        if entry.stage is Stage.REMEMBERED:
            return replace(now, stage=REPAIRED)
        health, said = min(finding.health, Health.DEGRADED), f"{finding.evidence}{_whose(entry)}"
        over = replace(finding, health=health, evidence=said, action=f"{STAY}{finding.action}")
        return replace(now, finding=over, stage=PROBATION)
    if finding.health < entry.health and entry.stage in {Stage.ACTIVE, Stage.LATCHED}:
        why = "counts as FAILED until it is gone" if entry.times == 1 else _again(entry)
        worse = replace(finding, health=entry.health, evidence=f"{finding.evidence}; {why}")
        return replace(now, finding=worse)
    if finding.last:
        # An event is reported until the next boot, even when a reset without a boot has repaired it.
        action = f"{finding.action}; once repaired: `wirewatch findings repaired {name_of(entry.key)}`"
        return replace(now, finding=replace(finding, action=action))
    return now


def _held(entry: Entry) -> Standing:
    """A fault that is not seen now and counts all the same."""
    probation = entry.stage is Stage.PROBATION
    unread = entry.stage is Stage.ACTIVE and entry.mono is None
    absent = "not seen now, because its part is not read" if unread else _ABSENT[entry.stage]
    evidence = entry.evidence if entry.rule == LOST else f"{entry.evidence}; {absent}"
    evidence += _whose(entry) if probation else ""
    evidence += f"; {_again(entry)}" if entry.times > 1 else ""
    action = entry.action
    if entry.stage is Stage.LATCHED or unread:
        when = "if the part is gone for good" if unread else "once repaired"
        action = f"{action}; {when}: `wirewatch findings repaired {name_of(entry.key)}`"
    if probation:
        action = f"{STAY}{action}"
    health = Health.DEGRADED if probation else entry.health
    finding = Finding(entry.rule, health, entry.subject, evidence, action, entry.since, entry.event)
    stage = {Stage.ACTIVE: LIVE, Stage.LATCHED: LATCHED, Stage.PROBATION: PROBATION}[entry.stage]
    return Standing(finding, stage, entry.collector, None, entry.times, entry.repaired)


def _again(entry: Entry) -> str:
    return f"occurred {entry.times} times within days"


def _whose(entry: Entry) -> str:
    if entry.repaired is None:
        return ""
    how = " (by `ack` of wirewatch 0.2, which meant repaired)" if entry.by_ack else ""
    return f"; repaired by {entry.repaired.by}{how}: {entry.repaired.why}"


def _ordered(standing: Standing, ledger: Ledger) -> Standing:
    """Return the finding with the orders of operators; an order covers nothing worse than was known then."""
    seen = ledger.seen.get(standing.key)
    if seen is not None and standing.finding.health <= seen.health:
        standing = replace(standing, seen=seen.said)
    suppression = ledger.suppressions.get(standing.key)
    if suppression is None or standing.finding.health > suppression.health or standing.stage == REPAIRED:
        return standing
    return replace(standing, stage=SUPPRESSED, suppression=suppression)


def _cause(finding: Finding) -> Cause:
    return (*_place(finding.subject), finding.absent)


def _place(part: Subject) -> Cause:
    """The GPU, or the device and port; the links of a GPU go with it."""
    gpu = part.uuid or part.gpu
    return (gpu, "", "") if gpu else ("", part.device, part.port)
