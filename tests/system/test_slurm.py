"""The real Slurm of Debian, with GPUs that are empty files: one node of four, and one that counts none."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import pytest

from wirewatch.core.ports import SlurmJob
from wirewatch.core.slurm import UNSEEN
from wirewatch.core.types import Absent, Why
from wirewatch.hw.slurm import SystemSlurm

pytestmark = pytest.mark.system

GPUS, PLAIN = "gpu-a", "plain-b"
CONF = """\
ClusterName=wirewatch
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
SlurmctldPort={ports[0]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=bf_interval=1,sched_min_interval=0,batch_sched_delay=0
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
GresTypes=gpu
SlurmdParameters=config_overrides
PrivateData=jobs
MessageTimeout=2
MinJobAge=300
KillWait=1
Epilog={folder}/epilog
NodeName=gpu-a NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=8 Gres=gpu:h200:4 State=UNKNOWN
NodeName=plain-b NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=8 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=10 State=UP
"""
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def tool(name: str) -> str:
    found = shutil.which(name, path=PATH)
    assert found, f"{name} is missing: tests/system/packages installs it"
    return found


def free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


class Cluster:
    """munged, slurmctld and a slurmd for each node, all in one folder; ends with the block."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.conf = folder / "slurm.conf"
        self._environment = {"PATH": PATH, "SLURM_CONF": str(self.conf)}
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        host = os.uname().nodename.partition(".")[0]
        self.conf.write_text(CONF.format(host=host, folder=self.folder, ports=free_ports(3)), "utf-8")
        (self.folder / "state").mkdir()
        for number in range(4):
            (self.folder / f"nvidia{number}").touch()
        gres = f"NodeName={GPUS} Name=gpu Type=h200 File={self.folder}/nvidia[0-3]\n"
        (self.folder / "gres.conf").write_text(gres, "utf-8")
        wait = f"#!/bin/sh\nfor i in $(seq 100); do [ -e {self.folder}/slow ] || exit 0; sleep 0.1; done\n"
        (self.folder / "epilog").write_text(wait, "utf-8")
        (self.folder / "epilog").chmod(0o755)
        (self.folder / "key").write_bytes(os.urandom(1024))
        (self.folder / "key").chmod(0o400)
        try:
            self.authenticate()
            self.start("slurmctld", "-D")
            for node in (GPUS, PLAIN):
                self.start(f"slurmd-{node}", "-D", "-N", node)
            self.wait(lambda: self.tell("sinfo", "-h", "-o", "%D %T").split() == ["2", "idle"])
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        (self.folder / "slow").unlink(missing_ok=True)
        self._signal(signal.SIGCONT)
        with suppress(AssertionError, subprocess.SubprocessError):
            self.cancel()
        self._signal(signal.SIGTERM)
        for process in self._started.values():
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)

    def _signal(self, number: signal.Signals) -> None:
        for process in self._started.values():
            if process.poll() is None:
                process.send_signal(number)

    def start(self, name: str, *options: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self._started[name] = subprocess.Popen(
                [tool(name.partition("-")[0]), *options],
                env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, cwd=self.folder,
            )  # fmt: skip

    def authenticate(self) -> None:
        """Start munged, and wait until it answers."""
        at = self.folder
        self.start(
            "munged", "--foreground", "--force", f"--key-file={at}/key", f"--socket={at}/munge.sock",
            f"--pid-file={at}/munge.pid", f"--log-file={at}/munge.log", f"--seed-file={at}/munge.seed",
        )  # fmt: skip
        self.wait((at / "munge.sock").exists)

    def process(self, name: str) -> "subprocess.Popen[bytes]":
        return self._started[name]

    def tell(self, name: str, *arguments: str) -> str:
        command = [tool(name), *arguments]
        done = subprocess.run(
            command, env=self._environment, cwd=self.folder, timeout=20, check=False,
            capture_output=True, text=True,
        )  # fmt: skip
        return done.stdout if done.returncode == 0 else ""

    def processes(self) -> list[str]:
        """What still runs in the folder: daemons, steps of jobs, jobs."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (process / "cwd").readlink().is_relative_to(self.folder):
                    found.append((process / "comm").read_text("utf-8").strip())
        return found

    def submit(self, *options: str, node: str = GPUS, name: str = "train") -> str:
        """A job that sleeps; returns its number."""
        told = self.tell(
            "sbatch",
            "--parsable",
            "-J",
            name,
            "-D",
            str(self.folder),
            "-w",
            node,
            "-o",
            "/dev/null",
            *options,
            "--wrap",
            "sleep 60",
        )
        assert told, "sbatch failed"
        return told.strip()

    def cancel(self) -> None:
        """End all jobs, epilogs included."""
        self.tell("scancel", "--user=root")
        self.wait(lambda: self.tell("squeue", "-h") == "")

    def wait(self, wanted: Callable[[], bool]) -> None:
        end = time.monotonic() + 15
        while not wanted():
            assert time.monotonic() < end, self.logs()
            time.sleep(0.05)

    def logs(self) -> str:
        return "\n".join(f"{log.name}: {log.read_text('utf-8')[-2000:]}" for log in self.folder.glob("*.log"))

    def slurm(self, node: str = GPUS, deadline: float = 20.0, search: str = PATH) -> SystemSlurm:
        return SystemSlurm(node, str(self.conf), search, deadline)

    def jobs(self, *states: str, node: str = GPUS) -> dict[str, SlurmJob]:
        """What the port tells, by number, once it tells of jobs in these states."""
        found: Sequence[SlurmJob] = ()

        def told() -> bool:
            nonlocal found
            jobs = self.slurm(node).jobs()
            assert not isinstance(jobs, Absent), jobs
            found = jobs
            return sorted(job.state for job in jobs) == sorted(states)

        self.wait(told)
        return {job.id: job for job in found}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # other users ask Slurm too
        with Cluster(Path(folder)) as made:
            yield made
        made.wait(lambda: not made.processes())


@pytest.fixture(autouse=True)
def _idle(cluster: Cluster) -> Iterator[None]:
    yield
    (cluster.folder / "slow").unlink(missing_ok=True)
    cluster.cancel()


def test_an_idle_node_has_no_jobs(cluster: Cluster) -> None:
    assert cluster.slurm().jobs() == ()
    assert cluster.slurm(PLAIN).jobs() == ()


def test_jobs_are_told_with_the_gpus_that_slurm_gave_them(cluster: Cluster) -> None:
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


def test_while_an_epilog_runs_nobody_can_tell_what_is_still_held(cluster: Cluster) -> None:
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
    began = time.monotonic()
    hanging = cluster.slurm(deadline=0.5).jobs()
    assert time.monotonic() - began < 3
    slowly = cluster.slurm().jobs()
    controller.send_signal(signal.SIGCONT)
    assert [a.why for a in (hanging, slowly) if isinstance(a, Absent)] == [Why.TIMEOUT, Why.TIMEOUT]
    controller.terminate()
    controller.wait(10)
    told = cluster.slurm().jobs()
    assert isinstance(told, Absent)
    assert told.why is Why.LOST
    assert "controller" in told.detail
    cluster.start("slurmctld", "-D")
    cluster.wait(lambda: cluster.slurm().jobs() == ())


def test_slurm_without_any_configuration_does_not_say_that_nobody_is_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tool("scontrol")
    monkeypatch.delenv("SLURM_CONF", raising=False)
    told = SystemSlurm(conf="", search=PATH, deadline=5.0).jobs()
    assert isinstance(told, Absent)
    assert told.why is not Why.MISSING
