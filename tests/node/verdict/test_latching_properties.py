"""What holds for every history: one more fault or lost reading never makes a node ready, and so on."""

from collections.abc import Callable, Iterator
from contextlib import suppress as ignored
from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.node.verdict.drawn import COLLECTORS, GONE, HUNG, D, Drawn, F, U, collector_of, reloaded
from tests.node.verdict.histories import (
    DARK,
    EVENTS,
    FALLS,
    FAULTS,
    LITTLE,
    LOSSES,
    MEASURED,
    ORDERS,
    PROBED,
    STARTS,
    WORDS,
    Op,
    heal,
    held,
    histories,
    part_of,
    play,
    played,
)
from wirewatch.core.collector import Component, NodeState, blind_finding
from wirewatch.core.fold import Step, after, overdue
from wirewatch.core.types import Failed, Finding, Health, OperatorNote, Subject
from wirewatch.verdict.latching import step
from wirewatch.verdict.ledger import Key, Ledger, Stage, key_of
from wirewatch.verdict.node import Standing, judge_node
from wirewatch.verdict.orders import OrderError, acknowledge, gate, repaired, suppress

ANY = histories(FAULTS, FAULTS, DARK, LOSSES, FALLS, STARTS, WORDS, ORDERS, PROBED)
WITHOUT_WORDS = histories(FAULTS, FAULTS, LOSSES, FALLS, STARTS, PROBED)
WITHOUT_PEOPLE = histories(FAULTS, FAULTS, LOSSES, FALLS, STARTS, PROBED, WORDS)
HEALTHY = histories(LITTLE, LOSSES, LOSSES, STARTS, ORDERS, PROBED, size=20)
DAY = 86400.0


def ready(node: Drawn, ledger: Ledger, state: NodeState) -> bool:
    return judge_node(state, step(ledger, state, node.now(), node.policy)).job_ready


# One more fault, one reading less, at one step


def with_findings(component: Component, findings: tuple[Finding, ...]) -> Component:
    return replace(component, findings=findings, applicable=True)


def more(node: Drawn, state: NodeState) -> Iterator[NodeState]:
    """The state with one more finding, or one that is worse."""
    for rule, part in (*MEASURED, *EVENTS):
        place = part_of(node, part)
        component = state.components[collector_of(rule)]
        rest = tuple(f for f in component.findings if key_of(f.rule, f.subject) != key_of(rule, place))
        before = next((f for f in component.findings if f not in rest), None)
        event = (rule, part) in EVENTS
        # A milder event than is known tells that the known one is over, which is no fault.
        for health in (F,) if event else (D, U, F):
            if before is None or health > before.health:
                last = node.at if event else 0.0
                new = Finding(rule, health, place, "more", "do", node.at, last, node.mono if event else 0.0)
                yield state.with_component(with_findings(component, (*rest, new)))


def blind(node: Drawn, state: NodeState) -> Iterator[NodeState]:
    """The state with one collector that failed, or is late."""
    for component in state.components.values():
        failed = Failed(HUNG, node.at, node.mono)
        yield state.with_component(after(component, Step(failed, 0.0, None, (), (), None)))
        yield state.with_component(overdue(component, node.at, 10.0))


def unread(state: NodeState) -> Iterator[NodeState]:
    """The state with a part of which one collector, or none, tells any more."""
    for name in ("GPU-a", "GPU-b", "mlx5_0", "mlx5_1"):
        parts = [without(component, name) for component in state.components.values()]
        for part in parts:
            yield state.with_component(part)
        yield NodeState({part.name: part for part in parts})


def without(component: Component, name: str) -> Component:
    """What is found in the part is not found any more, and the collector says that it cannot read it."""
    samples = tuple(s for s in component.samples if name not in s.labels)
    if len(samples) == len(component.samples):
        return component
    there = tuple(f for f in component.findings if name not in {f.subject.uuid, f.subject.device})
    if len(there) == len(component.findings):
        # Nothing was wrong: it may go without a word, as after a restart.
        return replace(component, samples=samples)
    part = Subject(uuid=name) if name.startswith("GPU") else Subject(device=name)
    return replace(component, samples=samples, findings=(*there, blind_finding(component.name, part, GONE)))


@settings(max_examples=examples(40))
@given(ANY)
def test_one_more_fault_or_one_reading_less_never_makes_a_node_ready(history: list[Op]) -> None:
    node = played(history)
    before = node.ledger
    node.look()
    if ready(node, before, node.state):
        return
    for worse in (*more(node, node.state), *blind(node, node.state), *unread(node.state)):
        assert not ready(node, before, worse)


# The exemption: what users write never gates (rule 17)


JOBS = ("bursts", "hangs", "jobs", "lockstep")
OF_JOBS = st.lists(st.sampled_from([D, U, F]), max_size=3)


