"""Where the API server is, and who we are there."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import EPOCH
from wirewatch.config import ConfigError, load
from wirewatch.core.types import Unusable
from wirewatch.core.words import stamp
from wirewatch.kubernetes.apiserver import (
    ApiAccess,
    ApiEndpoint,
    UnexpectedReply,
    condition_in,
    credentials,
    endpoint,
    message_of,
    patch,
)
from wirewatch.kubernetes.condition import TYPE, Condition, ConditionStatus

POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "6443", "NODE_NAME": "gpu-017"}


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    ("told", "transition"),
    [("2026-11-21T01:00:00Z", EPOCH - 290), ("2027-01-01T00:00:00Z", EPOCH), ("yesterday", EPOCH),
     (None, EPOCH), ("2026-11-21T01:00:00", EPOCH)],
)  # fmt: skip
def test_a_time_that_is_none_or_yet_to_come_is_now(told: str | None, transition: float) -> None:
    found = condition_in(node({"type": TYPE, "status": "True", "lastTransitionTime": told}), "gpu-1", EPOCH)
    assert found == Condition(ConditionStatus.TRUE, "", "", transition)


def test_a_status_that_we_never_tell_is_none_of_ours() -> None:
    assert condition_in(node({"type": TYPE, "status": "Maybe"}), "gpu-1", EPOCH) is None


@pytest.mark.parametrize(
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
