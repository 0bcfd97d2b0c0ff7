"""What the ledger says is on the disk as soon as it is new, and not for what merely counts on."""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.patience import HANGS
from tests.support import StillClock
from wirewatch.core.types import Health, Subject
from wirewatch.daemon.persistence import (
    AGAIN,
    EVERY,
    LOOK,
    FolderWatch,
    LedgerWriter,
    StateWriter,
    read_ledger,
)
from wirewatch.statefolder import HeldFolder, open_state
from wirewatch.verdict.ledger import Entry, Ledger, Stage

ENTRY = Entry(
    "nvlink.link_down", Subject("2", "GPU-2"), "nvlink", Health.FAILED, Stage.ACTIVE, "inactive", "drain",
    1.0, 2.0,
)  # fmt: skip


def kept(path: Path, ledgers: Sequence[Ledger], apart: float = 1.0) -> Sequence[object]:
    """Return what the file holds after each of these ledgers, which come so many seconds after each other."""

    async def run() -> list[object]:
        clock, found = StillClock(), list[object]()
        keeper = LedgerWriter(path, clock)
        for ledger in ledgers:
            keeper.changed(ledger)
            await keeper.flush()
            found.append(read_ledger(path, "b", 0.0))
            clock.seconds += apart
        return found

    return asyncio.run(run())


def test_a_new_fault_is_written_at_once_and_what_counts_on_is_not(tmp_path: Path) -> None:
    empty = Ledger("b")
    active = empty.with_entry(ENTRY)
    counted = active.with_entry(replace(ENTRY, absent=30.0))
    over = active.with_entry(replace(ENTRY, stage=Stage.PROBATION))
    assert kept(tmp_path / "latches.json", [empty, active, counted, over]) == [empty, active, active, over]


def test_a_daemon_that_ends_waits_for_what_it_has_not_written(tmp_path: Path) -> None:
    """A disk that takes a moment: what was known last is there when the wait is over."""
    path, written = tmp_path / "file", threading.Event()

    def save(place: Path) -> str:
        written.wait(0.3)
        place.write_text("newest", "utf-8")
        return ""

    async def run() -> None:
        writer = StateWriter(path, save, "lost", StillClock())
        writer.submit()
        assert not path.exists()
        await writer.flush()
        assert path.read_text("utf-8") == "newest"

    asyncio.run(run())


def test_what_could_not_be_written_is_written_once_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Said once, and tried again without anything new to write."""
    path, clock, ledger = tmp_path / "gone" / "latches.json", StillClock(), Ledger("b").with_entry(ENTRY)

    async def until(done: Callable[[], bool]) -> None:
        async with asyncio.timeout(HANGS):
            while not done():  # noqa: ASYNC110 - a line of the log
                await asyncio.sleep(0.005)

    async def run() -> None:
        keeper = LedgerWriter(path, clock)
        keeper.changed(ledger)
        await until(lambda: "No such file" in caplog.text)
        keeper.changed(ledger)
        path.parent.mkdir()
        for seconds in (AGAIN - 1.0, 1.0):
            clock.seconds += seconds
            keeper.changed(ledger)
        await until(lambda: "is written again" in caplog.text)

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    assert read_ledger(path, "b", 0.0) == ledger
    assert len(caplog.records) == 2


def test_what_counts_on_is_written_now_and_then(tmp_path: Path) -> None:
    active = Ledger("b").with_entry(ENTRY)
    counted = active.with_entry(replace(ENTRY, absent=EVERY))
    assert kept(tmp_path / "latches.json", [active, counted], apart=EVERY) == [active, counted]


class Hanging(HeldFolder):
    """A folder on a disk that answers when it is let."""

    def __init__(self, path: Path) -> None:
        super().__init__(open_state(path))
        self.answers, self.looks = threading.Event(), 0

    def check(self) -> bool:
        self.looks += 1
        self.answers.wait(HANGS)
        return super().check()


def test_a_disk_that_hangs_is_asked_once_and_said_and_a_new_folder_is_written_again(tmp_path: Path) -> None:
    async def run() -> None:
        clock, written = StillClock(), []
        with Hanging(tmp_path / "state") as folder:
            watch = FolderWatch(folder, [lambda: written.append(1), lambda: written.append(2)], clock)
            for seconds in (0.0, LOOK / 2):
                clock.seconds += seconds
                watch.look()
                assert folder.wrong == ""
            clock.seconds += LOOK / 2
            watch.look()
            assert folder.wrong == f"the disk of the state folder has not answered for {LOOK:.0f} s"
            (tmp_path / "state").rename(tmp_path / "away")
            folder.answers.set()
            async with asyncio.timeout(HANGS):
                while not written:
                    await asyncio.sleep(0.005)
                    watch.look()
            await watch._lane.submit(lambda: None)  # noqa: SLF001 - what it began has ended
            assert (written, folder.wrong, folder.looks) == ([1, 2], "", 2)

    asyncio.run(run())
