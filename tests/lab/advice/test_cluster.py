"""The file of nodes: what is read of it, and one clear line for whatever is wrong."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.processes import ROOT
from wirewatch.core.topology import WireKind
from wirewatch.core.types import Absent, Health, Why
from wirewatch_lab.advice.described import described
from wirewatch_lab.advice.placement import cluster
from wirewatch_lab.advice.placement.cluster import (
    ClusterError,
    of_machine,
    read_cluster,
    sharing,
    wiring,
    with_slurm_topology,
)
from wirewatch_lab.advice.placement.space import Level, space_of
from wirewatch_lab.cli.advise.machines import ChosenMachine

TOML = """
[[nodes]]
names = "gpu[001-003]"
gpus = 8
product = "h100"
ports = "8xNDR"
rack = "r1"

[[nodes]]
names = "pcie1"
gpus = 8
product = "NVIDIA H100 PCIe"
islands = [[0, 1], [2, 3]]
memory_gb = 80

[[states]]
names = "gpu002"
health = "degraded"
busy = [0, 3]

[[states]]
names = "gpu[001,003]"
drained = true
"""
TREE = """\
SwitchName=s0 Level=0 LinkSpeed=1 Nodes=gpu[001-002]
SwitchName=s1 Level=0 LinkSpeed=1 Nodes=gpu003,other7
SwitchName=s2 Level=1 LinkSpeed=1 Nodes=gpu[001-003] Switches=s[0-1]
"""
BLOCKS = "BlockName=b1 BlockIndex=0 Nodes=gpu[001-002]\nBlockName=b2 BlockIndex=1 Nodes=gpu003\n"


def written(folder: Path, text: str, name: str = "nodes") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def test_a_file_is_nodes_with_what_is_so_of_them_now(tmp_path: Path) -> None:
    one, two, three, pcie = read_cluster(written(tmp_path, TOML)).nodes
    assert (one.name, one.rack, one.wiring.islands, one.wiring.memory) == (
        "gpu001",
        "r1",
        (tuple(range(8)),),
        80e9,
    )
    assert not isinstance(one.wiring.machine, Absent)
    assert (two.health, two.busy, two.drained) == (Health.DEGRADED, frozenset({0, 3}), False)
    assert (one.drained, three.drained, three.health) == (True, True, None)
    assert pcie.wiring.islands == ((0, 1), (2, 3), (4,), (5,), (6,), (7,))
    assert [one.unfit(degraded=False) for one in (one, two, three, pcie)] == [
        "drained",
        "DEGRADED",
        "drained",
        "",
    ]
    assert two.wiring is one.wiring, "nodes that are alike share what is known of them"


def test_json_is_read_as_well(tmp_path: Path) -> None:
    nodes = [{"names": "a", "gpus": 10, "islands": [6, 4], "product": "H100"}]
    (one,) = read_cluster(written(tmp_path, "\ufeff" + json.dumps({"nodes": nodes}))).nodes
    assert one.wiring.islands == ((0, 1, 2, 3, 4, 5), (6, 7, 8, 9))


@pytest.mark.parametrize(
    ("product", "gpus", "islands"),
    [
        ("H100", 8, 1),
        ("A100-SXM4-40GB", 4, 1),
        ("H100 NVL", 2, 1),
        ("H100 NVL", 4, 4),
        ("L40S", 8, 8),
        ("", 2, 2),
        ("X1", 2, 2),
    ],
)
def test_islands_follow_from_the_product_or_are_not_known(
    tmp_path: Path, product: str, gpus: int, islands: int
) -> None:
    text = f'[[nodes]]\nnames = "a"\ngpus = {gpus}\nproduct = "{product}"\n'
    (one,) = read_cluster(written(tmp_path, text)).nodes
    assert len(one.wiring.islands) == islands
    assert bool(one.wiring.why) == (islands > 1 and product != "L40S")


@pytest.mark.parametrize(
    ("product", "gpus", "why"),
    [
        ("H10", 8, "no data of a product 'H10'; did you mean 'H100'"),
        ("H100", 16, "NVLink joins at most 8 NVIDIA H100 80GB HBM3"),
        ("H200-NVL", 4, "NVIDIA H200 NVL may be joined in several ways"),
        ("A40", 4, "NVIDIA A40 may be joined by bridges"),
        ("", 4, "its product is not known"),
    ],
)
def test_it_says_why_the_islands_of_a_node_are_not_known(
    tmp_path: Path, product: str, gpus: int, why: str
) -> None:
    text = f'[[nodes]]\nnames = "a"\ngpus = {gpus}\nproduct = "{product}"\n'
    (one,) = read_cluster(written(tmp_path, text)).nodes
    assert one.wiring.why.startswith(f"it has no `islands`, and {why}")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            (
                '[[nodes]]\nnames = "a"\ngpus = 4\nproduct = "GB200"\nnvlink_domain = "d"\n'
                '[[nodes]]\nnames = "b"\ngpus = 4\nproduct = "GB300"\nnvlink_domain = "d"'
            ),
            "nvlink_domain d: a and b have different products",
        ),
        ("", "nodes: Field required"),
        ("nodes = []", "nodes"),
        ('[[nodes]]\nnames = "a"\ngpus = 8\ncolour = 1', "unknown key 'nodes.0.colour'"),
        ('[[nodes]]\nnames = "a"\ngpus = "8"', "nodes.0.gpus"),
        ('[[nodes]]\nnames = "a"\ngpus = 0', "nodes.0.gpus"),
        ('[[nodes]]\nnames = "a"', "nodes.0.gpus"),
        ('[[nodes]]\nnames = "a[1-2]x"\ngpus = 8', "brackets end a name"),
        ('[[nodes]]\nnames = "a,a"\ngpus = 8', "a is named twice"),
        ('[[nodes]]\nnames = "a"\ngpus = 8\n[[nodes]]\nnames = "a"\ngpus = 8', "a is named twice"),
        ('[[nodes]]\nnames = "a"\ngpus = 8\nislands = [4]', "4 GPUs in all, and the node has 8"),
        ('[[nodes]]\nnames = "a"\ngpus = 8\nislands = [4, 5]', "it has 8 GPUs, from 0 on"),
        ('[[nodes]]\nnames = "a"\ngpus = 8\nislands = [[0, 1], [1, 2]]', "in two of them"),
        ('[[nodes]]\nnames = "a"\ngpus = 8\nislands = [[], [1, 2]]', "from 0 on"),
        ('[[nodes]]\nnames = "a"\ngpus = 8\nbusy = [8]', "busy of a"),
        ('[[nodes]]\nnames = "a"\ngpus = 8\nports = "8xFAST"', "give them as 8xNDR"),
        ('[[nodes]]\nnames = "a"\ngpus = 8\nhealth = "fine"', "nodes.0.health"),
        ('[[nodes]]\nnames = "a"\ngpus = 8\nrack = "a\\u001bb"', "nodes.0.rack"),
        ('[[nodes]]\nnames = "a"\ngpus = 8\nproduct = "a\\u001bb"', "not printable"),
        ('[[nodes]]\nnames = "a"\ngpus = 8\nmemory_gb = nan', "memory_gb"),
        ('[[nodes]]\nnames = "a"\ngpus = 8\nnvlink_domain = "d"\nislands = [4, 4]', "no islands of its own"),
        ('[[nodes]]\nnames = "a"\ngpus = 8\n[[states]]\nnames = "b"', "no node is named b"),
        ("[[nodes]]\nnames = 2020-01-01", "dates and times"),
        ("{", "Expecting"),
        ('{"nodes": [{"names": "a", "gpus": 8, "gpus": 4}]}', "key 'gpus' stands twice in one object"),
        ("[[", "nodes"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ClusterError) as caught:
        read_cluster(written(tmp_path, text))
    assert words in str(caught.value)
    assert str(caught.value).isprintable()


def test_leafs_come_from_scontrol(tmp_path: Path) -> None:
    read = read_cluster(written(tmp_path, TOML))
    leafs = with_slurm_topology(read, written(tmp_path, TREE, "tree"))
    assert [one.leaf for one in leafs.nodes] == ["s0", "s0", "s1", ""]
    assert space_of(leafs.nodes).levels == (Level.DOMAIN, Level.NODE, Level.LEAF, Level.RACK, Level.CLUSTER)
    blocks = with_slurm_topology(read, written(tmp_path, BLOCKS, "blocks"))
    assert [one.rack for one in blocks.nodes] == ["b1", "b1", "b2", ""]
    for text in ("", "slurm_load_topo error", "SwitchName=s0 Level=0 Nodes=a[1-"):
        with pytest.raises(ClusterError):
            with_slurm_topology(read, written(tmp_path, text, "none"))


def test_a_node_is_a_cluster() -> None:
    (one,) = of_machine(described("4xL40S"), "n").nodes
    assert one.wiring.islands == ((0,), (1,), (2,), (3,))
    recorded = ChosenMachine(None, None, (), "demo-dgx-h200", (), None).read()
    (one,) = of_machine(recorded, "n").nodes
    assert (one.wiring.islands, one.wiring.memory) == ((tuple(range(8)),), 141e9)


SINFO = """\
gpu001|gpu:h100:8|gpu:h100:0|idle|
gpu001|gpu:h100:8|gpu:h100:0|idle|
gpu002|gpu:h100:8(S:0-1)|gpu:h100:3(IDX:0,2-3)|mixed|
gpu003|gpu:4|gpu:0|drained|
cpu1|(null)|(null)|idle|
"""
KUBERNETES = {
    "items": [
        {
            "metadata": {"name": "g1", "labels": {"nvidia.com/gpu.product": "NVIDIA-GB200",
                                                  "nvidia.com/gpu.clique": "a.1"}},
            "spec": {}, "status": {"capacity": {"nvidia.com/gpu": "4"},
                                   "conditions": [{"type": "InterconnectHealthy", "status": "False"}]},
        },
        {
            "metadata": {"name": "g2", "labels": {}}, "spec": {"unschedulable": True},
            "status": {"capacity": {"nvidia.com/gpu": "8"}, "conditions": []},
        },
        {"metadata": {"name": "c1"}, "spec": {}, "status": {"capacity": {"cpu": "4"}, "conditions": []}},
    ]
}  # fmt: skip


def recipe(program: str) -> str:
    """The text that a block of the page gives to awk or jq."""
    page = (ROOT / "docs" / "advice" / "placement.md").read_text("utf-8")
    (text,) = re.findall(rf"{re.escape(program)} '\n([^']*)' > nodes", page)
    return str(text)


def test_the_pages_recipe_makes_a_file_of_what_sinfo_prints(tmp_path: Path) -> None:
    lines = "".join(sorted(set(SINFO.splitlines(keepends=True))))
    done = subprocess.run(
        ["awk", "-F|", recipe("awk -F'|'")], input=lines, capture_output=True, text=True, check=True
    )
    one, two, three = read_cluster(written(tmp_path, done.stdout)).nodes
    assert (one.name, one.wiring.gpus, one.wiring.product, one.busy) == (
        "gpu001",
        8,
        "NVIDIA H100 80GB HBM3",
        frozenset(),
    )
    assert (two.busy, two.drained) == (frozenset({0, 2, 3}), False)
    assert (three.wiring.gpus, three.wiring.product, three.drained) == (4, "", True)


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_the_pages_recipe_makes_a_file_of_what_kubectl_prints(tmp_path: Path) -> None:
    text = json.dumps(KUBERNETES)
    done = subprocess.run(["jq", recipe("jq")], input=text, capture_output=True, text=True, check=True)
    one, two = read_cluster(written(tmp_path, done.stdout)).nodes
    assert (one.fabric, one.health, one.wiring.product) == ("a.1", Health.FAILED, "NVIDIA GB200")
    assert (two.health, two.drained) == (Health.UNKNOWN, True)


def test_the_pages_file_is_the_one_that_its_outputs_are_of() -> None:
    folder = ROOT / "docs" / "advice"
    (text,) = re.findall(
        r"```\n(\[\[nodes\]\]\n.*?)```", (folder / "placement.md").read_text("utf-8"), re.DOTALL
    )
    assert text == (folder / "nodes.toml").read_text("utf-8")
    assert len(read_cluster(folder / "nodes.toml").nodes) == 9


@pytest.mark.parametrize(("most", "fits"), [(6, True), (5, False)])
def test_a_file_has_no_more_nodes_than_are_taken(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    most: int,
    fits: bool,  # noqa: FBT001
) -> None:
    monkeypatch.setattr(cluster, "MOST_NODES", most)
    file = written(tmp_path, '[[nodes]]\nnames = "a[1-3]"\ngpus = 2\n[[nodes]]\nnames = "b[1-3]"\ngpus = 2\n')
    if fits:
        assert len(read_cluster(file).nodes) == 6
    else:
        with pytest.raises(ClusterError, match="more than 5 nodes"):
            read_cluster(file)


def test_a_node_whose_gpus_are_one_island_is_as_its_product_is() -> None:
    whole = wiring("H100", 8, (tuple(range(8)),), None, "8xNDR").machine
    assert not isinstance(whole, Absent)
    assert [one.group.kind for one in whole.conditions] == [WireKind.SWITCH]
    parts = wiring("H100", 8, ((0, 1, 2, 3), (4, 5, 6, 7)), None, "8xNDR").machine
    assert not isinstance(parts, Absent)
    assert [(one.group.kind, one.group.ranks) for one in parts.conditions] == [
        (WireKind.PCIE, 8), (WireKind.SWITCH, 4), (WireKind.SWITCH, 4),
    ]  # fmt: skip
    lone = wiring("H100", 5, ((0, 1, 2, 3), (4,)), None, "").machine
    assert not isinstance(lone, Absent)
    assert [one.group.ranks for one in lone.conditions] == [5, 4]
    cards = wiring("L40S", 4, ((0, 1), (2, 3)), None, "").machine
    assert not isinstance(cards, Absent)
    assert [one.group.kind for one in cards.conditions] == [WireKind.PCIE]


@pytest.mark.parametrize(("ranks", "ports", "rate"), [(8, 8, 50e9), (4, 4, 50e9), (1, 1, 50e9), (3, 3, 50e9)])
def test_some_gpus_have_their_share_of_the_ports(ranks: int, ports: int, rate: float) -> None:
    (one,) = sharing(described("8xH100+8xNDR"), ranks).conditions
    assert not isinstance(one.network, Absent)
    assert (len(one.network), {port.rate for port in one.network}) == (ports, {rate})


def test_a_share_of_fewer_ports_than_gpus_is_a_part_of_one() -> None:
    (one,) = sharing(described("8xH100+2xNDR"), 2).conditions
    assert not isinstance(one.network, Absent)
    assert [port.rate for port in one.network] == [25e9]
    assert sharing(described("8xH100"), 2) == described("8xH100")
    nothing = described("8xH100")
    unknown = replace(nothing, conditions=(replace(nothing.conditions[0], network=Absent(Why.MISSING)),))
    assert sharing(unknown, 2) == unknown


def test_a_live_node_that_nvlink_does_not_join_has_islands_of_one() -> None:
    recorded = ChosenMachine(None, None, (), "h200x4-idle", (), None).read()
    (one,) = of_machine(recorded, "n").nodes
    assert one.wiring.islands == ((0, 1, 2, 3),)
    blind = replace(recorded, conditions=())
    (one,) = of_machine(blind, "n").nodes
    assert len(one.wiring.islands) in {1, 4}
