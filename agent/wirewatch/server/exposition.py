"""The state as Prometheus text or OpenMetrics, each metric family rendered once a change."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector as PrometheusCollector

from wirewatch.core.types import Kind, Sample
from wirewatch.documents import series
from wirewatch.documents.series import PREFIX
from wirewatch.kubernetes import outcome
from wirewatch.kubernetes.outcome import ConditionReport
from wirewatch.server import reload
from wirewatch.server.reload import WebReport
from wirewatch.verdict.node import Judged

_EOF = b"# EOF\n"
Encode = Callable[[PrometheusCollector], bytes]


def family(samples: Sequence[Sample]) -> Metric:
    """The exposition family of samples of one metric; at least one.

    Info families are gauges of 1 by name `_info`: Prometheus' text format has no info type.
    """
    metric = samples[0].metric
    kind = "counter" if metric.kind is Kind.COUNTER else "gauge"
    made = Metric(PREFIX + metric.name.removesuffix("_total"), metric.help, kind)
    for sample in samples:
        labels = dict(zip(metric.labels, sample.labels, strict=True))
        made.add_sample(PREFIX + metric.name, labels, sample.value)
    return made


class _One(PrometheusCollector):
    def __init__(self, only: Metric) -> None:
        self._only = only

    def collect(self) -> Iterable[Metric]:
        yield self._only


class _Texts:
    """Texts in one format. Most series never change, so a family's text is kept while its samples do not."""

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._parts: dict[str, tuple[object, bytes]] = {}
        self._families: dict[str, tuple[list[Sample], bytes]] = {}

    def part(self, name: str, version: object, samples: Callable[[], Iterable[Sample]]) -> bytes:
        """The text of a part of the state; `version` is an object that is replaced when the part changes."""
        known = self._parts.get(name)
        if known is not None and known[0] is version:
            return known[1]
        by_metric: dict[str, list[Sample]] = {}
        for sample in samples():
            by_metric.setdefault(sample.metric.name, []).append(sample)
        text = b"".join(self._family(metric, found) for metric, found in by_metric.items())
        self._parts[name] = (version, text)
        return text

    def _family(self, metric: str, samples: list[Sample]) -> bytes:
        known = self._families.get(metric)
        if known is not None and known[0] == samples:
            return known[1]
        text = self._encode(_One(family(samples))).removesuffix(_EOF)
        self._families[metric] = (samples, text)
        return text


class Exposition:
    """Renders a state in the format that a request asks for."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._formats: dict[str, _Texts] = {}

    def render(
        self, judged: Judged, accept: str, web: WebReport | None = None, node: ConditionReport | None = None
    ) -> tuple[bytes, str]:
        """The text and its content type, chosen by the Accept header of the request."""
        encode, content_type = choose_encoder(accept)
        texts = self._formats.setdefault(content_type, _Texts(encode))
        parts = [texts.part("", judged, partial(series.samples, judged, self._source))]
        if web is not None:
            # A name that no component has.
            parts.append(texts.part("/web", web, partial(reload.samples, web)))
        if node is not None:
            parts.append(texts.part("/condition", node, partial(outcome.samples, node)))
        parts += [
            texts.part(c.name, c.samples, partial(series.without_node_info, c.samples))
            for c in judged.state.components.values()
        ]
        text = b"".join(parts)
        return (text + _EOF if "openmetrics" in content_type else text), content_type
