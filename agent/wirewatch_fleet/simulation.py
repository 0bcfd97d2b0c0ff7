"""Simulated nodes: the `/metrics` of many, made from the page of one, with a script of what becomes of them.

Pure: text in, bytes out. What identifies a part (a GPU's UUID, serials, GUIDs) differs from node to node,
counters go on, measured values vary a little, and what a probe measured changes with each probe.
"""

import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from wirewatch.core.types import Unusable

SILENT, GONE = "silent", "gone"
"""What a script can do to a node beside a fault of its hardware: no answer, and no target any more."""
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
"""How fast counters of bytes and of seconds go on, a second."""
_NODE = "\x01"
_DRAWN = random.Random(23)  # noqa: S311 - it only has to vary
_NOISE = tuple(_DRAWN.uniform(-1, 1) for _ in range(4099))
Value = Callable[[int, float], float]
"""What a series has on a node, by its number, at a time (Unix seconds)."""


@dataclass(frozen=True, slots=True)
class ScriptedFault:
    """What becomes of so many nodes: an overlay's name, SILENT or GONE; `start` and `end` in seconds."""

    name: str
    nodes: int
    start: float = 0.0
    end: float = math.inf

    def holds(self, seconds: float) -> bool:
        return self.start <= seconds < self.end


@dataclass(frozen=True, slots=True)
class Script:
    """Which nodes have which fault: the first ones the first, the next ones the second, and so on.

    Raises:
        Unusable: there are fewer nodes than the faults take.
    """

    nodes: int
    faults: Sequence[ScriptedFault] = ()

    def __post_init__(self) -> None:
        if (taken := sum(fault.nodes for fault in self.faults)) > self.nodes:
            raise Unusable(f"the faults take {taken:,} nodes, and there are {self.nodes:,}")

    def fault(self, node: int, seconds: float) -> str:
        """What is wrong with a node (from 0 on) so many seconds after the start; "" for nothing."""
        for fault, end in zip(self.faults, accumulate(fault.nodes for fault in self.faults), strict=True):
            if node < end:
                return fault.name if fault.holds(seconds) else ""
        return ""


def node_name(node: int) -> str:
    """The name of a node, by its number from 0 on."""
    return f"gpu-{node + 1:04}"


def targets(script: Script, seconds: float, address: str, cluster: str) -> list[dict[str, object]]:
    """What Prometheus' HTTP discovery asks for: each node that is a target, with its path and its labels."""
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
    """The page of one node, in Prometheus' text, from which those of many are made.

    Args:
        text: an answer of `/metrics`; the newest timestamp in it is taken for its time.

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
        """The page of a node by its number, at a time (Unix seconds)."""
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
        """How the value of a series goes on; None where it stands still."""
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
    """From -1 to 1, the same for the same node and place."""
    return _NOISE[(node * 131 + place) % len(_NOISE)]
