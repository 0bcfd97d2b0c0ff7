"""Running jobs from the first event to the answer: the real tap in played ranks, rings, daemon and commands.

Only what a GPU's clock shows is drawn (proof/played), and the GPUs are those of a recording.
"""

import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from signal import SIGKILL
from typing import Any, Self

import pytest

from proof.played.job import PlayedJob, PlayedLibraries, build
from proof.played.score import Score
from tests.node.daemon.process import Daemon, every_finding
from tests.processes import run_wirewatch
from tests.waiting import until
from wirewatch.jobs.tap.rings import KEPT, FileRings

pytestmark = pytest.mark.system

DEMO, TRAFFIC = "demo-dgx-h200", "h200x4-traffic"
STEP = 0.02
CONFIG = """
[listen]
socket = "{folder}/wirewatch.sock"
[jobs]
rings = "{rings}"
[collectors.jobs]
interval = 0.3
[policy.jobs]
window = 0.6
longest = 5.0
"""
WITHIN = 90.0
"""Seconds for what takes some five; the machine may have much else to do."""
ENOUGH = 4
"""Full windows after which a slow or late rank would have been named."""
RENEWED = 300
"""Steps of a communicator: six seconds, since a window ends with a poll, and polls may come late."""
Job = dict[str, Any]


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> PlayedLibraries:
    return build(tmp_path_factory.mktemp("libraries"))


@pytest.fixture
def rings() -> Iterator[Path]:
    """On tmpfs, where alone the tap writes."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


class PlayedNode:
    """The daemon over a recording's GPUs and the rings of this machine, and jobs that are played on them."""

    def __init__(self, recording: str, folder: Path, rings: Path, libraries: PlayedLibraries) -> None:
        self._rings, self._libraries = rings, libraries
        arguments = ("--replay", recording, "--loop", "--rings", str(rings))
        self._stack = ExitStack()
        self._folder = folder
        self.daemon = Daemon(arguments, folder, CONFIG.format(folder=folder, rings=rings))

    def __enter__(self) -> Self:
        self._stack.enter_context(self.daemon)
        self.daemon.ready()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def job(self, score: Score, gpus: Sequence[str], **settings: str) -> PlayedJob:
        """A job that is played until the end."""
        made = PlayedJob(self._libraries, self._rings, score, gpus, settings=settings)
        return self._stack.enter_context(made)

    def jobs(self) -> dict[str, Job]:
        """The running jobs by the daemon, by their names."""
        document = self.daemon.get("/api/v1/jobs").json()
        return {one["evidence"]["name"]: one for one in document["jobs"]}

    def answer(self, job: PlayedJob) -> str:
        """What the daemon says of a job in one sentence, empty where it has not seen it yet."""
        found = self.jobs().get(name(job))
        return str(found["answer"]["sentence"]) if found else ""

    def until(self, look: Callable[[], bool]) -> None:
        until(lambda: f"{self.sentences()}\n{self.daemon.log[-3000:]}", look, WITHIN)

    def sentences(self) -> list[str]:
        return [one["answer"]["sentence"] for one in self.jobs().values()]

    def explain(self, pid: int) -> str:
        """The first line of `wirewatch explain PID`, as a user runs it."""
        done = self.run("explain", str(pid), "--socket", f"{self._folder}/wirewatch.sock")
        return done.splitlines()[0]

    def status(self) -> list[dict[str, Any]]:
        """The rings of `wirewatch jobs status`."""
        config = str(self._folder / "wirewatch.toml")
        document = json.loads(self.run("jobs", "status", "--json", "--config", config))
        assert document["refused"] == []
        found = document["rings"]
        assert isinstance(found, list)
        return found

    def run(self, *arguments: str) -> str:
        done: subprocess.CompletedProcess[str] = run_wirewatch(*arguments)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def series(self, metric: str) -> dict[str, float]:
        """Values of a metric of jobs, by GPU or by operation."""
        found = self.daemon.get("/metrics").series()
        labels = {key: dict(key[1]) for key in found if key[0] == f"wirewatch_job_{metric}"}
        return {one.get("gpu") or one["op"]: found[key] for key, one in labels.items()}

    def findings(self) -> dict[str, dict[str, Any]]:
        """Findings about jobs, by rule."""
        every = every_finding(self.daemon.get("/api/v1/findings").json())
        return {one["rule"]: one for one in every if one["rule"].startswith("jobs.")}


