"""Whose rings are joined, which communicators are followed, and on which GPU a ring's process computes."""

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.node.cli.test_recorder import hardware
from tests.node.collectors.drawn import Watched
from tests.node.hw.recordings import Time
from tests.node.jobs.ringfiles import RingWriter, Written, later
from tests.node.jobs.ringjobs import LATE, TRAINING, DrawnNode, topology, uuid
from tests.node.jobs.test_jobs_join import RING, ring
from tests.rows import each
from wirewatch.cli.recorder import Recorder
from wirewatch.core.jobs import Ring, RingReading, RingsReading
from wirewatch.core.nvml import PROCESSES
from wirewatch.core.ports import Answer, Gpu, Question
from wirewatch.core.types import Absent, Json, Why
from wirewatch.documents.jobs import jobs_status
from wirewatch.hw.recording import load_recording
from wirewatch.jobs.running import computing
from wirewatch.jobs.running.grouping import misplaced, ring_groups
from wirewatch.jobs.running.model import (
    MOST_COMMUNICATORS,
    JobsMemory,
    JobsOptions,
    JobsReading,
    JobSurroundings,
)
from wirewatch.jobs.running.read import read
from wirewatch.jobs.tap.carriers import Carriers
from wirewatch.jobs.tap.recorded import RINGS
from wirewatch.jobs.tap.rings import FileRings
from wirewatch.jobs.times import TimesDoubt

POD = "0b0e6a8e-0000-4000-8000-00000000000a"


@pytest.mark.parametrize(
    ("guard", "owner", "uid", "joined"),
    [
        ("the same folder, another user", "pod:a", 2000, True),
        ("another folder, the same user", "pod:b", 1000, False),
        ("the shared level", "", 1000, False),
    ],
)
def test_rings_are_joined_within_one_identity(guard: str, owner: str, uid: int, *, joined: bool) -> None:
    rings = (ring(0, owner="pod:a", uid=1000), ring(1, owner=owner, uid=uid))
    groups, _ = ring_groups(rings)
    assert (len(groups) == 1) is joined, guard


def test_a_forged_rank_of_another_pods_communicator_spoils_nothing_of_it() -> None:
    node = DrawnNode(LATE)
    node.change = lambda one: replace(one, ring=replace(one.ring, owner=one.ring.owner or "pod:a"))
    forged = node.jobs[0].ranks[2].ring
    node.extra = (RingReading(replace(forged, name="forged", owner="pod:b", host_pid=77)),)
    honest, *others = [job for job in node.poll(6).jobs if job.late]
    assert others == []
    assert honest.communicators[0].doubt is None


def test_the_folder_of_a_ring_says_whose_its_process_is_before_its_control_group(tmp_path: Path) -> None:
    node = Watched("jobs")
    (tmp_path / "slurm" / "4711").mkdir(parents=True)
    node.hardware = replace(node.hardware, rings=FileRings(tmp_path))
    with RingWriter(tmp_path / "slurm/4711/x.ring") as inside, RingWriter(tmp_path / "y.ring"):
        node.files.texts[f"/proc/{inside.pid}/cgroup"] = f"0::/kubepods.slice/kubepods-pod{POD}.slice\n"
        reading = read(node.hardware, JobsMemory(), JobsOptions())
    assert isinstance(reading, JobsReading)
    assert {name: one.owner for name, one in reading.processes.items()} == {
        "slurm/4711/x.ring": "slurm:4711", "y.ring": f"pod:{POD}",
    }  # fmt: skip


def test_of_a_process_that_is_not_seen_the_folder_is_known(tmp_path: Path) -> None:
    (tmp_path / "slurm" / "4711").mkdir(parents=True)
    node = Watched("jobs")
    node.hardware = replace(node.hardware, rings=FileRings(tmp_path))
    with RingWriter(tmp_path / "slurm/4711/x.ring"):
        pass
    reading = read(node.hardware, JobsMemory(), JobsOptions())
    assert isinstance(reading, JobsReading)
    (process,) = reading.processes.values()
    assert process.owner == "slurm:4711"


@pytest.mark.parametrize("shared", [False, True])
def test_communicators_that_are_followed_are_shared_among_jobs(*, shared: bool) -> None:
    """Those of many users are as those of one job, in a folder and at the shared level."""
    many = [
        ring(0, name=f"evil{n}", communicator=n, created=9e9, uid=n, owner="" if shared else "pod:evil")
        for n in range(MOST_COMMUNICATORS + 50)
    ]
    honest = [ring(0, name=f"r{n}", communicator=n, owner="pod:good") for n in range(100)]
    groups, left_out = ring_groups([*many, *honest])
    owners = [one.rings[0].ring.owner for one in groups]
    assert (owners.count("pod:good"), len(owners), left_out) == (100, MOST_COMMUNICATORS, 150)


GPUS = {20: uuid(0), 21: uuid(3)}
KNOWN = frozenset(uuid(n) for n in range(4))


@each(
    ("guard", "change", "said"),
    [
        ("it computes where the ring says", {"host_pid": 20}, False),
        ("it computes elsewhere", {"host_pid": 21}, True),
        ("its process is not seen", {"host_pid": Absent(Why.MISSING)}, False),
        ("it computes nowhere, or on several", {"host_pid": 22}, False),
        ("a GPU that this machine has not, as a MIG instance", {"host_pid": 21, "gpu": uuid(9)}, False),
        ("no GPU is said", {"host_pid": 21, "gpu": Absent(Why.MISSING)}, False),
    ],
)
def test_a_ring_is_contradicted_by_the_drivers_list_alone(
    guard: str, change: dict[str, object], *, said: bool
) -> None:
    one = replace(RING, **{"gpu": uuid(0), **change})  # type: ignore[arg-type]
    assert bool(one.misplaced(GPUS, KNOWN)) is said, guard
    around = JobSurroundings(topology=topology(4), gpus=GPUS)
    refused = misplaced(JobsReading(RingsReading((RingReading(one),)), around=around))
    told = [(one.name, str(Absent(Why.MALFORMED, f"says {uuid(0)}, runs on {uuid(3)}")))] if said else []
    assert [(found.name, str(found.why)) for found in refused] == told


def test_a_ring_on_another_gpu_than_it_says_is_not_judged_and_that_is_said() -> None:
    node = DrawnNode(TRAINING)
    node.poll(2)
    (liar, *_) = node.jobs[0].ranks
    pid = liar.ring.host_pid
    assert isinstance(pid, int)
    node.around = replace(node.around, gpus={pid: uuid(7)})
    facts = node.poll(2)
    (comm,) = facts.jobs[0].communicators
    assert comm.doubt is TimesDoubt.UNSEEN
    assert liar.ring.rank not in {one.rank for one in comm.here}
    assert [one.name for one in facts.refused] == [liar.ring.name]
    assert facts.refused[0].why.detail == f"says {liar.ring.gpu}, runs on {uuid(7)}"
    node.around = replace(node.around, gpus={pid: str(liar.ring.gpu)})
    assert node.poll(2).refused == ()


class Listing:
    """NVML with a list of processes for each GPU."""

    def __init__(self, lists: Sequence[Json | Absent]) -> None:
        self.lists = lists

    def gpus(self) -> Sequence[Gpu]:
        return [Gpu(n, uuid(n)) for n in range(len(self.lists))]

    def ask(self, gpu: str | None, questions: Sequence[Question]) -> Sequence[Answer]:
        assert questions == PROCESSES[:1]
        return [Answer(self.lists[[uuid(n) for n in range(len(self.lists))].index(str(gpu))])]


def test_a_process_computes_on_a_gpu_where_it_is_listed_on_no_other() -> None:
    nvml = Listing([[{"pid": 1}, {"pid": 2}], [{"pid": 2}, {"pid": 3}], Absent(Why.LOST)])
    found, known = computing(nvml)  # type: ignore[arg-type]
    assert found == {1: uuid(0), 3: uuid(1)}
    assert known == {uuid(0), uuid(1), uuid(2)}


def test_status_marks_which_gpus_the_driver_lists_and_says_where_it_differs() -> None:
    def named(name: str, pid: int) -> Ring:
        return replace(RING, name=name, gpu=uuid(0), host_pid=pid, owner="pod:a")

    rings = tuple(RingReading(named(name, pid)) for name, pid in (("a", 20), ("b", 21), ("c", 22)))
    told = jobs_status("/r", RingsReading(rings), Carriers(), (), (0.0, 0.0), (GPUS, KNOWN))
    assert [(one.name, one.owner, one.gpu_listed) for one in told.rings] == [
        ("a", "pod:a", True), ("b", "pod:a", False), ("c", "pod:a", False)
    ]  # fmt: skip
    assert [(one.name, one.why) for one in told.refused] == [("b", f"says {uuid(0)}, runs on {uuid(3)}")]


def test_a_recording_names_no_pod_and_no_job(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs"
    for place in (f"pods/{POD}", "slurm/4711", "containers/annas-model"):
        (jobs / place).mkdir(parents=True)
    ports, _ = hardware(load_recording("h200x8"), Time(), tmp_path)
    with (
        RingWriter(jobs / f"pods/{POD}/x.ring") as one, RingWriter(jobs / "slurm/4711/x.ring"),
        RingWriter(jobs / "containers/annas-model/x.ring"), closing(FileRings(jobs)) as port,
    ):  # fmt: skip
        recorder = Recorder(replace(ports, rings=port))
        for number in range(2):
            one.put(later(Written(), number))
            recorder.take()
        recorder.write(tmp_path / "node", "1.2.3")
    rows: list[Any] = [one.value for _, one in load_recording(str(tmp_path / "node")).answers[RINGS]]
    text = json.dumps(rows)
    assert not [word for word in (POD, "4711", "anna") if word in text]
    names = [[(found["ring"]["name"], found["ring"]["owner"]) for found in row["rings"]] for row in rows]
    assert names[0] == names[1]
    for name, owner in names[0]:
        assert name.split("/")[1] == owner.partition(":")[2]
