"""The plan of a pair as text, and texts that are none."""

import json

import pytest

from tests.fleet.rounds.playedengine import WORK
from wirewatch_fleet.rounds.plan import PlanError, decode_pair_plan, encode_pair_plan, pair_plan

GOOD = pair_plan("a", "b", "10.0.0.1:28900", WORK)


def test_it_comes_back_as_it_was() -> None:
    assert decode_pair_plan(encode_pair_plan(GOOD)) == GOOD


@pytest.mark.parametrize(
    ("meet", "address"),
    [("n1.pods:9", ("n1.pods", 9)), ("[fd00::1]:28900", ("fd00::1", 28900))],
)
def test_where_they_meet(meet: str, address: tuple[str, int]) -> None:
    assert decode_pair_plan(encode_pair_plan(pair_plan("a", "b", meet, WORK))).address == address


@pytest.mark.parametrize(
    ("changes", "work", "said"),
    [
        ({"second": "a"}, {}, "a is both nodes"),
        ({"meet": "n1"}, {}, "not HOST:PORT"),
        ({"meet": "n1:0"}, {}, "not HOST:PORT"),
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
