"""Where Alertmanager sends its word: a web hook that keeps everything, with the second it came."""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self


@dataclass(frozen=True, slots=True)
class Notice:
    """One alert of one notification; `at` in Unix seconds, when it came, `receiver` whom it was for."""

    at: float
    firing: bool
    receiver: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.labels["alertname"]


@dataclass(frozen=True, slots=True)
class Notification:
    """One call of the web hook: whom it was for, and the labels by which its alerts are one group."""

    at: float
    receiver: str
    group: Mapping[str, str]
    notices: tuple[Notice, ...]

    @property
    def firing(self) -> tuple[Notice, ...]:
        return tuple(one for one in self.notices if one.firing)


def notification(body: bytes, at: float) -> Notification:
    """A call of the web hook.

    Raises:
        ValueError, KeyError, TypeError: see `notices`.
    """
    told = json.loads(body)
    return Notification(at, str(told["receiver"]), dict(told["groupLabels"]), tuple(notices(body, at)))


def notices(body: bytes, at: float) -> list[Notice]:
    """What a notification of Alertmanager says (its webhook format, version 4).

    Raises:
        ValueError, KeyError, TypeError: it is none.
    """
    told = json.loads(body)
    if told["version"] != "4":
        raise ValueError(f"not version 4 of Alertmanager's webhook: {told['version']!r}")
    return [
        Notice(
            at, _firing(one["status"]), str(told["receiver"]), dict(one["labels"]), dict(one["annotations"])
        )
        for one in told["alerts"]
    ]


def _firing(status: str) -> bool:
    if status not in {"firing", "resolved"}:
        raise ValueError(f"an alert is firing or resolved, not {status!r}")
    return status == "firing"


class Receiver:
    """The web hook, on a port of its own; ends with the block. What is no notification is a trouble."""

    def __init__(self) -> None:
        self._kept: list[Notice] = []
        self._calls: list[Notification] = []
        self._came = threading.Condition()
        self.troubles: list[str] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                receiver.take(body, time.time())
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Every notice is kept, none need be printed."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: object, _trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take(self, body: bytes, at: float) -> None:
        with self._came:
            try:
                call = notification(body, at)
                self._calls.append(call)
                self._kept += call.notices
            except (ValueError, KeyError, TypeError) as error:
                self.troubles.append(f"{type(error).__name__}: {error}: {body[:200]!r}")
            self._came.notify_all()

    def of(self, node: str) -> list[Notice]:
        with self._came:
            return [notice for notice in self._kept if notice.labels.get("node") == node]

    def calls(self) -> Sequence[Notification]:
        with self._came:
            return tuple(self._calls)

    def every(self) -> Sequence[Notice]:
        with self._came:
            return tuple(self._kept)

    def wait(self, node: str, wanted: Callable[[Sequence[Notice]], bool], seconds: float) -> bool:
        """Whether what was reported of a node is as wanted, before so many seconds are over."""
        end = time.monotonic() + seconds
        with self._came:
            while not wanted([n for n in self._kept if n.labels.get("node") == node]):
                if (left := end - time.monotonic()) <= 0:
                    return False
                self._came.wait(left)
        return True
