"""Lines that NCCL's own Inspector wrote, built from the source of 2.28.9 and of 2.30.7, are judged.

Played: no GPU was there. A program gave it the events of two ranks of a drawn job, for 26 s each: a healthy
job, one whose rank 1 computes a quarter longer, and one whose wire gives 25 GB/s. It wrote each 2 and each
200 ms. With `h200` in the name: of jobs on two H200, 2026-11-28, torch 2.11, driver 580.159.04, which
`python -m proof.hardware runningjobs --inspector` ran.
"""

import gzip
import json
import os
from pathlib import Path

import pytest

from tests.node.jobs.inspector.writing import HOST, process
from tests.node.jobs.ringjobs import AROUND, DrawnNode, lates, slow, uuid
from wirewatch.core.types import Absent
from wirewatch.jobs.inspector.files import InspectorFiles
from wirewatch.jobs.running.model import JobsReading

HERE = Path(__file__).parent
SOURCES = {"2.28.9": "NCCL Inspector, 2.28 or 2.29, GPU clock", "2.30.7": "NCCL Inspector, 2.30, GPU clock"}


class Written(DrawnNode):
    """The files of such a job as they grew."""

    def __init__(self, folder: Path, name: str) -> None:
        with gzip.open(HERE / name) as file:
            lines = [(json.loads(data), data) for data in file]
        self.lines = [(one["metadata"]["dump_timestamp_us"] / 1e6, one, data) for one, data in lines]
        begun = self.lines[0][0] - 1001.0
        ranks = {one["metadata"]["pid"]: one["header"]["rank"] for _, one, _ in self.lines}
        super().__init__(around=AROUND, every=2.0)
        self.around = type(AROUND)(
            AROUND.topology, AROUND.link_rate, gpus={pid: uuid(rank) for pid, rank in ranks.items()}
        )
        self.folder, self.begun = folder / "files", begun
        self.folder.mkdir()
        for pid in ranks:
            process(folder / "proc", pid)
        self.port = InspectorFiles(
            self.folder, folder / "proc", HOST, now=lambda: begun + self.mono, mono=lambda: self.mono
        )

    def read(self) -> JobsReading:
        while self.lines and self.lines[0][0] <= self.begun + self.mono:
            _, one, data = self.lines.pop(0)
            path = self.folder / f"{HOST}-pid{one['metadata']['pid']}.log"
            with path.open("ab") as file:
                file.write(data)
            os.utime(path, (self.begun + self.mono,) * 2)
        found = self.port.poll({})
        assert not isinstance(found, Absent)
        return JobsReading(found, around=self.around)


PLAYED = [
    (kind, nccl, wires) for nccl in SOURCES for kind, wires in (("healthy", 0), ("late", 0), ("slow", 1))
]


@pytest.mark.parametrize(("kind", "nccl", "wires"), PLAYED)
def test_lines_of_a_played_job(tmp_path: Path, kind: str, nccl: str, wires: int) -> None:
    facts = Written(tmp_path, f"{nccl}-{kind}.log.gz").poll(14)
    ((one,),) = [job.communicators for job in facts.jobs]
    assert (one.doubt, one.source, one.joined > 80) == (None, SOURCES[nccl], True)
    # NCCL 2.30 writes many at once: no line says how long a rank computed before.
    late = ["1"] if (kind, nccl) == ("late", "2.28.9") else []
    assert (lates(facts), len(slow(facts))) == (late, wires)


@pytest.mark.parametrize(("kind", "late", "wires"), [("healthy", [], 0), ("late", ["1"], 0), ("slow", [], 1)])
def test_lines_of_a_job_on_two_gpus(tmp_path: Path, kind: str, late: list[str], wires: int) -> None:
    """Data parallel: as it is, with a quarter more work on rank 1, with P2P off."""
    facts = Written(tmp_path, f"2.28.9-h200-{kind}.log.gz").poll(14)
    assert (lates(facts), len(slow(facts))) == (late, wires)


def test_healthy_ddp_on_two_gpus_names_nobody(tmp_path: Path) -> None:
    """A rank waits 17 % of the time in collectives, most of it beside its computing: nothing is lost."""
    node = Written(tmp_path, "2.28.9-h200-ddp.log.gz")
    for _ in range(11):
        facts = node.poll()
        assert lates(facts) == []
    ((one,),) = [job.communicators for job in facts.jobs]
    assert 0.03 < max(rank.waiting for rank in one.windows[-1].ranks) < 0.1
