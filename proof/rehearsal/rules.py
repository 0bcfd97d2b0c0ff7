"""Rules with all their times squeezed: `for`, `keep_firing_for`, intervals, ranges, offsets and ages.

Nothing else of a rule is changed; every expression is parsed before and after.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import promql_parser as promql
import yaml

from proof.rehearsal.squeeze import squeezed
from tools.yamlfile import load_yaml

COMPARISONS = frozenset({">", "<", ">=", "<=", "==", "!="})
EPOCH = 1e9
"""Seconds from which on a number that is compared with a time is a date and no age."""
_TOKEN = re.compile(
    r"""(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`[^`]*`)
    |(?P<name>(?:[a-zA-Z_]|:(?!\d))[\w:]*)
    |(?P<duration>(?:\d+(?:ms|[smhdwy]))+(?!\w))
    |(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)""",
    re.VERBOSE,
)
_LIMIT = re.compile(
    r"(?:[<>=!]=|[<>])\s*(?:bool\b\s*)?(?P<limit>\d[\d.]*(?:[eE]\d+)?(?:\s*\*\s*\d[\d.]*)*)(?![\w.])"
)
"""A comparison with a number, or with a product of some."""
MARK = 987654321.125
Document = dict[str, Any]
Rule = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rules:
    """One file of rules, as its document."""

    document: Document

    @classmethod
    def read(cls, text: str) -> "Rules":
        return cls(load_yaml(text))

    def groups(self) -> Iterator[Document]:
        yield from self.document["groups"]

    def rules(self) -> Iterator[Rule]:
        for group in self.groups():
            yield from group["rules"]

    def squeezed(self, ages: frozenset[str]) -> str:
        """The file for a rehearsal; `ages` are recorded series that are ages, from `recorded_ages`."""
        groups = [_group(group, ages) for group in self.groups()]
        return yaml.safe_dump({**self.document, "groups": groups}, sort_keys=False, width=10_000)


def recorded_ages(files: Sequence[Rules]) -> frozenset[str]:
    """Recorded series whose expression is an age: a difference to now."""
    return frozenset(
        rule["record"]
        for file in files
        for rule in file.rules()
        if "record" in rule and _is_age(promql.parse(rule["expr"]), frozenset())
    )


def seconds(duration: str) -> float:
    """Seconds of a duration of Prometheus, which is more than 0.

    Raises:
        ValueError: it is none.
    """
    return promql.parse_duration(duration).total_seconds()


def shorter(duration: str) -> str:
    """A duration, squeezed; at least a millisecond."""
    return f"{max(round(squeezed(seconds(duration)) * 1000), 1)}ms"


def _group(group: Document, ages: frozenset[str]) -> Document:
    rules = [_rule(rule, ages) for rule in group["rules"]]
    return {**_times(group, ("interval",)), "rules": rules}


def _rule(rule: Rule, ages: frozenset[str]) -> Document:
    return {**_times(rule, ("for", "keep_firing_for")), "expr": expression(rule["expr"], ages)}


def _times(values: Mapping[str, Any], names: Sequence[str]) -> Document:
    return {key: shorter(value) if key in names else value for key, value in values.items()}


def expression(text: str, ages: frozenset[str] = frozenset()) -> str:
    """An expression with its ranges and offsets squeezed, and the numbers that ages are compared with.

    Raises:
        ValueError: it is no PromQL.
    """
    promql.parse(text)
    limits = [place for place in _LIMIT.finditer(text) if _limits_an_age(text, place, ages)]
    # From the end, so that places before it stay where they are.
    for place in reversed(limits):
        younger = f"{squeezed(_number(promql.parse(place['limit']))):.3f}"
        text = text[: place.start("limit")] + younger + text[place.end("limit") :]
    told = _TOKEN.sub(_token, text)
    promql.parse(told)
    return told


def _token(token: re.Match[str]) -> str:
    return shorter(token[0]) if token.lastgroup == "duration" else token[0]


def _limits_an_age(text: str, place: re.Match[str], ages: frozenset[str]) -> bool:
    """Whether the number at this place of an expression is what an age is compared with.

    The parser does not tell places: a number that is nowhere else is put there, and looked for in the tree.
    """
    if _number(promql.parse(place["limit"])) >= EPOCH:
        return False
    tree = promql.parse(f"{text[: place.start('limit')]}{MARK}{text[place.end('limit') :]}")
    found: list[promql.BinaryExpr] = []

    def look(node: promql.Expr) -> None:
        if isinstance(node, promql.BinaryExpr) and str(node.op) in COMPARISONS and _is_mark(node.rhs):
            found.append(node)

    promql.walk(tree, look)
    return any(_is_age(node.lhs, ages) for node in found)


def _is_mark(node: promql.Expr) -> bool:
    return isinstance(node, promql.NumberLiteral) and node.val == MARK


def _is_age(node: promql.Expr, ages: frozenset[str]) -> bool:
    """Whether a value is a difference to now, or is recorded as one; what a comparison lets through is."""
    if isinstance(node, promql.ParenExpr | promql.AggregateExpr):
        return _is_age(node.expr, ages)
    if isinstance(node, promql.VectorSelector):
        return node.name in ages
    if not isinstance(node, promql.BinaryExpr):
        return False
    op = str(node.op)
    if op == "-":
        return any(
            isinstance(side, promql.Call) and side.func.name == "time" for side in (node.lhs, node.rhs)
        )
    return op in {*COMPARISONS, "unless", "and", "or"} and _is_age(node.lhs, ages)


def _number(node: promql.Expr) -> float:
    """The value of a product of numbers."""
    if isinstance(node, promql.NumberLiteral):
        return node.val
    assert isinstance(node, promql.BinaryExpr), str(node)
    return _number(node.lhs) * _number(node.rhs)
