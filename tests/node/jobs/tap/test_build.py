"""The library loads with every glibc since 2.17 and gives four symbols."""

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.node.jobs.tap.playing import BUILT, ROOT, Player, built, channel, collective

SOURCES = sorted(str(path) for path in (ROOT / "agent" / "tap").glob("*.c"))
IMPORTS = {
    # Of files and memory, at init and finalize.
    "open", "openat", "close", "read", "unlinkat", "fchmod", "fstatfs", "flock", "posix_fallocate",
    "getrlimit", "mmap", "munmap", "madvise", "getenv", "getpid", "snprintf", "__register_atfork",
    # Where they are, weak.
    "dlopen", "dlsym", "dladdr", "dlclose", "dl_iterate_phdr",
    # Of events.
    "clock_gettime", "__tls_get_addr", "strcmp", "strncmp", "memcpy", "__errno_location",
    # Of every library.
    "__cxa_finalize", "__gmon_start__", "_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable",
    "__stack_chk_fail", "__snprintf_chk",
}  # fmt: skip


@pytest.fixture(scope="module")
def library() -> Path:
    built()
    made = subprocess.run(["make", "-s", "tap"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return BUILT / "libwirewatch-tap.so"


def objdump(*arguments: str) -> str:
    if shutil.which("objdump") is None:
        pytest.fail("objdump is missing, which comes with the compiler")
    return subprocess.run(["objdump", *arguments], capture_output=True, text=True, check=True).stdout


def test_four_symbols_out_and_a_short_list_in(library: Path) -> None:
    """No allocation, no thread, no printing: none of it can be called."""
    symbols = [
        line.split() for line in objdump("-T", str(library)).splitlines() if re.match("[0-9a-f]{16}", line)
    ]
    assert {s[-1] for s in symbols if "*UND*" not in s} == {
        "ncclProfiler_v4",
        "ncclProfiler_v5",
        "ncclProfiler_v6",
        "ncclProfiler_v7",
    }
    assert {s[-1] for s in symbols if "*UND*" in s} <= IMPORTS


def test_no_symbol_is_younger_than_glibc_2_17(library: Path) -> None:
    versions = {
        tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([0-9.]+)", objdump("-T", str(library)))
    }
    assert versions
    assert max(versions) <= (2, 17)
    weak = {
        line.split()[-1] for line in objdump("-T", str(library)).splitlines() if re.search(r"\sw\s+D", line)
    }
    assert {"dlopen", "dlsym", "dladdr", "dlclose"} <= weak


def test_it_needs_libc_alone_and_stays(library: Path) -> None:
    private = objdump("-p", str(library))
    assert set(re.findall(r"NEEDED\s+(\S+)", private)) <= {
        "libc.so.6", "libdl.so.2", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1",
    }  # fmt: skip
    (flags,) = re.findall(r"FLAGS_1\s+0x([0-9a-f]+)", private)
    assert int(flags, 16) & 0x8  # nodelete
    assert "RPATH" not in private
    assert "RUNPATH" not in private


def test_a_plain_compiler_makes_one_that_works_and_stays(folder: Path) -> None:
    """As `wirewatch jobs install` does on a node; unloaded by NCCL it is still there for the fork handler."""
    built()
    plain = folder / "tap.so"
    made = subprocess.run(
        ["cc", "-shared", "-fPIC", "-o", plain, *SOURCES], capture_output=True, text=True, check=False
    )
    assert (made.returncode, made.stderr) == (0, "")
    with Player(folder, "PLAIN") as player:
        player.do(f"load {plain}")
        player.all("init 5 0 1 1 2 0 -\ncall 5 0 1 0\n" + collective(channels=1))
        player.do("unload")
        player.all(channel(0, 5, 9))
        assert player.ring().written == 1
        player.send("child")
        assert player.answer() == "child"
        player.send("end")
        assert player.answer() == "0"
        player.do("finalize 5 0")


def test_its_version_is_that_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f'#define WW_TAP_VERSION "{project}"' in (ROOT / "agent" / "tap" / "tap.h").read_text()


def test_the_wheel_and_the_source_archive_carry_it(tmp_path: Path) -> None:
    for kind in ("wheel", "sdist"):
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", tmp_path],
            cwd=ROOT, check=True, capture_output=True,
        )  # fmt: skip
    sources = {path.name for path in (ROOT / "agent" / "tap").iterdir() if path.suffix in {".c", ".h"}}
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        names = {Path(name) for name in wheel.namelist()}
        assert {path.name for path in names if path.parent == Path("wirewatch/tap")} >= sources
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        paths = [Path(name) for name in archive.getnames()]
        assert {path.name for path in paths if path.match("agent/tap/*")} >= sources
