"""Builds targets of the Dockerfile and pulls nothing: the base is Debian's Python, not python:*-slim."""

import configparser
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proof.containers import BUILD, attempt, debian, needs, podman, run, store

ROOT = Path(__file__).parents[2]
PLACE = BUILD / "e2e-image"
BASE = "localhost/wirewatch-base"
NEEDED = ("mmdebstrap", "buildah", "podman", "runc")
CONTEXT = ("Dockerfile", ".dockerignore", "pyproject.toml", "README.md", "LICENSE", "agent", "deploy/image")
TORCH = "deploy/image/torch-here.txt"


@dataclass(frozen=True, slots=True)
class Layer:
    """What one instruction of the Dockerfile added, uncompressed."""

    made_by: str
    size_bytes: int


def prepare() -> None:
    """The base image, and the build context: the files of this checkout that it is made of."""
    needs(*NEEDED)
    _context()
    if attempt("buildah", *store(PLACE), "inspect", "--type", "image", BASE).returncode:
        tar = debian(PLACE, "python3", "python3-venv", "ca-certificates")
        container = run("buildah", *store(PLACE), "from", "scratch").strip()
        try:
            run("buildah", *store(PLACE), "add", "--quiet", container, str(tar), "/")
            run("buildah", *store(PLACE), "commit", "--quiet", container, BASE)
        finally:
            run("buildah", *store(PLACE), "rm", container)


def build(target: str, *more: str) -> str:
    """The name of a target's image; `more` are words for buildah.

    Raises:
        AssertionError: it cannot be built; with all that was said.
    """
    done = try_build(target, *more)
    assert done.returncode == 0, f"{target}: {done.stdout}\n{done.stderr}"
    return name(target)


def base() -> str:
    """The base image by its digest, as what is released has it."""
    (told,) = json.loads(run("buildah", *store(PLACE), "images", "--json", BASE))
    return f"{BASE}@{told['digest']}"


def how() -> tuple[str, ...]:
    """Words for a build that pulls nothing, in the place of a registry and an index of the world."""
    return (
        "--layers", "--force-rm", "--isolation", "chroot", "--network", "host", "--pull-never", "--format",
        "docker", *pip_settings(),
    )  # fmt: skip


def try_build(target: str, *more: str, tag: str = "") -> subprocess.CompletedProcess[str]:
    revision = attempt("git", "-C", str(ROOT), "rev-parse", "HEAD").stdout.strip() or "unknown"
    return attempt(
        "buildah", *store(PLACE), "bud", *how(), "--build-arg", f"BASE={base()}", "--build-arg",
        f"REVISION={revision}", "--target", target, "--tag", tag or name(target), *more, str(_folder()),
        seconds=1800,
    )  # fmt: skip


def name(target: str) -> str:
    return f"localhost/wirewatch:{target}"


def layers(target: str) -> Sequence[Layer]:
    """First the newest; what added nothing is left out."""
    told: list[dict[str, Any]] = json.loads(
        run(*podman(PLACE), "history", "--no-trunc", "--format", "json", name(target))
    )
    return [Layer(one["CreatedBy"], one["size"]) for one in told if one["size"]]


def configured(target: str) -> dict[str, Any]:
    """The image's configuration, as its registry would give it."""
    (told,) = json.loads(run(*podman(PLACE), "image", "inspect", name(target)))
    assert isinstance(told, dict)
    return told


def lock_torch_of_this_machine() -> str:
    """The build of torch that pip finds here, as deploy/image/torch.txt has the one of gigabytes."""
    told = json.loads(
        run(
            sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report",
            "-", "torch==2.13.0", "numpy",
        )
    )  # fmt: skip
    lines = []
    for one in told["install"]:
        about = one["metadata"]
        (method, value), *_ = one["download_info"]["archive_info"]["hashes"].items()
        lines.append(f"{about['name']}=={about['version']} --hash={method}:{value}")
    (_folder() / TORCH).write_text("\n".join(lines) + "\n", "utf-8")
    return TORCH


def _folder() -> Path:
    return PLACE / "context"


def _context() -> None:
    shutil.rmtree(_folder(), ignore_errors=True)
    for one in CONTEXT:
        source, place = ROOT / one, _folder() / one
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, place, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, place)


def pip_settings() -> tuple[str, ...]:
    """pip's settings on this machine, in the build too: certificates, and places of this machine."""
    told = configparser.ConfigParser()
    told["global"] = {}
    words: list[str] = []
    for line in run(sys.executable, "-m", "pip", "config", "list").splitlines():
        key, _, value = line.partition("=")
        section, _, option = key.rpartition(".")
        if section in {"global", ":env:"} and option in {
            "cert",
            "find-links",
            "extra-index-url",
            "index-url",
        }:
            told["global"][option] = value.strip("'\"")
    for value in told["global"].values():
        for one in value.split():
            place = Path(one.removeprefix("file://"))
            # An index in the file system has its files beside it.
            place = place.parent if one.startswith("file://") else place
            if place.is_absolute() and place.exists():
                words += ["--volume", f"{place}:{place}:ro"]
    file = PLACE / "pip.conf"
    with file.open("w", encoding="utf-8") as opened:
        told.write(opened)
    return (*words, "--volume", f"{file}:/etc/pip.conf:ro")
