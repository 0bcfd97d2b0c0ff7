"""The table of bad nodes: each of them once, worst first, with its reason, since when and what to do.

Its queries are here alone: `wirewatch fleet status`, the dashboard Fleet and the runbook ask the same.
deploy/prometheus/wirewatch-recording.yml makes the series, which outlive the agents.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pydantic import TypeAdapter

from wirewatch.core.types import LEVELS, Health
from wirewatch.documents import health
from wirewatch.documents.health import HEALTH_NAMES
from wirewatch_fleet.reasons import reason

FAILED, UNKNOWN, SILENT, DEGRADED, OK = "failed", "unknown", "silent", "degraded", "ok"
STATES: Mapping[float, str] = {4: FAILED, 3: UNKNOWN, 2: SILENT, 1: DEGRADED}
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
class BadNode:
    """`subject` by level: gpu, uuid, link, device, port. `since`, `heard`: Unix seconds, None: not known.

    `rack` and `leaf` as its target has them, "" where it has none, and of a node that is no target any more.
    """

    cluster: str
    node: str
    rack: str
    leaf: str
    state: str
    rule: str
    subject: Mapping[str, str]
    since: float | None
    heard: float | None
    findings: int


@dataclass(frozen=True, slots=True)
class FleetTable:
    """The bad nodes, worst first and newest first among the same, and how many nodes there are in all."""

    nodes: tuple[BadNode, ...]
    known: int

    @property
    def counts(self) -> Mapping[str, int]:
        """How many nodes there are of each state."""
        bad = {name: sum(one.state == name for one in self.nodes) for name in STATES.values()}
        return {**bad, OK: max(self.known - len(self.nodes), 0)}

    @property
    def health(self) -> Health:
        """The worst of all; UNKNOWN where no node is known."""
        worst = max((HEALTH[one.state] for one in self.nodes), default=Health.OK)
        return worst if self.known else max(worst, Health.UNKNOWN)


def table(answers: Answers) -> FleetTable:
    """The table of these answers; a state that this version does not know counts as UNKNOWN."""
    times = {_row(one.labels): one.value for one in answers.since}
    heard_at = {_node(one.labels): one.value for one in answers.heard}
    counts = {_node(one.labels): int(one.value) for one in answers.findings if 0 <= one.value < _MANY}
    order = [*STATES.values()]
    rows = sorted(
        (
            BadNode(
                *_node(one.labels), one.labels.get("rack", ""), one.labels.get("leaf", ""),
                STATES.get(one.value, UNKNOWN), one.labels.get("rule", ""),
                {name: text for name in LEVELS if (text := one.labels.get(name, ""))},
                _known(times.get(_row(one.labels))), _known(heard_at.get(_node(one.labels))),
                counts.get(_node(one.labels), 0),
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


def rules(nodes: Iterable[BadNode]) -> tuple[str, ...]:
    """The reasons in the table, each once, in its order."""
    return tuple(dict.fromkeys(one.rule for one in nodes))


State = Literal["failed", "unknown", "silent", "degraded"]


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
    nodes = [
        BadNodeReport(
            one.cluster, one.node, one.rack, one.leaf, one.state, one.rule,  # type: ignore[arg-type]
            dict(one.subject), one.since, one.heard, one.findings, *reason(one.rule),
        )
        for one in table.nodes
    ]  # fmt: skip
    return FleetStatusDocument(
        "wirewatch.fleet-status/1", at, HEALTH_NAMES[worst], prometheus, [*clusters], table.known,
        dict(table.counts), [*warnings], nodes,
    )  # fmt: skip
