"""Where the API server is, and who we are there."""

import json
import socket
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rows import each
from tests.support import EPOCH
from wirewatch import __version__
from wirewatch.client import HttpReply, NotHttp
from wirewatch.config import ConfigError, load
from wirewatch.core.types import Unusable
from wirewatch.core.words import stamp
from wirewatch.kubernetes import apiserver
from wirewatch.kubernetes.apiserver import (
    ApiAccess,
    ApiEndpoint,
    UnexpectedReply,
    condition_in,
    credentials,
    endpoint,
    message_of,
    patch,
    patch_status,
)
from wirewatch.kubernetes.condition import TYPE, Condition, ConditionStatus

POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "6443", "NODE_NAME": "gpu-017"}


@each(
    ("server", "node", "environ", "found"),
    [
        ("", "", POD, ("10.96.0.1", 6443, "gpu-017")),
        ("", "", {**POD, "KUBERNETES_SERVICE_HOST": "fd00::1"}, ("fd00::1", 6443, "gpu-017")),
        ("", "", {"KUBERNETES_SERVICE_HOST": "api.example", "NODE_NAME": "a"}, ("api.example", 443, "a")),
        ("api.example.org:8443", "gpu-1", POD, ("api.example.org", 8443, "gpu-1")),
        ("[fd00::1]:443", "ip-10-0-0-1.ec2.internal", {}, ("fd00::1", 443, "ip-10-0-0-1.ec2.internal")),
    ],
)
def test_the_configuration_goes_before_what_a_pod_is_told(
    server: str, node: str, environ: dict[str, str], found: tuple[str, int, str]
) -> None:
    made = endpoint(server, "/account", node, environ)
    assert (made.host, made.port, made.node) == found
    assert made.folder == Path("/account")


@each(
    ("server", "node", "environ", "told"),
    [
        ("", "", {}, "which node this is must be told"),
        ("", "../../secrets", POD, "not the name of a node"),
        ("", "GPU-017", POD, "not the name of a node"),
        ("", "a" * 300, POD, "not the name of a node"),
        ("", "gpu-017", {}, "KUBERNETES_SERVICE_HOST is not set"),
        ("10.0.0.1", "gpu-017", POD, "not HOST:PORT of an API server: '10.0.0.1'"),
        ("10.0.0.1:0", "gpu-017", POD, "not HOST:PORT"),
        ("10.0.0.1:70000", "gpu-017", POD, "not HOST:PORT"),
        ("a b:443", "gpu-017", POD, "not HOST:PORT"),
        (".example:443", "gpu-017", POD, "not HOST:PORT"),
        (":443", "gpu-017", POD, "not HOST:PORT"),
        ("", "gpu-017", {**POD, "KUBERNETES_SERVICE_PORT": "tcp://10.0.0.1:443"}, "not HOST:PORT"),
    ],
)
def test_what_is_not_told_or_no_name_is_one_line(
    server: str, node: str, environ: dict[str, str], told: str
) -> None:
    with pytest.raises(Unusable, match=r"^kubernetes\.node_condition: ") as caught:
        endpoint(server, "/account", node, environ)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("token", ["", "a\nb", "a b", "ä", "x" * 70_000])
def test_a_file_without_a_token_is_reported_without_its_content(tmp_path: Path, token: str) -> None:
    (tmp_path / "token").write_text(token, "utf-8")
    with pytest.raises(OSError, match=r"token holds no token$"):
        credentials(ApiEndpoint("127.0.0.1", 443, tmp_path, "a"))


def test_a_token_is_not_printed() -> None:
    assert "secret" not in repr(ApiAccess("secret", None, ()))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("condition_heartbeat = 1.0", "kubernetes.condition_heartbeat: "),
        ("condition_failed_after = 0.0", "kubernetes.condition_failed_after: "),
        ("condition_hold = 3", "unknown key 'kubernetes.condition_hold'"),
        ('node_condition = "yes"', "kubernetes.node_condition: "),
    ],
)
def test_what_the_configuration_refuses(tmp_path: Path, line: str, told: str) -> None:
    file = tmp_path / "wirewatch.toml"
    file.write_text(f"[kubernetes]\n{line}\n", "utf-8")
    with pytest.raises(ConfigError) as caught:
        load(file, ())
    assert told in str(caught.value)


ACCESS = ApiAccess("secret", None, ("127.0.0.1",))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("host", "named"), [("10.96.0.1", "10.96.0.1:443"), ("fd00::1", "[fd00::1]:443"), ("api.a", "api.a:443")]
)
def test_a_request_names_its_host_who_asks_and_the_node(
    monkeypatch: pytest.MonkeyPatch, host: str, named: str
) -> None:
    sent: list[Any] = []

    def exchange(*given: Any) -> HttpReply:
        sent.extend(given)
        return HttpReply(200, {}, b"{}")

    monkeypatch.setattr(apiserver, "_connect", lambda *_: nullcontext("the connection"))
    monkeypatch.setattr(apiserver, "exchange", exchange)
    where = ApiEndpoint(host, 443, Path("/account"), "gpu-1")
    assert patch_status(where, ACCESS, b"body", 9.0).status == 200
    server, method, target, headers, body, end, limit = sent
    assert (server, method, body, end, limit) == ("the connection", "PATCH", b"body", 9.0, 8388608)
    assert target == "/api/v1/nodes/gpu-1/status?fieldManager=wirewatch"
    assert dict(headers) == {
        "Host": named, "Authorization": "Bearer secret", "User-Agent": f"wirewatch/{__version__}",
        "Accept": "application/json", "Content-Type": "application/strategic-merge-patch+json",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("raised", "error", "told"),
    [
        (EOFError(), ConnectionResetError, "the connection ended before the answer"),
        (NotHttp("odd"), UnexpectedReply, "not what an API server answers: odd"),
    ],
)
def test_an_answer_that_breaks_off_or_is_none_is_an_error(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, error: type[Exception], told: str
) -> None:
    def exchange(*_: object) -> HttpReply:
        raise raised

    monkeypatch.setattr(apiserver, "_connect", lambda *_: nullcontext("the connection"))
    monkeypatch.setattr(apiserver, "exchange", exchange)
    with pytest.raises(error, match=told):
        patch_status(ApiEndpoint("a", 443, Path("/account"), "gpu-1"), ACCESS, b"", 9.0)


