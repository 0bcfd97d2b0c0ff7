"""Topology files of NCCL: what is read of them, and that nothing else happens."""

import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lab.study.topologies import GRAPHS, LINK, gpu, nic, switch, system
from tests.recorded import HERE
from tests.rows import each
from wirewatch.core.pci import Path as Wire
from wirewatch.core.topology import SWITCH, UNKNOWN_PEER
from wirewatch.core.types import Absent, Why
from wirewatch_lab.study import topologyxml
from wirewatch_lab.study.topologyxml import NcclGraphs, NcclTopology, XmlPlace, path_in_file, read_topology

WHOLE = system(
    [
        switch("0000:10:00.0", gpu("0000:1b:00.0"), nic("0000:18:00.0", "mlx5_0")),
        switch("0000:20:00.0", switch("0000:21:00.0", gpu("0000:2b:00.0", 1)), nic("0000:28:00.0", "mlx5_1")),
    ],
    [gpu("0000:9b:00.0", 2, wires='<nvlink target="0000:1b:00.0" count="4" tclass="0x030200"/>')],
)


def read(body: bytes) -> NcclTopology:
    found = read_topology(io.BytesIO(body))
    assert isinstance(found, NcclTopology)
    return found


def refused(body: bytes) -> str:
    found = read_topology(io.BytesIO(body))
    assert isinstance(found, Absent)
    assert found.why is Why.MALFORMED
    assert "\n" not in found.detail
    return found.detail


def test_gpus_nics_and_where_they_hang() -> None:
    found = read(WHOLE)
    first, second, third = found.gpus
    assert (first.place.address, first.dev, first.gdr, first.nvlinks) == (
        "0000:1b:00.0",
        0,
        True,
        {"switch": 18},
    )
    assert (first.place.bridges, first.place.numa) == (("0000:10:00.0",), 0)
    assert (first.place.generation, first.place.lanes) == (5, 16)
    assert second.place.bridges == ("0000:20:00.0", "0000:21:00.0")
    assert third.nvlinks == {"0000:1b:00.0": 4}
    assert [(n.name, n.number, n.rate, n.gdr) for n in found.nics] == [
        ("mlx5_0", 0, 50e9, True),
        ("mlx5_1", 0, 50e9, True),
    ]
    assert (found.cpus, found.hosts, found.notes) == (2, 0, ())


def test_paths_are_those_of_nccl() -> None:
    found = read(WHOLE)
    one, two, three = (gpu.place for gpu in found.gpus)
    near, far = (nic.place for nic in found.nics)
    assert path_in_file(one, near) is Wire.PIX
    assert path_in_file(two, far) is Wire.PXB
    assert path_in_file(one, far) is Wire.PHB
    assert path_in_file(three, near) is Wire.SYS


def test_a_file_by_hand_has_pci_devices_alone() -> None:
    bare = f'<pci busid="0001:00:00.0" class="0x030200" {LINK}/><pci busid="0101:00:00.0" class="0x020700"/>'
    found = read(system([switch("ffff:ff:01.0", bare)]))
    (only,), (card,) = found.gpus, found.nics
    assert (only.dev, only.gdr, only.nvlinks) == (None, None, {})
    assert (card.name, card.rate, card.place.generation, card.place.lanes) == ("", None, None, None)
    assert path_in_file(only.place, card.place) is Wire.PIX
    assert "GPU 0001:00:00.0, NUMA node 0" in found.lines()[1]


def test_a_socket_s_nic_has_no_pci_device() -> None:
    found = read(system([gpu("0000:00:06.0"), '<nic><net name="eth0" dev="0" speed="10000" gdr="0"/></nic>']))
    (only,) = found.nics
    assert (only.name, only.place.address, only.rate, only.gdr) == ("eth0", "", 1.25e9, False)


