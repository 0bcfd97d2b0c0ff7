"""Faults that come and go before their collector has confirmed them."""

import pytest

from tests.verdict.drawn import D, Drawn, F
from wirewatch.core.types import Absent, Why
from wirewatch.verdict.ledger import Stage

DOWN = "nvlink.link_down"


def comes_and_goes(node: Drawn, times: int, every: float = 30.0, rule: str = DOWN) -> None:
    for _ in range(times):
        node.find(rule, node.gpu(), D)
        node.look(every / 2)
        node.clear(rule, node.gpu())
        node.look(every / 2)


def test_a_link_that_flaps_is_failed_though_never_confirmed() -> None:
    node = Drawn()
    comes_and_goes(node, 4)
    assert node.verdict.health < D
    node.find(DOWN, node.gpu(), D)
    assert node.look().health is F
    assert node.stage(DOWN, node.gpu()) is Stage.ACTIVE
    (entry,) = node.ledger.entries.values()
    assert entry.evidence.endswith("came and went 5 times within 60 min")
    node.clear(DOWN, node.gpu())
    assert node.look(times=9).health is D
    assert node.stage(DOWN, node.gpu()) is Stage.PROBATION


def test_one_that_comes_now_and_then_does_not() -> None:
    node = Drawn()
    comes_and_goes(node, 20, every=1000.0)
    assert not node.ledger.entries
    assert not node.ledger.comings or all(len(times) < 5 for times in node.ledger.comings.values())


@pytest.mark.parametrize("rule", ["nvlink.crc_errors", "gpu.throttle", "pcie.replays"])
def test_what_is_never_failed_may_come_as_often_as_it_likes(rule: str) -> None:
    node = Drawn()
    comes_and_goes(node, 20, rule=rule)
    assert not node.ledger.entries


def test_one_that_stays_while_nobody_reads_has_come_once() -> None:
    node = Drawn()
    node.find(DOWN, node.gpu(), D)
    for _ in range(20):
        node.look()
        node.down = {"nvlink": Absent(Why.TIMEOUT)}
        node.look()
        node.down = {}
    assert {len(times) for times in node.ledger.comings.values()} == {1}


def test_a_window_of_its_own() -> None:
    node = Drawn(flaps=2, flap_window=60.0)
    comes_and_goes(node, 1, every=100.0)
    comes_and_goes(node, 1, every=100.0)
    assert not node.ledger.entries
    node.find(DOWN, node.gpu(), D)
    node.look(30.0)
    node.clear(DOWN, node.gpu())
    node.look(1.0)
    node.find(DOWN, node.gpu(), D)
    assert node.look(1.0).health is F
