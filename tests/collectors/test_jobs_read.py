"""Reading rings: through the ports, from real files, with whose they are and NCCL's settings."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.collectors.drawn import Watched
from tests.hw.ringfiles import MILLISECOND, RingWriter, Written, later
from wirewatch.collectors.jobs import owner_of
from wirewatch.collectors.jobs.read import settings_of
from wirewatch.core.jobs import RingsReading
from wirewatch.core.jobtimes import JobsFacts
from wirewatch.core.types import Absent, Health, Why
from wirewatch.hw.rings import FileRings

POD = "0f2c4a8e-1b3d-4c5e-8f90-a1b2c3d4e5f6"


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


@pytest.mark.parametrize(
    ("cgroup", "owner"),
    [
        ("0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0", "slurm:4711"),
        ("5:devices:/slurm/uid_1000/job_12/step_batch\n1:name=systemd:/", "slurm:12"),
        (f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD.replace('-', '_')}.slice/x",
         f"pod:{POD}"),
        (f"0::/kubepods/besteffort/pod{POD}/abc", f"pod:{POD}"),
        ("0::/user.slice/user-1000.slice/session-2.scope", ""),
        ("0::/system.slice/myjob_5.service", ""),
        ("0::/../../pod12/x", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_the_owner_is_in_the_control_group(cgroup: str, owner: str) -> None:
    assert owner_of(cgroup) == owner


def test_of_an_environment_nccls_settings_alone_are_kept() -> None:
    environ = b"HOME=/root\0NCCL_ALGO=Tree\0AWS_SECRET=x\0NCCL_DEBUG\0NCCL_P2P_DISABLE=1\0NCCL_ALGO=Ring\0"
    assert settings_of(environ) == {"NCCL_ALGO": "Tree", "NCCL_P2P_DISABLE": "1"}
    many = b"\0".join(b"NCCL_%d=%s" % (n, b"v" * 9999) for n in range(500))
    kept = settings_of(many)
    assert len(kept) == 64
    assert max(map(len, kept.values())) == 200


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
