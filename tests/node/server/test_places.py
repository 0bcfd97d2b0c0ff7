"""Which connection gives way to which: the list of connections alone, without sockets."""

import resource
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.rows import each
from wirewatch.server.connections import (
    ENOUGH,
    FEWEST,
    LATELY,
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
    step: float = 1.0

    def __post_init__(self) -> None:
        self.list = Connections(WebCounts(), self.bounds, self._mono)

    def _mono(self) -> float:
        self.time += self.step
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


def test_a_client_gives_way_to_itself_where_others_have_as_much_as_it() -> None:
    house = House()
    places = [house.admit(name) for name in "aabb"]
    assert house.admit("b") is not None
    assert [one in house.list.open for one in places] == [True, True, False, True]


def test_what_waits_gives_way_before_what_is_slow_to_read_although_that_has_been_here_longer() -> None:
    house = House()
    reading = house.working("a")
    house.list.enter(reading, Phase.TRANSFER)
    for name in "aabc":
        house.admit(name)
    assert house.ended == ["a"]
    assert reading in house.list.open


def test_a_client_that_comes_seldom_keeps_its_place_among_those_that_knock_without_end() -> None:
    house = House(Bounds(connections=8), step=0.01)
    knocking = [f"{number}" for number in range(20)]
    for name in knocking:
        house.admit(name)
    seldom = house.admit("scraper")
    for name in knocking * 3:
        house.admit(name)
    assert seldom in house.list.open


@pytest.mark.parametrize(("passed", "goes"), [(0.0, "a"), (LATELY, "b")])
def test_arrivals_of_long_ago_count_half(passed: float, goes: str) -> None:
    house = House(Bounds(connections=2), step=0.01)
    for name in "aaa":
        house.admit(name)
    house.list.open.clear()
    house.time += passed
    for name in "bb":
        house.admit(name)
    house.list.open.clear()
    house.admit("b")
    house.admit("a")
    house.ended.clear()
    house.admit("c")
    assert house.ended == [goes]


def test_the_time_of_a_connection_that_waits_begins_with_its_wait_and_not_again() -> None:
    house = House()
    first, second, third = (house.working("a", "/livez") for _ in range(3))
    for one in (second, first, third):
        house.list.enter(one, Phase.WAITING)
    house.list.enter(second, Phase.WAITING)
    assert house.admit("a") is not None
    assert [one in house.list.open for one in (first, second, third)] == [True, False, True]


def test_requests_of_the_machine_itself_are_not_counted() -> None:
    house = House()
    for name in ("user 0", "user 0"):
        own = house.admit(name, own=True)
        assert own is not None
        assert house.list.begin(own, "/metrics")
        house.list.enter(own, Phase.WORKING)
    house.working("a")
    house.working("b")


def test_a_request_is_not_counted_beside_the_one_before_it_on_its_connection() -> None:
    house = House(Bounds(connections=4, requests=1))
    assert house.list.begin(house.working("a"), "/metrics")


def test_a_refusal_is_counted_and_names_the_client_that_goes(caplog: pytest.LogCaptureFixture) -> None:
    house = House(Bounds(connections=2, of_one=2))
    for name in "aab":
        house.admit(name)
    assert house.list.counts.report.refused["connections"] == 1
    assert "refused a: " in caplog.text


@pytest.mark.parametrize(("count", "crowded"), [(3, False), (4, True)])
def test_connections_are_crowded_above_three_quarters(count: int, crowded: bool) -> None:  # noqa: FBT001
    house = House(Bounds(connections=4))
    for name in range(count):
        house.admit(str(name))
    assert house.list.crowded() is crowded


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
        assert all(held <= SMALL.of_one for held in Counter(p.client for p in places).values())


@each("files", [32, 64, 128, 256, 512, 1024, 4096])
def test_few_descriptors_mean_few_connections(files: int) -> None:
    """The port and the two local sockets together leave most of them to the agent where there are few."""
    bounds = scaled(Bounds(), files)
    assert 3 * (bounds.connections + bounds.reserved) <= max(0.8 * files, 3 * (FEWEST + 2))
    assert bounds.of_one <= bounds.connections
    assert 1 <= bounds.requests <= bounds.connections


@pytest.mark.parametrize(
    ("files", "connections", "requests", "reserved"),
    [(32, 8, 4, 2), (256, 16, 8, 4), (512, 64, 32, 16), (1024, 128, 48, 16)],
)
def test_the_bounds_of_a_number_of_descriptors(
    files: int, connections: int, requests: int, reserved: int
) -> None:
    bounds = scaled(Bounds(), files)
    assert (bounds.connections, bounds.requests, bounds.reserved) == (connections, requests, reserved)
    assert bounds.of_one == min(16, connections)


def test_a_limit_of_this_process_is_raised_where_it_may_be() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        for before in (256, min(5000, hard)):
            resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))
            assert within_descriptors(Bounds()) == Bounds()
            assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == max(before, min(ENOUGH, hard))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
