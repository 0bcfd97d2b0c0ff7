"""Probes that other processes of this node ran, taken over by the running daemon and by the next one."""

import logging
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.node.probe.idle import Idle
from tests.node.probe.sharednode import BOOT, SharedNode
from wirewatch.core.ports import Hardware, SlurmJob
from wirewatch.core.probe import Outcome
from wirewatch.core.types import Absent, Expect, Failed, Health, Why
from wirewatch.probe.collector import ProbeSummary, next_due, summary_of
from wirewatch.probe.history import HistoryLimits
from wirewatch.probe.model import ProbeMemory, ProbeOptions, ProbeReading
from wirewatch.probe.restore import remember
from wirewatch.probe.setup import ProbeTerms

SLOW: dict[str, Any] = {"speed": 0.5}


@pytest.fixture
def node(tmp_path: Path) -> SharedNode:
    return SharedNode(tmp_path)


def counts(node: SharedNode) -> list[int]:
    return [streak.count for streak in node.memory.streaks.values()]


# --- as its own


def test_a_probe_of_another_process_is_as_an_own_one(node: SharedNode) -> None:
    node.poll(every=5.0)
    node.command()
    ended = node.clock.mono()
    node.clock.seconds += 20.0
    node.poll()
    memory = node.memory
    assert memory.last is not None
    assert (memory.last.by, memory.runs, memory.completed) == ("command", {"ok": 1}, 1)
    assert memory.last_mono == memory.tried_mono == pytest.approx(ended)
    assert (memory.fresh, memory.clean) == (True, True)
    assert memory.gpu_seconds == pytest.approx(2 * 1.1824)
    assert [(round(mono - ended, 6), round(cost, 4)) for mono, cost in memory.spent] == [(0.0, 2.3648)]
    assert next_due(memory, node.made, node.listed()) == pytest.approx(ended + 600.0)
    assert node.series("probe_runs_total", result="ok") == [1.0]
    assert len(node.series("probe_busbw_ratio")) == 9
    node.poll(20, every=30.0)
    assert len(node.probes.ordered) == 2, "the own one was due ten minutes after the other"
    assert node.memory.runs == {"ok": 2}


def test_it_is_folded_once_however_often_the_daemon_turns(node: SharedNode) -> None:
    node.command()
    node.poll(5, every=1.0)
    assert (node.memory.runs, [past.outcome for past in node.memory.past]) == ({"ok": 1}, ["ok"])
    assert [record.folded for record in node.records()] == [True]


def test_what_the_command_confirmed_is_confirmed_here_in_one_turn(node: SharedNode) -> None:
    node.probe()
    node.knobs = SLOW
    assert node.command().health is Health.FAILED
    (finding,) = node.poll()
    assert (finding.rule, finding.health) == ("probe.busbw", Health.FAILED)
    assert finding.evidence.endswith("(2 probes in a row)")
    assert node.memory.runs == {"ok": 3}
    assert node.memory.clean is False


def test_one_of_theirs_and_one_of_ours_are_two(node: SharedNode) -> None:
    node.other(**SLOW)
    node.poll()
    assert node.healths() == {"probe.busbw": Health.DEGRADED}
    node.knobs = SLOW
    node.probe()
    assert node.healths() == {"probe.busbw": Health.FAILED}
    # What is new is confirmed soon, whoever found it.
    assert node.memory.past[-1].at - node.memory.past[-2].at < 200.0


def test_a_healthy_one_of_theirs_clears_what_ours_found(node: SharedNode) -> None:
    node.knobs = SLOW
    node.probe(2)
    assert node.healths() == {"probe.busbw": Health.FAILED}
    node.knobs = {}
    node.command()
    assert node.poll() == ()
    assert (node.memory.clean, node.component.health) == (True, Health.OK)


