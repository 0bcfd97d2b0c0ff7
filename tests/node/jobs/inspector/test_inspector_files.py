"""Inspector's files: read as they grow, whatever is in them, and whose they are."""

import os
import socket
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.jobs.inspector.writing import BOOTED, HOST, Folder, line, process
from tests.node.jobs.ringfiles import RingWriter
from wirewatch.core.jobs import RefusedRing, RingReading, RingsReading, RingState
from wirewatch.core.ports import NoRings
from wirewatch.core.types import Absent, Why
from wirewatch.jobs.inspector import files
from wirewatch.jobs.inspector.files import BYTES, BYTES_IN_ALL, KEPT, OLD, InspectorFiles, job_rings
from wirewatch.jobs.tap.rings import SeveralRings
from wirewatch.jobs.times import INSPECTOR_FORMAT, INSPECTOR_SPARSE


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path)
    process(made.proc, 4000)
    return made


def sequences(found: RingsReading) -> list[int]:
    return [call.sequence for one in found.rings for call in one.calls]


def only(found: RingsReading) -> RingReading:
    (one,) = found.rings
    return one


def why(found: RingsReading) -> str:
    return " / ".join(f"{one.name}: {one.why.detail}" for one in found.refused)


def test_a_file_is_read_from_where_it_was_read_to(folder: Folder) -> None:
    now = folder.clock.now
    folder.write(line(now, number=1) + line(now, number=2)[:40])
    first = only(folder.poll())
    assert [call.sequence for call in first.calls] == [1]
    assert (first.ring.host_pid, first.ring.pid, first.ring.uid) == (4000, 4000, os.geteuid())
    assert (first.ring.state, first.ring.comm_name) == (RingState.LIVE, "default_pg")
    folder.write(line(now, number=2)[40:] + line(now, number=3))
    assert sequences(folder.poll()) == [2, 3]
    assert sequences(folder.poll()) == []
    assert folder.poll().refused == ()


def test_a_time_is_of_the_moment_at_which_its_line_was_written(folder: Folder) -> None:
    folder.write(line(folder.clock.now, number=1))
    (call,) = only(folder.poll(2.0)).calls
    assert call.enqueued == pytest.approx(folder.clock.mono - 2.0)
    assert (call.started, call.stopped, call.seconds) == (None, None, 0.0014)
    assert (call.algorithm, call.protocol, call.channels) == ("", "", 0)


def test_each_bad_line_is_counted_and_named_and_loses_no_other(folder: Folder) -> None:
    now = folder.clock.now
    folder.write(
        b"rubbish\n" + line(now, number=1) + b'{"header":{}}\n\n' + line(now, number=2)
        + line(now, number=3, pid=1) + line(now + 60, number=4) + line(now, number=5, ranks=3)
    )  # fmt: skip
    found = folder.poll(0.0)
    assert sequences(found) == [1, 2]
    assert "5 lines not of Inspector, the last one: its communicator had another shape" in why(found)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (lambda now: line(now, pid=1), "of process 1 in the file of process 4000"),
        (lambda now: line(now + 60), "of a time that is not yet"),
        (lambda _: b"{}\n", "header"),
        (lambda now: line(now, nccl="2.28 or 2.29"), "another shape"),
    ],
)
def test_a_line_that_does_not_fit_says_why(folder: Folder, data: object, text: str) -> None:
    assert callable(data)
    folder.write(line(folder.clock.now, number=1) + data(folder.clock.now))
    found = folder.poll(0.0)
    assert sequences(found) == [1]
    assert text in why(found)


def test_of_a_file_of_gigabytes_only_the_newest_lines_are_read(folder: Folder) -> None:
    path = folder.file()
    path.touch()
    os.truncate(path, 5 << 30)
    folder.write(b"\n" + line(folder.clock.now, number=9))
    found = folder.poll()
    assert sequences(found) == [9]
    assert "bytes passed over" in why(found)


