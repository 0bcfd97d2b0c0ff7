"""A probe on somebody's word that must be over by a deadline."""

from dataclasses import replace

from tests.probes.idle import Idle
from wirewatch.core.ports import Order
from wirewatch.core.probe import Probed
from wirewatch.core.types import Expect, Health
from wirewatch.probe.model import ProbeOptions, ProbePolicy
from wirewatch.probe.request import Asked, Wish, ask

LONG = 8.0


def asked(node: Idle, seconds: float) -> Asked:
    """With so many seconds until the deadline."""
    end = node.hardware.clock.mono() + seconds
    return ask(node.hardware, ProbeOptions(), ProbePolicy(confirm=3), Expect(), Wish(), None, end)


def lasting(node: Idle) -> None:
    """Each probe takes LONG seconds."""
    inner = node.probes.result
    assert inner is not None

    def run(order: Order) -> Probed:
        end = node.clock.seconds + LONG
        probed = inner(order)
        node.clock.seconds = end
        return replace(probed, seconds=LONG)

    node.probes.result = run


def test_the_worker_is_killed_by_then() -> None:
    node = Idle(4)
    asked(node, 25.0)
    asked(node, 1000.0)
    assert [order.deadline for order in node.probes.ordered] == [25.0, 60.0]


def test_what_is_found_is_looked_at_again_while_there_is_time() -> None:
    node = Idle(4)
    node.knobs = {"speed": 0.5}
    lasting(node)
    told = asked(node, 2.5 * LONG)
    assert [order.deadline for order in node.probes.ordered] == [2.5 * LONG, 1.5 * LONG]
    assert told.health is Health.DEGRADED
    assert [f.evidence.endswith("(2 probes in a row)") for f in told.findings] == [True]


def test_why_there_is_no_result_is_told() -> None:
    node = Idle(1)
    assert asked(node, 20.0).why == "1 GPU"
    node = Idle(4)
    assert asked(node, 20.0).why == ""
    node.outcome = "timeout"
    told = asked(node, 20.0)
    assert told.probed is not None
    assert told.why == told.probed.why != ""
