"""Small disks that fill up or turn read-only, and folders of other users: real ones, made as root."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

OTHER = 65534
"""The id of a user and of a group without rights: nobody."""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")


@contextmanager
def small_disk(size: str = "64k", owner: int = 0, more: str = "") -> Iterator[Path]:
    """A file system of its own in memory; skips where none can be mounted."""
    with open_folder() as folder:
        mount = shutil.which("mount")
        options = f"size={size},mode=0755,uid={owner},gid={owner}{more}"
        if os.geteuid() or mount is None or _run(mount, "-t", "tmpfs", "-o", options, "disk", str(folder)):
            pytest.skip("only root can mount a disk, with a program for it")
        try:
            yield folder
        finally:
            _run("umount", "--lazy", str(folder))


@contextmanager
def open_folder(owner: int = 0) -> Iterator[Path]:
    """A folder that every user can reach, unlike those of pytest; of this user unless told otherwise."""
    with tempfile.TemporaryDirectory(prefix="shared-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        if owner:
            os.chown(folder, owner, owner)
        yield folder


def fill(disk: Path) -> None:
    """Leave no room on it."""
    with (disk / "filling").open("ab", buffering=0) as file:
        for size in (4096, 1):
            try:
                while file.write(b"\0" * size):
                    pass
            except OSError:
                continue


def make_room(disk: Path) -> None:
    """Take back what `fill` has taken."""
    (disk / "filling").unlink()


def remount(disk: Path, how: str) -> None:
    """Make it `ro`, read-only, or `rw`."""
    assert _run("mount", "-o", f"remount,{how}", str(disk)) == 0


def _run(*command: str) -> int:
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode
