"""Series of the process itself: counted under a lock, from any thread."""

from collections.abc import Callable, Sequence
from threading import Lock

from wirewatch.documents.process import ProcessCounts, samples


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
            assert [one.value for one in samples(counts.report)][-2:] == [0, 1.0]
    assert [one.value for one in samples(counts.report)] == [1, 0, 0, 1, 0, 3, 1, 2.0]
