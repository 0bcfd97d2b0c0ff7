"""What the ledger says is on the disk as soon as it is new, and not for what merely counts on."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.support import StillClock
from wirewatch.core.types import Health, Subject
from wirewatch.daemon.persistence import EVERY, LedgerWriter, read_ledger
from wirewatch.verdict.ledger import Entry, Ledger, Stage

ENTRY = Entry(
    "nvlink.link_down", Subject("2", "GPU-2"), "nvlink", Health.FAILED, Stage.ACTIVE, "inactive", "drain",
    1.0, 2.0,
)  # fmt: skip


def keep(path: Path, steps: Sequence[tuple[Ledger, Ledger]], apart: float = 1.0) -> None:
    """Ledgers that come so many seconds after each other, each with what the file then comes to hold."""

    async def run() -> None:
        clock = StillClock()
        keeper = LedgerWriter(path, clock)
        for ledger, expected in steps:
            keeper.changed(ledger)
            async with asyncio.timeout(10):
                while read_ledger(path, "b", 0.0).ledger != expected:  # noqa: ASYNC110 - a file
                    await asyncio.sleep(0.005)
            clock.seconds += apart

    asyncio.run(run())


def test_a_new_fault_is_written_at_once_and_what_counts_on_is_not(tmp_path: Path) -> None:
    empty = Ledger("b")
    active = empty.with_entry(ENTRY)
    counted = active.with_entry(replace(ENTRY, absent=30.0))
    over = active.with_entry(replace(ENTRY, stage=Stage.PROBATION))
    steps = [(empty, empty), (active, active), (counted, active), (over, over)]
    keep(tmp_path / "latches.json", steps)


def test_what_counts_on_is_written_now_and_then(tmp_path: Path) -> None:
    active = Ledger("b").with_entry(ENTRY)
    counted = active.with_entry(replace(ENTRY, absent=EVERY))
    keep(tmp_path / "latches.json", [(active, active), (counted, counted)], apart=EVERY)
