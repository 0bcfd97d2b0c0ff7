"""Whether a bill of materials names all that is installed, and in its version: `-m tests.ship.sbom FILE`.

Runs in the environment that the bill is of, and knows nothing but the standard library.
"""

import json
import re
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

PROJECT = "wirewatch"


def canonical(name: str) -> str:
    """A distribution's name as everybody compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def required(project: str) -> dict[str, str]:
    """All that a distribution needs to run, itself left out, with the versions that are installed.

    Raises:
        importlib.metadata.PackageNotFoundError: something that is needed is not installed.
    """
    found: dict[str, str] = {}
    ahead = [project]
    while ahead:
        told = metadata.distribution(ahead.pop())
        name = canonical(told.metadata["Name"])
        if name not in found:
            found[name] = told.version
            ahead += wanted(told.requires or ())
    return {name: version for name, version in found.items() if name != project}


def wanted(requires: Iterable[str]) -> list[str]:
    """Names of what is required here: not by an extra, and not for other systems or versions of Python.

    A marker that is not of an extra is taken as true where that distribution is installed.
    """
    names = []
    for line in requires:
        text, _, marker = line.partition(";")
        match = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", text.strip())
        if match and "extra ==" not in marker and (not marker or _installed(match[0])):
            names.append(match[0])
    return names


def missing(bill: Mapping[str, Any], needed: Mapping[str, str]) -> list[str]:
    """What the bill does not name, or in another version; and the whole, where it is of something else."""
    listed = {(canonical(part["name"]), part.get("version", "")) for part in bill.get("components", ())}
    lacking = [f"{name} {version}" for name, version in needed.items() if (name, version) not in listed]
    about = bill.get("metadata", {}).get("component", {}).get("name")
    return lacking if about == PROJECT else [f"it is of {about}, not of {PROJECT}", *lacking]


def _installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def main(file: str) -> int:
    """The exit code: 0 when everything is named."""
    needed = required(PROJECT)
    lacking = missing(json.loads(Path(file).read_text("utf-8")), needed)
    for line in lacking:
        print(f"{file}: not there: {line}")
    print(f"{file}: {len(needed)} distributions are needed to run, {len(lacking)} are not named")
    return 1 if lacking or not needed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