def of_jobs(node: Drawn, name: str, healths: list[Health], how: str) -> Component:
    """A collector of running jobs with findings of these healths, that was read, failed or is late."""
    part = node.gpu("GPU-b")
    found = tuple(Finding(f"{name}.{n}", one, part, "e", "a", node.at) for n, one in enumerate(healths))
    read = Component(name, None, findings=found, applicable=True, gates=False)
    failed = Step(Failed(HUNG, node.at, node.mono), 0.0, None, (), (), None)
    ways = {"read": read, "failed": after(read, failed), "late": overdue(read, node.at, 2.0)}
    return ways.get(how, Component(name, None, gates=False))


@settings(max_examples=examples(40))
@given(ANY, st.sampled_from(JOBS), OF_JOBS, st.sampled_from(["read", "failed", "late", "never"]))
def test_nothing_of_running_jobs_makes_a_verdict_better_or_worse_or_is_remembered(
    history: list[Op], name: str, healths: list[Health], how: str
) -> None:
    node = played(history)
    before, now = node.ledger, node.now()
    plain = step(before, node.state, now, node.policy)
    beside = node.state.with_component(of_jobs(node, name, healths, how))
    moved = step(before, beside, now, node.policy)
    assert moved == plain
    alone, said = judge_node(node.state, plain), judge_node(beside, moved)
    assert (said.health, said.job_ready, said.findings) == (alone.health, alone.job_ready, alone.findings)


# A fault that is there


@settings(max_examples=examples(40))
@given(histories(FAULTS, FAULTS, DARK, LOSSES, FALLS, STARTS, PROBED))
def test_while_a_fault_is_there_that_was_failed_once_no_job_starts(history: list[Op]) -> None:
    """Whatever cannot be read, restarts or boots meanwhile."""
    node = Drawn()
    believed: set[Key] = set()
    for op in history:
        play(node, op)
        for component in node.state.components.values():
            believed |= {key_of(f.rule, f.subject) for f in component.findings if f.health is F}
        there = {key_of(rule, part) for rule, part in node.found if not rule.endswith(".blind")}
        believed &= there
        node.look()
        assert not believed or not node.verdict.job_ready, believed


# And at any later moment


@settings(max_examples=examples(40))
@given(ANY, WITHOUT_WORDS, st.sampled_from([*MEASURED, *EVENTS]), st.sampled_from([D, U, F]))
def test_one_fault_more_at_any_moment_makes_no_later_verdict_better(
    before: list[Op], then: list[Op], what: tuple[str, tuple[str, str, str]], health: Health
) -> None:
    node, worse = played(before), played(before)
    rule, part = what
    if what in EVENTS:
        play(worse, ("event", what, F))
    else:
        found = dict(worse.found)
        play(worse, ("find", what, max(health, _told(worse, rule, part))))
        worse.look()
        worse.found = found
        node.look()
    for op in (("look", 0.0, 1), *then, ("look", 15.0, 1)):
        play(node, op)
        play(worse, op)
        assert node.verdict.job_ready or not worse.verdict.job_ready


def _told(node: Drawn, rule: str, part: tuple[str, str, str]) -> Health:
    told = node.found.get((rule, part_of(node, part)))
    return told.health if told else Health.OK


@settings(max_examples=examples(40))
@given(ANY, WITHOUT_PEOPLE, st.sampled_from(COLLECTORS), st.sampled_from(["hang", "fail"]))
def test_a_reading_that_is_lost_at_any_moment_makes_no_later_verdict_better(
    before: list[Op], then: list[Op], collector: str, how: str
) -> None:
    node, worse = played(before), played(before)
    play(worse, (how, collector))
    if how == "fail":
        worse.look()
        worse.down = dict(node.down)
        node.look()
    for op in (*then, ("look", 15.0, 1)):
        play(node, op)
        play(worse, op)
        assert node.verdict.job_ready or not worse.verdict.job_ready


# A healthy node


@settings(max_examples=examples(40))
@given(HEALTHY)
def test_a_healthy_history_of_any_length_never_ends_in_failed(history: list[Op]) -> None:
    node = Drawn(flapping=())
    for op in history:
        play(node, op)
        assert node.health is not Health.FAILED
        assert all(e.health < F for e in node.ledger.entries.values())
    heal(node)
    node.look()
    assert node.verdict.job_ready


@settings(max_examples=examples(40))
@given(ANY)
def test_a_node_that_is_well_is_ready_after_a_boot_and_forgets_in_time(history: list[Op]) -> None:
    """No way leads to where only a file can be edited."""
    node = played(history)
    heal(node)
    node.reboot("after all")
    node.probed()
    assert node.look(times=2).job_ready
    assert held(node) <= {Stage.PROBATION, Stage.REMEMBERED}
    for _ in range(9):
        node.probed()
        node.look(seconds=DAY)
    assert (node.health, node.ledger.entries, node.verdict.standings) == (Health.OK, {}, ())


