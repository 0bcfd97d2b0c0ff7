"""The library that jobs load: found beside the package or compiled from its source, installed and removed.

A running job maps the file. Overwriting it in place changes the job's code, and so ends the job. So a new
file always takes the name, and jobs that map the old file keep it.
"""

import os
import platform
import struct
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from wirewatch.core.types import Absent, Why
from wirewatch.hw.command import SEARCH, Programs
from wirewatch.jobs.tap.folders import KINDS

LIBRARY = "libwirewatch-tap.so"
COMPILER = "cc"
PLACES = (Path(__file__).parents[2] / "tap", Path(__file__).parents[3] / "tap")
"""Where source and binary lie: in the package, and in a checkout beside it."""
COMPILE = (
    "-std=c11",
    "-O2",
    "-fPIC",
    "-fvisibility=hidden",
    "-fstack-protector-strong",
    "-D_FORTIFY_SOURCE=2",
)
LINK = ("-shared", "-Wl,-z,nodelete,-z,relro,-z,now,-z,noexecstack,--no-as-needed,-l:libdl.so.2")
MACHINES: Mapping[int, str] = {62: "x86_64", 183: "aarch64"}
"""Those that ELF numbers so, and that the tap was made for."""
_PATIENCE = 120.0
"""Seconds for the compiler, which takes less than one."""
_ELF = struct.Struct("<4s2B10xHH")
_SHARED, _64_BITS, _LITTLE = 3, 2, 1
_MARKS = (b"ncclProfiler_v5\0", b"wirewatch-tap\0")
"""Bytes that stand in every tap: a symbol that NCCL looks for, and our name of the plugin."""
_MOST = 16 << 20
"""Bytes of a library; ours has less than a hundred thousand."""


class TapError(Exception):
    """The library cannot be made, installed or removed; the text is one line for the user."""


@dataclass(frozen=True, slots=True)
class Installed:
    """A library in its place; `made`: where it is from, `remarks`: why jobs might not be able to load it."""

    path: Path
    machine: str
    size_bytes: int
    made: str
    remarks: tuple[str, ...] = ()


def described(path: Path) -> str | Absent:
    """The machine that a tap is for; MISSING, or why the file is not a tap."""
    try:
        if path.exists() and not path.is_file():
            return _none(path)  # a pipe would keep whoever opens it waiting
        with path.open("rb") as file:
            data = file.read(_MOST)
    except OSError as error:
        why = Why.MISSING if isinstance(error, FileNotFoundError) else Why.DENIED
        return Absent(why, f"{path}: {error.strerror}", error.errno)
    return machine_of(data) if all(mark in data for mark in _MARKS) else _none(path)


def machine_of(data: bytes) -> str | Absent:
    """The machine that a shared library is for."""
    if len(data) < _ELF.size:
        return Absent(Why.MALFORMED, "not a shared library")
    magic, bits, order, kind, machine = _ELF.unpack_from(data)
    if (magic, bits, order, kind) != (b"\x7fELF", _64_BITS, _LITTLE, _SHARED):
        return Absent(Why.MALFORMED, "not a shared library of 64 bits")
    return MACHINES.get(machine) or Absent(Why.UNSUPPORTED, f"for a machine that ELF numbers {machine}")


def install(
    folder: Path, compiler: str | None = None, places: Sequence[Path] = PLACES, search: str = SEARCH
) -> Installed:
    """Put the library into a folder; a `compiler` makes it here even where a binary came with the package.

    Raises:
        TapError: nothing was changed.
    """
    target = folder / LIBRARY
    there = described(target)
    if isinstance(there, Absent) and there.why is not Why.MISSING:
        raise TapError(f"{there.detail}: it is left as it is")
    data, made = _library(compiler, places, search)
    machine = machine_of(data)
    if machine != platform.machine():
        raise TapError(f"{made}: {machine}, and this machine is {platform.machine()}")
    try:
        _make(folder)
        if wrong := _unsafe(folder):
            raise TapError(f"{folder}: {wrong}")
        _replace(target, data)
    except OSError as error:
        raise TapError(f"{folder}: {error.strerror}") from error
    return Installed(target, machine, len(data), made, tuple(_remarks(folder)))


def uninstall(folder: Path) -> Path:
    """Remove the library; jobs that map it go on.

    Raises:
        TapError: there is no tap, or the file is not ours; nothing was changed.
    """
    target = folder / LIBRARY
    there = described(target)
    if isinstance(there, Absent):
        raise TapError(there.detail)
    try:
        target.unlink()
    except OSError as error:
        raise TapError(f"{target}: {error.strerror}") from error
    return target


def _none(path: Path) -> Absent:
    return Absent(Why.MALFORMED, f"{path} is not wirewatch's tap")


