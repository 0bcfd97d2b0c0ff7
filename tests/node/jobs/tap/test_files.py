"""The ring's file: how it is made, who holds it, what happens where it cannot be made, and how it goes."""

import fcntl
import os
import signal
from pathlib import Path

import pytest

from tests.disks import needs_root, small_disk
from tests.node.jobs.tap.playing import BASE, MS, Player, channel, collective, memory_folder
from tests.node.jobs.tap.ringbytes import FINALIZED, LIVE, RING_BYTES, parse
from wirewatch.core.jobs import RingsReading, RingState
from wirewatch.jobs.tap.rings import FileRings


def refused(player: Player, why: str) -> None:
    """Init says yes, watches nothing, leaves no file, and says why in one line for the whole process."""
    for _ in range(2):
        assert player.do("init 5 0 1 1 2 0 -") == "0 (nil) 0"
    count, _, said = player.do("log").partition(" ")
    assert count == "1"
    assert "not watching" in said
    assert why in said
    player.all(collective() + "\n" + channel(0, 1, 2) + "finalize 5 0")
    assert player.rings() == []


def locked(path: Path) -> bool:
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def test_a_file_for_each_communicator_with_a_name_that_cannot_be_guessed(folder: Path) -> None:
    with Player(folder) as player:
        for context in range(8):
            player.do(f"init 5 {context} {context} 1 2 0 -")
        rings = player.rings()
        for ring in rings:
            assert len(ring.stem) == 16
            assert not set(ring.stem) - set("0123456789abcdef")
            status = ring.stat()
            assert (status.st_mode & 0o7777, status.st_size, status.st_nlink) == (0o640, RING_BYTES, 1)
            assert status.st_blocks * 512 >= RING_BYTES  # all of it is there: writing cannot fail later
            assert locked(ring)
        assert len({ring.name for ring in rings}) == 8
        open_files = {str(link.readlink()) for link in Path(f"/proc/{player.pid}/fd").iterdir()}
        assert not any(str(folder) in name for name in open_files)
    assert not any(locked(ring) for ring in rings)


def test_no_page_of_the_ring_is_fetched_later(folder: Path) -> None:
    """All of it is mapped at init: an event meets no page fault, let alone one that fails."""
    with Player(folder) as player:
        player.do("init 5 0 1 1 2 0 -")
        lines = iter(Path(f"/proc/{player.pid}/smaps").read_text().splitlines())
        assert any(line.endswith(".ring") for line in lines)
        resident = next(line for line in lines if line.startswith("Rss:"))
        assert int(resident.split()[1]) * 1024 == RING_BYTES


def test_the_agent_reads_what_the_tap_writes(folder: Path) -> None:
    """Until after finalize: the name is gone, what was written last is not."""
    rings = FileRings(folder)
    with Player(folder) as player:
        player.do("init 5 0 0xabc 1 4 2 world")
        player.do("call 5 0 1 0")
        player.do(collective(number=9, of="ReduceScatter 1000 0 ncclBfloat16"))
        player.all(channel(0, 10_000, 15_000) + channel(1, 10_100, 15_200))
        reading = rings.poll({})
        assert isinstance(reading, RingsReading)
        assert not reading.refused
        (one,) = reading.rings
        assert (one.ring.state, one.ring.communicator, one.ring.rank) == (RingState.LIVE, 0xABC, 2)
        (call,) = one.calls
        assert (call.sequence, call.size_bytes) == (9, 1000 * 2 * 4)
        assert one.ring.host_pid == player.pid
        player.do(collective(number=10, of="ReduceScatter 1000 0 ncclBfloat16"))
        player.all(channel(0, 20_000, 25_000) + channel(1, 20_100, 25_200))
        player.do("finalize 5 0")
        assert player.rings() == []
        reading = rings.poll({one.ring.name: one.last})
        assert isinstance(reading, RingsReading)
        (one,) = reading.rings
        assert one.ring.state is RingState.FINALIZED
        assert [c.sequence for c in one.calls] == [10]
    rings.close()


def test_finalize_marks_the_file_and_removes_it(folder: Path) -> None:
    with Player(folder) as player:
        player.do("init 5 0 1 1 2 0 -")
        player.do("setenv WIREWATCH_TAP_DIR /elsewhere")
        (path,) = player.rings()
        with path.open("rb") as file:
            assert parse(file.read()).state == LIVE
            player.do(f"clock {6_000 * MS}")
            player.do("call 5 0 1 0")
            file.seek(0)
            assert parse(file.read()).timing == 1
            player.do("finalize 5 0")
            file.seek(0)
            ring = parse(file.read())
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert (ring.state, ring.timing, ring.event) == (FINALIZED, 0, 6_000 * MS)
        assert player.rings() == []


