"""Reading rings: through the ports, from real files, with whose they are and NCCL's settings."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.node.collectors.drawn import Watched
from tests.node.jobs.ringfiles import MILLISECOND, RingWriter, Written, later
from wirewatch.core.jobs import RingsReading
from wirewatch.core.types import Absent, Health, Why
from wirewatch.jobs.tap.rings import FileRings
from wirewatch.jobs.times import JobsFacts


class Answering:
    """A rings port that answers one thing; `asked` is what it was asked last."""

    def __init__(self, answer: RingsReading | Absent) -> None:
        self.answer = answer
        self.asked: Mapping[str, int] = {}

    def poll(self, after: Mapping[str, int]) -> RingsReading | Absent:
        self.asked = after
        return self.answer


def watched(answer: RingsReading | Absent) -> Watched:
    node = Watched("jobs")
    node.hardware = replace(node.hardware, rings=Answering(answer))
    return node


def test_without_a_folder_there_is_nothing_to_watch() -> None:
    node = watched(Absent(Why.MISSING, "no folder of rings"))
    assert node.poll(2) == ()
    assert node.component.health is None
    assert node.component.samples == ()
    assert isinstance(node.component.facts, JobsFacts)
    assert node.component.facts.folder == Absent(Why.MISSING, "no folder of rings")


def test_a_folder_that_cannot_be_read_is_not_known() -> None:
    node = watched(Absent(Why.DENIED, "/run/wirewatch-jobs"))
    (finding,) = node.poll(1)
    assert (finding.rule, finding.health) == ("jobs.blind", Health.UNKNOWN)


def test_real_files_of_two_ranks_are_joined(tmp_path: Path) -> None:
    """Rank 1 arrives 40 ms after rank 0 each time; the wire takes 1 ms."""
    node = Watched("jobs")
    node.hardware = replace(node.hardware, rings=FileRings(tmp_path))
    node.files.texts["/etc/nccl.conf"] = "NCCL_ALGO=Tree\n"
    with ExitStack() as stack:
        writers = [
            stack.enter_context(
                RingWriter(
                    tmp_path / f"r{rank}",
                    ranks=2,
                    rank=rank,
                    uuid=f"GPU-5d8fa1c2-0000-4000-8000-00000000000{rank}",
                )
            )
            for rank in range(2)
        ]
        for poll in range(6):
            for rank, writer in enumerate(writers):
                for number in range(poll * 10, poll * 10 + 10):
                    longest = (41 - 40 * rank) * MILLISECOND
                    begun = Written()
                    record = later(replace(begun, longest=longest, stopped=begun.started + longest), number)
                    writer.put(replace(record, enqueued=record.enqueued + number * 500 * MILLISECOND))
                writer.by_function(0, 2, poll * 10 + 10)
            node.poll(1, every=5.0)
        facts = node.component.facts
    assert isinstance(facts, JobsFacts)
    (job,) = facts.jobs
    (comm,) = job.communicators
    assert comm.doubt is None
    assert comm.joined == 60
    assert comm.calls == {"all_reduce": 60}
    assert comm.name == "default_pg"
    assert comm.newest is not None
    (row,) = comm.newest.collectives
    assert row.wire_seconds == pytest.approx(1e-3)
    assert row.waits == pytest.approx({0: 40e-3, 1: 0.0})
    assert row.votes == {1: row.joined}
    assert job.late is not None
    assert job.late.rank == 1
    assert job.late.cost == pytest.approx(40 / 500, rel=0.2)
    assert job.name.startswith("pid:")


def test_what_a_process_belongs_to_is_asked_once_and_settings_of_the_node_count(tmp_path: Path) -> None:
    node = Watched("jobs")
    node.hardware = replace(node.hardware, rings=FileRings(tmp_path))
    with RingWriter(tmp_path / "r0", ranks=1, uuid="GPU-1") as writer:
        node.poll(1)
        pid = writer.pid
        asked = [path for path in node.files.opened if path.startswith("/proc/")]
        node.poll(3)
        assert [path for path in node.files.opened if path.startswith("/proc/")] == asked
        assert asked in ([f"/proc/{pid}/cgroup", f"/proc/{pid}/environ"], [])


def test_a_process_that_could_not_be_seen_at_first_is_read_once_it_can(tmp_path: Path) -> None:
    """The locks are read before the folder is listed: a ring that is made in between has no holder yet."""
    node = watched(RingsReading())
    rings = node.hardware.rings
    assert isinstance(rings, Answering)
    with RingWriter(tmp_path / "r0", ranks=1, uuid="GPU-1"):
        found = FileRings(tmp_path).poll({})
    assert isinstance(found, RingsReading)
    (one,) = found.rings

    def held_by(pid: int | Absent) -> RingsReading:
        return RingsReading((replace(one, ring=replace(one.ring, host_pid=pid)),))

    def seen() -> tuple[str, Mapping[str, str] | Absent]:
        assert isinstance(node.component.facts, JobsFacts)
        (job,) = node.component.facts.jobs
        return job.name, job.communicators[0].here[0].settings

    node.files.texts["/proc/4711/cgroup"] = "0::/system.slice/slurmstepd.scope/job_77/step_0"
    node.files.texts["/proc/4711/environ"] = "NCCL_ALGO=Tree\0HOME=/"
    rings.answer = held_by(Absent(Why.MISSING, "who holds its lock cannot be seen from here"))
    node.poll(1)
    assert seen()[0] != "slurm:77"
    rings.answer = held_by(4711)
    node.poll(1)
    assert seen() == ("slurm:77", {"NCCL_ALGO": "Tree"})
    rings.answer = held_by(Absent(Why.LOST, "its process is gone"))
    node.poll(1)
    assert seen() == ("slurm:77", {"NCCL_ALGO": "Tree"})
