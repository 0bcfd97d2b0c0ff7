"""Files below /sys, on a tree of our own."""

import errno
import os
import threading
from pathlib import Path

import pytest

from tests.patience import HANGS
from tests.rows import each
from wirewatch.core.types import Absent, Why
from wirewatch.hw.files import LIMIT, SystemSysfs, absent_errno

MTU = "/sys/class/net/eth0/mtu"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    device = tmp_path / "sys/devices/pci0000:00/0000:00:01.0/net/eth0"
    device.mkdir(parents=True)
    (device / "mtu").write_text("9000\n", "utf-8")
    net = tmp_path / "sys/class/net"
    net.mkdir(parents=True)
    for name in ("lo", "bond0"):
        (net / name).mkdir()
    (net / "eth0").symlink_to("../../devices/pci0000:00/0000:00:01.0/net/eth0")
    (net / "gone").symlink_to("../../devices/nothing")
    return tmp_path


def _absent(value: object) -> Absent:
    assert isinstance(value, Absent)
    return value


def test_a_file_is_read_without_its_line_end(root: Path) -> None:
    assert SystemSysfs(root).read(MTU) == "9000"


def test_an_empty_file_is_an_empty_text(root: Path) -> None:
    (root / "sys/empty").touch()
    assert SystemSysfs(root).read("/sys/empty") == ""


def test_a_file_that_is_no_text_is_read_all_the_same(root: Path) -> None:
    (root / "sys/config").write_bytes(b"\xde\x10\xff")
    assert isinstance(SystemSysfs(root).read("/sys/config"), str)


def test_an_endless_file_is_cut(root: Path) -> None:
    (root / "sys/endless").write_text("x" * (3 * LIMIT), "utf-8")
    assert SystemSysfs(root).read("/sys/endless") == "x" * LIMIT == "x" * 65536


def test_a_file_that_was_read_is_closed(root: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(9):
        SystemSysfs(root).read(MTU)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


def test_a_pipe_without_a_writer_does_not_stop_us(root: Path) -> None:
    os.mkfifo(root / "sys/trace_pipe")
    told: list[str | Absent] = []
    reading = threading.Thread(
        target=lambda: told.append(SystemSysfs(root).read("/sys/trace_pipe")), daemon=True
    )
    reading.start()
    reading.join(HANGS)
    assert told == [""]


def test_a_missing_file_folder_or_link_is_missing_and_named(root: Path) -> None:
    sysfs, path = SystemSysfs(root), "/sys/class/infiniband"
    for value in (sysfs.read(path), sysfs.entries(path), sysfs.link(path)):
        absent = _absent(value)
        assert absent.why is Why.MISSING
        assert path in absent.detail
        assert str(root) not in absent.detail


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_forbidden_file_is_denied(root: Path) -> None:
    (root / "sys/secret").touch(mode=0o000)
    assert _absent(SystemSysfs(root).read("/sys/secret")).why is Why.DENIED


def test_reading_a_folder_is_an_answer_and_no_crash(root: Path) -> None:
    assert "EISDIR" in _absent(SystemSysfs(root).read("/sys/class/net")).detail


def test_listing_a_file_is_an_answer_and_no_crash(root: Path) -> None:
    assert "ENOTDIR" in _absent(SystemSysfs(root).entries(MTU)).detail


def test_a_folder_is_listed_in_order_with_all_its_links(root: Path) -> None:
    assert SystemSysfs(root).entries("/sys/class/net") == ["bond0", "eth0", "gone", "lo"]


def test_a_link_resolves_to_the_path_that_the_kernel_would_say(root: Path) -> None:
    told = SystemSysfs(root).link("/sys/class/net/eth0")
    assert told == "/sys/devices/pci0000:00/0000:00:01.0/net/eth0"


def test_the_root_itself_resolves_to_the_root(root: Path) -> None:
    assert SystemSysfs(root).link("/") == "/"


def test_a_link_to_nothing_is_missing(root: Path) -> None:
    assert _absent(SystemSysfs(root).link("/sys/class/net/gone")).why is Why.MISSING


def test_the_root_may_be_a_link_itself(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other") / "root"
    other.symlink_to(root)
    sysfs = SystemSysfs(other)
    assert sysfs.read(MTU) == "9000"
    assert sysfs.link("/sys/class/net/eth0") == "/sys/devices/pci0000:00/0000:00:01.0/net/eth0"


def test_the_real_machine_answers() -> None:
    assert SystemSysfs().read("/proc/sys/kernel/osrelease") == os.uname().release
    assert SystemSysfs().link("/proc/self") == f"/proc/{os.getpid()}"


@each(
    ("number", "why"),
    [
        (errno.ENOENT, Why.MISSING), (errno.ENODEV, Why.LOST), (errno.ENXIO, Why.LOST),
        (errno.EMFILE, Why.EXHAUSTED), (errno.ENFILE, Why.EXHAUSTED), (errno.ENOMEM, Why.EXHAUSTED),
        (errno.EAGAIN, Why.MALFORMED),
        (errno.EACCES, Why.DENIED), (errno.EPERM, Why.DENIED), (errno.EINVAL, Why.UNSUPPORTED),
        (errno.EOPNOTSUPP, Why.UNSUPPORTED), (errno.ETIMEDOUT, Why.TIMEOUT), (errno.EIO, Why.MALFORMED),
    ],
)  # fmt: skip
def test_each_error_of_the_kernel_has_its_reason(number: int, why: Why) -> None:
    told = absent_errno(number, MTU)
    assert (told.why, told.code) == (why, number)
    assert errno.errorcode[number] in told.detail


def test_an_error_without_a_number_has_a_reason() -> None:
    told = absent_errno(OSError("no number").errno, MTU)
    assert (told.why, told.code) == (Why.MALFORMED, 0)
