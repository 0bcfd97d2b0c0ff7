"""The words that end names of metrics."""

from tests.dashboards.labels import catalogue
from wirewatch.core.declared import PLAIN
from wirewatch.core.types import Kind, Metric
from wirewatch_lab.study import parsed


def test_a_plain_word_is_known_only_while_a_metric_ends_with_it() -> None:
    metrics = [*catalogue().values(), *(one for one in vars(parsed).values() if isinstance(one, Metric))]
    ends = {one.name.removesuffix("_max").rpartition("_")[2] for one in metrics if one.kind is Kind.GAUGE}
    assert ends >= PLAIN - {"expected"}
