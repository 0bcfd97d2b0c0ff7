"""Two small clusters of demo nodes under a real Prometheus: `calm`, where nothing is wrong, and `storm`.

Each Blank of dashboards/parts.py has its cause somewhere in `storm`.
"""

import json
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from proof.played.job import PlayedJob, build
from proof.played.score import Score
from tests.dashboards.promserver import Prometheus, rules_every, scraping, serving
from tests.node.daemon.process import Daemon
from tests.node.jobs.burstlooks import DrawnJob, as_json

CALM, STORM = "calm", "storm"
_EVERY = 2.0
_QUICK = "agent", "gpu", "gpudirect", "infiniband", "inventory", "nvlink", "pcie", "topology", "xid"
_HEAD = '[listen]\nsocket = ""\n'
QUICK = (
    _HEAD
    + "".join(f"[collectors.{name}]\ninterval = {_EVERY}\n" for name in _QUICK)
    + f"""
[drift]
interval = {_EVERY}
[probe]
interval = 1.0
settle = 0.0
probe_interval = 5.0
budget = 1.0
"""
)
DETAIL = QUICK.replace(
    "[collectors.nvlink]\n", "[collectors.nvlink]\nlink_detail = true\nlink_detail_interval = 2.0\n"
)
LOCKSTEP = (
    _HEAD
    + """
[collectors.lockstep]
enabled = true
[policy.lockstep]
settle = 1.0
[collectors.inventory]
interval = 2.0
[collectors.topology]
interval = 2.0
[drift]
interval = 2.0
"""
)
"""Usual intervals for who shares the GPUs with it, as the configuration demands."""

JOBS = (
    _HEAD
    + """
[collectors.jobs]
interval = 0.5
names = true
[collectors.bursts]
enabled = true
interval = 2.0
[policy.jobs]
window = 2.0
longest = 10.0
[policy.bursts]
settle = 1.0
[drift]
interval = 2.0
"""
)
_LOOK = json.dumps(as_json(DrawnJob(310e9, 1 << 30, 8e-3).look()))
_BURSTS = f"""
[[change]]
port = "nvml"
match = "gpu*/ComputeRunningProcesses()"
set = [{{ pid = 4711 }}]
[[change]]
port = "nvml"
match = "gpu*/Burst(250,138,139)"
set = {_LOOK.replace(":", " =")}
"""
"""A job's looks at its GPUs' bytes; beside it, one with the tap is played."""
_JOB = """
[[change]]
port = "nvml"
match = "gpu*/ComputeRunningProcesses()"
set = [{ pid = 4711 }]
[[change]]
port = "nvml"
match = "gpu*/GpmSupported()"
set = true
[[change]]
port = "nvml"
match = "gpu*/GpmSince(*)"
set = { seconds = 7.5, metrics = { 1 = 99.0, 2 = 55.0, 10 = 30.0, 5 = 40.0, 60 = 90000.0, 61 = 90000.0 } }
[[change]]
port = "nvml"
match = "gpu5/GpmSince(*)"
at = "metrics/2"
set = 92.0
[[change]]
port = "nvml"
match = "gpu*/UtilizationRates()"
set = { gpu = 100, memory = 40 }
[[change]]
port = "nvml"
match = "gpu*/ClockInfo(1)"
set = 1980
[[change]]
port = "nvml"
match = "SystemGetDriverVersion()"
set = "575.57.08"
[[change]]
port = "sysfs"
match = "read /sys/class/infiniband/mlx5_3/fw_ver"
from = 25
set = "28.39.1002"
"""
"""A job in lockstep in which GPU 5 never waits; a driver of its own, and a NIC gets new firmware."""

PORTS_DOWN = (
    "".join(
        f"""
[[change]]
port = "sysfs"
match = "read /sys/class/infiniband/mlx5_[2-9]/ports/1/{file}"
from = 20
set = "{text}"
"""
        for file, text in (("state", "1: DOWN"), ("phys_state", "2: Polling"))
    )
    + """
[[change]]
port = "command"
match = "ibstat()"
errno = "ENOENT"
"""
)
"""Eight ports lose their cables; `ibstat` is not there to disagree."""
_NO_SYSFS = """
[[change]]
port = "sysfs"
match = "list /sys/class/infiniband"
from = 20
errno = "EIO"
"""

