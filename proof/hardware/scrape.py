"""Asking the daemon over HTTP, and reading what it exposes."""

import http.client
import time
from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

PREFIX = "wirewatch_"
Labels = dict[str, str]


@dataclass(frozen=True)
class Answer:
    """An HTTP answer; `seconds` from the connect to the last byte."""

    status: int
    body: bytes
    seconds: float


def get(port: int, path: str, timeout: float = 10.0) -> Answer:
    """One request.

    On a connection of its own: the server drops idle ones after 5 s, sooner than any scrape interval.

    Raises:
        OSError: no answer.
    """
    began = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read()
    except http.client.HTTPException as error:
        raise ConnectionError(f"GET {path}: {error!r}") from error
    finally:
        connection.close()
    return Answer(response.status, body, time.perf_counter() - began)


class Scrape:
    """The samples of one scrape of /metrics; names without the common prefix."""

    def __init__(self, text: str, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self._samples: dict[str, list[tuple[Labels, float]]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                name = sample.name.removeprefix(PREFIX)
                self._samples.setdefault(name, []).append((dict(sample.labels), float(sample.value)))

    def find(self, name: str, **labels: str) -> list[tuple[Labels, float]]:
        """Samples of that name whose labels include these."""
        wanted = labels.items()
        return [(told, v) for told, v in self._samples.get(name, []) if wanted <= told.items()]

    def value(self, name: str, **labels: str) -> float | None:
        """The one sample with these labels, None when there is none."""
        found = self.find(name, **labels)
        return found[0][1] if found else None

    def active(self, name: str, label: str, **labels: str) -> str | None:
        """The value of `label` in the sample that is 1, of a metric that is 1 for the state of now."""
        return next((told[label] for told, value in self.find(name, **labels) if value == 1), None)

    def gpus(self) -> list[str]:
        """UUIDs in the order of today's indices."""
        found = sorted(self.find("gpu_info"), key=lambda item: int(item[0]["gpu"]))
        return [told["uuid"] for told, _ in found]

    def gpu_series(self) -> Iterator[tuple[str, ...]]:
        """The identity of every series of a GPU; findings come and go, so they are left out."""
        for name, samples in self._samples.items():
            for told, _ in samples:
                if told.get("uuid") and not name.startswith("finding_"):
                    yield (name, *(f"{k}={v}" for k, v in sorted(told.items())))

    def polled(self, collector: str) -> float:
        """When the newest successful poll of a collector began (Unix time); 0 when the last one failed."""
        if self.value("collector_success", collector=collector) != 1:
            return 0.0
        ended = self.value("collector_last_success_timestamp_seconds", collector=collector)
        took = self.value("collector_duration_seconds", collector=collector)
        return (ended or 0.0) - (took or 0.0)
