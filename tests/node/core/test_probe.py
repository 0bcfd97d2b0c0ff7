"""A probe as JSON: what recordings and the history hold reads back as it was, nothing else reads at all.

And a document that does not fit its plan is named.
"""

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.node.core.strategies import JSON
from tests.node.probe.drawn import broken, drawn, gloo, on_pcie, on_switch, two_islands
from tests.rows import each
from wirewatch.core.hostlink import HostCopies, HostMoved, HostPath, Pcie
from wirewatch.core.probe import (
    MIB,
    Case,
    Document,
    Launch,
    Plan,
    Probed,
    WorkerError,
    wrong_in_document,
    wrong_in_probed,
)
from wirewatch.probe.restore import PROBED

TWO = on_switch(2)
GOOD = drawn(TWO)
ALL: Mapping[str, Probed] = {
    "two": GOOD,
    "eight": drawn(on_switch(8, settings={}), speed=1.2, forced=True, by="command"),
    "islands": drawn(two_islands(pins={"all_reduce": 4e10}), whole="SHM/direct/direct"),
    "islands on two sockets": drawn(two_islands(roots=2)),
    "PCIe": drawn(on_pcie(4), share={0: None}, link=(0, 3, 0.5)),
    "a product that is not known": drawn(on_switch(8, "NVIDIA R100")),
    "processors": gloo(),
    "errors": drawn(TWO, errors={1: {"crc": 4}}, wrong=7),
    "broken off": broken(GOOD, "timeout"),
}


@each("name", ALL)
def test_a_probe_is_read_back_as_it_was_written(name: str) -> None:
    assert PROBED.validate_json(PROBED.dump_json(ALL[name])) == ALL[name]
    # As a recording holds it: by way of Python's own JSON.
    assert PROBED.validate_json(json.dumps(json.loads(PROBED.dump_json(ALL[name])))) == ALL[name]


TEXTS = [PROBED.dump_json(ALL[name]).decode() for name in ("two", "processors", "broken off")]


@given(st.text() | st.binary() | JSON.map(json.dumps))
def test_garbage_is_no_probe(text: str | bytes) -> None:
    with pytest.raises(ValidationError):
        PROBED.validate_json(text)


@given(st.sampled_from(TEXTS), st.integers(0, 4000), st.text(max_size=3))
def test_a_text_that_was_cut_is_no_probe_and_one_that_was_changed_is_one_or_none(
    text: str, at: int, other: str
) -> None:
    cut = at % len(text)
    with pytest.raises(ValidationError):
        PROBED.validate_json(text[:cut])
    _one_or_none(text[:cut] + other + text[cut + len(other) :])


def _one_or_none(text: str) -> None:
    try:
        probed = PROBED.validate_json(text)
    except ValidationError:
        return
    assert isinstance(probed, Probed)
    assert PROBED.validate_json(PROBED.dump_json(probed)) == probed


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inside:
        yield from _places(one, (*at, key))


TREES = [json.loads(text) for text in TEXTS]
PLACES = [list(_places(tree))[1:] for tree in TREES]


@given(st.integers(0, 2), st.integers(0, 10**6), JSON)
def test_one_changed_value_makes_it_another_probe_or_none(which: int, place: int, value: Any) -> None:
    tree = copy.deepcopy(TREES[which])
    *above, last = PLACES[which][place % len(PLACES[which])]
    part = tree
    for key in above:
        part = part[key]
    part[last] = value
    _one_or_none(json.dumps(tree))


@each("key", ["schema", "outcome", "plan", "gpus", "conditions", "held_seconds", "forced"])
def test_what_lacks_a_part_or_has_one_more_is_no_probe(key: str) -> None:
    tree = json.loads(TEXTS[0])
    for wrong in ({k: v for k, v in tree.items() if k != key}, {**tree, f"{key}_2": 1}, {**tree, key: None}):
        with pytest.raises(ValidationError):
            PROBED.validate_json(json.dumps(wrong))


@each("number", ["NaN", "Infinity", "1e999", '"1.5"', "true"])
def test_seconds_are_finite_numbers(number: str) -> None:
    with pytest.raises(ValidationError):
        PROBED.validate_json(TEXTS[0].replace('"seconds":1.4955', f'"seconds":{number}'))


FOUR = drawn(on_switch(4))


def document() -> Document:
    assert FOUR.document is not None
    return FOUR.document


def first(**values: object) -> Document:
    """The document with another first collective."""
    told = document()
    return replace(told, collectives=(replace(told.collectives[0], **values), *told.collectives[1:]))  # type: ignore[arg-type]


def plan() -> Plan:
    return FOUR.plan


def test_a_whole_document_of_its_plan_is_sound() -> None:
    assert wrong_in_document(document(), plan()) == ""


