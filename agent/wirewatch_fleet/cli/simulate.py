"""`wirewatch fleet simulate`: the `/metrics` of many nodes from one process, to size a Prometheus.

The pages come from a single node's page and a script of faults. Identifiers of parts (a GPU's UUID, serials,
GUIDs) differ from node to node. Counters grow, measured values vary a little, and probe results change with
each probe.
"""

import asyncio
import json
import math
import random
import re
import resource
import signal
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wirewatch.cli.groups import examples
from wirewatch.cli.options import Duration, WholeNumber
from wirewatch.core.types import Tier, Unusable, utf8

if TYPE_CHECKING:
    from wirewatch.server.guard import Receive, Scope, Send

SILENT, GONE = "silent", "gone"
"""Script actions besides hardware faults: the node does not answer, or is no target any more."""
PROBES = 600.0
"""Seconds between two probes of a node."""
POLLS = 15.0
"""Seconds between two polls of a collector."""
_SAMPLE = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?P<labels>\{.*\})? (?P<value>\S+)")
_TYPE = re.compile(r"# TYPE (\S+) (\S+)")
_OWN = re.compile(r'(\b(?:uuid="GPU-|serial="|guid="))([^"]{4})')
_TIMESTAMPS, _SUCCESSES = (
    "_timestamp_seconds",
    ("_last_success_timestamp_seconds", "_last_update_timestamp_seconds"),
)
_PROBED = ("wirewatch_probe_busbw", "wirewatch_peer_bandwidth", "wirewatch_straggler_score")
_MEASURED = ("_celsius", "_watts", "_utilization_ratio", "_duration_seconds", "_resident_memory_bytes")
_BYTES, _SECONDS = 20e9, 0.02
"""Growth of counters of bytes and of seconds, for each second."""
_NODE = "\x01"
_DRAWN = random.Random(23)  # noqa: S311 - it only has to vary
_NOISE = tuple(_DRAWN.uniform(-1, 1) for _ in range(4099))
Value = Callable[[int, float], float]
"""Returns the value of a series on a node, by its number, at a time (Unix seconds)."""


@dataclass(frozen=True, slots=True)
class ScriptedFault:
    """A fault of so many nodes: an overlay's name, SILENT or GONE; `start` and `end` in seconds."""

    name: str
    nodes: int
    start: float = 0.0
    end: float = math.inf

    def holds(self, seconds: float) -> bool:
        return self.start <= seconds < self.end


@dataclass(frozen=True, slots=True)
class Script:
    """Assigns faults to nodes: the first nodes get the first fault, the next nodes the second, and so on.

    Raises:
        Unusable: there are fewer nodes than the faults take.
    """

    nodes: int
    faults: Sequence[ScriptedFault] = ()

    def __post_init__(self) -> None:
        if (taken := sum(fault.nodes for fault in self.faults)) > self.nodes:
            raise Unusable(f"the faults take {taken:,} nodes, and there are {self.nodes:,}")

    def fault(self, node: int, seconds: float) -> str:
        """Return the fault of a node (from 0 on) so many seconds after the start; "" for none."""
        for fault, end in zip(self.faults, accumulate(fault.nodes for fault in self.faults), strict=True):
            if node < end:
                return fault.name if fault.holds(seconds) else ""
        return ""


def node_name(node: int) -> str:
    """Return the name of a node, by its number from 0 on."""
    return f"gpu-{node + 1:04}"


def targets(script: Script, seconds: float, address: str, cluster: str) -> list[dict[str, object]]:
    """Return targets for Prometheus' HTTP discovery: each node with its path and labels."""
    names = [node_name(node) for node in range(script.nodes) if script.fault(node, seconds) != GONE]
    return [
        {
            "targets": [address],
            "labels": {
                "__metrics_path__": f"/nodes/{name}/metrics", "cluster": cluster, "node": name,
                "instance": f"{name}:9410",
            },
        }
        for name in names
    ]  # fmt: skip