BEGIN, END = b'<system version="1"><cpu numaid="0" arch="x86_64" vendor="i">', b"</cpu></system>"
BESIDE = len(BEGIN) + len(END)
EMPTY = "a topology of NCCL without a GPU or NIC"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b" " * ((16 << 20) - BESIDE), EMPTY),
        (b" " * ((16 << 20) - BESIDE + 1), "larger than 16 MiB"),
        (b"<a/>" * 99_998, EMPTY),
        (b"<a/>" * 99_999, "more than 100000 elements, or deeper than 64"),
        (b"<a>" * 62 + b"</a>" * 62, EMPTY),
        (b"<a>" * 63 + b"</a>" * 63, "more than 100000 elements, or deeper than 64"),
    ],
    ids=["large", "too large", "many", "too many", "deep", "too deep"],
)
def test_a_file_that_no_machine_has_is_refused(body: bytes, why: str) -> None:
    found = read_topology(io.BytesIO(BEGIN + body + END))
    assert isinstance(found, Absent)
    assert why in found.detail


def test_no_more_than_twenty_odd_things_are_noted() -> None:
    odd = "".join(gpu("0000:1b:00.0").replace('dev="0"', f'dev="x{number}"') for number in range(25))
    assert len(read(system([odd])).notes) == 20
    others = "".join(f"<a{number}/>" for number in range(25))
    assert len(read(system([gpu("0000:1b:00.0"), others])).notes) == 20


WIRE = '<nvlink target="{}" count="{}" tclass="{}"/>'
BARE = '<pci busid="0000:{}:00.0" class="{}" {}>{}</pci>'


@each(
    ("wires", "peers"),
    [
        (WIRE.format("0000:2b:00.0", 4, "0x030200"), {"0000:2b:00.0": 4}),
        (WIRE.format("nowhere", 4, "0x030200"), {UNKNOWN_PEER: 4}),
        (WIRE.format("0000:2b:00.0", 4, "0x0a"), {UNKNOWN_PEER: 4}),
        (WIRE.format("fffffff:ff:ff.0", 4, "0x068000"), {SWITCH: 4}),
        (WIRE.format("0000:2b:00.0", "many", "0x030200"), {}),
        ('<nvlink target="0000:2b:00.0" tclass="0x030200"/>', {}),
        (WIRE.format("0000:2b:00.0", 4, "0x030200") * 2, {"0000:2b:00.0": 8}),
    ],
)
def test_links_of_a_gpu_are_counted_by_their_other_end(wires: str, peers: dict[str, int]) -> None:
    (only,) = read(system([gpu("0000:1b:00.0", wires=wires)])).gpus
    assert only.nvlinks == peers


@each(
    ("element", "gpus", "nics"),
    [
        (BARE.format("1b", "0x030200", LINK, ""), ["0000:1b:00.0"], []),
        (BARE.format("1b", "0x030200", LINK, BARE.format("1c", "0x010000", LINK, "")), [], []),
        (BARE.format("1b", "0x010000", LINK, '<gpu dev="0"/>'), ["0000:1b:00.0"], []),
        (BARE.format("1b", "0x020700", LINK, ""), [], ["0000:1b:00.0"]),
        (BARE.format("1b", "0x020700", LINK, BARE.format("1c", "0x010000", LINK, "")), [], []),
        (BARE.format("1b", "0x010000", LINK, '<nic><net name="a"/><net name="b"/></nic>'), [], ["a", "b"]),
        ('<nic><net name="a"/></nic><nic/>', [], ["a"]),
        (BARE.format("1b", "0x02", LINK, '<nic><net name="a"/></nic>' * 2), [], ["a", "a"]),
        (WIRE.format("0000:2b:00.0", 4, "0x030200"), [], []),
        ('<gpu dev="0"/><net name="a"/>', [], []),
    ],
)
def test_a_device_is_what_stands_in_it_or_a_leaf_of_its_class(
    element: str, gpus: list[str], nics: list[str]
) -> None:
    found = read(system([element, gpu("0000:9b:00.0", links=0), nic("0000:9c:00.0", "last")]))
    assert [one.place.address for one in found.gpus] == [*gpus, "0000:9b:00.0"]
    assert [one.name or one.place.address for one in found.nics] == [*nics, "last"]


