"""By which names, and how often."""

import pytest

from wirewatch.server.guard import Hosts
from wirewatch.server.passwords import ADDRESSES, BURST, REFILL, Throttle, origin

REBOUND = (b"evil.example", b"evil.example:9410", b"localhost.evil.example", b"127.0.0.1.evil.example", b"")


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1"])
def test_a_loopback_listener_answers_to_its_own_names_alone(address: str) -> None:
    hosts = Hosts.of((), address)
    for good in (
        b"localhost",
        b"LOCALHOST:9410",
        b"localhost.:1",
        b"127.0.0.1:9410",
        b"[::1]:9410",
        b"[::1]",
    ):
        assert hosts.answers(good), good
    for bad in REBOUND:
        assert not hosts.answers(bad), bad
    assert hosts.answers(None)
    assert Hosts.of(("Node-17.Example",), address).answers(b"node-17.example:9410")


def test_another_listener_answers_to_any_name_until_names_are_given() -> None:
    assert all(Hosts.of((), "0.0.0.0").answers(name) for name in REBOUND)
    named = Hosts.of(("node-17",), "::")
    assert named.answers(b"node-17:9410")
    assert named.answers(b"10.0.0.1:9410")
    assert not any(named.answers(name) for name in REBOUND)


def test_an_address_has_some_tries_and_then_one_each_pause() -> None:
    now = [0.0]
    throttle = Throttle(lambda: now[0])
    assert [throttle.take("a") for _ in range(7)] == [True] * int(BURST) + [False] * 2
    assert throttle.take("b")
    now[0] += REFILL
    assert [throttle.take("a"), throttle.take("a")] == [True, False]
    throttle.give_back("a")
    assert throttle.take("a")
    now[0] += 1000 * REFILL
    assert [throttle.take("a") for _ in range(7)].count(True) == BURST


def test_it_remembers_so_many_addresses_and_no_more() -> None:
    throttle = Throttle(lambda: 0.0)
    while throttle.take("first"):
        pass
    for number in range(ADDRESSES - 1):
        throttle.take(str(number))
    assert not throttle.take("first")
    throttle.take("one more")
    assert throttle.take("first")


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ("10.0.0.1", "10.0.0.1"), ("::ffff:10.0.0.1", "10.0.0.1"), ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"), ("", ""),
    ],
)  # fmt: skip
def test_whoever_has_one_address_of_ipv6_has_its_whole_network(host: str, told: str) -> None:
    assert origin(host) == told
