"""No version that may be installed has a hole that is known: tests/ship/holes.toml."""

import re
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.rows import each
from tests.ship.locks import pins
from tools.locks import wanted

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
PACKAGES: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("holes.toml").read_text("utf-8"))[
    "package"
]
SAFE: dict[str, Version] = {canonicalize_name(one["name"]): Version(one["safe"]) for one in PACKAGES}


def lowest(requirement: Requirement) -> Version:
    """The lowest version that a requirement leaves; 0 where it has no lower bound."""
    bounds = [Version(one.version) for one in requirement.specifier if one.operator in {">=", "==", "~="}]
    return max(bounds, default=Version("0"))


def asked() -> list[Requirement]:
    lines = [
        *PROJECT["dependencies"],
        *(line for extra in PROJECT["optional-dependencies"].values() for line in extra),
    ]
    return [Requirement(line) for line in lines]


@each("requirement", asked(), ids=str)
def test_no_bound_leaves_a_version_with_a_known_hole(requirement: Requirement) -> None:
    assert lowest(requirement) >= SAFE.get(canonicalize_name(requirement.name), Version("0"))
    assert lowest(requirement) > Version("0"), "without a lower bound every hole is let in"


@each("lock", sorted(wanted()))
def test_the_image_installs_none(lock: str) -> None:
    for name, versions in pins(lock).items():
        assert all(Version(version) >= SAFE.get(name, Version("0")) for version in versions), name


@each("name", sorted(SAFE))
def test_none_is_installed_here(name: str) -> None:
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return
    assert Version(version) >= SAFE[name]


def test_every_hole_is_named_once_and_explained() -> None:
    assert [one["name"] for one in PACKAGES] == sorted(one["name"] for one in PACKAGES)
    assert len(SAFE) == len(PACKAGES)
    for one in PACKAGES:
        assert one["about"]
        assert one["holes"]
        assert all(re.fullmatch(r"CVE-\d{4}-\d{4,}", hole) for hole in one["holes"]), one["name"]


def test_a_bound_below_a_hole_would_be_seen() -> None:
    assert lowest(Requirement("h11>=0.14,<0.17")) < SAFE["h11"] <= lowest(Requirement("h11>=0.16"))
    assert lowest(Requirement("h11<0.17")) == Version("0")
