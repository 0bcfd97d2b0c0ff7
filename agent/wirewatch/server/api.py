"""The routes of the HTTP interface. They read no hardware: each answer is made from the published state."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.openmetrics import exposition as openmetrics

from wirewatch import __version__
from wirewatch.core.collector import NodeState
from wirewatch.core.types import Sample, Tier
from wirewatch.documents import drift, finding, jobs, probes, state
from wirewatch.documents import judged as documents
from wirewatch.documents import status as glance
from wirewatch.documents.health import HealthDocument, StatusDocument
from wirewatch.documents.probed import probes_of
from wirewatch.documents.process import PROCESS
from wirewatch.jobs.explain.held import HeldAnswers
from wirewatch.kubernetes.apiserver import ConditionReport
from wirewatch.page.content import PageContext, page_content
from wirewatch.page.html import NAME_OF_RUNBOOK, RenderedPage, choice, moved, page, render, runbook
from wirewatch.server.exposition import Exposition, as_openmetrics, as_text, takes_openmetrics
from wirewatch.server.guard import Application, Receive, Scope, Send
from wirewatch.server.reload import WebCounts
from wirewatch.verdict.ledger import VerdictPolicy
from wirewatch.verdict.node import Judged
from wirewatch.verdict.orders import OrderError

NOT_FOUND, UNAVAILABLE = 404, 503


@dataclass(frozen=True, slots=True)
class FlagDocument:
    """The answer of /livez and /readyz, in a word or two."""

    status: str


@dataclass(frozen=True, slots=True)
class RefusalDocument:
    """Why there is no document."""

    detail: str


_TEXT: dict[str, Any] = {"schema": {"type": "string"}}
_Answers = dict[int | str, dict[str, Any]]
_EXPOSITION: _Answers = {200: {"content": {"text/plain": _TEXT, "application/openmetrics-text": _TEXT}}}
_FLAG: _Answers = {UNAVAILABLE: {"model": FlagDocument, "description": "Not so"}}
_UNREADY: _Answers = {UNAVAILABLE: {"model": HealthDocument, "description": "No job may start"}}
_NO_FINDING: _Answers = {NOT_FOUND: {"model": RefusalDocument, "description": "No such finding"}}


@dataclass(frozen=True, slots=True)
class DaemonView:
    """The daemon as the interface reads it: callables give it as it is now, the rest does not change."""

    node: Callable[[], Judged]
    turning: Callable[[], bool]
    ready: Callable[[], bool]
    now: Callable[[], float]
    mono: Callable[[], float]
    source: str
    released_until: Callable[[], float] = lambda: 0.0
    policy: Callable[[], VerdictPolicy] = VerdictPolicy
    place: PageContext = field(default_factory=PageContext)
    web: WebCounts = field(default_factory=WebCounts)
    tier: Tier = Tier.FULL
    condition: Callable[[], ConditionReport | None] = lambda: None
    answers: HeldAnswers = field(default_factory=HeldAnswers)

    def jobs(self, state: NodeState, at: float) -> jobs.JobsDocument:
        """The running jobs, with the answers that are shown of them."""
        return documents.jobs(state, at, self.source, self.answers, self.place.node)

    def findings(self, judged: Judged, at: float) -> state.FindingsDocument:
        """All findings at a time."""
        return documents.findings(judged, at, host=self.place.node)

    def daemon(self) -> documents.DaemonStatus:
        """The daemon's own status now."""
        fresh = self.policy().require_fresh_probe
        return documents.DaemonStatus(
            self.now(), self.mono(), self.turning(), self.released_until(), fresh, self.place.node
        )


class PageCache:
    """Renders pages in a thread, so that /livez and /metrics are answered meanwhile; keeps the newest."""

    def __init__(self, status: DaemonView) -> None:
        self._status = status
        self._one = asyncio.Lock()
        self._last: tuple[Judged, int, str, RenderedPage] | None = None

    async def get(self, refresh: str) -> RenderedPage:
        """The page now; ages are in whole seconds, so a page that was made in this second is still right."""
        chosen = choice(refresh)
        async with self._one:
            judged, daemon = self._status.node(), self._status.daemon()
            second, last = int(daemon.at), self._last
            if last is not None and last[0] is judged and last[1:3] == (second, chosen):
                return last[3]
            made = await asyncio.to_thread(rendered, judged, daemon, self._status, chosen)
            self._last = (judged, second, chosen, made)
            return made


