"""Reasons that Kubernetes takes, and messages that tell rule, part and action in a kilobyte."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.kubernetes.views import FAILED, LINK, OK, UNKNOWN, judged
from tests.support import EPOCH
from wirewatch.core.types import Finding, Health, Subject
from wirewatch.kubernetes.condition import LIMIT, reason_of, shortened, view_of
from wirewatch.verdict.node import Judged

REASON = re.compile(r"[A-Z][A-Za-z0-9]{0,127}")
RUNBOOK = (Path(__file__).parents[3] / "docs" / "runbook.md").read_text("utf-8")
RULES = re.findall(r"`([a-z0-9]+\.[a-z0-9_]+)`", "\n".join(re.findall(r"^###? .*$", RUNBOOK, re.MULTILINE)))


def reason_and_message(node: Judged, **how: bool) -> tuple[str, str]:
    view = view_of(node, EPOCH, 0.0, turning=how.get("turning", True))
    return view.reason, view.message


def test_a_failed_node_names_rule_gpu_link_numbers_and_action() -> None:
    reason, message = reason_and_message(FAILED)
    assert reason == "NvlinkLinkDown"
    assert message == (
        "nvlink.link_down GPU 2 link 7 (GPU-00000000-0000-4000-8000-000000000002): "
        "inactive; 17 of 18 links up. Action: drain; reset the GPU, then reseat it."
    )


def test_others_are_counted() -> None:
    assert reason_and_message(judged(Health.FAILED, LINK, LINK, LINK))[1].endswith(
        "2 more: `wirewatch findings list`."
    )


def test_what_is_well_and_what_is_worse() -> None:
    assert reason_and_message(OK)[0] == "Healthy"
    slow = Finding("pcie.width", Health.DEGRADED, Subject("1"), "8 of 16 lanes", "reseat it")
    reason, message = reason_and_message(judged(Health.DEGRADED, slow))
    assert reason == "Degraded"
    assert message.startswith("the next job may start. pcie.width GPU 1: 8 of 16 lanes.")
    assert reason_and_message(UNKNOWN)[0] == "NvlinkBlind"
    assert reason_and_message(judged(Health.UNKNOWN))[0] == "NothingToWatch"


def test_a_release_is_reported_unless_something_is_failed() -> None:
    blind = Finding("gpu.blind", Health.UNKNOWN, Subject(), "released", "none")
    reason, message = reason_and_message(judged(Health.UNKNOWN, blind, released_until=EPOCH + 600))
    assert reason == "Released"
    assert "wirewatch release" in message
    assert (
        reason_and_message(judged(Health.FAILED, LINK, blind, released_until=EPOCH + 600))[0]
        == "NvlinkLinkDown"
    )


def test_a_daemon_that_does_not_turn_vouches_for_nothing() -> None:
    assert reason_and_message(OK, turning=False)[0] == "AgentStuck"
    assert view_of(OK, EPOCH, 0.0, turning=False).health is Health.UNKNOWN


def test_a_recording_says_so() -> None:
    view = view_of(OK, EPOCH, 0.0, turning=True, recording="demo-dgx-h200")
    assert view.message.startswith("a recording (demo-dgx-h200), not this node: ")


def test_every_rule_of_the_runbook_has_a_reason_of_its_own() -> None:
    assert len(RULES) > 60
    reasons = [reason_of(rule) for rule in sorted(set(RULES))]
    assert all(REASON.fullmatch(reason) for reason in reasons), reasons
    assert len(set(reasons)) == len(reasons)


@pytest.mark.parametrize(
    ("rule", "reason"), [("xid.79", "Xid79"), ("c2c.link_down", "C2cLinkDown"), ("probe.busbw", "ProbeBusbw")]
)
def test_some_reasons(rule: str, reason: str) -> None:
    assert reason_of(rule) == reason


@given(st.text(max_size=3000), st.text(max_size=3000), st.text(max_size=200), st.integers(0, 9))
def test_a_message_is_printable_and_at_most_a_kilobyte_whatever_is_in_it(
    evidence: str, action: str, device: str, others: int
) -> None:
    finding = Finding("infiniband.port_down", Health.FAILED, Subject(device=device), evidence, action)
    _, message = reason_and_message(judged(Health.FAILED, finding, *[LINK] * others))
    assert len(message.encode()) <= LIMIT
    assert message.isprintable()
    assert message.startswith("infiniband.port_down ")
    assert "Action: " in message
    assert not others or message.endswith(f" {others} more: `wirewatch findings list`.")


def test_cut_text_says_so_and_is_never_half_a_letter() -> None:
    assert shortened("ü" * 20, 20) == "ü" * 8 + "..."
    assert shortened("short\nlines", 20) == "short lines"
    assert (shortened("x" * 20, 20), shortened("x" * 21, 20)) == ("x" * 20, "x" * 17 + "...")
    assert len(shortened("x" * 2000)) == 1024


def test_an_evidence_has_the_room_that_is_left_and_never_less_than_sixty_bytes() -> None:
    def message(evidence: str, device: str) -> str:
        found = Finding("infiniband.port_down", Health.FAILED, Subject(device=device), evidence, "act")
        return reason_and_message(judged(Health.FAILED, found))[1]

    assert "e" * 500 in message("e" * 500, "mlx5_0")
    assert f": {'e' * 57}.... Action: act." in message("e" * 500, "d" * 800)