def test_what_came_since_the_last_poll_is_bounded_and_the_newest_is_kept(folder: Folder) -> None:
    now = folder.clock.now
    folder.write(line(now, number=1))
    folder.poll()
    lines = [line(now, number=number) for number in range(2, 2000)]
    folder.write(b"".join(lines))
    found = sequences(folder.poll(1.0))
    assert found[-1] == 1999
    assert found == list(range(2000 - len(found), 2000))
    assert BYTES - 2 * len(lines[-1]) < sum(map(len, lines[-len(found) :])) <= BYTES


def test_all_files_together_have_a_bound_too(folder: Folder) -> None:
    lines = b"".join(line(folder.clock.now, pid=1, number=number) for number in range(800))
    for pid in range(1, 21):
        folder.write(lines.replace(b'"pid":1}', b'"pid":%d}' % pid), folder.file(pid))
    found = folder.poll()
    assert sum(bool(one.calls) for one in found.rings) == BYTES_IN_ALL // BYTES
    assert len(found.refused) == 20
    folder.write(line(folder.clock.now, pid=9, number=900), folder.file(9))
    assert sequences(folder.poll()) == []
    folder.write(line(folder.clock.now, pid=9, number=901), folder.file(9))
    assert sequences(folder.poll()) == [901]


def test_a_line_without_an_end_is_passed_over_once(folder: Folder) -> None:
    now = folder.clock.now
    folder.write(line(now, number=1))
    folder.poll()
    for _ in range(4):
        folder.write(b"x" * 60_000)
        found = folder.poll(1.0)
        assert sequences(found) == []
    assert "1 line not of Inspector, the last one: a line of more than" in why(found)
    folder.write(b"x\n" + line(folder.clock.now, number=2))
    assert sequences(folder.poll(1.0)) == [2]


def test_a_file_that_is_written_anew_is_read_from_its_start(folder: Folder) -> None:
    now = folder.clock.now
    folder.write(line(now, number=1) * 1 + line(now, number=2))
    folder.poll()
    folder.write(line(folder.clock.now, number=1), mode="wb")
    assert sequences(folder.poll()) == [1]


def test_a_container_that_starts_anew_takes_its_file_over(folder: Folder) -> None:
    """Another process has the same number inside, and writes more than the first had before the next poll."""
    process(folder.proc, 9000, inner=17)
    folder.file(17).touch()
    for opened in ("9000", "9001"):
        (folder.proc / opened / "fd").mkdir(parents=True)
        (folder.proc / opened / "fd" / "3").symlink_to(folder.file(17))
    folder.write(line(folder.clock.now, pid=17, number=1), folder.file(17))
    assert only(folder.poll()).ring.host_pid == 9000
    (folder.proc / "9000" / "stat").unlink()
    assert folder.poll().rings == ()
    process(folder.proc, 9001, inner=17)
    (folder.proc / "9000" / "status").unlink()
    now = folder.clock.now
    folder.write(b"".join(line(now, pid=17, number=n) for n in (1, 2)), folder.file(17), mode="wb")
    folder.poll()
    ring = only(folder.poll(30.0)).ring
    assert (ring.state, ring.host_pid) == (RingState.LIVE, 9001)


def test_another_file_under_the_same_name_is_another_file(folder: Folder) -> None:
    folder.write(line(folder.clock.now, number=1))
    before = only(folder.poll()).ring.name
    other = folder.path / "other"
    folder.write(line(folder.clock.now, number=1) + line(folder.clock.now, number=2), other)
    other.rename(folder.file())
    found = folder.poll()
    assert sequences(found) == [1, 2]
    assert only(found).ring.name != before


def test_old_lines_say_whose_they_are_and_nothing_of_now(folder: Folder) -> None:
    now = folder.clock.now
    folder.write(line(now - OLD - 1, number=1) + line(now - OLD + 1, number=2))
    found = only(folder.poll(0.0))
    assert [call.sequence for call in found.calls] == [2]
    assert found.ring.counts.calls == {"all_reduce": 1}


def test_sends_are_counted_alone(folder: Folder) -> None:
    folder.write(line(folder.clock.now, change={"coll_perf": None, "p2p_perf": {"p2p": "Send"}}))
    counts = only(folder.poll()).ring.counts
    assert (counts.sends, counts.enqueued) == (1, 0)


