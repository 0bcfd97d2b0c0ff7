"""Folders of probes: where they lie, and which of those that are there a start removes."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.disks import OTHER, needs_root
from wirewatch.probe import workfolder as module
from wirewatch.probe.workfolder import remove_left_folders, work_folder

HOLD = """
import time
from wirewatch.probe.workfolder import work_folder
with work_folder() as folder:
    (folder / "nccl.log").write_text("INFO")
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The runtime folder; the folder of temporary files is another one."""
    (tmp_path / "run").mkdir(0o755)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(module, "SYSTEM", str(tmp_path / "none"))
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path / "run"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    return tmp_path / "run"


def test_what_a_killed_process_left_is_removed_and_what_a_running_one_has_is_not(place: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        assert folder.parent == place
        remove_left_folders()
        assert (folder / "nccl.log").exists()
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert folder.exists()
    remove_left_folders()
    assert list(place.iterdir()) == []


def test_a_folder_lasts_as_long_as_its_probe(place: Path) -> None:
    with work_folder() as folder:
        assert folder.parent == place
        assert folder.stat().st_mode & 0o777 == 0o700
        remove_left_folders()
        assert folder.exists()
    assert list(place.iterdir()) == []


def test_what_0_1_left_among_temporary_files_is_removed_too(place: Path) -> None:
    left = place.parent / "tmp" / "wirewatch-probe-k3vw2q1x"
    left.mkdir()
    (left / "nccl.log").touch()
    (left.parent / "wirewatch-probes").mkdir()
    remove_left_folders()
    assert [one.name for one in left.parent.iterdir()] == ["wirewatch-probes"]


@pytest.mark.parametrize(
    "plant", [Path.touch, os.mkfifo, lambda path: path.symlink_to(path.parents[1] / "kept")]
)
def test_what_is_no_folder_is_left_alone(place: Path, plant: Callable[[Path], object]) -> None:
    kept = place.parent / "kept"
    kept.mkdir()
    (kept / "file").touch()
    plant(place / "wirewatch-probe-x")
    remove_left_folders()
    assert os.path.lexists(place / "wirewatch-probe-x")
    assert (kept / "file").exists()


def test_a_link_in_a_left_folder_is_removed_and_not_what_it_shows(place: Path) -> None:
    kept = place.parent / "kept"
    kept.mkdir()
    (kept / "file").touch()
    (place / "wirewatch-probe-x").mkdir()
    (place / "wirewatch-probe-x" / "link").symlink_to(kept)
    remove_left_folders()
    assert list(place.iterdir()) == []
    assert (kept / "file").exists()


@needs_root
def test_a_folder_of_another_user_is_left_alone(place: Path) -> None:
    (place / "wirewatch-probe-x").mkdir()
    os.chown(place / "wirewatch-probe-x", OTHER, OTHER)
    remove_left_folders()
    assert [one.name for one in place.iterdir()] == ["wirewatch-probe-x"]


@pytest.mark.parametrize(
    "change",
    [
        lambda run: run.chmod(0o775),
        lambda run: run.chmod(0o757),
        lambda run: run.rmdir(),
        pytest.param(lambda run: os.chown(run, OTHER, OTHER), marks=needs_root),
    ],
    ids=["its group may write", "all may write", "not there", "another user's"],
)
def test_a_runtime_folder_that_is_not_ours_alone_is_not_used(
    place: Path, change: Callable[[Path], object]
) -> None:
    """Whoever may write there could put a link where root is about to write."""
    change(place)
    with work_folder() as folder:
        assert folder.parent == place.parent / "tmp"


def test_the_users_runtime_folder_where_there_is_no_service_manager(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RUNTIME_DIRECTORY")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
    with work_folder() as folder:
        assert folder.parent == place


def test_without_any_place_there_is_no_folder_and_nothing_to_remove(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.rmdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place / "none"))
    remove_left_folders()
    with pytest.raises(FileNotFoundError), work_folder():
        pass


def test_no_start_takes_the_folder_of_a_probe_that_begins(place: Path) -> None:
    def probe(_: int) -> None:
        with work_folder() as folder:
            (folder / "nccl.log").touch()
            assert (folder / "nccl.log").exists()

    def start(_: int) -> None:
        remove_left_folders()

    with ThreadPoolExecutor(6) as pool:
        done = [pool.submit(what, number) for number in range(150) for what in (probe, start)]
    assert [one.result() for one in done] == [None] * 300
    assert list(place.iterdir()) == []