_NVLINK5 = """
[[change]]
port = "nvml"
match = "gpu*/Field(220,all)"
set = 782
"""


@dataclass(frozen=True)
class Machine:
    """One node.

    `overlays` by name or as TOML; `stops`: its agent is ended once it has been seen, `leaves`: it is taken
    out of service discovery; `web`: it has a web configuration; `plays`: a job that carries the tap runs on
    two of its GPUs.
    """

    cluster: str
    node: str
    overlays: tuple[str, ...] = ()
    config: str = QUICK
    stops: bool = False
    leaves: bool = False
    web: bool = False
    plays: bool = False


MACHINES = (
    Machine(CALM, "calm-1"),
    Machine(CALM, "calm-2"),
    Machine(STORM, "storm-1", (
        "nvlink-link-down", "nvlink-crc", "straggler-memory", "straggler-pair", "probe-slow", "acs-on",
        "ib-symbol-errors", "xid-94", "gpu-throttle-thermal", PORTS_DOWN, _NVLINK5,
    ), DETAIL),
    Machine(STORM, "storm-2", (_JOB,), LOCKSTEP),
    Machine(STORM, "storm-3", ("ib-unreadable", "pcie-x8", "nvlink-link-down"), stops=True),
    Machine(STORM, "storm-4", (_NO_SYSFS, "sxid-fatal"), web=True),
    Machine(STORM, "storm-5", (_BURSTS,), JOBS, plays=True),
    Machine(STORM, "storm-6", ("gpu-hang",)),
    Machine(STORM, "storm-7", leaves=True),
)  # fmt: skip


@dataclass(frozen=True)
class Rig:
    prometheus: Prometheus
    daemons: dict[str, Daemon]
    began: float
    config: Path
    machines: tuple[Machine, ...]

    def strike(self) -> None:
        """Kill the agents that stop, as a node that dies does, and take away the nodes that leave."""
        for one in self.machines:
            if one.stops:
                self.daemons[one.node].process.send_signal(signal.SIGKILL)
        known = json.loads(self.config.read_text("utf-8"))
        static = known["scrape_configs"][0]["static_configs"]
        gone = {one.node for one in self.machines if one.leaves}
        static[:] = [one for one in static if one["labels"]["node"] not in gone]
        self.config.write_text(json.dumps(known), "utf-8")
        self.prometheus.reload()


@contextmanager
def running(folder: Path, machines: Sequence[Machine] = MACHINES, rules: float | None = 2.0) -> Iterator[Rig]:
    """All of them, scraped each second; ends with the block.

    `rules`: seconds between evaluations of the rules, None for those that are shipped.
    """
    with ExitStack() as stack:
        rings = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))
        daemons = {one.node: stack.enter_context(_daemon(one, folder, rings)) for one in machines}
        targets = [
            (
                daemons[one.node].url.removeprefix("http://"),
                {"cluster": one.cluster, "node": one.node},
            )
            for one in machines
        ]
        config = folder / "prometheus.yml"
        config.write_text(scraping(targets, rules=rules_every(folder, rules)), "utf-8")
        for one in machines:
            if one.plays:
                stack.enter_context(_played(folder, rings, daemons[one.node]))
        prometheus = stack.enter_context(serving(folder, config))
        yield Rig(prometheus, daemons, time.time(), config, tuple(machines))


def _played(folder: Path, rings: Path, daemon: Daemon) -> PlayedJob:
    """A job on two GPUs of the daemon's recording."""
    gpus = daemon.gpus()[:2]
    return PlayedJob(build(folder), rings, Score(0x10, len(gpus), step=0.2), gpus)


def _daemon(machine: Machine, folder: Path, rings: Path) -> Daemon:
    home = folder / machine.node
    home.mkdir()
    arguments = ["--replay", "demo-dgx-h200", "--loop"]
    if machine.plays:
        arguments += ["--rings", str(rings)]
    if machine.web:
        (home / "web.yml").write_text("{}\n", "utf-8")
        arguments += ["--web-config", str(home / "web.yml")]
    for number, overlay in enumerate(machine.overlays):
        told = overlay
        if "\n" in overlay:
            file = home / f"overlay-{number}.toml"
            file.write_text(overlay, "utf-8")
            told = str(file)
        arguments += ["--overlay", told]
    return Daemon(arguments, home, machine.config)
