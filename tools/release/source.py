"""What a release is made of: the commit, its time, and commands that run under it."""

import os
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from tools.version import version

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "release"


class ReleaseError(Exception):
    """The release cannot be made; the text is one line."""


@dataclass(frozen=True, slots=True)
class Source:
    """The commit that is released; `epoch`: its time, Unix seconds, which every made file has as its own."""

    version: str
    revision: str
    epoch: int

    def run(self, *command: str, cwd: Path = ROOT, **environment: str) -> str:
        """Standard output of a command that knows the commit's time.

        Raises:
            ReleaseError: it failed; with the end of what it said.
        """
        told = {**os.environ, "SOURCE_DATE_EPOCH": str(self.epoch), "LC_ALL": "C.UTF-8", "TZ": "UTC"}
        try:
            done = subprocess.run(
                command, cwd=cwd, env={**told, **environment}, capture_output=True, text=True, check=False
            )
        except FileNotFoundError as error:
            raise ReleaseError(f"{command[0]} is not installed") from error
        if done.returncode:
            end = (done.stdout + done.stderr).strip()[-2000:]
            raise ReleaseError(f"{' '.join(command)} ended with {done.returncode}:\n{end}")
        return done.stdout

    def tree(self, place: Path) -> Path:
        """The files of the commit, in a folder that is made again."""
        shutil.rmtree(place, ignore_errors=True)
        packed = subprocess.run(
            ("git", "archive", self.revision), cwd=ROOT, capture_output=True, check=True
        ).stdout
        with tarfile.open(fileobj=BytesIO(packed)) as archive:
            archive.extractall(place, filter="data")
        return place


def committed() -> Source:
    """The commit that is checked out.

    Raises:
        ReleaseError: a file is not as it was committed, so that the release could not be made again.
    """
    here = Source(version(), "HEAD", 0)
    changed = here.run("git", "status", "--porcelain").splitlines()
    if changed:
        raise ReleaseError(f"not committed: {changed[0][3:]}{' and others' if len(changed) > 1 else ''}")
    revision, epoch = here.run("git", "log", "-1", "--format=%H %ct").split()
    return Source(here.version, revision, int(epoch))
