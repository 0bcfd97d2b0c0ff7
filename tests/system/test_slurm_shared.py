"""Nodes that several jobs share, in the real Slurm of Debian: a sick GPU keeps away the jobs that hold it."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.cluster import Cluster
from tests.system.gate import Gate, bundled, daemons, slurm_lines

pytestmark = pytest.mark.system

NODES = {"g1": 8, "g2": 8, "small": 7}
"""GPUs that Slurm counts by node; all have eight."""
SHARED = "SHARED=yes"
GPU_5 = bundled("nvlink-link-down").replace("gpu2/", "gpu5/").replace('gpu = "2"', 'gpu = "5"')
DAEMONS = {"ok": ("ok", ""), "gpu5": ("failed", GPU_5), "switch": ("failed", bundled("sxid-fatal"))}
PATIENCE = 60.0
LINK = "FAILED nvlink.link_down GPU 5 link 7"


@pytest.fixture(scope="module")
def gate() -> Iterator[Gate]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cluster = Cluster(folder, NODES, slurm_lines(folder))
        with Gate(cluster) as made, daemons(folder, DAEMONS), cluster:
            yield made
        cluster.wait(lambda: not cluster.processes())


@pytest.fixture(autouse=True)
def _fresh(gate: Gate) -> Iterator[None]:
    gate.reset()
    gate.configure(SHARED)
    yield
    gate.end_leftovers()
    assert gate.printed() == ""


def submit(gate: Gate, gpus: int, *options: str) -> str:
    """A job with so many GPUs on a large node that leaves a mark when it runs, and stays for a while."""
    script = f"echo $SLURMD_NODENAME $SLURM_JOB_GPUS > {gate.folder}/ran-$SLURM_JOB_ID; sleep 60"
    told = gate.cluster.tell(
        "sbatch", "--parsable", f"--gres=gpu:{gpus}", "-D", str(gate.folder), "-o", "/dev/null",
        *(options if "small" in options else ("-x", "small", *options)), "--wrap", script,
    )  # fmt: skip
    assert told
    return told.strip()


def ran(gate: Gate, job: str) -> str:
    gate.cluster.wait(lambda: gate.ran(job))
    return (gate.folder / f"ran-{job}").read_text("utf-8").strip()


def shown(gate: Gate, job: str) -> str:
    return gate.cluster.tell("scontrol", "show", "job", "--oneliner", job)


def test_a_job_on_other_gpus_starts_and_one_that_holds_the_gpu_goes_to_another_node(gate: Gate) -> None:
    gate.health("gpu5", "g1")
    first = submit(gate, 4, "-w", "g1")
    assert ran(gate, first).split()[0] == "g1"
    gate.told(f"prolog of job {first} on g1: the job starts: OK")
    assert "; GPU 5 is FAILED and not of this job" in gate.syslog()
    second = submit(gate, 4)
    assert ran(gate, second).split()[0] == "g2"
    gate.told(f"prolog of job {second} on g1: turned away: {LINK}", 1)
    assert gate.drained() == {}
    assert " ExcNodeList=small,g1 " in shown(gate, second)
    assert " Restarts=1 " in shown(gate, second)
    turns = gate.turns("prolog", second)
    assert [(turn.node, turn.status) for turn in turns] == [("g1", 0), ("g2", 0)]
    assert gate.cluster.states() == {"g1": "mixed", "g2": "mixed", "small": "idle"}


def test_a_switch_is_the_nodes_and_drains_it(gate: Gate) -> None:
    gate.health("switch", "g1")
    job = submit(gate, 1)
    gate.told(f"prolog of job {job} on g1: drained: FAILED sxid.20034")
    assert gate.drained()["g1"].startswith("link30 0000:07:00 wirewatch: sxid.20034")
    assert ran(gate, job).split()[0] == "g2"


def test_the_health_check_neither_drains_for_a_gpu_nor_leaves_a_node_drained_for_it(gate: Gate) -> None:
    gate.configure()
    gate.health("gpu5", "g1")
    assert gate.by_hand("healthcheck.sh", "g1").wait(PATIENCE) == 0
    assert gate.drained()["g1"].startswith("GPU5 link7 wirewatch: nvlink.link_down GPU 5")
    gate.configure(SHARED)
    assert gate.by_hand("healthcheck.sh", "g1").wait(PATIENCE) == 0
    assert gate.drained() == {}
    gate.told("resumed, it was drained for: GPU5 link7 wirewatch: nvlink.link_down GPU 5")
    assert gate.by_hand("healthcheck.sh", "g1").wait(PATIENCE) == 0
    assert gate.drained() == {}
    gate.health("switch", "g1")
    assert gate.by_hand("healthcheck.sh", "g1").wait(PATIENCE) == 0
    assert gate.drained()["g1"].startswith("link30 0000:07:00 wirewatch: sxid.20034")


def test_what_a_job_excluded_stays_excluded(gate: Gate) -> None:
    gate.health("gpu5", "g1")
    job = submit(gate, 8, "-x", "g2,small")
    gate.told(f"prolog of job {job} on g1: turned away: {LINK}")
    gate.cluster.wait(lambda: " ExcNodeList=g2,small,g1 " in shown(gate, job))
    assert not gate.ran(job)


def test_a_job_that_cannot_be_queued_again_ends(gate: Gate) -> None:
    gate.health("gpu5", "g1")
    job = submit(gate, 8, "--no-requeue", "-w", "g1")
    gate.told(f"prolog of job {job} on g1: turned away: {LINK}")
    gate.cluster.wait(lambda: "JobState=CANCELLED" in shown(gate, job))
    assert gate.cluster.tell("srun", "--gres=gpu:8", "-w", "g1", "touch", str(gate.folder / "ran-srun")) == ""
    assert not gate.ran(job)
    assert not gate.ran("srun")
    assert gate.drained() == {}


def test_a_job_is_not_turned_away_for_ever(gate: Gate) -> None:
    gate.configure(f"{SHARED}; MAX_AWAY=1")
    gate.health("gpu5")
    job = submit(gate, 8)
    assert ran(gate, job).split()[0] == "g2"
    gate.told(f"prolog of job {job} on g1: turned away: {LINK}", 1)
    gate.told(
        f"prolog of job {job} on g2: brake: not turned away, Slurm has started this job 1 times again", 1
    )
    gate.told(f"prolog of job {job} on g2: the job starts on an unfit GPU: {LINK}", 1)


def test_numbers_of_a_slurm_that_lacks_a_gpu_are_not_believed(gate: Gate) -> None:
    """With /dev/nvidia2 left out of gres.conf, Slurm's number 5 is /dev/nvidia6."""
    gate.health("gpu5", "small")
    job = submit(gate, 1, "-w", "small")
    gate.told(f"prolog of job {job} on small: turned away: {LINK}")
    gate.told("; the whole node counts: the scheduler counts 7 GPUs, the agent 8")
    assert not gate.ran(job)


def test_a_job_whose_gpus_are_not_known_needs_the_whole_node(gate: Gate) -> None:
    """Its job is no job of Slurm's here, so that it starts, and the line says all."""
    gate.health("gpu5", "g1")
    for listed, why in (
        ({}, "the list of GPUs is empty"),
        ({"SLURM_JOB_GPUS": "NoDevFiles"}, "'NoDevFiles' is no GPU of this node"),
        ({"SLURM_JOB_GPUS": "0,8"}, "'8' is no GPU of this node"),
    ):
        assert gate.by_hand("prolog.sh", "g1", SLURM_JOB_ID="4711", **listed).wait(PATIENCE) == 0
        gate.told("the job starts on an unfit GPU: FAILED nvlink.link_down GPU 5 link 7")
        gate.told(f"; the whole node counts: {why}")
    assert gate.by_hand("prolog.sh", "g1", SLURM_JOB_ID="4711", SLURM_JOB_GPUS="0-4,6,7").wait(PATIENCE) == 0
    gate.told("of job 4711 on g1: the job starts: OK")
    assert gate.drained() == {}
