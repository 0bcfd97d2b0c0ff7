"""The orders that a daemon takes, over a socket of its own that only its own user may open."""

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
from wirewatch.documents.state import FINDINGS, FindingsDocument
from wirewatch.probe import remote
from wirewatch.probe.comparability import ProbeTerms
from wirewatch.probe.remote import Came, Looked, LookOrder
from wirewatch.probe.setup import Wanted
from wirewatch.server.connections import Peer
from wirewatch.verdict.orders import OrderError

CONFLICT, UNUSABLE = 409, 422
DAY = 86400.0
"""Seconds; nobody is blind for longer by one order."""


@dataclass(frozen=True, slots=True)
class ReleaseDocument:
    """What an order came to: whether the GPUs are released, and until when (Unix seconds, 0 for not).

    `seconds_taken` by the order: every handle was closed by then. `stuck`: processes that cannot be killed
    and still hold GPUs; `unsure`: why it is not known of the prober, empty where it is. `why` in words.
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
    """Close every GPU handle for so many seconds; `by` says who wants it."""

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "allow_inf_nan": False}

    seconds: Annotated[float, Field(gt=0, le=DAY)] = 600.0
    by: Annotated[str, Field(max_length=200)] = ""


@dataclass(frozen=True, slots=True)
class ResumeOrder:
    """Take the GPUs back now; `by` says who wants it."""

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid"}

    by: Annotated[str, Field(max_length=200)] = ""


@dataclass(frozen=True, slots=True)
class FindingOrder:
    """What an operator says of a finding, who says it and why; `until` (Unix seconds) for `suppress`."""

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid", "allow_inf_nan": False}

    order: Literal["ack", "suppress", "unsuppress"]
    by: Annotated[str, Field(min_length=1, max_length=200)]
    why: Annotated[str, Field(min_length=1, max_length=1000)]
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Control:
    """What the daemon may be told to do.

    `release` takes seconds and who wants it, `resume` who wants it, `of_finding` the beginning of a
    finding's id, `accept` what of the topology is right; the last two raise OrderError for what cannot be
    done.
    """

    release: Callable[[float, str], Awaitable[ReleaseDocument]]
    resume: Callable[[str], Awaitable[ReleaseDocument]]
    of_finding: Callable[[str, FindingOrder], FindingsDocument]
    accept: Callable[[AcceptOrder], DriftDocument]


RELEASE = TypeAdapter(ReleaseDocument)
DOCUMENTS: dict[str, TypeAdapter[Any]] = {"wirewatch.release.1": RELEASE}
log = logging.getLogger(__name__)
T = TypeVar("T")
DENIED = 403
ROOT = 0
UNVERSIONED = frozenset({remote.RELEASE, remote.RESUME})
"""Whoever wants the GPUs free is heard, whatever version he is."""


@dataclass(frozen=True, slots=True)
class Probing:
    """What a prober can do.

    `attempt` takes what is wanted and what ends when nobody waits for it any more; `may` says who may ask.
    """

    look: Callable[[LookOrder], Awaitable[Looked]]
    attempt: Callable[[Wanted, Awaitable[object]], Awaitable[Came]]
    terms: Callable[[Wanted], Awaitable[ProbeTerms | Absent]]
    release: Callable[[float, str], Awaitable[ReleaseDocument]]
    resume: Callable[[str], Awaitable[ReleaseDocument]]
    may: Callable[[Peer], bool]


class _RequestRefused(Exception):
    """A question that is not answered; the text is one line for the asker."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


