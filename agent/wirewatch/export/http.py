"""The HTTP interface. Nothing here touches hardware: every answer is made from the published state."""

from collections.abc import Callable
from dataclasses import dataclass

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

from wirewatch import __version__
from wirewatch.core.component import NodeState
from wirewatch.export import documents, probedocuments, probing
from wirewatch.export.prometheus import Exposition
from wirewatch.verdict.node import JOB_READY, judge_node


@dataclass(frozen=True, slots=True)
class Status:
    """What the interface may ask the daemon for."""

    state: Callable[[], NodeState]
    turning: Callable[[], bool]
    ready: Callable[[], bool]
    now: Callable[[], float]
    source: str


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
        text, content_type = exposition.render(status.state(), request.headers.get("accept", ""))
        return Response(text, headers={"content-type": content_type})

    @app.get("/livez")
    async def livez() -> JSONResponse:
        """200 while the loops turn. A sick GPU does not change it: a restart would only hide the evidence."""
        return _flag(status.turning(), "alive", "a loop has stopped turning")

    @app.get("/readyz")
    async def readyz() -> JSONResponse:
        """200 once every collector has ended its first run or is overdue with it."""
        return _flag(status.ready(), "ready", "the first polls have not ended")

    @app.get("/health", response_model=documents.HealthDocument)
    async def health() -> Response:
        """The verdict with its reasons: 200 for OK and DEGRADED, 503 for UNKNOWN and FAILED."""
        state = status.state()
        code = 200 if judge_node(state).health in JOB_READY else 503
        return _json(documents.HEALTH.dump_json(documents.health(state, status.now())), code)

    _api(app, status)
    return app


def _api(app: FastAPI, status: Status) -> None:
    """What programs ask for beside the metrics."""

    @app.get("/api/v1/state", response_model=documents.StateDocument)
    async def api_state() -> Response:
        """Everything that is known, collector by collector."""
        document = documents.state(status.state(), status.now(), status.source)
        return _json(documents.STATE.dump_json(document), 200)

    @app.get("/api/v1/topology", response_model=documents.TopologyDocument)
    async def api_topology() -> Response:
        """GPUs, NVLink peers, PCI places, NICs and the paths between them, as one graph."""
        return _json(documents.TOPOLOGY.dump_json(documents.topology(status.state(), status.now())), 200)

    @app.get("/api/v1/probes", response_model=probedocuments.ProbesDocument)
    async def api_probes() -> Response:
        """The gate, the last complete probe with how its expectations follow, and the newest in short."""
        document = probing.probes_of(status.state(), status.now())
        return _json(probedocuments.PROBES.dump_json(document), 200)


def _json(text: bytes, code: int) -> Response:
    return Response(text, code, media_type="application/json")


def _flag(good: bool, yes: str, no: str) -> JSONResponse:  # noqa: FBT001
    return JSONResponse({"status": yes if good else no}, 200 if good else 503)
