"""`wirewatch advise gpu-nic`: its outputs, on recordings, documents and NCCL's files, and what it refuses."""

import json
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.lab.advice.nearby import DGX_H100, dgx_h100, node
from tests.lab.study.topologies import gpu, nic, switch, system
from tests.node.busbw.ports import port
from tests.node.cli.schemas import complaints
from tests.node.collectors.drawn import PCI, Files
from tests.patience import HANGS
from tests.processes import run_wirewatch
from tests.recorded import PUBLISHED
from tests.rows import each
from wirewatch.core.pci import Place
from wirewatch.core.topology import GpuPart, NicPart, NicPath, Topology
from wirewatch.core.types import Absent, Why
from wirewatch.documents.state import TOPOLOGY, TopologyDocument
from wirewatch_lab.advice.gpunic.locality import VIRTUAL, Locality, cpu_numbers, read_locality
from wirewatch_lab.advice.gpunic.mapping import map_nics
from wirewatch_lab.advice.gpunic.settings import (
    GpuNicDocument,
    JobSetting,
    cpu_bindings,
    job_settings,
    slurm_binding,
    unsettable,
)
from wirewatch_lab.advice.gpunic.settings import document as make_document
from wirewatch_lab.advice.shell import ranges
from wirewatch_lab.cli.advise.gpu_nic import gpu_nic_text, wrapper

SAMPLE = PUBLISHED / "nccl_topo.ndv5.xml"
EVIL = "mlx5_0;touch evil"


def told(*words: str) -> Mapping[str, Any]:
    done = run_wirewatch("advise", "gpu-nic", "--json", *words)
    assert done.returncode == 0, done.stderr
    assert complaints("wirewatch.advise-gpu-nic.1", done.stdout) == []
    document: Mapping[str, Any] = json.loads(done.stdout)
    return document


def devices(document: Mapping[str, Any]) -> list[str]:
    return [port["device"] for one in document["gpus"] for port in one["ports"]]


def variables(near: Locality) -> list[JobSetting]:
    found = map_nics(near)
    assert not isinstance(found, Absent)
    return list(job_settings(found))


def value(near: Locality, name: str, rank: int | None = None) -> str:
    (found,) = [one.value for one in variables(near) if (one.name, one.rank) == (name, rank)]
    return found


def test_a_recording_has_ports_processors_and_settings() -> None:
    document = told("--replay", "demo-dgx-h200")
    assert devices(document) == [f"mlx5_{n}" for n in range(8)]
    assert {one["share_bytes_per_second"] for one in document["gpus"]} == {50e9}
    assert [one["cpus"] for one in document["gpus"]] == ["0-55,112-167"] * 4 + ["56-111,168-223"] * 4
    (hcas,) = [one for one in document["settings"] if one["name"] == "NCCL_IB_HCA"]
    assert hcas["value"] == "=mlx5_0,mlx5_1,mlx5_2,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_7"
    assert {one["port"] for one in document["left_out"]} == {"mlx5_8:1", "mlx5_9:1"}


@pytest.mark.parametrize(
    ("fault", "loss"),
    [
        ("ib-port-down", "mlx5_2:1: down; NODE instead of PIX, 25.0 instead of 50.0 GB/s"),
        ("nic-pcie-x8", "mlx5_2:1: its PCIe link runs low (PCIe 5 x8); 31.5 instead of 50.0 GB/s"),
    ],
)
def test_a_fault_of_a_card_is_a_loss_of_its_gpu(fault: str, loss: str) -> None:
    document = told("--replay", "demo-dgx-h200", "--overlay", fault)
    assert document["gpus"][2]["loss"] == loss
    assert document["gpus"][2]["healthy_share_bytes_per_second"] == 50e9
    assert not any(one["loss"] for one in document["gpus"][3:])


@pytest.mark.parametrize("name", ["h200x8", "h200x1-idle"])
def test_a_virtual_machine_without_ports_is_no_fault(name: str) -> None:
    document = told("--machine", name)
    assert (document["left_out"], document["settings"]) == ([], [])
    assert not any(one["loss"] for one in document["gpus"])