def control_application(control: Control) -> FastAPI:
    """The interface over what may be ordered."""
    app = FastAPI(
        title="wirewatch control", version=__version__, docs_url=None, redoc_url=None, openapi_url=None,
        redirect_slashes=False,
    )  # fmt: skip

    @app.exception_handler(RequestValidationError)
    async def unusable(_request: Request, error: RequestValidationError) -> Response:
        """One line for the user. It does not repeat what was given, which may be no JSON, such as NaN."""
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:])
        return JSONResponse({"detail": f"{place or 'order'}: {first['msg']}"}, UNUSABLE)

    @app.post("/release", response_model=ReleaseDocument)
    async def release(order: ReleaseOrder) -> Response:
        """Close every GPU handle; a second order takes the place of the first."""
        return _json(RELEASE, await control.release(order.seconds, order.by))

    @app.post("/resume", response_model=ReleaseDocument)
    async def resume(order: ResumeOrder) -> Response:
        """Take the GPUs back; nothing changes when they are not released."""
        return _json(RELEASE, await control.resume(order.by))

    @app.post("/findings/{name}", response_model=FindingsDocument)
    async def of_finding(name: str, order: FindingOrder) -> Response:
        """Acknowledge, suppress until a date, or take that back; answers with all findings after it."""
        try:
            return _json(FINDINGS, control.of_finding(name, order))
        except OrderError as error:
            return JSONResponse({"detail": str(error)}, CONFLICT)

    _topology(app, control)
    return app


def prober_application(probing: Probing) -> FastAPI:
    """The interface of a prober."""
    app = FastAPI(
        title="wirewatch prober", version=__version__, docs_url=None, redoc_url=None, openapi_url=None,
        redirect_slashes=False,
    )  # fmt: skip

    said: list[str] = []

    @app.exception_handler(_RequestRefused)
    async def refused(request: Request, error: _RequestRefused) -> Response:
        """A line in the log for each that is not like the one before: an agent asks again and again."""
        if said != [str(error)]:
            said[:] = [str(error)]
            log.warning("%s of %s refused: %s", request.url.path, _peer(request), error)
        return JSONResponse({"detail": str(error)}, error.status)

    @app.post(remote.LOOK)
    async def look(request: Request) -> Response:
        """Who uses the GPUs."""
        order = await _accepted_order(request, remote.LOOK_ORDER, probing)
        return _json(remote.LOOKED, await probing.look(order))

    @app.post(remote.PROBE)
    async def probe(request: Request) -> Response:
        """One probe, if the gate is open; it ends with the connection."""
        wanted = await _accepted_order(request, remote.WANTED, probing)
        if wanted.force and _peer(request).uid != ROOT:
            raise _RequestRefused(DENIED, "to probe beside whoever is there is for root alone")
        if wrong := wanted.options.wrong():
            raise _RequestRefused(UNUSABLE, f"options: {wrong}")
        gone = asyncio.ensure_future(request.receive())
        try:
            return _json(remote.CAME, await probing.attempt(wanted, gone))
        finally:
            gone.cancel()

    @app.post(remote.TERMS)
    async def terms(request: Request) -> Response:
        """The terms of the probe that would be run now."""
        wanted = await _accepted_order(request, remote.WANTED, probing)
        return _json(remote.PROBE_TERMS, await probing.terms(wanted))

    _releasing(app, probing)
    return app


def _topology(app: FastAPI, control: Control) -> None:
    @app.post("/topology", response_model=DriftDocument)
    async def accept(order: AcceptOrder) -> Response:
        """Take the topology, or one change of it, for right; answers with the baseline after it."""
        try:
            return _json(DRIFT, control.accept(order))
        except OrderError as error:
            return JSONResponse({"detail": str(error)}, CONFLICT)


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
    """What is asked, by who may ask it, in our own version.

    Raises:
        _Refused: it is not.
    """
    if not probing.may(_peer(request)):
        raise _RequestRefused(
            DENIED, f"{_peer(request)} may not ask here: root, and the socket's user and group may"
        )
    version = request.headers.get(remote.VERSION, "none")
    if version != __version__ and request.url.path not in UNVERSIONED:
        told = "".join(c for c in version if c.isprintable())[:50]
        raise _RequestRefused(
            CONFLICT,
            f"the prober is version {__version__}, this agent {told}: start both anew, from one image",
        )
    try:
        return adapter.validate_json(await request.body())
    except ClientDisconnect as error:
        raise _RequestRefused(UNUSABLE, "half a question") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "order"
        raise _RequestRefused(UNUSABLE, f"{place}: {first['msg']}") from error
