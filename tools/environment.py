"""The Makefile's virtual environment: `environment.py make .venv` makes it, or says in one line why not.

`environment.py engine` prints the extra that brings NCCL for this machine's driver; nothing without one.
`environment.py nccl` prints the version that it brought, and whether the probe was measured with it.
It runs in any Python 3, since a wrong one must be told.
"""

import json
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

LOWEST, BEYOND = (3, 11), (3, 14)
DRIVER = Path("/proc/driver/nvidia/version")
ENGINES = ((580, "nccl"), (525, "nccl-cuda12"))
"""The oldest driver for each extra, newest first."""
MEASURED = Path(__file__).parents[1] / "proof" / "hardware" / "nccl"
PACKAGES = ("nvidia-nccl-cu13", "nvidia-nccl-cu12")


def main(words: list[str]) -> int:
    """The exit code."""
    if words == ["engine"]:
        print(engine(DRIVER))
        return 0
    if words == ["nccl"]:
        print(f"make: {nccl(MEASURED)}")
        return 0
    (_, place) = words
    wrong = unfit(sys.version_info[:2]) or made(Path(place))
    if wrong:
        print(f"make: {wrong}", file=sys.stderr)
    return 1 if wrong else 0


def unfit(python: tuple[int, ...]) -> str:
    """Why this Python is not taken, in one line; empty where it is."""
    if LOWEST <= python < BEYOND:
        return ""
    told = ".".join(map(str, python))
    return f"Python 3.11 to 3.13 is needed, and {sys.executable} is {told}: try `make run PYTHON=python3.12`"


def made(place: Path) -> str:
    """Make it; returns why that failed in one line, and then nothing is left of it."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "venv", "--clear", str(place)], capture_output=True, text=True, check=False
        )
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    if done.returncode == 0:
        return ""
    shutil.rmtree(place, ignore_errors=True)
    said = (done.stdout + done.stderr).strip()
    if "ensurepip is not available" in said:
        return "this Python cannot make an environment: on Debian and Ubuntu, `apt install python3-venv`"
    return f"{place} cannot be made: {said.splitlines()[-1] if said else 'no reason was given'}"


def engine(driver: Path) -> str:
    """The extra; empty without a driver, or with one that is too old for any."""
    try:
        found = re.search(r"Kernel Module\D*(?:x86_64|aarch64)?\s+(\d+)\.", driver.read_text("utf-8"))
    except OSError:
        return ""
    number = int(found[1]) if found else 0
    return next((extra for oldest, extra in ENGINES if number >= oldest), "")


def nccl(results: Path) -> str:
    """Return which NCCL is installed and whether the probe was measured with it, in one line."""
    for package in PACKAGES:
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
        file = results / f"{version}.json"
        one = json.loads(file.read_text("utf-8")) if file.exists() else {}
        known = bool(one.get("bandwidth") or one.get("probe"))
        told = "with which the probe was measured" if known else "with which nobody has measured the probe"
        return f"NCCL {version} is installed, {told}: proof/hardware/nccl.md"
    return "no NCCL is installed"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