class PageTemplate:
    """The page of a node, in Prometheus' text format, as the template for many nodes.

    Args:
        text: an answer of `/metrics`; its newest timestamp counts as its time.

    Raises:
        Unusable: it has no series of wirewatch.
    """

    def __init__(self, text: str) -> None:
        lines = text.splitlines()
        kinds = {typed[1]: typed[2] for line in lines if (typed := _TYPE.fullmatch(line))}
        found = [_SAMPLE.fullmatch(line) for line in lines]
        self.series = sum(one is not None for one in found)
        if not any(one and one["name"].startswith("wirewatch_") for one in found):
            raise Unusable("this is no answer of an agent's /metrics")
        self._at = max(
            (float(one["value"]) for one in found if one and one["name"].endswith(_TIMESTAMPS)), default=0.0
        )
        self._values: list[Value] = []
        made = (
            line if one is None else self._line(one, kinds.get(one["name"], ""))
            for line, one in zip(lines, found, strict=True)
        )
        self._text = "\n".join((*made, "")).encode()

    def render(self, node: int, now: float) -> bytes:
        """Return the page of a node by its number, at a time (Unix seconds)."""
        text = self._text % tuple(b"%r" % value(node, now) for value in self._values)
        return text.replace(_NODE.encode(), b"%04x" % (node & 0xFFFF))

    def _line(self, found: re.Match[str], kind: str) -> str:
        moving = self._moving(found["name"], kind, float(found["value"]))
        line = _OWN.sub(rf"\g<1>{_NODE}", found[0].replace("%", "%%"))
        if moving is None:
            return line
        self._values.append(moving)
        return f"{line.rpartition(' ')[0]} %b"

    def _moving(self, name: str, kind: str, base: float) -> Value | None:
        """Return how the value of a series changes; None where it stays."""
        place, at = 17 * len(self._values), self._at
        if name.endswith(_SUCCESSES) and base:
            every = PROBES if "_probe_" in name else POLLS
            return lambda node, now: now - (now + every * _noise(node, place)) % every
        if kind == "counter" and name.endswith("_bytes_total"):
            return lambda node, now: float(
                round(base + _BYTES * (1 + 0.5 * _noise(node, place)) * (now - at))
            )
        if kind == "counter" and name.endswith("_seconds_total") and base:
            return lambda node, now: base + _SECONDS * (1 + 0.5 * _noise(node, place)) * (now - at)
        if name.startswith(_PROBED):
            return lambda node, now: base * (1 + 0.01 * _noise(node, place + int(now / PROBES + node / 7)))
        if name.endswith(_MEASURED):
            return lambda node, now: round(base * (1 + 0.02 * _noise(node, place + int(now / POLLS))), 3)
        return None


def _noise(node: int, place: int) -> float:
    """Return a value from -1 to 1, the same for the same node and place."""
    return _NOISE[(node * 131 + place) % len(_NOISE)]


PLAYED = 120.0
"""Most seconds to play a recording."""
MOST_NODES = 10_000
OK, MISSING, UNAVAILABLE = 200, 404, 503
_TEXT, _JSON = b"text/plain; version=0.0.4; charset=utf-8", b"application/json"


class FaultOption(click.ParamType[ScriptedFault]):
    """`NAME=NODES`, and when: `@FROM`, `@FROM-UNTIL`, durations since the start."""

    name = "fault"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> ScriptedFault:
        name, _, rest = value.partition("=")
        count, _, when = rest.partition("@")
        start, _, end = when.partition("-")
        if not name or not (count.isascii() and count.isdigit() and len(count) <= len(str(MOST_NODES))):
            self.fail(f"{value!r} is not NAME=NODES, such as gpu-lost=3 or silent=5@10m-20m", param, ctx)
        seconds = [Duration().convert(one, param, ctx) if one else None for one in (start, end)]
        made = ScriptedFault(
            name, int(count), seconds[0] or 0.0, *([] if seconds[1] is None else [seconds[1]])
        )
        if made.end <= made.start:
            self.fail(f"{value!r} ends before it begins", param, ctx)
        return made


@dataclass(slots=True)
class SimulatedFleet:
    """The nodes as an ASGI application: `/targets` for HTTP discovery, `/nodes/NAME/metrics` for scrapes.

    `pages`: pages of healthy nodes, assigned in turn. `faulty`: by the name of a fault. `began`: Unix seconds
    when the script begins.
    """

    script: Script
    pages: Sequence[PageTemplate]
    faulty: Mapping[str, PageTemplate]
    address: str
    cluster: str
    began: float
    numbers: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self.numbers = {f"/nodes/{node_name(node)}/metrics": node for node in range(self.script.nodes)}

    async def __call__(self, scope: "Scope", _receive: "Receive", send: "Send") -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        packs = any(name == b"accept-encoding" and b"gzip" in value for name, value in scope["headers"])
        status, kind, body = self.answer(scope["path"], time.time())
        headers = [(b"content-type", kind)]
        if packs:
            packing = zlib.compressobj(level=1, wbits=zlib.MAX_WBITS | 16)
            body = packing.compress(body) + packing.flush()
            headers.append((b"content-encoding", b"gzip"))
        headers.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def answer(self, path: str, now: float) -> tuple[int, bytes, bytes]:
        """Return status, content type and body of a request at a time, Unix seconds."""
        seconds = now - self.began
        if path == "/targets":
            found = targets(self.script, seconds, self.address, self.cluster)
            return OK, _JSON, json.dumps(found).encode()
        node = self.numbers.get(path)
        if node is None:
            return MISSING, _TEXT, b"no such path: /targets lists all nodes\n"
        fault = self.script.fault(node, seconds)
        if fault in {SILENT, GONE}:
            return UNAVAILABLE, _TEXT, b"this node is silent by the script\n"
        page = self.faulty[fault] if fault else self.pages[node % len(self.pages)]
        return OK, _TEXT, page.render(node, now)


