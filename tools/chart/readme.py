"""The chart's README: its text, and a table of the values with what values.yaml says of each."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from tools.alerting import alerts
from tools.chart import values
from tools.chart.names import ANSWERED, TAKEN
from tools.chart.values import Values
from tools.prose import formatted

MARK = "<!-- values -->"
THRESHOLDS = "<!-- thresholds -->"
NAMES = "<!-- names -->"
_LEFT_OUT = re.compile(r"# (\w+): ([{\[].*)")
"""A value that is left out of values.yaml, since given and left out differ."""
_TYPES = {bool: "bool", int: "int", float: "float", str: "string", list: "list", dict: "object"}
_THRESHOLD = re.compile(r"([0-9.]+)\s*# threshold: (.+)")


def readme(text: str, given: Path) -> str:
    """The text with the table where the mark is; `given` is values.yaml."""
    rows = ["| Key | Type | Default | Description |", "|---|---|---|---|"]
    rows += [
        f"| `{name}` | {kind} | {default} | {about} |" for name, kind, default, about in explained(given)
    ]
    limits = ["| alert | threshold | of |", "|---|---|---|"]
    limits += [f"| `{name}` | {default} | {of} |" for name, (default, of) in thresholds().items()]
    elsewhere = ["| elsewhere | here |", "|---|---|"]
    elsewhere += [f"| `{name}` | `{path}` |" for name, path in TAKEN.items()]
    elsewhere += [f"| `{name}` | {words} |" for name, words in ANSWERED.items()]
    made = "<!-- Made by `make generated` from README.in.md and values.yaml: do not edit. -->\n"
    for mark, table in ((MARK, rows), (THRESHOLDS, limits), (NAMES, elsewhere)):
        text = text.replace(mark, "\n".join(table))
    return formatted(made + text)


def thresholds() -> dict[str, tuple[str, str]]:
    """Alerts with a number that may be replaced: what it is, and of what."""
    found = ((one.name, _THRESHOLD.search(one.expr)) for one in alerts())
    return {name: (match[1], match[2]) for name, match in found if match}


def explained(given: Path) -> Iterator[tuple[str, str, str, str]]:
    """Each value, also one without a default: its path, its type, its default, and the comment above it."""
    text = given.read_text("utf-8")
    lines = text.splitlines()
    rows = list(_rows(yaml.compose(text, yaml.SafeLoader), lines, Values, ""))
    for at, line in enumerate(lines):
        if match := _LEFT_OUT.fullmatch(line):
            rows.append((match[1], _TYPES[type(yaml.safe_load(match[2]))], "", _comment(lines, at)))
    return iter(sorted(rows, key=lambda row: row[0]))


def _rows(
    node: Any, lines: list[str], kind: type[BaseModel], path: str
) -> Iterator[tuple[str, str, str, str]]:
    for key, value in node.value:
        name = f"{path}{key.value}"
        inner = _kind(kind, key.value)
        if inner is None:
            default = yaml.SafeLoader("").construct_document(value)
            yield name, _TYPES[type(default)], _shown(default), _comment(lines, key.start_mark.line)
        else:
            yield from _rows(value, lines, inner, f"{name}.")


def _kind(kind: type[BaseModel], name: str) -> type[BaseModel] | None:
    """The type of the values below, where they are the chart's own and not Kubernetes'."""
    fields = {field.alias or key: field.annotation for key, field in kind.model_fields.items()}
    inner: object = fields[name]
    if isinstance(inner, type) and issubclass(inner, BaseModel) and inner.__module__ == values.__name__:
        return inner
    return None


def _shown(default: object) -> str:
    text = json.dumps(default)
    return f"`{text}`" if len(text) < 60 else "see values.yaml"


def _comment(lines: list[str], line: int) -> str:
    """The lines of comment right above a line, as one."""
    found: list[str] = []
    while line and lines[line - 1].strip().startswith("#"):
        line -= 1
        found.insert(0, lines[line].strip().removeprefix("#").strip())
    return " ".join(found).replace("|", "\\|")
