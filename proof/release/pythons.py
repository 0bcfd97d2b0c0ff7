"""Wheel and source archive on each Python, and the wrong Pythons. Each step asserts, and says what it saw."""

import shutil
import sys
import time
import zipfile
from pathlib import Path

from proof.containers import attempt, run
from proof.image.running import get
from proof.rehearsal.services import free_port
from proof.release.place import CLONE, PLACE, PYTHONS, file, old_wheels, python, running, typed, wheel
from tests.waiting import until
from tools.version import version

WRONG = "3.10"


def wheels() -> str:
    """Installed, run on a recording, upgraded from 0.1 where that can be installed, and removed."""
    seen = []
    for number in PYTHONS:
        place = PLACE / f"venv-{number}"
        shutil.rmtree(place, ignore_errors=True)
        run(python(number), "-m", "venv", str(place))
        began = time.monotonic()
        pip(place, "install", str(wheel()))
        took = time.monotonic() - began
        first = serves(place)
        pip(place, "uninstall", "--yes", "wirewatch")
        left = [path for path in place.rglob("*wirewatch*") if path.name != "__pycache__"]
        assert not left, left
        told = run(str(place / "bin/python"), "--version").split()[1]
        seen.append(f"{told} (installed in {took:.0f} s, first metrics {first:.1f} s after its start)")
    return f"installed, served, removed without a trace on {', '.join(seen)}"


def upgraded() -> str:
    """0.1 and then this, in one environment."""
    place = PLACE / "venv-upgraded"
    shutil.rmtree(place, ignore_errors=True)
    run(sys.executable, "-m", "venv", str(place))
    pip(place, "install", "--no-index", "--find-links", str(old_wheels()), "wirewatch")
    assert run(str(place / "bin/wirewatch"), "--version").split()[-1] == "0.1.0"
    pip(place, "install", "--upgrade", str(wheel()))
    assert run(str(place / "bin/wirewatch"), "--version").split()[-1] == version()
    run(str(place / "bin/python"), "-m", "pip", "check")
    serves(place)
    return f"0.1.0, then {version()} by `pip install --upgrade`: serves, `pip check` finds nothing"


def source() -> str:
    """The wheel that somebody builds of the source archive is the one that is released."""
    folder = PLACE / "from-source"
    shutil.rmtree(folder, ignore_errors=True)
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(folder),
        str(file(".tar.gz")),
    )
    (built,) = folder.iterdir()
    with zipfile.ZipFile(built) as ours, zipfile.ZipFile(wheel()) as released:
        both = [{one.filename: one.CRC for one in archive.infolist()} for archive in (ours, released)]
    assert both[0] == both[1], sorted(both[0].items() ^ both[1].items())
    return f"the wheel built of it has the {len(both[0])} files of the released one, each equal"


def wrong() -> str:
    """`make run` and `pip install` with a Python that is too old; and the next `make` with a right one."""
    shutil.rmtree(CLONE / ".venv-wrong", ignore_errors=True)
    done = typed("VENV=.venv-wrong", "run", f"PYTHON={python(WRONG)}")
    first, *rest = done.stderr.splitlines()
    assert done.returncode != 0
    assert first.startswith("make: Python 3.11 to 3.13 is needed"), first
    assert all(line.startswith("make: ***") for line in rest), rest
    assert not (CLONE / ".venv-wrong").exists()
    done = typed("VENV=.venv-wrong", ".venv-wrong/bin/python", f"PYTHON={python(PYTHONS[0])}")
    assert done.returncode == 0, done.stderr
    shutil.rmtree(CLONE / ".venv-wrong")
    shutil.rmtree(PLACE / "venv-wrong", ignore_errors=True)
    run(python(WRONG), "-m", "venv", str(PLACE / "venv-wrong"))
    done = attempt(str(PLACE / "venv-wrong/bin/python"), "-m", "pip", "install", "--no-deps", str(wheel()))
    (said,) = (line for line in done.stderr.splitlines() if "requires a different Python" in line)
    told = first.split(": try")[0].replace(python(WRONG), f"python{WRONG}")
    return f"`{told}`, nothing is left, the next make works; pip: `{said.strip()}`"


def serves(place: Path) -> float:
    """Seconds from the start of the daemon until its metrics of the demo were there; `check` agrees."""
    port = free_port()
    began = time.monotonic()
    with running(str(place / "bin/wirewatch"), "demo", "--here", "--listen", f"127.0.0.1:{port}"):
        until("no metrics", lambda: 'wirewatch_health{health="ok"} 1.0' in get(port, "/metrics")[1], 90)
        return time.monotonic() - began


def pip(place: Path, *words: str) -> None:
    run(str(place / "bin/python"), "-m", "pip", "--quiet", "--disable-pip-version-check", *words)
