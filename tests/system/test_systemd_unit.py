"""The unit as systemd itself reads it. A real systemd runs it in proof/systemd: `make e2e-systemd`."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from wirewatch.server.connections import DESCRIPTORS, ENOUGH, LOCAL, Bounds

pytestmark = pytest.mark.system

FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
UNIT = (FOLDER / "wirewatch.service").read_text("utf-8")
README = (FOLDER / "README.md").read_text("utf-8")
PROGRAM = "/opt/wirewatch/bin/wirewatch"
MOUNT = r"run-wirewatch\x2djobs.mount"


def analyze(*arguments: str) -> "subprocess.CompletedProcess[str]":
    tool = shutil.which("systemd-analyze")
    assert tool, "systemd-analyze is not installed"
    return subprocess.run([tool, *arguments], capture_output=True, text=True, timeout=60, check=False)


def verified(folder: Path, text: str) -> str:
    """What systemd complains of; its exit status is 0 for keys that it does not know."""
    file = folder / "wirewatch.service"
    # The agent is not installed here, and systemd wants a program.
    file.write_text(text.replace(PROGRAM, sys.executable), "utf-8")
    done = analyze("verify", "--man=no", str(file))
    return done.stdout + done.stderr + ("" if done.returncode == 0 else f"exit status {done.returncode}")


def test_systemd_has_no_complaint(tmp_path: Path) -> None:
    assert UNIT.count(PROGRAM) == 1
    assert verified(tmp_path, UNIT) == ""


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("WatchdogSec=", "WatchdogSecs=", "Unknown key 'WatchdogSecs'"),
        ("Restart=always", "Restart=sometimes", "Failed to parse service restart"),
        ("DevicePolicy=closed", "DevicePolicy=shut", "Failed to parse"),
    ],
)
def test_a_mistake_would_be_seen(tmp_path: Path, right: str, wrong: str, told: str) -> None:
    assert right in UNIT
    assert told in verified(tmp_path, UNIT.replace(right, wrong))


def test_the_mount_of_rings_has_the_name_that_systemd_wants(tmp_path: Path) -> None:
    text = (FOLDER.parent / "jobs" / "wirewatch-jobs.mount").read_text("utf-8")
    for name, told in ((MOUNT, ""), ("wirewatch-jobs.mount", "Where= setting doesn't match unit name")):
        file = tmp_path / name
        file.write_text(text, "utf-8")
        assert told in (done := analyze("verify", "--man=no", str(file))).stderr
        assert (done.stderr == "") is (not told)
        file.unlink()


def test_the_folder_of_rings_is_made_as_it_is_written(tmp_path: Path) -> None:
    """By mount(8) as systemd calls it, with users that every machine has in the place of the agent's."""
    text = (FOLDER.parent / "jobs" / "wirewatch-jobs.mount").read_text("utf-8")
    options = re.search(r"^Options=(.*)$", text, re.MULTILINE)
    assert options
    named = options[1].replace("uid=wirewatch", "uid=nobody").replace("gid=wirewatch", "gid=nogroup")
    lines = 'mount -t tmpfs -o "$0" rings "$1" && stat -c "%a %U %G" "$1"'
    words = ["unshare", "--mount", "sh", "-c", lines, named, str(tmp_path)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["3773", "nobody", "nogroup"]


def exposure(file: Path) -> str:
    done = analyze("security", "--offline=true", "--no-pager", str(file))
    found = re.search(r"Overall exposure level for wirewatch.service: ([\d.]+)", done.stdout)
    assert found, done.stdout + done.stderr
    return found[1]


def test_the_exposure_is_what_the_page_says(tmp_path: Path) -> None:
    assert f"calls it {exposure(FOLDER / 'wirewatch.service')}, OK" in README
    bare = tmp_path / "wirewatch.service"
    bare.write_text(f"[Service]\nExecStart={PROGRAM} serve\n", "utf-8")
    assert f"has {exposure(bare)})" in README


def test_what_the_unit_gives_is_in_the_table_of_privileges() -> None:
    for given in re.findall(
        r"^(?:DeviceAllow|AmbientCapabilities|RestrictAddressFamilies)=(.*)$", UNIT, re.MULTILINE
    ):
        for one in given.replace(" rw", "").replace(" r", "").split():
            assert one in README, one


def test_the_limits_are_those_of_the_page() -> None:
    limits = re.findall(r"^((?:MemoryMax|TasksMax|LimitNOFILE)=\S+)$", UNIT, re.MULTILINE)
    assert [limit.partition("=")[0] for limit in limits] == ["MemoryMax", "TasksMax", "LimitNOFILE"]
    for limit in limits:
        assert f"| `{limit}` |" in README
    assert f"LimitNOFILE={ENOUGH}" in limits
    # Port, local socket and orders.
    connections = sum(one.connections + one.reserved for one in (Bounds(), LOCAL, LOCAL))
    assert f"({connections}), and keeps {DESCRIPTORS} for itself: {connections + DESCRIPTORS}." in README
    # Each makes an agent late, which is UNKNOWN, or a probe slow, which is a finding.
    assert re.findall(r"^(CPUQuota|MemoryHigh|CPUWeight|IOWeight)=", UNIT, re.MULTILINE) == []
