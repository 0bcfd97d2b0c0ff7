"""Which labels the series of a query have, from the query alone and the agent's list of metrics.

Strict where Prometheus is silent: a label that a metric does not have, a match between sides that cannot
match, a rate of what is no counter.
"""

from collections.abc import Mapping
from functools import cache

import promql_parser as promql

from tools import alerting
from tools import promql as rules
from wirewatch.catalogue import components
from wirewatch.core.types import Kind, Metric
from wirewatch.documents import process, series
from wirewatch.kubernetes import apiserver as condition
from wirewatch.server import reload as web
from wirewatch_fleet.controller import report as controller

TARGET = frozenset({"cluster", "node"})
"""What the scrape adds to every series; `instance` and `job` too, which no query may lean on."""
OF_COUNTERS = frozenset({"rate", "irate", "increase", "resets"})
OF_GAUGES = frozenset({"delta", "deriv", "idelta", "predict_linear"})
_SETS = frozenset({"and", "or", "unless"})
_KEEPS = frozenset({"topk", "bottomk", "limitk"})
Labels = frozenset[str]


class QueryError(Exception):
    """A query that asks for what cannot be there."""


@cache
def catalogue() -> Mapping[str, Metric]:
    """All metrics of the agent by their full name."""
    families = [
        *series.METRICS, *process.METRICS, *web.METRICS, *condition.METRICS, *controller.METRICS,
        *(metric for one in components() for metric in one.metrics),
    ]  # fmt: skip
    return {metric.exposed: metric for metric in families}


@cache
def known_labels() -> Mapping[str, Labels]:
    """The labels of each metric, of each series that the rules record, and of Prometheus' own of alerts."""
    asked = [labels for alert in alerting.alerts() for labels in (_of_alert(alert.expr),)]
    of_alerts = frozenset({"alertname", "severity"}).union(*asked)
    return {
        **{name: frozenset(metric.labels) | TARGET for name, metric in catalogue().items()},
        **{one.name: recorded()[one.name] - {"job", "instance"} for one in alerting.records()},
        "ALERTS": of_alerts | {"alertstate"},
        "ALERTS_FOR_STATE": of_alerts,
    }


@cache
def recorded() -> Mapping[str, Labels]:
    return rules.recorded((one.name, one.expr, one.labels) for one in alerting.records())


def _of_alert(query: str) -> Labels:
    return rules.labels_of(query, recorded())


def labels_of(query: str) -> Labels:
    """The labels of what a query gives.

    Raises:
        QueryError: a metric or a label that does not exist, sides that cannot match, a rate of a gauge.
        ValueError: no PromQL.
    """
    return _labels(promql.parse(query))


def metrics_of(query: str) -> set[str]:
    """The metrics of the agent that a query names."""
    found: set[str] = set()

    def see(expr: promql.Expr) -> None:
        if isinstance(expr, promql.VectorSelector):
            found.add(str(expr.name))

    promql.walk(promql.parse(query), pre_visit=see)
    return found & set(catalogue())


def _labels(expr: promql.Expr) -> Labels:
    match expr:
        case promql.VectorSelector() | promql.MatrixSelector():
            return _selected(expr.vector_selector if isinstance(expr, promql.MatrixSelector) else expr)
        case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            return _labels(expr.expr)
        case promql.Call():
            return _called(expr)
        case promql.AggregateExpr():
            return _aggregated(expr)
        case promql.BinaryExpr():
            return _joined(expr)
        case _:  # A number or a text.
            return frozenset()


def _selected(expr: promql.VectorSelector) -> Labels:
    has = known_labels().get(str(expr.name))
    if has is None:
        raise QueryError(f"no metric of the agent: {expr.name}")
    for matcher in expr.matchers.matchers:
        if matcher.name not in has:
            raise QueryError(f"{expr.name} has no label {matcher.name}")
    return has


def _called(expr: promql.Call) -> Labels:
    name, arguments = expr.func.name, expr.args
    if name == "absent":
        _labels(arguments[0])
        return frozenset()
    if name in OF_COUNTERS | OF_GAUGES:
        for metric in metrics_of(arguments[0].prettify()):
            if (catalogue()[metric].kind is Kind.COUNTER) != (name in OF_COUNTERS):
                raise QueryError(f"{name} of {metric}, a {catalogue()[metric].kind.value}")
    vectors = [one for one in arguments if not isinstance(one, promql.NumberLiteral | promql.StringLiteral)]
    has = _labels(vectors[0]) if vectors else frozenset()
    words = [one.val for one in arguments if isinstance(one, promql.StringLiteral)]
    if name == "label_replace":
        made, _, source, _ = words
        return has | {made} if not source else _known(has, [source], expr) | {made}
    if name == "label_join":
        made, _, *sources = words
        return _known(has, sources, expr) | {made}
    return has


def _aggregated(expr: promql.AggregateExpr) -> Labels:
    has, modifier = _labels(expr.expr), expr.modifier
    named = frozenset() if modifier is None else frozenset(modifier.labels)
    if modifier is not None and modifier.type != promql.AggModifierType.By:
        raise QueryError(f"`without` keeps the labels of the scrape: {expr.prettify()}")
    _known(has, named, expr)
    if expr.param is not None and isinstance(expr.param, promql.Expr):
        _labels(expr.param)
    return has if str(expr.op) in _KEEPS else named


def _joined(expr: promql.BinaryExpr) -> Labels:
    left, right = _labels(expr.lhs), _labels(expr.rhs)
    if _scalar(expr.lhs) or _scalar(expr.rhs):
        return left | right
    modifier = expr.modifier
    if str(expr.op) == "or":
        return left | right
    if modifier is None or modifier.matching is None:
        if left != right:
            raise QueryError(f"never match, {sorted(left)} and {sorted(right)}: {expr.prettify()}")
        return left
    on = frozenset(modifier.matching.labels)
    _known(left, on, expr)
    _known(right, on, expr)
    if str(expr.op) in _SETS:
        return left
    if modifier.card == promql.VectorMatchCardinality.ManyToOne:
        return left | frozenset(modifier.group_labels or ())
    return on


def _scalar(expr: promql.Expr) -> bool:
    match expr:
        case promql.NumberLiteral():
            return True
        case promql.ParenExpr() | promql.UnaryExpr():
            return _scalar(expr.expr)
        case promql.Call():
            return expr.func.name in {"time", "scalar", "pi"}
        case promql.BinaryExpr():
            return _scalar(expr.lhs) and _scalar(expr.rhs)
        case _:
            return False


def _known(has: Labels, named: "frozenset[str] | list[str]", expr: promql.Expr) -> Labels:
    if strange := sorted(set(named) - has):
        raise QueryError(f"no label {strange}, only {sorted(has)}: {expr.prettify()}")
    return has
