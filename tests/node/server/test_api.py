"""The HTTP interface of a running daemon."""

import http.client
import json
import socket
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.node.daemon.process import FAST, Daemon
from tests.patience import HANGS
from wirewatch.catalogue import components
from wirewatch.cli.check.daemon import WrongAnswer, read_status
from wirewatch.documents import process, series
from wirewatch.documents import state as documents
from wirewatch.server import reload

REPLAY = ("--replay", "h200x8")
OPENMETRICS = "application/openmetrics-text;version=1.0.0"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(REPLAY, tmp_path_factory.mktemp("daemon")) as running:
        running.ready()
        running.wait("/health", '"health":"ok"')
        yield running


def test_metrics_are_prometheus_text_without_redirect(daemon: Daemon) -> None:
    reply = daemon.get("/metrics")
    assert reply.status == 200
    assert reply.content_type.startswith("text/plain; version=0.0.4")
    assert reply.series()["wirewatch_job_ready", frozenset()] == 1


def test_the_runbook_is_served_by_the_path_of_its_file_and_by_those_of_0_2(daemon: Daemon) -> None:
    for path in ("runbook.md", "", "runbooks/WirewatchGPULost.md", "runbooks/README.md"):
        reply = daemon.get(f"/docs/{path}")
        assert (reply.status, reply.content_type) == (200, "text/html; charset=utf-8")
        assert '<h3 id="wirewatchgpulost"' in reply.text
    for path in ("/docs", "/docs/nothing", "/docs/../etc/passwd", "/docs/runbooks/%00"):
        assert daemon.get(path).status == 404


def test_openmetrics_is_served_to_who_asks_for_it(daemon: Daemon) -> None:
    reply = daemon.get("/metrics", OPENMETRICS)
    assert reply.content_type.startswith("application/openmetrics-text")
    assert reply.text.endswith("# EOF\n")
    assert reply.text.count("# EOF") == 1
    plain = {name for name, _ in daemon.get("/metrics").series()}
    assert {line.split("{")[0].split(" ")[0] for line in reply.text.splitlines() if line[0] != "#"} == plain


def test_every_series_is_of_a_declared_metric_with_its_labels(daemon: Daemon) -> None:
    declared = {m.exposed: set(m.labels) for c in components() for m in c.metrics}
    declared |= {m.exposed: set(m.labels) for m in (*series.METRICS, *reload.METRICS, *process.METRICS)}
    for name, labels in daemon.get("/metrics").series():
        assert {label for label, _ in labels} == declared[name]


def test_the_documents_are_of_their_schemas(daemon: Daemon) -> None:
    documents.HEALTH.validate_json(daemon.get("/health").text, strict=True, extra="forbid")
    state = documents.STATE.validate_json(daemon.get("/api/v1/state").text, strict=True, extra="forbid")
    # Bursts of NVLink's counters leave lockstep no gap at the intervals of FAST.
    due = {c.name for c in components() if c.options.enabled} - {"lockstep"}
    assert {c.collector for c in state.collectors} == due
    assert state.source == "replay"


def test_the_topology_is_the_node_s_graph(daemon: Daemon) -> None:
    daemon.wait("/api/v1/topology", '"gpus":[{')
    text = daemon.get("/api/v1/topology").text
    document = documents.TOPOLOGY.validate_json(text, strict=True, extra="forbid")
    assert [gpu["index"] for gpu in json.loads(text)["topology"]["gpus"]] == list(range(8))
    assert document.topology is not None
    assert {wires.peer for wires in document.topology.nvlink} == {"switch"}


def test_live_and_ready_say_so(daemon: Daemon) -> None:
    assert daemon.get("/livez").json() == {"status": "alive"}
    assert daemon.get("/readyz").json() == {"status": "ready"}


def test_unknown_paths_and_methods_are_refused(daemon: Daemon) -> None:
    assert daemon.get("/nothing").status == 404
    assert daemon.get("/metrics/").status == 404
    host = daemon.url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=HANGS)
    connection.request("POST", "/health")
    assert connection.getresponse().status == 405
    connection.close()


def test_openapi_needs_nothing_from_outside(daemon: Daemon) -> None:
    document = daemon.get("/openapi.json").json()
    assert {"/metrics", "/livez", "/readyz", "/health", "/api/v1/state"} <= set(document["paths"])
    assert "http" not in json.dumps(document["paths"])


def test_the_local_socket_answers_the_same(tmp_path: Path) -> None:
    path = tmp_path / "run" / "wirewatch.sock"
    config = FAST.replace('socket = ""', f'socket = "{path}"')
    with Daemon(REPLAY, tmp_path, config) as running:
        running.ready()
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(HANGS)
            client.connect(str(path))
            client.sendall(b"GET /health HTTP/1.1\r\nHost: wirewatch\r\nConnection: close\r\n\r\n")
            text = b"".join(iter(lambda: client.recv(65536), b""))
        assert b"HTTP/1.1 200" in text
        assert b'"schema":"wirewatch.health/1"' in text
        assert path.stat().st_mode & 0o777 == 0o666


def test_the_socket_of_an_agent_that_was_killed_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "wirewatch.sock"
    config = FAST.replace('socket = ""', f'socket = "{path}"')
    with Daemon(REPLAY, tmp_path, config) as running:
        running.process.kill()
        running.process.wait()
    assert path.exists()
    with Daemon(REPLAY, tmp_path, config) as running:
        running.ready()


def test_status_is_read_as_it_is_served_and_nothing_else_is(daemon: Daemon) -> None:
    text = daemon.get("/api/v1/status").text
    known = read_status(text.encode())
    assert (known.by, known.health, len(known.gpus)) == ("daemon", "ok", 8)
    assert json.loads(text) == asdict(known)
    cold = json.loads(text)
    cold["gpus"][0]["celsius"] = -5.0
    assert read_status(json.dumps(cold).encode()).gpus[0].celsius == -5.0
    for wrong in ({**cold, "schema": "wirewatch.health/1"}, {**cold, "gpus": [{}]}, {**cold, "at": "now"}):
        with pytest.raises(WrongAnswer):
            read_status(json.dumps(wrong).encode())
