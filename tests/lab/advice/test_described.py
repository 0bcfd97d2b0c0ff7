"""A machine that is described in a few letters: joined as its product is, or refused in one line."""

from contextlib import suppress
from io import BytesIO

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.fuzzing import damaged
from tests.lab.study.topologies import gpu, nic, system
from tests.rows import each
from wirewatch.busbw.expected import wire
from wirewatch.busbw.network import expect_network
from wirewatch.busbw.references import architecture
from wirewatch.core.hostlink import Pcie
from wirewatch.core.topology import WireKind, nvlink_product
from wirewatch.core.types import Absent
from wirewatch_lab.advice.described import PORTS, SOCKETS, DescriptionError, described, machine_of
from wirewatch_lab.advice.machine import AdvisedMachine
from wirewatch_lab.advice.products import PRODUCTS, GpuProduct, gpu_product
from wirewatch_lab.advice.shapes import SHAPES, ModelShape
from wirewatch_lab.study.topologyxml import NcclTopology, read_topology

GOOD = ("8xH100+8xNDR", "4xL40S+2x100G", "72xGB200", "2x h100-nvl", "8xA100-40GB + 4 x hdr")


@each(
    ("text", "kind", "links", "gbs"),
    [
        ("8xH100", WireKind.SWITCH, 18, 478.1),
        ("2xH100 NVL", WireKind.PAIR, 12, 318.7),
        ("4xH100-NVL", WireKind.PCIE, 0, 63.0),
        ("8xA100-40GB", WireKind.SWITCH, 12, 300.0),
        ("8xV100", WireKind.PARTIAL, 6, 150.0),
        ("16xV100", WireKind.SWITCH, 6, 150.0),
        ("8xL40S", WireKind.PCIE, 0, 31.5),
        ("72xGB200", WireKind.SWITCH, 18, 900.0),
        ("8xB300", WireKind.SWITCH, 18, 956.3),
    ],
)
def test_a_product_is_joined_as_it_is_sold(text: str, kind: WireKind, links: int, gbs: float) -> None:
    conditions = described(text).conditions[0]
    rail = wire(conditions)
    assert not isinstance(rail, Absent)
    assert (conditions.group.kind, set(conditions.group.links)) == (kind, {links})
    assert rail.rate / 1e9 == pytest.approx(gbs, rel=1e-3)


@each(
    ("text", "gbs"),
    [
        ("8xH100+8xNDR", 50.0),
        ("8xA100+4xHDR", 12.5),
        ("4xH100+2x400G", 25.0),
        ("8xA100+8xNDR", 31.5),  # PCIe 4
        ("8xA100+4xNDR", 15.75),
        ("8xV100+8xHDR", 15.75),  # PCIe 3
        ("8xB200+8xXDR", 63.0),  # PCIe 5
        ("8xB300+8xXDR", 100.0),
        ("8xH100+8x100G", 12.5),
    ],
)
def test_a_gpus_share_of_the_ports_is_the_slower_of_port_and_slot(text: str, gbs: float) -> None:
    found = expect_network(described(text).conditions[0], "all_reduce", 1 << 30)
    assert not isinstance(found, Absent)
    assert found.busbw / 1e9 == pytest.approx(gbs, rel=2e-3)


@each(
    ("text", "why"),
    [
        ("", "give GPUs by number"),
        ("0xH100", "a node has one GPU or more"),
        ("16xH100", "NVLink joins at most 8"),
        ("73xGB200", "NVLink joins at most 72"),
        ("8xMI300", "no data of a product 'MI300'"),
        ("8xH10", "no data of a product 'H10'; did you mean 'H100'"),
        ("8xH100+8xNRD", "no data of a port 'NRD'; did you mean 'NDR'"),
        ("2xGH200", "pass --machine"),
        ("4xH200-NVL", "NVIDIA H200 NVL may be joined in several ways: pass --machine"),
        ("8xH100+8xOPA", "no data of a port 'OPA'"),
        ("8xH100+0xNDR", "1 to 144 ports"),
        ("8xH100+", "give GPUs by number"),
    ],
)
def test_anything_else_is_refused_in_one_line(text: str, why: str) -> None:
    with pytest.raises(DescriptionError, match=why):
        described(text)


@settings(max_examples=examples(60))
@given(damaged(*GOOD) | st.text())
@example("٣xH100")
@example("8xH100+999999xNDR")
@example("8xA100\n")
def test_any_text_is_a_machine_or_the_one_error(text: str) -> None:
    with suppress(DescriptionError):
        assert 1 <= described(text).conditions[0].group.ranks <= 72


@each("product", PRODUCTS, ids=lambda one: one.name)
def test_a_product_is_found_by_its_own_name_and_by_no_other(product: GpuProduct) -> None:
    assert [one for one in PRODUCTS if gpu_product(one.name) is product] == [product]


