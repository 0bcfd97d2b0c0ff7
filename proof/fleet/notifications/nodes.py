"""What a fleet's agents answer to a scrape: texts of real daemons, well or with a bundled fault.

A play on a jumping clock makes each text; one web server gives it in the name of many nodes.
"""

import asyncio
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from types import TracebackType
from typing import Self

from proof.rehearsal.fleet import shipped_rules
from proof.rehearsal.squeeze import squeezed
from tools.faults.height import healthy, under_a_daemon
from tools.promql import selectors
from wirewatch.hw.overlay import Overlay, load_overlay
from wirewatch.server.exposition import Exposition

WELL, DARK, LOOP = "", "dark", "loop"
"""In place of a fault's name: no fault, an agent that is not heard, one that is killed again and again."""
PERIOD = squeezed(43.0)
"""Seconds from one start of an agent in a loop to the next; in the first half of them it does not answer."""
SINCE = "wirewatch_finding_since_timestamp_seconds"
_LINE = re.compile(r"^(\w+)(\{.*\})? (\S+)$")
_EPOCH = 1e9


@cache
def asked() -> frozenset[str]:
    """The agent's series that the shipped rules ask for."""
    rules = (rule for file in shipped_rules() for rule in file.rules())
    named = {one.name for rule in rules for one in selectors(rule["expr"])}
    return frozenset(name for name in named if name and name.startswith("wirewatch_"))


class Text:
    """One node's answer; its times go on as the agent's do."""

    def __init__(self, fault: str) -> None:
        daemon = under_a_daemon(_overlay(fault)).daemon if fault else healthy()
        text = Exposition("replay").render(daemon.judged).text.decode()
        self._made = daemon.clock.now()
        found = (_LINE.match(line) for line in text.splitlines())
        lines = [one.groups(default="") for one in found if one and one[1] in asked()]
        self._lines = [one for one in lines if one[0] != SINCE]
        self._found = [labels for name, labels, _ in lines if name == SINCE]
        self._last: tuple[int, bytes] = (0, b"")

    def now(self, started: float, since: float) -> bytes:
        """The text of an agent with this start and begin of findings (Unix seconds); made once a second."""
        second = int(time.time())
        if self._last[0] != second:
            lines = (
                f"{name}{labels} {_at(name, value, self._made, second)}\n"
                for name, labels, value in self._lines
            )
            self._last = (second, "".join(lines).encode())
        found = "".join(f"{SINCE}{labels} {since:.3f}\n" for labels in self._found)
        return b"%b%bprocess_start_time_seconds %.3f\n" % (self._last[1], found.encode(), started)


def _overlay(fault: str) -> Overlay:
    """A bundled fault, or several at once: their names with `+` between."""
    every = [load_overlay(name) for name in fault.split("+")]
    changes = tuple(one for overlay in every for one in overlay.changes)
    return replace(every[0], changes=changes, findings=tuple(f for o in every for f in o.findings))


def _at(name: str, value: str, made: float, now: float) -> str:
    """A value; what happened so long before the text was made happened as long before now, squeezed."""
    if name.endswith("_timestamp_seconds") and float(value) > _EPOCH:
        return f"{now - squeezed(max(0.0, made - float(value))):.3f}"
    return value


class _Answers(asyncio.Protocol):
    """Scrapes over one connection, one after the other."""

    def __init__(
        self, texts: Mapping[str, Text], fault: Callable[[str, str], str],
        since: dict[tuple[str, str, str], float],
    ) -> None:  # fmt: skip
        self._texts, self._fault, self._since = texts, fault, since

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        # Prometheus asks again when it has its answer, in one packet.
        cluster, node = data.split(b" ", 2)[1].decode().strip("/").split("/")
        name, started = self._fault(cluster, node), 0.0
        if name == LOOP:
            starts, part = divmod(time.time() / PERIOD, 1.0)
            name, started = (WELL if part >= 0.5 else DARK), starts * PERIOD
        body = (
            b""
            if name == DARK
            else self._texts[name].now(started, self._since.setdefault((cluster, node, name), time.time()))
        )
        status = b"503 Service Unavailable" if name == DARK else b"200 OK"
        head = b"HTTP/1.1 %b\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: %d\r\n\r\n"
        self._transport.write(head % (status, len(body)) + body)


class Nodes:
    """Answers `/CLUSTER/NODE` with what `fault` says of that node at this moment; ends with the block."""

    def __init__(self, texts: Mapping[str, Text], fault: Callable[[str, str], str]) -> None:
        self._answers = partial(_Answers, texts, fault, {})
        self._loop = asyncio.new_event_loop()
        server = self._loop.run_until_complete(self._loop.create_server(self._answers, "127.0.0.1", 0))
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: object, _trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
