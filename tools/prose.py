"""Markdown as mdformat writes it: wrapped at 100 columns, a row of a table in one line. `make prose` runs it.

With `--check` nothing is written: each page that is not formatted is named in a line, and the end is 1.
Options are in .mdformat.toml. mdformat itself can leave out files from Python 3.13 on only, hence this list.
"""

import argparse
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import mdformat

ROOT = Path(__file__).resolve().parents[1]
RECORDED = "docs/hardware/2"
"""Reports of runs on hardware: they stay as they were written."""


def formatted(text: str) -> str:
    """The text of a page, formatted."""
    return mdformat.text(text, options=_options(), extensions={"gfm", "tables"})


def pages() -> Iterator[Path]:
    """The pages of this repository that are formatted: those that git knows or would add."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if not name.startswith(RECORDED) and (ROOT / name).is_file():
            yield ROOT / name


@cache
def _options() -> dict[str, Any]:
    return tomllib.loads((ROOT / ".mdformat.toml").read_text("utf-8"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="name what is not formatted, and write nothing")
    check = parser.parse_args().check
    changed = [path for path in pages() if path.read_text("utf-8") != formatted(path.read_text("utf-8"))]
    for path in changed:
        if check:
            print(f"not formatted: {path.relative_to(ROOT)}: run make prose")
        else:
            path.write_text(formatted(path.read_text("utf-8")), "utf-8")
    return 1 if check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
