"""What is sent to the API server, and what is made of its answers."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import EPOCH
from wirewatch.kubernetes.api import Strange, condition_in, patch, rfc3339, said
from wirewatch.kubernetes.condition import TYPE, Condition, Status

MINE = Condition(Status.FALSE, "NvlinkLinkDown", "words", EPOCH - 100)


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


@pytest.mark.parametrize(
    ("told", "transition"),
    [("2026-11-21T01:00:00Z", EPOCH - 290), ("2027-01-01T00:00:00Z", EPOCH), ("yesterday", EPOCH),
     (None, EPOCH), ("2026-11-21T01:00:00", EPOCH)],
)  # fmt: skip
def test_a_time_that_is_none_or_yet_to_come_is_now(told: str | None, transition: float) -> None:
    found = condition_in(node({"type": TYPE, "status": "True", "lastTransitionTime": told}), "gpu-1", EPOCH)
    assert found == Condition(Status.TRUE, "", "", transition)


def test_a_status_that_we_never_tell_is_none_of_ours() -> None:
    assert condition_in(node({"type": TYPE, "status": "Maybe"}), "gpu-1", EPOCH) is None


@pytest.mark.parametrize(
    "text",
    [b"", b"<html>", b"[]", b"null", b"{}", node(kind="Pod"), node(metadata={"name": "gpu-2"}),
     node(status=None), node("Ready"), b"[" * 100_000, node({"type": TYPE}, {"type": TYPE})],
)  # fmt: skip
def test_what_is_no_document_of_our_node_is_strange(text: bytes) -> None:
    with pytest.raises(Strange):
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
    with suppress(Strange):
        condition_in(text, "gpu-1", EPOCH)
    assert said(text).isprintable()


def test_a_refusal_is_told_in_one_short_line() -> None:
    assert (
        said(json.dumps({"kind": "Status", "message": "nodes is\nforbidden"}).encode())
        == "nodes is forbidden"
    )
    assert len(said(json.dumps({"message": "x" * 9000}).encode())) == 300
    assert [said(text) for text in (b"", b"{}", b'{"message": 3}', b"\xff")] == [""] * 4


def test_times_are_whole_seconds_of_utc() -> None:
    assert rfc3339(0.999) == "1970-01-01T00:00:00Z"