def _library(compiler: str | None, places: Sequence[Path], search: str) -> tuple[bytes, str]:
    """The library and where it is from: the binary for this machine, else what the compiler makes."""
    if compiler is None:
        for place in places:
            if described(place / LIBRARY) == platform.machine():
                return (place / LIBRARY).read_bytes(), f"the binary at {place / LIBRARY}"
    source = next((place for place in places if (place / "ring.h").is_file()), None)
    if source is None:
        raise TapError("this package has neither the tap's binary nor its source")
    return _compiled(source, compiler or COMPILER, search)


def _compiled(source: Path, compiler: str, search: str) -> tuple[bytes, str]:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / LIBRARY
        files = sorted(str(path.absolute()) for path in source.glob("*.c"))
        done = Programs(search).run([compiler, *COMPILE, "-o", str(target), *files, *LINK], _PATIENCE)
        if isinstance(done, Absent):
            raise TapError(f"{done.detail}; a C compiler is needed where no binary came with the package")
        if done.status or not target.is_file():
            first = next((line for line in done.err.splitlines() if "error" in line), done.err[-300:])
            raise TapError(f"{compiler} ended with status {done.status}: {first.strip()}")
        if isinstance(found := described(target), Absent):
            raise TapError(f"{compiler} made something else: {found.detail}")
        return target.read_bytes(), f"compiled by {compiler} from {source}"


def _make(folder: Path) -> None:
    """Make the folder with its parents, open to all whatever the umask is."""
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    for place in reversed(missing):
        place.mkdir()
        place.chmod(0o755)


def _replace(target: Path, data: bytes) -> None:
    """Give a new file the name; processes that map the old file keep it."""
    handle, name = tempfile.mkstemp(prefix=f".{LIBRARY}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), 0o755)
            os.fsync(file.fileno())
        os.replace(name, target)  # noqa: PTH105 - a name that mkstemp gave
    except BaseException:
        with suppress(OSError):
            os.unlink(name)  # noqa: PTH108
        raise


def _unsafe(folder: Path) -> str:
    """Return why no library may lie there that every job loads; empty where it may."""
    about = folder.stat()
    if about.st_mode & 0o002 and not about.st_mode & 0o1000:
        return "anybody may replace a file there, and so run code in every job"
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        return "its file system is mounted noexec: no job could load it"
    return ""


def _remarks(folder: Path) -> list[str]:
    places = [(place, place.stat()) for place in (folder, *folder.parents)]
    closed = [place for place, about in places if not about.st_mode & 0o001]
    owned = [(place, about.st_uid) for place, about in places if about.st_uid not in {0, os.geteuid()}]
    return [
        *(f"other users' jobs cannot reach it: {place} is closed to them" for place in closed),
        *(f"user {uid}, who owns {place}, can replace it in every job that loads it" for place, uid in owned),
    ]


_OTHERS_WRITE, _STICKY, _GROUP = 0o002, 0o1000, 0o2000
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})


def folder_remarks(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> tuple[str, ...]:
    """Return why jobs may leave no rings there, or why the folder is unsafe; empty where all is well."""
    return tuple(_folder_remarks(folder, mounts))


def _folder_remarks(folder: Path, mounts: Path) -> Iterator[str]:
    try:
        about, jobs = folder.stat(), any((folder / kind).exists() for kind in KINDS)
    except FileNotFoundError:
        yield "not there: no job can leave a ring (systemd-tmpfiles --create, docs/jobs.md)"
        return
    except OSError as error:
        yield f"cannot be looked at: {error.strerror}"
        return
    mode = about.st_mode
    if not mode & _OTHERS_WRITE and not jobs:
        yield "jobs of other users cannot write there: mode 3773"
    if mode & _OTHERS_WRITE and not mode & _STICKY:
        yield "not sticky: any user may remove the rings of others: mode 3773"
    if mode & _OTHERS_WRITE and not mode & _GROUP:
        yield "without the set-group-ID bit only root reads the rings of others: mode 3773"
    kind = filesystem(about.st_dev, mounts)
    if kind and kind not in _IN_MEMORY:
        yield f"on {kind}: the tap writes to tmpfs only, since a disk would delay the job"
    elif kind and not _mounted(folder, mounts):
        yield "no mount of its own: jobs may fill the file system that it is part of (docs/jobs.md)"


def _mounted(folder: Path, mounts: Path) -> bool:
    """Tell whether a file system begins there; what a container mounts may be a part of another."""
    lines = (line.split()[3:5] for line in mounts.read_text("utf-8", "replace").splitlines())
    return ["/", str(folder)] in lines


def filesystem(device: int, mounts: Path) -> str:
    """The type of the file system with this device number; empty where it cannot be found."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = mounts.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    mounted = (line.partition(" - ")[::2] for line in lines)
    kinds = [after.split()[:1] for before, after in mounted if before.split()[2:3] == [wanted]]
    return "".join(kinds[0]) if kinds else ""
