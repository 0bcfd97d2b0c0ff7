"""How far rings were read, on real files."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from tests.node.jobs.ringfiles import RingWriter, Written
from wirewatch.core.jobs import RingsReading
from wirewatch.jobs.running.model import RingProgress
from wirewatch.jobs.running.progress import progress
from wirewatch.jobs.tap.rings import FileRings


def polled(port: FileRings, known: Mapping[str, RingProgress]) -> dict[str, RingProgress]:
    found = port.poll({name: one.last for name, one in known.items()})
    assert isinstance(found, RingsReading)
    return progress(known, found.rings)


def test_records_that_were_lost_are_counted_once(tmp_path: Path) -> None:
    """Where a poll finds none that can be used, the next one goes on behind them all the same."""
    with RingWriter(tmp_path / "one.ring") as ring:
        for _ in range(3):
            ring.put(Written(), sequence=0)
    with closing(FileRings(tmp_path)) as port:
        known: dict[str, RingProgress] = {}
        for _ in range(3):
            known = polled(port, known)
            assert (known["one.ring"].missed, known["one.ring"].last) == (3, 3)
