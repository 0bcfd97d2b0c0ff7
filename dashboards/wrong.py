"""Tables of what is wrong: bad nodes, findings, alerts; each with what to do."""

from dashboards.parts import SEVERITY, STATE, Blank, Label, NoLimit, Table, Value, Words
from dashboards.shared import CLUSTER, COLOURED, COUNTED, GPU, GPU_HERE, NODE, RUNBOOK, SINCE
from wirewatch_fleet import worst
from wirewatch_fleet.worst import OF_NODES, of_rules

REASON = Label(
    "rule", 185, "reason", goes=f"{RUNBOOK}runbook.md#:~:text=${{__value.raw}}",
    leads="Runbook: search for this reason",
)  # fmt: skip
_PLACES = "rule,gpu,link,device,port"
_ALERT: Words = {"0": ("info", ""), "1": ("ticket", "orange"), "2": ("critical", "red")}
_HEARD_AT = NoLimit("a node that was heard a minute ago or longer is silent")


def what_to_do() -> Words:
    """By rule, and by what else is a reason, what the runbook says to do, in full."""
    return {name: (one.do.replace("`", ""), "") for name, one in {**OF_NODES, **of_rules()}.items()}


def _doing(expr: str) -> str:
    return f'label_replace({expr}, "do", "$1", "rule", "(.+)")'


def bad_nodes() -> Table:
    """Every bad node once: the table that `wirewatch fleet status` and the runbook have too."""
    by = f"cluster,node,rack,leaf,{_PLACES}"
    return Table(
        "Bad nodes, worst first",
        "Every node that is not well, once: FAILED, UNKNOWN (the reason names the GPU or the "
        "collector that cannot be read), silent, DEGRADED; with the worst of its findings, since when, and "
        "what to do. A node leads to its dashboard and its status page, a reason to the runbook. "
        "`wirewatch fleet status` shows the same.",
        (
            Value("state", _doing(f"max by ({by}) ({worst.state('HERE')})"), "none", COLOURED, 90, STATE),
            CLUSTER, NODE, Label("rack", 60), Label("leaf", 60), REASON, GPU, Label("link", 45),
            Label("device", 85), Label("port", 45),
            Value("since", f"max by ({by}) ({worst.since('HERE')}) * 1000", "dateTimeFromNow", SINCE, 130,
                  of=by),
            Value("last heard", f"({worst.heard('HERE')}) * 1000", "dateTimeFromNow", _HEARD_AT, 150,
                  of="cluster,node"),
            Value("findings", worst.findings("HERE"), "none", COUNTED, 70, of="cluster,node"),
            Label("do", header="what to do", words=what_to_do(), whole=True),
        ),
        24, 10, order=(("state", True), ("since", True)), blank=Blank.FINDING,
        misleads="a node that never was a target is not here; an alert names those where "
        "kube-state-metrics is scraped. Released nodes are UNKNOWN on purpose.",
    )  # fmt: skip


def reasons() -> Table:
    """What to do for each reason in the table of bad nodes, in full: there a cell is too narrow for it."""
    counted = f"count by (rule) ({worst.state('HERE')})"
    return Table(
        "What to do for each reason above",
        "The worst of each bad node, by reason: on how many nodes it is so, and the runbook's action in "
        "full. One reason on many nodes is seldom many broken parts: look for what they share before you "
        "drain anything.",
        (
            Value("nodes", _doing(counted), "none", COUNTED, 75), REASON,
            Value("worst", f"max by (rule) ({worst.state('HERE')})", "none", COLOURED, 95, STATE),
            Label("do", header="what to do", words=what_to_do(), wrapped=True),
        ),
        24, 9, order=(("worst", True), ("nodes", True)), blank=Blank.FINDING,
    )  # fmt: skip


def findings(title: str, *, width: int, height: int, nodes: bool) -> Table:
    """What is wrong, worst first and newest first among the same; a hundred rows at most."""
    by = f"cluster,node,{_PLACES}" if nodes else _PLACES
    severity = (
        f"max by ({by}) (wirewatch_finding_severity{{HERE}}) "
        f"or max by ({by}) (wirewatch:finding_severity:held{{HERE}})"
    )
    since = (
        f"max by ({by}) (wirewatch_finding_since_timestamp_seconds{{HERE}}) "
        f"or max by ({by}) (wirewatch:finding_since:held{{HERE}})"
    )
    unknown = f"(({since}) unless ({severity})) * 0 + 1.5"
    return Table(
        title,
        "All that is wrong, where, since when and what to do, worst first; several rows of a node "
        "that has several "
        "findings. The numbers that show it are on the node's status page and in `wirewatch "
        "findings list`. 100 rows "
        "at most.",
        (
            Value("severity", _doing(f"topk(100, {severity} or {unknown})"), "none", COLOURED, 90, SEVERITY),
            *((CLUSTER, NODE) if nodes else ()), REASON, GPU if nodes else GPU_HERE, Label("link", 45),
            Label("device", 172), Label("port", 45),
            Value("since", f"({since}) * 1000", "dateTimeFromNow", SINCE, 130, of=by),
            Label("do", header="what to do", words=what_to_do(), whole=True),
        ),
        width, height, order=(("severity", True), ("since", True)), blank=Blank.FINDING,
        misleads="what is acknowledged or suppressed is not here; DEGRADED may be over and on probation.",
    )  # fmt: skip


def alerts(*, width: int, height: int, nodes: bool) -> Table:
    """What fires, pages first."""
    of = f"alertname,{_PLACES}"
    by = f"cluster,node,{of}" if nodes else of
    which = 'HERE,alertname=~"Wirewatch.+"'
    firing = " or ".join(
        f'max by ({by}) (ALERTS{{{which},alertstate="firing",severity="{severity}"}}) * {value}'
        for severity, value in (("critical", 2), ("ticket", 1), ("info", 0))
    )
    return Table(
        "Alerts that fire",
        "The alerts of wirewatch in this Prometheus, pages (critical) first; the name leads to the "
        "alert's page. "
        "100 rows at most.",
        (
            Value("severity", f"topk(100, {firing})", "none", COLOURED, 90, _ALERT),
            Label("alertname", 215, "alert", goes=f"{RUNBOOK}runbooks/${{__value.raw}}.md",
                  leads="What to do"),
            *((CLUSTER, NODE) if nodes else ()), Label("rule", 185, "reason"), GPU if nodes else GPU_HERE,
            Label("link", 45), Label("device", 172), Label("port", 45),
            Value("since", f"max by ({by}) (ALERTS_FOR_STATE{{{which}}}) * 1000", "dateTimeFromNow", SINCE,
                  of=by),
        ),
        width, height, order=(("severity", True), ("since", True)), blank=Blank.FINDING,
        misleads="empty too where the rules for alerts are not loaded, and where alerts are Grafana's own. "
        "What Alertmanager silences is here all the same.",
    )  # fmt: skip
