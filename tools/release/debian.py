"""The Debian packages: a wheelhouse for each Python, the tap's library, and deploy/debian, by debhelper."""

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

from packaging.markers import Marker

from tests.ship.locks import PIN, blocks
from tools.release.manual import completions, manuals
from tools.release.pages import carry
from tools.release.source import BUILD, ReleaseError, Source

PYTHONS = ("3.11", "3.12", "3.13")
LOCKS = {"agent": "wheels", "nccl": "engine"}
GLIBC = 28
"""Minor number of the newest glibc that a wheel may ask for."""
LEGACY = ("manylinux2014", "manylinux2010", "manylinux1")
PLATFORM = platform.machine()
"""The packages are for the processor that they are made on."""


def ready() -> None:
    """Before minutes are spent on the rest.

    Raises:
        ReleaseError: a program that makes the packages is missing.
    """
    for program, package in (("dpkg-buildpackage", "dpkg-dev"), ("dh", "debhelper")):
        if shutil.which(program) is None:
            raise ReleaseError(f"{program} is not installed: on Debian, `apt-get install {package}`")


def packages(source: Source, folder: Path) -> Iterator[Path]:
    """wirewatch_VERSION_ARCH.deb and wirewatch-nccl_VERSION_ARCH.deb; asks the package index for wheels.

    Raises:
        ReleaseError: a wheel has another hash than the lock, a program is missing, or a link is dead.
    """
    place = source.tree(BUILD / "debian" / f"wirewatch-{source.version}")
    built = place / "built"
    for lock, where in LOCKS.items():
        _wheelhouse(source, lock, built / where)
        shutil.copy2(place / "deploy/image" / f"{lock}.txt", built)
    carry(place, built / "doc")
    manuals(built / "man", source.version, source.epoch)
    completions(built / "completions")
    _own(source, place, built)
    for kind in ("sysusers", "tmpfiles"):
        (built / f"{kind}.d").mkdir()
        shutil.copy2(place / "deploy/systemd" / f"wirewatch.{kind}", built / f"{kind}.d/wirewatch.conf")
    shutil.copytree(place / "deploy/debian", place / "debian")
    shutil.copy2(place / "deploy/systemd/wirewatch.service", place / "debian/wirewatch.service")
    (place / "debian/changelog").write_text(changelog(source), "utf-8")
    source.run("dpkg-buildpackage", "--build=any", "--no-sign", cwd=place)
    for made in sorted(place.parent.glob(f"*_{source.version}_*.deb")):
        yield Path(shutil.copy2(made, folder))


def changelog(source: Source) -> str:
    """What Debian's tools read the version and the time from."""
    when = format_datetime(datetime.fromtimestamp(source.epoch, UTC))
    return (
        f"wirewatch ({source.version}) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n"
        f" -- wirewatch maintainers <maintainers@example.org>  {when}\n"
    )


def requirements(lock: str, python: str) -> str:
    """A lock as one Python takes it: pip would ask markers of the Python that it runs in itself."""
    environment = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
    taken = []
    for block in blocks(lock):
        first, *hashes = block.splitlines()
        pin = PIN.match(first)
        assert pin, first
        if pin["marker"] is None or Marker(pin["marker"]).evaluate(environment):
            taken += [f"{pin['what']} \\", *hashes]
    return "\n".join(taken) + "\n"


def platforms() -> Iterator[str]:
    """What a wheel for this processor and GLIBC may be called."""
    yield from (f"manylinux_2_{minor}_{PLATFORM}" for minor in range(GLIBC, 4, -1))
    yield from (f"{name}_{PLATFORM}" for name in LEGACY)


def _wheelhouse(source: Source, lock: str, folder: Path) -> None:
    for python in PYTHONS:
        wanted = BUILD / f"{lock}-{python}.txt"
        wanted.write_text(requirements(lock, python), "utf-8")
        words = [word for platform in platforms() for word in ("--platform", platform)]
        source.run(
            sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
            "--only-binary", ":all:", "--require-hashes", "--implementation", "cp", "--python-version",
            python, *words, "--dest", str(folder), "--requirement", str(wanted), PIP_CONSTRAINT=os.devnull,
        )  # fmt: skip


def _own(source: Source, place: Path, built: Path) -> None:
    """Our wheel, with the tap's library in it, and that library where jobs look for it."""
    source.run("make", "--no-print-directory", "tap", cwd=place)
    library = place / "build/tap/libwirewatch-tap.so"
    shutil.copy2(library, place / "agent/tap")
    shutil.copy2(library, built)
    source.run(
        sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built / "wheels"), cwd=place
    )
