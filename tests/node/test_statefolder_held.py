"""The state folder while an agent holds it: removed, replaced, full, read-only, and another's."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from stat import S_IMODE

import pytest

from tests.disks import OTHER, fill, make_room, needs_root, open_folder, small_disk
from wirewatch.daemon.persistence import write
from wirewatch.statefolder import (
    HeldFolder,
    LockHolder,
    StateError,
    StateFolder,
    StateInUse,
    acquire,
    as_owner,
    lock_agent,
    open_state,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "state"
    place.mkdir(mode=0o710)
    return place


@pytest.fixture
def held(folder: Path) -> Iterator[HeldFolder]:
    with HeldFolder(open_state(folder)) as one:
        yield one


def test_a_folder_that_is_as_it_was_is_no_new_one(folder: Path, held: HeldFolder) -> None:
    before = sorted(folder.iterdir())
    assert (held.check(), held.wrong) == (False, "")
    assert sorted(folder.iterdir()) == before


def test_a_folder_that_is_gone_is_made_again_as_it_was_and_locked(folder: Path, held: HeldFolder) -> None:
    shutil.rmtree(folder)
    assert write(folder / "latches.json", b"1") == f"{folder}/latches.json: No such file or directory"
    assert held.wrong == f"{folder}/latches.json: No such file or directory"
    assert held.check()
    assert held.wrong == f"{folder}/latches.json: No such file or directory"
    assert write(folder / "latches.json", b"1") == ""
    assert held.wrong == ""
    assert S_IMODE(folder.stat().st_mode) == 0o710
    with pytest.raises(StateInUse):
        lock_agent(StateFolder(folder))
    assert (held.check(), held.wrong) == (False, "")


def test_after_its_end_nothing_is_held(folder: Path) -> None:
    with HeldFolder(open_state(folder)) as held:
        shutil.rmtree(folder)
        assert held.check()
    lock_agent(StateFolder(folder)).release()
    shutil.rmtree(folder)
    folder.mkdir()
    assert write(folder / "latches.json", b"1") == ""


def _file(folder: Path) -> None:
    folder.write_text("x", "utf-8")


def _link(folder: Path) -> None:
    (folder.parent / "elsewhere").mkdir()
    folder.symlink_to(folder.parent / "elsewhere")


def _another_agents(folder: Path) -> None:
    folder.mkdir()
    (folder / "machine.json").write_text("{}", "utf-8")


def _parent_is_a_file(folder: Path) -> None:
    folder.parent.rename(folder.parent.with_name("away"))
    folder.parent.write_text("x", "utf-8")


@pytest.mark.parametrize(
    ("replace", "said"),
    [
        (_file, "not a folder"),
        (_link, "it is a link now"),
        (_another_agents, "another folder has taken its place, with files of an agent"),
        (_parent_is_a_file, "Not a directory"),
    ],
    ids=["a file", "a link", "a folder of another agent", "a file above it"],
)
def test_what_has_taken_the_place_of_the_folder_is_not_written(
    folder: Path, held: HeldFolder, replace: Callable[[Path], None], said: str
) -> None:
    folder.rename(folder.with_name("away"))
    replace(folder)
    listed = sorted(folder.iterdir()) if folder.is_dir() else []
    assert not held.check()
    assert said in held.wrong
    assert write(folder / "latches.json", b"1") != ""
    assert (sorted(folder.iterdir()) if folder.is_dir() else []) == listed


def test_an_empty_folder_of_the_same_user_is_gone_on_with(folder: Path, held: HeldFolder) -> None:
    folder.rename(folder.with_name("away"))
    folder.mkdir()
    assert "another folder has taken its place" in write(folder / "latches.json", b"1")
    assert held.check()
    assert write(folder / "latches.json", b"1") == ""
    assert held.wrong == ""
    # Its lock is the new folder's: the old one is free.
    lock_agent(StateFolder(folder.with_name("away"))).release()


def test_a_folder_that_another_agent_has_locked_meanwhile_is_left_to_it(
    folder: Path, held: HeldFolder
) -> None:
    folder.rename(folder.with_name("away"))
    folder.mkdir()
    # An open file of its own, as another process has it.
    with pytest.raises(PermissionError), as_owner(folder):
        pytest.fail("it was let in")
    other = folder.parent / "same"
    other.symlink_to(folder)
    lock = acquire(other / "agent.lock", "another", 0o600)
    assert not isinstance(lock, LockHolder)
    with lock:
        assert not held.check()
        assert held.wrong.startswith(f"another agent keeps its state in {folder}: pid ")
        assert write(folder / "latches.json", b"1") != ""
    assert (held.check(), held.wrong) == (True, f"{folder}/latches.json: another folder has taken its place")


def test_the_folder_that_comes_back_is_the_same(folder: Path, held: HeldFolder) -> None:
    folder.rename(folder.with_name("away"))
    _file(folder)
    assert not held.check()
    folder.unlink()
    folder.with_name("away").rename(folder)
    assert (held.check(), held.wrong) == (False, "")


@needs_root
def test_a_folder_of_another_user_is_never_written_and_one_of_its_owner_is_made_again_for_it() -> None:
    with open_folder() as place:
        folder = place / "state"
        folder.mkdir(mode=0o700)
        os.chown(folder, OTHER, OTHER)
        with HeldFolder(open_state(folder)) as held:
            folder.rename(place / "away")
            folder.mkdir(mode=0o777)
            assert not held.check()
            assert held.wrong == f"cannot keep state in {folder}: it is another user's now"
            assert write(folder / "latches.json", b"1") != ""
            assert list(folder.iterdir()) == []
            folder.rmdir()
            assert (held.check(), S_IMODE(folder.stat().st_mode), folder.stat().st_uid) == (
                True,
                0o700,
                OTHER,
            )
            assert write(folder / "latches.json", b"1") == ""
            assert (folder / "latches.json").stat().st_uid == OTHER


def test_a_full_disk_is_said_until_it_has_room() -> None:
    with small_disk() as disk, HeldFolder(open_state(disk)) as held:
        fill(disk)
        assert not held.check()
        assert "No space left on device" in held.wrong
        make_room(disk)
        assert (held.check(), held.wrong) == (False, "")


def test_one_trouble_of_several_files_is_said_once(held: HeldFolder) -> None:
    held.note("a", "full")
    held.note("b", "full")
    held.note("c", "gone")
    assert held.wrong == "full; gone"
    held.note("a", "")
    held.note("b", "")
    assert held.wrong == "gone"


def test_a_folder_that_is_not_there_cannot_be_held(tmp_path: Path) -> None:
    with pytest.raises(StateError):
        HeldFolder(StateFolder(tmp_path / "none"))