@pytest.mark.parametrize(
    ("bridges", "line"),
    [
        ("", "Mapping not known: no difference between the paths is visible. The ports are spread evenly"),
        ("0000:00:01.0", "Every path is PIX: no difference is visible. The ports are spread evenly"),
    ],
)
def test_a_flat_machine_is_told_so_and_nothing_is_wrong(tmp_path: Path, bridges: str, line: str) -> None:
    place = Place("0000:00:05.0", "pci0000:00", tuple(filter(None, [bridges])), None)
    gpus = tuple(GpuPart(f"GPU-{n}", n, "NVIDIA H200", place) for n in range(2))
    cards = tuple(
        NicPart("", f"mlx5_{n}", "", "", replace(place, address=f"0000:0{n}:00.0"), (("1", "InfiniBand"),))
        for n in range(2)
    )
    paths = tuple(NicPath(f"GPU-{n}", f"mlx5_{m}", "PIX" if bridges else "") for n in (0, 1) for m in (0, 1))
    flat = TopologyDocument("wirewatch.topology/1", 1.8e9, Topology(gpus, cards, (), paths, 1, ()))
    (tmp_path / "flat.json").write_bytes(TOPOLOGY.dump_json(flat))
    done = run_wirewatch("advise", "gpu-nic", "--machine", str(tmp_path / "flat.json"))
    assert (done.returncode, done.stdout.splitlines()[1].startswith(line)) == (0, True)


def test_a_document_has_paths_and_no_states(tmp_path: Path) -> None:
    file = tmp_path / "topology.json"
    file.write_text(run_wirewatch("topology", "show", "--replay", "demo-dgx-h200", "--json").stdout, "utf-8")
    document = told("--machine", str(file))
    assert devices(document) == [f"mlx5_{n}" for n in range(8)]
    assert "the source has no states of ports" in document["remarks"][0]


def test_a_file_of_nccl_has_paths_rates_and_processors(tmp_path: Path) -> None:
    below = [
        switch(f"0000:{n}0:00.0", gpu(f"0000:{n}b:00.0", n), nic(f"0000:{n}8:00.0", f"mlx5_{(5, 2)[n]}"))
        for n in range(2)
    ]
    text = system([below[0], nic("0000:c0:00.0", "eth0")], [below[1]]).decode()
    (tmp_path / "topology.xml").write_text(
        text.replace('arch="x86_64"', 'affinity="000000ff,00000000" arch="x86_64"', 1), "utf-8"
    )
    document = told("--machine", str(tmp_path / "topology.xml"))
    assert devices(document) == ["mlx5_5", "mlx5_2"]
    assert [one["cpus"] for one in document["gpus"]] == ["32-39", None]
    assert document["gpus"][0]["share_bytes_per_second"] == 50e9
    assert document["left_out"] == [
        {"port": "eth0", "why": "a network interface, which NCCL uses by sockets"}
    ]


def test_the_file_that_azure_gives_nccl_names_no_devices() -> None:
    document = told("--machine", str(SAMPLE))
    assert devices(document) == [f"010{n}:00:00.0" for n in range(1, 9)]
    assert document["settings"] == []


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not a document"), (b"<a", "not XML"), (b"<graphs/>", "rings and trees"),
        (b"\0<", "not a document"),
        (b"<system version='1'/>", "without a GPU"), (b"\xff\xfe", "not text in UTF-8"),
    ],
)  # fmt: skip
def test_what_is_no_topology_is_refused_in_one_line(tmp_path: Path, body: bytes, words: str) -> None:
    (tmp_path / "file").write_bytes(body)
    done = run_wirewatch("advise", "gpu-nic", "--machine", str(tmp_path / "file"))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (64, "", 1)
    assert words in done.stderr


def test_a_described_node_has_no_network_cards() -> None:
    done = run_wirewatch("advise", "gpu-nic", "--machine", "8xH100")
    assert done.returncode == 64
    assert "nothing is known of its network cards" in done.stderr


