"""A machine that is described in a few letters: joined as its product is, or refused in one line."""

from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.fuzzing import damaged
from wirewatch.busbw.expected import wire
from wirewatch.busbw.network import expect_network
from wirewatch.busbw.references import architecture
from wirewatch.core.topology import WireKind, nvlink_product
from wirewatch.core.types import Absent
from wirewatch_lab.advice.described import PORTS, DescriptionError, described
from wirewatch_lab.advice.products import PRODUCTS, GpuProduct, gpu_product
from wirewatch_lab.advice.shapes import SHAPES, ModelShape

GOOD = ("8xH100+8xNDR", "4xL40S+2x100G", "72xGB200", "2x h100-nvl", "8xA100-40GB + 4 x hdr")


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "give a number of GPUs"),
        ("1xH100", "two GPUs or more"),
        ("16xH100", "NVLink joins at most 8"),
        ("73xGB200", "NVLink joins at most 72"),
        ("8xMI300", "no data of a product 'MI300'"),
        ("8xH10", "no data of a product 'H10'; did you mean 'H100'"),
        ("8xH100+8xNRD", "no data of a port 'NRD'; did you mean 'NDR'"),
        ("2xGH200", "pass --topology"),
        ("4xH200-NVL", "NVIDIA H200 NVL may be joined in several ways: pass --topology"),
        ("8xH100+8xOPA", "no data of a port 'OPA'"),
        ("8xH100+0xNDR", "1 to 144 ports"),
        ("8xH100+", "give a number of GPUs"),
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
        assert 2 <= described(text).conditions[0].group.ranks <= 72


@pytest.mark.parametrize("product", PRODUCTS, ids=lambda one: one.name)
def test_a_product_is_found_by_its_own_name_and_by_no_other(product: GpuProduct) -> None:
    assert [one for one in PRODUCTS if gpu_product(one.name) is product] == [product]


@pytest.mark.parametrize(
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
