"""The node's verdict of a few components: what is watched, what is worst, and what may start."""

from dataclasses import replace

import pytest

from tests.rows import each
from wirewatch.core.collector import Component, NodeState
from wirewatch.core.fold import overdue
from wirewatch.core.types import Finding, Health, Ok, OperatorNote, Subject
from wirewatch.verdict.latching import step
from wirewatch.verdict.ledger import LOST, Entry, Ledger, Now, Stage, Suppression, VerdictPolicy
from wirewatch.verdict.node import ASIDE, SUPPRESSED, judge_node

D, U, F = Health.DEGRADED, Health.UNKNOWN, Health.FAILED
READ = Ok(None, 1.0, 1.0)
SAID = OperatorNote("ann", "cable", 1.0)
HELD = Entry("nvlink.down", Subject(uuid="GPU-a"), "nvlink", F, Stage.PROBATION, "e", "a", 1.0, 2.0)


def node(*components: Component) -> NodeState:
    return NodeState({one.name: one for one in components})


def read(name: str, *findings: Health, applicable: bool = True) -> Component:
    """A component that was read, with findings of these healths."""
    told = tuple(
        Finding(f"{name}.{n}", health, Subject(), "evidence", "action") for n, health in enumerate(findings)
    )
    return Component(name, None, outcome=READ, applicable=applicable, findings=told)


@pytest.mark.parametrize(
    "state",
    [node(), node(read("nvlink", applicable=False)), node(*(read(n, applicable=False) for n in ("a", "b")))],
)
def test_a_node_on_which_nothing_is_watched_is_unknown_and_starts_no_job(state: NodeState) -> None:
    assert judge_node(state).health is U
    assert not judge_node(state).job_ready


def test_what_does_not_apply_takes_no_part_beside_what_does() -> None:
    assert judge_node(node(read("nvlink"), read("infiniband", applicable=False))).health is Health.OK


def test_a_fault_of_what_does_not_apply_counts_and_knowing_nothing_else_is_unknown() -> None:
    assert judge_node(node(read("agent", D, applicable=False))).health is U
    assert judge_node(node(read("agent", F, applicable=False))).health is F
    assert judge_node(node(read("nvlink"), read("agent", D, applicable=False))).health is D


def test_the_base_is_the_health_without_findings() -> None:
    assert judge_node(node(read("nvlink", F, D))).base is Health.OK
    assert judge_node(node(read("nvlink", F), Component("gpu", None))).base is U
    assert judge_node(node(read("nvlink", F, applicable=False))).base is U
    assert judge_node(node(read("nvlink"), read("agent", F, applicable=False))).base is Health.OK
    assert judge_node(node()).base is U


def test_a_component_that_was_never_read_is_unknown() -> None:
    assert judge_node(node(read("nvlink"), Component("gpu", None))).health is U


@pytest.mark.parametrize(("health", "ready"), [(Health.OK, True), (D, True), (U, False), (F, False)])
def test_a_job_may_start_on_what_is_ok_or_degraded_alone(health: Health, ready: bool) -> None:  # noqa: FBT001
    state = node(read("nvlink", *([health] if health else [])))
    verdict = judge_node(state)
    assert (verdict.health, verdict.job_ready) == (health, ready)


def test_the_worst_finding_stands_first_whichever_component_it_is_of() -> None:
    verdict = judge_node(node(read("a", D), read("b", U, F), read("c", D)))
    assert [finding.health for finding in verdict.findings] == [F, U, D, D]
    assert verdict.findings[0].rule == "b.1"


@each(
    ("why", "change", "evidence", "action"),
    [
        ("seen until now", {"stage": Stage.ACTIVE, "mono": 5.0},
         "e; not seen now, not yet believed to be gone", "a"),
        ("not read", {"stage": Stage.ACTIVE}, "e; not seen now, because its part is not read",
         "a; if the part is gone for good: `wirewatch findings repaired {}`"),
        ("held, and not read", {"stage": Stage.LATCHED},
         "e; not seen since, but absence does not prove a repair",
         "a; once repaired: `wirewatch findings repaired {}`"),
        ("on probation, and not read", {}, "e; over, on probation", "none, unless it comes back; then: a"),
        ("repaired", {"repaired": SAID}, "e; over, on probation; repaired by ann: cable",
         "none, unless it comes back; then: a"),
        ("repaired and seen again", {"repaired": SAID, "stage": Stage.ACTIVE, "mono": 5.0},
         "e; not seen now, not yet believed to be gone", "a"),
        ("once more", {"times": 2}, "e; over, on probation; occurred 2 times within days",
         "none, unless it comes back; then: a"),
        ("lost memory", {"rule": LOST, "stage": Stage.ACTIVE, "mono": 5.0}, "e", "a"),
    ],
)  # fmt: skip
def test_what_is_said_of_a_fault_that_is_not_found_now(
    why: str, change: dict[str, object], evidence: str, action: str
) -> None:
    entry = replace(HELD, **change)  # type: ignore[arg-type]
    (one,) = judge_node(node(read("nvlink")), Ledger(entries={entry.key: entry})).standings
    health = D if entry.stage is Stage.PROBATION else F
    assert (one.finding.evidence, one.finding.action) == (evidence, action.format(one.id)), why
    assert (one.finding.health, one.times, one.repaired, one.measured) == (
        health,
        entry.times,
        entry.repaired,
        None,
    )