class Wrapped:
    """Stands for TLS: says over which connection it is, by which name, and how long that may wait."""

    def wrap_socket(self, server: socket.socket, server_hostname: str) -> Any:
        return server.getpeername()[0], server_hostname, server.gettimeout()


def test_each_address_is_tried_within_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    times = [5.0, 5.0, 3.0]
    monkeypatch.setattr(apiserver, "left", lambda _end: times.pop(0))
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = ApiEndpoint("api.a", server.getsockname()[1], Path("/account"), "gpu-1")
        access = ApiAccess("secret", Wrapped(), ("127.0.0.2", "127.0.0.1"))  # type: ignore[arg-type]
        found: Any = apiserver._connect(where, access, 9.0)  # noqa: SLF001
    assert (found, times) == (("127.0.0.1", "api.a", 3.0), [])
    with pytest.raises(OSError, match=r"api\.a has no address"):
        apiserver._connect(where, replace(access, addresses=()), 9.0)  # noqa: SLF001


MINE = Condition(ConditionStatus.FALSE, "NvlinkLinkDown", "words", EPOCH - 100)


def node(*conditions: object, **other: object) -> bytes:
    status = {"conditions": [{"type": "Ready", "status": "True"}, *conditions]}
    return json.dumps({"kind": "Node", "metadata": {"name": "gpu-1"}, "status": status, **other}).encode()


def test_a_patch_holds_our_condition_and_nothing_else() -> None:
    assert json.loads(patch(MINE, EPOCH)) == {
        "status": {
            "conditions": [
                {
                    "type": "InterconnectHealthy",
                    "status": "False",
                    "reason": "NvlinkLinkDown",
                    "message": "words",
                    "lastHeartbeatTime": "2026-11-21T01:04:50Z",
                    "lastTransitionTime": "2026-11-21T01:03:10Z",
                }
            ]
        }
    }


def test_what_was_sent_is_understood_again() -> None:
    (sent,) = json.loads(patch(MINE, EPOCH))["status"]["conditions"]
    assert condition_in(node(sent), "gpu-1", EPOCH) == MINE
    assert condition_in(node(), "gpu-1", EPOCH) is None
    assert condition_in(node(status={"conditions": None}), "gpu-1", EPOCH) is None


@each(
    ("told", "transition"),
    [("2026-11-21T01:00:00Z", EPOCH - 290), ("2027-01-01T00:00:00Z", EPOCH), ("yesterday", EPOCH),
     (None, EPOCH), ("2026-11-21T01:00:00", EPOCH)],
)  # fmt: skip
def test_a_time_that_is_none_or_yet_to_come_is_now(told: str | None, transition: float) -> None:
    found = condition_in(node({"type": TYPE, "status": "True", "lastTransitionTime": told}), "gpu-1", EPOCH)
    assert found == Condition(ConditionStatus.TRUE, "", "", transition)


def test_a_status_that_we_never_tell_is_none_of_ours() -> None:
    assert condition_in(node({"type": TYPE, "status": "Maybe"}), "gpu-1", EPOCH) is None


@each(
    "text",
    [b"", b"<html>", b"[]", b"null", b"{}", node(kind="Pod"), node(metadata={"name": "gpu-2"}),
     node(status=None), node("Ready"), node(kind=None), b"[" * 100_000, node({"type": TYPE}, {"type": TYPE})],
)  # fmt: skip
def test_what_is_no_document_of_our_node_is_strange(text: bytes) -> None:
    with pytest.raises(UnexpectedReply):
        condition_in(text, "gpu-1", EPOCH)


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["kind", "metadata", "name", "status", "conditions", "type", "message"]), inner
        )
    ),
)


@given(JSON)
def test_any_answer_is_understood_or_strange(document: object) -> None:
    text = json.dumps(document).encode()
    with suppress(UnexpectedReply):
        condition_in(text, "gpu-1", EPOCH)
    assert message_of(text).isprintable()


def test_a_refusal_is_reported_in_one_short_line() -> None:
    assert (
        message_of(json.dumps({"kind": "Status", "message": "nodes is\nforbidden"}).encode())
        == "nodes is forbidden"
    )
    assert len(message_of(json.dumps({"message": "x" * 9000}).encode())) == 300
    assert [message_of(text) for text in (b"", b"{}", b'{"message": 3}', b"\xff")] == [""] * 4


def test_times_are_whole_seconds_of_utc() -> None:
    assert stamp(0.999) == "1970-01-01T00:00:00Z"