def test_a_device_without_a_cpu_has_no_numa_node() -> None:
    alone = f'<system version="1">{gpu("0000:1b:00.0")}{{}}</system>'
    place = read(alone.format("").encode()).gpus[0].place
    assert (place.numa, place.affinity) == (None, "")
    card = '<cpu affinity="00ff"><nic><net name="a"/></nic></cpu>'
    found = read(alone.format(card).encode())
    (only,) = found.nics
    assert (only.place.numa, only.place.affinity, only.rate) == (None, "00ff", None)
    assert (found.nics[0].place.address, found.notes) == ("", ())


def test_ports_of_one_device_are_beside_each_other() -> None:
    one = XmlPlace("0000:1b:00.0", (), 0, 0, None, None)
    found = [path_in_file(one, replace(one, address=address)) for address in (one.address, "0000:2b:00.0")]
    assert found == [Wire.PIX, Wire.PHB]


@pytest.mark.parametrize(("speed", "rate"), [(-1, None), (0, None), (1, 125e3), (400000, 50e9)])
def test_a_speed_below_one_is_no_rate(speed: int, rate: float | None) -> None:
    """The kernel says -1 of a port that is down."""
    (only,) = read(system([nic("0000:18:00.0", "mlx5_0", megabits=speed)])).nics
    assert only.rate == rate


def test_what_is_odd_is_noted_and_loses_nothing_else() -> None:
    body = system([gpu("nowhere"), gpu("0000:1b:00.0").replace('dev="0"', 'dev="many"'), "<laser a='1'/>"])
    found = read(body)
    assert len(found.gpus) == 2
    assert found.notes == ("'nowhere' is no PCI address", "gpu dev='many' is no number", "1 <laser> not read")
    assert all(f"  {note}" in found.lines() for note in found.notes)


def test_unknown_width_and_numa_are_not_known() -> None:
    flat = gpu("0000:00:06.0", link='link_speed="" link_width="0"')
    place = read(system([flat], numa=False)).gpus[0].place
    assert (place.generation, place.lanes, place.numa) == (None, None, None)


def test_graphs_are_rings_in_a_line_each() -> None:
    found = read_topology(io.BytesIO(GRAPHS))
    assert isinstance(found, NcclGraphs)
    head, ring, nvls = found.lines()
    assert head.startswith("NCCL_GRAPH_DUMP_FILE: rings and trees that NCCL found")
    assert ring == (
        "  ring: 2 channels at 30 GB/s, farthest path NVL inside the node and PIX to NICs, in 2 orders, the "
        "first: 0 1"
    )
    assert nvls == "  NVLS: NCCL found none"


