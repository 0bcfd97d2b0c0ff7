"""Holds: their files, who is believed, what they keep away, and the wait for a worker to be gone."""

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.disks import OTHER, fill, needs_root, open_folder, small_disk
from tests.groups import dies
from tests.node.probe.idle import Idle
from tests.node.probe.rig import ROOT, Rig
from tests.patience import HANGS
from tests.rows import each
from tests.waiting import until
from wirewatch.core.ports import Hold, SlurmJob
from wirewatch.core.types import Absent, Why
from wirewatch.documents.probed import probes
from wirewatch.probe.collector import HOLDS
from wirewatch.probe.gate import SkipReason, new_holds, read_facts
from wirewatch.probe.holds import LOCK, LONGEST, MOST, HoldFolder, HoldStarting, hold_named, since_boot
from wirewatch.probe.request import ProbeOverrides, probe_now
from wirewatch.statefolder import filesystem_ids

JOB, POD = "slurm:7", "pod:8c4f2d6b-9e1a-4c3d-a2b7-f0e95d136849"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as the installation makes it."""
    made = tmp_path / "holds"
    made.mkdir(mode=0o755)
    (made / LOCK).touch(mode=0o640)
    return made


@pytest.fixture
def holds(folder: Path) -> HoldFolder:
    return HoldFolder(str(folder))


def owners(holds: HoldFolder) -> list[str]:
    told = holds.active()
    assert not isinstance(told, Absent), told
    return sorted(one.owner for one in told)


NAMES = [
    ("slurm:4711.18249.0,3", Hold("slurm:4711", 18249.0, (0, 3))),
    (f"{POD}.5.all", Hold(POD, 5.0, None)),
    ("slurm:7.5.0-3", Hold("slurm:7", 5.0, None)),
    ("slurm:7.5.0,,3", Hold("slurm:7", 5.0, None)),
    ("slurm:7.5.", None),
    ("slurm:7.1.5.all", None),
    ("slurm:7.soon.all", None),
    ("slurm:7.12345678901.all", None),
    ("slurm:.5.all", None),
    ("docker:7.5.all", None),
    ("slurm:7", None),
    (LOCK, None),
    ("", None),
]  # fmt: skip


@each("name, wanted", NAMES)
def test_a_name_says_who_holds_what_until_when_and_all_gpus_where_it_is_not_understood(
    name: str, wanted: Hold | None
) -> None:
    assert hold_named(name) == wanted


@given(st.text(max_size=300))
def test_any_name_is_a_hold_or_none(name: str) -> None:
    told = hold_named(name)
    assert told is None or (told.owner and told.until >= 0)


def test_a_hold_lasts_for_its_time_by_a_clock_that_nobody_sets(folder: Path, holds: HoldFolder) -> None:
    now = int(since_boot())
    for name in (
        f"slurm:1.{now - 1}.all",
        f"slurm:2.{now + HANGS:.0f}.all",
        f"slurm:3.{now + LONGEST + 99}.all",
    ):
        (folder / name).touch()
    # The time of the file is of a clock that jumps: it counts for nothing.
    os.utime(folder / f"slurm:2.{now + HANGS:.0f}.all", (0, 0))
    assert owners(holds) == ["slurm:2"]
    holds.make(JOB, HANGS, None)
    left = sorted(one.name.partition(".")[0] for one in folder.iterdir())
    assert left == [LOCK, "slurm:2", JOB], "those that are over, or of another boot, are removed by the next"


def test_a_hold_of_a_day_holds_from_its_first_moment(holds: HoldFolder) -> None:
    holds.make(JOB, 86400.0, None)
    assert owners(holds) == [JOB]


def test_two_holds_of_one_owner_are_both_and_end_together(holds: HoldFolder) -> None:
    holds.make(JOB, 100.0, (0,))
    holds.make(JOB, 200.0, None)
    holds.make("slurm:71", 100.0, None)
    assert owners(holds) == [JOB, JOB, "slurm:71"]
    assert (holds.end(JOB), holds.end(JOB)) == (2, 0)
    assert owners(holds) == ["slurm:71"]


def test_there_are_never_many(holds: HoldFolder) -> None:
    for number in range(MOST):
        holds.make(f"slurm:{number}", 100.0, None)
    with pytest.raises(OSError, match="256 holds already"):
        holds.make("slurm:999", 100.0, None)
    assert len(owners(holds)) == MOST


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o1777])
def test_where_users_can_write_no_hold_is_believed_and_the_gate_is_blind(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    told = HoldFolder(str(folder)).active()
    assert isinstance(told, Absent)
    assert told.why is Why.DENIED
    node = Idle()
    node.probes.held = told
    assert refused(node) is SkipReason.BLIND


@needs_root
def test_a_folder_of_another_user_is_not_believed() -> None:
    with open_folder(OTHER) as theirs:
        assert isinstance(HoldFolder(str(theirs)).active(), Absent)


@needs_root
def test_a_user_makes_no_hold_ends_none_and_does_not_hold_up_a_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with open_folder() as folder:
        (folder / LOCK).touch(mode=0o640)
        holds = HoldFolder(str(folder))
        holds.make(JOB, 100.0, None)
        with filesystem_ids(OTHER, OTHER):
            for work in (lambda: holds.make("slurm:8", 1.0, None), lambda: holds.end(JOB)):
                with pytest.raises(PermissionError):
                    work()
            with holds.probing() as lock:
                assert lock is None
            assert "does not wait for this probe" in caplog.text
            assert owners(holds) == [JOB], "but a user's probe gives way too"


def test_without_a_folder_there_is_no_hold_and_none_can_be_made(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for path in (str(tmp_path / "none"), ""):
        assert HoldFolder(path).active() == ()
        with HoldFolder(path).probing() as lock:
            assert lock is None
    assert caplog.text == ""
    with pytest.raises(OSError, match="No such file"):
        HoldFolder(str(tmp_path / "none")).make(JOB, 1.0, None)


def test_a_full_disk_has_room_for_a_hold() -> None:
    with small_disk() as disk:
        fill(disk)
        HoldFolder(str(disk)).make(JOB, 100.0, None)
        assert owners(HoldFolder(str(disk))) == [JOB]


def refused(node: Idle, owner: str | None = None, *, force: bool = False) -> SkipReason | None:
    told = probe_now(
        node.hardware, node.made, node.rules_used, node.expect, ProbeOverrides(owner=owner, force=force), None
    )
    return told.refusal.reason if told.refusal else None


def held(*gpus: int, owner: str = JOB) -> Hold:
    return Hold(owner, since_boot() + 100.0, gpus or None)


def test_no_probe_runs_under_the_hold_of_another() -> None:
    node = Idle(4)
    node.probes.held = [held()]
    assert refused(node) is SkipReason.HOLD
    node.probes.held = ()
    assert refused(node) is None


def test_the_owner_probes_under_its_own_hold_and_beside_those_of_other_gpus() -> None:
    node = Idle(4)
    node.job("7", 0, 1)
    node.probes.held = [held()]
    assert refused(node, JOB) is None
    node.probes.held = [held(), held(2, 3, owner="slurm:8")]
    assert refused(node, JOB) is None
    node.probes.held = [held(), held(1, 3, owner="slurm:8")]
    assert refused(node, JOB) is SkipReason.HOLD


def test_a_forced_probe_runs_beside_a_hold() -> None:
    node = Idle()
    node.probes.held = [held()]
    assert refused(node, force=True) is None


def test_the_daemon_skips_under_a_hold_counts_it_and_probes_when_it_is_over() -> None:
    node = Idle(settle=0.0)
    node.probe()
    node.probes.held = [held()]
    for _ in range(50):
        node.poll(every=30.0)
    assert (node.reason(), len(node.probes.ordered)) == ("hold", 1)
    assert node.component.samples.count(HOLDS.sample(1)) == 1
    assert node.memory.skips[SkipReason.HOLD] >= 1
    assert probes(node.memory, 0.0, ()).gate.holds == [JOB]
    node.probes.held = ()
    node.probe()
    assert len(node.probes.ordered) == 2


def test_holds_that_nobody_looks_for_have_no_series() -> None:
    node = Idle(engine="gloo")
    node.poll()
    assert (node.series("probe_runs_total") != [], node.series("probe_holds")) == (True, [])


UNREAD = Absent(Why.DENIED, "/run/holds")
ENDS = [
    ((), [held()], None, f"{JOB} was given GPUs: a hold for its start; holds all GPUs: it is not said which"),
    ((), [held(1)], None, f"{JOB} was given GPUs: a hold for its start"),
    ((), [held(3)], None, None),
    ((), [held()], JOB, None),
    ([held()], [held()], None, None),
    ([held()], [held(), held(0, owner="slurm:8")], None, "slurm:8 was given GPUs: a hold for its start"),
    # A requeued job keeps its number and gets other GPUs.
    ([held(3)], [held(0)], None, f"{JOB} was given GPUs: a hold for its start"),
    ((), UNREAD, None, "denied: /run/holds"),
    (UNREAD, [held()], None, None),
]  # fmt: skip


@each("before, now, owner, wanted", ENDS)
def test_a_running_probe_ends_for_a_hold_that_was_not_there_and_is_not_its_owners(
    before: Sequence[Hold] | Absent, now: Sequence[Hold] | Absent, owner: str | None, wanted: str | None
) -> None:
    node = Idle(4)
    node.probes.held = before
    gpus = node.listed()
    read = new_holds(node.hardware, gpus[:2], read_facts(node.hardware, gpus, slurm=False), owner)
    node.probes.held = now
    assert read() == wanted


def test_a_running_probe_ends_at_once_for_a_hold(folder: Path) -> None:
    holds = HoldFolder(str(folder))
    node = Rig(folder.parent, holds=str(folder))

    def held_off() -> str | None:
        return "held" if owners(holds) else None

    def hold() -> None:
        until("no worker", node.pid_file.exists)
        holds.make(JOB, 100.0, None)
        # The lock outlasts the worker, and nothing else is waited for.
        gone.append(holds.quiet(HANGS) and dies(node.pid(), 0.0))

    gone: list[bool] = []
    thread = threading.Thread(target=hold)
    thread.start()
    probed = node.run("silent", HANGS, held=held_off)
    thread.join()
    assert (probed.outcome, probed.why, gone) == ("preempted", "held", [True])


def test_a_hold_that_came_between_the_gate_and_the_start_starts_no_worker(folder: Path) -> None:
    node = Rig(folder.parent, holds=str(folder))
    probed = node.run("good", held=lambda: "held")
    assert (probed.outcome, probed.why, probed.seconds) == ("preempted", "held", 0.0)
    assert not node.pid_file.exists()


def test_no_worker_starts_while_somebody_who_made_a_hold_waits(folder: Path) -> None:
    node = Rig(folder.parent, holds=str(folder))
    with (folder / LOCK).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        probed = node.run("good")
        assert (probed.outcome, "at this moment" in probed.why) == ("preempted", True)
        # The engine gloo touches no GPU, and nobody waits for it.
        assert "at this moment" not in node.run("good", gpus=()).why
        with pytest.raises(HoldStarting), HoldFolder(str(folder)).probing():
            pass
    assert node.run("good").outcome == "ok"


def test_a_worker_whose_prober_was_killed_is_waited_for(folder: Path) -> None:
    """The worker of this test does not hear of it: the lock is its own as well."""
    pid_file = folder.parent / "pid"
    command = [sys.executable, "-m", "tests.node.probe.rig", "stubborn", str(pid_file)]
    with subprocess.Popen(command, cwd=ROOT) as prober:
        until("no worker", lambda: pid_file.read_text("utf-8").strip().isdigit(), 60.0)
        worker = int(pid_file.read_text("utf-8"))
        prober.kill()
    holds = HoldFolder(str(folder))
    assert not holds.quiet(0.1)
    os.kill(worker, signal.SIGKILL)
    assert holds.quiet(HANGS)


def test_who_waits_for_a_worker_that_does_not_die_waits_no_longer_than_it_said(folder: Path) -> None:
    with HoldFolder(str(folder)).probing():
        began = time.monotonic()
        assert not HoldFolder(str(folder)).quiet(0.2)
        assert 0.2 <= time.monotonic() - began < HANGS
    assert HoldFolder(str(folder)).quiet(0.2)


def test_a_hold_of_a_job_that_slurm_lists_is_refused_for_the_job(holds: HoldFolder) -> None:
    """Whatever comes first, no probe runs."""
    node = Idle(2)
    node.jobs.told = [SlurmJob("7", "RUNNING", (0, 1))]
    holds.make(JOB, 100.0, None)
    node.probes.held = holds.active()
    assert refused(node) is SkipReason.ALLOCATED