@each(
    ("name", "known", "gigabytes"),
    [
        ("H20-141GB", "NVIDIA H20 141GB", 141),
        ("NVIDIA A100-SXM-64GB", "NVIDIA A100-SXM4-64GB", 64),
        ("H100 96GB", "NVIDIA H100 96GB HBM3", 96),
        ("NVIDIA GH200 144G HBM3e", "NVIDIA GH200 144GB", 144),
        ("NVIDIA GH200 480GB", "NVIDIA GH200 480GB", 96),
        ("A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB", 40),
        ("V100-SXM2-16GB", "Tesla V100-SXM2-16GB", 16),
        ("rtx5090", "NVIDIA GeForce RTX 5090", 32),
        ("HGX-H100", "NVIDIA H100 80GB HBM3", 80),
    ],
)
def test_a_memory_in_the_name_is_the_memory(name: str, known: str, gigabytes: int) -> None:
    """And the name of what is found finds it again."""
    product = gpu_product(name)
    assert product is not None
    assert (product.name, product.memory) == (known, gigabytes * 1e9)
    assert gpu_product(product.name) == product


def test_a_product_on_a_switch_has_links_and_an_architecture() -> None:
    for product in PRODUCTS:
        links = nvlink_product(product.name)
        assert (product.domain == 1) == (links is None) or "GH200" in product.name
        if product.domain > 2:
            assert links is not None
            assert 0 not in links.counts
            assert not isinstance(architecture(product.name), Absent)


def test_no_port_is_faster_than_the_slot_that_it_came_with() -> None:
    slots = {3: 15.76e9, 4: 31.51e9, 5: 63.02e9, 6: 121.1e9}
    assert all(port.rate <= slots[port.generation] for port in PORTS.values())


@pytest.mark.parametrize("shape", SHAPES, ids=lambda one: one.name)
def test_the_published_count_follows_from_the_published_shape(shape: ModelShape) -> None:
    assert shape.counted() == shape.parameters


@pytest.mark.parametrize(
    ("name", "active"), [("mixtral-8x7b", 12.9e9), ("mixtral-8x22b", 39e9), ("qwen3-235b-a22b", 22e9)]
)
def test_a_token_is_multiplied_with_the_active_parameters(name: str, active: float) -> None:
    """As the models' own cards state them, which count the embedding too."""
    (one,) = (found for found in SHAPES if found.name == name)
    assert one.worked() + one.vocabulary * one.hidden == pytest.approx(active, rel=0.015)


def test_many_tokens_read_all_experts() -> None:
    (one,) = (found for found in SHAPES if found.name == "mixtral-8x7b")
    assert one.read(1) < one.read(2) < one.read(1000)
    assert one.read(1000) == pytest.approx(one.parameters - one.vocabulary * one.hidden)


LINK = 'link_speed="32.0 GT/s PCIe" link_width="16"'


def of(*gpus: str, nics: str = "") -> AdvisedMachine:
    found = read_topology(BytesIO(system([*gpus, nics])))
    assert isinstance(found, NcclTopology)
    return machine_of(found, "a file")


def bare(address: str) -> str:
    return f'<pci busid="{address}" class="0x030200" {LINK}/>'


@each(
    ("gpus", "known"),
    [
        ((gpu("0000:01:00.0"), gpu("0000:02:00.0", 1)), True),
        ((gpu("0000:01:00.0", links=0), gpu("0000:02:00.0", 1, links=0)), True),
        ((gpu("0000:01:00.0").replace('dev="0"', ""), gpu("0000:02:00.0").replace('dev="0"', "")), True),
        ((bare("0000:01:00.0"), bare("0000:02:00.0")), False),
        ((bare("0000:01:00.0"), gpu("0000:02:00.0", 1)), True),
    ],
    ids=["links and numbers", "numbers", "links", "neither", "of one"],
)
def test_a_file_that_nccl_did_not_write_says_nothing_of_nvlink(gpus: tuple[str, ...], known: bool) -> None:  # noqa: FBT001
    topology = of(*gpus).topology
    assert not isinstance(topology, Absent)
    assert (topology.unread == ()) is known


@pytest.mark.parametrize(("first", "second", "indices"), [(0, 1, [0, 1]), (5, 3, [3, 5]), (2, 2, [0, 1])])
def test_gpus_have_nvmls_numbers_where_each_has_one_of_its_own(
    first: int, second: int, indices: list[int]
) -> None:
    topology = of(gpu("0000:01:00.0", first), gpu("0000:02:00.0", second)).topology
    assert not isinstance(topology, Absent)
    assert [one.index for one in topology.gpus] == indices


