"""Rings of this machine beside a recording: which processes are read here, and which in the recording."""

import os
from pathlib import Path

from tests.node.collectors.drawn import Files
from tests.node.jobs.ringfiles import RingWriter
from wirewatch.cli.hardware import replayed
from wirewatch.core.types import Absent, Why
from wirewatch.hw.files import SystemSysfs
from wirewatch.jobs.tap.here import RecordedSysfs, RingsHere
from wirewatch.jobs.tap.rings import FileRings


def test_the_processes_of_rings_are_of_this_machine_and_all_else_of_the_recording(tmp_path: Path) -> None:
    own = f"/proc/{os.getpid()}/cgroup"
    recorded = Files({own: "recorded", "/proc/1/cgroup": "of another machine", "/sys/a": "text"})
    rings = RingsHere(FileRings(tmp_path))
    sysfs = RecordedSysfs(recorded, SystemSysfs(), rings)
    assert sysfs.read(own) == "recorded"
    with RingWriter(tmp_path / "one.ring"):
        found = rings.poll({})
        assert not isinstance(found, Absent)
        assert [one.ring.host_pid for one in found.rings] == [os.getpid()]
    assert sysfs.read(own) == SystemSysfs().read(own)
    assert sysfs.data(own) == SystemSysfs().data(own)
    assert (sysfs.read("/proc/1/cgroup"), sysfs.read("/sys/a")) == ("of another machine", "text")
    assert sysfs.entries("/sys") == ["a"]
    rings.poll({})
    assert sysfs.read(own) == "recorded"


def test_a_folder_that_is_not_there_is_said_and_its_processes_stay(tmp_path: Path) -> None:
    rings = RingsHere(FileRings(tmp_path / "none"))
    found = rings.poll({})
    assert isinstance(found, Absent)
    assert (found.why, rings.pids) == (Why.MISSING, frozenset())


def test_a_replay_with_rings_of_here_is_synthetic_and_says_so(tmp_path: Path) -> None:
    hardware, nvml = replayed("h200x2-idle", (), rings=str(tmp_path))
    nvml.close()
    assert hardware.source == "synthetic"
    assert f"h200x2-idle, rings of processes of this machine in {tmp_path}" in hardware.about
    plain, nvml = replayed("h200x2-idle", ())
    nvml.close()
    assert plain.source == "replay"
