"""What the verdict is told of probes."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.probes.drawn import drawn, gloo, on_switch
from tests.probes.idle import Idle
from wirewatch.core.collector import Component
from wirewatch.core.probe import Probed
from wirewatch.core.types import Absent, Why
from wirewatch.probe.component import ProbeSummary, probe_summary
from wirewatch.probe.judge import take
from wirewatch.probe.model import Memory, ProbePolicy, complete

TWO = on_switch(2)
GOOD, SLOW, BAD = drawn(TWO), drawn(TWO, speed=0.5), drawn(TWO, outcome="failed")


def now(node: Idle) -> ProbeSummary:
    found = probe_summary(node.component, node.clock.mono())
    assert found is not None
    return found


def test_where_nothing_is_probed_there_is_nothing_to_tell() -> None:
    assert probe_summary(None, 1.0) is None
    assert probe_summary(Component("gpu", Memory()), 1.0) is None
    assert probe_summary(Component("probe", None), 1.0) is None


def test_before_the_first_probe_it_is_never() -> None:
    assert probe_summary(Component("probe", Memory()), 1.0) == ProbeSummary()
    assert ProbeSummary() == ProbeSummary(0.0, None, fresh=False, complete=0, clean=False, watched=True)


def test_the_newest_complete_one_ages_and_is_fresh_for_a_while() -> None:
    node = Idle(2)
    node.probe()
    began = node.memory.past[-1].at
    ended = began - node.clock.now() + node.clock.mono() + 1.5
    first = now(node)
    assert (first.at, first.fresh, first.complete, first.clean) == (began, True, 1, True)
    assert first.age_seconds is not None
    assert abs(first.age_seconds - (node.clock.mono() - ended)) < 1e-6
    # Also of a component that turns no more.
    assert [probe_summary(node.component, ended + late).fresh for late in (7199.0, 7201.0)] == [True, False]  # type: ignore[union-attr]
    assert probe_summary(node.component, 0.0).age_seconds == 0.0  # type: ignore[union-attr]


def test_the_newest_that_is_complete_says_whether_it_is_clean() -> None:
    node = Idle(2)
    node.probe()
    node.knobs = {"speed": 0.5}
    node.probe()
    assert (now(node).complete, now(node).clean) == (2, False)
    node.knobs, node.outcome = {}, "timeout"
    node.probe()
    assert (now(node).complete, now(node).clean) == (2, False)
    node.outcome = "ok"
    node.probe()
    assert (now(node).complete, now(node).clean) == (3, True)


def test_mig_makes_nothing_clean() -> None:
    node = Idle(2)
    node.knobs = {"speed": 0.5}
    node.probe()
    node.answer(0, "MigMode", [1, 1])
    node.poll()
    assert node.memory.held == ()
    assert (now(node).clean, now(node).watched) == (False, False)


def test_it_is_watched_until_it_is_known_that_there_is_nothing() -> None:
    node = Idle(2)
    node.gpus.absent = Absent(Why.TIMEOUT, "no answer")
    node.poll()
    assert now(node).watched
    node.gpus.absent, node.gpus.addresses = None, node.gpus.addresses[:1]
    node.poll()
    assert not now(node).watched


@given(st.lists(st.tuples(st.sampled_from([GOOD, SLOW, BAD, gloo()]), st.booleans()), max_size=8))
def test_forced_ones_and_broken_ones_count_for_nothing(probes: list[tuple[Probed, bool]]) -> None:
    memory = Memory()
    for number, (probed, forced) in enumerate(probes):
        memory = take(memory, replace(probed, forced=forced), float(number), ProbePolicy())
    whole = [probed for probed, forced in probes if not forced and probed.outcome == "ok"]
    assert complete(memory) == (len(whole), bool(whole) and whole[-1] is GOOD)
