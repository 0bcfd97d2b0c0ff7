"""Images and containers with Debian's buildah, podman and runc, for the opt-in targets: as root, no daemon.

Everything lies in a folder below build/, images too; nothing is pulled.
"""

import os
import shutil
import subprocess
from pathlib import Path

BUILD = Path(__file__).parents[1] / "build"
LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")
"""Without both, podman asks for more than it may have where it lacks CAP_SYS_RESOURCE."""


def run(*command: str, seconds: float = 600, **environment: str) -> str:
    """Standard output of a command that must succeed."""
    done = attempt(*command, seconds=seconds, **environment)
    assert done.returncode == 0, f"{' '.join(command)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def attempt(
    *command: str, seconds: float = 600, **environment: str
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        env={**os.environ, **environment},
    )


def needs(*programs: str) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    assert not missing, f"not installed: {', '.join(missing)}"


def store(place: Path) -> tuple[str, ...]:
    """The words that make buildah or podman keep its images below a folder."""
    return ("--storage-driver", "overlay", "--root", f"{place}/store", "--runroot", f"{place}/run")


def podman(place: Path) -> tuple[str, ...]:
    return ("podman", *store(place), "--cgroup-manager", "cgroupfs", "--runtime", "runc")


def debian(place: Path, *packages: str) -> Path:
    """A minimal Debian with these packages, as a tar file that is kept."""
    base = place / "base.tar"
    if not base.exists():
        place.mkdir(parents=True, exist_ok=True)
        fresh = place / "base.new.tar"
        wanted = f"--include={','.join(packages)}"
        run("mmdebstrap", "--variant=minbase", wanted, "bookworm", str(fresh), *mirror())
        fresh.rename(base)
    return base


def mirror() -> tuple[str, ...]:
    """Where this machine has its packages from."""
    sources = Path("/etc/apt/sources.list.d/debian.sources")
    if not sources.exists():
        return ()
    lines = sources.read_text("utf-8").splitlines()
    return tuple(line.split()[1] for line in lines if line.startswith("URIs:"))[:1]
