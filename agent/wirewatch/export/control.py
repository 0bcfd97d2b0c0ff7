"""The orders that a daemon takes, over a socket of its own that only its own user may open."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import Field, TypeAdapter

from wirewatch import __version__
from wirewatch.export.documents import FINDINGS, FindingsDocument
from wirewatch.export.driftdocuments import DRIFT, AcceptOrder, DriftDocument
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