ODD = (
    b'<graphs version="1"><graph id="0" nchannels="1" speedintra="30" typeintra="NVL" typeinter="PIX">'
    b'<channel><gpu rank="3"/><gpu dev="x"/><gpu/></channel></graph><graph pattern="9"/></graphs>'
)
CARDS = system(
    [
        switch(
            "0000:10:00.0",
            nic("0000:18:00.0", "a", port=0, megabits=0).replace('gdr="1"', ""),
            '<pci busid="0000:19:00.0" class="0x020000"/>',
            nic("0000:1a:00.0", "b").replace('port="1"', ""),
        )
    ],
    [gpu("0000:9b:00.0", links=0)],
)
PEERS = system(
    [gpu("0000:1b:00.0")],
    [
        gpu(
            "0000:2b:00.0", 1,
            wires='<nvlink target="0000:1b:00.0" count="4" tclass="0x030200"/>'
            '<nvlink target="0000:99:00.0" count="1" tclass="0x0a"/>',
        )
    ],
    hosts=("0x1", "0x2"),
)  # fmt: skip
FAST = "PCIe generation 5, 16 lanes"
LINKS, FOUR = "18 NVLinks to the switch", "4 NVLinks to 0000:1b:00.0"
ONE, ORDER = "1 NVLink to a peer that is not known", "PIX to NICs, all in one order"
LINES = {
    "a machine": (
        WHOLE,
        f"""\
A topology of NCCL: 3 GPUs, 2 NICs, 2 CPUs
  GPU 0 at 0000:1b:00.0, NUMA node 0, {FAST}, {LINKS}, GPUDirect RDMA, nearest NIC mlx5_0 (PIX)
  GPU 1 at 0000:2b:00.0, NUMA node 0, {FAST}, {LINKS}, GPUDirect RDMA, nearest NIC mlx5_1 (PXB)
  GPU 2 at 0000:9b:00.0, NUMA node 1, {FAST}, {FOUR}, GPUDirect RDMA, nearest NIC mlx5_0 (SYS)
  NIC mlx5_0, 400 Gb/s, NUMA node 0, {FAST}, GPUDirect RDMA
  NIC mlx5_1, 400 Gb/s, NUMA node 0, {FAST}, GPUDirect RDMA""",
    ),
    "cards that say little": (
        CARDS,
        f"""\
A topology of NCCL: 1 GPU, 3 NICs, 2 CPUs
  GPU 0 at 0000:9b:00.0, NUMA node 1, {FAST}, GPUDirect RDMA, nearest NIC a (SYS)
  NIC a, NUMA node 0, {FAST}
  NIC 0000:19:00.0, NUMA node 0
  NIC b, 400 Gb/s, NUMA node 0, {FAST}, GPUDirect RDMA""",
    ),
    "GPUs joined to each other": (
        PEERS,
        f"""\
A topology of NCCL of 2 hosts: 2 GPUs, 0 NICs, 2 CPUs
  GPU 0 at 0000:1b:00.0, NUMA node 0, {FAST}, {LINKS}, GPUDirect RDMA
  GPU 1 at 0000:2b:00.0, NUMA node 1, {FAST}, 4 NVLinks to 0000:1b:00.0, {ONE}, GPUDirect RDMA""",
    ),
    "an odd graph": (
        ODD,
        f"""\
NCCL_GRAPH_DUMP_FILE: rings and trees that NCCL found. It says nothing of a machine's health.
  a graph without a pattern: 1 channels at 30 GB/s, farthest path NVL inside the node and {ORDER}: 3 x ?
  9: NCCL found none""",
    ),
}


@pytest.mark.parametrize(("body", "lines"), LINES.values(), ids=LINES)
def test_a_file_is_these_lines(body: bytes, lines: str) -> None:
    found = read_topology(io.BytesIO(body))
    assert not isinstance(found, Absent)
    assert "\n".join(found.lines()) == lines


@each(("text", "lanes"), [("0x10", 16), ("16", 16), ("", None), ("1" * 20, int("1" * 20)), ("1" * 21, None)])
def test_a_number_is_decimal_or_hexadecimal_and_no_longer_than_a_counter(
    text: str, lanes: int | None
) -> None:
    body = system([gpu("0000:1b:00.0", link=f'link_speed="32.0 GT/s PCIe" link_width="{text}"')])
    found = read(body)
    assert (found.gpus[0].place.lanes, found.notes) == (lanes, ())


def test_notes_are_said_once_and_no_more_than_twenty() -> None:
    many = [gpu(f"place {n}") for n in range(30)] + [gpu("place 1")]
    assert read(system(many)).notes == tuple(f"'place {n}' is no PCI address" for n in range(20))