@pytest.mark.parametrize("outcome", ["failed", "timeout", "preempted"])
def test_one_that_was_broken_off_is_counted_and_changes_no_result(node: SharedNode, outcome: Outcome) -> None:
    node.knobs = SLOW
    node.probe(2)
    before = node.memory
    node.other(outcome)
    node.poll(every=1.0)
    assert node.memory.runs == {"ok": 2, outcome: 1}
    assert node.memory.failures == (outcome != "preempted")
    assert (node.memory.last, node.memory.held) == (before.last, before.held)


def test_one_that_ends_between_the_look_and_our_own_stands_before_it(node: SharedNode) -> None:
    added: list[str] = []

    def during(_: object) -> None:
        node.during = lambda _: None
        added.append(node.other(**SLOW).by)

    node.during = during
    node.probe()
    assert added == ["command"]
    assert [(past.worst_ratio or 0.0) < 0.7 for past in node.memory.past] == [True, False]
    assert (node.memory.held, node.memory.clean) == ((), True)
    assert [record.started_by for record in node.records()] == ["command", "daemon"]
    node.poll(3, every=1.0)
    assert node.memory.runs == {"ok": 2}


def test_gloo_is_taken_over_too_and_is_never_clean(tmp_path: Path) -> None:
    node = SharedNode(tmp_path, 0, engine="gloo", ranks=2)
    node.probes.name, node.gpus.absent = "gloo", Absent(Why.MISSING, "no NVML here", 12)
    node.command()
    node.poll()
    assert (node.memory.runs, node.memory.held, node.memory.clean) == ({"ok": 1}, (), False)
    assert len(node.probes.ordered) == 1


def test_without_a_history_nothing_is_looked_for() -> None:
    node = Idle(2)
    node.probe()
    assert node.memory.seen is None
    assert node.memory.runs == {"ok": 1}


# --- what is not as its own


def owner(node: SharedNode) -> None:
    node.jobs.told = [SlurmJob("7", "RUNNING", (0, 1))]
    node.command(owner="slurm:7")
    node.jobs.told = []


def elsewhere(node: SharedNode) -> None:
    node.probes.environment = {"NCCL_P2P_DISABLE": "1"}
    node.command()
    node.probes.environment = {}


def pinned(node: SharedNode) -> None:
    node.made = replace(node.made, pins={"all_reduce": 1e9})
    node.command()
    node.made = replace(node.made, pins={})


def counted(node: SharedNode) -> None:
    node.expect = Expect(nvlink_links=4)
    node.command()
    node.expect = Expect()


LEFT_OUT: dict[str, tuple[Callable[[SharedNode], object], str]] = {
    "collectives": (lambda node: node.command(ops=("all_gather",)), "other collectives or sizes"),
    "sizes": (lambda node: node.command(sizes=(1 << 30,)), "other collectives or sizes"),
    "engine": (lambda node: node.command(engine="gloo"), "engine gloo, not nccl"),
    "GPUs": (owner, "2 GPUs, which are not the 4 watched here"),
    "settings": (elsewhere, "settings of NCCL: NCCL_P2P_DISABLE"),
    "pins": (pinned, "other pins or counts of links"),
    "links": (counted, "other pins or counts of links"),
    "boot": (lambda node: node.other(boot_id="boot-0"), "before this boot"),
}


