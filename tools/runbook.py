"""Fills docs/runbook.md with the rules that own their text, and makes of it what the package carries."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from dashboards.runbook import entries_in
from tools import alerting
from tools.prose import formatted
from wirewatch.catalogue import components, rules
from wirewatch.core.collector import Rule
from wirewatch.core.types import Health
from wirewatch.hw.overlay import bundled_overlays, load_overlay
from wirewatch.page import html as served
from wirewatch.verdict.ledger import VerdictPolicy
from wirewatch.verdict.node import LAST
from wirewatch_fleet.worst import FILE, OF_NODES, pasted

PAGE = alerting.RUNBOOK
REASONS = Path(str(files("wirewatch_fleet"))) / FILE
SERVED = Path(str(files("wirewatch.page"))) / served.FILE
HEAD = "## Other collectors"

ASIDE = "; it stands aside: no verdict depends on it"
"""Of rules of collectors that do not gate."""


def page(text: str) -> str:
    """Return docs/runbook.md with the entries of rules that own their text, and the name of every collector.

    Raises:
        ValueError: a rule has no text, and no entry by hand.
    """
    names = [name for entry in entries_in(text) for name in entry.names] + ["*.blind"]
    for rule in rules():
        known = any(fnmatchcase(rule.name, one) or fnmatchcase(one, rule.name) for one in names)
        if not rule.means and not known:
            raise ValueError(f"rule {rule.name!r}: give it means and do, or an entry in docs/runbook.md")
    entries = "\n".join(_entry(rule) for rule in rules() if rule.means)
    text = between(text, "rules", f"{HEAD}\n\n{entries}" if entries else "")
    rows = [f"| `{name}` | {one.means} | {one.do} |" for name, one in OF_NODES.items()]
    text = between(text, "reasons", "\n".join(["| reason | means | do |", "|---|---|---|", *rows, ""]))
    text = between(text, "worst", f"```\n{pasted()}\n```\n")
    text = between(text, "alerts", alerting.table())
    blind = ", ".join(f"`{name}.blind`" for name in sorted(one.name for one in components()))
    return formatted(between(text, "blind", f"{blind}\n"))


def reasons() -> Mapping[Path, str]:
    """What the package carries of this page: by rule, what it means and what to do, as plain text."""
    # It reads docs/runbook.md when it is imported.
    from dashboards.runbook import entries  # noqa: PLC0415

    made = {
        name: [_plain(entry.points[label]) for label in ("Means", "Do")]
        for entry in entries()
        for name in sorted(entry.names)
    }
    exact_first = dict(sorted(made.items(), key=lambda one: ("*" in one[0], one[0])))
    return {REASONS: json.dumps(exact_first, indent=1, ensure_ascii=False) + "\n"}


def _plain(text: str) -> str:
    return re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", text).rstrip(".")


def carried() -> Mapping[Path, str]:
    """What agents serve: the page as its title and HTML, and the heading of each alert."""
    text = PAGE.read_text("utf-8")
    headings = {name: alerting.anchor(name) for name in sorted({one.name for one in alerting.alerts()})}
    made = {
        "title": text.removeprefix("# ").partition("\n")[0],
        "body": _html(text),
        "alerts": headings,
    }
    return {SERVED: json.dumps(made, indent=1, ensure_ascii=False) + "\n"}


def _html(text: str) -> str:
    """The page as HTML: headings have the names that links use, and a link to another file is no link."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(re.sub(r"<!--.*?-->\n?", "", text, flags=re.DOTALL))
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open":
            opening.attrSet("id", alerting.slug(inline.content))
    for token in tokens:
        token.children = list(_linked(token.children)) if token.children else token.children
    return str(parser.renderer.render(tokens, parser.options, {}))


def _linked(tokens: Iterable[Token]) -> Iterator[Token]:
    leads = True
    for token in tokens:
        if token.type == "link_open":
            target = str(token.attrGet("href"))
            leads = target.startswith("#") or "://" in target
        if leads or token.type not in {"link_open", "link_close"}:
            yield token


def between(text: str, name: str, made: str) -> str:
    """The text with what is made between `<!-- name -->` and `<!-- end of name -->`."""
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->\n)", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"no place for {name}")
    return pattern.sub(lambda found: f"{found[1]}{made}{found[2]}", text)


def _entry(rule: Rule) -> str:
    points = {
        "Means": rule.means,
        "How bad": _worded(rule.healths) + (ASIDE if rule.name.startswith(LAST) else ""),
        "Look at": rule.look or "the numbers in `wirewatch findings list`",
        "Do": rule.do,
        "After": _after(rule),
        "Rehearse": _rehearse(rule),
    }
    lines = (f"- **{label}:** {_sentence(text)}\n" for label, text in points.items())
    return f"### `{rule.name}`\n\n{''.join(lines)}\n"


def _worded(healths: Iterable[Health]) -> str:
    return ", then ".join(one.name for one in healths)


def _after(rule: Rule) -> str:
    policy = VerdictPolicy()
    if rule.worst is not Health.FAILED or policy.forgets(rule.name):
        return "At once"
    return "Latches" if policy.latches(rule.name) else "Probation"


def _rehearse(rule: Rule) -> str:
    """The bundled faults that make it."""
    faults = (name for name in bundled_overlays() if _makes(name, rule.name))
    known = ", ".join(f"`{name}`" for name in faults)
    return known or f"no overlay{f'; {rule.rehearse}' if rule.rehearse else ''}"


def _makes(fault: str, rule: str) -> bool:
    return any(one.rule == rule for one in load_overlay(fault).findings)


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."