def test_a_type_without_a_size_is_counted_as_such(folder: Folder) -> None:
    folder.write(line(folder.clock.now, coll_msg_size_bytes=(1 << 64) - 4))
    counts = only(folder.poll()).ring.counts
    assert (counts.calls, counts.bytes, counts.unsized) == ({"all_reduce": 1}, {}, {"all_reduce": 1})


def test_a_format_of_later_versions_is_counted_and_not_timed(folder: Folder) -> None:
    made = line(folder.clock.now).replace(b'"v4.0"', b'"v5.0"')
    folder.write(made)
    found = only(folder.poll())
    assert (found.calls, found.ring.untimed) == ((), INSPECTOR_FORMAT)
    assert found.ring.counts.calls == {"all_reduce": 1}


def test_lines_of_which_most_are_left_out_are_not_timed(folder: Folder) -> None:
    for number in range(40):
        folder.write(line(folder.clock.now, number=10 * number))
    found = only(folder.poll())
    assert (found.calls, found.ring.untimed) == ((), INSPECTOR_SPARSE)
    for number in range(1000, 1300):
        folder.write(line(folder.clock.now, number=number))
    assert only(folder.poll()).ring.untimed == 0


def test_a_file_of_a_process_that_ended_is_gone(folder: Folder) -> None:
    folder.write(line(folder.clock.now))
    assert only(folder.poll()).ring.host_pid == 4000
    folder.write(line(folder.clock.now))
    (folder.proc / "4000" / "stat").unlink()
    assert folder.poll().rings == ()
    assert folder.poll().rings == ()
    assert folder.poll(KEPT + 1).rings == ()


def test_a_process_that_took_the_number_of_one_that_ended_is_not_its_writer(folder: Folder) -> None:
    folder.write(line(folder.clock.now))
    assert only(folder.poll()).ring.host_pid == 4000
    process(folder.proc, 4000, started=200)
    assert folder.poll().rings == ()


def test_nor_is_one_that_started_after_the_last_line(folder: Folder) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    folder.write(line(folder.clock.now))
    process(folder.proc, 4000, started=round((folder.clock.now - BOOTED + 3) * ticks))
    assert isinstance(only(folder.poll()).ring.host_pid, Absent)


def test_a_stale_file_is_not_even_opened(folder: Folder) -> None:
    folder.write(line(folder.clock.now))
    assert folder.poll(KEPT + 1).rings == ()


def test_a_file_whose_process_is_not_seen_lives_while_it_grows(folder: Folder) -> None:
    path = folder.file(4100)
    folder.write(line(folder.clock.now, pid=4100), path)
    ring = only(folder.poll()).ring
    assert ring.state is RingState.LIVE
    assert ring.host_pid == Absent(Why.MISSING, "its process cannot be seen from here")
    assert folder.poll(KEPT + 1).rings == ()


def test_the_process_of_another_user_is_not_its_writer(folder: Folder) -> None:
    process(folder.proc, 4000, uid=os.geteuid() + 1)
    folder.write(line(folder.clock.now))
    assert isinstance(only(folder.poll()).ring.host_pid, Absent)


def test_a_file_of_another_machine_is_not_read(folder: Folder) -> None:
    folder.write(line(folder.clock.now), folder.file(host="node2"))
    found = folder.poll()
    assert found.rings == ()
    assert "1 file of other machines" in why(found)


def test_a_container_is_known_by_the_file_that_it_has_open(tmp_path: Path) -> None:
    """Both files have names of another machine, and the number of one process; it has one of them open."""
    with (tmp_path / "new").open("wb") as file, subprocess.Popen(["sleep", "1000"], stdout=file) as child:
        mine, other = (tmp_path / f"pod-{n}-pid{child.pid}.log" for n in (7, 8))
        (tmp_path / "new").rename(mine)
        for path in (mine, other):
            path.write_bytes(line(mine.stat().st_mtime, pid=child.pid, id_=f"0x{path.name[4]}"))
        found = InspectorFiles(tmp_path).poll({})
        child.kill()
    assert not isinstance(found, Absent)
    assert (only(found).ring.host_pid, only(found).ring.communicator) == (child.pid, 7)
    assert "1 file of other machines" in why(found)


