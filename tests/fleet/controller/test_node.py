"""A node as the API server has it: whatever is missing or odd in it."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.fleet.controller.drawn import OTHERS, OURS, SKU, mark, node, raw
from tests.rows import each
from wirewatch_fleet.controller.node import FleetNode, node_of, obstacles

BARE = {"metadata": {"name": "g1", "resourceVersion": "7"}}


@pytest.mark.parametrize(
    "document",
    [
        BARE,
        {"metadata": {**BARE["metadata"], "annotations": None, "labels": None}, "spec": None, "status": None},
        {**BARE, "spec": {"taints": None}, "status": {"conditions": None}},
    ],
)
def test_a_node_that_has_next_to_nothing_is_one(document: dict[str, Any]) -> None:
    """As JSON of Go is: an empty list or map is null, or is left out."""
    found = node_of(document)
    assert (found.name, found.uid, found.labels, found.taints) == ("g1", "", {}, ())
    assert (found.ready, found.leaving, found.unschedulable) == (False, False, False)
    assert (found.condition, found.mark, found.foreign) == (None, None, False)


@each(
    "document",
    [
        {},
        {"metadata": {"name": "g1"}},
        {"metadata": None},
        {"metadata": "g1"},
        {**BARE, "spec": {"taints": 5}},
        {**BARE, "status": {"conditions": ["Ready"]}},
    ],
)
def test_what_is_no_node_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not a node"):
        node_of(document)


@each(
    "changed",
    [
        {"status": "Perhaps"},
        {"lastHeartbeatTime": None},
        {"lastHeartbeatTime": "yesterday"},
        {"lastTransitionTime": 5},
        {"status": ["False"]},
    ],
)
def test_a_condition_that_cannot_be_read_is_none(changed: Mapping[str, Any]) -> None:
    document = raw()
    document["status"]["conditions"][1].update(changed)
    assert node_of(document).condition is None
    del document["status"]["conditions"][1]["lastHeartbeatTime"]
    assert node_of(document).condition is None


def test_a_condition_may_lack_its_texts() -> None:
    document = raw()
    found = node_of(document).condition
    assert found is not None
    assert (found.reason, found.message) == ("NvlinkLinkDown", "nvlink.link_down GPU 2 link 7")
    document["status"]["conditions"][1].update(reason=None, message=None)
    found = node_of(document).condition
    assert found is not None
    assert (found.reason, found.message) == ("", "")


@each(
    ("text", "foreign"),
    [
        (None, False), (mark(), False), ("", True), ("{}", True), ("[]", True), ("[" * 100_000, True),
        ("5", True), (mark("drain"), True), (mark().replace("20", "xx"), True),
    ],
)  # fmt: skip
def test_a_mark_is_ours_as_we_write_it_and_foreign_otherwise(*, text: str | None, foreign: bool) -> None:
    found = node(marked=text)
    assert found.foreign is foreign
    assert (found.mark is None) is (foreign or text is None)


@each(
    ("one", "stands"),
    [
        (node(taints=[OURS]), False),
        (node(taints=[OURS], marked=mark()), True),
        (node(taints=[{**OURS, "value": "mine"}], marked=mark()), False),
        (node(cordoned=True, marked=mark()), False),
        (node(cordoned=True, marked=mark("cordon")), True),
        (node(taints=[OURS], marked=mark("cordon")), False),
        (node(marked=mark("nvsentinel")), True),
    ],
)
def test_a_measure_stands_while_the_node_has_what_its_mark_says(*, one: FleetNode, stands: bool) -> None:
    assert one.stands() is stands


LEAVING = {**raw(), "metadata": {**raw()["metadata"], "deletionTimestamp": "2027-01-15T08:00:00Z"}}


@each(
    ("one", "found"),
    [
        (node(), ()),
        (node(ready="Unknown"), ("NotReady",)),
        (node_of(LEAVING), ("being deleted",)),
        (node(cordoned=True), ("cordoned",)),
        (node(taints=[OTHERS]), ("taint example.org/rma:NoSchedule",)),
        (node(marked=mark("nvsentinel")), ("requested of NVSentinel",)),
        (node(marked=mark()), ()),
        (node(marked=mark("cordon")), ()),
    ],
)
def test_each_obstacle_alone_keeps_pods_off(one: FleetNode, found: tuple[str, ...]) -> None:
    assert obstacles(one, {OTHERS["key"]}) == found


def test_a_taint_that_only_reserves_a_node_keeps_it_in_use_and_ours_never_does() -> None:
    assert obstacles(node(taints=[SKU, OTHERS]), ()) == ()
    assert obstacles(node(taints=[OURS]), ()) == ("taint wirewatch.io/interconnect:NoSchedule",)
