"""The plan of a pair as text, and texts that are none."""

import json

import pytest

from tests.fleet.rounds.playedengine import WORK
from tests.rows import each
from wirewatch_fleet.rounds.plan import (
    PairWork,
    PlanError,
    decode_pair_plan,
    encode_pair_plan,
    pair_plan,
    wrong_work,
)

GOOD = pair_plan("a", "b", "10.0.0.1:28900", WORK)


def test_a_text_that_is_no_json_is_named_as_a_whole() -> None:
    with pytest.raises(PlanError, match="the text: Invalid JSON"):
        decode_pair_plan("x")


@each(
    ("work", "said"),
    [
        (PairWork(), ""),
        (PairWork(size_bytes=16 << 30), ""),
        (PairWork(size_bytes=(16 << 30) + 16), "16 GiB are more than the 16 GiB"),
        (PairWork(seconds=3600.0), ""),
        (PairWork(seconds=3601.0), "3601 s are more than the 3600 s"),
        (PairWork(seconds=10.0, patience=10.0), "cannot end in 10 s"),
        (PairWork(environment={"A": "1", "B-": "1"}), "'B-' is not the name of a variable"),
    ],
)
def test_what_a_pair_cannot_do_is_said(work: PairWork, said: str) -> None:
    assert said in wrong_work(work)
    assert bool(wrong_work(work)) is bool(said)


def test_processors_hold_no_gpus() -> None:
    assert (PairWork(ranks=4).gpus, PairWork("gloo", ranks=4).gpus) == (4, 0)


def test_it_comes_back_as_it_was() -> None:
    assert decode_pair_plan(encode_pair_plan(GOOD)) == GOOD


@pytest.mark.parametrize(
    ("meet", "address"),
    [("n1.pods:9", ("n1.pods", 9)), ("[fd00::1]:28900", ("fd00::1", 28900))],
)
def test_where_they_meet(meet: str, address: tuple[str, int]) -> None:
    assert decode_pair_plan(encode_pair_plan(pair_plan("a", "b", meet, WORK))).address == address


@each(
    ("changes", "work", "said"),
    [
        ({"second": "a"}, {}, "a is both nodes"),
        ({"meet": "n1"}, {}, "not HOST:PORT"),
        ({"meet": "n1:0"}, {}, "not HOST:PORT"),
        ({"meet": "n1:65536"}, {}, "not HOST:PORT"),
        ({"meet": "fd00::1:5"}, {}, "not HOST:PORT"),
        ({"schema": "wirewatch.fleet-pair-plan/2"}, {}, "schema"),
        ({"more": 1}, {}, "more"),
        ({}, {"engine": "mpi"}, "work.engine"),
        ({}, {"ranks": 0}, "work.ranks"),
        ({}, {"size_bytes": 1001}, "not a multiple of 16"),
        ({}, {"patience": 20.0}, "cannot end in 20 s"),
        ({}, {"environment": {"A B": "1"}}, "not the name of a variable"),
    ],
)
def test_what_cannot_be_followed(changes: dict[str, object], work: dict[str, object], said: str) -> None:
    members = json.loads(encode_pair_plan(GOOD))
    text = json.dumps(members | changes | {"work": members["work"] | work})
    with pytest.raises(PlanError, match=said):
        decode_pair_plan(text)
