"""The controller's HTTP: its metrics, and whether it lives and is ready."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.openmetrics import exposition as openmetrics

from wirewatch.core.types import Sample
from wirewatch.server.exposition import as_openmetrics, as_text, takes_openmetrics
from wirewatch.server.guard import Application, Receive, Scope, Send


@dataclass(frozen=True, slots=True)
class ControllerView:
    """What is asked for at each request."""

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
