"""`wirewatch serve` and its state folder: one agent a folder, and a daemon also where it cannot be used."""

import shutil
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from stat import S_IMODE

import pytest

from tests.disks import fill, make_room, remount, small_disk
from tests.node.daemon.process import FAST, Daemon
from tests.node.hw.children import until
from tests.node.hw.recordings import one_change
from tests.processes import run_wirewatch
from wirewatch.cli import serve as command
from wirewatch.config import Config, StateSection
from wirewatch.core.types import Health, Subject
from wirewatch.daemon.persistence import save_ledger
from wirewatch.statefolder import StateInUse
from wirewatch.verdict.ledger import Entry, Ledger, Stage

CONFIG = 78
FAULT = Entry(
    "nvlink.link_down", Subject("2", "GPU-2", "7"), "nvlink", Health.FAILED, Stage.PROBATION, "inactive",
    "drain", 1.0, 2.0,
)  # fmt: skip
NODE = "h200x4-idle"
opened = vars(command)["_state"]


def link_down(folder: Path) -> str:
    """An overlay in which link 7 of GPU 2 is down from the start; the bundled one waits for 20 s."""
    return one_change(folder, "set = 0", "gpu2/Field(165,7)")


def test_a_second_agent_does_not_begin_on_the_same_folder_until_the_first_has_ended(tmp_path: Path) -> None:
    config = Config(state=StateSection(directory=str(tmp_path)))
    with ExitStack() as first:
        assert opened(config, None, first).state is not None
        with ExitStack() as second, pytest.raises(StateInUse, match="another agent keeps its state in"):
            opened(config, None, second)
    with ExitStack() as third:
        assert opened(config, None, third).state is not None


def test_a_recording_has_no_state_unless_it_is_given_a_folder(tmp_path: Path) -> None:
    with ExitStack() as stack:
        assert opened(Config(), NODE, stack).state is None
        assert opened(Config(state=StateSection(directory=str(tmp_path))), NODE, stack).state is not None


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (Path.touch, "not a folder"),
        (lambda folder: (folder / "agent.lock").mkdir(parents=True), "cannot lock"),
        (lambda folder: folder.symlink_to("/proc/nowhere"), "cannot keep state in"),
    ],
    ids=["a file", "a folder for a lock", "nowhere"],
)
def test_a_configured_folder_that_cannot_be_used_is_a_daemon_without_memory(
    tmp_path: Path, plant: Callable[[Path], object], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "state"
    plant(folder)
    with ExitStack() as stack:
        keeping = opened(Config(state=StateSection(directory=str(folder))), None, stack)
    (line,) = caplog.messages
    assert (keeping.state, keeping.held, keeping.unwritten()) == (None, None, line)
    assert said in line
    assert line.endswith(": nothing is remembered over a restart")


def test_a_daemon_serves_and_remembers_whatever_its_disk_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Full, then read-only: what was remembered counts; a second daemon is refused in one line."""
    left = tmp_path / "run" / "wirewatch-probe-k3vw2q1x"
    left.mkdir(parents=True)
    left.parent.chmod(0o755)
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(left.parent))
    with small_disk() as disk:
        assert save_ledger(disk / "latches.json", Ledger("b").with_entry(FAULT), 1.0) == ""
        config = f'{FAST}[state]\ndirectory = "{disk}"\n'
        fill(disk)
        with Daemon(("--replay", NODE, "--overlay", link_down(tmp_path)), tmp_path, config) as running:
            running.wait("/health", "nvlink.link_down")
            assert not left.exists()
            until(lambda: "latches.json: No space left on device" in running.log)
            running.wait("/health", "agent.unwritten")
            second = run_wirewatch("serve", "--replay", NODE, "--config", str(tmp_path / "wirewatch.toml"))
            assert second.returncode == CONFIG
            (line,) = second.stderr.splitlines()
            assert line.startswith(f"wirewatch: another agent keeps its state in {disk}: pid ")
            make_room(disk)
            until(lambda: "latches.json is written again" in running.log)
            until(lambda: "agent.unwritten" not in running.get("/health").text)
            assert running.terminate()[0] == 0
            assert running.log.count("latches.json: No space left on device: what is remembered") == 1
        remount(disk, "ro")
        with Daemon(("--replay", NODE), tmp_path, config) as running:
            running.wait("/health", "nvlink.link_down")
            assert running.get("/metrics").status == 200
            assert running.log.count("Read-only file system: what it holds is read") == 1
            assert running.terminate()[0] == 0
            assert "Traceback" not in running.log


def removed(folder: Path) -> None:
    """Remove a folder into which a daemon writes meanwhile, until this very folder is gone."""
    first = folder.stat().st_ino
    with suppress(FileNotFoundError):
        while folder.stat().st_ino == first:
            shutil.rmtree(folder, ignore_errors=True)


def test_a_folder_that_is_removed_under_a_daemon_is_made_again_and_one_that_is_replaced_is_said(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o750)
    config = f'{FAST}[state]\ndirectory = "{folder}"\n'
    with Daemon(("--replay", NODE, "--overlay", link_down(tmp_path)), tmp_path, config) as running:
        running.wait("/health", "nvlink.link_down")
        until((folder / "latches.json").is_file)
        removed(folder)
        until((folder / "latches.json").is_file)
        assert S_IMODE(folder.stat().st_mode) == 0o750
        until((folder / "machine.json").is_file)
        second = run_wirewatch("serve", "--replay", NODE, "--config", str(tmp_path / "wirewatch.toml"))
        assert second.returncode == CONFIG
        folder.rename(tmp_path / "moved")
        folder.write_text("a file", "utf-8")
        running.wait("/health", "agent.unwritten")
        running.wait("/api/v1/findings", "not a folder")
        folder.unlink()
        (tmp_path / "moved").rename(folder)
        until(lambda: "agent.unwritten" not in running.get("/health").text)
        assert running.terminate()[0] == 0


def test_a_brake_of_slurm_s_scripts_that_holds_is_a_metric_while_it_does(tmp_path: Path) -> None:
    brake = tmp_path / "brake"
    with Daemon(("--replay", NODE), tmp_path, f'{FAST}[slurm]\nbrake = "{brake}"\n') as running:
        running.wait("/metrics", "wirewatch_agent_cpu_seconds_total")
        assert "wirewatch_brake_active{" not in running.get("/metrics").text
        brake.write_text("rack\nnot fit for jobs, but in use\n", "ascii")
        running.wait("/metrics", 'wirewatch_brake_active{scope="rack"} 1')
        brake.unlink()
        until(lambda: "wirewatch_brake_active{" not in running.get("/metrics").text)
        assert running.terminate()[0] == 0
