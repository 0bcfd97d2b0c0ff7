"""Jobs of real Slurm on a node that probes back to back and knows no scheduler: the hold keeps them apart."""

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.disks import OTHER, fill, small_disk
from tests.system.cluster import Cluster
from tests.system.gate import Gate, daemons, holds_folder, slurm_lines
from tests.system.test_slurm_gate_jobs import AS_OTHER
from wirewatch.probe.holds import HoldFolder, since_boot

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]
NODE = "g1"
JOBS, UNHELD = 40, 12
JOB = """\
#!/bin/bash
# Which worker lives when this job begins and 0.2 s later, and which was the newest.
look() {
    pid=$(<probes/pid)
    [[ -e /proc/$pid ]] && living=yes || living=no
    said+=" $living $pid"
}
began=$EPOCHREALTIME
look
sleep 0.2
look
echo "$SLURM_JOB_ID $began$said" >> looks
"""


@dataclass(frozen=True)
class Probe:
    """One turn of the prober: Unix seconds, how it ended or why it did not begin, how long a worker lived."""

    began: float
    ended: float
    told: str
    seconds: float


@dataclass(frozen=True)
class Look:
    """What a job saw at its begin and at its end: whether a worker lived, and which was the newest."""

    began: float
    met: bool
    new: bool


@pytest.fixture(scope="module")
def gate() -> Iterator[Gate]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        cluster = Cluster(folder, {NODE: 2}, slurm_lines(folder))
        (folder / "job.sh").write_text(JOB, "utf-8")
        (folder / "probes").mkdir()
        os.chown(folder / "probes", OTHER, OTHER)
        holds_folder(folder / "holds")
        with Gate(cluster) as made, daemons(folder), cluster, _prober(folder, cluster):
            yield made
        cluster.wait(lambda: not cluster.processes())


@pytest.fixture(autouse=True)
def _fresh(gate: Gate) -> Iterator[None]:
    gate.reset()
    (gate.folder / "looks").unlink(missing_ok=True)
    yield
    gate.end_leftovers()
    assert gate.printed() == ""


@contextmanager
def _prober(folder: Path, cluster: Cluster) -> Iterator[None]:
    command = [*AS_OTHER, sys.executable, "-m", "tests.system.hold_node", str(folder)]
    with (folder / "prober.log").open("wb") as log, subprocess.Popen(command, cwd=ROOT, stderr=log) as prober:
        try:
            cluster.wait((folder / "probes" / "pid").exists)
            yield
        finally:
            prober.kill()


def configure(gate: Gate, more: str = "") -> None:
    gate.configure(f"HOLDS={gate.folder}/holds; EPILOG_FOR=none\n{more}")


def submitted(gate: Gate, count: int) -> list[str]:
    return [
        gate.cluster.submit("--gres=gpu:2", "--exclusive", command=f"exec bash {gate.folder}/job.sh")
        for _ in range(count)
    ]


def looks(gate: Gate, jobs: Sequence[str]) -> dict[str, Look]:
    """Of these jobs, once all have ended."""
    gate.cluster.wait(lambda: gate.cluster.tell("squeue", "-h") == "", 300)
    found = {}
    for line in (gate.folder / "looks").read_text("utf-8").splitlines():
        job, began, first, before, second, after = line.split()
        found[job] = Look(float(began), "yes" in {first, second}, before != after)
    assert sorted(found) == sorted(jobs)
    return found


def probes(gate: Gate) -> list[Probe]:
    lines = (gate.folder / "probes" / "spans").read_text("utf-8").splitlines()
    found = []
    for line in lines:
        began, ended, told, more = line.split(" ", 3)
        seconds = float(more.split(" ", 1)[0]) if told in {"timeout", "preempted"} else 0.0
        found.append(Probe(float(began), float(ended), told, seconds))
    return found


def test_from_the_prologs_hold_on_no_probe_starts_and_a_running_one_is_gone_before_the_job(
    gate: Gate,
) -> None:
    configure(gate)
    jobs = submitted(gate, JOBS)
    seen = looks(gate, jobs)
    assert [job for job, look in seen.items() if look.met or look.new] == []
    ran = [one for one in probes(gate) if one.seconds]
    ended = 0
    for job in jobs:
        prolog, epilog = gate.turn("prolog", job), gate.turn("epilog", job)
        assert (prolog.status, epilog.status) == (0, 0)
        met = [one for one in ran if one.began < prolog.began < one.ended]
        ended += sum(one.told == "preempted" for one in met)
        assert all(one.ended < seen[job].began for one in met)
        # What began after the prolog's end began after the epilog's begin.
        assert not [one for one in ran if prolog.ended < one.began < epilog.began], job
    took = sorted(1e3 * gate.turn("prolog", job).seconds for job in jobs)
    print(
        f"{ended} of {JOBS} prologs met a probe and ended it; a prolog took {statistics.median(took):.0f} ms"
    )
    print(f"(p95 {took[round(len(took) * 0.95) - 1]:.0f}, longest {took[-1]:.0f})")
    assert ended > JOBS / 4, "hardly a probe was met: nothing was shown"
    assert "hold" in {one.told for one in probes(gate)}
    assert gate.syslog() == ""
    assert [one.name for one in (gate.folder / "holds").iterdir()] == ["lock"], "the epilogs ended all holds"


def test_without_the_hold_jobs_meet_probes(gate: Gate) -> None:
    """So that the test above can fail."""
    configure(gate, "HOLD=0")
    seen = looks(gate, submitted(gate, UNHELD))
    assert [job for job, look in seen.items() if look.met]