@pytest.mark.parametrize("what", LEFT_OUT)
def test_one_that_looked_at_something_else_clears_nothing_and_is_reported_once(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    node = SharedNode(tmp_path, 4)
    node.knobs = SLOW
    node.probe(2)
    before = node.memory
    node.knobs = {}
    if what == "engine":
        node.probes.name = "gloo"
    run, why = LEFT_OUT[what]
    run(node)
    node.probes.name = "nccl"
    with caplog.at_level(logging.INFO):
        node.poll(3, every=1.0)
    assert caplog.text.count("does not count here") == caplog.text.count(why) == 1
    assert (node.memory.last, node.memory.held, node.memory.runs) == (before.last, before.held, {"ok": 2})
    assert node.memory.tried_mono == before.tried_mono
    assert [record.folded for record in node.records()] == [True, True, False]
    node.start()
    node.poll(every=1.0)
    assert node.healths() == {"probe.busbw": Health.FAILED}


def test_a_forced_one_is_not_even_looked_at(node: SharedNode, caplog: pytest.LogCaptureFixture) -> None:
    node.knobs = SLOW
    node.command(force=True)
    with caplog.at_level(logging.INFO):
        assert node.poll(3, every=1.0) == ()
    assert (node.memory.runs, caplog.text) == ({}, "")


def test_settings_that_slow_nothing_make_no_difference(node: SharedNode) -> None:
    node.probes.environment = {"NCCL_IB_TIMEOUT": "22"}
    node.command()
    node.probes.environment = {}
    node.poll()
    assert node.memory.runs == {"ok": 1}


def test_one_whose_boot_is_not_known_is_taken(node: SharedNode) -> None:
    node.other(boot_id="")
    node.poll()
    assert node.memory.runs == {"ok": 1}


def test_one_that_is_not_understood_is_reported_once_and_does_not_hide_the_next(
    node: SharedNode, caplog: pytest.LogCaptureFixture
) -> None:
    node.other()
    node.writing().add(replace(node.records()[0], document='{"schema": "wirewatch.probed/2"}'))
    node.other()
    node.poll(3, every=1.0)
    assert node.memory.runs == {"ok": 2}
    assert caplog.text.count("is not understood") == 1


# --- never twice, never missed


def test_while_it_is_not_known_what_an_own_one_would_be_it_waits(node: SharedNode) -> None:
    node.other(**SLOW)
    node.gpus.absent = Absent(Why.TIMEOUT, "no answer")
    node.poll(2, every=1.0)
    assert isinstance(node.component.outcome, Failed)
    node.gpus.absent, name = None, node.probes.name
    node.probes.name = Absent(Why.MISSING, "nothing is installed")
    node.poll(2, every=1.0)
    assert (node.reason(), node.memory.runs) == ("no_engine", {})
    node.probes.name = name
    node.other(**SLOW)
    node.poll(2, every=1.0)
    assert (node.memory.runs, counts(node)) == ({"ok": 2}, [2])


@pytest.mark.parametrize("turns", [0, 1])
def test_a_turn_that_breaks_after_the_look_loses_none(tmp_path: Path, turns: int) -> None:
    """It was marked as taken by then, which is not asked again."""
    node = SharedNode(tmp_path, 4)
    node.poll(turns, every=1.0)
    node.other(**SLOW)
    good = node.collector

    def breaks(hardware: Hardware, memory: ProbeMemory, options: ProbeOptions) -> ProbeReading | Absent:
        good.read(hardware, memory, options)
        raise RuntimeError("as drawn")

    node.collector = replace(good, read=breaks)
    node.poll(2, every=1.0)
    assert [record.folded for record in node.records()] == [True]
    node.collector = good
    node.gpus.addresses = node.gpus.addresses[:3]
    node.poll(2, every=1.0)
    assert (node.memory.runs, counts(node)) == ({"ok": 1}, [1])


def test_the_next_daemon_remembers_what_was_taken_over_as_its_own(node: SharedNode) -> None:
    node.other(**SLOW)
    node.other(**SLOW)
    node.poll(every=1.0)
    (before,) = node.memory.held
    node.start()
    assert (node.memory.runs, node.memory.completed, counts(node)) == ({}, 0, [2])
    (after,) = node.poll(2, every=1.0)
    assert replace(after, evidence="") == replace(before, evidence="")
    assert (node.memory.runs, counts(node)) == ({}, [2])


def test_what_was_taken_over_stays_found_also_when_a_gpu_has_gone_since(tmp_path: Path) -> None:
    node = SharedNode(tmp_path, 4)
    node.other(**SLOW)
    node.other(**SLOW)
    node.poll(every=1.0)
    node.gpus.addresses = node.gpus.addresses[:3]
    node.start()
    node.poll(every=1.0)
    assert node.healths() == {"probe.busbw": Health.FAILED}


def test_those_that_ran_while_no_daemon_did_are_taken_over_by_the_next(node: SharedNode) -> None:
    node.knobs = SLOW
    node.probe()
    node.other(**SLOW)
    node.start()
    assert counts(node) == [1]
    node.poll(2, every=1.0)
    assert (counts(node), node.memory.runs, node.memory.completed) == ([2], {"ok": 1}, 1)
    assert node.healths() == {"probe.busbw": Health.FAILED}


def test_the_first_daemon_ever_takes_over_what_was_before_it(node: SharedNode) -> None:
    node.other()
    node.other(**SLOW)
    node.start()
    node.poll(every=1.0)
    assert (node.memory.runs, counts(node)) == ({"ok": 2}, [1])


def test_what_a_daemon_left_out_is_not_dug_out_by_one_that_is_configured_so(node: SharedNode) -> None:
    """It would be folded after probes that came later."""
    node.command(ops=("all_reduce",))
    node.poll(every=1.0)
    node.probe()
    node.made = replace(node.made, ops=("all_reduce",))
    node.start()
    node.poll(every=1.0)
    assert node.memory.runs == {}
    assert node.memory.last is not None
    assert node.memory.last.plan.ops != ("all_reduce",)


def settle(node: SharedNode) -> None:
    """Everything out of the log and into the file."""
    with closing(sqlite3.connect(node.state.history)) as file:
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def begun_anew(node: SharedNode) -> None:
    for path in node.state.directory.glob("probes.sqlite*"):
        path.unlink()


def garbled(node: SharedNode) -> None:
    settle(node)
    with node.state.history.open("r+b") as file:
        file.write(b"\xff" * 20_000)


@pytest.mark.parametrize("harm", [begun_anew, garbled])
def test_in_a_history_that_begins_again_numbers_begin_again_and_none_is_missed(
    node: SharedNode, harm: Callable[[SharedNode], None]
) -> None:
    node.other()
    node.poll(every=1.0)
    harm(node)
    node.other(**SLOW)
    assert len(node.records()) == 1
    node.poll(2, every=1.0)
    assert (node.memory.runs, counts(node)) == ({"ok": 2}, [1])
    node.other(**SLOW)
    node.poll(2, every=1.0)
    assert (node.memory.runs, counts(node)) == ({"ok": 3}, [2])


def test_a_history_that_is_found_damaged_is_reported_once(
    node: SharedNode, caplog: pytest.LogCaptureFixture
) -> None:
    node.other()
    node.poll(every=1.0)
    node.other(**SLOW)
    with closing(sqlite3.connect(node.state.history)) as file:
        file.execute("UPDATE probes SET at = 'never' WHERE id = 2")
        file.commit()
    node.poll(5, every=1.0)
    assert caplog.text.count("a record is not what was added") == 1
    node.other(**SLOW)
    node.poll(2, every=1.0)
    assert (node.memory.runs, counts(node)) == ({"ok": 2}, [1])


def test_an_older_copy_put_back_is_not_folded_again(node: SharedNode, tmp_path: Path) -> None:
    node.knobs = SLOW
    node.probe()
    node.other(**SLOW)
    node.poll(every=1.0)
    settle(node)
    shutil.copy(node.state.history, tmp_path / "copy")
    node.other()
    node.poll(every=1.0)
    begun_anew(node)
    shutil.copy(tmp_path / "copy", node.state.history)
    node.poll(2, every=1.0)
    assert (node.memory.runs, counts(node)) == ({"ok": 3}, [])
    node.other(**SLOW)
    node.poll(2, every=1.0)
    assert (node.memory.runs, counts(node)) == ({"ok": 4}, [1])


def test_the_oldest_rows_may_go_between_two_looks(tmp_path: Path) -> None:
    node = SharedNode(tmp_path, limits=HistoryLimits(max_records=3))
    node.other()
    node.poll(every=1.0)
    for _ in range(3):
        node.other(**SLOW)
    assert len(node.records()) == 3
    node.poll(2, every=1.0)
    assert (node.memory.runs, counts(node)) == ({"ok": 4}, [3])


def test_a_clock_set_back_changes_no_order_and_makes_no_negative_age(
    node: SharedNode,
) -> None:
    node.other()
    real = node.clock.now
    node.clock.now = lambda: real() - 50_000.0  # type: ignore[method-assign]
    node.other(**SLOW)
    node.other(**SLOW)
    node.poll(2, every=1.0)
    assert (node.memory.runs, counts(node)) == ({"ok": 3}, [2])
    assert node.memory.last_mono == pytest.approx(node.clock.mono() - 2.0)
    node.clock.now = lambda: real() - 90_000.0  # type: ignore[method-assign]
    node.start()
    node.poll(every=1.0)
    assert node.memory.last_mono == node.clock.mono() - 1.0
    assert node.healths() == {"probe.busbw": Health.FAILED}


# --- a history that cannot be read or written


def test_a_history_that_cannot_be_read_costs_a_line_and_no_turn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "state"
    folder.write_text("no folder")
    node = SharedNode(folder)
    caplog.clear()
    assert node.poll(5, every=1.0) == ()
    assert caplog.text.count("the history of probes cannot be read") == 1
    folder.unlink()
    folder.mkdir()
    node.other(**SLOW)
    node.poll(2, every=1.0)
    assert (node.memory.runs, counts(node)) == ({"ok": 1}, [1])
    shutil.rmtree(folder)
    folder.write_text("no folder")
    node.poll(5, every=1.0)
    assert caplog.text.count("the history of probes cannot be read") == 2
    assert node.healths() == {"probe.busbw": Health.DEGRADED}


def test_what_cannot_be_marked_at_once_is_marked_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = SharedNode(tmp_path, limits=HistoryLimits(busy=0.05))
    node.other(**SLOW)
    with closing(sqlite3.connect(node.state.history, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        node.poll(3, every=1.0)
        assert (node.memory.runs, counts(node)) == ({"ok": 1}, [1])
        assert caplog.text.count("which probes were taken over cannot be kept") == 1
    node.poll(2, every=1.0)
    assert [record.folded for record in node.records()] == [True]
    assert node.memory.runs == {"ok": 1}


# --- where no daemon runs


def test_without_a_daemon_the_history_reports_the_newest_that_is_whole(node: SharedNode) -> None:
    history, clock, policy, fresh = node.writing(), node.clock, node.rules_used, node.made.fresh

    def newest(terms: ProbeTerms | None) -> ProbeSummary:
        memory = remember(history, clock, policy, terms)
        until = None if memory.last_mono is None else memory.last_mono + fresh
        return summary_of(replace(memory, fresh_until=until), clock.mono())

    never = newest(node.terms())
    assert (never.at, never.age_seconds, never.fresh) == (0.0, None, False)
    node.other(by="daemon")
    began = node.other(**SLOW).at
    clock.seconds += 100.0
    node.command(ops=("all_gather",))
    node.command(force=True)
    alone, whole = newest(None), newest(node.terms())
    assert (alone.at, alone.clean) == (began - 1.5, True)
    assert whole.age_seconds == pytest.approx(103.0)
    assert (whole.at, whole.clean, whole.fresh, whole.complete) == (began, False, True, 0)
    clock.seconds += 7200.0
    old = newest(node.terms())
    assert (old.at, old.fresh) == (began, False)
    memory = remember(history, clock, policy, node.terms())
    assert [finding.health for finding in memory.held] == [Health.DEGRADED]


def test_what_a_daemon_took_over_and_what_came_after_it_stand_in_their_order(node: SharedNode) -> None:
    node.other(**SLOW)
    node.poll(every=1.0)
    node.other(**SLOW)
    history, clock, policy = node.writing(), node.clock, node.rules_used
    memory = remember(history, clock, policy, node.terms())
    assert [streak.count for streak in memory.streaks.values()] == [2]
    assert [streak.count for streak in remember(history, clock, policy).streaks.values()] == [1]


def test_the_boot_of_this_machine_is_asked_for_by_whoever_compares(node: SharedNode) -> None:
    assert node.terms().boot_id == BOOT
