"""A real Slurm in one folder: munged, slurmctld and a slurmd for each node; GPUs are null devices."""

import os
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from wirewatch.core.ports import SlurmJob
from wirewatch.core.types import Absent
from wirewatch.hw.slurm import SystemSlurm

PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
CPUS = 8
CONF = """\
ClusterName=wirewatch
SlurmctldHost={host}({controller})
SlurmUser=root
ReturnToService=2
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
SlurmctldPort={ports[0]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
GresTypes=gpu
SlurmdParameters=config_overrides
MinJobAge=300
KillWait=1
{settings}
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=10 State=UP
"""


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
    """Ends with the block. `nodes`: GPUs of each node by its name; `settings`: more lines of slurm.conf.

    `controller`: the address of slurmctld.
    """

    controller = "127.0.0.1"

    def __init__(self, folder: Path, nodes: Mapping[str, int], settings: str = "") -> None:
        self.folder = folder
        self.nodes = nodes
        self.first = next(iter(nodes))
        self.conf = folder / "slurm.conf"
        self._settings = settings
        self._environment = {"PATH": PATH, "SLURM_CONF": str(self.conf)}
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self._write()
        (self.folder / "state").mkdir()
        (self.folder / "key").write_bytes(os.urandom(1024))
        (self.folder / "key").chmod(0o400)
        try:
            self.authenticate()
            self.start("slurmctld", "-D")
            for node in self.nodes:
                self.serve(node)
            self.wait(lambda: self.states() == dict.fromkeys(self.nodes, "idle"))
        except BaseException:
            self.__exit__()
            raise
        return self

    def _write(self) -> None:
        """The configuration; GPUs of all nodes are the same files."""
        host = os.uname().nodename.partition(".")[0]
        ports = free_ports(len(self.nodes) + 1)
        nodes = "\n".join(
            f"NodeName={name} NodeHostname={host} NodeAddr={self.address(name)} Port={port} CPUs={CPUS} "
            f"{f'Gres=gpu:h200:{gpus} ' if gpus else ''}State=UNKNOWN"
            for (name, gpus), port in zip(self.nodes.items(), ports[1:], strict=True)
        )
        conf = CONF.format(
            host=host,
            controller=self.controller,
            folder=self.folder,
            ports=ports,
            nodes=nodes,
            settings=self._settings.rstrip(),
        )
        self.conf.write_text(conf, "utf-8")
        for number in range(max(self.nodes.values())):
            # Slurm gives scripts a job's GPUs only where they are devices: the null device.
            os.mknod(self.folder / f"nvidia{number}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        gres = [
            f"NodeName={name} Name=gpu Type=h200 File={self.folder}/nvidia[0-{gpus - 1}]\n"
            for name, gpus in self.nodes.items()
            if gpus
        ]
        (self.folder / "gres.conf").write_text("".join(gres), "utf-8")

    def address(self, node: str) -> str:  # noqa: ARG002 - here all have one
        """Where a node's slurmd listens."""
        return "127.0.0.1"

    def __exit__(self, *_: object) -> None:
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

    def start(self, name: str, *options: str, within: Sequence[str] = ()) -> None:
        """Start a daemon; `within`: a command that runs it in a place of its own."""
        with (self.folder / f"{name}.log").open("wb") as log:
            self._started[name] = subprocess.Popen(
                [*within, tool(name.partition("-")[0]), *options],
                env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, cwd=self.folder,
            )  # fmt: skip

    def serve(self, node: str, *options: str) -> None:
        """Start the slurmd of a node."""
        self.start(f"slurmd-{node}", "-D", "-N", node, *options)

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
        """What a command of Slurm's prints; nothing when it fails."""
        command = [tool(name), *arguments]
        done = subprocess.run(
            command, env=self._environment, cwd=self.folder, timeout=20, check=False,
            capture_output=True, text=True,
        )  # fmt: skip
        return done.stdout if done.returncode == 0 else ""

    def states(self) -> dict[str, str]:
        """States of all nodes, such as "drained", by name."""
        return dict(line.split() for line in self.tell("sinfo", "-h", "-N", "-o", "%N %T").splitlines())

    def processes(self) -> dict[int, str]:
        """What still runs in the folder, by its id: daemons, scripts, steps of jobs, jobs."""
        found = {}
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (process / "cwd").readlink().is_relative_to(self.folder):
                    found[int(process.name)] = (process / "comm").read_text("utf-8").strip()
        return found

    def submit(
        self, *options: str, node: str | None = None, name: str = "train", command: str = "sleep 60"
    ) -> str:
        """A job, on the first node unless another is given; returns its number."""
        told = self.tell(
            "sbatch", "--parsable", "-J", name, "-D", str(self.folder), "-w", node or self.first,
            "-o", "/dev/null", *options, "--wrap", command,
        )  # fmt: skip
        assert told, "sbatch failed"
        return told.strip()

    def cancel(self) -> None:
        """End all jobs, epilogs included."""
        self.tell("scancel", "--user=root")
        self.wait(lambda: self.tell("squeue", "-h") == "")

    def wait(self, wanted: Callable[[], bool], seconds: float = 90.0) -> None:
        end = time.monotonic() + seconds
        while not wanted():
            assert time.monotonic() < end, self.logs()
            time.sleep(0.05)

    def logs(self) -> str:
        return "\n".join(f"{log.name}: {log.read_text('utf-8')[-2000:]}" for log in self.folder.glob("*.log"))

    def slurm(self, node: str | None = None, deadline: float = 20.0, search: str = PATH) -> SystemSlurm:
        return SystemSlurm(self.first if node is None else node, str(self.conf), search, deadline)

    def jobs(self, *states: str, node: str | None = None) -> dict[str, SlurmJob]:
        """What the port gives, by number, once it shows jobs in these states."""
        found: Sequence[SlurmJob] = ()

        def told() -> bool:
            nonlocal found
            jobs = self.slurm(node).jobs()
            assert not isinstance(jobs, Absent), jobs
            found = jobs
            return sorted(job.state for job in jobs) == sorted(states)

        self.wait(told)
        return {job.id: job for job in found}
