"""`make e2e-release`: writes proof/release/release.md.

With names of steps these alone; the others keep what they saw last.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from proof.containers import needs, run
from proof.release import carried, making, node, published, pythons, reader
from proof.release.place import PLACE
from tools.prose import formatted
from tools.version import version

PAGE = Path(__file__).with_name("release.md")
NEEDED = ("mmdebstrap", "buildah", "podman", "runc", "skopeo", "dh", "gpg", "docker-registry", "prometheus")
STEPS: Mapping[str, Callable[[], str | Sequence[tuple[str, str]]]] = {
    "made": making.made,
    "made-again": making.again,
    "refused": making.refused,
    "wheel": pythons.wheels,
    "wheel-over-0.1": pythons.upgraded,
    "source-archive": pythons.source,
    "wrong-Python": pythons.wrong,
    "without-an-index": carried.carried,
    "chart": published.chart,
    "image": published.image,
    "Debian": node.lived,
    "README": reader.followed,
}
"""In this order: the first makes what the others try."""
KEPT = PLACE / "seen.json"

Rows = Sequence[tuple[str, str]]


def main(names: Sequence[str]) -> int:
    if unknown := set(names) - STEPS.keys():
        print(f"no such step: {', '.join(sorted(unknown))}; there are {', '.join(STEPS)}", file=sys.stderr)
        return 64
    needs(*NEEDED)
    seen: dict[str, Rows] = json.loads(KEPT.read_text("utf-8")) if names and KEPT.exists() else {}
    for name in names or STEPS:
        told = STEPS[name]()
        rows = [(name, told)] if isinstance(told, str) else [(f"{name}: {one}", line) for one, line in told]
        for step, line in rows:
            print(f"{step}: {line}", flush=True)
        seen[name] = rows
        KEPT.write_text(json.dumps(seen, indent=1), "utf-8")
        PAGE.write_text(formatted(page(seen)), "utf-8")
    return 0


def page(seen: Mapping[str, Rows]) -> str:
    """The page; a step that has not run is named."""
    tools = ("buildah", "podman", "skopeo", "dpkg-deb")
    about = ", ".join(run(tool, "--version").splitlines()[0].rstrip(".") for tool in tools)
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    rows = [row for name in STEPS if name in seen for row in seen[name]]
    lines = [f"| {_words(step)} | {line} |" for step, line in rows]
    run_here = {step for step, _ in rows}
    wanted = [
        *(name for name in STEPS if name != "Debian"),
        *(f"Debian: {one.__name__}" for one in node.STEPS),
    ]
    missing = ", ".join(_words(name) for name in wanted if name not in run_here)
    whole = f"**not run yet: {missing}**; all others passed" if missing else "all steps passed"
    return (
        "# A release, made and tried\n\n"
        f"Last result of `make e2e-release`, {day}: wirewatch {version()}, {whole}.\n"
        f"{about}.\n"
        "The Debian package is tried on Debian 12 with systemd as process 1, without a network, on the "
        "recording demo-dgx-h200; README's commands, with their output: [reader.md](reader.md). "
        "Not tried: real GPUs, arm64, docker, Ubuntu; the chart is installed in "
        "[proof/kubernetes/kubernetes.md](../kubernetes/kubernetes.md).\n\n"
        "| step | what was seen |\n|---|---|\n" + "\n".join(lines) + "\n"
    )


def _words(step: str) -> str:
    return step.replace("_", " ").replace("-", " ")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
