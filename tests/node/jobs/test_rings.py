"""The rings of jobs: what is read of one, and what somebody else may put into the folder instead."""

import errno
import fcntl
import os
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.disks import OTHER, needs_root, open_folder
from tests.examples import examples
from tests.node.jobs.ringfiles import MILLISECOND, UUID, RingWriter, Written, later
from tests.patience import HANGS
from wirewatch.busbw.formulas import FACTORS
from wirewatch.core.jobs import RingReading, RingsReading, RingState
from wirewatch.core.types import Absent, Why
from wirewatch.jobs.tap import ringfile, rings
from wirewatch.jobs.tap.ringfile import HEADER_BYTES, RECORD_BYTES, RECORDS, RING_BYTES
from wirewatch.jobs.tap.rings import FileRings

CONTRACT = Path(__file__).parents[3] / "agent/tap/ring.h"


class Ticks:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "jobs"
    made.mkdir()
    made.chmod(0o3773)
    return made


@pytest.fixture
def ring(folder: Path) -> Iterator[RingWriter]:
    with RingWriter(folder / "one.ring") as writer:
        yield writer


def read(port: FileRings, **after: int) -> RingsReading:
    found = port.poll({f"{name}.ring": number for name, number in after.items()})
    assert isinstance(found, RingsReading)
    return found


def poll(folder: Path, **after: int) -> RingsReading:
    with closing(FileRings(folder)) as port:
        return read(port, **after)


def only(folder: Path, **after: int) -> RingReading:
    (one,) = poll(folder, **after).rings
    return one


def refusals(folder: Path) -> dict[str, str]:
    return {one.name: str(one.why) for one in poll(folder).refused}


def aged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is no ring count as one that will never be, without waiting for it."""
    monkeypatch.setattr(rings, "FRESH", 0.0)


def _fields(text: str, struct_name: str) -> list[tuple[str, int]]:
    """Type and number of each member of a struct in the header file."""
    body = re.search(rf"struct {struct_name} {{(.*?)\n}};", text, re.DOTALL)
    assert body
    plain = re.sub(r"/\*.*?\*/", "", body[1], flags=re.DOTALL)
    sizes = {name: int(value) for name, value in re.findall(r"#define (\w+) (\d+)u?\b", text)}
    found = []
    for kind, names in re.findall(r"(\w+) ([^;]+);", plain):
        for name in names.split(","):
            many = re.search(r"\[(\w+)\]", name)
            found.append((kind, sizes.get(many[1], 0) or int(many[1]) if many else 1))
    return found


def _codes(text: str, struct_name: str) -> str:
    letters = {"uint64_t": "Q", "int64_t": "q", "uint32_t": "I", "int32_t": "i", "uint8_t": "B"}
    made = ""
    for kind, many in _fields(text, struct_name):
        if kind == "char":
            made += f"{many}s"
        elif many == 28:
            made += "28x"
        else:
            made += letters[kind] * many
    return made


def _spelled(form: str) -> str:
    """A struct's format with `3Q` written as `QQQ`; what is text or padding keeps its number."""
    return re.sub(r"(\d+)([QqIiB])", lambda m: m[2] * int(m[1]), form.lstrip("="))


def test_the_layout_is_that_of_the_header_file() -> None:
    text = CONTRACT.read_text("utf-8")
    assert _codes(text, "ww_record") == _spelled(ringfile.RECORD_LAYOUT.format)
    assert _codes(text, "ww_header") == _spelled(ringfile.HEADER_LAYOUT.format)
    sizes = dict(re.findall(r"#define WW_RING_(\w+) (\w+)u\n", text))
    assert (sizes["HEADER"], sizes["RECORD"], sizes["RECORDS"], sizes["VERSION"]) == (
        str(HEADER_BYTES), str(RECORD_BYTES), str(RECORDS), str(ringfile.VERSION),
    )  # fmt: skip


def _enum(name: str) -> list[str]:
    body = re.search(rf"enum {name} {{(.*?)}};", CONTRACT.read_text("utf-8"), re.DOTALL)
    assert body
    return [word.split("=")[0].strip() for word in body[1].split(",") if word.strip()]


def test_the_numbers_are_those_of_the_header_file() -> None:
    functions = [name.removeprefix("WW_").lower() for name in _enum("ww_function")]
    as_named = {"function_unknown": "unknown", "all_to_all": "alltoall"}
    halves = {"recv", "send", "send_recv"}
    assert ["sendrecv" if f in halves else as_named.get(f, f) for f in functions] == list(ringfile.OPS)
    for enum, names in (
        ("ww_datatype", ringfile.TYPES), ("ww_algorithm", ringfile.ALGORITHMS),
        ("ww_protocol", ringfile.PROTOCOLS),
    ):  # fmt: skip
        assert [n.removeprefix("WW_").lower() for n in _enum(enum)][1:] == [n.lower() for n in names[1:]]
    assert set(ringfile.OPS) - {ringfile.UNKNOWN} == set(FACTORS)
    assert set(ringfile.ELEMENT_BYTES) == set(ringfile.TYPES) - {""}


