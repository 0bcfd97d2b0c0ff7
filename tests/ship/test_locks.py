"""deploy/image/*.txt: what the image installs is what pyproject.toml asks for, each with hashes."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.rows import each
from tests.ship.locks import pins
from tools.locks import CONSTRAINTS, wanted

ROOT = Path(__file__).parents[2]
LOCKS = sorted(wanted())


@each("lock", LOCKS)
def test_what_the_project_asks_for_is_locked_in_a_version_that_will_do(lock: str) -> None:
    found = pins(lock)
    for line in wanted()[lock]:
        asked = Requirement(line)
        versions = found[canonicalize_name(asked.name)]
        assert all(asked.specifier.contains(version) for version in versions), (line, versions)


@each("lock", LOCKS)
def test_a_version_that_was_measured_is_held(lock: str) -> None:
    lines = [line for line in CONSTRAINTS.read_text("utf-8").splitlines() if line and line[0] != "#"]
    assert len(lines) >= 3
    found = pins(lock)
    for line in lines:
        held = Requirement(line)
        versions = found.get(canonicalize_name(held.name), set())
        assert all(held.specifier.contains(version) for version in versions), (line, versions)


def test_what_lies_over_the_agents_packages_has_them_in_the_same_version() -> None:
    below = pins("agent")
    for lock in ("controller", "nccl", "torch"):
        for name, versions in pins(lock).items():
            assert below.get(name, versions) == versions, (lock, name)


def test_the_engine_brings_all_that_it_loads() -> None:
    """Without NCCL itself, its bindings or the compiler a probe would end in a word about a missing file."""
    assert {"nvidia-nccl-cu13", "cuda-bindings", "cuda-core", "nccl4py", "nvidia-cuda-nvrtc"} <= pins(
        "nccl"
    ).keys()


def test_the_dockerfile_says_the_version_of_the_project() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert f"\nARG VERSION={version}\n" in (ROOT / "Dockerfile").read_text("utf-8")


def test_the_base_is_an_argument_with_a_version_that_the_project_knows() -> None:
    text = (ROOT / "Dockerfile").read_text("utf-8")
    assert re.search(r"^ARG BASE=docker\.io/library/python:3\.1[1-3]-slim-[a-z]+$", text, re.MULTILINE)
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", text, re.MULTILINE))
    assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) <= stages | {"${BASE}"}


def test_the_dockerfile_installs_every_lock_and_nothing_else() -> None:
    text = (ROOT / "Dockerfile").read_text("utf-8")
    assert set(re.findall(r"deploy/image/([a-z]+)\.txt", text)) == set(LOCKS)
    # Without hashes only the wheel that was built here.
    for line in re.findall(r"pip(?: --python \S+)? install (.*)", text):
        assert line.startswith("--requirement /src/") or line.endswith("/wheels/*.whl"), line
