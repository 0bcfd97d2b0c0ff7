"""The fabric clique of a GPU, as the topology has it."""

from typing import Any

import pytest

from tests.support import Node
from wirewatch.core.topology import Topology

CLUSTER = "b1f300000000000000000000000000aa"


def told(**fabric: Any) -> set[str | None]:
    node = Node("h200x4-idle")
    answer = {"cliqueId": 3, "clusterUuid": CLUSTER, "state": 3, "status": 0, "healthMask": 0} | fabric
    node.change("gpu*/GpuFabricInfoV()", "set", answer)
    node.poll("topology")
    graph = node.state.components["topology"].facts
    assert isinstance(graph, Topology)
    return {gpu.clique for gpu in graph.gpus}


def test_a_board_whose_fabric_ends_at_the_node_has_none() -> None:
    assert told(clusterUuid="0" * 32) == {""}
    assert told(state=0) == {""}


def test_in_a_rack_it_is_that_of_the_cluster() -> None:
    assert told() == {f"{CLUSTER}/3"}


@pytest.mark.parametrize("state", [1, 2])
def test_while_it_registers_it_is_not_known(state: int) -> None:
    assert told(state=state) == {None}


@pytest.mark.parametrize(("code", "clique"), [(3, ""), (13, ""), (999, None), (15, None)])
def test_what_cannot_be_asked_is_none_and_what_cannot_be_read_is_not_known(
    code: int, clique: str | None
) -> None:
    node = Node("h200x4-idle")
    node.change("gpu*/GpuFabricInfoV()", "code", code)
    node.poll("topology")
    graph = node.state.components["topology"].facts
    assert isinstance(graph, Topology)
    assert {gpu.clique for gpu in graph.gpus} == {clique}
