"""A real Slurm with wirewatch's scripts as its README says, and daemons for its nodes to ask."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Self

from tests.disks import OTHER
from tests.node.daemon.process import FAST, Daemon
from tests.system.cluster import Cluster
from tests.waiting import until

SCRIPTS = Path(__file__).parents[2] / "deploy" / "slurm"
OVERLAYS = Path(__file__).parents[2] / "agent" / "wirewatch" / "overlays"
HOME = "/etc/wirewatch/slurm"
INTERVAL = "HealthCheckInterval=60"
QUICK = "bf_interval=1,sched_min_interval=0,batch_sched_delay=0,sched_interval=2"
CONF = """\
WIREWATCH={folder}/wirewatch
CHECK_OPTIONS=(--socket "{folder}/node-$NODE.sock")
VERDICT=$(readlink "{folder}/node-$NODE.sock")
VERDICT=${{VERDICT%/*}}/verdict
GATE_OPTIONS=(--recording)
SLURM_CONF={folder}/slurm.conf
RUN={folder}/run-$NODE
LOGGER={folder}/logger
DEADLINE=25
SLURM_DEADLINE=25
LOG_DEADLINE=25
[[ $part != "health check" || -n $by_hand || -e {folder}/watch-$NODE ]] || exit 0
began=$EPOCHREALTIME
trap 'echo "${{part// /}} $NODE ${{SLURM_JOB_ID:-0}} $began $EPOCHREALTIME $?" >> {folder}/turns' EXIT
{more}
"""
PROGRAM = """\
#!/bin/bash
echo "$*" >> {folder}/asked-$SLURMD_NODENAME
[ ! -e {folder}/misbehave-$SLURMD_NODENAME ] || . {folder}/misbehave-$SLURMD_NODENAME
exec {python} -m wirewatch "$@"
"""
LOGGER = '#!/bin/bash\nexec /usr/bin/logger --socket {folder}/log "$@"\n'
DAEMONS = frozenset({"munged", "slurmctld", "slurmd"})


@dataclass(frozen=True)
class Turn:
    """One run of a script: for which job ("0" for none), Unix seconds, exit status."""

    part: str
    node: str
    job: str
    began: float
    ended: float
    status: int

    @property
    def seconds(self) -> float:
        return self.ended - self.began


def slurm_lines(folder: Path) -> str:
    """The lines of slurm.conf from the README, for scripts in a folder, and quicker."""
    block = re.search(
        r"^```\n(Prolog=.*?)^```", (SCRIPTS / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    assert block
    lines = block[1].replace(HOME, f"{folder}/slurm")
    assert INTERVAL in lines
    return lines.replace(INTERVAL, "HealthCheckInterval=2").replace("_fail\n", f"_fail,{QUICK}\n")


def holds_folder(folder: Path) -> Path:
    """A folder of holds as deploy/systemd/wirewatch.tmpfiles makes it, for an agent of the user nobody."""
    folder.mkdir(mode=0o755)
    (folder / "lock").touch(mode=0o640)
    os.chown(folder / "lock", 0, OTHER)
    return folder


class Gate:
    """The scripts in the folder of a cluster, their settings, and what they did."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.folder = cluster.folder
        self._log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._logged: list[str] = []
        self._reader = Thread(target=self._read)

    def __enter__(self) -> Self:
        """Install the scripts."""
        self._log.bind(str(self.folder / "log"))
        self._reader.start()
        shutil.copytree(SCRIPTS, self.folder / "slurm")
        self.configure()
        for name, text in (("wirewatch", PROGRAM), ("logger", LOGGER)):
            (self.folder / name).write_text(text.format(folder=self.folder, python=sys.executable), "utf-8")
            (self.folder / name).chmod(0o755)
        self.health("ok")
        return self

    def __exit__(self, *_: object) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"", str(self.folder / "log"))
        self._reader.join()
        self._log.close()

    def _read(self) -> None:
        """Be the syslog; the kernel keeps ten lines for one who is not at it."""
        while line := self._log.recv(8192):
            self._logged.append(line.decode())

    def configure(self, more: str = "") -> None:
        """Write the scripts' configuration, with more lines.

        The daemons play recordings, which the gate believes here.
        """
        conf = self.folder / "slurm" / "wirewatch-slurm.conf"
        conf.write_text(CONF.format(folder=self.folder, more=more), "utf-8")

    def health(self, daemon: str, *nodes: str) -> None:
        """From now on these nodes, or all, are as this daemon says; one of no daemon's name has none."""
        for node in nodes or self.cluster.nodes:
            link, new = self.folder / f"node-{node}.sock", self.folder / f"new-{node}"
            new.symlink_to(self.folder / f"daemon-{daemon}" / "wirewatch.sock")
            new.rename(link)

    def misbehave(self, node: str, script: str) -> None:
        """What `wirewatch` does instead of its work."""
        (self.folder / f"misbehave-{node}").write_text(script, "utf-8")

    def watch(self, *nodes: str) -> None:
        """Let slurmd's health checks of these nodes do their work."""
        for node in nodes:
            (self.folder / f"watch-{node}").touch()

    def by_hand(self, script: str, node: str, **more: str) -> "subprocess.Popen[bytes]":
        """Start a script as slurmd does, which gives it next to nothing of an environment."""
        environment = {"SLURMD_NODENAME": node, "by_hand": "yes", **more}
        with (self.folder / "printed").open("ab") as printed:
            return subprocess.Popen(
                [self.folder / "slurm" / script], env=environment, stdin=subprocess.DEVNULL,
                stdout=printed, stderr=printed, cwd=self.folder,
            )  # fmt: skip

    def turns(self, part: str, job: str = "0") -> list[Turn]:
        file = self.folder / "turns"
        lines = file.read_text("utf-8").splitlines() if file.exists() else []
        found = []
        for line in lines:
            name, node, number, began, ended, status = line.split()
            if (name, number) == (part, job):
                found.append(Turn(name, node, number, float(began), float(ended), int(status)))
        return found

    def turn(self, part: str, job: str) -> Turn:
        """The only one of a job, once it has ended."""
        self.cluster.wait(lambda: bool(self.turns(part, job)))
        (found,) = self.turns(part, job)
        return found

    def syslog(self) -> str:
        """What the syslog got since the last reset."""
        return "\n".join(self._logged)

    def told(self, text: str, times: int = 0) -> None:
        """Wait until the syslog has got something; just so many times, if given."""
        self.cluster.wait(lambda: self.syslog().count(text) >= max(times, 1))
        assert not times or self.syslog().count(text) == times, self.syslog()

    def printed(self) -> str:
        """What scripts that were started by hand have printed, which is nothing."""
        file = self.folder / "printed"
        return file.read_text("utf-8") if file.exists() else ""

    def asked(self, node: str) -> list[str]:
        file = self.folder / f"asked-{node}"
        return file.read_text("utf-8").splitlines() if file.exists() else []

    def drained(self) -> Mapping[str, str]:
        """Reasons by node of those that are drained."""
        told = self.cluster.tell("sinfo", "-h", "-a", "-N", "-t", "drain", "-o", "%N|%E")
        return dict(line.split("|", 1) for line in told.splitlines())

    def ran(self, job: str) -> bool:
        return (self.folder / f"ran-{job}").exists()

    def submit(self, node: str, *options: str, command: str = "true") -> str:
        """A job with all GPUs of a node that leaves a mark when it runs."""
        script = f"touch {self.folder}/ran-$SLURM_JOB_ID; {command}"
        return self.cluster.submit("--gres=gpu:2", *options, node=node, command=script)

    def reset(self) -> None:
        """No jobs, no drained nodes, healthy daemons, the usual settings, nothing written since the boot."""
        for name in ("watch-*", "misbehave-*"):
            for file in self.folder.glob(name):
                file.unlink()
        self.cluster.cancel()
        self.end_leftovers()
        for name in ("asked-*", "ran-*", "turns", "printed"):
            for file in self.folder.glob(name):
                file.unlink()
        self._logged.clear()
        for node in self.cluster.nodes:
            shutil.rmtree(self.folder / f"run-{node}", ignore_errors=True)
            (self.folder / f"run-{node}").mkdir()
            (self.folder / f"run-{node}" / "booted").touch()
        self.configure()
        self.health("ok")
        for node in self.drained():
            self.cluster.tell("scontrol", "update", f"NodeName={node}", "State=UNDRAIN")
        for node, state in self.cluster.states().items():
            if state.startswith("down"):
                self.cluster.tell("scontrol", "update", f"NodeName={node}", "State=RESUME")
        self.cluster.wait(lambda: set(self.cluster.states().values()) == {"idle"})

    def end_leftovers(self) -> None:
        """End what misbehaving checks have left behind; there are no jobs now."""
        for pid, name in self.cluster.processes().items():
            if name not in DAEMONS:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def bundled(name: str) -> str:
    """The text of a bundled overlay."""
    return (OVERLAYS / f"{name}.toml").read_text("utf-8")


HEALTHS = {
    "ok": ("ok", ""),
    "degraded": ("degraded", bundled("gpu-row-remap-pending")),
    "failed": ("failed", bundled("nvlink-link-down")),
}
"""Daemons by name: the health, and the overlay that brings it."""


@contextmanager
def daemons(folder: Path, wanted: Mapping[str, tuple[str, str]] = HEALTHS) -> Iterator[None]:
    """A daemon for each name, at FOLDER/daemon-ok and so on, each sure of its health."""
    with ExitStack() as stack:
        for name, (health, overlay) in wanted.items():
            home = folder / f"daemon-{name}"
            home.mkdir()
            config = FAST.replace('socket = ""', f'socket = "{home}/wirewatch.sock"')
            daemon = stack.enter_context(
                Daemon(("--replay", "demo-dgx-h200", *_at_once(home, overlay)), home, config)
            )
            daemon.wait("/health", f'"health":"{health}"')
            until(f"no {health} in the file", partial(_in_file, home, health))
        yield


def _in_file(home: Path, health: str) -> bool:
    """Whether the file of the verdict says so too, which may be a second later."""
    return f"\nhealth {health}\n" in (home / "verdict").read_text("ascii")


def _at_once(home: Path, overlay: str) -> tuple[str, ...]:
    """An overlay that does not wait."""
    if not overlay:
        return ()
    text = re.sub(r"^from = .*$", "from = 0", overlay, flags=re.MULTILINE)
    (home / "overlay.toml").write_text(text, "utf-8")
    return "--overlay", str(home / "overlay.toml")
