"""What a prober answers to the agent beside it, over a socket of its own; documents in `probes.crossing`."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from pydantic import TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect

from wirewatch import __version__
from wirewatch.core.types import Absent
from wirewatch.export.control import CONFLICT, RELEASE, UNUSABLE, ReleaseDocument, ReleaseOrder, ResumeOrder
from wirewatch.hw.peers import Peer
from wirewatch.probe import remote
from wirewatch.probe.comparability import ProbeTerms
from wirewatch.probe.remote import Came, Looked, LookOrder
from wirewatch.probe.setup import Wanted

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


class _Refused(Exception):
    """A question that is not answered; the text is one line for the asker."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


def prober_application(probing: Probing) -> FastAPI:
    """The interface of a prober."""
    app = FastAPI(
        title="wirewatch prober", version=__version__, docs_url=None, redoc_url=None, openapi_url=None,
        redirect_slashes=False,
    )  # fmt: skip

    said: list[str] = []

    @app.exception_handler(_Refused)
    async def refused(request: Request, error: _Refused) -> Response:
        """A line in the log for each that is not like the one before: an agent asks again and again."""
        if said != [str(error)]:
            said[:] = [str(error)]
            log.warning("%s of %s refused: %s", request.url.path, _peer(request), error)
        return JSONResponse({"detail": str(error)}, error.status)

    @app.post(remote.LOOK)
    async def look(request: Request) -> Response:
        """Who uses the GPUs."""
        order = await _told(request, remote.LOOK_ORDER, probing)
        return _json(remote.LOOKED, await probing.look(order))

    @app.post(remote.PROBE)
    async def probe(request: Request) -> Response:
        """One probe, if the gate is open; it ends with the connection."""
        wanted = await _told(request, remote.WANTED, probing)
        if wanted.force and _peer(request).uid != ROOT:
            raise _Refused(DENIED, "to probe beside whoever is there is for root alone")
        if wrong := wanted.options.wrong():
            raise _Refused(UNUSABLE, f"options: {wrong}")
        gone = asyncio.ensure_future(request.receive())
        try:
            return _json(remote.CAME, await probing.attempt(wanted, gone))
        finally:
            gone.cancel()

    @app.post(remote.TERMS)
    async def terms(request: Request) -> Response:
        """The terms of the probe that would be run now."""
        wanted = await _told(request, remote.WANTED, probing)
        return _json(remote.PROBE_TERMS, await probing.terms(wanted))

    _releasing(app, probing)
    return app


def _releasing(app: FastAPI, probing: Probing) -> None:
    @app.post(remote.RELEASE)
    async def release(request: Request) -> Response:
        """Close every GPU handle for a while."""
        order = await _told(request, TypeAdapter(ReleaseOrder), probing)
        return _json(RELEASE, await probing.release(order.seconds, f"{order.by}, {_peer(request)}"))

    @app.post(remote.RESUME)
    async def resume(request: Request) -> Response:
        """Handles may be opened again."""
        order = await _told(request, TypeAdapter(ResumeOrder), probing)
        return _json(RELEASE, await probing.resume(f"{order.by}, {_peer(request)}"))


def _peer(request: Request) -> Peer:
    peer: Peer = request.state.peer
    return peer


async def _told(request: Request, adapter: TypeAdapter[T], probing: Probing) -> T:
    """What is asked, by who may ask it, in our own version.

    Raises:
        _Refused: it is not.
    """
    if not probing.may(_peer(request)):
        raise _Refused(
            DENIED, f"{_peer(request)} may not ask here: root, and the socket's user and group may"
        )
    version = request.headers.get(remote.VERSION, "none")
    if version != __version__ and request.url.path not in UNVERSIONED:
        told = "".join(c for c in version if c.isprintable())[:50]
        raise _Refused(
            CONFLICT,
            f"the prober is version {__version__}, this agent {told}: start both anew, from one image",
        )
    try:
        return adapter.validate_json(await request.body())
    except ClientDisconnect as error:
        raise _Refused(UNUSABLE, "half a question") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "order"
        raise _Refused(UNUSABLE, f"{place}: {first['msg']}") from error


def _json(adapter: TypeAdapter[Any], document: object) -> Response:
    return Response(adapter.dump_json(document), media_type="application/json")
