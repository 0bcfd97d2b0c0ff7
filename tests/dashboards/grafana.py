"""A dashboard's JSON as Grafana would run it: its variables and built-in ones put into queries and texts."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Variables = Mapping[str, str | Sequence[str]]
_NAME = re.compile(r"\$\{(\w+)(?::\w+)?\}|\$(\w+)|\[\[(\w+)\]\]")
_SPECIAL = re.compile(r"[\\^$.*+?()|\[\]{}]")
BUILT_IN = {"__rate_interval": "1m", "__interval": "2s", "__range": "60s"}


class UnknownVariableError(Exception):
    """A query names what is no variable."""


def put_in(text: str, variables: Variables) -> str:
    """A query with values for variables, as Grafana's Prometheus data source writes them.

    A text goes in as it is (as the value of All does), several values as a pattern.

    Raises:
        UnknownVariableError: see there.
    """

    def value(found: re.Match[str]) -> str:
        name = next(group for group in found.groups() if group)
        if name in BUILT_IN:
            return BUILT_IN[name]
        if name.isdigit():
            return found[0]  # A group of label_replace: Grafana leaves what is no variable of its own alone.
        if name not in variables:
            raise UnknownVariableError(f"{name} in {text}")
        chosen = variables[name]
        if isinstance(chosen, str):
            return chosen
        quoted = [_SPECIAL.sub(r"\\\\\g<0>", one) for one in chosen]
        return quoted[0] if len(quoted) == 1 else f"({'|'.join(quoted)})"

    return _NAME.sub(value, text)


@dataclass(frozen=True)
class Asked:
    """One query of a panel, by the panel's title."""

    panel: str
    ref: str
    expr: str
    instant: bool
    table: bool


def panels(board: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Its panels without rows, those that are inside a collapsed row too."""
    every = (one for panel in board["panels"] for one in (panel, *panel.get("panels", ())))
    return [panel for panel in every if panel["type"] != "row"]


def asked(board: Mapping[str, Any]) -> Iterator[Asked]:
    """All queries of its panels, variables still in them."""
    for panel in panels(board):
        for target in panel.get("targets", []):
            table = target.get("format") == "table"
            yield Asked(panel["title"], target["refId"], target["expr"], bool(target.get("instant")), table)
