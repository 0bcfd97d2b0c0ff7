"""A fleet without daemons: one demo node's page under the names of many, for what grows with their number.

`python -m tests.dashboards.fleet 512` prints what docs/dashboards.md says of 512 nodes.
"""

import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.dashboards.panels import answers
from tests.dashboards.promserver import Prometheus, rules_every, scraping, serving
from tests.dashboards.rig import QUICK
from tests.node.daemon.process import Daemon

CLUSTER = "many"
_OVERLAYS = ("probe-slow", "straggler-pair", "nvlink-crc", "acs-on", "xid-94")


def page(folder: Path, seconds: float = 45.0) -> bytes:
    """What a demo node with several faults says once they have shown."""
    told = [word for name in _OVERLAYS for word in ("--overlay", name)]
    with Daemon(("--replay", "demo-dgx-h200", "--loop", *told), folder, QUICK) as daemon:
        daemon.wait("/metrics", "wirewatch_straggler{", seconds)
        return daemon.wait("/metrics", "wirewatch_xid_events_total{", seconds).text.encode()


@contextmanager
def answering(answer: Callable[[str], bytes]) -> Iterator[str]:
    """Serve the text of each path, without its slash; yields the address, and ends with the block."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = answer(self.path.strip("/"))
            self.send_response(200)
            self.send_header("content-type", "text/plain; version=0.0.4")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            with suppress(BrokenPipeError):  # Prometheus ends, or has waited long enough.
                self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def many(folder: Path, text: bytes, count: int, interval: float) -> Iterator[Prometheus]:
    """Prometheus with so many nodes that all say the same."""

    with answering(lambda _: text) as address:
        targets = [
            (address, {"cluster": CLUSTER, "node": f"n{i:03}", "__metrics_path__": f"/{i}"})
            for i in range(count)
        ]
        config = folder / "many.yml"
        config.write_text(scraping(targets, interval, rules_every(folder, max(interval, 2.0))), "utf-8")
        with serving(folder, config) as prometheus:
            yield prometheus


def wait(prometheus: Prometheus, count: int, scrapes: int) -> None:
    """Until each node has been scraped so many times."""
    while True:
        found = prometheus.instant(f"count(count_over_time(wirewatch_job_ready[10m]) >= {scrapes})")
        if found and int(found[0]["value"][1]) == count:
            return
        time.sleep(1)


def main(count: int) -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        many(Path(folder), page(Path(folder)), count, 15) as prometheus,
    ):
        wait(prometheus, count, 3)
        series = prometheus.instant('count({__name__=~"wirewatch_.+"})')[0]["value"][1]
        # The best of three: other work of the machine is not what is asked for.
        times = zip(*(answers(prometheus, CLUSTER, "n000") for _ in range(3)), strict=True)
        told = sorted(
            (min(three, key=lambda one: one.seconds) for three in times), key=lambda one: one.seconds
        )
        print(f"{count} nodes, {series} series, {len(told)} panels")
        print(f"slowest query of a panel: median {told[len(told) // 2].seconds:.3f} s")
        for one in told[:-6:-1]:
            print(f"{one.seconds:7.3f} s  {one.board}: {one.panel}")
        for one in sorted(told, key=lambda one: max(one.series))[:-6:-1]:
            print(f"{max(one.series):4} {'rows' if one.table else 'lines'}  {one.board}: {one.panel}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
