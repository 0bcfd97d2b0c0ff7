"""The state as Prometheus text or OpenMetrics, each component rendered once a change."""

from collections.abc import Callable, Iterable, Sequence

from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector as PrometheusCollector

from wirewatch.core.component import NodeState
from wirewatch.core.types import Kind, Sample
from wirewatch.export import node

PREFIX = "wirewatch_"
_EOF = b"# EOF\n"


def families(samples: Iterable[Sample]) -> list[Metric]:
    """Exposition families in the order in which they first appear."""
    found: dict[str, Metric] = {}
    for sample in samples:
        metric = sample.metric
        family = found.get(metric.name)
        if family is None:
            family = Metric(PREFIX + metric.name.removesuffix("_total"), metric.help, _type(metric.kind))
            found[metric.name] = family
        labels = dict(zip(metric.labels, sample.labels, strict=True))
        family.add_sample(PREFIX + metric.name, labels, sample.value)
    return list(found.values())


def _type(kind: Kind) -> str:
    """Info families are gauges of 1 by name `_info`: Prometheus' text format has no info type."""
    return "counter" if kind is Kind.COUNTER else "gauge"


class _Fixed(PrometheusCollector):
    def __init__(self, found: Sequence[Metric]) -> None:
        self._found = found

    def collect(self) -> Iterable[Metric]:
        return self._found


class Exposition:
    """Renders a state; keeps each component's text until that component changes."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._texts: dict[tuple[str, str], tuple[object, bytes]] = {}

    def render(self, state: NodeState, accept: str) -> tuple[bytes, str]:
        """The text and its content type, chosen by the Accept header of the request."""
        encode, content_type = choose_encoder(accept)
        parts = [self._part("", state, encode, content_type, node.samples(state, self._source))]
        parts.extend(
            self._part(c.name, c.samples, encode, content_type, c.samples) for c in state.components.values()
        )
        text = b"".join(parts)
        return (text + _EOF if "openmetrics" in content_type else text), content_type

    def _part(
        self,
        name: str,
        version: object,
        encode: Callable[[PrometheusCollector], bytes],
        content_type: str,
        samples: Iterable[Sample],
    ) -> bytes:
        """Samples are a tuple that is replaced when it changes, so its identity is its version."""
        known = self._texts.get((name, content_type))
        if known is not None and known[0] is version:
            return known[1]
        text = encode(_Fixed(families(samples))).removesuffix(_EOF)
        self._texts[name, content_type] = (version, text)
        return text
