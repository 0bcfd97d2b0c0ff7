"""The table of bad nodes: each of them once, worst first, with its reason, since when and what to do.

Its queries are here alone: `wirewatch fleet status`, the dashboard Fleet and the runbook ask the same.
deploy/prometheus/wirewatch-recording.yml makes the series, which outlive the agents.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any, Literal, NamedTuple

from wirewatch.core.types import LEVELS, Health
from wirewatch.documents import health
from wirewatch.documents.adapter import TypeAdapter
from wirewatch.documents.health import HEALTH_NAMES

FAILED, UNKNOWN, SILENT, DEGRADED, OK = "failed", "unknown", "silent", "degraded", "ok"
State = Literal["failed", "unknown", "silent", "degraded"]
STATES: Mapping[float, State] = {4: "failed", 3: "unknown", 2: "silent", 1: "degraded"}
"""By the value of `node:wirewatch_worst:state`."""
HEALTH: Mapping[str, Health] = {
    FAILED: Health.FAILED, UNKNOWN: Health.UNKNOWN, SILENT: Health.UNKNOWN, DEGRADED: Health.DEGRADED,
    OK: Health.OK,
}  # fmt: skip
"""What a state means where there are four words: of a silent node nothing is known."""
NO_RULES = "no_rules"
_MANY = 1e6
NOT_KNOWN, LATEST = 1.0, 253402300799.0
"""A time up to the one is not known, nor is one after the other, which is the end of the year 9999."""


def state(where: str = "") -> str:
    """Each bad node once; the value is its state. `where`: the matchers of nodes, as within braces.

    Where no node is known there is one row without a node: nobody was heard, or the rules are not loaded.
    """
    rest = f"absent({heard(where)}) * 3"
    return f'{bad(where)} or label_replace({rest}, "rule", "{NO_RULES}", "", "")'


def bad(where: str = "") -> str:
    """The bad nodes alone: none where all are well, and none where nothing is known."""
    return _of("node:wirewatch_worst:state", where)


def since(where: str = "") -> str:
    """Since when each of them is so, Unix seconds; of one that is not heard, when it last was."""
    return _of("node:wirewatch_worst:since_timestamp_seconds", where)


def findings(where: str = "") -> str:
    """How many findings each node has, those that are held for a silent one too."""
    return f"count by (cluster,node) ({_of('wirewatch:finding_since:held', where)})"


def heard(where: str = "") -> str:
    """When each node was last heard, Unix seconds: of all that are targets, or were within a day."""
    return _of("node:wirewatch_heard:timestamp_seconds", where)


def pasted() -> str:
    """The whole table as one query, for the runbook."""
    return f"sort_desc({state()})"


def clusters(names: Sequence[str]) -> str:
    """The matchers of these clusters, "" for all; the names are PromQL texts, as they are."""
    if not names:
        return ""
    escaped = ("".join(f"\\{c}" if c in r"\.+*?()|[]{}^$" else c for c in name) for name in names)
    return f"cluster=~{_quoted('|'.join(escaped))}"


FILE = "reasons.json"
"""Made of docs/runbook.md by `make generated`: the means and the do of each rule or pattern of rules."""


class ReasonText(NamedTuple):
    means: str
    do: str


OF_NODES: Mapping[str, ReasonText] = {
    "silent": ReasonText(
        "the node is a target of Prometheus and does not answer; nothing was wrong when it was last heard",
        "see whether the node is up (its console, its BMC), then the agent's pod or unit and its log,"
        " then what is between it and Prometheus; `wirewatch check` on the node still answers",
    ),
    "removed": ReasonText(
        "the node was heard within a day and is no target of Prometheus any more",
        "nothing, if somebody has taken the node away: the row goes a day after it was last heard. "
        "Otherwise find out whether the node is still there (`kubectl get node`), then its labels, "
        "the agent's pod and the scrape configuration",
    ),
    "never_heard": ReasonText(
        "the node is a target of Prometheus that has not answered within a day",
        "see whether the agent runs there and listens at an address that Prometheus reaches (by "
        "default it listens on the node alone), and whether a network policy or TLS keeps the scrape "
        "out",
    ),
    "nothing_read": ReasonText(
        "the agent answers and has read nothing: it has just started, or has nothing to watch",
        "wait for a minute after its start; then `wirewatch check` on the node, and the agent's log; "
        "a node without GPUs needs no agent",
    ),
    "released": ReasonText(
        "its GPUs are let go of on purpose (`wirewatch release`), or were until a quarter of an hour ago",
        "nothing while somebody works there: the agent's log has the name; `wirewatch release --end` "
        "on the node takes the GPUs back",
    ),
    "no_rules": ReasonText(
        "no node has been heard within a day, or the recording rules are not loaded",
        "load wirewatch-recording.yml into this Prometheus, and look at its targets of the job `wirewatch`",
    ),
}
"""Reasons that are no findings."""
OTHERWISE = ReasonText(
    "a rule that this version of wirewatch does not know",
    "`wirewatch findings list` on the node says what to do",
)


def reason(rule: str) -> ReasonText:
    """What it means and what to do, of a rule or of a reason that is no finding."""
    known = {**OF_NODES, **of_rules()}
    pattern = next((name for name in known if fnmatchcase(rule, name)), "")
    return known.get(rule) or known.get(pattern) or OTHERWISE


@cache
def of_rules() -> Mapping[str, ReasonText]:
    """By the rule, or the pattern of rules, that an entry of the runbook names."""
    made = json.loads(files(__package__).joinpath(FILE).read_text("utf-8"))
    return {name: ReasonText(*one) for name, one in made.items()}


class SeriesValue(NamedTuple):
    """One series of an instant query, its name left out of the labels."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Answers:
    """What a Prometheus says to the four queries."""

    state: Sequence[SeriesValue]
    since: Sequence[SeriesValue]
    findings: Sequence[SeriesValue]
    heard: Sequence[SeriesValue]


