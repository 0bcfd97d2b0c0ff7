"""The state as Prometheus text or OpenMetrics, each metric family rendered once a change."""

import contextlib
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector as PrometheusCollector

from wirewatch.core.statistics import grouped
from wirewatch.core.types import Kind, Sample, Tier
from wirewatch.documents import process, series
from wirewatch.documents.process import ProcessReport
from wirewatch.kubernetes import apiserver
from wirewatch.kubernetes.apiserver import ConditionReport
from wirewatch.server import reload
from wirewatch.server.reload import WebReport
from wirewatch.verdict.node import Judged

_EOF = b"# EOF\n"
_GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_LAST_BLOCK = b"\x03\x00"
"""The last block of a deflate stream: final, without content (RFC 1951, 3.2.3)."""
_RAW = -zlib.MAX_WBITS
Encode = Callable[[PrometheusCollector], bytes]


def family(samples: Sequence[Sample]) -> Metric:
    """Return the family of one metric's samples; info is a gauge of 1: the text format has no such type."""
    metric = samples[0].metric
    kind = "counter" if metric.kind is Kind.COUNTER else "gauge"
    made = Metric(metric.exposed.removesuffix("_total"), metric.help, kind)
    for sample in samples:
        labels = dict(zip(metric.labels, sample.labels, strict=True))
        made.add_sample(metric.exposed, labels, sample.value)
    return made


def as_openmetrics(samples: Iterable[Sample]) -> bytes:
    """Return the samples as OpenMetrics; samples of one metric stand together."""
    return _encoded(samples, openmetrics.generate_latest) + _EOF


def as_text(samples: Iterable[Sample]) -> bytes:
    """Return the samples as Prometheus text; samples of one metric stand together."""
    return _encoded(samples, generate_latest)


def _encoded(samples: Iterable[Sample], encode: Encode) -> bytes:
    by_metric = grouped((sample.metric.name, sample) for sample in samples)
    texts = (encode(_One(family(found))) for found in by_metric.values())
    return b"".join(text.removesuffix(_EOF) for text in texts)


class _One(PrometheusCollector):
    def __init__(self, only: Metric) -> None:
        self._only = only

    def collect(self) -> Iterable[Metric]:
        yield self._only


@dataclass(slots=True)
class _Part:
    """The text of a part of the state, as it is and, once that was asked for, as blocks of deflate."""

    version: object
    text: bytes
    blocks: bytes | None = None

    def deflated(self) -> bytes:
        if self.blocks is None:
            deflating = zlib.compressobj(wbits=_RAW)
            self.blocks = deflating.compress(self.text) + deflating.flush(zlib.Z_SYNC_FLUSH)
        return self.blocks


class _Texts:
    """Texts of a tier in one format; most series never change, so a family's text is kept with them."""

    def __init__(self, encode: Encode, tier: Tier) -> None:
        self._encode = encode
        self._tier = tier
        self._parts: dict[str, _Part] = {}
        self._families: dict[str, tuple[list[Sample], bytes]] = {}

    def part(self, name: str, version: object, samples: Callable[[], Iterable[Sample]]) -> _Part:
        """A part of the state; `version` is an object that is replaced when the part changes."""
        known = self._parts.get(name)
        if known is not None and known.version is version:
            return known
        shown = (one for one in samples() if one.in_tier(self._tier))
        by_metric = grouped((sample.metric.name, sample) for sample in shown)
        text = b"".join(self._family(metric, found) for metric, found in by_metric.items())
        made = self._parts[name] = _Part(version, text)
        return made

    def _family(self, metric: str, samples: list[Sample]) -> bytes:
        known = self._families.get(metric)
        if known is not None and known[0] == samples:
            return known[1]
        text = self._encode(_One(family(samples))).removesuffix(_EOF)
        self._families[metric] = (samples, text)
        return text


@dataclass(frozen=True, slots=True)
class Rendered:
    """The answer to a scrape, with the headers that depend on the request."""

    text: bytes
    headers: tuple[tuple[str, str], ...]


class Exposition:
    """Renders a state as Prometheus text or OpenMetrics, plain or gzipped; `tier` where none is asked for."""

    def __init__(self, source: str, tier: Tier = Tier.FULL) -> None:
        self._source, self._tier = source, tier
        self._plain = {one: _Texts(generate_latest, one) for one in Tier}
        self._open = {one: _Texts(openmetrics.generate_latest, one) for one in Tier}

    def render(
        self, judged: Judged, accept: str = "", web: WebReport | None = None,
        node: ConditionReport | None = None, own: ProcessReport | None = None, *, encoding: str = "",
        tier: Tier | None = None,
    ) -> Rendered:  # fmt: skip
        """The answer to a request with these headers Accept and Accept-Encoding.

        Each part is compressed once a change, not once a scrape. Their blocks of deflate make one stream: RFC
        1951 allows that, as each begins on a byte and refers to nothing before it.
        """
        as_openmetrics = takes_openmetrics(accept)
        texts = (self._open if as_openmetrics else self._plain)[tier or self._tier]
        parts = [texts.part("", judged, partial(series.samples, judged, self._source))]
        if web is not None:
            # A name that no component has.
            parts.append(texts.part("/web", web, partial(reload.samples, web)))
        if own is not None:
            parts.append(texts.part("/process", own, partial(process.samples, own)))
        if node is not None:
            parts.append(texts.part("/condition", node, partial(apiserver.samples, node)))
        parts += [
            texts.part(c.name, c.samples, partial(series.without_node_info, c.samples))
            for c in judged.state.components.values()
        ]
        if as_openmetrics:
            parts.append(_Part(None, _EOF))
        text = b"".join(part.text for part in parts)
        kind = openmetrics.CONTENT_TYPE_LATEST if as_openmetrics else CONTENT_TYPE_PLAIN_0_0_4
        headers = (("content-type", kind), ("vary", "Accept, Accept-Encoding"))
        if not takes_gzip(encoding):
            return Rendered(text, headers)
        return Rendered(_gzipped(text, parts), (*headers, ("content-encoding", "gzip")))


def _gzipped(text: bytes, parts: Iterable[_Part]) -> bytes:
    """The parts, whose text is `text`, as one member of gzip (RFC 1952)."""
    blocks = b"".join(part.deflated() for part in parts)
    end = zlib.crc32(text).to_bytes(4, "little") + (len(text) & 0xFFFFFFFF).to_bytes(4, "little")
    return _GZIP_HEAD + blocks + _LAST_BLOCK + end


def takes_openmetrics(accept: str) -> bool:
    """Tell whether OpenMetrics is named in Accept (RFC 9110, 12.5), and not with less weight than text."""
    weights = _weights(accept)
    return 0 < weights.get("application/openmetrics-text", 0.0) >= weights.get("text/plain", 0.0)


def takes_gzip(accept_encoding: str) -> bool:
    """Tell whether the client takes an answer that is compressed by gzip."""
    weights = _weights(accept_encoding)
    return weights.get("gzip", weights.get("*", 0.0)) > 0


def _weights(header: str) -> dict[str, float]:
    """Return the weight of each name in such a header, from 0 to 1; what cannot be read is left out."""
    weights: dict[str, float] = {}
    for item in header.split(","):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        weight = next((value for key, _, value in (p.partition("=") for p in parameters) if key == "q"), "1")
        with contextlib.suppress(ValueError):
            weights[name] = max(weights.get(name, 0.0), min(float(weight), 1.0))
    return weights
