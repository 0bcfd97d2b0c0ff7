"""`make e2e-image`: the Dockerfile built and its images run; writes proof/image/image.md.

With names of steps these alone, and no page.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from proof.containers import run
from proof.image import built, ran
from proof.image.builder import prepare
from tools.prose import formatted

PAGE = Path(__file__).with_name("image.md")
STEPS: Mapping[str, Callable[[], str]] = {
    step.__name__: step
    for step in (
        built.sizes, built.described, built.locked, built.loads, built.carries_the_tap, built.other_platform,
        ran.serves, ran.reaps, ran.probes,
    )
}  # fmt: skip


def main(names: Sequence[str]) -> int:
    if unknown := set(names) - STEPS.keys():
        print(f"no such step: {', '.join(sorted(unknown))}; there are {', '.join(STEPS)}", file=sys.stderr)
        return 64
    began = time.monotonic()
    prepare()
    rows = []
    for name in names or STEPS:
        told = STEPS[name]()
        print(f"{name}: {told}", flush=True)
        rows.append(f"| {name.replace('_', ' ')} | {told} |")
    if not names:
        PAGE.write_text(formatted(page(rows, time.monotonic() - began)), "utf-8")
    return 0


def page(rows: Sequence[str], seconds: float) -> str:
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    about = ", ".join(run(tool, "--version").splitlines()[0] for tool in ("buildah", "podman", "runc"))
    return (
        "# The image, built and run\n\n"
        f"Last result of `make e2e-image`, {day}: all steps passed. {about}.\n"
        "The base is a minimal Debian 12 with Debian's Python, in the place of python:3.12-slim-bookworm: "
        "its size is not that of yours.\n\n"
        f"This run: {seconds:.0f} s.\n\n"
        "| step | what was seen |\n|---|---|\n" + "\n".join(rows) + "\n"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
