"""The table of bad nodes: each once, worst first, with its reason, start and action.

Only this module has its queries: `wirewatch fleet status`, the dashboard Fleet and the runbook ask the same.
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
"""States by the value of `node:wirewatch_worst:state`."""
HEALTH: Mapping[str, Health] = {
    FAILED: Health.FAILED, UNKNOWN: Health.UNKNOWN, SILENT: Health.UNKNOWN, DEGRADED: Health.DEGRADED,
    OK: Health.OK,
}  # fmt: skip
"""The health for each state: nothing is known about a silent node."""
NO_RULES = "no_rules"
_MANY = 1e6
NOT_KNOWN, LATEST = 1.0, 253402300799.0
"""Times up to the first value, or after the second, are not known; the second is the end of the year 9999."""


def state(where: str = "") -> str:
    """Return the query of bad nodes, each once; the value is the state.

    `where`: the matchers of nodes, as within braces.

    Without known nodes there is a row without a node: nobody was heard, or the rules are not loaded.
    """
    rest = f"absent({heard(where)}) * 3"
    return f'{bad(where)} or label_replace({rest}, "rule", "{NO_RULES}", "", "")'


def bad(where: str = "") -> str:
    """Return the query of bad nodes alone: none where all are well, or where nothing is known."""
    return _of("node:wirewatch_worst:state", where)


def since(where: str = "") -> str:
    """Return the query of each node's start, Unix seconds; for a silent node, when it was last heard."""
    return _of("node:wirewatch_worst:since_timestamp_seconds", where)


def findings(where: str = "") -> str:
    """Return the query of each node's number of findings, including findings held for a silent node."""
    return f"count by (cluster,node) ({_of('wirewatch:finding_since:held', where)})"


def heard(where: str = "") -> str:
    """Return the query of each node's last sign of life, Unix seconds, for targets now or within a day."""
    return _of("node:wirewatch_heard:timestamp_seconds", where)


def pasted() -> str:
    """Return the whole table as one query, for the runbook."""
    return f"sort_desc({state()})"


def clusters(names: Sequence[str]) -> str:
    """Return the matchers of these clusters, "" for all; the names are used as PromQL texts."""
    if not names:
        return ""
    escaped = ("".join(f"\\{c}" if c in r"\.+*?()|[]{}^$" else c for c in name) for name in names)
    return f"cluster=~{_quoted('|'.join(escaped))}"


FILE = "reasons.json"
"""`make generated` makes it from docs/runbook.md: meaning and action of each rule or pattern of rules."""


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
    """Return meaning and action of a rule, or of a reason that is no finding."""
    known = {**OF_NODES, **of_rules()}
    pattern = next((name for name in known if fnmatchcase(rule, name)), "")
    return known.get(rule) or known.get(pattern) or OTHERWISE


@cache
def of_rules() -> Mapping[str, ReasonText]:
    """Return texts by the rule, or pattern of rules, of each entry in the runbook."""
    made = json.loads(files(__package__).joinpath(FILE).read_text("utf-8"))
    return {name: ReasonText(*one) for name, one in made.items()}


class SeriesValue(NamedTuple):
    """A series of an instant query, with its name left out of the labels."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers of a Prometheus to the four queries."""

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
    """The bad nodes, worst first and newest first among equals, and the number of all nodes."""

    nodes: tuple[BadNodeReport, ...]
    known: int

    @property
    def counts(self) -> Mapping[str, int]:
        """Return the number of nodes in each state."""
        bad: dict[str, int] = {name: sum(one.state == name for one in self.nodes) for name in STATES.values()}
        return {**bad, OK: max(self.known - len(self.nodes), 0)}

    @property
    def health(self) -> Health:
        """Return the worst of all; UNKNOWN where no node is known."""
        none = Health.OK if self.known else Health.UNKNOWN
        return max((HEALTH[one.state] for one in self.nodes), default=none)


def table(answers: Answers) -> FleetTable:
    """Return the table of these answers; a state unknown to this version counts as UNKNOWN."""
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
    """Return the table as a document at `at`, Unix seconds; `prometheus` is the address that was asked."""
    worst = max(table.health, Health.UNKNOWN) if warnings else table.health
    return FleetStatusDocument(
        "wirewatch.fleet-status/1", at, HEALTH_NAMES[worst], prometheus, [*clusters], table.known,
        dict(table.counts), [*warnings], [*table.nodes],
    )  # fmt: skip