@dataclass(frozen=True, slots=True)
class BadNodeReport:
    """A node that is not well, by the worst of it.

    `rule` is that of a finding, or a word without a dot where no finding is the reason; `subject` by level:
    gpu, uuid, link, device, port. `rack` and `leaf` are labels of its target, "" where it has none. `since`
    and `heard`, when its agent was last heard, are Unix seconds, null where they are not known. `findings`:
    how many there are on the node.
    """

    cluster: str
    node: str
    rack: str
    leaf: str
    state: State
    rule: str
    subject: dict[str, str]
    since: float | None
    heard: float | None
    findings: int
    means: str
    do: str


@dataclass(frozen=True, slots=True)
class FleetTable:
    """The bad nodes, worst first and newest first among the same, and how many nodes there are in all."""

    nodes: tuple[BadNodeReport, ...]
    known: int

    @property
    def counts(self) -> Mapping[str, int]:
        """How many nodes there are of each state."""
        bad: dict[str, int] = {name: sum(one.state == name for one in self.nodes) for name in STATES.values()}
        return {**bad, OK: max(self.known - len(self.nodes), 0)}

    @property
    def health(self) -> Health:
        """The worst of all; UNKNOWN where no node is known."""
        none = Health.OK if self.known else Health.UNKNOWN
        return max((HEALTH[one.state] for one in self.nodes), default=none)


def table(answers: Answers) -> FleetTable:
    """The table of these answers; a state that this version does not know counts as UNKNOWN."""
    times = {_row(one.labels): one.value for one in answers.since}
    heard_at = {_node(one.labels): one.value for one in answers.heard}
    counts = {_node(one.labels): int(one.value) for one in answers.findings if 0 <= one.value < _MANY}
    order = [*STATES.values()]
    rows = sorted(
        (
            BadNodeReport(
                *_node(one.labels), one.labels.get("rack", ""), one.labels.get("leaf", ""),
                STATES.get(one.value, "unknown"), one.labels.get("rule", ""),
                {name: text for name in LEVELS if (text := one.labels.get(name, ""))},
                _known(times.get(_row(one.labels))), _known(heard_at.get(_node(one.labels))),
                counts.get(_node(one.labels), 0), *reason(one.labels.get("rule", "")),
            )
            for one in answers.state
            if one.labels.get("rule") != NO_RULES
        ),
        key=lambda one: (order.index(one.state), -(one.since or 0), one.cluster, one.node),
    )  # fmt: skip
    known = set(heard_at) | {(one.cluster, one.node) for one in rows}
    return FleetTable(tuple(rows), len(known))


def _of(name: str, where: str) -> str:
    return f"{name}{{{where}}}" if where else name


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _node(labels: Mapping[str, str]) -> tuple[str, str]:
    return labels.get("cluster", ""), labels.get("node", "")


def _row(labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(labels.get(name, "") for name in ("cluster", "node", "rule", *LEVELS))


def _known(at: float | None) -> float | None:
    return at if at is not None and NOT_KNOWN < at <= LATEST else None


@dataclass(frozen=True, slots=True)
class FleetStatusDocument:
    """`nodes` worst first. `health` is that of the worst node, and UNKNOWN where no node is known.

    `counts` of nodes by state, `known` all of them; `clusters` that were asked for, none for all. `warnings`
    of Prometheus: its answer is not whole, and the health at least UNKNOWN.
    """

    schema: Literal["wirewatch.fleet-status/1"]
    at: float
    health: health.Health
    prometheus: str
    clusters: list[str]
    known: int
    counts: dict[str, int]
    warnings: list[str]
    nodes: list[BadNodeReport]


FLEET_STATUS = TypeAdapter(FleetStatusDocument)
DOCUMENTS: dict[str, TypeAdapter[Any]] = {"wirewatch.fleet-status.1": FLEET_STATUS}


def document(
    table: FleetTable, at: float, prometheus: str, clusters: Sequence[str], warnings: Sequence[str]
) -> FleetStatusDocument:
    """The table as a document at `at`, Unix seconds; `prometheus` is the address that was asked."""
    worst = max(table.health, Health.UNKNOWN) if warnings else table.health
    return FleetStatusDocument(
        "wirewatch.fleet-status/1", at, HEALTH_NAMES[worst], prometheus, [*clusters], table.known,
        dict(table.counts), [*warnings], [*table.nodes],
    )  # fmt: skip
