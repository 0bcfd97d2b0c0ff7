"""The HTTP server alone: slow clients of each kind, kept connections, scrapes, 64 requests, and rest."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from proof.hardware.processes import cpu
from proof.siege.attack import MIB, Book, Siege
from proof.siege.attacks.connections import KINDS, socket_buffers
from proof.siege.attacks.floods import TOKEN, guarded
from proof.siege.attacks.load import scraped_by
from proof.siege.clients import Kept, crowd, sources
from proof.siege.daemon import Besieged, Ground
from proof.siege.vectors import VECTORS, answered
from proof.siege.watch import quantile

BOOK = Book()
CROWD, FROM = 200, 50
"""More than there are places, and fewer than these and the queue of the listening socket (128) together."""
HOLD = 12.0
SCRAPES = 1500
REST = 20.0
KEPT = 100


def held(siege: Siege, daemon: Besieged, first: bytes, drip: bytes, *, reads: bool = True) -> None:
    """So many clients of a kind at once; one that is put out comes again."""
    began, used = time.monotonic(), cpu(daemon.pid)
    with crowd(daemon.address, CROWD, sources(FROM), first, drip, reads=reads) as clients:
        clients.hold(HOLD)
        siege.figure("socket buffers", socket_buffers() / MIB, "MiB")
        siege.figure("connections in all", clients.opened)
    siege.figure("processor", 100 * cpu(daemon.pid).since(used).seconds / (time.monotonic() - began), "%")


def slow(siege: Siege, kind: str) -> None:
    with siege.daemon() as daemon, siege.watched(daemon):
        held(siege, daemon, *KINDS[kind][:2], reads=KINDS[kind][2])


@BOOK.attack("connections that say nothing")
def idle(siege: Siege) -> None:
    slow(siege, "nothing")


@BOOK.attack("heads, a byte a second")
def heads(siege: Siege) -> None:
    slow(siege, "heads")


@BOOK.attack("bodies, a byte a second")
def bodies(siege: Siege) -> None:
    slow(siege, "bodies")


@BOOK.attack("readers that ask for 20 scrapes and read none")
def readers(siege: Siege) -> None:
    slow(siege, "readers")


@BOOK.attack("connections to a port with TLS that say nothing")
def tls(siege: Siege) -> None:
    with guarded(siege, tls=True) as daemon, siege.watched(daemon, TOKEN):
        held(siege, daemon, b"", b"")


@BOOK.attack("scrapers with kept connections")
def kept(siege: Siege) -> None:
    with siege.daemon() as daemon:
        time.sleep(1.0)
        scraped_by(siege, daemon, KEPT, "identity", HOLD)


@BOOK.attack("one scrape after the other")
def scrape(siege: Siege) -> None:
    with siege.daemon() as daemon:
        time.sleep(2.0)
        for coding, label in (("identity", "plain"), ("gzip", "gzip")):
            client, times = Kept(daemon.address, "127.0.0.5", {"Accept-Encoding": coding}), []
            used = cpu(daemon.pid)
            for _ in range(SCRAPES):
                began = time.perf_counter()
                client.get("/metrics")
                times.append(time.perf_counter() - began)
            client.close()
            siege.figure(f"{label} p50", quantile(sorted(times), 0.5) * 1e3, "ms")
            siege.figure(f"{label} p99", quantile(sorted(times), 0.99) * 1e3, "ms")
            siege.figure(f"{label} processor", cpu(daemon.pid).since(used).seconds / SCRAPES * 1e3, "ms")


@contextmanager
def alone(tree: Path, which: str) -> Iterator[tuple[tuple[str, int], int]]:
    """A server without a daemon: its address and its process."""
    command = [sys.executable, "-P", "-m", "proof.siege.alone", which]
    environment = Ground(tree, tree).environment()
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        try:
            yield ("127.0.0.1", int(process.stdout.readline())), process.pid
        finally:
            process.kill()


def _switches(pid: int) -> int:
    """How often it has gone to sleep."""
    text = Path(f"/proc/{pid}/status").read_text("ascii")
    return int(text.partition("voluntary_ctxt_switches:")[2].split()[0])


def _rests(siege: Siege, tree: Path, which: str, count: int) -> None:
    with alone(tree, which) as (address, pid), ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(address)) for _ in range(count)]
        for client in clients:
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            client.recv(1 << 16)
        time.sleep(0.5)
        before, used, began = _switches(pid), cpu(pid), time.monotonic()
        time.sleep(REST)
        seconds = time.monotonic() - began
        siege.figure(f"{which}, {count} kept, wakeups a second", (_switches(pid) - before) / seconds)
        siege.figure(f"{which}, {count} kept, processor", 100 * cpu(pid).since(used).seconds / seconds, "%")


@BOOK.attack("rest")
def rest(siege: Siege) -> None:
    for count in (0, KEPT):
        _rests(siege, siege.tree, "ours", count)
    _rests(siege, siege.tree, "uvicorn", 0)
    with siege.daemon() as daemon:
        time.sleep(3.0)
        siege.figure("daemon's memory", daemon.size().pss / MIB, "MiB")


@BOOK.attack("64 requests byte for byte")
def vectors(siege: Siege) -> None:
    with alone(siege.tree, "ours") as (address, _):
        wrong = {one.name: got for one in VECTORS if (got := answered(address, one)) != one.wanted}
    siege.figure(f"of {len(VECTORS)} as wanted", len(VECTORS) - len(wrong))
    siege.must(not wrong, f"answered otherwise: {wrong}")
