"""The names that a listener answers to."""

import pytest

from wirewatch.server.guard import Hosts

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