def test_a_job_that_never_starts_leaves_a_hold_that_ends(gate: Gate) -> None:
    configure(gate, "HOLD=1")
    # A prolog, and nothing after it.
    assert gate.by_hand("prolog.sh", NODE, SLURM_JOB_ID="7", SLURM_JOB_GPUS="0,1").wait(60) == 0
    held = probes(gate)[-1].began
    gate.cluster.wait(lambda: any(one.seconds and one.began > held for one in probes(gate)))
    # The next one removes what is left of it.
    assert gate.by_hand("prolog.sh", NODE, SLURM_JOB_ID="8", SLURM_JOB_GPUS="0").wait(60) == 0
    assert {one.name.split(".")[0] for one in (gate.folder / "holds").iterdir()} == {"lock", "slurm:8"}
    assert gate.by_hand("epilog.sh", NODE, SLURM_JOB_ID="8").wait(60) == 0
    assert [one.name for one in (gate.folder / "holds").iterdir()] == ["lock"]


def test_a_refused_job_holds_nothing_and_one_without_gpus_neither(gate: Gate) -> None:
    configure(gate)
    gate.health("failed", NODE)
    assert gate.by_hand("prolog.sh", NODE, SLURM_JOB_ID="7", SLURM_JOB_GPUS="0,1").wait(60) == 1
    gate.health("ok", NODE)
    assert gate.by_hand("prolog.sh", NODE, SLURM_JOB_ID="8").wait(60) == 0
    assert [one.name for one in (gate.folder / "holds").iterdir()] == ["lock"]


def test_a_probe_that_does_not_die_keeps_a_job_for_a_time_and_no_longer(gate: Gate) -> None:
    configure(gate, "HOLD_DEADLINE=1")
    with subprocess.Popen(["flock", "--shared", str(gate.folder / "holds" / "lock"), "sleep", "60"]) as stuck:
        try:
            gate.cluster.wait(lambda: _locked(gate))
            assert gate.by_hand("prolog.sh", NODE, SLURM_JOB_ID="7", SLURM_JOB_GPUS="0,1").wait(60) == 0
            gate.told(
                "prolog of job 7 on g1: a probe of these GPUs or others is not gone within 1 s: the job"
            )
            assert 1.0 <= gate.turn("prolog", "7").seconds < 20
        finally:
            subprocess.run(["pkill", "-P", str(stuck.pid)], check=False)
            stuck.kill()
    assert gate.by_hand("epilog.sh", NODE, SLURM_JOB_ID="7").wait(60) == 0


def _locked(gate: Gate) -> bool:
    asked = ["flock", "--nonblock", str(gate.folder / "holds" / "lock"), "true"]
    return subprocess.run(asked, check=False).returncode != 0


@pytest.mark.parametrize("options", ["", ",nr_inodes=3"])
def test_a_disk_that_is_full_keeps_no_job(gate: Gate, options: str) -> None:
    with small_disk(more=options) as disk:
        (disk / "lock").touch(mode=0o640)
        fill(disk)
        gate.configure(f"HOLDS={disk}")
        assert gate.by_hand("prolog.sh", NODE, SLURM_JOB_ID="7", SLURM_JOB_GPUS="0,1").wait(60) == 0
        held = {one.name.split(".")[0] for one in disk.iterdir()} - {"lock", "filling"}
        if options:
            gate.told("no hold could be made")
        assert held == (set() if options else {"slurm:7"})


@pytest.mark.parametrize("how", ["of another user", "no folder", "a file", "no lock"])
def test_a_folder_that_is_not_as_it_was_made_keeps_no_job(gate: Gate, how: str) -> None:
    place = gate.folder / how.replace(" ", "-")
    if how == "a file":
        place.touch()
    elif how != "no folder":
        holds_folder(place)
    if how == "of another user":
        os.chown(place, OTHER, OTHER)
    if how == "no lock":
        (place / "lock").unlink()
    gate.configure(f"HOLDS={place}")
    assert gate.by_hand("prolog.sh", NODE, SLURM_JOB_ID="7", SLURM_JOB_GPUS="0,1").wait(60) == 0
    if how == "no lock":
        gate.told("lock cannot be read")
    else:
        assert not place.is_dir() or [one.name for one in place.iterdir()] == ["lock"]


def test_a_hold_lasts_a_day_at_most_and_is_believed_at_once(gate: Gate) -> None:
    configure(gate, "HOLD=999999")
    assert gate.by_hand("prolog.sh", NODE, SLURM_JOB_ID="7", SLURM_JOB_GPUS="0,1").wait(60) == 0
    told = HoldFolder(str(gate.folder / "holds")).active()
    assert isinstance(told, tuple)
    (made,) = told
    assert (made.owner, made.gpus) == ("slurm:7", (0, 1))
    assert made.until - since_boot() <= 86401
    assert gate.by_hand("epilog.sh", NODE, SLURM_JOB_ID="7").wait(60) == 0


def test_there_are_never_many_holds(gate: Gate) -> None:
    place = gate.folder / "many"
    holds_folder(place)
    uptime = int(float(Path("/proc/uptime").read_text("ascii").split()[0]))
    for number in range(300):
        (place / f"slurm:{1000 + number}.{uptime + (900 if number < 256 else -1)}.all").touch()
    gate.configure(f"HOLDS={place}")
    assert gate.by_hand("prolog.sh", NODE, SLURM_JOB_ID="7", SLURM_JOB_GPUS="0,1").wait(60) == 0
    assert len(list(place.iterdir())) == 257, "those that are over went, and no other came"
