"""What is left out, and for how long; and what cannot be started at all."""

import errno
import os
import select
import signal
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.hw.recordings import Time
from tests.patience import HANGS
from tests.rows import each
from wirewatch.core.types import Absent, Why
from wirewatch.hw.nvml import process
from wirewatch.hw.nvml.process import Child, ChildHung, Delay, NvmlChild, Quarantine, Supervisor
from wirewatch.hw.nvml.protocol import Source

SOON = HANGS

HUNG = Absent(Why.TIMEOUT, "did not answer")
DIED = Absent(Why.LOST, "died")


def _waits(left_out: Quarantine, time: Time, key: str) -> float:
    """Seconds until it may be asked again."""
    began = time.seconds
    while left_out.holds(key) is not None:
        time.seconds += 1
    return time.seconds - began


@each(("failures", "seconds"), [(1, 10), (2, 20), (3, 40), (7, 600), (8, 600)])
def test_the_waiting_time_doubles_up_to_a_limit(failures: int, seconds: float) -> None:
    assert Delay(10.0, 600.0).after(failures) == seconds


@given(st.integers(1, 10**9))
def test_the_waiting_time_stays_within_its_limits_for_ever(failures: int) -> None:
    assert 10.0 <= Delay(10.0, 600.0).after(failures) <= 600.0


def test_no_gpu_is_left_out_at_first() -> None:
    left_out = Quarantine(Delay(10.0, 600.0), Time())
    assert left_out.holds("GPU-3") is None
    assert left_out.suspects("GPU-3") is None


def test_who_failed_is_left_out_longer_each_time_and_always_tried_again() -> None:
    time = Time(1000.0)
    left_out = Quarantine(Delay(10.0, 50.0), time)
    waits = []
    for _ in range(5):
        left_out.add("GPU-3", HUNG)
        waits.append(_waits(left_out, time, "GPU-3"))
    assert waits == [10, 20, 40, 50, 50]


def test_who_is_left_out_reads_as_the_last_reason() -> None:
    left_out = Quarantine(Delay(10.0, 50.0), Time())
    left_out.add("GPU-3", HUNG)
    left_out.add("GPU-3", DIED)
    assert left_out.holds("GPU-3") == DIED


def test_who_may_be_asked_again_stays_suspect_until_it_has_answered() -> None:
    time = Time()
    left_out = Quarantine(Delay(10.0, 50.0), time)
    left_out.add("GPU-3", HUNG)
    time.seconds = 11.0
    assert left_out.holds("GPU-3") is None
    assert left_out.suspects("GPU-3") == HUNG
    left_out.release("GPU-3")
    assert left_out.suspects("GPU-3") is None


def test_who_has_answered_begins_again() -> None:
    time = Time()
    left_out = Quarantine(Delay(10.0, 50.0), time)
    for _ in range(3):
        left_out.add("GPU-3", HUNG)
    left_out.release("GPU-3")
    left_out.add("GPU-3", HUNG)
    assert _waits(left_out, time, "GPU-3") == 10


def test_leaving_one_out_leaves_no_other_out() -> None:
    left_out = Quarantine(Delay(10.0, 50.0), Time())
    left_out.add("GPU-3", HUNG)
    left_out.release("GPU-4")
    assert left_out.holds("GPU-3") == HUNG
    assert left_out.holds("GPU-4") is None


def test_a_machine_that_can_start_no_process_has_no_answers_for_a_while() -> None:
    """Out of processes, descriptors or memory: no error of a collector, and started once there are some."""
    time = Time()
    left = [errno.EAGAIN, errno.EMFILE, errno.ENOMEM]

    def start() -> NvmlChild:
        if left:
            raise OSError(left[0], os.strerror(left.pop(0)))
        return Child(Source("h200x1-idle"))

    supervisor = Supervisor(start, SOON, Quarantine(Delay(1.0, 60.0), time))
    reasons = []
    for seconds in (1.1, 2.1, 4.1):
        absent = supervisor.ready()
        assert absent is not None
        assert supervisor.ready() == absent
        reasons.append(absent.detail)
        time.seconds += seconds
    assert [one.rpartition(": ")[2] for one in reasons] == [
        "Resource temporarily unavailable", "Too many open files", "Cannot allocate memory",
    ]  # fmt: skip
    try:
        assert supervisor.ready() is None
    finally:
        assert supervisor.drop()


@each(
    ("number", "why"),
    [
        (errno.EAGAIN, Why.EXHAUSTED), (errno.EMFILE, Why.EXHAUSTED), (errno.ENOMEM, Why.EXHAUSTED),
        (errno.ENOENT, Why.MISSING), (errno.EACCES, Why.DENIED),
    ],
)  # fmt: skip
def test_why_no_process_can_be_started_is_said_by_its_error(number: int, why: Why) -> None:
    """A Python that is gone or may not run is not a limit of the agent."""

    def start() -> NvmlChild:
        raise OSError(number, os.strerror(number))

    absent = Supervisor(start, SOON, Quarantine(Delay(1.0, 60.0), Time())).ready()
    assert absent is not None
    assert absent.why is why


def test_a_job_that_a_hanging_child_does_not_take_is_given_up_at_the_deadline() -> None:
    """One that is larger than the pipe."""
    child = Child(Source("h200x1-idle"))
    try:
        child.hello(SOON)
        os.kill(child.pid, signal.SIGSTOP)
        with pytest.raises(ChildHung):
            child.ask(b"x" * (1 << 20), 0.05)
    finally:
        assert child.kill()


@pytest.mark.parametrize("left", [-1.0, 0.01])
def test_a_pipe_is_waited_for_until_the_deadline_which_may_be_over(left: float) -> None:
    reading, writing = os.pipe()
    try:
        with pytest.raises(ChildHung):
            vars(process)["_wait"](reading, select.POLLIN, time.monotonic() + left)
        vars(process)["_wait"](writing, select.POLLOUT, time.monotonic() + SOON)
    finally:
        os.close(reading)
        os.close(writing)
