"""The names of uvicorn that it does not document and that the server uses: ADR 0078."""

import asyncio
import inspect
from typing import Any

from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from wirewatch.server.connections import Admission, Connections
from wirewatch.server.listener import HttpConnection
from wirewatch.server.reload import WebCounts
from wirewatch.server.webconfig import Settings

CALLED = (
    "connection_made", "data_received", "eof_received", "connection_lost", "pause_writing", "resume_writing",
    "on_response_complete",
)  # fmt: skip
"""Methods of the protocol that are extended, and in them called."""
READ = ("app_state", "conn", "cycle", "flow", "loop", "scheme", "scope", "transport")
OF_CYCLE = ("disconnected", "message_event", "more_body", "response_complete")


async def nothing(_scope: Any, _receive: Any, _send: Any) -> None:
    """An application that is never called."""


def loaded() -> Config:
    config = Config(nothing, http="h11", ws="none", lifespan="off", interface="asgi3", log_config=None)
    config.load()
    return config


def protocol(config: Config) -> H11Protocol:
    return H11Protocol(config, Server(config).server_state, {}, asyncio.new_event_loop())


def cycle(made: H11Protocol) -> RequestResponseCycle:
    return RequestResponseCycle(
        made.scope, made.conn, made.transport, made.flow, made.logger, made.access_logger, made.access_log,
        [], asyncio.Event(), made.on_response_complete,
    )  # fmt: skip


def test_every_name_that_is_used_is_there() -> None:
    config = loaded()
    server, made = Server(config), protocol(config)
    server.servers, server.lifespan = [], config.lifespan_class(config)
    asyncio.run(server.shutdown())
    assert config.http_protocol_class is H11Protocol
    assert [name for name in CALLED if not inspect.isfunction(vars(H11Protocol).get(name))] == []
    assert [name for name in READ if name not in vars(made)] == []
    assert list(inspect.signature(H11Protocol.send_400_response).parameters) == ["self", "msg"]
    assert [name for name in OF_CYCLE if name not in vars(cycle(made))] == []
    made.loop.close()


def test_no_name_of_our_own_hides_one_of_uvicorns() -> None:
    config = loaded()
    theirs = protocol(config)
    place = Admission("somebody", own=False, end=lambda: None)

    async def made() -> HttpConnection:
        return HttpConnection(Server(config), Connections(WebCounts()), place, Settings(), None)

    ours = {*vars(asyncio.run(made())), *vars(HttpConnection)} - {*vars(theirs)}
    shared = {name for name in ours & {*dir(H11Protocol)} if not name.startswith("__")}
    assert shared == {*CALLED, "send_400_response"}
    theirs.loop.close()