@pytest.mark.parametrize("network", ["p5", "a3-mega", "a3-high"])
def test_a_network_with_a_plugin_is_left_to_it(network: str) -> None:
    document = told("--machine", f"8xH100+{network}")
    assert (document["settings"], devices(document)) == ([], [])
    assert f"by a plugin ({document['plugin']}), which reads no NCCL_IB_HCA" in " ".join(document["remarks"])
    document = told("--replay", "demo-dgx-h200", "--network", network)
    assert (document["settings"], len(devices(document))) == ([], 8)


def test_a_network_without_a_plugin_is_not_described() -> None:
    done = run_wirewatch("advise", "gpu-nic", "--machine", "8xH100+dgx-h100")
    assert (done.returncode, "pass --machine" in done.stderr) == (64, True)
    done = run_wirewatch("advise", "gpu-nic", "--replay", "demo-dgx-h200", "--network", "p9")
    assert (done.returncode, "no network 'p9' is known" in done.stderr) == (64, True)


def test_the_port_of_a_file_of_nccl_is_no_port_of_a_device(tmp_path: Path) -> None:
    """NCCL counts the functions of a card there: mlx5_1 has port 2 in it, and one port."""
    cards = "".join(
        nic(f"0000:18:00.{n}", f"mlx5_{n}").replace('port="1"', f'port="{n + 1}"') for n in range(2)
    )
    assert 'port="2"' in cards
    text = system([switch("0000:10:00.0", gpu("0000:1b:00.0", 0), cards)])
    (tmp_path / "topology.xml").write_bytes(text)
    document = told("--machine", str(tmp_path / "topology.xml"))
    (ucx,) = [one["value"] for one in document["settings"] if one["name"] == "UCX_NET_DEVICES"]
    assert ucx == "mlx5_0:1,mlx5_1:1"
    assert any("port 1 of each device is taken" in one for one in document["remarks"])


def seats(count: int, ports: int, state: str = "active") -> GpuNicDocument:
    """A node whose GPUs all lose their ports, with a long list of what is left out."""
    cards = [port(n, ["PIX" if n == g else "SYS" for g in range(count)], state=state) for n in range(ports)]
    near = node(cards, count)
    found = map_nics(near)
    assert not isinstance(found, Absent)
    return make_document(0.0, "it", found, job_settings(found), (), None, ("a", "b", "c", "d"), None)


@each(
    ("made", "words"),
    [
        (seats(1, 1), "Set nothing: NCCL finds the nearest ports by itself"),
        (seats(8, 8), "Set nothing: NCCL finds the nearest ports by itself"),
        (seats(16, 16), "more, reasons"),
        (seats(8, 40, "down"), "No GPU has a port"),
        (seats(8, 0), "No RDMA port is here"),
    ],
)
def test_a_first_answer_has_15_lines_at_most(made: GpuNicDocument, words: str) -> None:
    text = gpu_nic_text(made, explain=False)
    assert len(text.splitlines()) <= 15
    assert words in text
    assert len(gpu_nic_text(made, explain=True).splitlines()) > len(made.gpus)


def test_on_a_dgx_h100_the_names_are_exact() -> None:
    near = dgx_h100()
    assert value(near, "NCCL_IB_HCA") == "=" + ",".join(f"mlx5_{n}" for n in DGX_H100)
    assert [value(near, "UCX_NET_DEVICES", rank) for rank in range(8)] == [f"mlx5_{n}:1" for n in DGX_H100]
    assert value(near, "NVSHMEM_HCA_PE_MAPPING") == ",".join(f"mlx5_{n}:1:1" for n in DGX_H100)
    assert all(one.recommended for one in variables(near) if one.name == "NCCL_IB_HCA")


def test_a_card_of_which_one_port_is_used_is_named_with_its_port() -> None:
    two = [port(0, ["PIX"], port=str(n), state=("active", "down")[n - 1]) for n in (1, 2)]
    assert value(node(two), "NCCL_IB_HCA") == "=mlx5_0:1"


