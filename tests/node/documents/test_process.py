"""Series of the process itself: counted under a lock, from any thread."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock

from tests.node.daemon.process import FAST, Daemon
from tests.processes import run_wirewatch
from wirewatch.core.types import Tier
from wirewatch.documents.process import ProcessCounts, samples
from wirewatch.server.exposition import as_text


class Watched:
    """A lock that counts how often it was held."""

    def __init__(self) -> None:
        self.held, self._lock = 0, Lock()

    def __enter__(self) -> None:
        self._lock.acquire()
        self.held += 1

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_each_change_is_made_under_the_lock() -> None:
    times = iter([1.0, 2.0])
    counts, lock = ProcessCounts(lambda: next(times)), Watched()
    counts._lock = lock  # type: ignore[assignment]  # noqa: SLF001
    changes: Sequence[Callable[[], None]] = (
        lambda: counts.logged("error"), lambda: counts.logged("odd"), lambda: counts.left_out(3),
        lambda: counts.reloaded(good=False), lambda: counts.reloaded(good=True),
    )  # fmt: skip
    for number, change in enumerate(changes, 1):
        change()
        assert lock.held == number
        if number == 4:
            assert [one.value for one in samples(counts.report)][-3:-1] == [0, 1.0]
    assert [one.value for one in samples(counts.report)] == [1, 0, 0, 1, 0, 3, 1, 2.0, 1.0]


def test_the_start_has_the_name_that_every_program_has_and_stays() -> None:
    times = iter([1.0, 2.0])
    counts = ProcessCounts(lambda: next(times))
    counts.reloaded(good=True)
    *_, started = samples(counts.report)
    assert (started.metric.exposed, started.value) == ("process_start_time_seconds", 1.0)
    assert started.metric.tier is Tier.CORE
    assert as_text([started]).decode().splitlines()[-1] == "process_start_time_seconds 1.0"


def test_a_daemon_starts_when_it_serves_and_not_when_its_code_was_imported(tmp_path: Path) -> None:
    """Its process may be forked from another that has imported everything long before."""
    run_wirewatch("--version")
    before = time.time()
    with Daemon(("--replay", "h200x2-idle"), tmp_path, FAST) as running:
        running.ready()
        (started,) = [
            value for (name, _), value in running.get("/metrics").series().items()
            if name == "process_start_time_seconds"
        ]  # fmt: skip
    assert before <= started <= time.time()
