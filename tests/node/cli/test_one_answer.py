"""May the next job start: every place that says so says the same, whatever is configured."""

from collections.abc import Iterator

import pytest

from wirewatch.cli.check.answer import Terms, decide
from wirewatch.cli.check.daemon import read_health
from wirewatch.core.collector import Component, NodeState
from wirewatch.core.types import FAIL_ON_NAMES, Finding, Health, Ok, Subject
from wirewatch.daemon.notify import status_line
from wirewatch.documents import judged as documents
from wirewatch.documents import series, state
from wirewatch.kubernetes.condition import ConditionStatus, status_of, view_of
from wirewatch.page.findings import start
from wirewatch.verdict.ledger import Ledger, VerdictPolicy
from wirewatch.verdict.node import Judged, judge_node

AT = 1_795_000_000.0
SETS = (("failed",), ("failed", "unknown"), ("failed", "degraded"), ("failed", "unknown", "degraded"))


def judged(health: Health, fail_on: tuple[str, ...]) -> Judged:
    finding = Finding("nvlink.link_down", health, Subject(gpu="2", uuid="GPU-2"), "17 of 18", "drain")
    found = () if health is Health.OK else (finding,)
    watched = Component("nvlink", None, Ok(None, AT, 1.0), findings=found, applicable=True)
    here = NodeState({"nvlink": watched})
    verdict = judge_node(here, Ledger(), VerdictPolicy(fail_on=fail_on).failing())
    return Judged(here, verdict, polled_at=AT)


def answers(node: Judged) -> Iterator[tuple[str, bool]]:
    """By place, whether it lets the next job start."""
    daemon = documents.DaemonStatus(AT, 1.0)
    document = documents.health(node, daemon)
    yield "/health", document.job_ready
    yield "findings", documents.findings(node, AT).job_ready
    yield "state", documents.state(node, AT, "live").job_ready
    answer = decide(read_health(state.HEALTH.dump_json(document), AT), Terms(), AT)
    yield "check", answer.may_start
    yield "exit code of check", answer.code == 0
    yield "systemctl status", "a job may start" in status_line(node.verdict)
    ready = next(s for s in series.samples(node, "live") if s.metric is series.JOB_READY)
    yield "metric", ready.value == 1
    yield "page", "No job may start" not in start(document)
    yield "node condition", status_of(view_of(node, AT, 1.0, turning=True)) is ConditionStatus.TRUE


@pytest.mark.parametrize("fail_on", SETS, ids=",".join)
@pytest.mark.parametrize("health", Health)
def test_every_place_gives_the_same_answer(health: Health, fail_on: tuple[str, ...]) -> None:
    """Before: UNKNOWN was 503, "no job may start" and exit code 0 at once."""
    expected = health not in {FAIL_ON_NAMES[name] for name in fail_on}
    assert {place: may for place, may in answers(judged(health, fail_on)) if may != expected} == {}
