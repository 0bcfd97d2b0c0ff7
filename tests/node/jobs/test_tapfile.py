"""The tap's library: which file is one, and how it comes to its place and leaves it."""

import mmap
import os
import platform
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.disks import OTHER as OTHER_USER
from tests.disks import needs_root, small_disk
from tests.node.jobs.taplibraries import NUMBERS, compiler, library, place, source
from wirewatch.core.types import Absent, Why
from wirewatch.jobs.tap import tapfile
from wirewatch.jobs.tap.tapfile import (
    COMPILE,
    LIBRARY,
    LINK,
    TapError,
    described,
    install,
    machine_of,
    uninstall,
)

OTHER = next(name for name in NUMBERS if name != platform.machine())


def refused(folder: Path, *places: Path, compiler: str | None = None, search: str = "/nowhere") -> str:
    before = sorted(folder.iterdir()) if folder.exists() else None
    with pytest.raises(TapError) as caught:
        install(folder, compiler, places, search)
    assert (sorted(folder.iterdir()) if folder.exists() else None) == before
    return str(caught.value)


def test_a_file_is_a_tap_by_its_marks_and_its_machine(tmp_path: Path) -> None:
    for name, data, expected in (
        ("own", library(), platform.machine()), ("other", library(OTHER), OTHER),
    ):  # fmt: skip
        (tmp_path / name).write_bytes(data)
        assert described(tmp_path / name) == expected
    for name, data in (
        ("text", b"NCCL_PROFILER_PLUGIN"), ("empty", b""), ("program", library(kind=2)),
        ("nccl", library(marks=b"ncclProfiler_v5\0")), ("short", library()[:10]),
    ):  # fmt: skip
        (tmp_path / name).write_bytes(data)
        found = described(tmp_path / name)
        assert isinstance(found, Absent)
        assert found.why is Why.MALFORMED
    found = described(tmp_path / "none")
    assert isinstance(found, Absent)
    assert found.why is Why.MISSING


def test_the_marks_of_a_tap_are_in_its_first_sixteen_mebibytes(tmp_path: Path) -> None:
    for start, found in ((15 << 20, True), (17 << 20, False)):
        path = tmp_path / str(start)
        with path.open("wb") as file:
            file.write(library(marks=b""))
            file.seek(start)
            file.write(b"ncclProfiler_v5\0wirewatch-tap\0")
        assert (described(path) == platform.machine()) is found


def test_a_machine_is_known_by_the_head_of_its_libraries() -> None:
    head = library(marks=b"")
    assert machine_of(head) == platform.machine()
    assert isinstance(machine_of(head[:-1]), Absent)
    assert machine_of(head[:-2] + b"\x03\0") == Absent(Why.UNSUPPORTED, "for a machine that ELF numbers 3")


@given(st.binary(max_size=64))
def test_any_bytes_have_a_machine_or_a_reason(data: bytes) -> None:
    assert isinstance(machine_of(data), Absent)


