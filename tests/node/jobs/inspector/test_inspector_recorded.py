"""Lines that NCCL's own Inspector wrote, built from the source of 2.28.9 and of 2.30.7, are judged.

No GPU was there: a program played the events of two ranks of a drawn job to it, for 26 s each: a healthy job,
one whose rank 1 computes a quarter longer, and one whose wire gives 25 GB/s. It wrote each 2 and each 200 ms.
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


@pytest.mark.parametrize("nccl", SOURCES)
@pytest.mark.parametrize(("kind", "late", "wires"), [("healthy", [], 0), ("late", ["1"], 0), ("slow", [], 1)])
def test_what_its_lines_say(tmp_path: Path, nccl: str, kind: str, late: list[str], wires: int) -> None:
    node = Written(tmp_path, f"{nccl}-{kind}.log.gz")
    facts = node.poll(14)
    ((one,),) = [job.communicators for job in facts.jobs]
    assert (one.doubt, one.source, one.joined > 80) == (None, SOURCES[nccl], True)
    assert (lates(facts), len(slow(facts))) == (late, wires)