def test_cards_of_a_file_are_ports_and_interfaces_are_none() -> None:
    cards = (
        nic("0000:18:00.0", "mlx5_0")
        + nic("0000:19:00.0", "eth0")
        + nic("0000:1a:00.0", "", 0).replace('port="1"', "")
    )
    near = of(gpu("0000:01:00.0"), gpu("0000:02:00.0", 1), nics=cards).locality
    assert not isinstance(near, Absent)
    assert [(one.device, one.port, one.card) for one in near.ports] == [
        ("mlx5_0", "", "0000:18:00"), ("0000:1a:00.0", "", "0000:1a:00"),
    ]  # fmt: skip
    assert near.others == (("eth0", SOCKETS),)
    assert isinstance(near.ports[1].rate, Absent)
    assert near.ports[0].pcie == Pcie(5, 16)


@pytest.mark.parametrize("lost", ['link_width="16"', 'link_speed="32.0 GT/s PCIe"'])
def test_a_card_of_which_the_file_lacks_the_link_has_none(lost: str) -> None:
    near = of(gpu("0000:01:00.0"), nics=nic("0000:18:00.0", "mlx5_0").replace(lost, "")).locality
    assert not isinstance(near, Absent)
    assert isinstance(near.ports[0].pcie, Absent)


@each(
    ("affinity", "cpus"),
    [
        ("00000000,0000000f", "0-3"),
        ("00000001,00000000", "32"),
        ("3", "0-1"),
        ("x", None),
        ("", None),
        ("0", None),
    ],
)
def test_processors_are_those_of_the_mask(affinity: str, cpus: str | None) -> None:
    body = system([gpu("0000:01:00.0")]).decode().replace("<cpu ", f'<cpu affinity="{affinity}" ')
    found = read_topology(BytesIO(body.encode()))
    assert isinstance(found, NcclTopology)
    near = machine_of(found, "a file").locality
    assert not isinstance(near, Absent)
    assert dict(near.cpus) == ({} if cpus is None else {"0000:01:00.0": cpus})


@each(
    ("text", "kind", "links"),
    [
        ("2xH100 NVL", WireKind.PAIR, 12), ("3xH100 NVL", WireKind.PCIE, 0),
        ("2xA100 PCIe", WireKind.PAIR, 12),
        ("2xV100", WireKind.MESH, 6), ("4xV100", WireKind.MESH, 6), ("5xV100", WireKind.PARTIAL, 6),
        ("9xV100", WireKind.SWITCH, 6), ("2xH100", WireKind.SWITCH, 18), ("2xL40S", WireKind.PCIE, 0),
    ],
)  # fmt: skip
def test_the_wires_of_so_many(text: str, kind: WireKind, links: int) -> None:
    (conditions,) = described(text).conditions
    assert (conditions.group.kind, set(conditions.group.links)) == (kind, {links})
    assert isinstance(conditions.group.crossing, Absent) is (kind is WireKind.PCIE)


@each(
    ("text", "why"),
    [
        ("3xH200 NVL", "NVIDIA H200 NVL may be joined in several ways: pass --machine"),
        ("9xH100", "NVLink joins at most 8 NVIDIA H100 80GB HBM3"),
        ("0xH100", "a node has one GPU or more"),
        ("8xH100+0xNDR", "a node has 1 to 144 ports, not 0"),
        ("8xH100+145xNDR", "a node has 1 to 144 ports, not 145"),
        ("8xH100+8xNDX", "no data of a port 'NDX'; did you mean 'NDR'"),
        ("8xH10", "no data of a product 'H10'; did you mean 'H100'"),
        ("H100", "give GPUs by number and product"),
    ],
)
def test_what_describes_no_node_says_why(text: str, why: str) -> None:
    with pytest.raises(DescriptionError) as raised:
        described(text)
    assert str(raised.value).startswith(why)


def test_a_machine_has_as_many_ports_as_a_node_may_have() -> None:
    assert len(described("8xH100+144xNDR").conditions[0].network) == 144  # type: ignore[arg-type]
    assert len(described("2xH200 NVL").conditions) == 1


@pytest.mark.parametrize("text", ["8xH100+p6", "8xH100+8xWIFI", "8xH100+"])
def test_a_network_that_is_not_known_describes_no_node(text: str) -> None:
    with pytest.raises(DescriptionError):
        described(text)


@pytest.mark.parametrize(
    ("name", "product", "gigabytes"),
    [("NVIDIA A10G", "NVIDIA A10G", 24), ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB", 40),
     ("NVIDIA H20-141GB", "NVIDIA H20 141GB", 141)],
)  # fmt: skip
def test_a_letter_of_a_product_is_no_amount_of_memory(name: str, product: str, gigabytes: int) -> None:
    found = gpu_product(name)
    assert found is not None
    assert (found.name, found.memory) == (product, gigabytes * 1e9)
