"""What several dashboards have: columns that lead on, events, what to do for a finding."""

import re

from dashboards.parts import SEVERITY, Blank, Event, Label, Limits, NoLimit, Table, Value, Words
from dashboards.runbook import entries

_LONGEST = 120

_KEEP = "var-datasource=${datasource}&${__url_time_range}&var-cluster=${__data.fields.cluster}"
CLUSTER = Label("cluster", 80)
NODE = Label(
    "node", 110, goes=f"/d/wirewatch-node?{_KEEP}&var-node=${{__data.fields.node}}", leads="This node"
)
GPU = Label(
    "gpu", 50, leads="Links of this GPU",
    goes=f"/d/wirewatch-links?{_KEEP}&var-node=${{__data.fields.node}}&var-gpu=${{__data.fields.gpu}}",
)  # fmt: skip

GPU_HERE = Label(
    "gpu", 50, leads="Links of this GPU",
    goes="/d/wirewatch-links?var-datasource=${datasource}&${__url_time_range}&var-cluster=${cluster}&var-node=${node}"
    "&var-gpu=${__data.fields.gpu}",
)  # fmt: skip
"""Where the rows are all of the node that is chosen."""

OF_ITS_KIND = NoLimit(
    "a rate is good or bad only beside what its wire can carry, which the dashboard Links shows"
)
COUNTED = NoLimit("a count of what there is")
SINCE = NoLimit("a moment")
COLOURED = NoLimit("its colours come with its words")


def what_to_do() -> Words:
    """By rule, the beginning of what the runbook says to do."""
    return {name: (_short(entry.points["Do"]), "") for entry in entries() for name in sorted(entry.names)}


def _short(text: str) -> str:
    """As many whole parts of a text as a cell takes."""
    plain = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text).replace("`", "").rstrip(".")
    if len(plain) <= _LONGEST:
        return plain
    cut = max(plain.rfind(mark, 40, _LONGEST) for mark in ("; ", ". ", ": ", ", "))
    return plain[: cut if cut > 0 else plain.rfind(" ", 0, _LONGEST)] + " ..."


def findings(title: str, *, width: int, height: int, nodes: bool) -> Table:
    """What is wrong, worst first and newest first among the same; a hundred rows at most."""
    by = "cluster,node,rule,gpu,link,device,port" if nodes else "rule,gpu,link,device,port"
    worst = f"topk(100, max by ({by}) (wirewatch_finding_severity{{HERE}}))"
    severity = f'label_replace({worst}, "do", "$1", "rule", "(.+)")'
    since = f"max by ({by}) (wirewatch_finding_since_timestamp_seconds{{HERE}}) * 1000"
    rule = Label(
        "rule",
        185,
        goes="${docs:raw}/runbook.md#:~:text=${__value.text}",
        leads="Runbook: search for this rule",
    )
    where = (CLUSTER, NODE) if nodes else ()
    return Table(
        title,
        "What is wrong, where, since when and what to do, worst first. The action is the beginning of the "
        "runbook's; "
        "the numbers that show it are on the node's status page and in `wirewatch findings list`. 100 rows "
        "at most.",
        (
            Value("severity", severity, "none", COLOURED, 90, SEVERITY), *where, rule,
            GPU if nodes else GPU_HERE, Label("link", 45),
            Label("device", 140), Label("port", 45), Value("since", since, "dateTimeFromNow", SINCE, 130,
            of=by),
            Label("do", words=what_to_do(), whole=True),
        ),
        width, height, order=(("severity", True), ("since", True)), blank=Blank.FINDING,
    )  # fmt: skip


def events(*, often: bool) -> tuple[Event, ...]:
    """What happened, as marks; `often`: also what happens often, until a reader switches it off."""
    by = "cluster,node,rule,gpu,link,device,port"
    since = f"max by ({by}) (wirewatch_finding_since_timestamp_seconds{{HERE}})"
    severity = f"max by ({by}) (wirewatch_finding_severity{{HERE}})"
    what = "{{node}} {{rule}} gpu {{gpu}} {{device}}"
    xid = "max by (cluster,node,gpu) (wirewatch_xid_last_event_timestamp_seconds{HERE})"
    probe = "max by (cluster,node) (wirewatch_probe_last_success_timestamp_seconds{HERE})"
    cpu = 'resets(wirewatch_agent_cpu_seconds_total{HERE,process="agent"}[2m])'
    released = "max by (cluster,node) (wirewatch_released_until_timestamp_seconds{HERE})"
    return (
        Event("FAILED begins", f"({since} and on ({by}) {severity} == 2) * 1000", what, "red"),
        Event("DEGRADED begins", f"({since} and on ({by}) {severity} == 1) * 1000", what, "orange",
        shown=often),
        Event("XID", f"({xid} > 0) * 1000", "XID on {{node}} gpu {{gpu}}", "purple"),
        Event("Probe", f"({probe} > 0) * 1000", "probe on {{node}}", "blue", shown=often),
        Event("Agent restarted", f"max by (cluster,node) ({cpu}) > 0", "agent on {{node}}", "yellow",
        at=False),
        Event("GPUs released", f"{released} > 0", "wirewatch release on {{node}}", "super-light-purple",
        at=False),
    )  # fmt: skip


AGE = Limits("green", ((86400, "yellow"), (7 * 86400, "orange")))
"""A node that is busy for days has an old probe and nothing else: a ticket at most."""
