"""What is asked last: Slurm's controller, the topology, the lock; and what their answers may not do."""

import pytest

from tests.collectors.drawn import RDMA
from tests.probes.idle import Idle
from wirewatch.core.collector import NodeState
from wirewatch.core.types import Absent, Expect, Health, Why
from wirewatch.documents.probes import probes_of
from wirewatch.probe.gate import Reason
from wirewatch.probe.request import Wish, ask


@pytest.mark.parametrize("why", [why for why in Why if why is not Why.MISSING])
def test_who_cannot_be_asked_may_have_given_gpus_away(why: Why) -> None:
    for port in ("jobs", "pods"):
        node = Idle(settle=0.0)
        getattr(node, port).told = Absent(why, "name one")
        node.poll(times=20, every=30.0)
        assert node.probes.ordered == []
        assert node.reason() == "blind"


def test_the_controller_is_not_asked_every_turn_while_a_job_holds_idle_gpus() -> None:
    node = Idle(settle=0.0)
    node.job("7", 0, 1)
    node.poll(times=120, every=30.0)
    assert node.reason() == "allocated"
    assert 10 <= node.jobs.asked <= 12
    node.job("7")
    node.poll(times=11, every=30.0)
    assert len(node.probes.ordered) == 1


def test_a_topology_that_cannot_be_read_is_no_fault_of_the_node() -> None:
    node = Idle(settle=0.0)
    node.files.texts[RDMA] = Absent(Why.DENIED, "permission denied")
    node.poll(times=20, every=30.0)
    assert node.probes.ordered == []
    assert node.reason() == "blind"
    assert node.component.health in {None, Health.OK}


def test_the_gate_is_not_called_open_before_anybody_has_looked() -> None:
    told = probes_of(NodeState({}), 0.0)
    assert (told.gate.open, told.gate.reason) == (False, "blind")
    node = Idle(settle=0.0)
    node.poll(times=2, every=30.0)
    assert probes_of(NodeState({"probe": node.component}), 0.0).gate.open


def test_an_owner_that_holds_nothing_is_given_nothing() -> None:
    node = Idle()
    for owner in ("slurm:42", "pod:no-such"):
        told = ask(node.hardware, node.made, node.rules_used, Expect(), Wish(owner=owner), None)
        assert told.refusal is not None
        assert told.refusal.reason is Reason.BLIND
        assert f"{owner} holds no GPU here" in told.refusal.detail
    assert node.probes.ordered == []