def test_where_nccl_finds_the_same_by_itself_nothing_is_recommended() -> None:
    near = node([port(n, ["PIX" if n == gpu else "SYS" for gpu in range(2)]) for n in range(2)])
    needed = {one.name for one in variables(near) if one.rank is None and one.recommended}
    assert needed == {"CUDA_DEVICE_ORDER"}


def test_where_no_difference_is_visible_no_rank_is_sent_to_a_port() -> None:
    near = node([port(n, [""] * 2) for n in range(2)])
    assert not any(one.recommended for one in variables(near) if one.rank is not None)


def test_gpus_that_share_are_counted_together() -> None:
    near = node([port(n, ["PIX" if gpu // 2 == n else "SYS" for gpu in range(4)]) for n in range(2)])
    assert value(near, "NVSHMEM_HCA_PE_MAPPING") == "mlx5_0:1:2,mlx5_1:1:2"


def test_a_name_that_cannot_stand_in_a_list_makes_no_setting() -> None:
    assert variables(node([port(0, ["PIX"], device="a,b")])) == []
    assert variables(node([port(0, ["PIX"], device=EVIL)])) == []


def test_efa_has_no_use_for_names_of_hcas() -> None:
    near = node([port(0, ["PIX"], layer="Unknown", device="rdmap16s27")])
    found = map_nics(near)
    assert not isinstance(found, Absent)
    assert (job_settings(found), "EFA" in unsettable(found)) == ((), True)


def test_slurm_binds_each_task_near_its_gpu() -> None:
    near = replace(dgx_h100(), cpus={f"GPU-{n}": ("0-3", "4-7")[n // 4] for n in range(8)})
    found = map_nics(near)
    assert not isinstance(found, Absent)
    binding = slurm_binding(cpu_bindings(found, near), 8)
    assert binding is not None
    assert binding.mask_cpu == "--cpu-bind=mask_cpu:" + ",".join(["0xf"] * 4 + ["0xf0"] * 4)
    assert binding.map_cpu == "--cpu-bind=map_cpu:0,1,2,3,4,5,6,7"
    assert slurm_binding(cpu_bindings(found, replace(near, cpus={"GPU-0": "0-3"})), 8) is None


@pytest.mark.parametrize(("rank", "ports"), [("0", "mlx5_0:1"), ("4", "mlx5_6:1"), ("7", "mlx5_11:1")])
def test_the_script_starts_a_rank_with_its_settings(tmp_path: Path, rank: str, ports: str) -> None:
    done = started(wrapper_of(dgx_h100()), tmp_path, LOCAL_RANK=rank)
    assert done.stdout.splitlines() == [ports, "=" + ",".join(f"mlx5_{n}" for n in DGX_H100), "a b"]


def test_a_rank_that_the_node_does_not_have_is_not_started(tmp_path: Path) -> None:
    done = started(wrapper_of(dgx_h100()), tmp_path, SLURM_LOCALID="8")
    assert (done.returncode, done.stdout) == (64, "")
    assert started(wrapper_of(dgx_h100()), tmp_path).returncode != 0


def test_no_name_breaks_out_of_the_script(tmp_path: Path) -> None:
    near = node([port(0, ["PIX"], device=EVIL)], cpus={"GPU-0": "0-1"})
    text = wrapper_of(near)
    assert "evil" not in text
    assert started(text.replace("numactl", "env -S"), tmp_path, LOCAL_RANK="0").stderr
    assert not (tmp_path / "evil").exists()


def wrapper_of(near: Locality) -> str:
    found = map_nics(near)
    assert not isinstance(found, Absent)
    return wrapper(found, job_settings(found), cpu_bindings(found, near))


def started(text: str, folder: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run the script with a program that shows what it was given."""
    show = 'echo "${UCX_NET_DEVICES:-}"; echo "${NCCL_IB_HCA:-}"; echo "$1"'
    return subprocess.run(
        ["/bin/bash", "-s", "--", "/bin/bash", "-c", show, "x", "a b"], input=text, text=True, cwd=folder,
        capture_output=True, check=False, env={"PATH": "/usr/bin:/bin", **environment}, timeout=HANGS,
    )  # fmt: skip


@settings(max_examples=examples(60))
@given(numbers=st.sets(st.integers(0, 500), min_size=1))
def test_processors_are_read_as_they_are_listed(numbers: set[int]) -> None:
    assert set(cpu_numbers(ranges(numbers))) == numbers


@settings(max_examples=examples(60))
@given(text=st.text("0123456789-,", max_size=12) | st.text(max_size=8))
@example("99999-0")
@example("0-99999")
def test_any_text_is_a_list_of_processors_or_none(text: str) -> None:
    assert all(0 <= number < 8192 for number in cpu_numbers(text))


def test_virtual_functions_are_their_card_s_unless_a_pod_has_them_alone() -> None:
    files = Files()
    files.nic("mlx5_0", "0000:18:00.0", "pci0000:16/0000:16:01.0")
    files.nic("mlx5_1", "0000:18:00.2", "pci0000:16/0000:16:01.0")
    files.links[f"{PCI}/0000:18:00.2/physfn"] = "/sys/devices/pci0000:16/0000:16:01.0/0000:18:00.0"
    files.texts[f"{PCI}/0000:1b:00.0/local_cpulist"] = "0-7"
    spots = {name: Place(at, "pci0000:16", ("0000:16:01.0",), 0) for name, at in ADDRESSES.items()}
    gpus = (GpuPart("GPU-0", 0, "NVIDIA H200", spots["gpu"]),)
    cards = tuple(
        NicPart("", name, "", "", spots[name], (("1", "InfiniBand"),)) for name in ("mlx5_0", "mlx5_1")
    )
    both = Topology(gpus, cards, (), (), 1, ())
    near = read_locality(files, both)
    assert ([one.device for one in near.ports], near.others) == (["mlx5_0"], (("mlx5_1", VIRTUAL),))
    assert near.cpus == {"GPU-0": "0-7"}
    for text in ("", "none", "7-0"):
        files.texts[f"{PCI}/0000:1b:00.0/local_cpulist"] = text
        assert read_locality(files, both).cpus == {}
    alone = read_locality(files, replace(both, nics=cards[1:]))
    assert ([one.device for one in alone.ports], alone.others) == (["mlx5_1"], ())


def a3(*, named: bool = True) -> bytes:
    """NCCL's file of a node with eight network interfaces below the switches of GPUs, and one beside them."""
    each = []
    for n in range(8):
        card = nic(f"0000:{n}6:00.0", f"eth{n + 1}" if named else "").replace('dev="0"', f'dev="{n}"')
        each.append(switch(f"0000:{n}1:00.0", gpu(f"0000:{n}4:00.0", dev=n), card))
    return system([*each, nic("0000:f0:00.0", "eth0").replace('dev="0"', 'dev="8"')])


@each(("network", "name"), [("a3-mega", "FASTRAK_IFNAME"), ("a3-high", "GPUDIRECTTCPX_SOCKET_IFNAME")])
def test_network_interfaces_are_mapped_where_a_plugin_sends_by_them(network: str, name: str) -> None:
    with tempfile.NamedTemporaryFile(suffix=".xml") as file:
        file.write(a3())
        file.flush()
        made = told("--machine", file.name, "--network", network)
        asked = told("--machine", file.name)
        shown = run_wirewatch("advise", "gpu-nic", "--machine", file.name, "--network", network).stdout
    names = [f"eth{n + 1}" for n in range(8)]
    assert devices(made) == names
    assert [(one["name"], one["value"]) for one in made["settings"]] == [(f"NCCL_{name}", ",".join(names))]
    assert [one["port"] for one in made["left_out"]] == ["eth0"]
    assert "8 network interfaces in use" in shown
    assert len(shown.splitlines()) <= 15
    assert devices(asked) == []
    assert asked["remarks"][0].endswith("Say --network a3-high or a3-mega")


def test_where_nothing_shows_the_interfaces_they_are_asked_for() -> None:
    for words in (("--machine", "8xH100+a3-mega"), ("--machine", "8xH100+a3-high")):
        made = told(*words)
        assert devices(made) == []
        assert made["remarks"][0].startswith(
            "which network interface is near which GPU is not known here: pass"
        )
    both = told("--replay", "demo-dgx-h200", "--network", "a3-mega")
    assert devices(both)[0] == "mlx5_0"
    assert both["settings"] == []


def test_interfaces_are_read_where_the_node_has_no_rdma_port() -> None:
    files = Files()
    files.texts["/sys/class/net/docker0/operstate"] = "up"
    spots = {"eth0": ("0000:80:00.0", "pci0000:80"), "eth1": ("0000:18:00.0", "pci0000:16/0000:16:01.0")}
    for name, (address, above) in spots.items():
        at = f"/sys/devices/{above}/{address}"
        files.links |= {f"/sys/class/net/{name}/device": at, f"{PCI}/{address}": at}
        files.texts |= {
            f"/sys/class/net/{name}/operstate": "up",
            f"/sys/class/net/{name}/speed": "200000" if name == "eth1" else "-1",
            f"{PCI}/{address}/numa_node": "0",
        }
    spot = Place(ADDRESSES["gpu"], "pci0000:16", ("0000:16:01.0",), 0)
    gpus = (GpuPart("GPU-0", 0, "NVIDIA H100", spot),)
    near = read_locality(files, Topology(gpus, (), (), (), 1, ()))
    assert near.ports == ()
    found = [(one.device, one.paths, one.rate) for one in near.interfaces]
    assert found == [("eth0", ("NODE",), Absent(Why.MISSING, "its speed")), ("eth1", ("PIX",), 25e9)]
    files.nic("mlx5_0", "0000:1a:00.0", "pci0000:16/0000:16:01.0")
    card = NicPart("", "mlx5_0", "", "", spot, (("1", "InfiniBand"),))
    assert read_locality(files, Topology(gpus, (card,), (), (), 1, ())).interfaces == ()


ADDRESSES = {"gpu": "0000:1b:00.0", "mlx5_0": "0000:18:00.0", "mlx5_1": "0000:18:00.2"}


def test_where_bridges_are_hidden_numa_nodes_bound_the_path() -> None:
    files = Files()
    gpus = tuple(
        GpuPart(f"GPU-{n}", n, "NVIDIA H200", Place(f"0000:0{n}:00.0", "pci0000:00", (), n)) for n in range(2)
    )
    cards = tuple(
        NicPart(
            "", f"mlx5_{n}", "", "", Place(f"0000:1{n}:00.0", "pci0000:00", (), 1 - n), (("1", "InfiniBand"),)
        )
        for n in range(2)
    )
    for n in range(2):
        files.nic(f"mlx5_{n}", f"0000:1{n}:00.0", "pci0000:00", str(1 - n))
    near = read_locality(files, Topology(gpus, cards, (), (), 2, ()))
    found = map_nics(near)
    assert not isinstance(found, Absent)
    assert [seat.ports[0].port.device for seat in found.gpus] == ["mlx5_1", "mlx5_0"]
    assert [seat.ports[0].path for seat in found.gpus] == ["NODE", "NODE"]
    assert found.remarks == ("a hypervisor hides PCI bridges: NUMA nodes alone bound those paths",)


@each(
    ("gpu_node", "nic_node", "path"),
    [(0, 0, "NODE"), (0, 1, "SYS"), (None, 0, ""), (0, None, ""), (None, None, "")],
)
def test_a_hidden_path_is_bounded_where_the_numa_nodes_of_both_ends_are_known(
    gpu_node: int | None, nic_node: int | None, path: str
) -> None:
    files = Files()
    files.nic("mlx5_0", "0000:10:00.0", "pci0000:00", "-1" if nic_node is None else str(nic_node))
    gpus = (GpuPart("GPU-0", 0, "NVIDIA H200", Place("0000:00:00.0", "pci0000:00", (), gpu_node)),)
    spot = Place("0000:10:00.0", "pci0000:00", (), nic_node)
    card = NicPart("", "mlx5_0", "", "", spot, (("1", "InfiniBand"),))
    near = read_locality(files, Topology(gpus, (card,), (), (), 2, ()))
    assert [one.paths for one in near.ports] == [(path,)]
