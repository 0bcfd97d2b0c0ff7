"""The types of the JSON document of one finding, for a hardware return; docs/schemas is made from them."""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter

from wirewatch.export.healthdocuments import Health, NodeFinding

Kind = Literal["gpu", "network_device", "pci_device", "node"]


@dataclass(frozen=True, slots=True)
class Fact:
    """A text, or why it is not known: one of the two is null, neither is ever empty."""

    value: str | None
    unknown: str | None


@dataclass(frozen=True, slots=True)
class Peers:
    """The same number of the other parts of its kind: `of` is `GPUs`, `links`, `ports` or `devices`."""

    of: str
    count: int
    min: float
    median: float
    max: float


@dataclass(frozen=True, slots=True)
class Number:
    """One number of the part, now: bytes, seconds, bytes per second and so on, as `unit` says.

    `name`: the series in /metrics, or a name without `wirewatch_` for what has no series. `labels`: the
    series' other labels. `value` null: the finding names no single part, see `value_unknown`; the peers are
    then all there are. `peers` null: see `peers_unknown`.
    """

    name: str
    labels: dict[str, str]
    unit: str
    value: float | None
    value_unknown: str | None
    peers: Peers | None
    peers_unknown: str | None


@dataclass(frozen=True, slots=True)
class FindingDocument:
    """One finding with all that a vendor asks for when the part is returned.

    `health` and `job_ready` are the node's, `source` is live, replay or synthetic. `collector` found it;
    `measured`: how bad it calls it now, null when it does not see it. `last_seen`: when it was last there,
    at the latest, Unix seconds, null for not since the agent started. `part` and `node` by name, such as
    `serial` and `driver`. `numbers_at`: when they were read, Unix seconds; null, with `numbers_unknown`,
    where there are none. Series of single links are in it for a finding of a link.
    """

    schema: Literal["wirewatch.finding/1"]
    at: float
    health: Health
    job_ready: bool
    source: str
    finding: NodeFinding
    collector: str | None
    measured: Health | None
    last_seen: float | None
    kind: Kind
    part: dict[str, Fact]
    node: dict[str, Fact]
    numbers_at: float | None
    numbers_unknown: str | None
    numbers: list[Number]


FINDING = TypeAdapter(FindingDocument)
DOCUMENTS: dict[str, TypeAdapter[Any]] = {"wirewatch.finding.1": FINDING}