def name(job: PlayedJob) -> str:
    return f"pid:{min(job.pids)}"


def test_four_jobs_at_once_are_each_told_what_they_hit(
    tmp_path: Path, rings: Path, libraries: PlayedLibraries
) -> None:
    """One waits for a rank, three are slow on the wire, each for another reason."""
    with PlayedNode(DEMO, tmp_path, rings, libraries) as node:
        gpus = node.daemon.gpus()
        late = Score(0x1, 2, STEP, busbw=305e9, late=1, late_by=0.1 * STEP)
        off = Score(0x2, 2, STEP, busbw=26e9)
        tree = Score(0x3, 2, STEP, busbw=0.69 * 305e9, algorithm="TREE")
        ll = Score(0x4, 2, STEP, busbw=95e9, protocol="LL")
        wanted = {
            node.job(late, gpus[0:2]): "Collectives: 1 of 2 ranks wait for rank 1 on GPU 1, which costs 10 %",
            node.job(off, gpus[2:4], NCCL_P2P_DISABLE="1"): "gets 26.0 GB/s of 304 GB/s (8.5 %), because "
            "NCCL_P2P_DISABLE=1; this costs",
            node.job(tree, gpus[4:6]): "gets 210 GB/s of 304 GB/s (69 %), because NCCL ran Tree",
            node.job(ll, gpus[6:8]): "gets 95.0 GB/s of 304 GB/s (31 %), because NCCL ran the protocol LL",
        }
        node.until(lambda: all(text in node.answer(job) for job, text in wanted.items()))
        for job, text in wanted.items():
            for pid in job.pids:
                assert text in node.explain(pid)
        node.until(lambda: "jobs.slow_wire" in node.findings())
        _numbers_of_four(node, len(wanted))
        for job in wanted:
            ended(job)
        node.until(lambda: not node.findings() and not node.jobs())
        assert list(rings.iterdir()) == []
        assert len(node.series("collectives_total")) == 8


def _numbers_of_four(node: PlayedNode, jobs: int) -> None:
    """Series, finding, hint, page and status while the four run."""
    found = node.findings()
    assert list(found) == ["jobs.slow_wire"]
    assert "gives 26.0 GB/s at best of 304.2 expected" in found["jobs.slow_wire"]["evidence"]
    assert "(and 2 more jobs)" in found["jobs.slow_wire"]["evidence"]
    assert "jobs.slow_wire" in node.daemon.get("/").text
    assert "rank 1 (GPU 1) is late" in node.daemon.log
    assert node.series("busbw_ratio")["all_reduce"] == pytest.approx(26 / 304.2, rel=0.02)
    waits, lates = node.series("wait_ratio"), node.series("late_ratio")
    assert waits["0"] == pytest.approx(0.1, abs=0.03)
    assert (lates["0"], lates["1"]) == pytest.approx((0, 1))
    assert max(share for gpu, share in waits.items() if gpu != "0") < 0.02
    ranks = node.status()
    assert len(ranks) == 2 * jobs
    assert {(one["state"], one["nccl"], one["dropped"]) for one in ranks} == {("live", "2.28.9", 0)}
    assert {one["gpu"] for one in ranks} == set(node.daemon.gpus())