def test_a_process_in_a_container_is_found_by_its_number_inside(folder: Folder) -> None:
    process(folder.proc, 9000, inner=17)
    path = folder.write(line(folder.clock.now, pid=17), folder.file(17, host="pod-1"))
    (folder.proc / "9000" / "fd").mkdir()
    (folder.proc / "9000" / "fd" / "3").symlink_to(path)
    assert only(folder.poll()).ring.host_pid == 9000


def test_where_its_open_files_may_not_be_looked_at_a_container_is_not_known(folder: Folder) -> None:
    process(folder.proc, 9000, inner=17)
    folder.write(line(folder.clock.now, pid=17), folder.file(17))
    folder.write(line(folder.clock.now, pid=17, id_="0x2"), folder.file(17, host="pod-1"))
    found = folder.poll()
    assert isinstance(only(found).ring.host_pid, Absent)
    assert "1 file of other machines" in why(found)


def test_folders_below_are_read_and_no_deeper_ones(folder: Folder) -> None:
    folder.write(line(folder.clock.now), folder.file(below="4711"))
    (folder.path / "4711" / "deeper").mkdir()
    folder.write(line(folder.clock.now), folder.file(below="4711/deeper"))
    assert len(folder.poll().rings) == 1


def test_a_file_that_cannot_be_read_is_refused_and_the_others_are_read(
    folder: Folder, tmp_path: Path
) -> None:
    """Of a file that another process may write nothing is known where processes cannot be looked at."""
    folder.write(line(folder.clock.now))
    process(folder.proc, 4001)
    folder.write(line(folder.clock.now, pid=4001), folder.file(4001))
    folder.write(line(folder.clock.now), folder.file(below="closed"))
    (folder.path / "closed").chmod(0)
    folder.proc.rename(tmp_path / "gone")
    found = folder.poll()
    assert found.rings == ()
    assert [one.why.why for one in found.refused][:2] == [Why.MISSING, Why.MISSING]
    (tmp_path / "gone").rename(folder.proc)
    assert len(folder.poll(60.0).rings) >= 2


def test_links_pipes_and_second_names_are_refused(folder: Folder, tmp_path: Path) -> None:
    secret = folder.write(line(folder.clock.now), tmp_path / "secret")
    folder.file(1).symlink_to(secret)
    os.mkfifo(folder.file(2))
    folder.file(4000).hardlink_to(secret)
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(folder.file(4)))
    folder.file(5).mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder.write(line(folder.clock.now), elsewhere / f"{HOST}-pid4000.log")
    (folder.path / "below").symlink_to(elsewhere)
    for number in (1, 2, 4000, 4):
        os.utime(folder.file(number), (folder.clock.now,) * 2, follow_symlinks=False)
    found = folder.poll()
    assert found.rings == ()
    assert sorted(one.why.detail for one in found.refused) == [
        "a socket or a device", "a symbolic link", *["not a regular file with one name"] * 2,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name", ["x.log", "-pid1.log", "node1-pid0.log", "node1-pidx.log", "node1-pid1.log.gz"]
)
def test_other_names_are_not_looked_at(folder: Folder, name: str) -> None:
    folder.write(line(folder.clock.now), folder.path / name)
    assert folder.poll() == RingsReading()


def test_one_user_cannot_fill_it_with_files(folder: Folder) -> None:
    for pid in range(1, 80):
        folder.write(line(folder.clock.now, pid=pid), folder.file(pid))
    found = folder.poll()
    assert len(found.rings) == files.OF_ONE_OWNER
    assert len(found.refused) == 79 - files.OF_ONE_OWNER