@pytest.mark.parametrize(
    ("times", "words"), [(1, "counts as FAILED until it is gone"), (2, "occurred 2 times within days")]
)
def test_what_is_milder_now_says_why_it_counts_as_failed(times: int, words: str) -> None:
    entry = replace(HELD, rule="nvlink.0", subject=Subject(), stage=Stage.ACTIVE, times=times)
    (one,) = judge_node(node(read("nvlink", D)), Ledger(entries={entry.key: entry})).standings
    assert (one.finding.health, one.finding.evidence) == (F, f"evidence; {words}")


@pytest.mark.parametrize("last", [0.0, 5.0])
def test_an_event_says_how_to_end_it_once_it_is_repaired(last: float) -> None:
    told = Finding("xid.79", F, Subject(uuid="GPU-a"), "e", "reset it", 1.0, last, last)
    state = node(replace(read("xid"), findings=(told,)))
    entry = replace(HELD, rule="xid.79", collector="xid", stage=Stage.ACTIVE)
    (one,) = judge_node(state, Ledger(entries={entry.key: entry})).standings
    more = f"; once repaired: `wirewatch findings repaired {one.id}`" if last else ""
    assert one.finding.action == f"reset it{more}"


def test_a_fault_that_is_held_and_suppressed_is_listed_once() -> None:
    given = Suppression(HELD.rule, HELD.subject, F, 9.0, SAID)
    ledger = Ledger(entries={HELD.key: HELD}, suppressions={given.key: given})
    (one,) = judge_node(node(read("nvlink")), ledger).standings
    assert (one.stage, one.finding.health) == (SUPPRESSED, D)


def test_a_collector_that_never_answered_and_whose_blindness_is_suppressed_counts_no_more() -> None:
    hung = overdue(Component("gpu", None), 5.0, 10.0)
    state = node(read("nvlink"), hung)
    assert judge_node(state).health is U
    given = Suppression("gpu.blind", Subject(), U, 9.0, SAID)
    assert judge_node(state, Ledger(suppressions={given.key: given})).health is Health.OK
    assert judge_node(node(hung), Ledger(suppressions={given.key: given})).health is U


def test_what_counts_stands_before_what_is_suppressed_however_bad_that_is() -> None:
    given = Suppression("a.0", Subject(), F, 9.0, SAID)
    verdict = judge_node(node(read("a", F), read("b", D)), Ledger(suppressions={given.key: given}))
    assert [one.finding.rule for one in verdict.standings] == ["b.0", "a.0"]
    assert (verdict.health, [one.rule for one in verdict.findings]) == (D, ["b.0"])


# Collectors of running jobs, whose readings users write


def of_jobs(name: str, *findings: Health) -> Component:
    return replace(read(name, *findings), gates=False)


NEVER_READ, LATE = Component("jobs", None, gates=False), overdue(of_jobs("jobs"), 9.0, 2.0)


@pytest.mark.parametrize(
    "jobs", [of_jobs("jobs", D), of_jobs("jobs", U), of_jobs("jobs", F), NEVER_READ, LATE], ids=str
)
@pytest.mark.parametrize("health", [(), (D,), (U,), (F,)])
def test_no_finding_and_no_failure_of_running_jobs_changes_a_verdict(
    health: tuple[Health, ...], jobs: Component
) -> None:
    alone, beside = node(read("nvlink", *health)), node(read("nvlink", *health), jobs)
    before, now = judge_node(alone), judge_node(beside)
    assert (now.health, now.job_ready, now.findings) == (before.health, before.job_ready, before.findings)
    shown = [one for one in now.standings if one.collector == "jobs"]
    assert [(one.stage, one.finding) for one in shown] == [(ASIDE, each) for each in jobs.findings]


def test_a_node_on_which_only_jobs_are_watched_is_unknown() -> None:
    assert judge_node(node(of_jobs("jobs"))).health is U


def test_a_finding_of_a_job_can_be_suppressed_and_is_shown_again_when_it_gets_worse() -> None:
    state = node(read("nvlink"), of_jobs("jobs", D))
    (found,) = judge_node(state).standings
    said = Suppression("jobs.0", Subject(), D, 1e12, SAID)
    ledger = Ledger(suppressions={found.key: said})
    assert [one.stage for one in judge_node(state, ledger).standings] == [SUPPRESSED]
    worse = node(read("nvlink"), of_jobs("jobs", F))
    assert [one.stage for one in judge_node(worse, ledger).standings] == [ASIDE]


def test_nothing_of_a_job_is_remembered_and_what_an_older_agent_remembered_is_dropped() -> None:
    state = node(read("nvlink"), of_jobs("hangs", F))
    held = replace(HELD, rule="hangs.stopped", collector="hangs", stage=Stage.LATCHED)
    ledger = step(Ledger(entries={held.key: held}), state, Now(5.0, 5.0), VerdictPolicy())
    assert ledger.entries == {}
    assert not ledger.present
    gates = node(read("nvlink"), read("hangs", F))
    assert step(Ledger(), gates, Now(5.0, 5.0), VerdictPolicy()).entries
