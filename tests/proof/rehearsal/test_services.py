"""Services of the rehearsal: a program that cannot listen is never taken for one that does."""

import http.server
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from proof.rehearsal import services
from proof.rehearsal.services import Service

LISTENS = """
import http.server, sys
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Ready).serve_forever()
"""


class Listening(Service):
    def __init__(self, folder: Path, code: str) -> None:
        super().__init__(sys.executable, folder)
        self._code = code

    def arguments(self) -> Sequence[str]:
        return ("-c", self._code, str(self.port))


@contextmanager
def somebody_else(port: int) -> Iterator[None]:
    """Whoever has taken the port, and says that he is ready."""

    class Ready(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nobody need know."""

    with http.server.HTTPServer(("127.0.0.1", port), Ready) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield
        server.shutdown()


def test_it_runs_within_the_block_and_not_after(tmp_path: Path) -> None:
    with Listening(tmp_path, LISTENS) as service:
        process = service._process  # noqa: SLF001
        assert process is not None
        assert process.poll() is None
    assert process.poll() is not None


def test_a_port_that_another_program_has_is_changed(tmp_path: Path) -> None:
    service = Listening(tmp_path, LISTENS)
    taken = service.port
    with somebody_else(taken), service:
        assert service.port != taken


def test_what_does_not_start_is_reported_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "START", 5.0)
    with (
        pytest.raises(AssertionError, match="no disk"),
        Listening(tmp_path, "raise SystemExit('no disk')"),
    ):
        pass


def test_a_program_that_is_not_installed_is_a_failure(tmp_path: Path) -> None:
    class Missing(Service):
        def arguments(self) -> Sequence[str]:
            return ()

    with pytest.raises(AssertionError, match="tests/system/packages"):
        Missing("no-such-program", tmp_path)
