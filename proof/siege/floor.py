"""The floor of a scrape: prometheus_client's own server over the series of a file.

python -m proof.siege.floor FILE
"""

import sys
import threading
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector


class Fixed(Collector):
    """Families that are made once: nothing is read, so that what is left is the library's own work."""

    def __init__(self, text: str) -> None:
        self._families = [*text_string_to_metric_families(text)]

    def collect(self) -> Iterable[Metric]:
        return self._families


def main() -> None:
    registry = CollectorRegistry()
    registry.register(Fixed(Path(sys.argv[1]).read_text("utf-8")))
    server, _ = start_http_server(0, "127.0.0.1", registry)
    print(server.server_port, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
