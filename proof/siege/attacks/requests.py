"""Requests that no client should make, and those that every client does."""

import gzip
import http.client
import time

from proof.hardware.processes import cpu
from proof.siege.attack import MIB, Book, Siege
from proof.siege.clients import WHOLE, Kept, say, status
from proof.siege.daemon import Besieged

BOOK = Book()
HEADERS, SHORT_HEADERS = 680, 120
ACCEPTED = (
    "text/plain;version=abc", "application/openmetrics-text;version=abc", "text/plain;version=",
    "application/openmetrics-text;version=1.0.0;escaping=none", "text/plain;version=9" + "9" * 4000,
    "application/openmetrics-text;version=1.0.0.0.0.0", "*/*;q=x", ";,;,;", "application/json", "\xff\xfe",
)  # fmt: skip
IDLE, SHORT_IDLE = 65.0, 6.0
ROUNDS, SHORT_ROUNDS = 100, 20


def strange(count: int) -> list[str]:
    """Accept headers, no two of which are the same."""
    return [
        f"application/openmetrics-text;version={1 + number // 7}.{number % 7}.{number};"
        f"escaping={('underscores', 'dots', 'values', 'allow-utf-8')[number % 4]}"
        for number in range(count)
    ]


@BOOK.attack("680 requests for `/metrics`, no two with the same Accept header", short=True)
def accept(siege: Siege) -> None:
    with siege.daemon() as daemon, siege.watched(daemon):
        before, wrong = daemon.size().pss, 0
        client = Kept(daemon.address, "127.0.0.5", {})
        for text in strange(SHORT_HEADERS if siege.short else HEADERS):
            client._headers = {"Accept": text}  # noqa: SLF001
            code, _ = client.get("/metrics")
            wrong += code not in {200, 406}
        client.close()
        siege.figure("memory before", before / MIB, "MiB")
        siege.figure("memory after", daemon.size().pss / MIB, "MiB")
        siege.must(not wrong, f"{wrong} answers that were neither 200 nor 406")


@BOOK.attack(
    "Accept headers that mean nothing: `version=abc`, 4,000 digits, `;,;,;`, bytes that are no text",
    short=True,
)
def version(siege: Siege) -> None:
    with siege.daemon() as daemon, siege.watched(daemon):
        codes = {}
        for text in ACCEPTED:
            head = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAccept: "
            codes[text[:60]] = status(say(daemon.address, head + text.encode("latin-1") + b"\r\n\r\n"))
        bad = {text: code for text, code in codes.items() if code not in {200, 406}}
        siege.figure(f"answers of {len(codes)} that are neither 200 nor 406", len(bad))
        siege.must(not bad, f"neither 200 nor 406: {bad}")


MALFORMED: dict[str, tuple[bytes, frozenset[int]]] = {
    "HTTP/9.9": (b"GET /livez HTTP/9.9\r\nHost: localhost\r\n\r\n", frozenset({400, 505})),
    "Content-Length with Transfer-Encoding": (
        b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc",
        frozenset({400}),
    ),
    "two lengths": (
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        frozenset({400}),
    ),
    "a length that is none": (
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", frozenset({400})
    ),
    "no Host": (b"GET /livez HTTP/1.1\r\n\r\n", frozenset({400})),
    "two Hosts": (b"GET /livez HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", frozenset({400})),
    "NUL in a header": (b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n", frozenset({400})),
    "no HTTP at all": (b"\x16\x03\x01\x02\x00\x01\x00" * 40, frozenset({0, 400})),
    "a head of 12 KiB": (
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * (12 << 10) + b"\r\n\r\n", frozenset({200})
    ),
    "a head of 20 KiB": (
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * (20 << 10) + b"\r\n\r\n",
        frozenset({400, 431}),
    ),
    "a head of 60 KiB": (
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * (60 << 10) + b"\r\n\r\n",
        frozenset({400, 431}),
    ),
    "20 KiB in 500 headers": (
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
        + b"".join(b"X-%03d: %s\r\n" % (number, b"a" * 34) for number in range(500)) + b"\r\n",
        frozenset({400, 431}),
    ),
    "a target of 20 KiB": (
        b"GET /" + b"a" * (20 << 10) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", frozenset({400, 414, 431})
    ),
    "8 MiB of a head without an end": (
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + b"X: " + b"a" * (8 << 20), frozenset({0, 400, 431})
    ),
}  # fmt: skip


@BOOK.attack(
    "Heads of 20 KiB to 8 MiB, in one header or in 500; HTTP/9.9; Content-Length with "
    "Transfer-Encoding, twice, or below 0; no Host or two; bytes that are no HTTP",
    short=True,
)
def malformed(siege: Siege) -> None:
    with siege.daemon() as daemon, siege.watched(daemon):
        bad = {}
        for name, (data, wanted) in MALFORMED.items():
            answer = say(daemon.address, data)
            # A server may end the connection while the rest is on its way, which takes its answer along.
            code = status(answer)
            if code not in wanted and not (code == 0 and len(data) > 16 << 10):
                bad[name] = code
        siege.figure(f"of {len(MALFORMED)} answered wrongly", len(bad))
        siege.must(not bad, f"answered wrongly: {bad}")


@BOOK.attack(
    "What clients do: HEAD, gzip, and a connection that is idle for 65 s between two requests",
    short=True,
)
def usual(siege: Siege) -> None:
    with siege.daemon() as daemon, siege.watched(daemon):
        kept = Kept(daemon.address, "127.0.0.5", {})
        kept.get("/metrics")
        idle_since = time.monotonic()
        head = say(
            daemon.address,
            WHOLE.replace(b"GET", b"HEAD").replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
        )
        lines, _, body = head.partition(b"\r\n\r\n")
        siege.figure("HEAD /metrics", status(head), "status")
        siege.must(status(head) == 200 and not body, f"HEAD: {status(head)}, {len(body)} bytes of body")
        siege.must(b"content-length:" in lines.lower(), "HEAD without a length")
        _compressed(siege, daemon)
        # Until then the connection has been idle for longer than any scrape interval but one.
        time.sleep(max(0.0, idle_since + (SHORT_IDLE if siege.short else IDLE) - time.monotonic()))
        kept.get("/metrics")
        siege.figure("idle", time.monotonic() - idle_since, "s")
        siege.must(not kept.again, "the idle connection had been closed")
        kept.close()


def _compressed(siege: Siege, daemon: Besieged) -> None:
    sizes = {}
    for coding in ("identity", "gzip"):
        client = http.client.HTTPConnection(*daemon.address, timeout=10, source_address=("127.0.0.5", 0))
        times, began = [], cpu(daemon.pid)
        rounds = SHORT_ROUNDS if siege.short else ROUNDS
        for _ in range(rounds):
            asked = time.perf_counter()
            client.request("GET", "/metrics", headers={"Accept-Encoding": coding})
            reply = client.getresponse()
            body = reply.read()
            times.append(time.perf_counter() - asked)
            if reply.getheader("Content-Encoding") == "gzip":
                gzip.decompress(body)
            sizes[coding] = len(body)
        client.close()
        used = cpu(daemon.pid).since(began).seconds / rounds
        siege.figure(f"{coding} bytes", sizes[coding] / 1024, "KiB")
        siege.figure(f"{coding} scrape", sorted(times)[rounds // 2] * 1e3, "ms")
        siege.figure(f"{coding} CPU a scrape, polls included", used * 1e3, "ms")
    siege.must(sizes["gzip"] < sizes["identity"] / 4, "gzip is not offered")
