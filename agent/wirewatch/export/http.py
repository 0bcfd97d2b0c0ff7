"""The HTTP interface. Nothing here touches hardware: every answer is made from the published state."""

from collections.abc import Callable
from dataclasses import dataclass, field

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from wirewatch import __version__
from wirewatch.export import documents, driftdocuments, evidencedocuments, probedocuments, probing
from wirewatch.export.drifting import drift_of_state
from wirewatch.export.evidence import evidence
from wirewatch.export.healthdocuments import HealthDocument
from wirewatch.export.kubernetes.counts import Told
from wirewatch.export.page.route import About, Pages, add_page
from wirewatch.export.page.told import Place
from wirewatch.export.prometheus import Exposition
from wirewatch.export.web.counts import Counts
from wirewatch.verdict.ledger import VerdictPolicy
from wirewatch.verdict.node import Judged
from wirewatch.verdict.orders import OrderError

NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class Status:
    """What the interface may ask the daemon for."""

    node: Callable[[], Judged]
    turning: Callable[[], bool]
    ready: Callable[[], bool]
    now: Callable[[], float]
    mono: Callable[[], float]
    source: str
    released_until: Callable[[], float] = lambda: 0.0
    policy: VerdictPolicy = field(default_factory=VerdictPolicy)
    place: Place = field(default_factory=Place)
    web: Counts = field(default_factory=Counts)
    condition: Callable[[], Told | None] = lambda: None

    def daemon(self) -> documents.Daemon:
        """What the daemon says of itself now."""
        return documents.Daemon(
            self.now(), self.mono(), self.turning(), self.released_until(),
            self.policy.require_fresh_probe,
        )  # fmt: skip


def application(status: Status) -> FastAPI:
    """The interface over a daemon's status."""
    app = FastAPI(
        title="wirewatch", version=__version__, docs_url=None, redoc_url=None, redirect_slashes=False,
        separate_input_output_schemas=False,
    )  # fmt: skip
    exposition = Exposition(status.source)

    @app.get("/metrics", response_class=Response)
    async def metrics(request: Request) -> Response:
        """Prometheus text, or OpenMetrics when the Accept header asks for it."""
        accept = request.headers.get("accept", "")
        told = (status.web.told, status.condition())
        text, content_type = exposition.render(status.node(), accept, *told)
        return Response(text, headers={"content-type": content_type})

    @app.get("/livez")
    async def livez() -> JSONResponse:
        """200 while the loops turn. A sick GPU does not change it: a restart would only hide the evidence."""
        return _flag(status.turning(), "alive", "a loop has stopped turning")

    @app.get("/readyz")
    async def readyz() -> JSONResponse:
        """200 once every collector has ended its first run or is overdue with it."""
        return _flag(status.ready(), "ready", "the first polls have not ended")

    @app.get("/health", response_model=HealthDocument)
    async def health() -> Response:
        """The verdict with its reasons: 200 for OK and DEGRADED, 503 for UNKNOWN and FAILED."""
        node = status.node()
        document = documents.health(node, status.daemon())
        return _json(documents.HEALTH.dump_json(document), 200 if node.verdict.job_ready else 503)

    add_page(app, Pages(status.node, status.daemon, About(status.source, status.policy, status.place)))
    _api(app, status)
    return app


def _api(app: FastAPI, status: Status) -> None:
    """What programs ask for beside the metrics."""

    @app.get("/api/v1/state", response_model=documents.StateDocument)
    async def api_state() -> Response:
        """Everything that is known, collector by collector."""
        document = documents.state(status.node(), status.now(), status.source)
        return _json(documents.STATE.dump_json(document), 200)

    @app.get("/api/v1/topology", response_model=documents.TopologyDocument)
    async def api_topology() -> Response:
        """GPUs, NVLink peers, PCI places, NICs and the paths between them, as one graph."""
        document = documents.topology(status.node().state, status.now())
        return _json(documents.TOPOLOGY.dump_json(document), 200)

    @app.get("/api/v1/topology/drift", response_model=driftdocuments.DriftDocument)
    async def api_drift() -> Response:
        """The baseline, and what is different from it that nobody has accepted."""
        document = drift_of_state(status.node().state, status.now())
        return _json(driftdocuments.DRIFT.dump_json(document), 200)

    @app.get("/api/v1/findings", response_model=documents.FindingsDocument)
    async def api_findings() -> Response:
        """All findings with their stage: live, latched, on probation, acknowledged, suppressed."""
        return _json(documents.FINDINGS.dump_json(documents.findings(status.node(), status.now())), 200)

    @app.get("/api/v1/findings/{name}", response_model=evidencedocuments.FindingDocument)
    async def api_finding(name: str) -> Response:
        """One finding by its id, for a hardware return: the part, its numbers, and those of its peers."""
        try:
            document = evidence(status.node(), name, status.now(), status.source)
        except OrderError as error:
            return JSONResponse({"detail": str(error)}, NOT_FOUND)
        return _json(evidencedocuments.FINDING.dump_json(document), 200)

    @app.get("/api/v1/probes", response_model=probedocuments.ProbesDocument)
    async def api_probes() -> Response:
        """The gate, the last complete probe with how its expectations follow, and the newest in short."""
        document = probing.probes_of(status.node().state, status.now())
        return _json(probedocuments.PROBES.dump_json(document), 200)


def _json(text: bytes, code: int) -> Response:
    return Response(text, code, media_type="application/json")


def _flag(good: bool, yes: str, no: str) -> JSONResponse:  # noqa: FBT001
    return JSONResponse({"status": yes if good else no}, 200 if good else 503)
