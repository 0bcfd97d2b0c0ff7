"""What several dashboards have: columns that lead on, events, limits."""

from dashboards.parts import Event, Label, Limits, NoLimit

RUNBOOK = "http://${agent}:9410/docs/"
"""The runbook that an agent serves; the chart replaces its address, and that of status pages."""
_KEEP = "var-datasource=${datasource}&${__url_time_range}&var-cluster=${__data.fields.cluster}"
CLUSTER = Label("cluster", 95)
NODE = Label(
    "node", 110, goes=f"/d/wirewatch-node?{_KEEP}&var-node=${{__data.fields.node}}", leads="This node",
    also=(("Status page, where its port can be reached", "http://${__data.fields.node}:9410/"),),
)  # fmt: skip
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


def _firing(severity: str) -> str:
    which = f'HERE,alertname=~"Wirewatch.+",alertstate="firing",severity="{severity}"'
    return f"max by (cluster,node,alertname) (ALERTS{{{which}}})"


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
        Event("Alerts: pages", _firing("critical"), "{{alertname}} {{node}}", "dark-red", at=False),
        Event("Alerts: tickets", _firing("ticket"), "{{alertname}} {{node}}", "dark-orange", at=False,
        shown=False),
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
