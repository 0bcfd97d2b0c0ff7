"""Disks, locks and folders that are not as they should be; disks are small and mounted for this."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from proof.siege.attack import Book, Siege
from proof.siege.attacks.processes import WORKING
from proof.siege.daemon import Besieged, Ground, SiegeError, Start

BOOK = Book()
NOBODY = 65534
WATCH = 6.0
"""Seconds for which what is broken stays so."""
BACK = 20.0
"""Seconds within which state is written again once that is possible."""
OFTEN = "[probe]\ninterval = 0.3\nsettle = 0.0\nprobe_interval = 0.5\nbudget = 1.0\njitter = 0.0\n"
PRECIOUS = "a file of root's that nobody asked to write\n"
COMMANDS = (
    ("check", "--deadline", "20s"), ("topology", "show"), ("record", "OUT"), ("probe",), ("findings", "list"),
)  # fmt: skip
HOSTILE = ("json", "logging", "asyncio", "pynvml", "signal", "typing", "struct")


@contextmanager
def disk(ground: Ground, kib: int, options: str = "") -> Iterator[Path]:
    """A file system for the state: ext4, which a fault can make read-only under those who use it."""
    ground.prepare()
    image, place = ground.folder / "disk", ground.state
    subprocess.run(["truncate", "-s", f"{kib}k", image], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-O", "^has_journal", "-m", "0", "-N", "32", image], check=True)
    subprocess.run(["mount", "-o", f"loop,errors=remount-ro{options}", image, place], check=True)
    try:
        (place / "lost+found").rmdir()
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=False)


def fill(place: Path) -> Path:
    """A folder that takes all the room there is: every block and every inode."""
    folder = place / "filler"
    folder.mkdir()
    with suppress(OSError), (folder / "blocks").open("ab", buffering=0) as out:
        while True:
            out.write(b"x" * 1024)
    with suppress(OSError):
        for number in range(1000):
            (folder / f"{number}").touch()
    return folder


def written_again(daemon: Besieged, since: float) -> float:
    """Seconds until the history was written.

    Raises:
        SiegeError: it was not, in time.
    """
    file, began = daemon.ground.state / "probes.sqlite", time.monotonic()
    while time.monotonic() < began + BACK:
        with suppress(OSError):
            if file.stat().st_mtime > since:
                return time.monotonic() - began
        time.sleep(0.1)
    raise SiegeError(f"no probe was kept within {BACK:g} s of the disk's return")


UNWRITTEN = frozenset({"agent.unwritten"})
"""The finding that says what is not written."""


def named(siege: Siege, daemon: Besieged) -> None:
    """The verdict says that what is remembered is not written."""
    found = {one["rule"] for one in daemon.health()["findings"]}
    siege.must(found >= UNWRITTEN, "no finding says so")


def served(siege: Siege, daemon: Besieged, seconds: float = WATCH) -> None:
    with siege.watched(daemon):
        time.sleep(seconds)


def warned(siege: Siege, daemon: Besieged) -> None:
    """It says what is wrong, in a few lines."""
    lines = [line for line in daemon.log.splitlines() if "WARN" in line or "ERROR" in line or "keep" in line]
    siege.must(lines, "the log says nothing of it")


@BOOK.attack("The state's disk is full at the start")
def full_at_start(siege: Siege) -> None:
    with siege.ground() as ground, disk(ground, 512) as place:
        fill(place)
        siege.allowed = UNWRITTEN
        with Besieged(ground, Start(config=OFTEN)) as daemon:
            served(siege, daemon)
            warned(siege, daemon)
            named(siege, daemon)


@BOOK.attack("It becomes full while the daemon runs and probes, and has room again")
def full_later(siege: Siege) -> None:
    with (
        siege.ground() as ground,
        disk(ground, 4096) as place,
        Besieged(ground, Start(config=OFTEN)) as daemon,
    ):
        siege.allowed = UNWRITTEN
        with siege.watched(daemon):
            file = fill(place)
            time.sleep(WATCH)
            now = time.time()
            shutil.rmtree(file)
            siege.figure("kept again after", written_again(daemon, now), "s")
        warned(siege, daemon)


@BOOK.attack("The state's disk is read-only at the start", short=True)
def read_only_at_start(siege: Siege) -> None:
    with siege.ground() as ground, disk(ground, 512) as place:
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        siege.allowed = UNWRITTEN
        with Besieged(ground, Start(config=OFTEN)) as daemon:
            served(siege, daemon)
            warned(siege, daemon)
            named(siege, daemon)


@BOOK.attack("A disk error makes it read-only while the daemon runs and probes")
def read_only_later(siege: Siege) -> None:
    with (
        siege.ground() as ground,
        disk(ground, 4096) as place,
        Besieged(ground, Start(config=OFTEN)) as daemon,
    ):
        siege.allowed = UNWRITTEN
        with siege.watched(daemon):
            device = subprocess.run(
                ["findmnt", "-n", "-o", "SOURCE", place], check=True, capture_output=True, text=True
            ).stdout.strip()
            Path(f"/sys/fs/ext4/{Path(device).name}/trigger_fs_error").write_text("1", "ascii")
            time.sleep(WATCH)
            siege.must(not _writable(place), "the disk could not be made read-only")
        warned(siege, daemon)


def _writable(place: Path) -> bool:
    try:
        (place / "tried").touch()
    except OSError:
        return False
    return True


def _folders(ground: Ground) -> None:
    for name in ("agent.lock", "probe.lock"):
        (ground.state / name).mkdir()


def _roots(ground: Ground) -> None:
    for name, mode in (("agent.lock", 0o600), ("probe.lock", 0o644)):
        (ground.state / name).write_text("1 wirewatch\n", "ascii")
        (ground.state / name).chmod(mode)


def _links(ground: Ground) -> None:
    (ground.folder / "foreign").write_text(PRECIOUS, "ascii")
    for name in ("agent.lock", "probe.lock"):
        (ground.state / name).symlink_to(ground.folder / "foreign")


def locked(siege: Siege, make: Callable[[Ground], None], user: int | None) -> None:
    """A daemon whose locks are something else: it serves, says so, and writes nothing that is not its own."""
    with siege.ground() as ground:
        ground.prepare()
        make(ground)
        ground.folder.chmod(0o755)
        with Besieged(ground, Start(user=user, config=WORKING.config, program=WORKING.program)) as daemon:
            siege.allowed = frozenset({"probe.", "straggler."})
            served(siege, daemon)
            text = daemon.get("/metrics")[1].decode()
            skips = [
                line
                for line in text.splitlines()
                if line.startswith('wirewatch_probe_skips_total{reason="locked"')
            ]
            runs = [
                float(line.split()[-1])
                for line in text.splitlines()
                if line.startswith("wirewatch_probe_runs_total")
            ]
            siege.figure("probes", sum(runs))
            siege.figure("probes left out as locked", sum(float(line.split()[-1]) for line in skips))
            if make is _roots:
                siege.must(sum(runs), "no probe ran")
        _intact(siege, ground)


def _intact(siege: Siege, ground: Ground) -> None:
    file = ground.folder / "foreign"
    if file.exists():
        siege.must(
            file.read_text("ascii") == PRECIOUS, f"root's file was written: {file.read_text('ascii')!r}"
        )


@BOOK.attack("The locks in the state folder are folders")
def lock_folder(siege: Siege) -> None:
    locked(siege, _folders, None)


@BOOK.attack(
    "The locks are root's, as a probe of root's left them, and the daemon runs as uid 65534",
    short=True,
)
def lock_of_root(siege: Siege) -> None:
    locked(siege, _roots, NOBODY)


@BOOK.attack("The locks are symbolic links to a file of root's, and the daemon runs as root")
def lock_link(siege: Siege) -> None:
    locked(siege, _links, None)


@BOOK.attack(
    "The same links in a folder of uid 65534, its daemon, and then root's `wirewatch probe` with that folder"
)
def lock_link_probe(siege: Siege) -> None:
    with siege.ground() as ground:
        ground.prepare()
        _links(ground)
        os.chown(ground.state, NOBODY, NOBODY)
        file = str(ground.prepare())
        done = ground.run("probe", "--config", file)
        again = ground.run("probe", "--config", file, "--replay", "demo-dgx-h200")
        siege.figure("exit statuses", done.returncode * 100 + again.returncode)
        _intact(siege, ground)
        siege.must("Traceback" not in done.stderr + again.stderr, "a traceback")
        owners = {one.name: one.lstat().st_uid for one in ground.state.iterdir() if not one.is_symlink()}
        roots = [name for name, owner in owners.items() if owner == 0]
        siege.must(not roots, f"root's files in the daemon's folder: {', '.join(sorted(roots))}")


@BOOK.attack("A second daemon on the same state folder")
def second(siege: Siege) -> None:
    with siege.ground() as ground, Besieged(ground) as daemon, siege.watched(daemon):
        other = Ground(ground.tree, ground.folder / "other")
        file = other.prepare(state=ground.state)
        done = other.run(
            "serve", "--config", str(file), "--listen", "127.0.0.1:0", "--replay", "demo-dgx-h200"
        )
        lines = [line for line in done.stderr.splitlines() if str(ground.state) in line]
        siege.figure("exit status of the second", done.returncode)
        siege.must(len(lines) == 1, f"says it in {len(lines)} lines: {done.stderr[-300:]}")


@BOOK.attack("Commands in a current folder with a `json.py`, a `wirewatch/` and five more of that kind")
def hostile_folder(siege: Siege) -> None:
    with siege.ground() as ground:
        ground.prepare()
        place, mark = ground.folder / "here", ground.folder / "ran"
        (place / "wirewatch").mkdir(parents=True)
        trap = f"import os, sys\nopen({str(mark)!r}, 'a').write(' '.join(sys.argv) + chr(10))\nos._exit(9)\n"
        for name in (*HOSTILE, "wirewatch/__init__"):
            (place / f"{name}.py").write_text(trap, "ascii")
        with Besieged(ground, Start(cwd=place)) as daemon:
            served(siege, daemon, 2.0)
        for words in COMMANDS:
            given = [str(ground.folder / "out") if word == "OUT" else word for word in words]
            replay = ["--replay", "demo-dgx-h200"] if words[0] in {"check", "topology", "probe"} else []
            ground.run(*given, *replay, cwd=place)
            ground.run(*given, cwd=place)
        ran = mark.read_text("ascii").splitlines() if mark.exists() else []
        siege.figure("processes that ran foreign code", len(ran))
        siege.must(not ran, f"foreign code ran in {len(ran)} processes")
