"""What was there before a restart and is not: judged by daemon and command alike, until it is accepted."""

import json
from pathlib import Path

import pytest

from tests.node.daemon.process import Daemon
from tests.node.daemon.test_service_drift import config, order
from tests.node.hw.children import until
from tests.processes import run_wirewatch

DEMO = ("--replay", "demo-dgx-h200")
POLLING = """
about = "ports poll since the machine was started"
[[change]]
port = "sysfs"
match = "read /sys/class/infiniband/mlx5_[0-7]/ports/1/state"
set = "1: DOWN"
[[change]]
port = "sysfs"
match = "read /sys/class/infiniband/mlx5_[0-7]/ports/1/phys_state"
set = "2: Polling"
[[change]]
port = "sysfs"
match = "read /sys/class/infiniband/mlx5_[0-7]/ports/1/counters/*"
set = "0"
[[change]]
port = "command"
match = "ibstat()"
errno = "ENOENT"
"""
SEVEN = """
about = "the driver could not start one GPU"
[[change]]
port = "nvml"
match = "Count()"
set = 7
"""
OTHER = """
about = "the state folder came with an image"
[[change]]
port = "sysfs"
match = "read /sys/class/dmi/id/product_uuid"
set = "4c4c4544-0042-3510-8052-b4c04f4e0000"
"""
NO_PROBE = "[probe]\nenabled = false\n"
OK, DEGRADED, FAILED, UNKNOWN = "ok", "degraded", "failed", "unknown"


def check(folder: Path, *overlays: str) -> tuple[str, set[str]]:
    """The health by a check of its own, and the rules that it found."""
    changes = [word for name in overlays for word in ("--overlay", f"{folder}/{name}.toml")]
    options = ("--config", f"{folder}/check.toml", "--deadline", "50s", "--json")
    document = json.loads(run_wirewatch("check", *DEMO, *changes, *options).stdout)
    return document["health"], {one["rule"] for one in document["findings"]}


@pytest.fixture
def folder(tmp_path: Path, learned: Path) -> Path:
    """A state folder of a daemon under which all was well, and faults to come."""
    for name, text in (("polling", POLLING), ("seven", SEVEN), ("other", OTHER)):
        (tmp_path / f"{name}.toml").write_text(text, "utf-8")
    # At the usual intervals: a play of minutes has a thousand polls at those of the daemon here.
    (tmp_path / "check.toml").write_text(f'[state]\ndirectory = "{learned}"\n{NO_PROBE}', "utf-8")
    return tmp_path


def running(folder: Path, *overlays: str) -> Daemon:
    changes = [word for name in overlays for word in ("--overlay", f"{folder}/{name}.toml")]
    return Daemon((*DEMO, *changes), folder, config(folder, "", state=True, every=0.3, nvlink=True))


def test_a_command_without_a_daemon_remembers_too(folder: Path) -> None:
    assert check(folder) == (OK, set())
    assert check(folder, "polling") == (FAILED, {"infiniband.port_down"})
    health, rules = check(folder, "seven")
    assert (health, "gpu.missing" in rules) == (FAILED, True)


def test_ports_that_poll_since_the_boot_are_failed_until_they_are_accepted(folder: Path) -> None:
    with running(folder, "polling") as daemon:
        daemon.wait("/health", '"failed"')
        daemon.wait("/health", "infiniband.port_down")
        daemon.wait("/metrics", "wirewatch_topology_baseline_timestamp_seconds 1")
        code, _, wrong = order(folder, "accept", "--yes", "--why", "the cables went to another node")
        assert (code, wrong) == (0, "")
        daemon.wait("/health", '"health":"degraded"')
        assert daemon.terminate()[0] == 0
    assert check(folder, "polling") == (DEGRADED, {"infiniband.port_inactive"})


def test_what_an_image_brought_is_not_judged_by(folder: Path) -> None:
    file = folder / "state" / "machine.json"
    document = json.loads(file.read_text())
    document["machine"]["system"] = "4c4c4544-0042-3510-8052-b4c04f4e3533"
    file.write_text(json.dumps(document))
    assert check(folder, "polling", "other")[0] == UNKNOWN
    assert file.exists()
    with running(folder, "polling", "other") as daemon:
        daemon.ready()
        until(lambda: bool(list(file.parent.glob("baseline.json.corrupt-*"))))
        daemon.wait("/health", "infiniband.port_inactive")
        assert "of another machine" in daemon.log


def test_a_memory_that_cannot_be_read_is_not_known_until_somebody_says_so(folder: Path) -> None:
    (folder / "state" / "machine.json").write_text("{")
    assert check(folder) == (UNKNOWN, {"verdict.latches"})
    with running(folder) as daemon:
        daemon.wait("/health", "verdict.latches")
        assert daemon.get("/health").json()["health"] == "unknown"
