"""Many scrapers, and a scrape beside those of other exporters with the same series."""

import asyncio
import http.client
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from proof.hardware.processes import cpu
from proof.siege.attack import Book, Siege
from proof.siege.clients import Address, room, scrape
from proof.siege.daemon import ROOT, Besieged, Ground, SiegeError
from proof.siege.watch import quantile

BOOK = Book()
SCRAPERS, SHORT_SCRAPERS = (1, 10, 50, 200), (50,)
SECONDS, SHORT_SECONDS = 10.0, 4.0
PATIENCE = 10.0
"""Seconds that Prometheus waits for a scrape."""
EACH = 5.0
"""Seconds for each way to scrape, one scrape after the other."""
EXPORTER = "/usr/bin/prometheus-node-exporter"


@dataclass
class Scraped:
    """Seconds of each scrape; those that failed; connections that had to be opened again."""

    times: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    again: int = 0


async def _scraper(address: Address, number: int, coding: str, end: float, scraped: Scraped) -> None:
    """A scrape a second over a connection that is kept, as Prometheus does it."""
    source, streams = f"127.4.{number // 200}.{1 + number % 200}", None
    await asyncio.sleep(number * 0.618 % 1.0)
    while (began := time.monotonic()) < end:
        kept = streams is not None
        try:
            async with asyncio.timeout(PATIENCE):
                streams = streams or await asyncio.open_connection(*address, local_addr=(source, 0))
                await scrape(streams, {"Accept-Encoding": coding})
            scraped.times.append(time.monotonic() - began)
        except (OSError, EOFError, TimeoutError, ValueError, IndexError) as error:
            if streams is not None:
                streams[1].close()
            streams = None
            if kept:
                scraped.again += 1
                continue
            scraped.errors.append(f"{type(error).__name__}: {error}")
        await asyncio.sleep(max(0.0, began + 1.0 - time.monotonic()))
    if streams is not None:
        streams[1].close()


async def scrapers(address: Address, count: int, coding: str, seconds: float) -> Scraped:
    scraped, end = Scraped(), time.monotonic() + seconds
    await asyncio.gather(*(_scraper(address, number, coding, end, scraped) for number in range(count)))
    return scraped


def scraped_by(siege: Siege, daemon: Besieged, count: int, coding: str, seconds: float) -> None:
    """So many scrapers at a daemon that is watched."""
    used = cpu(daemon.pid)
    scraped = asyncio.run(scrapers(daemon.address, count, coding, seconds))
    spent = cpu(daemon.pid).since(used).seconds / seconds
    ranked = sorted(scraped.times)
    siege.figure("p50", quantile(ranked, 0.5) * 1e3, "ms")
    siege.figure("p99", quantile(ranked, 0.99) * 1e3, "ms")
    siege.figure(f"errors of {len(ranked) + len(scraped.errors)}", len(scraped.errors))
    siege.figure("connections again", scraped.again)
    siege.figure("processor", 100 * spent, "%")
    siege.must(
        not scraped.errors,
        f"{count} scrapers: {len(scraped.errors)} errors: {scraped.errors[:1]}",
    )


def load(siege: Siege, coding: str) -> None:
    seconds = SHORT_SECONDS if siege.short else SECONDS
    for count in SHORT_SCRAPERS if siege.short else SCRAPERS:
        with room(count), siege.daemon() as daemon:
            time.sleep(1.0)
            siege.mark = f"{count} scrapers"
            with siege.watched(daemon):
                scraped_by(siege, daemon, count, coding, seconds)
    siege.mark = ""


@BOOK.attack(
    "1, 10, 50 and 200 scrapers, each from its own address once a second over a kept connection, plain"
)
def load_plain(siege: Siege) -> None:
    load(siege, "identity")


@BOOK.attack("The same with gzip")
def load_gzip(siege: Siege) -> None:
    load(siege, "gzip")


@contextmanager
def program(command: list[str], port: Callable[["subprocess.Popen[str]"], int]) -> Iterator[tuple[int, int]]:
    """A server: its port and its process."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT
    )
    try:
        yield port(process), process.pid
    finally:
        process.kill()
        process.wait()


def _printed(process: "subprocess.Popen[str]") -> int:
    assert process.stdout is not None
    return int(process.stdout.readline())


def _client(port: int) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE, source_address=("127.0.0.5", 0))


def _listening(port: int) -> Callable[["subprocess.Popen[str]"], int]:
    def wait(_process: "subprocess.Popen[str]") -> int:
        end = time.monotonic() + 10
        while time.monotonic() < end:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1.0):
                return port
            time.sleep(0.05)
        raise SiegeError("node_exporter does not listen")

    return wait


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def measure(siege: Siege, name: str, port: int, pid: int) -> None:
    """Milliseconds and processor time of a scrape, what the process uses by itself taken off."""
    idle_from, idle = time.monotonic(), cpu(pid)
    time.sleep(EACH)
    # Ticks, which also count threads that have ended: one server makes a thread for each connection.
    own = cpu(pid).since(idle).ticks / (time.monotonic() - idle_from)
    for coding in ("identity", "gzip"):
        client, times, size = _client(port), [], 0
        used, began = cpu(pid), time.monotonic()
        while time.monotonic() < began + EACH:
            asked = time.perf_counter()
            client.request("GET", "/metrics", headers={"Accept-Encoding": coding})
            size = len(client.getresponse().read())
            times.append(time.perf_counter() - asked)
        client.close()
        spent = cpu(pid).since(used).ticks - own * (time.monotonic() - began)
        label = "plain" if coding == "identity" else coding
        siege.figure(f"{name}, {label}", sorted(times)[len(times) // 2] * 1e3, "ms")
        siege.figure(f"{name}, {label}, processor", spent / len(times) * 1e3, "ms")
        siege.figure(f"{name}, {label}, size", size / 1024, "KiB")


def exporters(
    ground: Ground, text: str
) -> Iterator[tuple[str, list[str], Callable[["subprocess.Popen[str]"], int]]]:
    """Those that are compared, with the same series in a file."""
    folder = ground.folder / "textfile"
    folder.mkdir()
    (folder / "series.prom").write_text(text, "utf-8")
    yield (
        "prometheus_client",
        [sys.executable, "-m", "proof.siege.floor", str(folder / "series.prom")],
        _printed,
    )
    if Path(EXPORTER).exists():
        port = _free_port()
        words = ["--collector.disable-defaults", "--collector.textfile", "--web.disable-exporter-metrics"]
        words += [f"--collector.textfile.directory={folder}", f"--web.listen-address=127.0.0.1:{port}"]
        yield "node_exporter", [EXPORTER, *words], _listening(port)


@BOOK.attack(
    "A scrape beside prometheus_client's own server and node_exporter with the same series, one after "
    "the other"
)
def floor(siege: Siege) -> None:
    with siege.daemon() as daemon:
        time.sleep(2.0)
        text = daemon.get("/metrics")[1].decode()
        siege.figure("series", sum(1 for line in text.splitlines() if line and not line.startswith("#")))
        measure(siege, "wirewatch", daemon.address[1], daemon.pid)
        for name, command, port in exporters(daemon.ground, text):
            with program(command, port) as (number, pid):
                measure(siege, name, number, pid)
