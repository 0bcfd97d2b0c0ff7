"""What the image installs, with hashes: deploy/image/*.txt from pyproject.toml, `make locks`.

Asks the package index. Each file is for every processor and Python that the project knows, so that one
serves amd64, arm64 and any BASE.
"""

import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "deploy" / "image"
CONSTRAINTS = PLACE / "constraints.in"
FIRST = "agent"
"""The others are laid over it: what they share they have in its version."""
MADE = "# Made by `make locks` from pyproject.toml and deploy/image/constraints.in: do not edit.\n"


def wanted() -> Mapping[str, Sequence[str]]:
    """Per file without its ending, the requirements it must fulfil: see the stages of the Dockerfile."""
    settings: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    project = settings["project"]
    extras = project["optional-dependencies"]
    return {
        FIRST: [*project["dependencies"], *extras["kubernetes"]],
        "controller": extras["controller"],
        "nccl": extras["nccl"],
        "torch": extras["torch"],
        "build": settings["build-system"]["requires"],
    }


def main() -> int:
    for name, requirements in wanted().items():
        known = [] if name == FIRST else ["--constraint", str(PLACE / f"{FIRST}.txt")]
        done = subprocess.run(
            [
                "uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11", "--upgrade",
                "--generate-hashes", "--no-header", "--no-annotate", "--constraint", str(CONSTRAINTS),
                *known, "-",
            ],
            input="\n".join(requirements), capture_output=True, text=True, check=False, cwd=ROOT,
        )  # fmt: skip
        if done.returncode:
            print(f"{name}: {done.stderr.strip()}", file=sys.stderr)
            return 1
        (PLACE / f"{name}.txt").write_text(MADE + done.stdout, "utf-8")
        print(f"{name}: {done.stdout.count('==')} distributions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