def test_a_ring_says_whose_it_is(folder: Path, ring: RingWriter) -> None:
    ring.counter(3, 17)
    ring.by_function(0, 2, 40)
    ring.by_function(0, 5, 1)
    ring.by_function(0, 6, 3)
    ring.by_function(0, 11, 4)
    ring.by_function(1, 2, 40 << 20)
    ring.by_function(2, 4, 2)
    one = only(folder).ring
    assert (one.name, one.communicator, one.rank, one.ranks, one.nodes) == ("one.ring", 0xABCDEF, 0, 4, 1)
    assert (one.gpu, one.uid, one.nccl, one.interface, one.tap) == (UUID, os.geteuid(), "2.28.9", 5, "1")
    assert (one.on, one.period, one.comm_name, one.state) == (0.2, 2.0, "default_pg", RingState.LIVE)
    assert (one.budget, one.stride, one.share) == (50, 4, 0.025)
    assert one.counts.sends == 17
    assert one.counts.calls == {"all_reduce": 40, "gather": 1, "sendrecv": 7}
    assert one.counts.bytes == {"all_reduce": 40 << 20}
    assert one.counts.unsized == {"broadcast": 2}
    assert abs(one.created - time.time()) < 60


def test_a_ring_of_version_0_2_says_by_its_time_how_much_it_times(folder: Path, ring: RingWriter) -> None:
    """It has zeros where later ones have their budget, block and stride."""
    budget = ring.header().index(struct.pack("=3I", 50, 32, 4))
    os.pwrite(ring.handle, bytes(12), budget)
    one = only(folder).ring
    assert (one.budget, one.stride, one.share) == (0, 0, 0.1)


@needs_root
def test_a_process_of_another_user_is_not_that_of_a_ring(folder: Path, ring: RingWriter) -> None:
    """The kernel names who took a lock, whose child may hold it on; the number is another process' by now."""
    os.chown(ring.path, OTHER, OTHER)
    assert isinstance(only(folder).ring.host_pid, Absent)


def test_its_process_is_that_which_holds_the_lock(folder: Path, ring: RingWriter) -> None:
    ring.pid = 7
    os.pwrite(ring.handle, ring.header(), 0)
    one = only(folder).ring
    assert (one.pid, one.host_pid) == (7, os.getpid())


def test_a_ring_without_its_lock_is_dead_and_a_finalized_one_is_not(folder: Path) -> None:
    for name in ("killed", "over"):
        with RingWriter(folder / f"{name}.ring") as writer:
            writer.put(Written())
            if name == "over":
                writer.finalize()
    killed, over = poll(folder).rings
    assert (killed.ring.state, over.ring.state) == (RingState.DEAD, RingState.FINALIZED)
    assert isinstance(killed.ring.host_pid, Absent)
    assert killed.ring.host_pid.why is Why.LOST
    assert len(killed.calls) == len(over.calls) == 1


