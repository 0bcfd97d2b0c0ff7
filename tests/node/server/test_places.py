"""Which connection gives way to which: the list of connections alone, without sockets."""

import resource
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from wirewatch.server.connections import (
    FEWEST,
    Admission,
    Bounds,
    Connections,
    Phase,
    scaled,
    within_descriptors,
)
from wirewatch.server.reload import WebCounts

SMALL = Bounds(connections=4, of_one=3, reserved=2, requests=2)


@dataclass
class House:
    """Connections whose clock is counted up by each call, with those that were ended for others."""

    bounds: Bounds = SMALL
    ended: list[str] = field(default_factory=list)
    time: float = 0.0

    def __post_init__(self) -> None:
        self.list = Connections(WebCounts(), self.bounds, self._mono)

    def _mono(self) -> float:
        self.time += 1
        return self.time

    def admit(self, name: str, *, own: bool = False) -> Admission | None:
        place = Admission(name, own, lambda: self.ended.append(name))
        return place if self.list.admit(place) else None

    def working(self, name: str, path: str = "/metrics") -> Admission:
        place = self.admit(name)
        assert place is not None
        assert self.list.begin(place, path)
        self.list.enter(place, Phase.WORKING)
        return place


def test_users_that_hold_all_places_leave_those_of_root() -> None:
    house = House()
    for _ in range(2):
        house.working("user 1000")
        house.working("user 1001", "/livez")
    assert house.admit("user 1002") is None
    assert [bool(house.admit("user 0", own=True)) for _ in range(2)] == [True, True]
    assert house.ended == []


def test_what_works_is_never_ended_and_what_is_slow_to_read_after_what_waits() -> None:
    house = House()
    reading = house.working("a")
    house.list.enter(reading, Phase.TRANSFER)
    house.admit("a")
    house.working("a", "/livez")
    house.admit("b")
    assert house.admit("c") is not None
    assert house.ended == ["a"]
    assert house.admit("d") is not None
    assert house.ended == ["a", "a"]
    assert house.list.begin(reading, "/") is True


def test_a_request_takes_the_place_of_one_whose_answer_is_not_read() -> None:
    house = House()
    for name in ("a", "a"):
        house.list.enter(house.working(name), Phase.TRANSFER)
    newcomer = house.admit("b")
    assert newcomer is not None
    assert house.list.begin(newcomer, "/metrics")
    assert house.ended == ["a"]


clients = st.sampled_from(("a", "b", "c", "d", "e"))
steps = st.lists(
    st.tuples(st.sampled_from(("admit", "begin", "transfer", "wait", "release")), clients, st.booleans()),
    max_size=60,
)


@settings(max_examples=examples(200))
@given(steps)
def test_bounds_hold_and_a_client_without_a_connection_gets_one_where_any_may_give_way(
    moves: list[tuple[str, str, bool]],
) -> None:
    house = House()
    for step, letter, own in moves:
        name = f"root {letter}" if own else letter
        group = [p for p in house.list.open if p.own == own]
        mine = [p for p in group if p.client == name]
        if step == "admit":
            if house.admit(name, own=own) is None and not mine:
                assert all(p.phase is Phase.WORKING for p in group)
        elif mine and step == "begin":
            if house.list.begin(mine[0], "/metrics"):
                house.list.enter(mine[0], Phase.WORKING)
        elif mine and step == "transfer" and mine[0].phase is Phase.WORKING:
            house.list.enter(mine[0], Phase.TRANSFER)
        elif mine and step == "wait":
            house.list.enter(mine[0], Phase.WAITING)
        elif mine and step == "release":
            del house.list.open[mine[0]]
        places = list(house.list.open)
        by_group = Counter(p.own for p in places)
        assert by_group[False] <= SMALL.connections
        assert by_group[True] <= SMALL.reserved
        assert sum(p.counted for p in places) <= SMALL.requests


@pytest.mark.parametrize("files", [32, 64, 128, 256, 512, 1024, 4096])
def test_few_descriptors_mean_few_connections(files: int) -> None:
    """The port and the two local sockets together leave most of them to the agent where there are few."""
    bounds = scaled(Bounds(), files)
    assert 3 * (bounds.connections + bounds.reserved) <= max(0.8 * files, 3 * (FEWEST + 2))
    assert bounds.of_one <= bounds.connections
    assert 1 <= bounds.requests <= bounds.connections


def test_a_limit_of_this_process_is_raised_where_it_may_be() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        assert within_descriptors(Bounds()) == Bounds()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
