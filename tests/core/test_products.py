"""Which links a product has when nothing is wrong."""

import pytest

from wirewatch.core.topology import NVLINK_PRODUCTS, nvlink_product


@pytest.mark.parametrize(
    ("name", "links"),
    [
        ("NVIDIA H100 80GB HBM3", 18),
        ("NVIDIA H200", 18),
        ("NVIDIA H20", 18),
        ("NVIDIA H20-3e", 18),
        ("NVIDIA H800", 8),
        ("NVIDIA A100-SXM4-40GB", 12),
        ("NVIDIA A100-SXM4-80GB", 12),
        ("NVIDIA A800-SXM4-80GB", 8),
        ("NVIDIA B200", 18),
        ("NVIDIA GB200", 18),
        ("NVIDIA B300 SXM6 AC", 18),
        ("NVIDIA GB300", 18),
        ("Tesla V100-SXM2-16GB", 6),
    ],
)
def test_a_product_on_a_baseboard_has_one_right_number_of_links(name: str, links: int) -> None:
    product = nvlink_product(name)
    assert product is not None
    assert product.counts == (links,)


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA H100 PCIe",
        "NVIDIA H100 NVL",
        "NVIDIA H200 NVL",
        "NVIDIA A100-PCIE-40GB",
        "NVIDIA A100 80GB PCIe",
        "NVIDIA A800 80GB PCIe",
        "NVIDIA A40",
        "NVIDIA A30",
        "NVIDIA RTX A6000",
    ],
)
def test_a_card_that_takes_bridges_is_healthy_with_and_without_them(name: str) -> None:
    product = nvlink_product(name)
    assert product is not None
    assert {0, 12} <= set(product.counts)


def test_an_h100_card_with_three_bridges_and_six_idle_links_is_healthy() -> None:
    product = nvlink_product("NVIDIA H100 NVL")
    assert product is not None
    assert {12, 18} <= set(product.counts)


@pytest.mark.parametrize(
    "name",
    ["NVIDIA L40S", "NVIDIA L4", "NVIDIA A10", "NVIDIA A16", "Tesla T4", "NVIDIA GeForce RTX 4090", ""],
)
def test_a_product_without_nvlink_has_no_entry(name: str) -> None:
    assert nvlink_product(name) is None


def test_a_product_nobody_has_listed_yet_has_no_entry() -> None:
    assert nvlink_product("NVIDIA R100") is None


@pytest.mark.parametrize(
    ("name", "both_ways"),
    [("NVIDIA A100-SXM4-80GB", 600e9), ("NVIDIA H100 80GB HBM3", 900e9), ("NVIDIA B200", 1800e9)],
)
def test_links_times_rate_is_what_the_product_is_sold_with(name: str, both_ways: float) -> None:
    product = nvlink_product(name)
    assert product is not None
    assert 2 * product.link_rate * product.counts[0] == pytest.approx(both_ways, rel=0.07)


def test_every_entry_says_where_it_comes_from() -> None:
    assert all(product.source and product.link_rate > 0 for product in NVLINK_PRODUCTS)


def test_a_single_grace_hopper_without_switches_is_not_expected_to_have_18_links() -> None:
    """GH200 is not H200: standalone it has C2C to its processor and no link to any GPU.

    The same mistake in another tool: https://github.com/leptonai/gpud/pull/1206.
    """
    product = nvlink_product("NVIDIA GH200 480GB")
    assert product is None or 0 in product.counts


@pytest.mark.parametrize("name", ["NVIDIA RTX A4000", "NVIDIA RTX A400", "NVIDIA RTX A3000 Laptop GPU"])
def test_a_workstation_card_without_nvlink_is_not_taken_for_an_a40_or_a30(name: str) -> None:
    assert nvlink_product(name) is None
