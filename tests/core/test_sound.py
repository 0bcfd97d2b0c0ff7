"""What cannot be of a plan is named before anybody reckons with it."""

from dataclasses import replace

import pytest

from tests.probe.drawn import drawn, on_switch
from wirewatch.core.probe import Document, Plan, wrong_in_document

PROBED = drawn(on_switch(4))


def document() -> Document:
    assert PROBED.document is not None
    return PROBED.document


def first(**values: object) -> Document:
    """The document with another first collective."""
    told = document()
    return replace(told, collectives=(replace(told.collectives[0], **values), *told.collectives[1:]))  # type: ignore[arg-type]


def plan() -> Plan:
    return PROBED.plan


def test_a_whole_document_of_its_plan_is_sound() -> None:
    assert wrong_in_document(document(), plan()) == ""


@pytest.mark.parametrize(
    "values", [{"size_bytes": 12345}, {"op": "broadcast"}, {"group": 1}], ids=["size", "operation", "group"]
)
def test_a_collective_that_was_not_asked_for(values: dict[str, object]) -> None:
    assert wrong_in_document(first(**values), plan()) == "collectives that were not asked for"


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_a_time_that_makes_an_endless_bandwidth(seconds: float) -> None:
    assert wrong_in_document(first(seconds=seconds), plan()) == "a time that is not above 0"


def test_the_same_twice_another_engine_and_gpus_that_are_not_there() -> None:
    told = document()
    twice = replace(told, collectives=(told.collectives[0], *told.collectives))
    assert wrong_in_document(twice, plan()) == "the same twice"
    assert wrong_in_document(replace(told, engine="torch"), plan()) == "engine torch"
    copies = (replace(told.copies[0], destination=4), *told.copies[1:])
    assert wrong_in_document(replace(told, copies=copies), plan()) == "GPUs that are not there"
