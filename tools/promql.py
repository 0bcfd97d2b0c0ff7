"""Which labels a PromQL expression can have, and whether all that it asks for exists: metrics, labels, joins.

An expression about a metric or label that does not exist is valid PromQL, and never true.
"""

from collections.abc import Collection, Iterable, Mapping
from itertools import chain

import promql_parser as ast

from wirewatch.catalogue import components
from wirewatch.documents import process
from wirewatch.documents import series as node
from wirewatch.kubernetes import apiserver as condition
from wirewatch.server import reload as web
from wirewatch_fleet.controller import report as controller

Labels = frozenset[str]
TARGET: Labels = frozenset({"cluster", "node", "rack", "leaf", "pool", "job", "instance"})
"""Labels that a target gets: by relabelling, as deploy/prometheus does, all but the last two."""
FOREIGN: Mapping[str, Labels] = {"up": TARGET, "kube_node_status_capacity": TARGET | {"resource", "unit"}}
"""Series of others: Prometheus' own, and those of kube-state-metrics."""
_SETS = {"and", "unless"}


class BadQueryError(Exception):
    """It asks for what does not exist."""


def exported() -> dict[str, Labels]:
    """Every series that the daemon exports, as it is scraped, with its labels."""
    metrics = chain(
        node.METRICS,
        process.METRICS,
        web.METRICS,
        condition.METRICS,
        controller.METRICS,
        *(one.metrics for one in components()),
    )
    return {metric.exposed: frozenset(metric.labels) | TARGET for metric in metrics}


def labels_of(query: str, series: Mapping[str, Labels]) -> Labels:
    """The labels that a result of this query may have, without its name.

    Raises:
        ValueError: it is no PromQL.
        BadQueryError: see there.
    """
    return _labels(ast.parse(query), series)


def recorded(rules: Iterable[tuple[str, str, Collection[str]]]) -> dict[str, Labels]:
    """All series that there are once these rules (name, query, labels added) have run, in their order.

    A rule that reads its own last result has the labels that `_of_itself` finds.

    Raises:
        ValueError: see `labels_of`.
        BadQueryError: see there; or a rule makes other labels than it reads of itself.
    """
    series = {**exported(), **FOREIGN}
    for name, query, added in rules:
        itself = any(selector.name == name for selector in selectors(query))
        made = frozenset(added)
        series[name] = made | (_of_itself(name, query, series, made) if itself else labels_of(query, series))
    return series


def _of_itself(name: str, query: str, series: Mapping[str, Labels], added: Labels) -> Labels:
    """Labels that a rule makes of its own last result: those it groups by, or those of the other series."""
    names = {one.name for one in selectors(query) if one.name} - {name}
    others = (series[one] for one in names if one in series)
    told = ""
    for assumed in (_grouped(query), frozenset(chain.from_iterable(others))):
        try:
            made = labels_of(query, {**series, name: assumed}) | added
        except BadQueryError as error:
            told = told or str(error)
            continue
        if made == assumed:
            return made
        told = f"{name} has other labels than before: {sorted(made)}"
    raise BadQueryError(told)


def _grouped(query: str) -> Labels:
    found: set[str] = set()

    def visit(expr: ast.Expr) -> None:
        if isinstance(expr, ast.AggregateExpr) and expr.modifier is not None:
            found.update(expr.modifier.labels)

    ast.walk(ast.parse(query), visit)
    return frozenset(found)


def selectors(query: str) -> list[ast.VectorSelector]:
    """All series that it selects."""
    found: list[ast.VectorSelector] = []

    def visit(expr: ast.Expr) -> None:
        if isinstance(expr, ast.MatrixSelector):
            found.append(expr.vector_selector)
        elif isinstance(expr, ast.VectorSelector):
            found.append(expr)

    ast.walk(ast.parse(query), visit)
    return found


def _labels(expr: ast.Expr, series: Mapping[str, Labels]) -> Labels:
    match expr:
        case ast.VectorSelector() | ast.MatrixSelector():
            return _selected(expr if isinstance(expr, ast.VectorSelector) else expr.vector_selector, series)
        case ast.ParenExpr() | ast.UnaryExpr() | ast.SubqueryExpr():
            return _labels(expr.expr, series)
        case ast.AggregateExpr():
            return _aggregated(expr, series)
        case ast.BinaryExpr():
            return _joined(expr, series)
        case ast.Call():
            return _called(expr, series)
        case _:
            return frozenset()


def _selected(selector: ast.VectorSelector, series: Mapping[str, Labels]) -> Labels:
    name = selector.name
    if name is None or name not in series:
        raise BadQueryError(f"no such series: {selector}")
    asked = {matcher.name for matcher in selector.matchers.matchers}
    _need(asked, series[name], str(selector))
    return series[name]


def _aggregated(expr: ast.AggregateExpr, series: Mapping[str, Labels]) -> Labels:
    inner = _labels(expr.expr, series)
    if expr.modifier is None:
        return inner if str(expr.op) in {"topk", "bottomk"} else frozenset()
    named = frozenset(expr.modifier.labels)
    _need(named, inner, expr.prettify())
    by = expr.modifier.type == ast.AggModifierType.By
    if str(expr.op) == "count_values":
        assert isinstance(expr.param, ast.Expr)
        named |= {_text(expr.param)}
    if str(expr.op) in {"topk", "bottomk"}:
        return inner
    return named if by else inner - named


def _joined(expr: ast.BinaryExpr, series: Mapping[str, Labels]) -> Labels:
    left, right = _labels(expr.lhs, series), _labels(expr.rhs, series)
    number = not selectors(expr.lhs.prettify()) or not selectors(expr.rhs.prettify())
    if number or str(expr.op) == "or":
        return left | right
    matching = expr.modifier.matching if expr.modifier else None
    if matching is None:
        _need(left ^ right, frozenset(), f"labels of both sides of {expr.prettify()}")
        return left
    on = frozenset(matching.labels)
    if matching.type == ast.LabelModifierType.Include:
        _need(on, left, expr.prettify())
        _need(on, right, expr.prettify())
    if str(expr.op) in _SETS:
        return left
    taken = frozenset((expr.modifier.group_labels if expr.modifier else None) or ())
    _need(taken, right, expr.prettify())
    many = expr.modifier is not None and expr.modifier.card == ast.VectorMatchCardinality.ManyToOne
    return left | taken if many else on


def _called(call: ast.Call, series: Mapping[str, Labels]) -> Labels:
    name, args = call.func.name, [arg for arg in call.args if isinstance(arg, ast.Expr)]
    if name == "absent":
        (selector,) = selectors(call.prettify())
        _labels(selector, series)
        return frozenset(m.name for m in selector.matchers.matchers if m.op == ast.MatchOp.Equal)
    inner = frozenset(chain.from_iterable(_labels(arg, series) for arg in args))
    if name == "label_replace":
        made, source = (_text(args[place]) for place in (1, 3))
        _need({source} - {""}, inner, call.prettify())
        return inner | {made}
    return inner


def _text(expr: ast.Expr) -> str:
    if not isinstance(expr, ast.StringLiteral):
        raise BadQueryError(f"not a text: {expr.prettify()}")
    return expr.val


def _need(wanted: Labels | set[str], there: Labels, where: str) -> None:
    if missing := sorted(wanted - there):
        raise BadQueryError(f"no label {', '.join(missing)}: {where}")
