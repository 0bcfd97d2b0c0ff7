"""The orders that the daemon and the prober take, each over a unix socket that few users may open."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import Field, TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect

from wirewatch import __version__
from wirewatch.core.types import Absent
from wirewatch.documents.drift import DRIFT, AcceptOrder, DriftDocument
from wirewatch.documents.pairsorder import PairsOrder
from wirewatch.documents.state import FINDINGS, FindingsDocument
from wirewatch.probe import remote
from wirewatch.probe.remote import FactsAnswer, FactsRequest, ProbeAnswer
from wirewatch.probe.setup import ProbeRequest, ProbeTerms
from wirewatch.server.peer import Peer
from wirewatch.verdict.orders import OrderError

RELEASE_SECONDS = 86400.0
"""The longest release by one order: the GPUs are not watched meanwhile."""
DENIED, CONFLICT, UNUSABLE = 403, 409, 422
ROOT = 0
UNVERSIONED = frozenset({remote.RELEASE, remote.RESUME})
"""Orders that are taken from an agent of any version: it must always be possible to free the GPUs."""
log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReleaseDocument:
    """The result of an order: whether the GPUs are released, and until when (Unix seconds, 0 for not).

    `seconds_taken`: until every handle was closed. `stuck`: processes that cannot be killed and still hold
    GPUs. `unsure`: why the state of the prober is not known, empty where it is. `why` in words.
    """

    schema: Literal["wirewatch.release/1"]
    at: float
    released: bool
    until: float
    seconds_taken: float
    stuck: list[int]
    unsure: str
    why: str


@dataclass(frozen=True, slots=True)
class ReleaseOrder:
    """Close every GPU handle for so many seconds; `by` names the operator."""

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "allow_inf_nan": False}

    seconds: Annotated[float, Field(gt=0, le=RELEASE_SECONDS)] = 600.0
    by: Annotated[str, Field(max_length=200)] = ""


@dataclass(frozen=True, slots=True)
class ResumeOrder:
    """Take the GPUs back now; `by` names the operator."""

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid"}

    by: Annotated[str, Field(max_length=200)] = ""


@dataclass(frozen=True, slots=True)
class FindingOrder:
    """An operator's order about a finding: by whom and why; `until` (Unix seconds) for `suppress`.

    `ack` says that it was seen, and changes no verdict; `repaired` ends a latch. `yes`: also where something
    FAILED counts no more with it, so that jobs may start on the node.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "allow_inf_nan": False}

    order: Literal["ack", "unack", "repaired", "unrepaired", "suppress", "unsuppress"]
    by: Annotated[str, Field(min_length=1, max_length=200)]
    why: Annotated[str, Field(min_length=1, max_length=1000)]
    until: float | None = None
    yes: bool = False


RELEASE = TypeAdapter(ReleaseDocument)
DOCUMENTS: dict[str, TypeAdapter[Any]] = {"wirewatch.release.1": RELEASE}


@dataclass(frozen=True, slots=True)
class Control:
    """The acts that the daemon does by order.

    `release` takes seconds and the operator's name, `resume` the name, `of_finding` how an id begins. The
    last three raise OrderError for an order that cannot be carried out.
    """

    release: Callable[[float, str], Awaitable[ReleaseDocument]]
    resume: Callable[[str], Awaitable[ReleaseDocument]]
    of_finding: Callable[[str, FindingOrder], FindingsDocument]
    accept: Callable[[AcceptOrder], Awaitable[DriftDocument]]
    tell: Callable[[PairsOrder], Awaitable[FindingsDocument]]


@dataclass(frozen=True, slots=True)
class Probing:
    """The acts that the prober does by order.

    `attempt` takes the wanted probe and an awaitable that ends when the client has gone; `may` says whether a
    process may send orders.
    """

    look: Callable[[FactsRequest], Awaitable[FactsAnswer]]
    attempt: Callable[[ProbeRequest, Awaitable[object]], Awaitable[ProbeAnswer]]
    terms: Callable[[ProbeRequest], Awaitable[ProbeTerms | Absent]]
    release: Callable[[float, str], Awaitable[ReleaseDocument]]
    resume: Callable[[str], Awaitable[ReleaseDocument]]
    may: Callable[[Peer], bool]


def _application(title: str) -> FastAPI:
    app = FastAPI(title=title, version=__version__, openapi_url=None, redirect_slashes=False)

    @app.exception_handler(RequestValidationError)
    async def unusable(_request: Request, error: RequestValidationError) -> Response:
        """One line for the user, without the value given: it may not be JSON, such as NaN."""
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:])
        return JSONResponse({"detail": f"{place or 'order'}: {first['msg']}"}, UNUSABLE)

    @app.exception_handler(OrderError)
    async def conflict(_request: Request, error: OrderError) -> Response:
        return JSONResponse({"detail": str(error)}, CONFLICT)

    return app


