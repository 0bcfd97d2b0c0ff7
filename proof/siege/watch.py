"""What Prometheus, the kubelet and a job's start see of a daemon meanwhile; as a program it asks until told.

    python -m proof.siege.watch URL SOCKET [TOKEN]

Each asks from an address of its own and over a connection of its own. The end of standard input ends it; it
prints one JSON document.
"""

import http.client
import json
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

PROMETHEUS, KUBELET = "127.0.0.9", "127.0.0.1"
"""The kubelet asks from the machine itself."""
EVERY = {"metrics": 1.0, "livez": 0.2, "local": 0.2}
"""Seconds between two questions of each client. A scraper that came more often than a crowd's addresses would
give way to them."""
LIVEZ, SCRAPE, LOCAL = 1.0, 10.0, 3.0
"""Seconds after which the kubelet, Prometheus and `check` give up, by their defaults."""
DAY = 86400.0
RULE, PART = "nvlink.link_down", {"gpu": "2", "link": "7"}
"""What is wrong with the node that is besieged."""
SUCCESS = "wirewatch_collector_last_success_timestamp_seconds"


@dataclass
class Seen:
    """The answers to one question: seconds of each good one, errors, the longest time without a good one."""

    times: list[float] = field(default_factory=list)
    errors: int = 0
    first: str = ""
    gap: float = 0.0
    last: float = 0.0

    def good(self, began: float) -> None:
        now = time.monotonic()
        self.gap = max(self.gap, now - (self.last or began))
        self.last = now
        self.times.append(now - began)

    def bad(self, why: str) -> None:
        self.errors += 1
        self.first = self.first or why

    def document(self) -> dict[str, Any]:
        ranked = sorted(self.times)
        if self.last:
            self.gap = max(self.gap, time.monotonic() - self.last)
        return {
            "asked": len(ranked) + self.errors, "errors": self.errors, "first": self.first, "gap": self.gap,
            "p50": quantile(ranked, 0.5), "p99": quantile(ranked, 0.99),
        }  # fmt: skip


def quantile(ranked: list[float], part: float) -> float:
    """Of values in order; 0 of none."""
    return ranked[min(len(ranked) - 1, int(len(ranked) * part))] if ranked else 0.0


@dataclass
class Verdict:
    """Whether the verdict was FAILED by the right name, and what was found beside it."""

    wrong: int = 0
    first: str = ""
    beside: set[str] = field(default_factory=set)

    def see(self, document: Mapping[str, Any]) -> None:
        found = [(one["rule"], one["subject"]) for one in document["findings"]]
        named = any(rule == RULE and PART.items() <= subject.items() for rule, subject in found)
        if document["health"] != "failed" or not named:
            self.wrong += 1
            self.first = self.first or f"{document['health']}: {sorted({rule for rule, _ in found})}"
        self.beside |= {rule for rule, _ in found if rule != RULE}


@dataclass
class Polls:
    """The longest time between two polls of each collector that polls every second."""

    last: dict[str, float] = field(default_factory=dict)
    gaps: dict[str, float] = field(default_factory=dict)

    def see(self, text: str) -> None:
        for line in text.splitlines():
            if line.startswith(SUCCESS):
                name, at = line.split('"')[1], float(line.split()[-1])
                before = self.last.get(name, at)
                # A clock that was set is no gap.
                passed = at - before if 0 <= at - before < DAY else 0.0
                self.gaps[name] = max(self.gaps.get(name, 0.0), passed)
                self.last[name] = at


class Local(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def connection(url: str, source: str, timeout: float) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    if parts.scheme == "https":
        context = ssl._create_unverified_context()  # noqa: S323, SLF001 - the certificate is made for this
        return http.client.HTTPSConnection(
            parts.netloc, timeout=timeout, source_address=(source, 0), context=context
        )
    return http.client.HTTPConnection(parts.netloc, timeout=timeout, source_address=(source, 0))


def ask(made: http.client.HTTPConnection, path: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
    try:
        made.request("GET", path, headers=dict(headers))
        reply = made.getresponse()
        return reply.status, reply.read()
    finally:
        made.close()


class Watch:
    """The three of them, each in a thread, until `end`."""

    def __init__(self, url: str, path: str, token: str) -> None:
        self._url, self._path = url, path
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._over = threading.Event()
        self.seen = {"metrics": Seen(), "livez": Seen(), "local": Seen()}
        self.verdict, self.polls = Verdict(), Polls()
        workers = (("metrics", self._scrape), ("livez", self._livez), ("local", self._local))
        self._threads = [threading.Thread(target=self._repeat, args=work) for work in workers]
        for thread in self._threads:
            thread.start()

    def end(self) -> dict[str, Any]:
        self._over.set()
        for thread in self._threads:
            thread.join()
        return {
            **{name: seen.document() for name, seen in self.seen.items()},
            "wrong": self.verdict.wrong, "first": self.verdict.first, "beside": sorted(self.verdict.beside),
            "gaps": self.polls.gaps,
        }  # fmt: skip

    def _repeat(self, name: str, work: Callable[[], str]) -> None:
        seen = self.seen[name]
        seen.last = time.monotonic()
        while not self._over.is_set():
            began = time.monotonic()
            try:
                why = work()
            except (OSError, http.client.HTTPException, ValueError) as error:
                why = f"{type(error).__name__}: {error}"
            if why:
                seen.bad(why)
            else:
                seen.good(began)
            self._over.wait(max(0.0, began + EVERY[name] - time.monotonic()))

    def _scrape(self) -> str:
        status, _ = ask(connection(self._url, PROMETHEUS, SCRAPE), "/metrics", self._headers)
        return "" if status == 200 else f"status {status}"

    def _livez(self) -> str:
        status, _ = ask(connection(self._url, KUBELET, LIVEZ), "/livez", {})
        return "" if status == 200 else f"status {status}"

    def _local(self) -> str:
        status, body = ask(Local(self._path, LOCAL), "/health", {})
        if status not in {200, 503}:
            return f"status {status}"
        self.verdict.see(json.loads(body))
        # Not from the port, which may be without an answer while every lane turns.
        self.polls.see(ask(Local(self._path, LOCAL), "/metrics", {})[1].decode())
        return ""


def main() -> None:
    watch = Watch(*(*sys.argv[1:], "")[:3])
    time.sleep(max(EVERY.values()))
    print("watching", flush=True)
    sys.stdin.read()
    print(json.dumps(watch.end()))


if __name__ == "__main__":
    main()
