"""The version, which pyproject.toml alone says: every other file that has to say it is made from there.

A release: change it there, and `make generated`.
"""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
NUMBER = r"\d+\.\d+\.\d+"
PLACES: Mapping[str, str] = {
    "agent/wirewatch/__init__.py": rf'^__version__ = "({NUMBER})"$',
    "agent/tap/tap.h": rf'^#define WW_TAP_VERSION "({NUMBER})"$',
    "Dockerfile": rf"^ARG VERSION=({NUMBER})$",
    "helm/wirewatch/Chart.yaml": rf"^(?:appV|v)ersion: ({NUMBER})$",
    "docs/install.md": rf"/wirewatch:({NUMBER})",
    "deploy/systemd/README.md": rf"wirewatch-({NUMBER})-py3-none-any",
    "deploy/kubernetes/examples/gate-init-container.yaml": rf"/wirewatch:({NUMBER})",
}
"""Files by their paths, each with what the version stands in, which must be found there."""


def version() -> str:
    """The project's version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    number: str = project["version"]
    return number


def made() -> Mapping[Path, str]:
    """The files with the version in its places."""
    number = version()
    return {ROOT / name: _with(name, pattern, number) for name, pattern in PLACES.items()}


def _with(name: str, pattern: str, number: str) -> str:
    text, count = re.subn(
        pattern,
        lambda found: found[0].replace(found[1], number),
        (ROOT / name).read_text("utf-8"),
        flags=re.MULTILINE,
    )
    assert count, f"{name} does not say the version"
    return text