@settings(max_examples=examples(40))
@given(ANY)
def test_a_node_that_is_well_is_ready_by_words_alone(history: list[Op]) -> None:
    node = played(history)
    heal(node)
    node.look()
    for finding in node.verdict.findings:
        if finding.health >= U:
            node.repaired(finding.rule, finding.subject)
    assert node.look().job_ready


# Restarts


@settings(max_examples=examples(40))
@given(ANY, ANY)
def test_a_restart_at_any_point_never_makes_a_node_ready(before: list[Op], then: list[Op]) -> None:
    node, other = played(before), played(before)
    node.look()
    other.look()
    kept = reloaded(other.ledger, other.boot)
    probes = other.probes
    other.ledger = step(
        kept, other.state, replace(other.now(), probes=replace(probes, complete=0)), other.policy
    )
    assert judge_node(other.state, other.ledger).health == node.health
    other.ledger = replace(other.ledger, complete=probes.complete)
    for op in then:
        if op[0] not in {"repaired", "suppress"}:
            play(node, op)
            play(other, op)
            assert node.verdict.job_ready or not other.verdict.job_ready


@settings(max_examples=examples(40))
@given(ANY)
def test_what_a_restarted_daemon_has_not_read_yet_is_held(history: list[Op]) -> None:
    node = played(history)
    node.restart()
    node.waiting = set(COLLECTORS)
    for name in COLLECTORS:
        assert not node.look(times=2).job_ready
        before = {k: e for k, e in node.ledger.entries.items() if e.collector in node.waiting}
        node.look(seconds=DAY)
        now = {k: e for k, e in node.ledger.entries.items() if e.collector in node.waiting}
        assert {k: (e.stage, e.absent) for k, e in now.items()} == {
            k: (e.stage, e.absent) for k, e in before.items()
        }
        node.waiting.discard(name)


# Orders


@settings(max_examples=examples(600))
@given(ANY, ANY)
def test_acknowledging_never_changes_a_verdict(before: list[Op], then: list[Op]) -> None:
    node, other = played(before), played(before)
    said = OperatorNote("bob", "seen", node.at)
    for one in other.verdict.every:
        with ignored(OrderError):
            other.ledger = acknowledge(other.ledger, one, said)
    assert other.verdict.health is node.verdict.health
    for op in then:
        play(node, op)
        play(other, op)
        assert (other.health, other.verdict.job_ready) == (node.health, node.verdict.job_ready)


@settings(max_examples=examples(600))
@given(ANY)
def test_without_the_word_no_order_takes_away_what_is_failed(history: list[Op]) -> None:
    node = played(history)
    said, before, until = OperatorNote("ann", "x", node.at), node.verdict, node.at + 60.0
    failed = {one.key for one in before.every if one.takes_part and one.finding.health is Health.FAILED}
    orders: tuple[Callable[[Standing], Ledger], ...] = (
        lambda one: repaired(node.ledger, one, said, node.mono),
        lambda one: suppress(node.ledger, one, until, said, node.policy, node.mono),
    )
    for one in before.every:
        for order in orders:
            with ignored(OrderError):
                after_it = judge_node(node.state, order(one))
                gate(one, before, after_it, "").guard(yes=False)
                left = (o for o in after_it.every if o.takes_part and o.finding.health is Health.FAILED)
                assert failed <= {o.key for o in left}


# The ledger itself


@settings(max_examples=examples(40))
@given(ANY)
@example(
    [("event", EVENTS[0], F), ("want", "GPU-a"), ("look", 15.0, 3), ("end", EVENTS[0]), ("look", 15.0, 1)]
)
def test_a_second_look_at_the_same_moment_changes_nothing(history: list[Op]) -> None:
    node = played(history)
    node.look()
    once, verdict = node.ledger, node.verdict
    node.step()
    assert node.ledger == once
    assert node.verdict == verdict


@settings(max_examples=examples(40))
@given(ANY)
def test_the_ledger_holds_one_entry_a_fault_and_names_it_once(history: list[Op]) -> None:
    node = played(history)
    possible = {key_of(rule, part_of(node, part)) for rule, part in (*MEASURED, *EVENTS)}
    rules = ("gpu.recovery_action", "gpu.lost")
    possible |= {key_of(rule, node.gpu(uuid)) for rule in rules for uuid in ("GPU-a", "GPU-b")}
    assert set(node.ledger.entries) <= possible
    assert all(key == entry.key for key, entry in node.ledger.entries.items())
    ids = [standing.id for standing in node.verdict.standings]
    assert len(set(ids)) == len(ids)
    ranks = [(not s.takes_part, -s.finding.health) for s in node.verdict.standings]
    assert ranks == sorted(ranks)
