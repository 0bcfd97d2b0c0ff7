"""The bundled recording demo-dgx-h200: made by its tool, whole, and laid out as it says."""

import gzip
import json
from pathlib import Path

import pytest

from tests.node.hw.recordings import Time, player
from tests.rows import each
from tools.demo_nics import ETHERNET, INFINIBAND, NICS, Nic
from tools.demo_pci import GPU_BUSES, address, gpu_address
from tools.demo_recording import build
from wirewatch.cli import recorder
from wirewatch.core.kernellog import parse_events, parse_record, wanted
from wirewatch.core.nvml import as_str, identify, member
from wirewatch.core.pci import Path as PciPath
from wirewatch.core.pci import Place, acs_redirects, hidden, path_between
from wirewatch.core.rdma import WORD, parse_ibstat, physical_state, port_rate, port_state
from wirewatch.core.tree import count_nodes, rdma_address, read_place
from wirewatch.core.types import Absent, Why
from wirewatch.hw.host import CATALOGUE as HOST
from wirewatch.hw.overlay import Player, ReplayNvml
from wirewatch.hw.recording import BUNDLED, load_recording
from wirewatch.hw.replay import ReplayCommand, ReplayHost, ReplayKmsg, ReplaySysfs

NAME = "demo-dgx-h200"
DEMO = load_recording(NAME)
GPUS = range(len(GPU_BUSES))
MOMENTS = (0.0, 60.0)


def at(seconds: float = 0.0) -> Player:
    return player(DEMO, Time(seconds))


def files(seconds: float = 0.0) -> ReplaySysfs:
    return ReplaySysfs(at(seconds))


def where(pci: str) -> Place:
    found = read_place(files(), pci)
    assert isinstance(found, Place), found
    return found


def port(name: str, file: str) -> str:
    return f"{recorder.RDMA}/{name}/ports/1/{file}"


def lines(folder: Path) -> list[str]:
    return gzip.decompress((folder / "moments.jsonl.gz").read_bytes()).decode().splitlines()


def test_the_tool_makes_the_bundled_recording(tmp_path: Path) -> None:
    """Compared unpacked: other versions of zlib pack the same lines differently."""
    count = build(tmp_path)
    assert lines(tmp_path) == lines(BUNDLED / NAME)
    assert len(lines(tmp_path)) == count
    told = [(row["moment"], row["port"], row["question"]) for row in map(json.loads, lines(tmp_path))]
    assert len(set(told)) == len(told)
    assert (tmp_path / "manifest.json").read_bytes() == (BUNDLED / NAME / "manifest.json").read_bytes()


def test_the_manifest_says_that_part_of_it_is_made_up() -> None:
    assert DEMO.synthetic
    assert DEMO.manifest["source"] == "synthetic"
    assert "made up" in DEMO.manifest["note"]
    assert "h200x8" in DEMO.manifest["note"]
    real = load_recording("h200x8")
    assert [DEMO.manifest[k] for k in ("gpus", "driver", "product")] == [
        real.manifest[k] for k in ("gpus", "driver", "product")
    ]
    assert (DEMO.times[0], DEMO.times[-1]) == MOMENTS
    assert {m["note"] for m in DEMO.manifest["moments"]} == {"idle", "at work"}


@pytest.mark.parametrize("seconds", MOMENTS)
def test_every_file_that_a_recording_holds_is_in_it(seconds: float) -> None:
    sysfs = files(seconds)
    calls = {"read": sysfs.read, "list": sysfs.entries, "link": sysfs.link, "data": sysfs.data}
    walked = {access: calls[access[0]](access[1]) for access in recorder.walk(sysfs)}
    assert {call for call, _ in walked} == set(calls)
    reasons = {value.why for value in walked.values() if isinstance(value, Absent)}
    assert reasons == {Why.MISSING, Why.UNSUPPORTED}
    recorded = {tuple(q.split(" ", 1)) for p, q in DEMO.answers if p == "sysfs"}
    assert recorded == set(walked)


@pytest.mark.parametrize("seconds", MOMENTS)
def test_host_kernel_log_ibstat_and_events_are_in_it(seconds: float) -> None:
    played = at(seconds)
    assert not any(isinstance(ReplayHost(played, 0.0).ask(q).value, Absent) for q in HOST)
    assert played.answer(("nvml", "Events()")).value == []
    log, printed = ReplayKmsg(played).records(-1), ReplayCommand(played).run("ibstat")
    assert not isinstance(log, Absent)
    assert not isinstance(printed, Absent)
    records = [parse_record(raw) for raw in log.records]
    assert all(wanted(raw) for raw in log.records)
    assert None not in records
    events, about = parse_events([r for r in records if r])
    assert events == (), "a driver that starts its card says nothing of a fault"
    assert about == ""


@each("index", GPUS)
def test_nvml_and_sysfs_agree_where_a_gpu_is(index: int) -> None:
    nvml = ReplayNvml(at())
    gpu = identify(nvml.answer, index, None)
    assert gpu.pci == gpu_address(index)
    assert files().read(f"{recorder.PCI}/{gpu.pci}/device") == "0x2335"
    for call in ("PciInfo", "PciInfo_v3"):
        info = at().answer(("nvml", f"gpu{index}/{call}()")).value
        assert member(info, "busId") == f"0000{gpu_address(index).upper()}"
        assert member(info, "busIdLegacy") == gpu_address(index).upper()
        assert [member(info, name) for name in ("domain", "bus", "device")] == [0, GPU_BUSES[index], 0]


