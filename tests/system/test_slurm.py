"""The real Slurm of Debian, with GPUs that are null devices: one node of four, and one that counts none."""

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.cluster import PATH, Cluster, tool
from wirewatch.core.ports import SlurmJob
from wirewatch.core.types import Absent, Why
from wirewatch.hw.slurm import UNSEEN, SystemSlurm

pytestmark = pytest.mark.system

GPUS, PLAIN = "gpu-a", "plain-b"
SETTINGS = """\
SchedulerParameters=bf_interval=1,sched_min_interval=0,batch_sched_delay=0
PrivateData=jobs
MessageTimeout=2
Epilog={folder}/epilog
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # other users ask Slurm too
        wait = f"#!/bin/sh\nfor i in $(seq 100); do [ -e {folder}/slow ] || exit 0; sleep 0.1; done\n"
        (Path(folder) / "epilog").write_text(wait, "utf-8")
        (Path(folder) / "epilog").chmod(0o755)
        with Cluster(Path(folder), {GPUS: 4, PLAIN: 0}, SETTINGS.format(folder=folder)) as made:
            yield made
            (Path(folder) / "slow").unlink(missing_ok=True)
        made.wait(lambda: not made.processes())


@pytest.fixture(autouse=True)
def _idle(cluster: Cluster) -> Iterator[None]:
    yield
    (cluster.folder / "slow").unlink(missing_ok=True)
    cluster.cancel()


def test_an_idle_node_has_no_jobs(cluster: Cluster) -> None:
    assert cluster.slurm().jobs() == ()
    assert cluster.slurm(PLAIN).jobs() == ()


def test_jobs_are_reported_with_the_gpus_that_slurm_gave_them(cluster: Cluster) -> None:
    first, second = cluster.submit("--gres=gpu:2"), cluster.submit("--gres=gpu:h200:1")
    plain = cluster.submit()
    told = cluster.jobs("RUNNING", "RUNNING", "RUNNING")
    assert set(told) == {first, second, plain}
    assert told[plain].gpus == ()
    both = (told[first].gpus or ()) + (told[second].gpus or ())
    assert (len(told[first].gpus or ()), len(set(both))) == (2, 3)
    assert set(both) <= set(range(4))


def test_tasks_of_an_array_are_jobs_of_their_own(cluster: Cluster) -> None:
    cluster.submit("--gres=gpu:1", "--array=1-3")
    told = cluster.jobs("RUNNING", "RUNNING", "RUNNING")
    assert sorted(job.gpus or () for job in told.values()) == [(0,), (1,), (2,)]


def test_a_suspended_job_still_holds_its_gpus(cluster: Cluster) -> None:
    number = cluster.submit("--gres=gpu:4")
    cluster.jobs("RUNNING")
    cluster.tell("scontrol", "suspend", number)
    assert cluster.jobs("SUSPENDED") == {number: SlurmJob(number, "SUSPENDED", (0, 1, 2, 3))}


def test_while_an_epilog_runs_it_is_not_known_what_is_still_held(cluster: Cluster) -> None:
    number = cluster.submit("--gres=gpu:1")
    cluster.jobs("RUNNING")
    (cluster.folder / "slow").touch()
    cluster.tell("scancel", number)
    assert cluster.jobs("COMPLETING") == {number: SlurmJob(number, "COMPLETING", None)}
    (cluster.folder / "slow").unlink()
    assert cluster.jobs() == {}


def test_a_job_on_several_nodes_holds_on_each_what_it_was_given_there(cluster: Cluster) -> None:
    number = cluster.submit("-N2", node=f"{GPUS},{PLAIN}")
    assert cluster.jobs("RUNNING") == {number: SlurmJob(number, "RUNNING", ())}
    assert cluster.jobs("RUNNING", node=PLAIN) == {number: SlurmJob(number, "RUNNING", None)}


@pytest.mark.parametrize(
    "name",
    [
        f"x JobState=COMPLETED Nodes={GPUS} CPU_IDs=0 Mem=0 GRES= MinCPUsNode=1",
        "x\nJobId=1 y",
        f"x Nodes={GPUS} CPU_IDs=0 Mem=0 GRES=\nJobId=1 y",
    ],
)
def test_a_job_cannot_hide_its_gpus_behind_its_name(cluster: Cluster, name: str) -> None:
    number = cluster.submit("--gres=gpu:2", name=name)
    cluster.wait(lambda: "RUNNING" in cluster.tell("squeue", "-h", "-j", number, "-o", "%T"))
    told = cluster.slurm().jobs()
    assert not isinstance(told, Absent)
    assert number in {job.id for job in told}
    held = [range(4) if job.gpus is None else job.gpus for job in told]
    assert {0, 1} <= {gpu for gpus in held for gpu in gpus}


def test_gpus_of_jobs_that_a_user_is_not_shown_are_held_all_the_same(cluster: Cluster) -> None:
    """PrivateData=jobs, and an agent that runs as nobody."""
    for name in ("scontrol", "squeue"):
        file = cluster.folder / name
        file.write_text(f'#!/bin/sh\nexec {tool("runuser")} -u nobody -- {tool(name)} "$@"\n', "utf-8")
        file.chmod(0o755)
    cluster.submit("--gres=gpu:2")
    cluster.jobs("RUNNING")
    told = cluster.slurm(search=f"{cluster.folder}:{PATH}").jobs()
    assert told == (SlurmJob("unknown", UNSEEN, (0, 1)),)


def test_a_node_of_another_name_is_not_slurm_s(cluster: Cluster) -> None:
    told = cluster.slurm("gpu-z").jobs()
    assert isinstance(told, Absent)
    assert told.why is Why.MISSING


def test_the_nodes_of_this_machine_are_found_in_slurm_conf(cluster: Cluster) -> None:
    told = cluster.slurm("").jobs()
    assert isinstance(told, Absent)
    assert f"{GPUS}, {PLAIN}" in told.detail
    one = cluster.conf.read_text("utf-8").replace(f"NodeName={PLAIN}", "NodeName=x NodeAddr=10.0.0.1 #")
    (cluster.folder / "one.conf").write_text(one, "utf-8")
    assert SystemSlurm("", str(cluster.folder / "one.conf"), PATH).jobs() == ()


def test_without_authentication_slurm_denies(cluster: Cluster) -> None:
    cluster.process("munged").terminate()
    cluster.process("munged").wait(5)
    told = cluster.slurm().jobs()
    assert isinstance(told, Absent)
    assert told.why is Why.DENIED
    cluster.authenticate()
    cluster.wait(lambda: cluster.slurm().jobs() == ())


def test_a_controller_that_hangs_or_is_gone_is_never_a_node_without_jobs(cluster: Cluster) -> None:
    controller = cluster.process("slurmctld")
    controller.send_signal(signal.SIGSTOP)
    hanging = cluster.slurm(deadline=0.5).jobs()
    slowly = cluster.slurm().jobs()
    controller.send_signal(signal.SIGCONT)
    assert [a.why for a in (hanging, slowly) if isinstance(a, Absent)] == [Why.TIMEOUT, Why.TIMEOUT]
    # Slurm's own limit is 2 s and more.
    assert isinstance(hanging, Absent)
    assert " within 0." in hanging.detail
    controller.terminate()
    controller.wait(10)
    told = cluster.slurm().jobs()
    assert isinstance(told, Absent)
    assert told.why is Why.LOST
    assert "controller" in told.detail
    cluster.start("slurmctld", "-D")
    cluster.wait(lambda: cluster.slurm().jobs() == ())


def test_slurm_without_any_configuration_does_not_say_that_no_job_is_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tool("scontrol")
    monkeypatch.delenv("SLURM_CONF", raising=False)
    told = SystemSlurm(conf="", search=PATH, deadline=5.0).jobs()
    assert isinstance(told, Absent)
    assert told.why is not Why.MISSING
