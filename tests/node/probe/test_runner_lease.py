"""A probe that is told to give way: its worker is dead in no time, and no other starts until it may."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.groups import dies
from tests.node.probe.rig import PROCESSES, Rig
from tests.node.probe.test_runner import tracer
from tests.patience import HANGS
from wirewatch.core.probe import Probed
from wirewatch.probe.runner import Lease, Withdrawn

WHY = "released until noon"
WITHIN = HANGS
"""Seconds; eight times what is promised, since a busy machine may delay anything."""
SOON = HANGS


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def gives_way(rig: Rig) -> int | None:
    began = time.monotonic()
    rig.prober.give_way(WHY)
    left = rig.prober.left(WITHIN / 4)
    assert time.monotonic() - began < WITHIN
    return left


def started(rig: Rig, name: str) -> "tuple[ThreadPoolExecutor, Future[Probed]]":
    """A probe with the worker of this name, which is there."""
    pool = ThreadPoolExecutor(1)
    probe = pool.submit(rig.run, name, 60.0)
    until(rig.pid_file.exists)
    return pool, probe


@pytest.mark.parametrize("worker", ["silent", "stubborn", "deaf", "parent", "lingering", "stalled", "mute"])
def test_whatever_a_worker_does_it_is_dead_and_the_probe_was_preempted(rig: Rig, worker: str) -> None:
    pool, probe = started(rig, worker)
    with pool:
        assert gives_way(rig) is None
        assert dies(rig.pid())
        probed = probe.result(SOON)
    assert (probed.outcome, probed.why, probed.document) == ("preempted", WHY, None)


def test_none_is_started_until_it_may(rig: Rig) -> None:
    assert gives_way(rig) is None
    probed = rig.run("good")
    assert (probed.outcome, probed.why, probed.seconds) == ("preempted", WHY, 0.0)
    assert not rig.pid_file.exists()
    rig.prober.resume()
    assert rig.run("good").outcome == "ok"


def test_the_worker_dies_also_while_the_one_who_watches_it_is_held_up(rig: Rig) -> None:
    """A question to NVML that hangs."""
    hangs, answered = threading.Event(), threading.Event()

    def hang(_gpu: str | None, question: str) -> None:
        if question == PROCESSES and rig.pid_file.exists():
            hangs.set()
            answered.wait(SOON)

    rig.nvml.before = hang
    pool, probe = started(rig, "silent")
    with pool:
        hangs.wait(SOON)
        assert gives_way(rig) is None
        assert dies(rig.pid())
        assert not probe.done()
        # Also when it is over before he looks again.
        rig.prober.resume()
        answered.set()
        probed = probe.result(SOON)
    assert (probed.outcome, probed.why) == ("preempted", WHY)


def test_a_worker_that_does_not_die_is_named(rig: Rig) -> None:
    with tracer(rig.pid_file) as holder:
        assert holder.stdout is not None
        pool, probe = started(rig, "traced_silent")
        with pool:
            held = holder.stdout.readline().strip()
            rig.prober.give_way(WHY)
            left, pid = rig.prober.left(0.3), rig.pid()
            probed = probe.result(SOON)
        if held != "held":
            pytest.skip(f"no process may trace another here: {held}")
        assert (left, probed.outcome) == (pid, "stuck")
        assert rig.prober.left(0.0) == pid
    until(lambda: rig.prober.left(0.0) is None)
    rig.prober.resume()
    assert rig.run("good").outcome == "ok"


class Locked:
    """Stands for a worker: it notes whether the lease is locked while it is started and killed."""

    def __init__(self, lease: Lease) -> None:
        self._lease, self.seen = lease, list[bool]()

    def start(self) -> Any:
        self.seen.append(self._lease._lock.locked())  # noqa: SLF001
        return self

    def kill(self) -> None:
        self.start()


def test_no_worker_is_started_while_another_thread_withdraws_the_lease() -> None:
    lease = Lease()
    worker = Locked(lease)
    lease.take(worker.start)
    lease.withdraw(WHY)
    assert worker.seen == [True, True]
    with pytest.raises(Withdrawn, match=WHY):
        lease.take(worker.start)
    lease.grant()
    lease.take(worker.start)


def test_who_waits_for_the_end_of_a_probe_hears_of_it(rig: Rig) -> None:
    assert all(rig.prober.finished(0.01) for _ in range(2))
    pool, probe = started(rig, "silent")
    with pool:
        assert not rig.prober.finished(0.01)
        assert gives_way(rig) is None
        probe.result(SOON)
    assert rig.prober.finished(0.01)


def test_a_probe_that_is_over_is_as_it_was(rig: Rig) -> None:
    assert rig.run("good").outcome == "ok"
    assert gives_way(rig) is None
    rig.prober.resume()
    assert rig.run("good").outcome == "ok"


def test_whenever_it_is_reported_nothing_lives_afterwards(rig: Rig) -> None:
    """Before the worker, while it starts, in the middle, at its end."""
    outcomes = set()
    for turn in range(12):
        with ThreadPoolExecutor(1) as pool:
            rig.pid_file.unlink(missing_ok=True)
            probe = pool.submit(rig.run, "good", 60.0)
            time.sleep(0.02 * turn)
            assert gives_way(rig) is None
            outcomes.add(probe.result(SOON).outcome)
            assert not rig.pid_file.exists() or dies(rig.pid())
            rig.prober.resume()
    assert outcomes <= {"preempted", "ok"}
    assert "preempted" in outcomes