def test_what_is_at_a_limit_is_read_and_what_is_over_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    deep = b"<system>" + b"<x>" * 62 + b"<y/>" + b"</x>" * 62 + b"</system>"
    read_ = "a topology of NCCL without a GPU or NIC"
    assert refused(deep) == read_
    assert "deeper than 64" in refused(deep.replace(b"<y/>", b"<y><z/></y>"))
    monkeypatch.setattr(topologyxml, "ELEMENTS", 64)
    assert refused(deep) == read_
    assert "more than 64 elements" in refused(deep.replace(b"<y/>", b"<y/><z/>"))
    monkeypatch.setattr(topologyxml, "BYTES", 1 << 20)
    assert refused(deep + b" " * ((1 << 20) - len(deep))) == read_
    assert refused(deep + b" " * ((1 << 20) - len(deep) + 1)) == "larger than 1 MiB"


@each(
    ("body", "why"),
    [
        (b"", "empty"),
        (b"\x7fELF\x02\x01\x01\x00\x00", "not XML of NCCL"),
        (b"all_reduce 8 float", "not XML of NCCL"),
        (WHOLE[:-20], "a file of NCCL that is cut or damaged: unclosed token"),
        (b"<a/>", "XML, but not of NCCL: it begins with <a>"),
        (b'<system version="1"/>', "without a GPU or NIC"),
        (b'<!DOCTYPE system [<!ENTITY a "b">]><system>&a;</system>', "declares a document type"),
        (b'<!DOCTYPE system SYSTEM "file:///etc/passwd"><system/>', "declares a document type"),
        (b"<system>&lol;</system>", "undefined entity"),
        (b"<pci>" * 100, "or deeper than 64"),
        (b'<?xml version="1.0" encoding="nonsense"?><system/>', "unknown encoding"),
        (WHOLE + b"<system/>", "junk after document element"),
    ],
)
def test_what_is_no_topology_is_refused_in_a_line(body: bytes, why: str) -> None:
    assert why in refused(body)


def test_a_file_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topologyxml, "ELEMENTS", 100)
    assert "more than 100 elements" in refused(b"<system>" + b"<cpu/>" * 200)
    monkeypatch.setattr(topologyxml, "BYTES", 1 << 20)
    assert refused(b"<system>" + b" " * (2 << 20)) == "larger than 1 MiB"


@given(
    st.binary()
    | st.tuples(st.integers(0, len(WHOLE)), st.integers(0, len(WHOLE)), st.binary(max_size=9)).map(
        lambda cut: WHOLE[: cut[0]] + cut[2] + WHOLE[cut[1] :]
    )
)
def test_any_bytes_are_a_topology_or_a_reason(body: bytes) -> None:
    found = read_topology(io.BytesIO(body))
    assert isinstance(found, NcclTopology | NcclGraphs | Absent)
    if isinstance(found, NcclTopology):
        assert len(found.lines()) == 1 + len(found.gpus) + len(found.nics) + len(found.notes)


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        (
            "h200x8/nccl_topo.xml",
            "A topology of NCCL: 8 GPUs, 1 NIC, 1 CPU",
            "  GPU 0 at 0000:00:06.0, PCIe generation 5, 18 NVLinks to the switch, GPUDirect RDMA, nearest ",
        ),
        (
            "published/nccl_topo.ndv5.xml",
            "A topology of NCCL: 8 GPUs, 8 NICs, 2 CPUs",
            "  GPU 0001:00:00.0, NUMA node 0, PCIe generation 5, 16 lanes, nearest NIC 0101:00:00.0 (PIX)",
        ),
        (
            "h200x8/nccl_graph.xml",
            "NCCL_GRAPH_DUMP_FILE: rings and trees that NCCL found. It says nothing of a machine's health.",
            "  ring: 12 channels at 30 GB/s, farthest path NVL inside the node and PIX to NICs, all in one ",
        ),
    ],
)  # fmt: skip
def test_real_files(name: str, first: str, second: str) -> None:
    with (HERE / name).open("rb") as body:
        found = read_topology(body)
    assert not isinstance(found, Absent)
    assert found.lines()[0] == first
    assert found.lines()[1].startswith(second)
