"""What the node's `_info` series says before and after a probe and a baseline."""

from tests.support import Node
from wirewatch.core.types import Absent
from wirewatch.documents import judged
from wirewatch.documents import series as nodeinfo
from wirewatch.server.exposition import Exposition
from wirewatch.verdict.drift.wiring import fingerprint
from wirewatch.verdict.node import judge_state


def info_labels(node: Node) -> list[dict[str, str]]:
    return [dict(zip(s.metric.labels, s.labels, strict=True)) for s in nodeinfo.node_info(node.state)]


def test_it_has_nothing_of_what_is_not_known_yet() -> None:
    node = Node("demo-dgx-h200")
    node.poll(times=1)
    (labels,) = info_labels(node)
    assert labels == {
        "product": "NVIDIA H200", "gpus": "8", "driver": "580.159.04", "nccl": "", "fingerprint": "",
    }  # fmt: skip


def test_the_probe_gives_nccl_and_the_baseline_the_shape() -> None:
    node = Node("demo-dgx-h200")
    node.options("probe", settle=0.0)
    node.poll(times=4)
    (labels,) = info_labels(node)
    shape = fingerprint(node.state.components["drift"].memory.baseline.graph)
    assert not isinstance(shape, Absent)
    assert (labels["nccl"], labels["fingerprint"]) == ("2.28.9", shape)
    text = Exposition("replay").render(judge_state(node.state)).text
    assert text.decode().count("\nwirewatch_node_info{") == 1
    assert f'fingerprint="{shape}",gpus="8",nccl="2.28.9"' in text.decode()
    (inventory,) = [
        c
        for c in judged.state(judge_state(node.state), 0.0, "replay").collectors
        if c.collector == "inventory"
    ]
    (series,) = [s for s in inventory.samples if s.name == "wirewatch_node_info"]
    assert series.labels == labels