def test_looking_whether_it_lives_never_keeps_a_writer_from_its_lock(folder: Path, ring: RingWriter) -> None:
    fcntl.flock(ring.handle, fcntl.LOCK_UN)
    assert only(folder).ring.state is RingState.DEAD
    fcntl.flock(ring.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert only(folder).ring.state is RingState.LIVE


@pytest.mark.parametrize(
    ("function", "op", "size"),
    [
        (1, "all_gather", 16000), (2, "all_reduce", 4000), (3, "alltoall", 16000), (4, "broadcast", 4000),
        (5, "gather", 16000), (7, "reduce", 4000), (8, "reduce_scatter", 16000), (9, "scatter", 16000),
        (10, "sendrecv", 4000), (0, "unknown", None), (99, "unknown", None),
    ],
)  # fmt: skip
def test_a_message_has_the_size_that_nccl_tests_print(
    folder: Path, ring: RingWriter, function: int, op: str, size: int | None
) -> None:
    ring.put(Written(count=1000, function=function))
    (call,) = only(folder).calls
    assert (call.op, call.size_bytes) == (op, size)


def test_a_type_that_nccl_does_not_name_leaves_the_size_unknown(folder: Path, ring: RingWriter) -> None:
    ring.put(Written(datatype=0))
    (call,) = only(folder).calls
    assert (call.dtype, call.size_bytes) == ("", None)


def test_a_record_has_its_times_in_seconds(folder: Path, ring: RingWriter) -> None:
    ring.put(Written(collective=9, longest=MILLISECOND // 2, root=3))
    (call,) = only(folder).calls
    assert (call.number, call.sequence, call.seconds, call.root) == (1, 9, 0.0005, 3)
    assert (call.algorithm, call.protocol, call.channels, call.dtype) == ("RING", "SIMPLE", 24, "float32")
    assert (call.started, call.stopped, call.enqueued) == (1e6, 1e6 + 0.001, 5.0)
    ring.put(Written(count=1 << 48))
    assert [(call.size_bytes, call.root) for call in only(folder, one=1).calls] == [(1 << 50, None)]


def test_a_channel_that_took_more_than_four_seconds_took_all_of_it(folder: Path, ring: RingWriter) -> None:
    ring.put(Written(stopped=10**15 + 9 * 10**9, longest=0xFFFFFFFF))
    assert only(folder).calls[0].seconds == 9.0


def test_only_what_is_new_is_read(folder: Path, ring: RingWriter) -> None:
    for number in range(5):
        ring.put(later(Written(), number))
    first = only(folder)
    assert [call.number for call in first.calls] == [1, 2, 3, 4, 5]
    assert first.last == 5
    ring.put(later(Written(), 5))
    second = only(folder, one=first.last)
    assert [call.number for call in second.calls] == [6]
    assert only(folder, one=second.last).calls == ()


def test_what_was_overwritten_unread_is_counted(folder: Path, ring: RingWriter) -> None:
    for number in range(RECORDS + 10):
        ring.put(later(Written(), number))
    found = only(folder, one=4)
    assert [call.number for call in found.calls] == list(range(11, RECORDS + 11))
    assert (found.missed, found.last) == (6, RECORDS + 10)


def test_a_ring_that_took_the_place_of_another_is_read_from_its_start(folder: Path, ring: RingWriter) -> None:
    ring.put(Written())
    found = only(folder, one=4000)
    assert ([call.number for call in found.calls], found.missed) == ([1], 0)


def test_a_record_that_is_being_written_is_read_the_next_time(folder: Path, ring: RingWriter) -> None:
    ring.put(Written())
    ring.put(Written(), sequence=0)
    ring.put(Written())
    first = only(folder)
    assert ([call.number for call in first.calls], first.last, first.missed) == ([1], 1, 0)
    os.pwrite(ring.handle, Written().packed(2), HEADER_BYTES + RECORD_BYTES)
    second = only(folder, one=first.last)
    assert ([call.number for call in second.calls], second.missed) == ([2, 3], 0)


def test_a_record_that_is_never_completed_delays_nothing(folder: Path) -> None:
    with RingWriter(folder / "one.ring") as ring:
        ring.put(Written(), sequence=0)
        for number in range(256):
            ring.put(later(Written(), number))
        found = only(folder)
        assert (found.missed, len(found.calls)) == (1, 256)
        ring.put(Written(), sequence=0)
        ring.put(Written())
    found = only(folder, one=257)
    assert (found.missed, len(found.calls)) == (1, 1), "the writer is dead, and nothing is in flight"


@pytest.mark.parametrize(
    "record",
    [
        Written(stopped=10**15 - 1),
        Written(stopped=10**15 + ringfile.LONGEST_NS),
        Written(channels=0),
        Written(ended=0),
        Written(ended=25),
        Written(longest=2 * MILLISECOND),
        Written(count=(1 << 48) + 1),
    ],
)
def test_what_cannot_be_is_counted_and_makes_no_call(folder: Path, ring: RingWriter, record: Written) -> None:
    ring.put(record)
    ring.put(Written())
    found = only(folder)
    assert ([call.number for call in found.calls], found.implausible, found.last) == ([2], 1, 2)


def test_no_folder_is_nothing_to_watch(tmp_path: Path) -> None:
    found = FileRings(tmp_path / "none").poll({})
    assert isinstance(found, Absent)
    assert found.why is Why.MISSING


def test_a_file_for_a_folder_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "jobs").touch()
    found = FileRings(tmp_path / "jobs").poll({})
    assert isinstance(found, Absent)
    assert found.why is Why.MALFORMED


@pytest.mark.usefixtures("ring")
def test_what_is_no_ring_is_refused_with_its_reason(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    aged(monkeypatch)
    (folder / "link.ring").symlink_to(folder / "one.ring")
    os.mkfifo(folder / "fifo.ring")
    (folder / "folder.ring").mkdir()
    (folder / "small.ring").write_bytes(b"x")
    (folder / "large.ring").touch()
    os.truncate(folder / "large.ring", RING_BYTES + 1)
    (folder / "zeros.ring").touch()
    os.truncate(folder / "zeros.ring", RING_BYTES)
    (folder / "odd\nname\x1b[2J").touch()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "socket.ring"))
        found = refusals(folder)
    assert found == {
        "link.ring": "malformed: a symbolic link",
        "fifo.ring": "malformed: not a regular file",
        "folder.ring": "malformed: not a regular file",
        "small.ring": f"malformed: 1 bytes; a ring has {RING_BYTES}",
        "large.ring": f"malformed: {RING_BYTES + 1} bytes; a ring has {RING_BYTES}",
        "zeros.ring": "malformed: not a ring of wirewatch's tap",
        "odd\\nname\\x1b[2J": "malformed: not a name that the tap gives",
        "socket.ring": "malformed: not a regular file",
    }
    assert [one.ring.name for one in poll(folder).rings] == ["one.ring"]


def test_two_names_for_one_ring_are_refused(folder: Path, ring: RingWriter) -> None:
    (folder / "two.ring").hardlink_to(ring.path)
    with pytest.MonkeyPatch.context() as patch:
        aged(patch)
        assert refusals(folder)["two.ring"] == "malformed: 2 names for one file"


def test_a_lease_of_its_owner_holds_no_poll_up(folder: Path, ring: RingWriter) -> None:
    ring.leave()
    handle = os.open(ring.path, os.O_RDWR)
    try:
        try:
            fcntl.fcntl(handle, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError as error:
            pytest.fail(f"no leases on this file system: {error}")
        # The kernel sends its owner this signal, which would end the test.
        before = signal.signal(signal.SIGIO, signal.SIG_IGN)
        assert refusals(folder) == {"one.ring": "denied: its owner has a lease on it"}
        signal.signal(signal.SIGIO, before)
    finally:
        os.close(handle)


def test_a_file_that_is_just_being_made_is_not_refused(folder: Path) -> None:
    (folder / "new.ring").touch()
    assert refusals(folder) == {}


def test_a_ring_that_was_read_before_is_not_hidden_by_new_ones(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rings, "RINGS", 2)
    monkeypatch.setattr(rings, "LISTED", 3)
    with RingWriter(folder / "zz.ring"):
        for name in range(5):
            with RingWriter(folder / f"{name}.ring"):
                pass
        found = poll(folder, zz=1)
    assert len(found.rings) == 2
    assert found.rings[-1].ring.name == "zz.ring", "one that was read before comes first"
    told = [one.why.detail for one in found.refused]
    assert told[0] == "more than 3 names"
    assert {*told[1:]} == {f"one ring too many of user {os.geteuid()}"}


def test_the_rings_of_all_users_together_are_no_more_than_are_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rings, "RINGS", 2)
    with RingWriter(folder / "a.ring"), RingWriter(folder / "b.ring"), RingWriter(folder / "c.ring"):
        found = poll(folder)
    assert [one.ring.name for one in found.rings] == ["a.ring", "b.ring"]
    assert [one.name for one in found.refused] == ["c.ring"]


def test_no_rings_records_take_all_the_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rings, "RECORDS_IN_ALL", 5)
    with RingWriter(folder / "a.ring") as one, RingWriter(folder / "b.ring") as two:
        for number in range(4):
            for ring in (one, two):
                ring.put(later(Written(), number))
        with closing(FileRings(folder)) as port:
            first, second = read(port).rings
            assert ([call.number for call in first.calls], first.missed) == ([2, 3, 4], 1)
            assert ([call.number for call in second.calls], second.missed, second.last) == ([3, 4], 2, 4)
            two.put(later(Written(), 4))
            assert [call.number for call in read(port, a=4, b=4).rings[1].calls] == [5]


