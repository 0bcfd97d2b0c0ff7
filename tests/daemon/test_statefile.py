"""Files of the state folder as they reach the disk: what is lost with the power, and what is not."""

import os
from pathlib import Path

import pytest

from wirewatch.daemon.persistence import write


def test_content_is_on_the_disk_before_it_has_its_name_and_then_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, synced, sync = tmp_path / "latches.json", [], os.fsync

    def watched(handle: int) -> None:
        name = Path(f"/proc/self/fd/{handle}").readlink()
        synced.append((str(name), name.read_text() if name.is_file() else "", path.read_text()))
        sync(handle)

    path.write_text("old")
    monkeypatch.setattr(os, "fsync", watched)
    assert write(path, b"new") == ""
    assert synced == [(f"{path}.new", "new", "old"), (str(tmp_path), "", "new")]


def test_a_file_that_cannot_be_written_whole_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "latches.json"
    path.write_text("old")
    path.with_name("latches.json.new").mkdir()
    assert write(path, b"new").startswith(f"{path}: ")
    assert path.read_text() == "old"