def test_a_healthy_job_that_forks_and_renews_its_communicator_is_not_named(
    tmp_path: Path, rings: Path, libraries: PlayedLibraries
) -> None:
    """Beside one that runs Tree, of which nothing else on the node says that it is slow: a hint alone."""
    with PlayedNode(TRAFFIC, tmp_path, rings, libraries) as node:
        gpus = node.daemon.gpus()
        healthy = node.job(Score(0x10, 2, STEP, busbw=305e9, jitter=200e-6, fork=20, renew=RENEWED), gpus[:2])
        tree = node.job(Score(0x20, 2, STEP, busbw=200e9, algorithm="TREE"), gpus[2:])
        node.until(FullWindows(node, healthy).many)
        accused = ("Collectives:", "wait for rank", "Host")
        assert not any(word in node.explain(healthy.pids[1]).splitlines()[0] for word in accused)
        node.until(lambda: 0x10 not in communicators(node, healthy))
        node.until(FullWindows(node, healthy).many)
        assert not any(word in node.explain(healthy.pids[1]).splitlines()[0] for word in accused)
        node.until(lambda: "because NCCL ran Tree" in node.answer(tree))
        hints = node.daemon.get("/api/v1/state").json()["hints"]
        assert [(one["kind"], name(tree) in one["text"]) for one in hints] == [("slow_wire", True)]
        assert f"hint of job {name(healthy)}" not in node.daemon.log
        assert node.findings() == {}
        assert {one["state"] for one in node.status()} == {"live"}
        ended(healthy)
        ended(tree)


def test_a_killed_rank_and_a_captured_graph(tmp_path: Path, rings: Path, libraries: PlayedLibraries) -> None:
    with PlayedNode(DEMO, tmp_path, rings, libraries) as node:
        gpus = node.daemon.gpus()
        graph = node.job(Score(0x30, 2, STEP, busbw=305e9, capture=100), gpus[:2])
        killed = node.job(Score(0x40, 4, STEP, busbw=340e9, killed=150), gpus[2:6])
        node.until(lambda: states(node, 0x40) == ["dead", "live", "live", "live"])
        assert killed.ranks[3].wait() == -SIGKILL
        node.until(lambda: {one["captured"] for one in node.status() if one["ranks"] == 2} == {1})
        assert {one["collectives"] for one in node.status() if one["ranks"] == 2} == {99}
        assert (node.findings(), node.daemon.get("/api/v1/state").json()["hints"]) == ({}, [])
        ended(graph)
        ended(killed, ranks=3)
        node.until(lambda: states(node, 0x40) == ["dead"] and not node.jobs())
        removed_in_time(rings)


def removed_in_time(rings: Path) -> None:
    """What a killed writer left: kept for others to read, then removed."""
    now = [0.0]
    reader = FileRings(rings, lambda: now[0])
    for seconds, left in ((0.0, 1), (KEPT - 1, 1), (KEPT, 0)):
        now[0] = seconds
        reader.poll({})
        assert len(list(rings.iterdir())) == left


def ended(job: PlayedJob, ranks: int | None = None) -> None:
    """End a job in good order: each rank ends well, and the tap has said one line in it."""
    for status, said in job.stop()[:ranks]:
        assert (status, said.count("\n"), said.startswith("wirewatch tap ")) == (0, 1, True)


def states(node: PlayedNode, communicator: int) -> list[str]:
    found = node.status()
    return sorted(one["state"] for one in found if one["communicator"] == hex(communicator))


def communicators(node: PlayedNode, job: PlayedJob) -> set[int]:
    """NCCL's numbers of the communicators that a job has or had."""
    found = node.jobs().get(name(job))
    return {int(one["id"], 16) for one in found["evidence"]["job"]["communicators"]} if found else set()


class FullWindows:
    """Full windows of a job's living communicators, over several looks: a document has the newest alone."""

    def __init__(self, node: PlayedNode, job: PlayedJob) -> None:
        self._node, self._job = node, job
        self._begins: set[tuple[str, float]] = set()

    def many(self) -> bool:
        """Look, and tell whether there were enough for a verdict by now."""
        found = self._node.jobs().get(name(self._job))
        every = found["evidence"]["job"]["communicators"] if found else []
        self._begins |= {(one["id"], w["started"]) for one in every if one["fresh"] for w in one["windows"]}
        return len(self._begins) >= ENOUGH
