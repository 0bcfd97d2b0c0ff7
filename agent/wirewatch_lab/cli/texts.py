"""Texts of the lab's commands, from templates and documents."""

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from wirewatch.cli.tables import table
from wirewatch.cli.templates import render
from wirewatch.core.words import printable

LINES = 15
"""Lines of a first answer."""


def written(template: str, made: Any, **values: Any) -> str:
    """Return the text of a template for the document `made`; line ends inside the document end no line."""
    return render("wirewatch_lab.cli", template, made=_printable(made), table=_table, **values).rstrip("\n")


def first_lines(text: str, *, explain: bool) -> str:
    """Return the first answer of a text, at most fifteen lines; or the whole text."""
    lines = text.split("\n")
    if explain or len(lines) <= LINES:
        return text
    return "\n".join([*lines[: LINES - 1], f"{len(lines) - LINES + 1} more lines: --explain"])


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(table(header, [tuple(map(printable, row)) for row in rows]))


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{one.name: _printable(getattr(value, one.name)) for one in fields(value)})
    if isinstance(value, (tuple, list)):
        return type(value)(map(_printable, value))
    return (
        {_printable(key): _printable(one) for key, one in value.items()} if isinstance(value, dict) else value
    )
