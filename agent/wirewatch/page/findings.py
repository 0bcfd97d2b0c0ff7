"""The verdict, the findings and the notices of the page. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from wirewatch.core.types import Subject
from wirewatch.core.words import count, first, span
from wirewatch.documents.health import HealthDocument, NodeFinding
from wirewatch.page.content import BLIND, PageContent
from wirewatch.page.model import Card, PageVerdict, RuleLink, Sentence
from wirewatch.page.tables import moment
from wirewatch.verdict.node import ASIDE, REPAIRED, SUPPRESSED

APART = frozenset({ASIDE, REPAIRED, SUPPRESSED})
QUIET = 120.0
"""Seconds without a poll of any collector after which the page says so."""
SHARED: Mapping[str, Sequence[str]] = {
    "NVLink errors": ("nvlink.*_errors",),
    "fabric.state, fabric.status": ("fabric.state", "fabric.status"),
    "Fabric health": (
        "fabric.access_timeout_recovery", "fabric.degraded_bandwidth", "fabric.route_*", "fabric.summary",
    ),
    "Fabric configuration": ("fabric.*",),
    "Errors of the other end": (
        "infiniband.ack_timeout_errors", "infiniband.rnr_retry_errors",
        "infiniband.efa_impaired_connection_errors", "infiniband.efa_unresponsive_remote_errors",
    ),
    "Errors of a port": ("infiniband.*_errors",),
    "XIDs of NVLink": ("xid.74", "xid.136", "xid.14[4-9]", "xid.150"),
    "XIDs of memory": ("xid.48", "xid.63", "xid.64", "xid.94", "xid.95", "xid.140", "xid.171", "xid.172"),
    "xid.119, xid.120": ("xid.119", "xid.120"),
    "xid.79": ("xid.79",),
    "xid.154": ("xid.154",),
    "xid.*": ("xid.*[0-9]",),
    "sxid.*": ("sxid.*",),
    "topology.gpu_replaced, topology.nic_replaced": ("topology.gpu_replaced", "topology.nic_replaced"),
    "<collector>.blind": ("*.blind",),
}  # fmt: skip
"""Headings of the runbook for several rules, with patterns of the rules; the first that matches counts."""
_DROPPED = re.compile(r"[^a-z0-9_ -]")


def verdict(content: PageContent) -> PageVerdict:
    """The verdict in words."""
    health, counted = content.health, content.health.findings
    worst = [one for one in counted if one.health == health.health]
    since = min((one.since for one in worst if one.since), default=0.0)
    return PageVerdict(
        health.health, start(health), _reason(content, worst, len(counted)),
        moment(since, content.at) if since else None,
    )  # fmt: skip


def subject(one: NodeFinding) -> str:
    """The part in words, as in `findings list`."""
    words = str(Subject.of(one.subject))
    return "The node" if words == "node" else words


def cards(content: PageContent, *, apart: bool) -> tuple[Card, ...]:
    """Return the findings that count, worst first; `apart`: the findings that do not."""
    every = content.findings.findings
    return tuple(_card(one, content) for one in every if (one.stage in APART) == apart)


def heading(rule: str) -> str:
    """The heading of a rule in the runbook."""
    shared = (title for title, rules in SHARED.items() if any(fnmatchcase(rule, one) for one in rules))
    return next(shared, rule)


def anchor(title: str) -> str:
    """The anchor of a heading."""
    return _DROPPED.sub("", title.lower()).replace(" ", "-")


def start(health: HealthDocument) -> str:
    """Tell whether the next job may start, as a sentence."""
    if not health.job_ready:
        return "No job may start on this node."
    probe = health.probe
    if probe is not None and probe.required and not probe.fresh:
        return "Jobs may start, but `wirewatch check` asks for a fresh probe first, and there is none."
    return "The next job may start on this node."


def link(base: str, rule: str) -> str:
    """The URL of a rule's entry in the runbook at `base`; "" without a `base`."""
    return f"{base.partition('#')[0]}#{anchor(heading(rule))}" if base else ""


def _reason(content: PageContent, worst: list[NodeFinding], counted: int) -> str:
    if worst:
        one = worst[0]
        if one.rule.endswith(BLIND) and not one.subject:
            same = [each.rule.removesuffix(BLIND) for each in (one, *one.same_cause)]
            return f"Cannot be read now ({one.evidence.rstrip('.')}): {first(same, 20)}."
        more = f" And {count(counted - 1, 'more finding')}." if counted > 1 else ""
        of = "" if one.evidence.startswith(subject(one)) else f"{subject(one)}: "
        return f"{of}{one.evidence.rstrip('.')}.{more}"
    waiting = [one.collector for one in content.state.collectors if one.health == "unknown"]
    if content.health.health == "unknown":
        return f"Not polled yet: {first(waiting, 20)}." if waiting else "Nothing on this node is watched."
    of_jobs = sum(one.stage == ASIDE for one in content.findings.findings)
    apart = sum(one.stage in APART for one in content.findings.findings) - of_jobs
    said = [f"an operator repaired or suppressed {count(apart, 'finding')}"] if apart else []
    said += [f"{count(of_jobs, 'finding')} of running jobs"] if of_jobs else []
    none = "No fault is found in anything that is watched."
    return f"No finding counts: {' and '.join(said)}." if said else none


def _card(one: NodeFinding, content: PageContent) -> Card:
    times = f", {one.times} times within days" if one.times > 1 else ""
    return Card(
        rules=tuple(
            RuleLink(rule, name, link(content.place.runbook, rule))
            for rule, name in ((one.rule, one.id), *((same.rule, same.id) for same in one.same_cause))
        ),
        health=one.health,
        subject=subject(one), evidence=one.evidence, action=one.action,
        since=moment(one.since, content.at) if one.since else None,
        last=moment(one.last, content.at) if one.last else None, stage=f"{one.stage}{times}",
        ends=content.ends.get(one.id, "not known"), said=tuple(_said(one, content.at)),
    )  # fmt: skip


def _said(one: NodeFinding, at: float) -> Iterator[str]:
    for what, word in (
        ("Acknowledged", one.acknowledged),
        ("Repaired", one.repaired),
        ("Suppressed", one.suppressed),
    ):
        if word is not None:
            when = moment(word.at, at)
            yield f"{what} by {word.by}, {when.text} ({when.ago}): {word.why}"


def notices(content: PageContent) -> Iterator[Sentence]:
    """Yield the notices that come first, such as that the page is of a recording or old."""
    about = f": {content.place.about}" if content.place.about else ""
    if content.state.source == "replay":
        yield Sentence(f"Not live: this is a recording{about}.", "warn")
    elif content.state.source != "live":
        yield Sentence(f"Not a real node: the recording was changed or made up{about}.", "warn")
    if content.health.released_until:
        until = moment(content.health.released_until, content.at)
        yield Sentence(
            f"The GPUs are released until {until.text} ({until.ago}), for a reset or driver upgrade. They "
            "are not watched meanwhile, so UNKNOWN is expected. To end the release now:",
            "unknown", "wirewatch release --end",
        )  # fmt: skip
    if not content.health.turning:
        yield Sentence("A loop of the daemon has stopped: this page may be old. See /livez.", "bad")
    polled = content.health.polled_at
    if polled and content.at - polled > QUIET:
        yield Sentence(f"Nothing has been polled for {span(content.at - polled)}: this page is old.", "bad")
