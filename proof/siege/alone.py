"""A server of HTTP without a daemon behind it, on a port that it prints, until its input ends.

    python -P -m proof.siege.alone ours|uvicorn

`ours`: the tree's own, over an application that answers with what it was asked. `uvicorn`: `uvicorn.run` with
uvicorn's defaults, for what its own loop costs.
"""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any

from wirewatch.server.connections import Bounds, Connections
from wirewatch.server.guard import PortGuard, Receive, Scope, Send
from wirewatch.server.listener import HttpServer
from wirewatch.server.reload import WebCounts
from wirewatch.server.sockets import tcp


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the body of a POST; `/raise` raises."""
    if scope["path"] == "/raise":
        raise RuntimeError("as asked")
    body, more = b"", scope["method"] == "POST"
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body, more = body + message["body"], message["more_body"]
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def main(server: Coroutine[Any, Any, None]) -> None:
    serving = asyncio.ensure_future(server)
    over = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, over.set)
    await over.wait()
    serving.cancel()


async def _uvicorn(listening: Any) -> None:
    from uvicorn import Config, Server  # noqa: PLC0415 - the tree before has none

    config = Config(echo, lifespan="off", log_level="error")
    await Server(config).serve([listening])


if __name__ == "__main__":
    with tcp("127.0.0.1", 0) as port:
        print(port.getsockname()[1], flush=True)
        if sys.argv[1] == "uvicorn":
            asyncio.run(main(_uvicorn(port)))
        else:
            web = PortGuard(WebCounts())
            bounds = Bounds(connections=256, of_one=256, reserved=256)
            asyncio.run(main(HttpServer(echo, port, Connections(web.counts, bounds), web).run()))
