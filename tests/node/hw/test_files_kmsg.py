"""The kernel's log, over a pipe that keeps records apart as /dev/kmsg does, and over the real one."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from wirewatch.core.kernellog import parse_record
from wirewatch.core.ports import KernelLog
from wirewatch.core.types import Absent, Why
from wirewatch.hw import files
from wirewatch.hw.files import KEPT, SystemKmsg


def record(number: int, text: str = "NVRM: hello") -> str:
    return f"4,{number},{number * 1000},-;{text}\n SUBSYSTEM=pci"


class Log:
    """Stands for /dev/kmsg: one read, one record; nothing to read is no end."""

    def __init__(self) -> None:
        # In packet mode each write is one read, also through another opening of the pipe.
        self._out, self._in = os.pipe2(os.O_DIRECT | os.O_NONBLOCK | os.O_CLOEXEC)
        self.path = Path(f"/proc/self/fd/{self._out}")

    def write(self, *records: str | bytes) -> None:
        for one in records:
            data = one if isinstance(one, bytes) else f"{one}\n".encode()
            assert os.write(self._in, data) == len(data)

    def close(self) -> None:
        os.close(self._out)
        os.close(self._in)


@pytest.fixture
def log() -> Iterator[Log]:
    made = Log()
    yield made
    made.close()


def read_log(kmsg: SystemKmsg, after: int = -1) -> KernelLog:
    answer = kmsg.records(after)
    assert isinstance(answer, KernelLog)
    return answer


def numbers(answer: KernelLog) -> list[int]:
    parsed = [parse_record(raw) for raw in answer.records]
    return [one.sequence for one in parsed if one is not None]


def test_an_empty_log_has_no_records_and_does_not_wait(log: Log) -> None:
    assert read_log(SystemKmsg(log.path)) == KernelLog(())


def test_records_come_one_by_one_as_they_were_written(log: Log) -> None:
    log.write(record(0), record(1, "nvidia-nvswitch0: SXid"))
    assert read_log(SystemKmsg(log.path)).records == (record(0), record(1, "nvidia-nvswitch0: SXid"))


def test_only_records_after_the_one_named_are_reported_and_the_others_are_kept(log: Log) -> None:
    kmsg = SystemKmsg(log.path)
    log.write(*(record(n) for n in range(5)))
    assert numbers(read_log(kmsg, 2)) == [3, 4]
    assert numbers(read_log(kmsg, 4)) == []
    assert numbers(read_log(kmsg, 0)) == [1, 2, 3, 4]
    assert numbers(read_log(kmsg)) == [0, 1, 2, 3, 4]


def test_what_is_written_later_is_read_on(log: Log) -> None:
    kmsg = SystemKmsg(log.path)
    log.write(record(7))
    assert numbers(read_log(kmsg)) == [7]
    log.write(record(8), record(9))
    assert numbers(read_log(kmsg, 7)) == [8, 9]
    assert numbers(read_log(kmsg, 9)) == []


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus.",
        "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028",
        "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context",
        "nvidia_peermem: loading",
        "mlx5_core 0000:5c:00.0: Port module event",
        "pcieport 0000:00:01.0: AER: Corrected error",
    ],
)
def test_what_may_concern_the_wires_is_kept_and_the_rest_of_the_log_is_not(log: Log, text: str) -> None:
    log.write(record(0, "usb 1-1: new device"), record(1, text), record(2, "sshd[1]: root logged in"))
    answer = read_log(SystemKmsg(log.path))
    assert answer.records == (record(1, text),)
    assert answer.missed == 0


def test_a_gap_in_the_numbers_is_what_was_overwritten_unread(log: Log) -> None:
    kmsg = SystemKmsg(log.path)
    log.write(record(10), record(11))
    assert read_log(kmsg).missed == 0
    log.write(record(15), record(16), record(18))
    answer = read_log(kmsg)
    assert answer.missed == 4
    assert numbers(answer) == [10, 11, 15, 16, 18]
    assert read_log(kmsg).missed == 4


def test_records_that_concern_no_collector_are_not_missed(log: Log) -> None:
    log.write(record(0), record(1, "usb 1-1"), record(2, "usb 1-2"), record(3))
    assert read_log(SystemKmsg(log.path)).missed == 0


def test_what_was_overwritten_before_the_first_reading_is_not_counted(log: Log) -> None:
    log.write(record(5000), record(5001))
    assert read_log(SystemKmsg(log.path)).missed == 0


def test_bytes_that_are_no_text_are_read_all_the_same(log: Log) -> None:
    log.write(b"4,3,0,-;NVRM: \xff\xfe\n")
    answer = read_log(SystemKmsg(log.path))
    assert answer.records == ("4,3,0,-;NVRM: \N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}",)
    assert numbers(answer) == [3]


def test_a_record_of_an_unknown_form_is_kept_in_its_place_and_nothing_is_missed(log: Log) -> None:
    log.write(record(4), "4,5;NVRM: half a header", record(5), record(6))
    answer = read_log(SystemKmsg(log.path))
    assert answer.records == (record(4), "4,5;NVRM: half a header", record(5), record(6))
    assert answer.missed == 0


def test_a_record_as_long_as_the_kernel_makes_them_is_whole(log: Log) -> None:
    text = "NVRM: " + "x" * 3000
    log.write(record(0, text))
    assert read_log(SystemKmsg(log.path)).records == (record(0, text),)


def test_of_a_flood_the_newest_are_kept(log: Log) -> None:
    kmsg = SystemKmsg(log.path)
    total, batch = KEPT + 104, 10
    for start in range(0, total, batch):
        log.write(*(record(n) for n in range(start, start + batch)))
        kmsg.records(start)
    answer = read_log(kmsg)
    assert numbers(answer) == list(range(total - KEPT, total))
    assert len(answer.records) == 4096
    assert answer.missed == 0


@pytest.mark.parametrize(
    ("why", "texts", "kept", "missed"),
    [
        ("as many as are kept", ["NVRM: Xid"] * 3, [0, 1, 2], 0),
        ("one more, of an XID", ["NVRM: Xid"] * 4, [1, 2, 3], 1),
        ("one more, of no XID", ["NVRM: hello"] * 4, [1, 2, 3], 0),
        ("no XID is driven out by others", ["NVRM: Xid", *["NVRM: hello"] * 5], [0, 3, 4, 5], 0),
        ("others are not driven out by XIDs", ["NVRM: hello", *["NVRM: Xid"] * 5], [0, 3, 4, 5], 2),
    ],
)
def test_xids_and_the_rest_have_a_place_each(
    log: Log, monkeypatch: pytest.MonkeyPatch, why: str, texts: list[str], kept: list[int], missed: int
) -> None:
    monkeypatch.setattr(files, "KEPT", 3)
    log.write(*(record(number, text) for number, text in enumerate(texts)))
    answer = read_log(SystemKmsg(log.path))
    assert (numbers(answer), answer.missed) == (kept, missed), why


def test_a_record_of_an_unknown_form_may_be_the_first(log: Log) -> None:
    log.write("4,5;NVRM: half a header", record(7))
    answer = read_log(SystemKmsg(log.path))
    assert (answer.records, answer.missed) == (("4,5;NVRM: half a header", record(7)), 6)


def test_a_log_that_is_opened_again_repeats_nothing(tmp_path: Path) -> None:
    file = tmp_path / "kmsg"
    file.write_text(record(1), "utf-8")
    kmsg = SystemKmsg(file)
    assert numbers(read_log(kmsg)) == [1]
    assert kmsg._handle is not None  # noqa: SLF001
    os.close(kmsg._handle)  # noqa: SLF001
    kmsg._handle = None  # noqa: SLF001
    assert numbers(read_log(kmsg)) == [1]


def test_two_readers_of_their_own_keep_their_own_place(log: Log, tmp_path: Path) -> None:
    log.write(record(0))
    first = SystemKmsg(log.path)
    assert numbers(read_log(first)) == [0]
    file = tmp_path / "kmsg"
    file.write_text(record(1) + "\n", "utf-8")
    assert numbers(read_log(SystemKmsg(file))) == [1]
    assert numbers(read_log(first)) == [0]


def test_a_log_that_is_not_there_is_missing_until_it_is(tmp_path: Path) -> None:
    file = tmp_path / "kmsg"
    kmsg = SystemKmsg(file)
    absent = kmsg.records(-1)
    assert isinstance(absent, Absent)
    assert absent.why is Why.MISSING
    assert str(file) in absent.detail
    file.write_text(record(1) + "\n", "utf-8")
    assert numbers(read_log(kmsg)) == [1]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything: only another user can be refused")
def test_a_log_that_we_may_not_read_is_denied(tmp_path: Path) -> None:
    file = tmp_path / "kmsg"
    file.touch(mode=0o000)
    absent = SystemKmsg(file).records(-1)
    assert isinstance(absent, Absent)
    assert absent.why is Why.DENIED


def test_a_log_that_cannot_be_read_is_an_answer_and_leaves_no_open_file(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    kmsg = SystemKmsg(tmp_path)
    for _ in range(3):
        absent = kmsg.records(-1)
        assert isinstance(absent, Absent)
        assert "EISDIR" in absent.detail
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_the_real_log_is_read_twice_alike_or_says_why_not() -> None:
    kmsg = SystemKmsg()
    answer = kmsg.records(-1)
    if isinstance(answer, Absent):
        assert answer.why in {Why.MISSING, Why.DENIED, Why.UNSUPPORTED}
        assert "/dev/kmsg" in answer.detail
        return
    assert len(numbers(answer)) == len(answer.records)
    again = read_log(kmsg)
    assert list(again.records)[: len(answer.records)] == list(answer.records)
    assert numbers(read_log(kmsg, max(numbers(again), default=-1))) == []


def test_the_real_log_s_records_are_all_of_the_form_that_is_parsed() -> None:
    """All of them, also those that concern nobody here."""
    try:
        handle = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        pytest.skip(f"/dev/kmsg: {error.strerror}")
    seen: list[str] = []
    try:
        while len(seen) < 2000:
            seen.append(os.read(handle, 8192).decode("utf-8", "replace"))
    except OSError as error:
        if not isinstance(error, BlockingIOError):
            pytest.skip(f"/dev/kmsg: {error.strerror}")
    finally:
        os.close(handle)
    assert seen
    assert [raw for raw in seen if parse_record(raw) is None] == []