def test_the_binary_of_the_package_is_put_into_a_folder_that_is_made(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        done = install(tmp_path / "opt/nccl", places=(place(tmp_path / "package", library()),))
    finally:
        os.umask(before)
    assert done.path == tmp_path / "opt/nccl" / LIBRARY
    assert done.path.read_bytes() == library()
    assert (done.machine, done.size_bytes) == (platform.machine(), len(library()))
    modes = [path.stat().st_mode & 0o777 for path in (done.path, tmp_path / "opt", tmp_path / "opt/nccl")]
    assert modes == [0o755] * 3, "jobs of all users load it, whatever root's umask is"
    assert [path.name for path in (tmp_path / "opt/nccl").iterdir()] == [LIBRARY]


def test_a_new_one_takes_the_name_and_a_job_keeps_the_old_one(tmp_path: Path) -> None:
    first = install(tmp_path / "opt", places=(place(tmp_path / "old", library(rest=b"old")),))
    with first.path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        install(tmp_path / "opt", places=(place(tmp_path / "new", library(rest=b"new")),))
        assert mapped[:] == library(rest=b"old")
    assert first.path.read_bytes() == library(rest=b"new")


def test_without_a_binary_the_source_is_compiled(tmp_path: Path) -> None:
    code, programs = source(tmp_path / "source"), compiler(tmp_path / "bin", library())
    done = install(tmp_path / "opt", places=(tmp_path / "none", code), search=str(programs))
    assert done.made == f"compiled by cc from {code}"
    asked = (programs / "asked").read_text().splitlines()
    assert asked[: len(COMPILE)] == list(COMPILE)
    assert asked[len(COMPILE) + 2 :] == [str(code / "one.c"), str(code / "two.c"), *LINK]


def test_a_binary_for_another_machine_is_no_binary(tmp_path: Path) -> None:
    code, programs = source(tmp_path / "source"), compiler(tmp_path / "bin", library())
    (code / LIBRARY).write_bytes(library(OTHER))
    assert install(tmp_path / "opt", places=(code,), search=str(programs)).machine == platform.machine()


def test_a_compiler_that_is_named_compiles_though_a_binary_is_there(tmp_path: Path) -> None:
    code, programs = source(tmp_path / "source"), compiler(tmp_path / "bin", library(rest=b"made here"))
    (code / LIBRARY).write_bytes(library())
    done = install(tmp_path / "opt", str(programs / "cc"), (code,))
    assert done.path.read_bytes().endswith(b"made here")


def test_what_a_compiler_cannot_make_is_said_in_one_line(tmp_path: Path) -> None:
    code = source(tmp_path / "source")
    failing = compiler(tmp_path / "bin", b"", status=1, says="one.c:1: note\none.c:2:3: error: no such thing")
    text = refused(tmp_path / "opt", code, search=str(failing))
    assert text == "cc ended with status 1: one.c:2:3: error: no such thing"
    assert "a C compiler is needed" in refused(tmp_path / "opt", code)
    silent = compiler(tmp_path / "silent", None)
    assert refused(tmp_path / "opt", code, search=str(silent)) == "cc ended with status 0: "
    halfway = compiler(tmp_path / "halfway", library(), status=1, says="one.c:1: error: odd")
    text = refused(tmp_path / "opt", code, search=str(halfway))
    assert text == "cc ended with status 1: one.c:1: error: odd"
    strange = compiler(tmp_path / "strange", b"text")
    assert "made something else" in refused(tmp_path / "opt", code, search=str(strange))
    crossed = compiler(tmp_path / "cross", library(OTHER))
    assert f"{OTHER}, and this machine is" in refused(tmp_path / "opt", code, search=str(crossed))


def test_a_package_without_a_tap_says_so(tmp_path: Path) -> None:
    assert "neither the tap's binary nor its source" in refused(tmp_path / "opt", tmp_path)


def test_a_file_of_another_user_is_left_as_it_is(tmp_path: Path) -> None:
    folder = place(tmp_path / "opt", b"another library")
    assert "is not wirewatch's tap" in refused(folder, place(tmp_path / "package", library()))
    assert (folder / LIBRARY).read_bytes() == b"another library"
    with pytest.raises(TapError, match="is not wirewatch's tap"):
        uninstall(folder)
    assert (folder / LIBRARY).exists()


def test_where_anybody_may_replace_it_no_library_is_put(tmp_path: Path) -> None:
    folder = tmp_path / "opt"
    folder.mkdir()
    folder.chmod(0o777)
    assert "run code in every job" in refused(folder, place(tmp_path / "package", library()))
    folder.chmod(0o1777)
    assert install(folder, places=(tmp_path / "package",)).path.exists(), "nobody replaces a file of another"


def test_where_no_job_could_load_it_no_library_is_put(tmp_path: Path) -> None:
    package = place(tmp_path / "package", library())
    with small_disk("1m", more=",noexec") as disk:
        assert "mounted noexec: no job could load it" in refused(disk, package)
    with small_disk("1m") as disk:
        assert install(disk, places=(package,)).path.exists()


def test_a_file_that_cannot_be_opened_is_not_missing(tmp_path: Path) -> None:
    folder = tmp_path / "opt"
    folder.mkdir()
    (folder / LIBRARY).symlink_to(LIBRARY)
    found = described(folder / LIBRARY)
    assert isinstance(found, Absent)
    assert found.why is Why.DENIED
    assert "it is left as it is" in refused(folder, place(tmp_path / "package", library()))


def test_a_folder_that_others_cannot_reach_is_remarked(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o700)
    done = install(tmp_path / "closed/opt", places=(place(tmp_path / "package", library()),))
    assert any(f"{tmp_path / 'closed'} is closed to them" in remark for remark in done.remarks)


@needs_root
def test_a_folder_of_another_user_is_remarked(tmp_path: Path) -> None:
    """Who owns a folder replaces the files in it."""
    (tmp_path / "home").mkdir()
    os.chown(tmp_path / "home", OTHER_USER, OTHER_USER)
    done = install(tmp_path / "home/opt", places=(place(tmp_path / "package", library()),))
    assert (
        f"user {OTHER_USER}, who owns {tmp_path / 'home'}, can replace it in every job that loads it"
        in done.remarks
    )


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_left_as_it_is_and_delays_nothing(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    folder = tmp_path / "opt"
    folder.mkdir()
    make(folder / LIBRARY)
    assert "is not wirewatch's tap" in refused(folder, place(tmp_path / "package", library()))
    with pytest.raises(TapError, match="is not wirewatch's tap"):
        uninstall(folder)


def test_a_link_gives_its_name_to_the_new_library_and_what_it_pointed_to_stays(tmp_path: Path) -> None:
    folder, old = tmp_path / "opt", place(tmp_path / "old", library(rest=b"old"))
    folder.mkdir()
    (folder / LIBRARY).symlink_to(old / LIBRARY)
    done = install(folder, places=(place(tmp_path / "new", library(rest=b"new")),))
    assert not done.path.is_symlink()
    assert done.path.read_bytes() == library(rest=b"new")
    assert (old / LIBRARY).read_bytes() == library(rest=b"old")


def test_a_disk_that_is_full_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    folder = place(tmp_path / "opt", library(rest=b"old"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    new = place(tmp_path / "package", library(rest=bytes(100_000)))
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        text = refused(folder, new)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert "File too large" in text
    assert (folder / LIBRARY).read_bytes() == library(rest=b"old")


def test_it_is_removed_once(tmp_path: Path) -> None:
    folder = place(tmp_path / "opt", library())
    assert uninstall(folder) == folder / LIBRARY
    with pytest.raises(TapError, match="No such file"):
        uninstall(folder)


def test_source_and_package_lie_where_they_are_looked_for() -> None:
    assert any((folder / "ring.h").is_file() for folder in tapfile.PLACES)