def test_nor_a_file_with_communicators(folder: Folder) -> None:
    for number in range(1, 80):
        folder.write(line(folder.clock.now + number / 1000, id_=f"{number:#x}"))
    found = folder.poll()
    assert len(found.rings) == files.COMMUNICATORS
    assert {one.ring.communicator for one in found.rings} == set(range(16, 80))


def test_without_its_folder_there_is_nothing_to_read(tmp_path: Path) -> None:
    found = InspectorFiles(tmp_path / "none").poll({})
    assert isinstance(found, Absent)
    assert found.why is Why.MISSING


STREAM = st.lists(
    st.one_of(st.just(b""), st.binary(max_size=40).map(lambda b: b.replace(b"\n", b" "))), max_size=12
)


@given(rubbish=STREAM, cuts=st.lists(st.integers(min_value=0, max_value=6000), max_size=6))
def test_however_a_file_grows_each_line_is_taken_once(
    tmp_path_factory: pytest.TempPathFactory, rubbish: list[bytes], cuts: list[int]
) -> None:
    folder = Folder(tmp_path_factory.mktemp("any"))
    now = folder.clock.now
    whole = b"".join(other + b"\n" + line(now, number=n) for n, other in enumerate(rubbish))
    taken: list[int] = []
    ends = sorted({min(cut, len(whole)) for cut in cuts} | {len(whole)})
    for begin, end in zip([0, *ends], ends, strict=False):
        folder.write(whole[begin:end])
        taken += sequences(folder.poll(1.0))
    assert taken == list(range(len(rubbish)))


@given(data=st.binary(max_size=4000), names=st.lists(st.text(min_size=1, max_size=20), max_size=4))
def test_any_files_make_a_reading(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, names: list[str]
) -> None:
    folder = Folder(tmp_path_factory.mktemp("any"))
    for n, name in enumerate(names):
        if not set(name) & {"/", "\0"} and name not in {".", ".."}:
            try:
                folder.write(data, folder.path / f"{name}-pid{n + 1}.log")
            except (UnicodeEncodeError, OSError):
                continue
    folder.write(data + b"\n" + line(folder.clock.now, number=1))
    for _ in range(2):
        found = folder.poll(1.0)
        assert all(one.name.isprintable() for one in found.refused)
    assert len(found.rings) <= 1 + len(names)


class Answering:
    def __init__(self, answer: RingsReading | Absent) -> None:
        self.answer = answer

    def poll(self, after: object) -> RingsReading | Absent:
        assert after == {"a": 1}
        return self.answer


def test_several_ports_are_one_and_a_lost_one_hides_no_other(folder: Folder) -> None:
    folder.write(line(folder.clock.now))
    one = folder.poll()
    denied, missing = Absent(Why.DENIED, "/run"), Absent(Why.MISSING, "none")
    both = SeveralRings(Answering(one), Answering(RingsReading(refused=(RefusedRing("x", denied),)))).poll(
        {"a": 1}
    )
    assert both == RingsReading(one.rings, (RefusedRing("x", denied),))
    beside = SeveralRings(Answering(denied), Answering(one)).poll({"a": 1})
    assert beside == RingsReading(one.rings, (RefusedRing("...", denied),))
    assert SeveralRings(Answering(missing), Answering(one)).poll({"a": 1}) == one
    assert SeveralRings(Answering(missing), Answering(denied)).poll({"a": 1}) == denied


def test_the_configuration_says_which_are_read(tmp_path: Path) -> None:
    assert job_rings("", "").poll({}) == NoRings().poll({})
    with RingWriter(tmp_path / "one.ring"):
        path = tmp_path / f"{os.uname().nodename}-pid1.log"
        path.write_bytes(line(path.parent.stat().st_mtime, pid=1))
        for tap, inspector, sources in (
            (tmp_path, "", [""]), ("", tmp_path, ["NCCL Inspector, 2.30, GPU clock"]),
            (tmp_path, tmp_path, ["", "NCCL Inspector, 2.30, GPU clock"]),
        ):  # fmt: skip
            found = job_rings(str(tap), str(inspector)).poll({})
            assert not isinstance(found, Absent)
            assert [one.ring.source for one in found.rings] == sources
