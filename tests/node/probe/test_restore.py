"""Probes into a real history and back out of it when the daemon starts again."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from tests.node.probe.drawn import broken, drawn, on_switch
from tests.node.probe.histories import stored
from tests.node.probe.idle import Idle
from tests.support import EPOCH, StillClock
from wirewatch.core.probe import Probed
from wirewatch.core.types import Absent, Expect, Health, Why
from wirewatch.probe.collector import next_due
from wirewatch.probe.history import History, ProbeRecord
from wirewatch.probe.model import ProbeMemory, ProbeOptions, ProbePolicy
from wirewatch.probe.restore import PROBED, REMEMBERED, boot_id, keep, persistent, remember

POLICY, TIMEOUT = ProbePolicy(), Absent(Why.TIMEOUT, "no answer")
TWO = on_switch(2)
GOOD, SLOW = drawn(TWO), drawn(TWO, speed=0.5)
COMMAND = replace(SLOW, by="command")


@pytest.fixture
def clock() -> StillClock:
    made = StillClock()
    made.seconds = 100_000.0
    return made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "probes.sqlite"


@pytest.fixture
def history(path: Path, clock: StillClock) -> History:
    return History.open(path, clock)


def newest(path: Path) -> ProbeRecord:
    return stored(path)[-1]


def kept(history: History, told: list[Probed], clock: StillClock, every: float = 600.0) -> ProbeMemory:
    """What a daemon remembers that starts `every` seconds after the last of these probes."""
    for n, probed in enumerate(told):
        ended = clock.now() - (len(told) - n) * every
        keep(history, replace(probed, at=ended - 1.5), ended, "boot-1")
    return remember(history, clock, POLICY)


def test_a_daemon_that_starts_again_knows_what_it_knew(history: History, clock: StillClock) -> None:
    memory = kept(history, [GOOD, SLOW, SLOW], clock)
    (finding,) = memory.held
    assert (finding.rule, finding.health) == ("probe.busbw", Health.FAILED)
    assert finding.since == clock.now() - 2 * 600.0 - 1.5
    assert [streak.count for streak in memory.streaks.values()] == [2]
    assert memory.last == replace(SLOW, at=clock.now() - 601.5)
    assert memory.last_mono == memory.tried_mono == clock.mono() - 600.0
    assert [past.outcome for past in memory.past] == ["ok"] * 3
    assert len(memory.spent) == 3


def test_counters_begin_at_nought_and_the_next_probe_is_due_as_before(
    history: History, clock: StillClock
) -> None:
    memory = kept(history, [GOOD, broken(GOOD, "timeout")], clock, every=200.0)
    assert (memory.runs, memory.gpu_seconds, memory.failures) == ({}, 0.0, 1)
    assert next_due(memory, ProbeOptions(jitter=0.0), ()) == clock.mono() + 400.0


def test_one_slow_probe_before_and_one_after_the_restart_are_two(history: History, clock: StillClock) -> None:
    memory = kept(history, [SLOW], clock, every=10.0)
    assert [f.health for f in memory.held] == [Health.DEGRADED]
    node = Idle(2, start=memory)
    node.clock.seconds, node.knobs = clock.seconds, {"speed": 0.5}
    node.probe()
    assert node.healths() == {"probe.busbw": Health.FAILED}


@pytest.mark.parametrize(
    "other",
    [replace(SLOW, by="command"), replace(SLOW, by="command", forced=True), replace(SLOW, forced=True)],
)
def test_probes_of_people_and_forced_ones_change_no_verdict(
    history: History, clock: StillClock, other: Probed
) -> None:
    memory = kept(history, [GOOD, other, other], clock)
    assert memory.held == ()
    assert memory.last is not None
    assert memory.last.by == "daemon"
    assert not memory.last.forced
    assert memory.last_mono == clock.mono() - 1800.0
    if other.by == "command":
        assert len(memory.past) == 1


def test_only_the_newest_are_looked_at_whatever_unix_time_says(history: History, clock: StillClock) -> None:
    memory = kept(history, [SLOW] * (REMEMBERED + 5), clock, every=60.0)
    assert [streak.count for streak in memory.streaks.values()] == [REMEMBERED]
    clock.seconds -= 70_000.0
    again = remember(history, clock, POLICY)
    assert [finding.health for finding in again.held] == [finding.health for finding in memory.held]
    assert again.tried_mono == clock.mono()


@pytest.mark.parametrize("seconds", [3600.0, -3600.0, 365 * 86_400.0, -365 * 86_400.0])
def test_in_the_same_boot_the_age_of_a_probe_is_true_whatever_unix_time_says(
    history: History, clock: StillClock, seconds: float
) -> None:
    """Before, one jump of the clock made a probe of an hour ago fresh, or older than any."""
    keep(history, GOOD, clock.now(), "boot-1", "daemon", clock.mono())
    later = SetClock(clock.seconds + 3600.0, seconds)
    assert remember(history, later, POLICY, boot="boot-1").last_mono == clock.mono()
    by_date = later.mono() - max(0.0, 3600.0 + seconds)
    for boot in ("boot-2", ""):
        assert remember(history, later, POLICY, boot=boot).last_mono == by_date


class SetClock(StillClock):
    """A wall clock that is wrong by so many seconds."""

    def __init__(self, seconds: float, wrong: float) -> None:
        super().__init__()
        self.seconds, self.wrong = seconds, wrong

    def now(self) -> float:
        return super().now() + self.wrong


def test_probes_that_gave_way_do_not_hide_what_was_found(history: History, clock: StillClock) -> None:
    memory = kept(history, [SLOW, SLOW, *[broken(SLOW, "preempted")] * (REMEMBERED + 5)], clock, every=60.0)
    assert [(finding.rule, finding.health) for finding in memory.held] == [("probe.busbw", Health.FAILED)]


def test_a_record_that_is_not_understood_is_left_out(
    history: History, path: Path, clock: StillClock, caplog: pytest.LogCaptureFixture
) -> None:
    kept(history, [SLOW], clock)
    history.add(replace(newest(path), document='{"schema": "wirewatch.probed/2"}', at=EPOCH))
    memory = remember(history, clock, POLICY)
    assert [finding.rule for finding in memory.held] == ["probe.busbw"]
    assert "a probe of before is not understood" in caplog.text


def test_what_is_kept_says_who_how_and_at_what_cost(history: History, path: Path) -> None:
    keep(history, drawn(TWO, by="command", forced=True, outcome="timeout"), 7.0, "boot-9")
    record = newest(path)
    told = (record.at, record.boot_id, record.result, record.forced, record.started_by, record.engine)
    assert told == (7.0, "boot-9", "timeout", True, "command", "nccl")
    assert record.gpu_seconds == pytest.approx(2 * 1.1824)
    keep(history, drawn(TWO, by="recording"), 8.0, "")
    assert newest(path).started_by == "daemon"
    assert boot_id(Idle(2).hardware) == "boot-1"


def test_a_component_that_keeps_does_so_for_every_probe_and_nothing_else(
    history: History, path: Path
) -> None:
    node = Idle(2)
    node.collector = persistent(node.collector, history, "boot-1", Expect())
    node.probe(2)
    node.outcome = "timeout"
    node.probe()
    node.gpus.absent = TIMEOUT
    node.poll(3)
    records = stored(path)
    assert [one.result for one in records] == ["ok", "ok", "timeout"]
    assert {one.started_by for one in records} == {"daemon"}
    assert PROBED.validate_json(records[-1].document) == node.memory.tried


# --- a history that cannot be written


def test_an_unwritable_history_costs_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("no folder")
    node = Idle(2)
    history = History.open(tmp_path / "file" / "probes.sqlite", node.clock)
    node.collector = persistent(node.collector, history, "boot-1", Expect())
    with caplog.at_level(logging.WARNING):
        node.knobs = {"speed": 0.5}
        node.probe(2)
        assert remember(history, node.clock, POLICY) == ProbeMemory()
    assert node.healths() == {"probe.busbw": Health.FAILED}
    assert caplog.text.count("probes are not kept") == 1
    assert "the history of probes cannot be read" in caplog.text


def test_a_probe_that_is_no_json_is_not_kept_and_costs_nothing(
    history: History, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keep(history, replace(GOOD, why="\udcff"), 1.0, "boot-1")
    assert "a probe could not be kept" in caplog.text
    assert stored(path) == []


def test_a_record_whose_parts_do_not_fit_is_left_out(
    history: History, clock: StillClock, caplog: pytest.LogCaptureFixture
) -> None:
    document = SLOW.document
    assert document is not None
    elsewhere = replace(document.collectives[0], group=7)
    wrong = replace(SLOW, document=replace(document, collectives=(elsewhere, *document.collectives[1:])))
    memory = kept(history, [SLOW, wrong], clock)
    assert memory.count() == 0
    assert [finding.rule for finding in memory.held] == ["probe.busbw"]
    assert "does not fit together" in caplog.text
