"""docs/METRICS.md names what the code exports; links and paths of pages lead to files."""

import re
from collections import Counter
from functools import cache
from pathlib import Path

from tools import pages
from tools.alerting import slug
from tools.prose import ROOT, listed
from tools.release.pages import links
from wirewatch.catalogue import components
from wirewatch.documents import series
from wirewatch.kubernetes import apiserver as condition
from wirewatch.server import reload
from wirewatch_fleet.controller import report as controller

PATH = re.compile(r"(?<![\w/.-])(?:docs|proof)/[\w/.-]+\.(?:md|svg)\b")
ANCHORED = re.compile(r"\]\(((?:[\w./-]+\.md)?)#([^)\s]+)\)")
ELSEWHERE = ("tools/faults/page.in.md",)
"""Words of a page that stands in another folder."""
OTHERS = ("CHANGELOG.md", "tests/tools/test_release_pages.py")
"""Files with paths of other times and other trees."""
MADE_UP = {"docs/studies/NAME.md"}


def test_the_page_names_every_metric_once() -> None:
    page = pages.page()
    own = (*series.METRICS, *condition.METRICS, *reload.METRICS, *controller.METRICS)
    for metric in (*own, *(m for c in components() for m in c.metrics)):
        assert page.count(f"| `wirewatch_{metric.name}` |") == 1


def test_no_link_of_a_page_is_dead() -> None:
    found = [path for path in listed("*.md") if path.relative_to(ROOT).as_posix() not in ELSEWHERE]
    dead = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in found
        for link in links(page)
        if not (page.parent / link).exists()
    ]
    assert len(found) > 200
    assert dead == []


def test_no_anchor_of_a_link_is_dead() -> None:
    dead = [
        f"{page.relative_to(ROOT)}: {path}#{anchor}"
        for page in listed("*.md")
        if page.relative_to(ROOT).as_posix() not in ELSEWHERE
        for path, anchor in ANCHORED.findall(page.read_text("utf-8"))
        if anchor not in headings((page.parent / path).resolve() if path else page)
    ]
    assert dead == []


@cache
def headings(page: Path) -> frozenset[str]:
    """The anchors of a page, as GitHub makes them: those of a heading that comes again have a number."""
    times: Counter[str] = Counter()
    found = set()
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        anchor = slug(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading))
        found.add(f"{anchor}-{times[anchor]}" if times[anchor] else anchor)
        times[anchor] += 1
    return frozenset(found)


def test_paths_of_pages_in_code_and_text_lead_to_pages() -> None:
    dead = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in listed("*.md", "*.py", "*.toml", "*.yml", "*.yaml", "*.in", "Makefile", ".ci/*")
        if not path.relative_to(ROOT).as_posix().startswith(OTHERS)
        for name in set(PATH.findall(path.read_text("utf-8"))) - MADE_UP
        if not (ROOT / name).exists()
    ]
    assert dead == []
