"""Files as NCCL Inspector writes them: by line, and by drawn jobs whose every collective it times."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.node.jobs.ringjobs import AROUND, DrawnJob, DrawnNode, JobShape, uuid
from tests.support import EPOCH
from wirewatch.core.jobs import RingsReading, TimedCollective
from wirewatch.core.types import Absent
from wirewatch.jobs.inspector.files import InspectorFiles
from wirewatch.jobs.running.model import JobsReading

HOST, BOOTED = "node1", int(EPOCH) - 1000
NAMES = {
    "all_reduce": "AllReduce", "all_gather": "AllGather", "reduce_scatter": "ReduceScatter",
    "broadcast": "Broadcast",
}  # fmt: skip
OLD, RINGS = "2.28 or 2.29", "2.30"
"""Versions of NCCL, as their Inspectors write: one record an interval, and all of it."""
DUMPS = {OLD: 60e-6, RINGS: 0.01}
_TEXT = json.JSONEncoder(separators=(",", ":")).encode


def line(
    written: float, *, nccl: str = RINGS, rank: int = 0, ranks: int = 2, nodes: int = 1, pid: int = 4000,
    number: int = 7, id_: str = "0xc0ffee", change: Mapping[str, Any] | None = None, **call: Any,
) -> bytes:  # fmt: skip
    """One line; `call` changes its collective, `change` whole members."""
    header: dict[str, Any] = {"id": id_, "rank": rank, "n_ranks": ranks, "nnodes": nodes}
    if nccl == RINGS:
        header["comm_name"] = "default_pg"
    collective = {
        "coll": "AllReduce", "coll_sn": number, "coll_msg_size_bytes": 1 << 28, "coll_exec_time_us": 1400,
        "coll_timing_source": "kernel_gpu", "coll_algobw_gbs": 191.739612, "coll_busbw_gbs": 191.739612,
    }  # fmt: skip
    metadata = {
        "inspector_output_format_version": "v4.0", "git_rev": "v2.30.7-1", "rec_mechanism":
        "nccl_profiler_interface", "dump_timestamp_us": round(written * 1e6), "hostname": HOST, "pid": pid,
    }  # fmt: skip
    made = {"header": header, "metadata": metadata, "coll_perf": collective | call, **(change or {})}
    return _TEXT(made).encode() + b"\n"


def process(
    proc: Path, pid: int, *, uid: int | None = None, inner: int | None = None, started: int = 100
) -> None:
    """A process of a made-up /proc, whose open files may not be looked at."""
    (proc / str(pid)).mkdir(parents=True, exist_ok=True)
    (proc / "stat").write_text(f"cpu 1 2 3\nbtime {BOOTED}\nprocesses 4\n")
    own = os.geteuid() if uid is None else uid
    within = f"{pid}" if inner is None else f"{pid}\t{inner}"
    (proc / str(pid) / "status").write_text(f"Name:\tpython\nUid:\t{own}\t0\t0\t0\nNSpid:\t{within}\n")
    (proc / str(pid) / "stat").write_text(f"{pid} (a) b) R {' '.join('0' * 18)} {started} 0 0\n")


@dataclass
class Clock:
    """Unix and monotonic seconds that a test sets."""

    mono: float = 1000.0

    @property
    def now(self) -> float:
        return EPOCH + self.mono


class Folder:
    """A folder of Inspector's files on a made-up machine, and who reads it."""

    def __init__(self, path: Path) -> None:
        self.path, self.proc, self.clock = path / "inspector", path / "proc", Clock()
        self.path.mkdir()
        self.proc.mkdir()
        self.port = InspectorFiles(
            self.path, self.proc, HOST, now=lambda: self.clock.now, mono=lambda: self.clock.mono
        )

    def file(self, pid: int = 4000, host: str = HOST, below: str = "") -> Path:
        (self.path / below).mkdir(exist_ok=True)
        return self.path / below / f"{host}-pid{pid}.log"

    def write(self, data: bytes, path: Path | None = None, mode: str = "ab") -> Path:
        path = path or self.file()
        with path.open(mode) as file:
            file.write(data)
        os.utime(path, (self.clock.now, self.clock.now))
        return path

    def poll(self, seconds: float = 2.0) -> RingsReading:
        self.clock.mono += seconds
        found = self.port.poll({})
        assert not isinstance(found, Absent)
        return found


class InspectedNode(DrawnNode):
    """Jobs whose every collective Inspector times, read from its files.

    `interval`: seconds of a dump; 60 us with an old one, as measured on two H200.
    """

    def __init__(
        self, path: Path, *shapes: JobShape, nccl: str = RINGS, interval: float = 0.0, seed: int = 0,
        **call: Any,
    ) -> None:  # fmt: skip
        whole = [replace(shape, budget=0) for shape in shapes]
        gpus = {shape.pid + rank: uuid(gpu) for shape in shapes for rank, gpu in enumerate(shape.gpus)}
        super().__init__(*whole, seed=seed, around=replace(AROUND, gpus=gpus), every=2.0)
        self.folder, self.nccl, self.interval, self.call = Folder(path), nccl, interval or DUMPS[nccl], call
        self.written: dict[str, int] = {}
        for pid in gpus:
            process(self.folder.proc, pid)

    def read(self) -> JobsReading:
        for job in self.jobs:
            job.run(self.mono)
            for rank in range(len(job.ranks)):
                self.folder.write(b"".join(self._lines(job, rank)), self.folder.file(job.shape.pid + rank))
        return JobsReading(self.folder.poll(self.mono - self.folder.clock.mono), around=self.around)

    def _lines(self, job: DrawnJob, rank: int) -> Iterator[bytes]:
        """The lines of all dumps since the last poll; each rank's come at moments of its own."""
        drawn = job.ranks[rank]
        begin, due = self.written.get(drawn.ring.name, 0), 0.37 * rank * self.interval
        batches: dict[int, list[TimedCollective]] = {}
        for call, done in zip(drawn.calls[begin:], drawn.done[begin:], strict=True):
            batch = int((done - due) // self.interval) + 1
            if due + batch * self.interval > self.mono:
                break
            batches.setdefault(batch, []).append(call)
            begin += 1
        self.written[drawn.ring.name] = begin
        for batch, calls in batches.items():
            for call in calls if self.nccl == RINGS else calls[-1:]:
                share = 1 if call.op in {"all_reduce", "broadcast"} else job.shape.size
                known: dict[str, Any] = {
                    "coll": NAMES[call.op], "coll_exec_time_us": int(call.seconds * 1e6),
                    "coll_msg_size_bytes": (call.size_bytes or 0) // share,
                }  # fmt: skip
                yield line(
                    EPOCH + due + batch * self.interval, nccl=self.nccl, rank=rank, ranks=job.shape.size,
                    nodes=job.shape.nodes, pid=job.shape.pid + rank, number=call.sequence,
                    id_=f"{job.shape.communicator:#x}", **(known | self.call),
                )  # fmt: skip
