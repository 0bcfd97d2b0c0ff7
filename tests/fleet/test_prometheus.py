"""Asking a Prometheus: credentials, TLS, redirects, and each way in which it may not answer."""

import json
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.fleet.promapi import NOW, PromApi, reply, row, served, vector
from tests.node.kubernetes.apiserver import certify
from tests.patience import HANGS
from tests.rows import each
from wirewatch_fleet import prometheus
from wirewatch_fleet.prometheus import Access, AccessError, NoPrometheus, address, instant, secret, tls

ROWS = {"up": [row(1, node="n1", __name__="up")]}


def test_a_vector_with_its_labels_and_its_warnings() -> None:
    with served(PromApi(ROWS, {"warnings": ["store x is away"]})) as api:
        found = instant(Access(api.url), "up", NOW)
    assert [dict(one.labels) for one in found.points] == [{"node": "n1", "__name__": "up"}]
    assert [one.value for one in found.points] == [1.0]
    assert found.warnings == ("store x is away",)


@pytest.mark.parametrize(
    "headers", [prometheus.bearer("t0ken"), prometheus.basic("me", "pässword"), {"X-Scope-OrgID": "gpu"}]
)
def test_credentials_are_sent_and_not_shown(headers: Mapping[str, str]) -> None:
    with served(PromApi(ROWS)) as api:
        access = Access(api.url, headers)
        instant(access, "up", NOW)
    ((_, got),) = api.asked
    assert {name.lower(): text for name, text in got.items()}.items() >= {
        name.lower(): text for name, text in headers.items()
    }.items()
    assert not any(text in repr(access) for text in headers.values())


def test_credentials_do_not_go_where_it_redirects() -> None:
    with served(PromApi(ROWS)) as other:

        def away(handler: BaseHTTPRequestHandler) -> None:
            reply(handler, 307, b"", Location=other.url + handler.path)

        with served(PromApi(answer=away)) as api:
            assert instant(Access(api.url, prometheus.bearer("t0ken")), "up", NOW).points
    ((_, got),) = other.asked
    assert "Authorization" not in got


def test_tls_by_its_own_ca_alone(tmp_path: Path) -> None:
    certificate = certify(tmp_path)
    with served(PromApi(ROWS), certificate) as api:
        assert instant(Access(api.url, tls=tls(tmp_path / "ca.crt", None, None)), "up", NOW).points
        with pytest.raises(NoPrometheus, match=r"TLS: "):
            instant(Access(api.url, tls=tls(None, None, None)), "up", NOW)


MATRIX = {"resultType": "matrix", "result": []}


def _replied(status: int, body: bytes) -> PromApi:
    return PromApi(answer=lambda handler: reply(handler, status, body))


@each(
    ("api", "told"),
    [
        (_replied(401, b""), r"HTTP 401; give --token-file or --user"),
        (_replied(403, b""), r"HTTP 403; the credentials do not suffice"),
        (
            _replied(422, json.dumps({"status": "error", "error": "parse error"}).encode()),
            "HTTP 422: parse error",
        ),
        (_replied(503, b"<html>"), "HTTP 503$"),
        (_replied(401, b"no org id\n"), "HTTP 401: no org id; give --token-file or --user"),
        (_replied(400, b"x" * 301), "HTTP 400$"),
        (_replied(400, b"a\x1b[31m"), "HTTP 400$"),
        (_replied(400, b'{"error": "a\\u001b[31m\\nb"}'), r"HTTP 400: a \[31m b$"),
        (_replied(299, b""), "HTTP 299$"),
        (_replied(200, b"<html>"), "not from a Prometheus"),
        (_replied(200, b"[]"), "not from a Prometheus"),
        (_replied(200, json.dumps({"status": "error", "data": None}).encode()), "not from a Prometheus"),
        (_replied(200, json.dumps(vector([{"metric": {}}])).encode()), "not from a Prometheus"),
        (_replied(200, json.dumps({**vector([]), "status": "error"}).encode()), "not from a Prometheus"),
        (_replied(200, json.dumps({**vector([]), "data": MATRIX}).encode()), "not from a Prometheus"),
        (_replied(200, b"[" * 100_000), "not from a Prometheus"),
        (_replied(302, b""), "HTTP 302"),
    ],
)
def test_what_is_no_answer_is_one_line(api: PromApi, told: str) -> None:
    with served(api), pytest.raises(NoPrometheus, match=told) as error:
        instant(Access(api.url), "up", NOW)
    assert "\n" not in str(error.value)


def test_a_redirect_to_a_file_is_not_followed() -> None:
    api = PromApi(answer=lambda handler: reply(handler, 302, b"", Location="file:///etc/hostname"))
    with served(api), pytest.raises(NoPrometheus):
        instant(Access(api.url), "up", NOW)


@pytest.mark.parametrize("piece", [b" " * (1 << 16), b" ", b"X-More: 1\r\n"], ids=["fast", "bytes", "head"])
def test_an_answer_that_trickles_ends_by_the_deadline(piece: bytes) -> None:
    ended = threading.Event()

    def trickle(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.0 200 OK\r\n" if piece.startswith(b"X") else b"HTTP/1.0 200 OK\r\n\r\n")
        try:
            while not ended.wait(0.05):
                handler.wfile.write(piece)
        except OSError:  # The other side has gone, as it should.
            pass

    with served(PromApi(answer=trickle)) as api:
        began = time.monotonic()
        with pytest.raises(NoPrometheus, match=r"within 0\.3 s"):
            instant(Access(api.url, timeout=0.3), "up", NOW)
        assert time.monotonic() - began < HANGS
        ended.set()


def test_an_answer_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "LIMIT", 1000)
    with served(_replied(200, b" " * 2000)) as api, pytest.raises(NoPrometheus, match="longer than"):
        instant(Access(api.url), "up", NOW)


def test_nobody_listens() -> None:
    with pytest.raises(NoPrometheus, match=r"127\.0\.0\.1:1: Connection refused"):
        instant(Access("http://127.0.0.1:1"), "up", NOW)


@each(
    "url",
    ["prometheus:9090", "ftp://x", "file:///etc/passwd", "http://", "http://a b", "http://[::1", "http://h:99999",
     "http://h\u00e9", "http://h/\x7f", "http://h:0", "http://h/?query=up",
     "http://h/#x", "http://me:pw@h", "http://h\n", ""],
)  # fmt: skip
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(AccessError):
        address(url)


def test_an_address_may_have_a_path() -> None:
    assert address("https://mimir/prometheus/") == "https://mimir/prometheus"


@pytest.mark.parametrize("text", ["", " \n", "two\nlines", "a\x00b"])
def test_a_secret_is_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text, "utf-8")
    with pytest.raises(AccessError):
        secret(file)
    file.write_text("good\n", "utf-8")
    assert secret(file) == "good"


def test_what_is_no_certificate_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    file.write_text("no certificate", "utf-8")
    for given in ((file, None, None), (None, file, None)):
        with pytest.raises(AccessError):
            tls(*given)
