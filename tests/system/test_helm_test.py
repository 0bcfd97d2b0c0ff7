"""What `helm test` runs: the script of the pod, as it is rendered, against agents and what is none."""

import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.chart.documents import Document, by_pool, documents, of_kind, pod_of, the
from tests.chart.policies import Pod, admits, selects
from tests.chart.restricted import refused
from tests.node.daemon.process import SOON, Daemon
from tests.node.daemon.test_service_tls import web
from tests.node.server.authority import Authority
from tests.system.matrix import MATRIX, WEB
from tools.chart.helm import hooks, manifest

pytestmark = pytest.mark.system


def made(values: dict[str, Any]) -> tuple[Document, ...]:
    return documents(hooks(values))


def words(values: dict[str, Any], deadline: float = 0) -> tuple[list[str], list[str]]:
    """Command and arguments of the pod; without a deadline it looks once."""
    (one,) = the(made(values), "Pod")["spec"]["containers"]
    *program, script = one["command"]
    assert "DEADLINE = 60" in script
    return [*program, script.replace("DEADLINE = 60", f"DEADLINE = {deadline}")], one["args"]


def run(values: dict[str, Any], port: int, names: Sequence[str], deadline: float = 0) -> tuple[int, str]:
    command, (scheme, _, *_services) = words(values, deadline)
    done = subprocess.run([*command, scheme, str(port), *names], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.returncode, done.stdout


def port_of(daemon: Daemon) -> int:
    return int(daemon.url.rpartition(":")[2])


def test_an_agent_that_answers_passes_and_its_word_is_said(tmp_path: Path) -> None:
    with Daemon(["--demo"], tmp_path) as daemon:
        daemon.ready()
        daemon.wait("/health", '"health"')
        status, said = run({}, port_of(daemon), ["127.0.0.1"])
    assert status == 0
    assert said.startswith("1 of 1 agents answer: {")


def test_over_tls_with_a_password_that_it_was_not_given(tmp_path: Path) -> None:
    Authority(tmp_path, "ours").pair("here")
    (tmp_path / "web.yml").write_text(web(), "utf-8")
    with Daemon(["--demo", "--web-config", str(tmp_path / "web.yml")], tmp_path) as daemon:
        status, said = run(WEB, port_of(daemon), ["127.0.0.1"], deadline=SOON)
    assert (status, said) == (0, "1 of 1 agents answer: {'ready, and asks for a password': 1}\n")


@contextmanager
def answering(status: HTTPStatus) -> Iterator[int]:
    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_one_that_is_not_ready_fails_and_is_named() -> None:
    with answering(HTTPStatus.SERVICE_UNAVAILABLE) as port:
        assert run({}, port, ["127.0.0.1"]) == (1, "0 of 1 agents answer: {}\n127.0.0.1: not ready: 503\n")


def test_something_else_on_the_port_fails() -> None:
    with answering(HTTPStatus.OK) as port:
        status, said = run({}, port, ["127.0.0.1"])
    assert status == 1
    assert "127.0.0.1: JSONDecodeError" in said


def test_nobody_there_fails() -> None:
    with answering(HTTPStatus.OK) as port:
        pass
    status, said = run({}, port, ["127.0.0.1"])
    assert status == 1
    assert "127.0.0.1: ConnectionRefusedError" in said
    status, said = run({}, port, ["wirewatch.invalid"])
    assert status == 1
    assert "no agent is there: see Troubleshooting" in said


@pytest.mark.parametrize("name", ["nothing", "pools", "monitored over TLS", "registry without a network"])
def test_it_asks_every_service_and_a_restricted_namespace_takes_it(name: str) -> None:
    values = MATRIX[name]
    given = documents(manifest(values))
    _, (scheme, port, *services) = words(values)
    assert services == [one["metadata"]["name"] for one in of_kind(given, "Service")]
    assert (scheme, port) == ("https" if "web" in values else "http", "9410")
    pod = the(made(values), "Pod")
    spec = pod["spec"] | {"volumes": []}
    assert list(refused(spec)) == []
    rest = next(by_pool(given))
    assert {one["image"] for one in spec["containers"]} == {
        one["image"] for one in pod_of(rest)["containers"]
    }
    for one in by_pool(given):
        assert not selects(the(one, "DaemonSet")["spec"]["selector"], pod["metadata"]["labels"])


@pytest.mark.parametrize("name", ["nothing", "pools"])
def test_it_is_let_in_by_a_policy_that_goes_when_it_has_ended_well(name: str) -> None:
    given = documents(manifest(MATRIX[name]))
    hook, pod = the(made(MATRIX[name]), "NetworkPolicy"), the(made(MATRIX[name]), "Pod")
    asking = Pod(pod["metadata"]["labels"], pod["metadata"]["namespace"])
    assert not admits(the(given, "NetworkPolicy"), asking)
    assert admits(hook, asking)
    assert not admits(hook, Pod(asking.labels, "elsewhere"))
    assert hook["spec"]["podSelector"] == the(given, "NetworkPolicy")["spec"]["podSelector"]
    assert "hook-succeeded" in hook["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
    assert of_kind(given, "Pod") == []


def test_without_a_service_or_a_policy_there_is_none() -> None:
    assert made({"service": {"enabled": False}}) == ()
    assert of_kind(made({"networkPolicy": {"enabled": False}}), "NetworkPolicy") == []
