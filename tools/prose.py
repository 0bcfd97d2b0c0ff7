"""Markdown as mdformat writes it: wrapped at 100 columns, a row of a table in one line. `make prose` runs it.

With `--check` nothing is written: each page that is not formatted is named in a line, and the end is 1. Words
that a reader must read twice are named on standard error; tests/tools/test_prose.py allows none.
Options are in .mdformat.toml. mdformat itself can leave out files from Python 3.13 on only, hence this list.
"""

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import mdformat

RIDDLES: Mapping[str, str] = {
    r"(?<![Tt]here )\b(?:is|are|was|were) no (?!more\b|\w+er\b|[A-Z])\w+[.,;:]": "say 'is not a ...'",
    r"\banew\b": "say 'again', or 'new'",
    r"\bbut for\b": "say 'except for'",
    r"\b(?:amid|whereof|thereof|therein)\b": "say it with a plain word",
    r"\b(?:is|are|was|were) told (?:as|to be|of|slow|twice|higher|lower)\b": "say who reports it",
    r"(?:^|[.] )Whose [^?]*?[.](?: |$)": "name the subject",
    r"(?:^|[.] )What [^?:|.]{1,60} (?:is|are) (?:no|told|left|kept|listed|refused)\b": "name the subject",
}
"""Kinds of riddles that a machine can find, in a paragraph as one line, and what helps."""
ROOT = Path(__file__).resolve().parents[1]
RECORDED = "proof/hardware/2"
"""Reports of runs on hardware: they stay as they were written."""


def formatted(text: str) -> str:
    """The text of a page, formatted."""
    return mdformat.text(text, options=_options(), extensions={"gfm", "tables"})


def listed(*patterns: str) -> Iterator[Path]:
    """Yield the files of this repository that git knows or would add."""
    found = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    yield from (ROOT / name for name in found.stdout.split("\0") if name and (ROOT / name).is_file())


def pages() -> Iterator[Path]:
    """Yield the pages that are formatted: all but reports of runs on hardware."""
    yield from (path for path in listed("*.md") if not path.relative_to(ROOT).as_posix().startswith(RECORDED))


def riddles(text: str) -> Iterator[str]:
    """Places of a page that must be read twice, each with what to write instead; code is left out."""
    plain = re.sub(r"`[^`]*`", "`x`", re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL))
    for part in re.split(r"\n\s*\n|\n *- |\n\|", plain):
        line = " ".join(part.split())
        for pattern, instead in RIDDLES.items():
            yield from (f"{found[0].strip(' .')!r}: {instead}" for found in re.finditer(pattern, line))


def decided(path: Path) -> bool:
    """Whether a page stays as it was written when something was decided or released."""
    return path.is_relative_to(ROOT / "docs" / "adr") or path.name == "CHANGELOG.md"


def odd() -> Iterator[str]:
    """The riddles of all pages, each with its page."""
    for path in pages():
        if not decided(path):
            yield from (f"{path.relative_to(ROOT)}: {one}" for one in riddles(path.read_text("utf-8")))


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
    for one in odd():
        print(f"to be read twice: {one}", file=sys.stderr)
    return 1 if check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
