"""The folder of rings: whether jobs can write there, and only what they should."""

import os
from pathlib import Path

import pytest

from wirewatch.jobs.tap.tapfile import filesystem, folder_remarks


def mounts(folder: Path, kind: str, begins: str = "/", at: str = "") -> Path:
    device, place = folder.stat().st_dev, f"{begins} {at or folder}"
    file = folder.parent / "mountinfo"
    line = f"36 35 {os.major(device)}:{os.minor(device)} {place} rw,nosuid shared:1 - {kind} tmpfs rw"
    file.write_text(f"35 1 0:9999 / / rw - ext4 /dev/sda rw\n\nodd\n{line}\n")
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rings").mkdir()
    return tmp_path / "rings"


@pytest.mark.parametrize(
    ("mode", "part"),
    [
        (0o3773, ""),
        (0o755, "cannot write"),
        (0o2773, "not sticky"),
        (0o1773, "set-group-ID"),
        (0o1777, "set-group-ID"),
    ],
)
def test_its_mode_lets_all_write_and_none_remove(folder: Path, mode: int, part: str) -> None:
    folder.chmod(mode)
    found = folder_remarks(folder, mounts(folder, "tmpfs"))
    assert len(found) == bool(part)
    assert part in "".join(found)


@pytest.mark.parametrize("kind", ["pods", "slurm", "containers"])
def test_a_folder_that_is_closed_to_others_is_right_where_jobs_have_their_own(
    folder: Path, kind: str
) -> None:
    folder.chmod(0o750)
    assert "cannot write" in "".join(folder_remarks(folder, mounts(folder, "tmpfs")))
    (folder / kind).mkdir()
    assert folder_remarks(folder, mounts(folder, "tmpfs")) == ()


@pytest.mark.parametrize(
    ("begins", "at", "own"), [("/", "", True), ("/wirewatch-jobs", "", False), ("/", "/run", False)]
)
def test_a_folder_without_a_mount_of_its_own_is_said(
    folder: Path, begins: str, at: str, *, own: bool
) -> None:
    folder.chmod(0o3773)
    found = folder_remarks(folder, mounts(folder, "tmpfs", begins, at))
    assert ("no mount of its own" in "".join(found)) is not own


def test_a_disk_is_no_place_for_it(folder: Path) -> None:
    folder.chmod(0o3773)
    assert "on ext4" in "".join(folder_remarks(folder, mounts(folder, "ext4")))
    assert folder_remarks(folder, folder / "none") == ()


def test_a_disk_that_is_not_listed_is_not_judged(folder: Path) -> None:
    folder.chmod(0o3773)
    listed = mounts(folder, "ext4")
    assert filesystem(0, listed) == ""
    listed.write_text("36 35 0:9999 / /run rw - ext4 /dev/sda rw\n")
    assert folder_remarks(folder, listed) == ()


def test_none_is_said_with_what_makes_it(folder: Path) -> None:
    (one,) = folder_remarks(folder / "none")
    assert one.startswith("not there")


def test_the_file_system_of_this_machine_is_found() -> None:
    assert filesystem(Path("/proc").stat().st_dev, Path("/proc/self/mountinfo")) == "proc"