@each("index", GPUS)
def test_a_gpu_has_one_nic_at_its_switch_and_the_others_behind_the_cpu(index: int) -> None:
    gpu, nodes = where(gpu_address(index)), count_nodes(files())
    assert nodes == 2
    assert not hidden(gpu)
    for nic in NICS:
        pci = rdma_address(files(), nic.name)
        assert pci == address(nic.bus)
        other = where(address(nic.bus))
        far = PciPath.NODE if gpu.numa == other.numa else PciPath.SYS
        expected = PciPath.PIX if nic.name == f"mlx5_{index}" else far
        assert path_between(gpu, other, nodes=nodes) is expected, nic.name


def test_half_of_the_node_is_on_each_cpu() -> None:
    assert [where(gpu_address(i)).numa for i in GPUS] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [where(address(nic.bus)).numa for nic in NICS] == [0, 0, 0, 0, 1, 1, 1, 1, 0, 1]


@each("index", GPUS)
def test_the_levels_that_nvml_gives_between_gpus_fit_the_tree(index: int) -> None:
    levels = {40: PciPath.NODE, 50: PciPath.SYS}
    for other in set(GPUS) - {index}:
        told = at().answer(("nvml", f"gpu{index}/TopologyCommonAncestor({other})")).value
        assert isinstance(told, int)
        found = path_between(where(gpu_address(index)), where(gpu_address(other)), nodes=2)
        assert levels[told] is found


def test_no_bridge_redirects_packets_between_peers() -> None:
    sysfs = files()
    found = [path for call, path in recorder.walk(sysfs) if call == "data"]
    assert len(found) == 8 * 4 + 2 + 5
    for path in found:
        config = sysfs.data(path)
        assert isinstance(config, bytes)
        assert len(config) == 4096
        assert acs_redirects(config) == ()
        folder = path.removesuffix("/config")
        assert f"0x{int.from_bytes(config[:2], 'little'):04x}" == sysfs.read(f"{folder}/vendor")
        assert f"0x{int.from_bytes(config[2:4], 'little'):04x}" == sysfs.read(f"{folder}/device")
        assert f"0x{int.from_bytes(config[9:12], 'little'):06x}" == sysfs.read(f"{folder}/class")


@pytest.mark.parametrize("seconds", MOMENTS)
def test_ibstat_and_sysfs_say_the_same(seconds: float) -> None:
    sysfs, printed = files(seconds), ReplayCommand(at(seconds)).run("ibstat")
    assert not isinstance(printed, Absent)
    told = parse_ibstat(printed.out)
    assert told.unknown == ()
    assert list(told.devices) == sysfs.entries(recorder.RDMA) == sorted(nic.name for nic in NICS)
    for (name, number), facts in told.ports.items():
        rate = port_rate(sysfs.read(port(name, "rate")))
        assert not isinstance(rate, Absent)
        assert (number, facts.rate) == ("1", rate.bytes_per_second)
        assert facts.state == port_state(sysfs.read(port(name, "state"))) == "active"
        assert facts.physical == physical_state(sysfs.read(port(name, "phys_state"))) == "link_up"
        assert facts.link_layer == sysfs.read(port(name, "link_layer"))
        assert facts.lid == int(as_text(sysfs.read(port(name, "lid"))), 16)
        guid = told.devices[name]["Node GUID"].removeprefix("0x")
        assert guid == as_text(sysfs.read(f"{recorder.RDMA}/{name}/node_guid")).replace(":", "")


def as_text(value: str | Absent) -> str:
    text = as_str(value)
    assert isinstance(text, str)
    return text


def test_there_are_eight_ports_of_infiniband_and_two_of_ethernet() -> None:
    layers = [files().read(port(nic.name, "link_layer")) for nic in NICS]
    assert layers == [INFINIBAND] * 8 + [ETHERNET] * 2
    for nic in NICS:
        assert files().entries(f"{recorder.RDMA}/{nic.name}/device/net") == [nic.netdev]
        assert files().read(f"{recorder.NET}/{nic.netdev}/operstate") == "up"


@pytest.mark.parametrize("nic", NICS, ids=lambda nic: nic.name)
def test_bytes_grow_between_the_moments_and_errors_do_not(nic: Nic) -> None:
    grown = {}
    for folder in ("counters", "hw_counters"):
        listed = files().entries(port(nic.name, folder))
        assert not isinstance(listed, Absent)
        for file in listed:
            path = port(nic.name, f"{folder}/{file}")
            values = [int(as_text(files(seconds).read(path))) for seconds in MOMENTS]
            if values[0] != values[1]:
                grown[file] = values[1] - values[0]
    traffic = {"data", "packets", "wait", "requests"}
    congestion = {"np_cnp_sent", "np_ecn_marked_roce_packets", "rp_cnp_handled"}
    assert all(file.rpartition("_")[2] in traffic for file in set(grown) - congestion)
    rate = grown["port_xmit_data"] * WORD / MOMENTS[1]
    line = port_rate(files().read(port(nic.name, "rate")))
    assert not isinstance(line, Absent)
    assert 1e9 < rate < line.bytes_per_second


def test_names_look_like_masked_ones() -> None:
    guids = [as_text(files().read(f"{recorder.RDMA}/{nic.name}/node_guid")) for nic in NICS]
    assert len(set(guids)) == len(NICS)
    assert all(guid.startswith("0000:0000:0000:00") for guid in guids)
