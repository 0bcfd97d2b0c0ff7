"""Scenes of proof/fleet/notifications, how their messages are counted, and the page that is kept."""

import json

import pytest

from proof.fleet.notifications.__main__ import in_service
from proof.fleet.notifications.nodes import DARK, WELL
from proof.fleet.notifications.page import PAGE, counted, page
from proof.fleet.notifications.scenes import NODES, OVER, SCENES, Event, Scene, place
from proof.rehearsal.receiver import Notification, notification
from proof.rehearsal.squeeze import squeezed
from tests.rows import each

SCENE = Scene("rack", "a rack", (Event(DARK, (1, 2), 60.0, spread=40.0, lasts=100.0),), 1, 1)


def call(at: float, receiver: str, cluster: str, *, firing: bool) -> Notification:
    alert = {
        "status": "firing" if firing else "resolved",
        "labels": {"alertname": "A"},
        "annotations": {"summary": "a rack"},
    }
    told = {"version": "4", "receiver": receiver, "groupLabels": {"cluster": cluster}, "alerts": [alert]}
    return notification(json.dumps(told).encode(), at)


@each(
    ("node", "seconds", "fault"),
    [
        (1, 59, WELL),
        (1, 60, DARK),
        (1, 160, WELL),
        (2, 79, WELL),
        (2, 80, DARK),
        (2, 179, DARK),
        (3, 90, WELL),
    ],
)
def test_a_fault_comes_node_by_node_and_ends(node: int, seconds: float, fault: str) -> None:
    assert SCENE.fault_of(node, seconds) == fault


@pytest.mark.parametrize("scene", SCENES, ids=lambda one: one.cluster)
def test_every_scene_is_over_in_the_end(scene: Scene) -> None:
    assert {scene.fault_of(node, OVER) for node in range(1, NODES + 1)} == {WELL}
    assert any(scene.fault_of(node, at) for node in range(1, NODES + 1) for at in range(0, int(OVER), 60))


def test_racks_are_whole_within_leaves() -> None:
    leaf_of: dict[str, str] = {}
    for node in range(1, NODES + 1):
        here = place(node)
        assert leaf_of.setdefault(here["rack"], here["leaf"]) == here["leaf"]


@pytest.mark.parametrize("seconds", [10.0, 900.0, 1800.0, OVER])
def test_the_clock_goes_both_ways(seconds: float) -> None:
    assert in_service(squeezed(seconds)) == pytest.approx(seconds, abs=1.0)


def test_messages_count_in_which_something_fires() -> None:
    calls = [
        call(5, "page", "rack", firing=True), call(6, "ticket", "rack", firing=True),
        call(7, "page", "other", firing=True), call(8, "page", "rack", firing=False),
    ]  # fmt: skip
    got = counted(SCENE, 9, calls, start=1)
    assert (got.pages, got.tickets, got.after, got.says) == (1, 1, 4, "a rack")
    assert list(got.troubles()) == []
    assert list(counted(SCENE, 9, calls[1:4], 1).troubles()) == ["rack: 0 pages, not 1"]
    assert "| a rack | 9 | **1** | 1 | 4 s | a rack |" in page([got], 3.0)


def test_the_page_that_is_kept_is_of_these_scenes() -> None:
    kept = PAGE.read_text("utf-8")
    for scene in SCENES:
        (line,) = [one for one in kept.splitlines() if one.startswith(f"| {scene.about} |")]
        _, _, _, pages, tickets, *_ = (cell.strip() for cell in line.split("|"))
        assert (pages, tickets) == (f"**{scene.pages}**", str(scene.tickets))
