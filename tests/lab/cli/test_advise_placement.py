"""`wirewatch advise placement` as a process: the verdict first, one document, and what launchers take."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.node.cli.schemas import complaints
from tests.node.cli.test_wrong_input import USAGE, refused
from tests.processes import run_wirewatch
from wirewatch import cli

PLACEMENT = ("advise", "placement")
FILE = """
[[nodes]]
names = "gpu[001-004]"
gpus = 8
product = "H100"
ports = "8xNDR"
rack = "r1"
rails = 8
cores = 96
[[nodes]]
names = "old1"
gpus = 8
product = "H100"
islands = [4, 4]
[[states]]
names = "gpu002"
busy = [0, 1, 2, 3]
health = "ok"
[[states]]
names = "gpu004"
drained = true
"""


@pytest.fixture
def nodes(tmp_path: Path) -> str:
    path = tmp_path / "nodes.toml"
    path.write_text(FILE, "utf-8")
    return str(path)


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit code and standard output, here and not in a process of its own."""
    code = cli.run([*PLACEMENT, *arguments])
    return code, capsys.readouterr().out


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code, text = answer(capsys, *arguments, "--json")
    assert complaints("wirewatch.advise-placement.1", text) == []
    return code, json.loads(text)


def test_it_says_which_gpus_of_which_nodes(nodes: str) -> None:
    done = run_wirewatch(*PLACEMENT, "--cluster", nodes, "--tp", "8", "--pp", "2")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "FEASIBLE: TP 8 x PP 2 x 1: 16 of 28 free GPUs, on 2 nodes"
    assert lines[1] == "  nodes.toml: 5 nodes, 4 usable (not 1 drained), 28 free GPUs in 5 NVLink domains"
    assert "gpu001: 0-7" in done.stdout
    assert "! all 8 tensor ranks reach their peers in the next stage on their own rail" in lines
    assert lines[-1].startswith("Slurm: --nodelist=gpu[001,003]; every rank: --print hostfile")
    assert len(lines) <= 15


def test_a_recorded_node_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    """On a recording of four GPUs, where TP 4 twice has no room either."""
    code, made = document(capsys, "--replay", "h200x4-idle", "--tp", "8", "--model", "llama-3-70b")
    assert (code, made["feasible"], made["proven"]) == (2, False, True)
    assert [(one["tp"], one["pp"], one["replicas"]) for one in made["nearest"]] == [(4, 1, 1)]


