"""Connections: thousands at once, slow ones, floods, and users of the node at the local socket."""

import multiprocessing
import os
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path

from proof.siege.attack import MIB, Book, Siege
from proof.siege.clients import WHOLE, crowd, room, sources
from proof.siege.daemon import USUAL, Besieged, Start

BOOK = Book()
HOLD, SHORT_HOLD = 15.0, 4.0
SLOW = 12.0
"""Seconds for each kind of slow client: longer than the kubelet's patience of three periods would be rare."""
SOCKSTAT = Path("/proc/net/sockstat")
BUFFERS = 64 * MIB
"""Bytes that slow readers may make the kernel hold: a pod's limit counts them."""
ONE, FOUR = ["127.0.0.2"], ["127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"]
HEAD = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-A: " + b"a" * 8000
BODY = b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n"


def many(siege: Siege, count: int, seconds: float, start: Start = USUAL) -> None:
    """So many at once, from 250 addresses; those that are put out come again."""
    with (
        room(count),
        siege.daemon(start) as daemon,
        siege.watched(daemon),
        crowd(daemon.address, count, sources(250)) as clients,
    ):
        clients.hold(seconds)
        siege.figure("at once", clients.peak)
        siege.figure("connections in all", clients.opened)


@BOOK.attack(
    "3,000 connections at once from 250 addresses for 15 s, which come again when they are put out",
    short=True,
)
def crowd_3000(siege: Siege) -> None:
    many(siege, 3000, SHORT_HOLD if siege.short else HOLD)


@BOOK.attack("10,000 connections at once, likewise")
def crowd_10000(siege: Siege) -> None:
    many(siege, 10_000, HOLD)


def socket_buffers() -> int:
    """Bytes that the kernel holds for all TCP connections, by /proc/net/sockstat."""
    words = next(line for line in SOCKSTAT.read_text("ascii").splitlines() if line.startswith("TCP:")).split()
    return int(words[words.index("mem") + 1]) * os.sysconf("SC_PAGESIZE")


def slow(siege: Siege, froms: list[str], kinds: dict[str, tuple[bytes, bytes, bool]]) -> None:
    buffers = 0
    with siege.daemon() as daemon, siege.watched(daemon):
        for first, drip, reads in kinds.values():
            with crowd(daemon.address, 64, froms, first, drip, reads=reads) as clients:
                clients.hold(SHORT_HOLD if siege.short else SLOW)
                buffers = max(buffers, socket_buffers())
        siege.most("socket buffers", buffers / MIB, "MiB", BUFFERS / MIB)


KINDS: dict[str, tuple[bytes, bytes, bool]] = {
    "nothing": (b"", b"", True),
    "heads": (HEAD[:4], HEAD[4:], True),
    "bodies": (BODY, b"a", True),
    "readers": (WHOLE * 20, b"", False),
}


@BOOK.attack(
    "64 slow connections from one address, 12 s each: silent, heads a byte a second, bodies a byte a "
    "second, and readers that ask for 20 scrapes and read none"
)
def slow_one(siege: Siege) -> None:
    slow(siege, ONE, KINDS)


@BOOK.attack("The same 64 from four addresses", short=True)
def slow_four(siege: Siege) -> None:
    slow(siege, FOUR, {"heads": KINDS["heads"], "readers": KINDS["readers"]} if siege.short else KINDS)


@BOOK.attack("The same from 64 addresses, 256 at once")
def slow_many(siege: Siege) -> None:
    buffers = 0
    with siege.daemon() as daemon, siege.watched(daemon):
        for first, drip, reads in KINDS.values():
            with crowd(daemon.address, 256, sources(64), first, drip, reads=reads) as clients:
                clients.hold(SLOW)
                buffers = max(buffers, socket_buffers())
        siege.most("socket buffers", buffers / MIB, "MiB", BUFFERS / MIB)


@BOOK.attack(
    "A flood of requests: 16 connections that ask for `/metrics` and `/` without a pause, from four addresses"
)
def flood_requests(siege: Siege) -> None:
    with siege.daemon() as daemon, siege.watched(daemon):
        page = WHOLE.replace(b"/metrics", b"/?refresh=5")
        with crowd(daemon.address, 16, FOUR, (WHOLE * 8 + page) * 20) as clients:
            clients.hold(SHORT_HOLD if siege.short else HOLD)
            siege.figure("connections in all", clients.opened)


def as_user(user: int, work: Callable[[], None]) -> BaseProcess:
    """Some work in a process of a user of the node."""

    def run() -> None:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
        work()

    process = multiprocessing.get_context("fork").Process(target=run, daemon=True)
    process.start()
    return process


def _hold(path: str, over: Event) -> None:
    with crowd(path, 64, [""]) as clients:
        while not over.is_set():
            clients.hold(0.5)


@BOOK.attack(
    "Two users of the node hold 64 connections each at the local socket, while root asks `wirewatch "
    "check --cached`",
    short=True,
)
def users(siege: Siege) -> None:
    rounds = 3 if siege.short else 20
    with siege.daemon() as daemon:
        (daemon.ground.folder / "run").chmod(0o755)
        path, over = str(daemon.ground.socket), multiprocessing.get_context("fork").Event()
        with siege.watched(daemon):
            holding = [as_user(user, lambda: _hold(path, over)) for user in (65533, 65534)]
            try:
                time.sleep(1.0)
                answers = [_check(daemon) for _ in range(rounds)]
            finally:
                over.set()
                for one in holding:
                    one.join(10)
        wrong = [one for one in answers if one != 2]
        siege.figure(f"wrong answers of {rounds}", len(wrong))
        siege.must(not wrong, f"`check --cached` exits with {sorted(set(wrong))} and not with 2")


def _check(daemon: Besieged) -> int:
    return daemon.ground.run("check", "--cached", "--socket", str(daemon.ground.socket)).returncode
