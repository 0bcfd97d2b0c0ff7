"""A Debian with systemd as process 1 and the agent installed as deploy/systemd/README.md says, in podman."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from proof.containers import LIMITS, attempt, debian, needs, podman, run, store
from wirewatch.jobs.tap.tapfile import install

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "e2e-systemd"
NEEDED = ("mmdebstrap", "buildah", "podman", "runc")
IMAGE = "localhost/wirewatch-e2e-systemd"
INSTALL = """
set -e
python3 -m venv /opt/wirewatch
/opt/wirewatch/bin/pip install --quiet --no-index --find-links /wheels wirewatch
cd /deploy
install -D -m 644 wirewatch.sysusers /usr/lib/sysusers.d/wirewatch.conf
install -D -m 644 wirewatch.tmpfiles /usr/lib/tmpfiles.d/wirewatch.conf
systemd-sysusers wirewatch.conf
systemd-tmpfiles --create wirewatch.conf
install -m 640 -g wirewatch /dev/null /etc/wirewatch/wirewatch.toml
install -m 644 wirewatch.service /etc/systemd/system/
systemctl enable wirewatch
cd /jobs
install -m 644 wirewatch-jobs.mount '/etc/systemd/system/run-wirewatch\\x2djobs.mount'
systemctl enable 'run-wirewatch\\x2djobs.mount'
chmod -R a+rX /jobs
"""
"""The steps of deploy/systemd/README.md and docs/jobs.md, but for where the packages come from."""


def build() -> None:
    """The image, of Debian's packages and this checkout; what does not change is kept between runs."""
    needs(*NEEDED)
    wheels = BUILD / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    for old in wheels.glob("wirewatch-*.whl"):
        old.unlink()
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--wheel-dir", str(wheels), str(ROOT))
    jobs = BUILD / "jobs"
    shutil.copytree(ROOT / "deploy/jobs", jobs, dirs_exist_ok=True)
    shutil.copy2(ROOT / "tests/system/tapjob.py", jobs)
    install(jobs)
    base = debian(BUILD, "systemd", "systemd-sysv", "python3", "python3-venv")
    container = run("buildah", *store(BUILD), "from", "scratch").strip()
    try:
        for what, where in (
            (base, "/"),
            (wheels, "/wheels"),
            (ROOT / "deploy/systemd", "/deploy"),
            (jobs, "/jobs"),
        ):
            run("buildah", *store(BUILD), "add", "--quiet", container, str(what), where)
        chroot = ("run", "--isolation", "chroot", container, "--", "sh", "-c", INSTALL)
        run("buildah", *store(BUILD), *chroot)
        run("buildah", *store(BUILD), "config", "--cmd", "/sbin/init", container)
        run("buildah", *store(BUILD), "commit", "--quiet", container, IMAGE)
    finally:
        run("buildah", *store(BUILD), "rm", container)


class Machine:
    """Runs while its block does, without a network; `more` are words for `podman run`."""

    def __init__(self, place: Path = BUILD, image: str = IMAGE, *more: str) -> None:
        self._podman, self._image, self._more = podman(place), image, more
        self._name = f"wirewatch-e2e-{os.getpid()}"

    def __enter__(self) -> Self:
        run(
            *self._podman, "run", "--detach", "--name", self._name, "--systemd=always", "--privileged",
            "--no-healthcheck", *LIMITS, "--network", "none", *self._more, self._image,
        )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        run(*self._podman, "rm", "--force", "--time", "2", self._name)

    def do(self, *command: str) -> str:
        return run(*self._podman, "exec", self._name, *command)

    def attempt(self, *command: str) -> int:
        """The exit status."""
        return self.tried(*command).returncode

    def tried(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """A command that may fail, with all that it said."""
        return attempt(*self._podman, "exec", self._name, *command, seconds=600)

    def write(self, path: str, text: str) -> None:
        self.do("python3", "-c", f"import pathlib as p; p.Path({path!r}).write_text({text!r})")

    def unit(self) -> dict[str, str]:
        """What systemd says of the service."""
        lines = self.do("systemctl", "show", "wirewatch").splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def until(self, seconds: float, **wanted: str) -> dict[str, str]:
        """Wait for properties to be so."""
        end = time.monotonic() + seconds
        while True:
            found = self.unit()
            if all(found.get(name) == value for name, value in wanted.items()):
                return found
            assert time.monotonic() < end, (
                wanted,
                {name: found.get(name) for name in wanted},
                self.journal(),
            )
            time.sleep(0.3)

    def journal(self) -> str:
        return self.do("journalctl", "--unit", "wirewatch", "--no-pager", "--output", "cat")

    def health(self) -> dict[str, object]:
        script = (
            "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9410/health').read().decode())"
        )
        document = json.loads(self.do("python3", "-c", script))
        assert isinstance(document, dict)
        return document


def versions(machine: Machine) -> Sequence[str]:
    systemd = machine.do("systemctl", "--version").splitlines()[0]
    return (systemd, machine.do("python3", "--version").strip(), run("podman", "--version").strip())