def test_of_many_refused_files_some_are_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    aged(monkeypatch)
    for number in range(64 + 5):
        (folder / f"{number}.ring").touch()
    found = poll(folder).refused
    assert len(found) == 64 + 1
    assert found[-1].why.detail.startswith("5 more files")


def test_another_version_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    aged(monkeypatch)
    with RingWriter(folder / "new.ring", version=2):
        assert refusals(folder) == {"new.ring": "unsupported: version 2 of a ring; this agent reads 1"}


@pytest.mark.parametrize(
    "change",
    [
        {"ranks": 0},
        {"rank": 4},
        {"nodes": 5},
        {"nodes": 0},
        {"pid": 0},
        {"pid": -1},
        {"ranks": (1 << 24) + 1},
        {"pid": (1 << 22) + 1},
    ],
)
def test_a_communicator_that_cannot_be_is_refused(
    folder: Path, change: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    aged(monkeypatch)
    with RingWriter(folder / "odd.ring") as ring:
        for name, value in change.items():
            setattr(ring, name, value)
        os.pwrite(ring.handle, ring.header(), 0)
        assert "no such communicator" in refusals(folder)["odd.ring"]


def test_texts_are_cleaned_and_a_gpu_has_its_form(folder: Path) -> None:
    with RingWriter(folder / "one.ring", uuid="GPU-evil\n", name="a\x1b[31mb\n") as ring:
        one = only(folder).ring
        assert one.comm_name == "a[31mb"
        assert isinstance(one.gpu, Absent)
        assert one.gpu.why is Why.MALFORMED
        ring.uuid = ""
        os.pwrite(ring.handle, ring.header(), 0)
        one = only(folder).ring
        assert isinstance(one.gpu, Absent)
        assert one.gpu.why is Why.MISSING


@pytest.mark.parametrize(
    ("number", "text"), [(22809, "2.28.9"), (23100, "2.31.0"), (0, ""), (-5, ""), (2808, "")]
)
def test_a_version_of_nccl_as_people_write_it(folder: Path, number: int, text: str) -> None:
    with RingWriter(folder / "one.ring", nccl=number):
        assert only(folder).ring.nccl == text


@pytest.mark.usefixtures("ring")
def test_a_dead_ring_is_removed_after_a_while_and_a_live_one_never(folder: Path) -> None:
    with RingWriter(folder / "dead.ring"):
        pass
    ticks = Ticks()
    port = FileRings(folder, ticks)
    for seconds, left in ((0.0, 2), (119.0, 2), (0.5, 2), (1.0, 2), (10.0, 1), (1200.0, 1)):
        ticks.seconds += seconds
        assert len(read(port).rings) == left
    assert [path.name for path in folder.iterdir()] == ["one.ring"]
    port.close()


@needs_root
def test_who_does_not_own_the_folder_leaves_even_a_ring_of_its_own() -> None:
    """The sticky bit would let it; whoever owns the folder may not have read it yet."""
    with open_folder() as shared:
        shared.chmod(0o3777)
        with RingWriter(shared / "dead.ring"):
            pass
        os.chown(shared / "dead.ring", OTHER, OTHER)
        ticks = Ticks()
        os.seteuid(OTHER)
        try:
            with closing(FileRings(shared, ticks)) as port:
                for _ in range(3):
                    assert len(read(port).rings) == 1
                    ticks.seconds += 2 * rings.KEPT
        finally:
            os.seteuid(0)
        assert (shared / "dead.ring").exists()


def test_a_folder_of_another_user_is_left_as_it_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RingWriter(folder / "dead.ring"):
        pass
    monkeypatch.setattr(rings, "removable", lambda _: False)
    ticks = Ticks()
    port = FileRings(folder, ticks)
    for _ in range(3):
        port.poll({})
        ticks.seconds += 2 * rings.KEPT
    assert (folder / "dead.ring").exists()


def test_a_process_that_runs_out_of_descriptors_within_a_poll_blames_no_file(folder: Path) -> None:
    """The first ring takes the last one that is free, and stays open."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with (
        RingWriter(folder / "a.ring"), RingWriter(folder / "b.ring"), closing(FileRings(folder)) as port,
    ):  # fmt: skip
        free = os.open(folder, os.O_RDONLY)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + 2, limits[1]))
        try:
            found = port.poll({})
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert isinstance(found, Absent)
        assert found.code == errno.EMFILE


@pytest.mark.usefixtures("ring")
def test_a_folder_that_is_gone_keeps_no_ring_open(folder: Path) -> None:
    before = _descriptors()
    with closing(FileRings(folder)) as port:
        assert len(read(port).rings) == 1
        assert _descriptors() == before + 1
        folder.rename(folder.with_name("gone"))
        assert isinstance(port.poll({}), Absent)
        assert _descriptors() == before


def test_a_communicator_that_is_over_keeps_no_ring_open(folder: Path, ring: RingWriter) -> None:
    """Its process lives on, and so holds the lock."""
    before = _descriptors()
    with closing(FileRings(folder)) as port:
        read(port)
        ring.finalize()
        ring.path.unlink()
        assert [one.ring.state for one in read(port).rings] == [RingState.FINALIZED]
        assert _descriptors() == before


def test_a_hundred_and_twenty_eight_rings_are_kept_open(folder: Path) -> None:
    header = RingWriter(folder / "x").header()
    with ExitStack() as writers, closing(FileRings(folder)) as port:
        for number in range(130):
            file = writers.enter_context((folder / f"{number}.ring").open("wb"))
            fcntl.flock(file, fcntl.LOCK_EX)
            file.truncate(RING_BYTES)
            file.write(header)
            file.flush()
        before = _descriptors()
        assert len(read(port).rings) == 130
        assert _descriptors() == before + 128


def test_of_a_folder_of_many_names_some_are_looked_at(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    aged(monkeypatch)
    for number in range(4100):
        (folder / str(number)).touch()
    assert poll(folder).refused[-1].why.detail == f"{4096 + 1 - 64} more files are not rings, or too many"


def test_the_lock_is_given_back_before_a_ring_is_read(
    folder: Path, ring: RingWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl.flock(ring.handle, fcntl.LOCK_UN)

    def after_a_writer_came(*given: Any, **named: Any) -> ringfile.RingSlice:
        fcntl.flock(ring.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return ringfile.read_records(*given, **named)

    monkeypatch.setattr(rings, "read_records", after_a_writer_came)
    assert only(folder).ring.state is RingState.DEAD


def test_a_ring_that_is_cut_while_it_is_read_has_nothing_new(
    folder: Path, ring: RingWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring.put(Written())

    def cut(head: bytes) -> ringfile.RingHeader | Absent:
        os.truncate(ring.path, HEADER_BYTES)
        return ringfile.parse_header(head)

    monkeypatch.setattr(rings, "parse_header", cut)
    found = only(folder)
    assert (found.calls, found.missed, found.last) == ((), 0, 0)


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.usefixtures("ring")
def test_only_so_many_rings_are_kept_open_and_no_other_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rings, "OPEN", 2)
    (folder / "small.ring").touch()
    with RingWriter(folder / "dead.ring"):
        pass
    with RingWriter(folder / "two.ring"), RingWriter(folder / "three.ring"):
        before = _descriptors()
        with closing(FileRings(folder)) as port:
            for _ in range(3):
                assert len(read(port).rings) == 4
                assert _descriptors() == before + 2
        assert _descriptors() == before


def test_the_last_that_a_communicator_wrote_is_read_though_its_ring_is_removed(folder: Path) -> None:
    with closing(FileRings(folder)) as port:
        with RingWriter(folder / "one.ring") as writer:
            writer.put(Written())
            (first,) = read(port).rings
            writer.put(later(Written(), 1))
            writer.finalize()
            writer.path.unlink()
        (last,) = read(port, one=first.last).rings
        assert ([call.number for call in last.calls], last.ring.state) == ([2], RingState.FINALIZED)
        assert read(port, one=last.last).rings == ()


def test_a_process_without_descriptors_says_so_and_blames_no_file(folder: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with RingWriter(folder / "one.ring"), closing(FileRings(folder)) as port:
        # The lowest number that is free is that of the folder, and the next one that of the file.
        free = os.open(folder, os.O_RDONLY)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, limits[1]))
        try:
            found = port.poll({})
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert isinstance(found, Absent)
        assert found.code == errno.EMFILE
        assert len(read(port).rings) == 1


def test_a_ring_that_was_removed_under_its_job_is_read_on(folder: Path, ring: RingWriter) -> None:
    with closing(FileRings(folder)) as port:
        read(port)
        ring.path.unlink()
        for number in (1, 2):
            ring.put(Written())
            (one,) = read(port, one=number - 1).rings
            assert ([call.number for call in one.calls], one.ring.state) == ([number], RingState.LIVE)


def test_a_ring_that_its_owner_cuts_is_refused_and_read_again_when_it_is_whole(
    folder: Path, ring: RingWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    aged(monkeypatch)
    whole = ring.path.read_bytes()
    with closing(FileRings(folder)) as port:
        read(port)
        os.truncate(ring.path, 5000)
        assert [one.why.detail for one in read(port).refused] == [f"5000 bytes; a ring has {RING_BYTES}"]
        ring.path.write_bytes(whole)
        assert len(read(port).rings) == 1


def test_locks_are_found_by_device_and_inode(tmp_path: Path) -> None:
    file = tmp_path / "locks"
    file.write_text(
        "1: FLOCK  ADVISORY  WRITE 4242 00:1a:777 0 EOF\n"
        "1: -> FLOCK  ADVISORY  WRITE 1 00:1a:778 0 EOF\n"
        "2: POSIX  ADVISORY  WRITE 2 00:1a:779 0 EOF\n"
        "3: FLOCK  ADVISORY  READ 3 00:1a:780 0 EOF\n"
        "4: FLOCK  ADVISORY  WRITE 0 00:1a:781 0 EOF\n"
        "not a line\n"
    )
    assert rings.lock_holders(file) == {(os.makedev(0, 0x1A), 777): 4242}
    assert rings.lock_holders(tmp_path / "none") == {}


def test_a_long_list_of_locks_is_read_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, line = tmp_path / "locks", "1: FLOCK  ADVISORY  WRITE 42 00:1a:{} 0 EOF\n"
    filler = "2: POSIX  ADVISORY  WRITE 2 00:1a:779 0 EOF\n" * 25_000
    assert len(filler) > 1 << 20
    file.write_text(line.format(7) + filler + line.format(8))
    assert [inode for _, inode in rings.lock_holders(file)] == [7, 8]
    monkeypatch.setattr(rings, "_LOCKS_BYTES", 1 << 20)
    assert [inode for _, inode in rings.lock_holders(file)] == [7]


HEADER_SIZE = ringfile.HEADER_LAYOUT.size


@pytest.mark.parametrize(
    ("guard", "change", "read"),
    [
        ("all of it", lambda head: head, True),
        ("a byte less", lambda head: head[:-1], False),
        ("a longer header", lambda head: _with(head, 12, 8192), False),
        ("longer records", lambda head: _with(head, 16, 128), False),
        ("more records", lambda head: _with(head, 20, 8192), False),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_header_is_whole_and_of_the_layout_that_is_read(
    folder: Path, guard: str, change: Callable[[bytes], bytes], read: object
) -> None:
    head = RingWriter(folder / "x").header().ljust(HEADER_SIZE, b"\0")[:HEADER_SIZE]
    found = ringfile.parse_header(change(head))
    assert isinstance(found, ringfile.RingHeader) is read, guard


def _with(head: bytes, place: int, value: int) -> bytes:
    return head[:place] + struct.pack("=I", value) + head[place + 4 :]


WHOLE = st.binary(max_size=600)
CUTS = st.tuples(st.integers(0, 1200), st.binary(min_size=1, max_size=64))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("sound") / "one.ring"
    with RingWriter(path) as ring:
        for number in range(20):
            ring.put(later(Written(), number))
    return path.read_bytes()


def _whatever(folder: Path, data: bytes, after: int = 0) -> None:
    (folder / "one.ring").write_bytes(data)
    found = poll(folder, one=after)
    for one in found.rings:
        ring = one.ring
        assert 0 <= ring.rank < ring.ranks
        assert ring.comm_name.isprintable()
        assert len(one.calls) <= RECORDS
        assert one.last <= ring.counts.written
        for call in one.calls:
            assert 0 <= call.seconds < 3600
            assert call.started is not None
            assert call.stopped is not None
            assert call.stopped >= call.started
            assert call.size_bytes is None or 0 <= call.size_bytes <= ringfile.LARGEST
            assert after < call.number <= one.last or after > ring.counts.written


@given(head=WHOLE, fill=st.binary(min_size=1, max_size=4), after=st.integers(0, 1 << 64))
@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(head=b"WWRING1\0" + struct.pack("=4I", 1, 4096, 64, 4096), fill=b"\xff", after=0)
def test_any_bytes_of_the_right_size_are_read_or_refused(
    folder: Path, head: bytes, fill: bytes, after: int
) -> None:
    _whatever(folder, (head + fill * (RING_BYTES // len(fill) + 1))[:RING_BYTES], after)


@given(cuts=st.lists(CUTS, min_size=1, max_size=8), after=st.integers(0, 30))
@settings(max_examples=examples(400), suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(cuts=[(256, b"\xff" * 8)], after=0)
@example(cuts=[(256, b"\xff" * 8)], after=(1 << 64) - 1)
def test_a_ring_with_other_bytes_here_and_there_is_read_or_refused(
    folder: Path, sound: bytes, cuts: list[tuple[int, bytes]], after: int
) -> None:
    data = bytearray(sound)
    for place, new in cuts:
        # Beyond the counters nothing is written; from there on the records are meant.
        at = place if place < 704 else HEADER_BYTES + place - 704
        data[at : at + len(new)] = new
    _whatever(folder, bytes(data), after)


def _stores(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """What a writer stores into one place of the ring, word by word: its number last, and 0 before all."""
    stores = []
    for number in numbers:
        record = Written(
            collective=number, count=number, started=number * 10**6, stopped=number * 10**6 + number % 1000,
            enqueued=number, longest=number % 1000, root=number % 200,
        )  # fmt: skip
        words = struct.unpack("=8Q", record.packed(number))
        stores += [(0, 0), *enumerate(words[1:], 1), (0, words[0])]
    return stores


MOMENTS = st.lists(st.integers(0, 27), min_size=16, max_size=16)


@given(moments=MOMENTS, open_end=st.booleans())
@settings(max_examples=examples(2000))
@example(moments=[*[14] * 8, 18, *[22] * 7], open_end=True)
@example(moments=[18, *[14] * 7, *[20] * 8], open_end=False)
@example(moments=[18, *[12] * 7, 18, *[24] * 7], open_end=False)
def test_however_a_writer_and_the_two_readings_meet_a_record_is_whole_or_not_there(
    moments: list[int], *, open_end: bool
) -> None:
    """Each word of a reading is taken at any moment of the writer, the first reading before the second."""
    stores = _stores((7, 7 + RECORDS, 7 + 2 * RECORDS))
    place, states = [0] * 8, []
    states.append(tuple(place))
    for word, value in stores:
        place[word] = value
        states.append(tuple(place))
    between = max(moments[:8])
    times = [*moments[:8], *(max(moment, between) for moment in moments[8:])]
    first, second = (
        struct.pack("=8Q", *(states[time][word] for word, time in enumerate(reading)))
        for reading in (times[:8], times[8:])
    )
    number = 7 + RECORDS
    found = ringfile.read_records(first, second, range(number, number + 1), 4, open_end=open_end)
    assert found.implausible == 0
    assert len(found.calls) + found.missed + (found.last < number) == 1
    for call in found.calls:
        assert (call.number, call.sequence, call.size_bytes, call.root) == (
            number,
            number,
            number * 4,
            number % 200,
        )
        assert (call.started, call.seconds) == (number / 1e3, number % 1000 / 1e9)


def test_a_record_that_is_overwritten_between_the_readings_is_missed() -> None:
    before = Written(collective=1, enqueued=1).packed(5)
    after = Written(collective=2, enqueued=2).packed(5 + RECORDS)
    half = before[:32] + after[32:]
    for first, second in ((before, after), (before, half), (half, before)):
        found = ringfile.read_records(first, second, range(5, 6), 4, open_end=True)
        assert (found.calls, found.missed, found.last) == ((), 1, 5)


def test_what_is_written_while_it_is_read_is_whole_or_not_there(folder: Path, ring: RingWriter) -> None:
    """Each record is of one number throughout; a reader that saw half of two would find them mixed."""
    ending = threading.Event()

    def write() -> None:
        for number in count(1):
            if ending.is_set():
                return
            record = Written(
                collective=number, count=number % 100000, started=number * 10**6,
                stopped=number * 10**6 + number % 1000, enqueued=number, longest=number % 1000,
            )  # fmt: skip
            place = HEADER_BYTES + (number - 1) % RECORDS * RECORD_BYTES
            os.pwrite(ring.handle, bytes(8), place)
            data = record.packed(number)
            # In pieces, as a process stores a record word by word.
            for start in (24, 40, 8):
                os.pwrite(ring.handle, data[start : start + 16], place + start)
            os.pwrite(ring.handle, data[56:], place + 56)
            os.pwrite(ring.handle, data[:8], place)
            ring.count(number)

    writer = threading.Thread(target=write)
    writer.start()
    seen, last, missed, port = 0, 0, 0, FileRings(folder)
    end = time.monotonic() + HANGS
    try:
        while seen < 3 * RECORDS and time.monotonic() < end:
            (one,) = read(port, one=last).rings
            for call in one.calls:
                n = call.number
                assert (call.sequence, call.size_bytes) == (n, n % 100000 * 4)
                assert (call.started, call.enqueued) == (n / 1e3, n / 1e9)
                assert call.seconds == n % 1000 / 1e9
            assert one.implausible == 0
            assert one.last - last == len(one.calls) + one.missed
            seen, last, missed = seen + len(one.calls), one.last, missed + one.missed
    finally:
        ending.set()
        writer.join()
        port.close()
    assert seen >= 3 * RECORDS
    assert seen + missed == last


def test_a_writer_that_is_killed_leaves_a_dead_ring(folder: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path\n"
        "from tests.node.jobs.ringfiles import RingWriter, Written\n"
        "ring = RingWriter(Path(sys.argv[1])).__enter__(); ring.put(Written()); print('up', flush=True)\n"
        "time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(folder / "one.ring")], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        one = only(folder)
        assert (one.ring.state, one.ring.host_pid) == (RingState.LIVE, process.pid)
        process.kill()
        process.wait()
        with suppress(ProcessLookupError):
            process.kill()
    assert only(folder).ring.state is RingState.DEAD