@pytest.mark.parametrize(
    "values", [{"size_bytes": 12345}, {"op": "broadcast"}, {"group": 1}], ids=["size", "operation", "group"]
)
def test_a_collective_that_was_not_asked_for(values: dict[str, object]) -> None:
    assert wrong_in_document(first(**values), plan()) == "collectives that were not asked for"


def test_what_was_asked_for_and_is_missing_was_either_not_offered_or_stopped_by_an_error() -> None:
    """Before: a worker that measured nothing made a clean probe."""
    told, (gone, *_) = document(), document().collectives
    less = replace(told, collectives=tuple(one for one in told.collectives if one.op != gone.op))
    for one in (less, replace(told, collectives=told.collectives[1:]), replace(told, collectives=())):
        assert wrong_in_document(one, plan()) == "collectives that were asked for are missing"
    assert wrong_in_document(replace(less, not_offered=(gone.op,)), plan()) == ""
    assert wrong_in_document(replace(less, error=WorkerError("nccl", "stopped")), plan()) == ""


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_a_time_that_makes_an_endless_bandwidth(seconds: float) -> None:
    assert wrong_in_document(first(seconds=seconds), plan()) == "a time that is not above 0"


def test_two_cases_that_differ_in_their_launch_may_be_measured_alike_and_no_third() -> None:
    launches: tuple[Launch, ...] = ("graph", "stream")
    cases = tuple(Case(0, "broadcast", 8, launch, 5) for launch in launches)
    timed = replace(document().collectives[0], group=0, op="broadcast", size_bytes=8, launch="host")
    wanted = replace(plan(), cases=cases)
    both = replace(document(), collectives=(*document().collectives, timed, timed))
    assert wrong_in_document(both, wanted) == ""
    assert (
        wrong_in_document(replace(both, collectives=(*both.collectives, timed)), wanted) == "the same twice"
    )


def test_the_same_twice_another_engine_and_gpus_that_are_not_there() -> None:
    told = document()
    twice = replace(told, collectives=(told.collectives[0], *told.collectives))
    assert wrong_in_document(twice, plan()) == "the same twice"
    assert wrong_in_document(replace(told, engine="torch"), plan()) == "engine torch"
    copies = (replace(told.copies[0], destination=4), *told.copies[1:])
    assert wrong_in_document(replace(told, copies=copies), plan()) == "GPUs that are not there"


def with_hosts(*gpus: int, **values: Any) -> Document:
    """The document with host links of these GPUs."""
    one = HostCopies(0, MIB, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 1e-3, 20, near=None)
    return replace(document(), hosts=tuple(replace(one, gpu=gpu, **values) for gpu in gpus))


def test_host_links_are_of_every_gpu_once_or_there_is_a_reason() -> None:
    asked = replace(plan(), host_bytes=MIB)
    missing = "host links that were asked for are missing"
    assert wrong_in_document(with_hosts(0, 1, 2, 3), asked) == ""
    assert wrong_in_document(with_hosts(0, 1, 3), asked) == missing
    assert wrong_in_document(document(), asked) == missing
    assert wrong_in_document(replace(document(), no_hosts="no memory"), asked) == ""
    assert wrong_in_document(replace(document(), error=WorkerError("nccl", "stopped")), asked) == ""
    assert wrong_in_document(with_hosts(0, 1, 2, 2), asked) == "the same twice"
    assert wrong_in_document(with_hosts(0, 1, 2, 4), asked) == "GPUs that are not there"
    assert wrong_in_document(with_hosts(0, 1, 2, 3), plan()) == "host links of another size"
    for name in ("to_device", "to_device_low", "from_device", "from_device_low", "both", "all_to_device",
                 "all_from_device"):  # fmt: skip
        assert wrong_in_document(with_hosts(0, 1, 2, 3, **{name: 0.0}), asked) == "a time that is not above 0"


def test_a_recording_without_host_links_is_read_and_lacks_them() -> None:
    """Probes of before ask for none: their plan, document and ways to the host have no such members."""
    tree = json.loads(TEXTS[0])
    for part, names in ((tree, ("paths", "hosts")), (tree["plan"], ("host_bytes", "near"))):
        for name in names:
            del part[name]
    for name in ("hosts", "no_hosts"):
        del tree["document"][name]
    old = PROBED.validate_json(json.dumps(tree))
    assert (old.plan.host_bytes, old.paths, old.shown.hosts) == (0, (), ())
    assert wrong_in_probed(old) == ""


def test_ways_to_the_host_are_of_every_gpu_or_of_none() -> None:
    way = HostPath(Pcie(5, 16))
    assert wrong_in_probed(replace(FOUR, paths=(way,) * 4)) == ""
    assert wrong_in_probed(replace(FOUR, paths=(way,) * 3)) == "ways to the host of other GPUs"
    moved = HostMoved(4, None, None, Pcie(5, 16))
    assert wrong_in_probed(replace(FOUR, hosts=(moved,))) == "GPUs that are not there"