class _Undescribed(APIRoute):
    """A route without the models of its answers: to describe them takes a third of a daemon's start."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **given: Any) -> None:
        super().__init__(path, endpoint, **{**given, "response_model": None, "responses": None})


def application(status: DaemonView, route: type[APIRoute] = _Undescribed) -> FastAPI:
    """The interface over a daemon's status; a thread describes it once somebody asks for that."""
    app = FastAPI(title="wirewatch", version=__version__, openapi_url=None, redirect_slashes=False)
    app.router.route_class, app.separate_input_output_schemas = route, False
    exposition = Exposition(status.source, status.tier)

    @app.get("/metrics", response_class=Response, responses=_EXPOSITION)
    async def metrics(request: Request, tier: Tier | None = None) -> Response:
        """Prometheus text, or OpenMetrics when Accept asks for it; by default of the configured tier."""
        accept, encoding = (",".join(request.headers.getlist(name)) for name in ("accept", "accept-encoding"))
        reports = (status.web.report, status.condition(), PROCESS.report)
        rendered = exposition.render(status.node(), accept, *reports, encoding=encoding, tier=tier)
        return Response(rendered.text, headers=dict(rendered.headers))

    @app.get("/livez", response_model=FlagDocument, responses=_FLAG)
    async def livez() -> JSONResponse:
        """200 while the loops run. A bad GPU does not change it: a restart would only hide the evidence."""
        return _flag(status.turning(), "alive", "a loop has stopped turning")

    @app.get("/readyz", response_model=FlagDocument, responses=_FLAG)
    async def readyz() -> JSONResponse:
        """200 once every collector has ended its first run or is overdue with it."""
        return _flag(status.ready(), "ready", "the first polls have not ended")

    @app.get("/health", response_model=HealthDocument, responses=_UNREADY)
    async def health() -> Response:
        """The verdict with its reasons: 200 for OK and DEGRADED, 503 for UNKNOWN and FAILED."""
        node = status.node()
        code = 200 if node.verdict.job_ready else UNAVAILABLE
        return _json(state.HEALTH.dump_json(documents.health(node, status.daemon())), code)

    _add_page(app, status)
    _add_description(app, status)
    _add_node(app, status)
    _add_findings(app, status)
    _add_runs(app, status)
    return app


def rendered(
    judged: Judged, daemon: documents.DaemonStatus, status: DaemonView, refresh: str
) -> RenderedPage:
    """The page of a state at a time; `refresh` as the URL has it."""
    content = page_content(judged, daemon, status.source, status.policy(), status.place, status.answers)
    return render(page(content), refresh)


def _add_page(app: FastAPI, status: DaemonView) -> None:
    """Add the page at `/` and the runbook at `/docs` by the path of its file; both not in OpenAPI."""
    pages = PageCache(status)

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def page_now(refresh: str = "") -> Response:
        made = await pages.get(refresh)
        return Response(made.text, headers=dict(made.headers))

    @app.api_route("/docs/{path:path}", methods=["GET", "HEAD"], include_in_schema=False)
    async def docs(path: str) -> Response:
        if path == NAME_OF_RUNBOOK:
            made = runbook()
            return Response(made.text, headers=dict(made.headers))
        there = moved(path)
        if there is None:
            return Response(f"no such page: see /docs/{NAME_OF_RUNBOOK}\n", 404, media_type="text/plain")
        return Response(status_code=308, headers={"location": there})


def _add_description(app: FastAPI, status: DaemonView) -> None:
    described = cache(lambda: application(status, APIRoute).openapi())

    @app.api_route("/openapi.json", methods=["GET", "HEAD"], include_in_schema=False)
    async def openapi() -> Response:
        return JSONResponse(await asyncio.to_thread(described))