def test_four_and_four_offer_two_replicas(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    alone = tmp_path / "alone.json"
    alone.write_text('{"nodes": [{"names": "old1", "gpus": 8, "product": "H100", "islands": [4, 4]}]}')
    code, made = document(capsys, "--cluster", str(alone), "--tp", "8")
    assert code == 2
    offers = [(one["tp"], one["pp"], one["replicas"], one["asks"]) for one in made["nearest"]]
    assert offers == [(4, 1, 2, ""), (4, 2, 1, ""), (8, 1, 1, "--tp-across node")]
    code, made = document(capsys, "--cluster", str(alone), "--tp", "8", "--tp-across", "node")
    assert (code, made["jobs"][0]["placed"][0]["stages"][0]["level"]) == (0, "node")
    assert made["remarks"][0].startswith("TP IS STRETCHED: 1 of 1 TP groups of 8 leave one NVLink domain")
    assert [one["tp"] for one in made["rejected"]] == [4, 4]


@pytest.mark.parametrize("tp", [5, 7, 73])
def test_a_prime_tp_offers_the_widest_that_fits(
    tp: int, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """On islands of four and four, and on 72 GPUs of one NVLink domain."""
    path = tmp_path / "n.json"
    islands = '{"names": "a", "gpus": 8, "product": "H100", "islands": [4, 4]}'
    rack = '{"names": "t[01-18]", "gpus": 4, "product": "GB200", "nvlink_domain": "d"}'
    path.write_text(f'{{"nodes": [{rack if tp > 8 else islands}]}}')
    code, made = document(capsys, "--cluster", str(path), "--tp", str(tp))
    offers = [(one["tp"], one["replicas"]) for one in made["nearest"] if not one["asks"]]
    assert (code, (72 if tp > 8 else 4, 1) in offers) == (2, True)


def test_where_nothing_near_fits_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Of 1.1 TB of weights and optimizer a single node of 640 GB has no part that fits."""
    code, made = document(capsys, "--machine", "8xH100", "--tp", "4", "--model", "llama-3-70b", "--training")
    assert (code, made["nearest"]) == (2, [])
    assert made["remarks"][0].startswith("nothing near it fits either")


@pytest.mark.parametrize(
    ("asked", "nearest"),
    [
        (("--tp", "8", "--pp", "9"), (8, 2, 1)),
        (("--tp", "8", "--pp", "100", "--model", "llama-3-70b"), (8, 2, 1)),
        (("--tp", "64", "--pp", "64", "--replicas", "64"), (8, 1, 1)),
        (("--tp", "16", "--replicas", "4"), (8, 1, 2)),
    ],
)
def test_the_nearest_layout_has_as_many_stages_and_replicas_as_there_is_room_for(
    nodes: str, asked: tuple[str, ...], nearest: tuple[int, int, int], capsys: pytest.CaptureFixture[str]
) -> None:
    """Of two free nodes of eight GPUs, half a node, and a node of two islands of four."""
    code, made = document(capsys, "--cluster", nodes, *asked)
    assert code == 2
    assert nearest in [(one["tp"], one["pp"], one["replicas"]) for one in made["nearest"]]


def test_a_model_that_fits_nowhere_says_what_it_would_take(capsys: pytest.CaptureFixture[str]) -> None:
    """16 bytes of 70.6e9 parameters and a tenth kept free: 1,254 GB over 16 GPUs of 80 GB."""
    job = ("--machine", "8xH100", "--tp", "8", "--model", "llama-3-70b", "--training")
    _, made = document(capsys, *job)
    assert "memory is enough from TP 8 x PP 2 x 1 on: 16 GPUs like these" in made["remarks"]


def test_of_several_jobs_it_says_which_fit(nodes: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, made = document(
        capsys, "--cluster", nodes, "--group", "tp=8,replicas=2", "--group", "tp=16", "--group", "tp=4"
    )
    assert (code, made["remarks"][0]) == (2, "job 0, job 2 can be placed without job 1")
    _, made = document(capsys, "--cluster", nodes, "--group", "tp=16", "--group", "tp=17")
    assert made["remarks"][0] == "none of the jobs can be placed, even alone"


def test_a_leaf_that_is_wider_than_racks_is_offered(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Racks r1 and r2 share a leaf, and r3 has another: TP 16 fits the leaf alone."""
    path = tmp_path / "n.json"
    entry = '{{"names": "a{0}", "gpus": 8, "product": "H100", "rack": "r{0}", "leaf": "l{1}"}}'
    path.write_text(f'{{"nodes": [{", ".join(entry.format(n, n // 3) for n in (1, 2, 3))}]}}')
    code, made = document(capsys, "--cluster", str(path), "--tp", "16", "--tp-across", "rack")
    assert code == 2
    assert made["nearest"][-1]["asks"] == "--tp-across leaf"


def test_a_group_over_a_whole_rack_is_one_short_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "n.json"
    path.write_text('{"nodes": [{"names": "t[01-18]", "gpus": 4, "product": "GB200", "nvlink_domain": "d"}]}')
    code, text = answer(capsys, "--cluster", str(path), "--tp", "72")
    assert code == 0
    assert "t[01-18]: 0-3  inside one NVLink domain" in text


def test_memory_refuses_and_names_the_larger_layout(nodes: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, made = document(capsys, "--cluster", nodes, "--tp", "1", "--model", "llama-3-70b")
    assert code == 2
    assert made["reason"].startswith("TP 1 x PP 1 of llama-3-70b takes 156.8 GB a GPU with 10% kept free")
    assert [(one["tp"], one["pp"]) for one in made["nearest"]] == [(2, 1)]
    assert document(capsys, "--cluster", nodes, "--tp", "2", "--parameters", "70B")[0] == 0
    code, made = document(capsys, "--cluster", nodes, "--tp", "8", "--model", "llama-3-70b", "--training")
    assert (code, [(one["tp"], one["pp"]) for one in made["nearest"]]) == (2, [(8, 2)])
    code, made = document(capsys, "--cluster", nodes, "--tp", "6", "--model", "llama-3-70b")
    assert "does not divide the 64 attention heads" in made["reason"]
    assert ("a TP that divides the attention heads", 4) in [
        (one["why"], one["tp"]) for one in made["nearest"]
    ]


def test_degraded_nodes_are_used_when_asked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "n.toml"
    path.write_text(
        '[[nodes]]\nnames = "a[1-2]"\ngpus = 8\nproduct = "H100"\n'
        '[[states]]\nnames = "a2"\nhealth = "degraded"\n'
    )
    code, made = document(capsys, "--cluster", str(path), "--tp", "8", "--replicas", "2")
    assert (code, made["cluster"]["left_out"]) == (2, {"DEGRADED": 1})
    assert [one["asks"] for one in made["nearest"]][-1] == "--degraded"
    assert document(capsys, "--cluster", str(path), "--tp", "8", "--replicas", "2", "--degraded")[0] == 0


def test_several_jobs_side_by_side(nodes: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, made = document(capsys, "--cluster", nodes, "--group", "tp=4,replicas=3", "--group", "tp=8,pp=2")
    assert (code, [one["tp"] for one in made["jobs"]]) == (0, [4, 8])
    assert made["nodelist"] == "gpu[001-003],old1"


def test_a_job_is_taken_as_the_help_spells_it(nodes: str, capsys: pytest.CaptureFixture[str]) -> None:
    spelled = re.search(r"--group (TP\S+)", answer(capsys, "--help")[1])
    assert spelled
    code, made = document(capsys, "--cluster", nodes, "--group", spelled[1].replace("=N", "=2"))
    assert (code, [(one["tp"], one["pp"], one["replicas"]) for one in made["jobs"]]) == (0, [(2, 2, 2)])


def test_launchers_get_every_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "one.json"
    path.write_text('{"nodes": [{"names": "gpu001", "gpus": 8, "product": "H100", "cores": 96}]}')
    asked = ("--cluster", str(path), "--tp", "2", "--pp", "2", "--replicas", "2")
    assert answer(capsys, *asked, "--print", "nodelist") == (0, "gpu001\n")
    assert answer(capsys, *asked, "--print", "hostfile") == (0, "gpu001\n" * 8)
    rankfile = answer(capsys, *asked, "--print", "rankfile")[1].splitlines()
    assert (rankfile[0], rankfile[7]) == ("rank 0=gpu001 slot=0-11", "rank 7=gpu001 slot=84-95")
    devices = [line.split() for line in answer(capsys, *asked, "--print", "devices")[1].splitlines()[1:]]
    assert devices[4] == ["4", "gpu001", "4", "4,5,6,7", "0", "0", "1", "0"]
    trained = answer(capsys, *asked[:-2], "--dp", "2", "--print", "devices")[1].splitlines()[1:]
    assert [line.split()[2] for line in trained] == ["0", "1", "4", "5", "2", "3", "6", "7"], (
        "tp, then dp, then pp"
    )
    assert {line.split()[3] for line in trained} == {"0,1,2,3,4,5,6,7"}
    assert answer(capsys, "--cluster", str(path), "--tp", "64", "--print", "hostfile") == (2, "")


def test_many_groups_share_lines(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "n.toml"
    path.write_text('[[nodes]]\nnames = "n[001-400]"\ngpus = 8\nproduct = "H100"\nhealth = "ok"\n')
    code, text = answer(capsys, "--cluster", str(path), "--tp", "4", "--replicas", "601")
    assert code == 0
    assert len(text.splitlines()) < 40
    assert "n[001-300]" in text
    assert "    300       600  0-3 | 4-7          n[001-300]" in text.splitlines()
    assert (
        len(answer(capsys, "--cluster", str(path), "--tp", "4", "--replicas", "40", "--all")[1].splitlines())
        > 50
    )


def test_slurms_topology_gives_leafs(nodes: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.write_text(
        "SwitchName=l1 Level=0 Nodes=gpu[001,003]\nSwitchName=l2 Level=0 Nodes=gpu[002,004],old1\n"
    )
    more = ("--cluster", nodes, "--slurm-topology", str(tree), "--tp", "8", "--pp", "2")
    assert document(capsys, *more)[1]["jobs"][0]["placed"][0]["level"] == "leaf"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ((), "give --tp"),
        (("--tp", "0"), "--tp"),
        (("--tp", "4", "--group", "tp=4"), "not both"),
        (("--tp", "4", "--replicas", "2", "--dp", "2"), "not both"),
        (("--group", "pp=4"), "names no tp"),
        (("--group", "tp=4,tp=5"), "is not of the form"),
        (("--tp", "4", "--tp-across", "leaf"), "no node states its leaf"),
        (("--tp", "4", "--kv-tokens", "5"), "takes a --model"),
        (("--tp", "4", "--parameters", "many"), "--parameters"),
        (("--tp", "4", "--model", "llama-3-8b", "--parameters", "8B"), "not both"),
        (("--tp", "4", "--model", "llama-3-8b", "--training", "--dtype", "int8"), "not of int8"),
        (("--tp", "4", "--model", "mixtral-8x7"), "did you mean 'mixtral-8x7b'"),
        (("--tp", "4", "--slurm-topology", "missing"), "No such file"),
        (("--tp", "4", "--machine", "8xH100"), "give --cluster, or one node"),
    ],
)
def test_wrong_options_are_one_line(
    nodes: str, more: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([*PLACEMENT, "--cluster", nodes, *more]) == USAGE
    text = capsys.readouterr()
    (line,) = text.err.splitlines()
    assert (line.startswith("wirewatch: "), text.out) == (True, "")
    assert words in line


def test_a_file_that_is_none_and_a_rankfile_without_cores(tmp_path: Path) -> None:
    assert "No such file" in refused(USAGE, *PLACEMENT, "--cluster", str(tmp_path / "none"), "--tp", "4")
    line = refused(USAGE, *PLACEMENT, "--machine", "8xH100", "--tp", "4", "--print", "rankfile")
    assert "give `cores` in the file of nodes" in line


def test_a_providers_topology_file_says_nothing_of_nvlink(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """It has PCI addresses alone, without what NCCL writes of GPUs."""
    path = tmp_path / "topology.xml"
    below = "".join(
        f'<pci busid="000{n}:00:00.0" class="0x030200" link_speed="32 GT/s" link_width="16"/>' for n in (1, 2)
    )
    path.write_text(f'<system version="1"><cpu numaid="0">{below}</cpu></system>')
    code, made = document(capsys, "--machine", str(path), "--tp", "2")
    assert code == 2
    why = "so each GPU counts alone: its NVLink links could not be read"
    assert made["remarks"][1] == f"1 of 1 usable nodes: NVLink is not known, {why}"
