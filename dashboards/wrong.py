"""Tables of what is wrong: bad nodes, reasons, findings; each with what to do."""

from dashboards.parts import SEVERITY, STATE, Blank, Label, NoLimit, Table, Value, Words
from dashboards.shared import CLUSTER, COLOURED, COUNTED, GPU, GPU_HERE, NODE, RUNBOOK, SINCE
from wirewatch_fleet import worst
from wirewatch_fleet.worst import OF_NODES, of_rules

REASON = Label(
    "rule", 185, "reason", goes=f"{RUNBOOK}runbook.md#:~:text=${{__value.raw}}",
    leads="Runbook: search for this reason",
)  # fmt: skip
_PLACES = "rule,gpu,link,device,port"
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


def by_rule() -> Table:
    """Each reason once, with what to do in full: in the table of nodes a cell is too narrow for it."""
    held, since = "wirewatch:finding_severity:held{HERE}", "wirewatch:finding_since:held{HERE}"
    counted = (
        f"count by (rule) (max by (cluster,node,rule) ({since})) or count by (rule) ({worst.bad('HERE')})"
    )
    state = (
        f"max by (rule) ({held} == 2) + 2 or max by (rule) ({since} unless {held}) * 0 + 3 "
        f"or max by (rule) ({worst.bad('HERE')}) or max by (rule) ({held})"
    )
    return Table(
        "What is wrong, and what to do",
        "Every reason once, from all findings of all nodes: on how many nodes it holds, how bad it is, and "
        "the runbook's action in full. One reason on many nodes is seldom many broken parts: look for what "
        "they share before you drain anything.",
        (
            Value("nodes", _doing(counted), "none", COUNTED, 75), REASON,
            Value("worst", state, "none", COLOURED, 95, STATE),
            Label("do", header="what to do", words=what_to_do(), wrapped=True),
        ),
        24, 8, order=(("worst", True), ("nodes", True)), blank=Blank.FINDING,
        misleads="it counts nodes, and not the parts of a node.",
    )  # fmt: skip


def findings() -> Table:
    """What is wrong with one node, worst first and newest first among the same; a hundred rows at most."""
    by, held, since = _PLACES, "wirewatch:finding_severity:held{HERE}", "wirewatch:finding_since:held{HERE}"
    severity = f"max by ({by}) ({held}) or max by ({by}) ({since} unless {held}) * 0 + 1.5"
    return Table(
        "Findings and what to do",
        "All that is wrong, where, since when and what to do, worst first. The numbers that show it are on "
        "the node's status page and in `wirewatch findings list`. 100 rows at most.",
        (
            Value("severity", _doing(f"topk(100, {severity})"), "none", COLOURED, 90, SEVERITY),
            REASON, GPU_HERE, Label("link", 45), Label("device", 172), Label("port", 45),
            Value("since", f"max by ({by}) ({since}) * 1000", "dateTimeFromNow", SINCE, 130, of=by),
            Label("do", header="what to do", words=what_to_do(), whole=True),
        ),
        24, 8, order=(("severity", True), ("since", True)), blank=Blank.FINDING,
        misleads="what is repaired or suppressed is not here; DEGRADED may be over and on probation.",
    )  # fmt: skip
