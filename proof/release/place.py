"""Where a release is made and tried: a clean clone of what is committed, and what it made."""

import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from proof.containers import BUILD, attempt, run
from tools.version import ROOT, version

PLACE = BUILD / "e2e-release"
CLONE = PLACE / "clone"
DIST = CLONE / "dist"
OLD = "ad375981"
"""The last commit whose state was 0.1's: history of version 1, no file of the machine."""
PYTHONS = ("3.11", "3.12", "3.13")
INHERITED = ("MAKELEVEL", "MAKEFLAGS", "MFLAGS")
"""How make tells a make below it that it is one."""


def file(ending: str) -> Path:
    """The one file of the release whose name ends so."""
    (found,) = (path for path in DIST.iterdir() if path.name.endswith(ending))
    return found


def wheel() -> Path:
    return file(f"wirewatch-{version()}-py3-none-any.whl")


def package(name: str = "wirewatch") -> Path:
    (found,) = DIST.glob(f"{name}_{version()}_*.deb")
    return found


def python(number: str) -> str:
    """An interpreter of this version, of the system or of pyenv."""
    homes = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{number}.*/bin/python"))
    return str(homes[0]) if homes else f"python{number}"


def clone(folder: Path = CLONE) -> Path:
    """The commit that is checked out, as somebody else would get it."""
    run("rm", "-rf", str(folder))
    run("git", "clone", "--quiet", str(ROOT), str(folder))
    return folder


def old_wheels() -> Path:
    """0.1 and all it needs, for the system's Python; kept."""
    wheels = PLACE / "wheels-0.1"
    if not wheels.exists():
        tree = PLACE / "0.1"
        tree.mkdir(parents=True, exist_ok=True)
        packed = subprocess.run(("git", "archive", OLD), cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(("tar", "x", "-C", str(tree)), input=packed, check=True)
        fresh = PLACE / "wheels-0.1.new"
        run(sys.executable, "-m", "pip", "wheel", "--quiet", "--wheel-dir", str(fresh), str(tree))
        fresh.rename(wheels)
    return wheels


def typed(*words: str, cwd: Path = CLONE) -> "subprocess.CompletedProcess[str]":
    """`make` as somebody types it: it knows nothing of the make that runs these proofs."""
    bare = [word for name in INHERITED for word in ("-u", name)]
    return attempt("env", *bare, "make", "--no-print-directory", "-C", str(cwd), *words, seconds=3000)


def make(*words: str) -> Iterator[str]:
    """Lines that make prints on standard output.

    Raises:
        AssertionError: it failed; with the end of what it said.
    """
    done = typed(*words)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    yield from done.stdout.splitlines()


@contextmanager
def running(*command: str, ends: Collection[int] = (0,)) -> Iterator[None]:
    """A program while the block runs, and how it may end at SIGTERM."""
    with (PLACE / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            code = process.wait(20)
    assert code in ends, (code, (PLACE / "log").read_text("utf-8")[-2000:])
