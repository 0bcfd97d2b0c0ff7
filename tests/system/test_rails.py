"""NICs one by one over real wires: gloo between two network namespaces, three wires, and one slowed by tc."""

import pytest

from tests.node.collectors.drawn import Gpus, Jobs, Log, Machine, Pods, Probes, Programs
from tests.node.worker.workerprocess import torch_python
from tests.support import StillClock
from tests.system.rails import Watched, laid
from wirewatch.core.ports import Hardware
from wirewatch.core.types import Health
from wirewatch.hw.files import SystemSysfs
from wirewatch.probe.model import ProbePolicy
from wirewatch.probe.network import Unmeasured

pytestmark = pytest.mark.system

RATE, SLOW = 2e9, 1e9
"""Bits per second of a wire each way, and of the one that is slowed."""


def watched(names: tuple[str, ...], far: str) -> Watched:
    hardware = Hardware(
        Gpus(), SystemSysfs(), Machine(), Log(), Programs(), Pods(), Jobs(), StillClock(), Probes()
    )
    return Watched(hardware, names, far, python=torch_python())


def test_a_slow_rail_is_named_and_healthy_ones_are_not() -> None:
    with laid(3, RATE) as rails:
        node, slow = watched(rails.names, rails.far), rails.names[1]
        assert node.day() == (), node.memory.failed
        rates = node.rates()
        assert rates.keys() == {*rails.names}
        # tc counts the heads of frames too.
        assert all(0.75 * RATE / 8 < rate <= RATE / 8 for rate in rates.values()), rates
        assert all(one.crossed for _, one in node.memory.results.values())
        rails.hold(slow, SLOW)
        (found,) = node.day()
        assert (found.rule, found.health) == ("nics.slow", Health.DEGRADED)
        assert found.subject.levels() == {"device": slow}
        assert f"{slow} over sockets, between cpu:0 and cpu:1" in found.evidence
        assert "the median of 2 ports like it" in found.evidence
        assert node.rates()[slow] <= SLOW / 8
        rails.hold(slow, RATE)
        assert node.day() == ()


def test_sockets_between_addresses_of_one_node_cross_no_wire_and_prove_nothing() -> None:
    with laid(1, RATE) as rails:
        node = watched(rails.names, "")
        assert node.day() == ()
        ((count, found),) = node.memory.failed.values()
        assert count >= ProbePolicy().failures
        assert found == Unmeasured("the kernel turned its sockets around: no NIC carried it", ill=False)
        assert node.rates() == {}
