"""All that the page is made of: the documents that the JSON interface gives, taken at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass

from wirewatch.core.topology import Topology
from wirewatch.export import documents
from wirewatch.export.documents import Daemon, FindingsDocument, StateDocument
from wirewatch.export.driftdocuments import DriftDocument
from wirewatch.export.drifting import drift_of_state
from wirewatch.export.healthdocuments import HealthDocument
from wirewatch.export.page.ends import endings
from wirewatch.export.probedocuments import ProbesDocument
from wirewatch.export.probing import probes_of
from wirewatch.verdict.ledger import VerdictPolicy
from wirewatch.verdict.node import Judged


@dataclass(frozen=True, slots=True)
class Place:
    """`node`: its name, `about`: what is read, `runbook`: where that page is served; "" for not told."""

    node: str = ""
    about: str = ""
    runbook: str = ""


NO_PLACE = Place()


@dataclass(frozen=True, slots=True)
class Told:
    """`ends`: what ends a finding, by its id."""

    place: Place
    health: HealthDocument
    findings: FindingsDocument
    state: StateDocument
    topology: Topology | None
    drift: DriftDocument
    probes: ProbesDocument
    ends: Mapping[str, str]

    @property
    def at(self) -> float:
        """Unix seconds."""
        return self.health.at


def told(judged: Judged, daemon: Daemon, source: str, policy: VerdictPolicy, place: Place) -> Told:
    """What is published, as documents; `source` is live, replay or synthetic."""
    at, state = daemon.at, judged.state
    health = documents.health(judged, daemon)
    return Told(
        place=place, health=health, findings=documents.findings(judged, at),
        state=documents.state(judged, at, source), topology=documents.topology(state, at).topology,
        drift=drift_of_state(state, at), probes=probes_of(state, at),
        ends=endings(judged, policy),
    )  # fmt: skip