def _add_node(app: FastAPI, status: DaemonView) -> None:
    @app.get("/api/v1/state", response_model=state.StateDocument)
    async def api_state() -> Response:
        """Everything that is known, collector by collector."""
        return _json(state.STATE.dump_json(documents.state(status.node(), status.now(), status.source)))

    @app.get("/api/v1/status", response_model=StatusDocument)
    async def api_status() -> Response:
        """The node in few values, as `wirewatch status` shows it."""
        return _json(await asyncio.to_thread(_at_a_glance, status.node(), status.now(), status))

    @app.get("/api/v1/topology", response_model=state.TopologyDocument)
    async def api_topology() -> Response:
        """GPUs, NVLink peers, PCI locations, NICs and the paths between them, as one graph."""
        return _json(state.TOPOLOGY.dump_json(documents.topology(status.node().state, status.now())))

    @app.get("/api/v1/topology/drift", response_model=drift.DriftDocument)
    async def api_drift() -> Response:
        """The baseline, and the differences from it that no operator has accepted."""
        return _json(drift.DRIFT.dump_json(drift.drift_of_state(status.node().state, status.now())))


def _add_findings(app: FastAPI, status: DaemonView) -> None:
    @app.get("/api/v1/findings", response_model=state.FindingsDocument)
    async def api_findings() -> Response:
        """All findings with their stage: live, latched, on probation, acknowledged, suppressed."""
        return _json(state.FINDINGS.dump_json(status.findings(status.node(), status.now())))

    @app.get("/api/v1/findings/{name}", response_model=finding.FindingDocument, responses=_NO_FINDING)
    async def api_finding(name: str) -> Response:
        """One finding by its id, for a hardware return: the part, its numbers, and those of its peers."""
        try:
            document = replace(
                finding.evidence(status.node(), name, status.now(), status.source), host=status.place.node
            )
        except OrderError as error:
            return JSONResponse({"detail": str(error)}, NOT_FOUND)
        return _json(finding.FINDING.dump_json(document))


def _add_runs(app: FastAPI, status: DaemonView) -> None:
    @app.get("/api/v1/jobs", response_model=jobs.JobsDocument)
    async def api_jobs() -> Response:
        """The running jobs: which wall each of them hits, and all that is known of it."""
        state, at = status.node().state, status.now()
        # Hundreds of communicators take a quarter of a second, in which /livez must be answered.
        return _json(await asyncio.to_thread(lambda: jobs.JOBS.dump_json(status.jobs(state, at))))

    @app.get("/api/v1/probes", response_model=probes.ProbesDocument)
    async def api_probes() -> Response:
        """The gate, the last complete probe with its expectations, and the newest ones in short."""
        return _json(probes.PROBES.dump_json(probes_of(status.node().state, status.now())))


def _at_a_glance(judged: Judged, at: float, status: DaemonView) -> bytes:
    known, found = documents.state(judged, at, status.source), status.findings(judged, at)
    node = glance.NodeSnapshot(known, found, status.jobs(judged.state, at))
    return glance.STATUS.dump_json(glance.status(node, probes_of(judged.state, at), "daemon"))


def _json(text: bytes, code: int = 200) -> Response:
    return Response(text, code, media_type="application/json")


def _flag(good: bool, yes: str, no: str) -> JSONResponse:  # noqa: FBT001
    return JSONResponse({"status": yes if good else no}, 200 if good else 503)


@dataclass(frozen=True, slots=True)
class ControllerView:
    """The controller as each request reads it."""

    samples: Callable[[], Iterable[Sample]]
    turning: Callable[[], bool]
    ready: Callable[[], bool]


def controller_application(view: ControllerView) -> Application:
    """/metrics, /livez and /readyz; a used-up budget or a lost lease makes neither of the last two fail."""

    def answer(path: str, accept: str) -> tuple[int, str, bytes]:
        if path == "/metrics":
            if takes_openmetrics(accept):
                return 200, openmetrics.CONTENT_TYPE_LATEST, as_openmetrics(view.samples())
            return 200, CONTENT_TYPE_PLAIN_0_0_4, as_text(view.samples())
        good = {"/livez": view.turning, "/readyz": view.ready}.get(path)
        if good is None:
            return 404, "text/plain", b"not found\n"
        return (200, "text/plain", b"ok\n") if good() else (503, "text/plain", b"not yet, or stuck\n")

    async def serve(scope: Scope, _receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        accept = headers.get(b"accept", b"").decode("latin-1")
        if scope["method"] != "GET":
            status, kind, body = 405, "text/plain", b"only GET\n"
        else:
            status, kind, body = answer(scope["path"], accept)
        told = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": told})
        await send({"type": "http.response.body", "body": body})

    return serve