def control_application(control: Control) -> FastAPI:
    """The interface of the daemon's control socket."""
    app = _application("wirewatch control")

    @app.post("/release")
    async def release(order: ReleaseOrder) -> Response:
        """Close every GPU handle; a second order replaces the first."""
        return _json(RELEASE, await control.release(order.seconds, order.by))

    @app.post("/resume")
    async def resume(order: ResumeOrder) -> Response:
        """Take the GPUs back; changes nothing when they are not released."""
        return _json(RELEASE, await control.resume(order.by))

    @app.post("/findings/{name}")
    async def of_finding(name: str, order: FindingOrder) -> Response:
        """Acknowledge, say that it is repaired, suppress until a date, or take that back.

        Answers with what that did, and with all findings after it.
        """
        return _json(FINDINGS, control.of_finding(name, order))

    @app.post("/topology")
    async def accept(order: AcceptOrder) -> Response:
        """Accept the topology, or one change of it; answers with the baseline after it."""
        return _json(DRIFT, await control.accept(order))

    @app.post("/pairs")
    async def tell(order: PairsOrder) -> Response:
        """Take what pairs of nodes found out about this node; answers with all findings after it."""
        return _json(FINDINGS, await control.tell(order))

    return app


def prober_application(probing: Probing) -> FastAPI:
    """The interface of the prober's socket."""
    app = _application("wirewatch prober")
    logged: list[str] = []

    @app.exception_handler(_RequestRefused)
    async def refused(request: Request, error: _RequestRefused) -> Response:
        """Log a refusal that differs from the last refusal: an agent asks again and again."""
        if logged != [str(error)]:
            logged[:] = [str(error)]
            log.warning("%s of %s refused: %s", request.url.path, _peer(request), error)
        return JSONResponse({"detail": str(error)}, error.status)

    _probing(app, probing)
    _releasing(app, probing)
    return app


def _probing(app: FastAPI, probing: Probing) -> None:
    @app.post(remote.FACTS)
    async def look(request: Request) -> Response:
        """Find the processes that use the GPUs."""
        order = await _accepted_order(request, remote.FACTS_REQUEST, probing)
        return _json(remote.FACTS_ANSWER, await probing.look(order))

    @app.post(remote.PROBE)
    async def probe(request: Request) -> Response:
        """One probe, if the gate is open; it is cancelled when the connection ends."""
        wanted = await _accepted_order(request, remote.PROBE_REQUEST, probing)
        if wanted.force and _peer(request).uid != ROOT:
            raise _RequestRefused(DENIED, "only root may force a probe on GPUs in use")
        if wrong := wanted.options.wrong() or wanted.variation.wrong():
            raise _RequestRefused(UNUSABLE, f"options: {wrong}")
        gone = asyncio.ensure_future(request.receive())
        try:
            return _json(remote.PROBE_ANSWER, await probing.attempt(wanted, gone))
        finally:
            gone.cancel()

    @app.post(remote.TERMS)
    async def terms(request: Request) -> Response:
        """The terms of the probe that would run now."""
        wanted = await _accepted_order(request, remote.PROBE_REQUEST, probing)
        return _json(remote.PROBE_TERMS, await probing.terms(wanted))


class _RequestRefused(Exception):
    """A request that is refused; the text is one line for the client."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


def _json(adapter: TypeAdapter[Any], document: object) -> Response:
    return Response(adapter.dump_json(document), media_type="application/json")


def _releasing(app: FastAPI, probing: Probing) -> None:
    @app.post(remote.RELEASE)
    async def release(request: Request) -> Response:
        """Close every GPU handle for a while."""
        order = await _accepted_order(request, TypeAdapter(ReleaseOrder), probing)
        return _json(RELEASE, await probing.release(order.seconds, f"{order.by}, {_peer(request)}"))

    @app.post(remote.RESUME)
    async def resume(request: Request) -> Response:
        """Handles may be opened again."""
        order = await _accepted_order(request, TypeAdapter(ResumeOrder), probing)
        return _json(RELEASE, await probing.resume(f"{order.by}, {_peer(request)}"))


def _peer(request: Request) -> Peer:
    peer: Peer = request.state.peer
    return peer


async def _accepted_order(request: Request, adapter: TypeAdapter[T], probing: Probing) -> T:
    """Return a request's order; _RequestRefused for another process or version, or a wrong order."""
    if not probing.may(_peer(request)):
        said = f"{_peer(request)} may not send orders here; root, and the user and group of the socket, may"
        raise _RequestRefused(DENIED, said)
    version = request.headers.get(remote.VERSION, "none")
    if version != __version__ and request.url.path not in UNVERSIONED:
        theirs = "".join(c for c in version if c.isprintable())[:50]
        said = f"the prober is version {__version__}, this agent {theirs}: restart both from one image"
        raise _RequestRefused(CONFLICT, said)
    try:
        return adapter.validate_json(await request.body())
    except ClientDisconnect as error:
        raise _RequestRefused(UNUSABLE, "the request was not complete") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "order"
        raise _RequestRefused(UNUSABLE, f"{place}: {first['msg']}") from error
