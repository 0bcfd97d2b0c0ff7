"""Figures that a reader takes for measured: where pages have some that no committed data stand behind.

README is looked at as a whole, of every page below docs and proof the first paragraph. A figure is a number
with or without a unit, and a time or share in words. It must be in a link to the ledger of claims, whose text
`make generated` writes, or be allowed by proof/claims/allowed.toml with the reason why it is no measurement.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from tools.claims import LINK
from tools.prose import ROOT, listed

ALLOWED = ROOT / "proof" / "claims" / "allowed.toml"
README = "README.md"
_WORDS = "half|one|two|three|four|five|six|seven|eight|nine|ten|twelve|fifteen|twenty|thirty|sixty|hundred"
FIGURE = re.compile(
    rf"(?<![\w.,-])(?:[+-]?\d[\d,.]*(?<![.,])(?: *%)?"
    rf"|(?:{_WORDS})(?: an?)? (?:milliseconds?|seconds?|minutes?|hours?|days?|per ?cent\b|times\b))",
    re.IGNORECASE,
)
"""A number by itself: not the one of H200, cudaGraph1 or a version's later part."""
_HIDDEN = re.compile(r"<!--.*?-->|(?<=\])\([^)\s]*\)|(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
"""Parts of a page that hold no claim: comments, targets of links, code in a line."""


def first_paragraph(text: str) -> str:
    """The first text of a page below its title."""
    bare = re.sub(r"<!--.*?-->|^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    parts = (part for part in re.split(r"\n\s*\n", f"\n{bare}") if part.strip())
    return next((one for part in parts if (one := re.sub(r"^\s*#+ .*\n?", "", part)).strip()), "")


def seen(name: str, text: str) -> str:
    """The part of a page that is looked at; of a block of code in README its comments."""
    if name != README:
        return first_paragraph(text)
    return re.sub(r"^```.*?^```$", _comments, text, flags=re.DOTALL | re.MULTILINE)


def _comments(block: re.Match[str]) -> str:
    return "\n\n".join(re.findall(r"\s# (.*)", block[0]))


def bare(name: str, text: str) -> str:
    """The part that is looked at as one line, without links to the ledger and what is no text."""
    return " ".join(_HIDDEN.sub(" ", LINK.sub(" ", seen(name, text))).split())


def loose(name: str, text: str) -> Iterator[str]:
    """Figures of a page that nothing stands behind, each with the words around it."""
    shown = bare(name, text)
    free = [(found.start(), found.end()) for one in _patterns(name) for found in one.finditer(shown)]
    for found in FIGURE.finditer(shown):
        if not any(start <= found.start() and found.end() <= end for start, end in free):
            yield f"{name}: {found[0]!r} in {shown[max(0, found.start() - 30) : found.end() + 30]!r}"


def unused() -> Iterator[str]:
    """Entries of the allowed figures that allow nothing any more."""
    shown = {name: bare(name, text) for name, text in pages()}
    for pattern in _allowed()["everywhere"]:
        if not any(re.search(pattern, one) for one in shown.values()):
            yield pattern
    for name, patterns in _allowed()["pages"].items():
        yield from (f"{name}: {one}" for one in patterns if not re.search(one, shown.get(name, "")))


def pages() -> Iterator[tuple[str, str]]:
    """README, and every page below docs and proof."""
    for path in (ROOT / README, *listed("docs/*.md", "proof/*.md")):
        name = path.relative_to(ROOT).as_posix()
        yield name, path.read_text("utf-8")


def _patterns(name: str) -> Iterator[re.Pattern[str]]:
    every = _allowed()
    yield from (re.compile(one) for one in (*every["everywhere"], *every["pages"].get(name, {})))


@cache
def _allowed() -> Mapping[str, Any]:
    return tomllib.loads(ALLOWED.read_text("utf-8"))
