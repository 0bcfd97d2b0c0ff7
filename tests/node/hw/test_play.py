"""A play in counted time: its clock moves on order alone, and whoever waits too long is told."""

import time
from pathlib import Path

import pytest

from tests.node.hw.recordings import one_change, recording
from wirewatch.core.ports import Answer, Question
from wirewatch.hw.nvml import protocol
from wirewatch.hw.nvml.process import ChildDied, ChildHung
from wirewatch.hw.overlay import Player, load_overlay
from wirewatch.hw.play import PlayClock, PlayedChild, PlayOverdue, effects

POWER = Question("PowerUsage")
JOB = protocol.encode_job("index:0", (POWER,))
SMALL = recording([0.0, 100.0], {("nvml", "gpu0/PowerUsage()"): {0: 100, 1: 200}})


def test_a_clock_moves_on_order_and_never_back() -> None:
    clock = PlayClock(1000.0)
    began, unix = clock.mono(), clock.now()
    assert 999.0 < time.time() - unix < 1060.0
    assert 999.0 < time.monotonic() - began < 1060.0
    clock.move_to(10.0)
    clock.move_to(5.0)
    clock.wait(2.0)
    assert (clock.seconds(), clock.mono(), clock.now()) == (12.0, began + 12.0, unix + 12.0)
    assert clock.mono_at(7.0) == began + 7.0


def test_a_clock_is_never_ahead_of_the_machine_s() -> None:
    clock = PlayClock(10.0)
    clock.move_to(5000.0)
    assert clock.now() <= time.time()
    assert clock.seconds() == 5000.0


def test_a_clock_that_was_let_go_is_the_machine_s() -> None:
    clock = PlayClock(1000.0)
    clock.move_to(10.0)
    clock.let_go()
    here = time.time()
    assert clock.now() >= here
    clock.wait(0.02)
    passed = clock.seconds()
    assert passed >= 10.02
    clock.let_go()
    assert clock.seconds() >= passed
    with clock.within(0.0):
        clock.wait(0.001)


class Late(Exception):
    """Said by a test's own limit."""


def test_who_waits_longer_than_allowed_is_told_at_that_time() -> None:
    clock = PlayClock(0.0)
    with clock.within(5.0):
        clock.wait(4.9)
        assert clock.seconds() == 4.9
        with pytest.raises(PlayOverdue):
            clock.wait(60.0)
    assert clock.seconds() == 5.0
    clock.wait(60.0)
    assert clock.seconds() == 65.0


@pytest.mark.parametrize(("outer", "inner", "said"), [(5.0, 9.0, Late), (9.0, 5.0, ChildHung)])
def test_of_two_limits_the_first_holds(outer: float, inner: float, said: type[Exception]) -> None:
    clock = PlayClock(0.0)
    with pytest.raises(said), clock.within(outer, Late), clock.within(inner, ChildHung):
        clock.wait(60.0)
    assert clock.seconds() == 5.0


def test_a_limit_that_is_over_is_so_at_once_and_moves_nothing_back() -> None:
    clock = PlayClock(0.0)
    with clock.within(5.0):
        clock.move_to(8.0)
        with pytest.raises(PlayOverdue):
            clock.wait(1.0)
    assert clock.seconds() == 8.0
    with pytest.raises(PlayOverdue), clock.within(2.0):
        clock.wait(2.0)


def child(*overlays: str) -> tuple[PlayedChild, PlayClock]:
    clock = PlayClock(0.0)
    loaded = tuple(map(load_overlay, overlays))
    return PlayedChild(
        Player(SMALL, clock.seconds, loaded, strict=True, effects=effects(clock)), clock
    ), clock


def test_a_played_child_answers_at_once() -> None:
    found, _ = child()
    assert found.hello(1.0) == protocol.Hello()
    assert found.ask(JOB, 5.0) == protocol.Reply((Answer(100, 1.0),), 1e-6)
    assert (found.alive(), found.gone(), found.pid) == (True, False, 0)


@pytest.mark.parametrize(
    ("line", "error", "lives"),
    [("hang = true", ChildHung, True), ("slow = 6.0", ChildHung, True), ("crash = true", ChildDied, False)],
)
def test_a_played_child_hangs_or_dies_as_an_overlay_says(
    tmp_path: Path, line: str, error: type[Exception], *, lives: bool
) -> None:
    found, clock = child(one_change(tmp_path, line))
    with pytest.raises(error):
        found.ask(JOB, 5.0)
    assert found.alive() is lives
    assert clock.seconds() == (5.0 if lives else 0.0)


def test_a_played_child_that_breaks_says_so(tmp_path: Path) -> None:
    found, _ = child(one_change(tmp_path, 'raise = "a bug"'))
    assert found.ask(JOB, 5.0) == protocol.Reply((), 0.0, "a bug")
    slow, clock = child(one_change(tmp_path, "slow = 4.0"))
    assert slow.ask(JOB, 5.0).answers == (Answer(100, 1.0),)
    assert clock.seconds() == 4.0


@pytest.mark.parametrize("end", ["close", "kill", "shoot"])
def test_a_played_child_ends_at_once(end: str) -> None:
    found, _ = child()
    assert getattr(found, end)() in {True, None}
    assert (found.alive(), found.gone()) == (False, True)