def page_of(recording: str, overlays: Sequence[str], tier: Tier) -> PageTemplate:
    """Return the page of a recording that was played until all its findings are confirmed.

    Raises:
        Unusable: the recording or an overlay cannot be played.
    """
    from wirewatch.cli.check.polling import CheckedNode, NodeSource
    from wirewatch.documents.process import ProcessReport
    from wirewatch.server.exposition import Exposition

    node = CheckedNode(NodeSource(replay=recording, overlays=overlays), keep=False)
    try:
        poll = node.poll()
        poll.run(time.monotonic() + PLAYED)
        made = Exposition("synthetic").render(poll.judged, own=ProcessReport(), tier=tier)
    finally:
        node.stop()
    return PageTemplate(made.text.decode())


@click.command(epilog=examples("wirewatch fleet simulate --nodes 200 --fault nvlink-link-down=3@5m"))
@click.option(
    "--nodes", default=100, show_default=True, type=WholeNumber(1, MOST_NODES), help="How many nodes."
)
@click.option("--listen", default="127.0.0.1:9420", show_default=True, help="HOST:PORT.")
@click.option(
    "--tier", type=click.Choice([one.value for one in Tier]), default="core", show_default=True,
    help="The metrics that each node answers with.",
)  # fmt: skip
@click.option(
    "--replay",
    "recording",
    default="demo-dgx-h200",
    show_default=True,
    help="What all nodes are: a recording.",
)
@click.option(
    "--page", "files", multiple=True, type=click.Path(path_type=Path),
    help="What healthy nodes say instead: an answer of your own agent's /metrics; repeatable.",
)  # fmt: skip
@click.option(
    "--fault", "faults", multiple=True, type=FaultOption(), metavar="NAME=NODES[@FROM[-UNTIL]]",
    help="So many nodes have a bundled fault, or are `silent` (no answer) or `gone` (no target); repeatable.",
)  # fmt: skip
@click.option("--cluster", default="simulated", show_default=True, help="Label of all nodes.")
def simulate(
    *, nodes: int, listen: str, tier: str, recording: str, files: Sequence[Path],
    faults: Sequence[ScriptedFault], cluster: str,
) -> None:  # fmt: skip
    """Answer scrapes as so many nodes, to see what your Prometheus and your alerts make of them.

    Prometheus finds the nodes by http_sd_configs: [{url: http://LISTEN/targets}].
    """
    from wirewatch.config import address
    from wirewatch.server.sockets import tcp

    host, port = address(listen, "--listen")
    script = Script(nodes, faults)
    names = {fault.name for fault in faults} - {SILENT, GONE}
    pages = [_read(path) for path in files] or [page_of(recording, (), Tier(tier))]
    faulty = {name: page_of(recording, (name,), Tier(tier)) for name in sorted(names)}
    with tcp(host, port) as listening:
        own = listening.getsockname()
        place = f"{f'[{own[0]}]' if ':' in own[0] else own[0]}:{own[1]}"
        each = [pages[node % len(pages)].series for node in range(nodes)]
        click.echo(f"{nodes:,} nodes, {sum(each):,} series; targets: http://{place}/targets")
        fleet = SimulatedFleet(script, pages, faulty, place, cluster, time.time())
        asyncio.run(_serve(fleet, listening))


def _read(path: Path) -> PageTemplate:
    try:
        return PageTemplate(utf8(path.read_bytes()))
    except (OSError, ValueError) as error:
        raise Unusable(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    except Unusable as error:
        raise Unusable(f"{path}: {error}") from error


async def _serve(fleet: SimulatedFleet, listening: Any) -> None:
    """Serve until a signal; Prometheus keeps a connection for each target."""
    from wirewatch.server.connections import Bounds, Connections
    from wirewatch.server.listener import HttpServer
    from wirewatch.server.reload import WebCounts

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    every = 2 * fleet.script.nodes + 64
    bounds = Bounds(connections=every, of_one=every, reserved=every, requests=every, head=30.0)
    server = HttpServer(fleet, listening, Connections(WebCounts(), bounds))
    loop = asyncio.get_running_loop()
    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, server.stop)
    await server.run()
