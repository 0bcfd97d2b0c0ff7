"""Floods that cost the daemon more than the one who makes them: handshakes and wrong passwords."""

import hashlib
import multiprocessing
import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.synchronize import Event
from pathlib import Path

import bcrypt

from proof.siege.attack import Book, Siege
from proof.siege.clients import client
from proof.siege.daemon import Besieged, Start
from proof.siege.watch import ask, connection
from tests.node.server.authority import Authority

BOOK = Book()
TOKEN, COST, HIGHEST = "correct-horse-battery", 12, 14
FLOOD, SHORT_FLOOD = 15.0, 4.0
SCRAPER = "127.0.0.9"
ROTATED = 60.0
"""Seconds within which Prometheus' new password is taken, at most: its next scrape but three."""
STOPPED = 5.0
WEB = "basic_auth_users:\n  prometheus: {hashed}\nbearer_tokens:\n  grafana: sha256:{token}\n"
TLS = "tls_server_config:\n  cert_file: here.crt\n  key_file: here.key\n"


def web(folder: Path, password: str, *, cost: int = COST, tls: bool = False) -> Path:
    """A web configuration with a user and a token."""
    hashed = bcrypt.hashpw(password.encode(), bcrypt.gensalt(cost)).decode()
    text = WEB.format(hashed=hashed, token=hashlib.sha256(TOKEN.encode()).hexdigest())
    file, new = folder / "web.yml", folder / "web.new"
    new.write_text(text + (TLS if tls else ""), "utf-8")
    new.rename(file)
    return file


@contextmanager
def guarded(siege: Siege, *, cost: int = COST, tls: bool = False) -> Iterator[Besieged]:
    with siege.ground() as ground:
        if tls:
            Authority(ground.folder, "ours").pair("here")
        file = web(ground.folder, "first", cost=cost, tls=tls)
        with Besieged(ground, Start(arguments=("--web-config", str(file)))) as daemon:
            yield daemon


def basic(password: str) -> dict[str, str]:
    return {"Authorization": f"Basic {b64encode(f'prometheus:{password}'.encode()).decode()}"}


@contextmanager
def flooding(count: int, work: Callable[[int], object]) -> Iterator[None]:
    """So many processes that do the same again and again."""
    context = multiprocessing.get_context("fork")
    over = context.Event()
    made = [
        context.Process(target=_repeat, args=(number, work, over), daemon=True) for number in range(count)
    ]
    for one in made:
        one.start()
    try:
        yield
    finally:
        over.set()
        for one in made:
            one.join(5)
            if one.is_alive():
                one.kill()


def _repeat(number: int, work: Callable[[int], object], over: Event) -> None:
    while not over.is_set():
        with suppress(OSError):
            work(number)


@BOOK.attack(
    "A flood of TLS handshakes: half of them finished, half left after the first message, from four addresses"
)
def flood_handshakes(siege: Siege) -> None:
    with guarded(siege, tls=True) as daemon, siege.watched(daemon, TOKEN):
        address = daemon.address
        context = ssl._create_unverified_context()  # noqa: S323, SLF001 - the certificate is made for this

        def handshake(number: int) -> None:
            with client(address, f"127.0.0.{2 + number}") as raw:
                raw.settimeout(2.0)
                if number % 2:
                    with context.wrap_socket(raw):
                        return
                raw.sendall(b"\x16\x03\x01\x00\xc8\x01")

        with flooding(4, handshake):
            time.sleep(SHORT_FLOOD if siege.short else FLOOD)


def guess(daemon: Besieged) -> Callable[[int], object]:
    """A wrong password from one of some addresses."""
    url = daemon.url

    def work(number: int) -> None:
        wrong = basic(f"{time.monotonic()}")
        with suppress(Exception):
            ask(
                connection(url, f"127.2.{number}.{1 + int(time.monotonic() * 10) % 200}", 1.0),
                "/metrics",
                wrong,
            )

    return work


@BOOK.attack(
    "Wrong passwords at bcrypt's cost 12 from hundreds of addresses; the password is rotated "
    "meanwhile, and Prometheus asks with the new one from an address of its own; then SIGTERM"
)
def flood_passwords(siege: Siege) -> None:
    with guarded(siege) as daemon:
        first = ask(connection(daemon.url, SCRAPER, 10.0), "/metrics", basic("first"))[0]
        siege.must(first == 200, f"the first password gets {first}")
        with siege.watched(daemon, TOKEN), flooding(12, guess(daemon)):
            time.sleep(1.0)
            web(daemon.ground.folder, "second")
            asked, taken = _until_taken(daemon, SCRAPER)
            siege.most("the new password is taken after", taken, "s", ROTATED)
            siege.figure("refusals until then", asked)
            asked, taken = _until_taken(daemon, "127.0.0.10")
            siege.figure("from an address that was never right after", taken, "s")
            time.sleep(0.0 if siege.short else 5.0)
        with flooding(12, guess(daemon)):
            time.sleep(2.0)
            code, took = daemon.stop()
        siege.most("SIGTERM to the end", took, "s", STOPPED)
        siege.must(code == 0, f"exit status {code}")


def _until_taken(daemon: Besieged, address: str) -> tuple[int, float]:
    """How often the new password was refused, and the seconds until it was taken."""
    began, refused = time.monotonic(), 0
    while time.monotonic() < began + 2 * ROTATED:
        with suppress(OSError):
            if ask(connection(daemon.url, address, 10.0), "/metrics", basic("second"))[0] == 200:
                break
        refused += 1
        time.sleep(1.0)
    return refused, time.monotonic() - began


@BOOK.attack("Twelve wrong passwords at cost 14 that wait in the queue, and SIGTERM at once")
def stop_passwords(siege: Siege) -> None:
    with guarded(siege, cost=HIGHEST) as daemon:
        waiting = [client(daemon.address, f"127.3.0.{1 + number}") for number in range(12)]
        time.sleep(0.2)
        for number, one in enumerate(waiting):
            # No two the same, which would be checked once.
            head = f"Authorization: {basic(f'wrong {number}')['Authorization']}\r\n"
            one.send(f"GET /metrics HTTP/1.1\r\nHost: localhost\r\n{head}\r\n".encode())
        time.sleep(0.2)
        code, took = daemon.stop()
        for one in waiting:
            one.close()
        siege.most("SIGTERM to the end", took, "s", STOPPED)
        siege.must(code == 0, f"exit status {code}")
