"""Scenes of proof/fleet/notifications, how their messages are counted, and the page that is kept."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from proof.fleet.notifications.__main__ import in_service
from proof.fleet.notifications.nodes import DARK, WELL, Text
from proof.fleet.notifications.page import PAGE, counted, page
from proof.fleet.notifications.scenes import OVER, SCENES, Event, Scene
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
    every = range(1, scene.nodes + 1)
    assert {scene.fault_of(node, scene.over) for node in every} == {WELL}
    assert any(scene.fault_of(node, at) for node in every for at in range(0, int(scene.over), 10))


def test_racks_are_whole_within_leaves() -> None:
    leaf_of: dict[str, str] = {}
    for node in range(1, SCENE.nodes + 1):
        here = SCENE.place(node)
        assert leaf_of.setdefault(here["rack"], here["leaf"]) == here["leaf"]


def test_targets_without_labels_have_a_name_alone() -> None:
    bare = replace(SCENE, labelled=False)
    assert bare.place(3) == {"node": "gpu-03"}
    assert set(SCENE.place(3)) == {"node", "rack", "leaf"}


def test_an_agent_says_when_it_started() -> None:
    lines = Text(WELL).now(17.5, 0.0).decode().splitlines()
    assert lines[-1] == "process_start_time_seconds 17.500"
    assert len(lines) > 50


def test_faults_of_a_day_are_farther_apart_than_what_joins() -> None:
    (day,) = [one for one in SCENES if one.cluster == "day"]
    begins = [event.at for event in day.events]
    assert min(after - before for before, after in pairwise(begins)) > squeezed(300.0)
    assert len({node for event in day.events for node in event.nodes}) == day.pages


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