def test_a_thousand_communicators_one_after_the_other_leave_nothing(folder: Path) -> None:
    with Player(folder) as player:
        events = f"{collective()}\n{channel(0, 1, 2)}{channel(1, 1, 2)}"
        cycle = f"init 5 0 1 1 2 0 -\ncall 5 0 1 0\n{events}finalize 5 0"
        player.all(cycle)
        before = Path(f"/proc/{player.pid}/maps").read_text().count("\n")
        for _ in range(50):
            player.all("\n".join([cycle] * 20))
        assert player.rings() == []
        assert Path(f"/proc/{player.pid}/maps").read_text().count("\n") <= before + 4
        assert len(list(Path(f"/proc/{player.pid}/fd").iterdir())) <= 5


def test_sixty_four_communicators_and_the_rest_unwatched(folder: Path) -> None:
    with Player(folder) as player:
        answers = [player.do(f"init 5 {context} 1 1 2 0 -") for context in range(70)]
        assert [a.split()[1] != "(nil)" for a in answers] == [True] * 64 + [False] * 6
        assert len(player.rings()) == 64
        assert player.do(collective(context=66, parent=0)).split() == ["0", "(nil)"]
        player.do("finalize 5 66")
        player.do("finalize 5 10")
        assert player.do("init 5 66 1 1 2 0 -").split()[1] != "(nil)"


def test_no_directory() -> None:
    with Player("/nonexistent/tap") as player:
        refused(player, "its directory cannot be opened (errno 2)")


def test_the_directory_of_a_node_unless_another_is_set() -> None:
    with Player("") as player:
        answer = player.do("init 5 0 1 1 2 0 -")
        assert answer.startswith("0 ")
        player.do("setenv WIREWATCH_TAP_DIR")
        assert player.do("init 5 1 1 1 2 0 -").startswith("0 ")
        if not Path("/run/wirewatch-jobs").exists():
            refused(player, "its directory cannot be opened (errno 2)")


def test_a_link_to_a_directory(folder: Path) -> None:
    (folder / "real").mkdir()
    (folder / "link").symlink_to(folder / "real")
    with Player(folder / "link") as player:
        refused(player, "its directory cannot be opened (errno 20)")
    assert list((folder / "real").iterdir()) == []


def test_a_path_too_long(folder: Path) -> None:
    longest = str(folder).ljust(255, "/")
    with Player(folder, WIREWATCH_TAP_DIR=f"{longest}/") as player:
        refused(player, "the path of its directory is too long")
        player.do(f"setenv WIREWATCH_TAP_DIR {longest}")
        assert player.do("init 5 0 1 1 2 0 -").endswith(f" {BASE}")
        player.do("finalize 5 0")
        assert player.rings() == []


def test_a_directory_on_a_disk_would_delay_the_job(tmp_path: Path) -> None:
    """Where the tests' own folder is on a disk."""
    kinds = {line.split()[1]: line.split()[2] for line in Path("/proc/mounts").read_text().splitlines()}
    mount = max((m for m in kinds if tmp_path.is_relative_to(m)), key=len)
    if kinds[mount] in {"tmpfs", "ramfs"}:
        pytest.skip("temporary files are in memory here")
    with Player(tmp_path) as player:
        refused(player, "not on tmpfs")
    assert list(tmp_path.iterdir()) == []


@needs_root
def test_a_directory_that_the_job_may_not_write(folder: Path) -> None:
    folder.chmod(0o700)
    with Player(folder) as player:
        player.do("user 65534")
        refused(player, "(errno 13)")


@needs_root
def test_one_that_it_may_write_and_not_list(folder: Path) -> None:
    """As tmpfiles.d makes it: sticky, and its group is that of the files."""
    folder.chmod(0o3733)
    os.chown(folder, 0, 1234)
    with Player(folder) as player:
        player.do("user 65534")
        assert player.do("init 5 0 1 1 2 0 -").split()[1] != "(nil)"
        (ring,) = player.rings()
        status = ring.stat()
        assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (65534, 1234, 0o640)
        player.do("finalize 5 0")
        assert player.rings() == []


def test_a_full_disk_is_no_signal() -> None:
    with small_disk("64k") as disk, Player(disk) as player:
        refused(player, "no space for the ring (errno 28)")


def test_a_limit_of_file_sizes_is_no_signal(folder: Path) -> None:
    with Player(folder) as player:
        player.do(f"limit {RING_BYTES - 1}")
        refused(player, "the limit of a file's size")
    with Player(folder) as player:
        player.do(f"limit {RING_BYTES}")
        assert player.do("init 5 0 1 1 2 0 -").endswith(f" {BASE}")


def test_room_comes_back(folder: Path) -> None:
    """What failed for one communicator is tried again for the next, however many failed."""
    with Player(folder / "later") as player:
        for _ in range(70):
            assert player.do("init 5 0 1 1 2 0 -") == "0 (nil) 0"
        (folder / "later").mkdir()
        assert player.do("init 5 0 1 1 2 0 -").endswith(f" {BASE}")


