"""Real machines at two moments, and a small one against larger ones."""

from functools import cache

import pytest

from tests.support import Node
from wirewatch.core.topology import Topology
from wirewatch.core.types import Absent, Ok
from wirewatch.verdict.drift.canonical import graph_of
from wirewatch.verdict.drift.diff import diff
from wirewatch.verdict.drift.wiring import Graph, fingerprint, identity, unknown_text


@cache
def recorded(name: str) -> Graph:
    node = Node(name)
    node.poll("topology")
    outcome = node.state.components["topology"].outcome
    assert isinstance(outcome, Ok)
    assert isinstance(outcome.value, Topology)
    return graph_of(outcome.value)


def sentences(before: str, after: str) -> list[str]:
    return [change.text for change in diff(recorded(before), recorded(after))]


@pytest.mark.parametrize("machine", ["h200x1", "h200x4"])
def test_a_machine_does_not_drift_under_load(machine: str) -> None:
    idle, loaded = recorded(f"{machine}-idle"), recorded(f"{machine}-traffic")
    assert sentences(f"{machine}-idle", f"{machine}-traffic") == []
    assert idle == loaded
    assert fingerprint(idle) == fingerprint(loaded)
    assert identity(idle) == identity(loaded)


def test_one_gpu_against_eight() -> None:
    assert sentences("h200x1-idle", "h200x8") == [
        "GPU 0 (...0000) is new: NVIDIA H200 at 0000:00:06.0",
        "GPU 1 (...0001) is new: NVIDIA H200 at 0000:00:07.0",
        "GPU 3 (...0003) is new: NVIDIA H200 at 0000:00:09.0",
        "GPU 4 (...0004) is new: NVIDIA H200 at 0000:00:0a.0",
        "GPU 5 (...0005) is new: NVIDIA H200 at 0000:00:0b.0",
        "GPU 6 (...0006) is new: NVIDIA H200 at 0000:00:0c.0",
        "GPU 7 (...0007) is new: NVIDIA H200 at 0000:00:0d.0",
        "GPU 2 (...0002): NVLink 0 -> 18 links up, links 0-17 came up",
    ]


def test_one_gpu_against_a_node_with_nics() -> None:
    told = sentences("h200x1-idle", "demo-dgx-h200")
    assert told[:2] == [
        "GPU 0 (...0000) is new: NVIDIA H200 at 0000:1b:00.0",
        "GPU 1 (...0001) is new: NVIDIA H200 at 0000:43:00.0",
    ]
    assert told[7:9] == [
        "GPU 2 (...0002): NVLink 0 -> 18 links up, links 0-17 came up",
        "mlx5_0 is new: MT4129 at 0000:18:00.0, GUID 0000:0000:0000:0010",
    ]
    assert told[17:] == [
        "mlx5_9 is new: MT4129 at 0000:aa:00.0, GUID 0000:0000:0000:0019",
        "GPU 2 (...0002) moved from pci0000:00 to pci0000:4c > 0000:4c:01.0 > 0000:4d:00.0 > 0000:4e:03.0",
        "node: 1 -> 2 NUMA nodes",
        "kernel 6.18.44 -> 5.15.0-1074-nvidia",
    ]


def test_the_larger_machine_has_lost_all_but_one() -> None:
    told = sentences("h200x8", "h200x1-idle")
    assert told[0] == "GPU 0 (...0000) is gone: NVIDIA H200 at 0000:00:06.0"
    assert told[7:] == ["GPU 0 (...0002): NVLink 18 -> 0 links up, links 0-17 down"]


def test_machines_of_different_size_have_different_names() -> None:
    names = [fingerprint(recorded(name)) for name in ("h200x1-idle", "h200x2-idle", "h200x4-idle")]
    names += [fingerprint(recorded("demo-dgx-h200")), identity(recorded("demo-dgx-h200"))]
    assert len({name for name in names if isinstance(name, str)}) == 5


def test_a_dump_without_the_pci_tree_has_no_name() -> None:
    graph = recorded("h200x8")
    told = fingerprint(graph)
    assert isinstance(told, Absent)
    assert told.detail == "not known: node: number of NUMA nodes and 8 more"
    assert {unknown_text(graph, one) for one in graph.unknown} >= {
        "node: number of NUMA nodes", "GPU 3 (...0003): place", "kernel: version",
    }  # fmt: skip
