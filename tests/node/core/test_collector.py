"""What the daemon knows from one collector, as histories of runs."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.core.linkcollector import NEW, POLLS, TIMEOUT, LinkFacts, Seen, bad, findings_of, poll, step
from tests.rows import each
from wirewatch.core.collector import BLIND_ACTION, Component, NodeState, blind_finding
from wirewatch.core.fold import after, overdue
from wirewatch.core.types import Absent, Health, Ok, Subject, Why

FINE = Seen()


def test_a_component_that_never_ran_is_unknown() -> None:
    assert NEW.health is Health.UNKNOWN
    assert not NEW.succeeding
    assert NEW.last_success == 0.0


def test_a_run_that_found_nothing_is_healthy_and_has_samples() -> None:
    component = poll(NEW, FINE, 100.0)
    assert component.health is Health.OK
    assert component.succeeding
    assert component.last_success == 100.0
    assert component.samples == (POLLS.sample(1),)


def test_a_failed_run_drops_the_samples_and_is_unknown() -> None:
    component = poll(poll(NEW, FINE, 100.0), TIMEOUT, 115.0)
    assert component.samples == ()
    assert component.health is Health.UNKNOWN
    assert not component.succeeding
    assert component.failures == 1
    assert component.last_success == 100.0


def test_a_failed_run_keeps_what_was_wrong_and_adds_that_it_is_blind() -> None:
    component = poll(poll(NEW, bad(), 100.0), TIMEOUT, 115.0)
    assert findings_of(component) == [
        ("links.down", "0", Health.FAILED, 100.0),
        ("links.blind", "", Health.UNKNOWN, 115.0),
    ]
    assert component.health is Health.FAILED


def test_a_blind_finding_says_why_and_what_to_do() -> None:
    (blind,) = poll(NEW, TIMEOUT, 100.0).findings
    assert blind.evidence == "timeout: the driver timed out"
    assert blind.action == BLIND_ACTION[Why.TIMEOUT]


@each("why", list(Why))
def test_there_is_something_to_do_for_every_reason(why: Why) -> None:
    finding = blind_finding("links", Subject(gpu="3"), Absent(why))
    assert finding.action
    assert finding.health is Health.UNKNOWN


def test_being_blind_for_long_is_one_finding_since_the_first_failure() -> None:
    component = NEW
    for at in (100.0, 115.0, 130.0):
        component = poll(component, TIMEOUT, at)
    assert findings_of(component) == [("links.blind", "", Health.UNKNOWN, 100.0)]
    assert component.failures == 3


def test_a_run_that_succeeds_again_is_not_blind_any_more() -> None:
    component = poll(poll(NEW, TIMEOUT, 100.0), FINE, 115.0)
    assert component.findings == ()
    assert component.health is Health.OK
    assert component.failures == 1


def test_failing_does_not_make_a_collector_forget() -> None:
    component = poll(poll(poll(NEW, FINE, 1.0), TIMEOUT, 2.0), FINE, 3.0)
    assert component.samples == (POLLS.sample(2),)


def test_since_stays_while_a_finding_lasts_and_worsens() -> None:
    component = poll(poll(NEW, bad("0", Health.DEGRADED), 100.0), bad("0", Health.FAILED), 115.0)
    assert findings_of(component) == [("links.down", "0", Health.FAILED, 100.0)]


def test_since_stays_while_the_collector_was_blind_in_between() -> None:
    component = NEW
    for at, read in ((100.0, bad()), (115.0, TIMEOUT), (130.0, TIMEOUT), (145.0, bad())):
        component = poll(component, read, at)
    assert findings_of(component) == [("links.down", "0", Health.FAILED, 100.0)]


def test_since_is_new_when_a_finding_returns() -> None:
    component = poll(poll(poll(NEW, bad(), 100.0), FINE, 115.0), bad(), 130.0)
    assert findings_of(component) == [("links.down", "0", Health.FAILED, 130.0)]


def test_since_is_each_part_s_own() -> None:
    both = Seen((("0", Health.FAILED), ("1", Health.FAILED)))
    component = poll(poll(NEW, bad("0"), 100.0), both, 115.0)
    assert findings_of(component) == [
        ("links.down", "0", Health.FAILED, 100.0),
        ("links.down", "1", Health.FAILED, 115.0),
    ]


def test_an_overdue_run_drops_the_samples_keeps_what_was_wrong_and_is_blind() -> None:
    component = overdue(poll(NEW, bad(), 100.0), 125.0, 10.0)
    assert component.samples == ()
    assert not component.succeeding
    assert findings_of(component) == [
        ("links.down", "0", Health.FAILED, 100.0),
        ("links.blind", "", Health.UNKNOWN, 125.0),
    ]
    assert "10 s" in component.findings[1].evidence


def test_the_first_run_overdue_is_unknown() -> None:
    component = overdue(NEW, 10.0, 10.0)
    assert component.health is Health.UNKNOWN
    assert component.overdue_since == 10.0


@pytest.mark.parametrize("end", [TIMEOUT, FINE])
def test_an_overdue_run_counts_as_one_failure_however_it_ends(end: Seen | Absent) -> None:
    late = overdue(poll(NEW, FINE, 100.0), 125.0, 10.0)
    component = after(late, step(late.memory, end, 140.0))
    assert component.failures == 1
    assert component.overdue_since is None


def test_the_failure_after_an_overdue_one_counts_again() -> None:
    late = overdue(poll(NEW, FINE, 100.0), 125.0, 10.0)
    assert poll(poll(late, TIMEOUT, 140.0), TIMEOUT, 155.0).failures == 2


def test_an_overdue_run_that_fails_is_blind_since_it_was_overdue() -> None:
    late = overdue(poll(NEW, FINE, 100.0), 125.0, 10.0)
    assert findings_of(poll(late, TIMEOUT, 140.0)) == [("links.blind", "", Health.UNKNOWN, 125.0)]


def test_a_component_with_nothing_to_watch_takes_no_part() -> None:
    component = poll(NEW, Seen(here=False), 100.0)
    assert component.health is None
    assert component.applicable is False
    assert component.succeeding


def test_a_component_with_nothing_to_watch_but_something_wrong_takes_part() -> None:
    component = poll(NEW, Seen((("", Health.FAILED),), here=False), 100.0)
    assert component.health is Health.FAILED
    assert component.applicable is True


def test_a_component_with_nothing_to_watch_that_goes_blind_is_unknown() -> None:
    component = poll(poll(NEW, Seen(here=False), 100.0), TIMEOUT, 115.0)
    assert component.health is Health.UNKNOWN


READS = st.one_of(
    st.just(TIMEOUT),
    st.builds(
        Seen,
        st.lists(
            st.tuples(st.sampled_from("0123"), st.sampled_from([Health.DEGRADED, Health.FAILED])),
            max_size=3,
            unique_by=lambda pair: pair[0],
        ).map(tuple),
        st.booleans(),
    ),
)
HISTORIES = st.lists(READS, min_size=1, max_size=8)


def _play(history: list[Seen | Absent]) -> list[Component]:
    component, states = NEW, []
    for number, read in enumerate(history):
        component = poll(component, read, 100.0 + number)
        states.append(component)
    return states


def _ready(component: Component) -> bool:
    return component.health in {None, Health.OK, Health.DEGRADED}


@given(HISTORIES)
def test_going_blind_never_improves_health(history: list[Seen | Absent]) -> None:
    before = _play(history)[-1]
    for blind in (poll(before, TIMEOUT, 200.0), overdue(before, 200.0, 10.0)):
        assert blind.health is not None
        assert blind.health >= max(Health.UNKNOWN, before.health or Health.OK)
        assert {f.key for f in before.findings} <= {f.key for f in blind.findings}


@given(HISTORIES, st.data())
def test_one_more_lost_reading_never_makes_ready_what_was_not(
    history: list[Seen | Absent], data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(history) - 1))
    worse = [*history[:place], TIMEOUT, *history[place + 1 :]]
    for had, has in zip(_play(history), _play(worse), strict=True):
        assert _ready(had) or not _ready(has)


@given(HISTORIES)
def test_samples_are_only_ever_of_the_run_that_just_succeeded(history: list[Seen | Absent]) -> None:
    for component in _play(history):
        assert bool(component.samples) == isinstance(component.outcome, Ok) == component.succeeding


@given(HISTORIES)
def test_no_finding_is_reported_twice_and_none_began_after_now(history: list[Seen | Absent]) -> None:
    for number, component in enumerate(_play(history)):
        keys = [f.key for f in component.findings]
        assert len(set(keys)) == len(keys)
        assert all(100.0 <= f.since <= 100.0 + number for f in component.findings)


def test_the_cost_of_all_runs_is_summed_also_of_those_that_failed() -> None:
    component = NEW
    for read in (FINE, TIMEOUT, FINE):
        component = after(component, replace(step(component.memory, read, 1.0), cpu=0.25))
    assert component.cpu == 0.75


def test_a_node_state_is_replaced_and_never_changed() -> None:
    first = NodeState().with_component(NEW)
    second = first.with_component(poll(NEW, bad(), 100.0))
    assert first.components == {"links": NEW}
    assert second.components["links"].health is Health.FAILED


def test_facts_are_those_of_the_last_reading_and_are_found_by_their_type() -> None:
    state = NodeState({"links": NEW, "other": Component("other", 0)})
    assert state.facts(LinkFacts) is None
    read = poll(poll(NEW, FINE, 100.0), FINE, 115.0)
    lost = overdue(poll(read, TIMEOUT, 130.0), 145.0, 10.0)
    for component in (read, lost):
        assert state.with_component(component).facts(LinkFacts) == LinkFacts(2, here=True)