def test_a_killed_writer_leaves_what_it_wrote(folder: Path) -> None:
    player = Player(folder)
    player.all("init 5 0 1 1 2 0 -\ncall 5 0 1 0\n" + collective(channels=1) + "\n" + channel(0, 5, 9))
    player.do(collective(number=2, channels=2))
    player.do("channel 5 0 10 2 0 5")
    assert locked(player.rings()[0])
    player.kill()
    assert not locked(player.rings()[0])
    ring = player.ring()
    assert (ring.state, ring.written, len(ring.records), ring.enqueued) == (LIVE, 1, 1, 2)
    reading = FileRings(folder).poll({})
    assert isinstance(reading, RingsReading)
    assert [r.ring.state for r in reading.rings] == [RingState.DEAD]


def test_a_job_that_closes_all_descriptors_is_alive(folder: Path) -> None:
    with Player(folder) as player:
        player.do("init 5 0 1 1 2 0 -")
        player.do("closefiles")
        assert locked(player.rings()[0])
        player.do("finalize 5 0")
        assert player.rings() == []


@pytest.mark.parametrize("name", [None, "renamed"])
def test_another_user_removes_or_renames_the_file(folder: Path, name: str | None) -> None:
    with Player(folder) as player:
        player.do("init 5 0 1 1 2 0 -")
        (path,) = player.rings()
        path.unlink() if name is None else path.rename(folder / name)
        player.all("call 5 0 1 0\n" + collective(channels=1) + "\n" + channel(0, 5, 9) + "finalize 5 0")
        assert [one.name for one in folder.iterdir()] == ([] if name is None else [name])
        player.do("init 5 1 1 1 2 0 -")
        assert len(player.rings()) == 1


@pytest.mark.parametrize("raw", ["", " raw"])
def test_a_forked_child_writes_nothing_and_holds_nothing(folder: Path, raw: str) -> None:
    """By fork, which handlers hear of, and by a bare clone."""
    player = Player(folder, "PLAIN" if raw else "ADDRESS")
    player.all("init 5 0 1 1 2 0 -\ncall 5 0 1 0\n" + collective() + "\nchannel 5 0 10 2 0 1000")
    before = player.ring()
    player.send("child" + raw)
    assert player.answer() == "child"
    player.all(collective(number=5) + "\n" + channel(0, 5, 9) + channel(1, 5, 9) + "finalize 5 0")
    assert player.ring() == before
    answer = player.do("init 5 1 77 1 2 0 child")
    assert answer.split()[1] not in {"(nil)", "0x2000001"}
    assert [r.communicator for r in (player.ring(0), player.ring(1))] == [1, 77]
    player.do("finalize 5 1")
    os.kill(player.pid, signal.SIGKILL)  # the parent alone
    (path,) = player.rings()
    assert fcntl_free(path)
    player.send("end")
    player.kill()


def fcntl_free(path: Path) -> bool:
    """Whether the lock is free, within a second: the kernel ends a process after kill has returned."""
    with path.open("rb") as file:
        signal.setitimer(signal.ITIMER_REAL, 5)
        previous = signal.signal(signal.SIGALRM, _late)
        try:
            fcntl.flock(file, fcntl.LOCK_SH)
        except TimeoutError:
            return False
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)
        return True


def _late(_signal: int, _frame: object) -> None:
    raise TimeoutError


def test_a_child_maps_nothing_over_what_it_has_put_in_a_rings_place(folder: Path) -> None:
    with Player(folder) as player:
        player.do("init 5 0 1 1 2 0 -")
        player.send("child")
        assert player.answer() == "child"
        assert player.do("occupy") == "0"
        player.all("init 5 0 1 1 2 0 -\ncall 5 0 1 0\n" + collective(channels=1) + "\n" + channel(0, 5, 9))
        assert player.do("occupied") == "0"
        player.do("finalize 5 0")
        assert player.do("occupied") == "0"
        player.send("end")
        assert player.answer() == "0"


def test_the_parent_goes_on_after_a_fork(folder: Path) -> None:
    with Player(folder) as player:
        player.all("init 5 0 1 1 2 0 -\ncall 5 0 1 0\n" + collective())
        player.do("channel 5 0 10 2 0 1000")
        player.send("child")
        assert player.answer() == "child"
        player.send("end")
        assert player.answer() == "0"
        player.all("record 5 10 22 2000\nstop 5 10\n" + channel(1, 1100, 1900))
        assert player.ring().written == 1


def test_two_processes_have_rings_of_their_own() -> None:
    with memory_folder() as folder, Player(folder) as first, Player(folder) as second:
        first.do("init 5 0 9 1 2 0 -")
        second.do("init 5 0 9 1 2 1 -")
        assert sorted((first.ring(i).rank, first.ring(i).pid) for i in (0, 1)) == [
            (0, first.pid),
            (1, second.pid),
        ]
