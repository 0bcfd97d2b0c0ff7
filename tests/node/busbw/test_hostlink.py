"""What a host link should carry at most, and when that is no measure."""

import pytest

from wirewatch.busbw.hostlink import HostExpectation, expect_host, is_placed
from wirewatch.busbw.references import Confidence
from wirewatch.core.hostlink import HostPath, Pcie
from wirewatch.core.types import Absent, Why


def expected(generation: int, lanes: int, payload: int | None = 256) -> HostExpectation:
    found = expect_host(HostPath(Pcie(generation, lanes), payload, hidden=False, nodes=1), None)
    assert isinstance(found, HostExpectation)
    return found


PUBLISHED = {(5, 16): 55.63e9, (4, 16): 26.0e9, (3, 16): 12.5e9}
"""To the device: NVIDIA's listings of nvbandwidth for H100 and A100, and what V100 are known for."""


@pytest.mark.parametrize("link", PUBLISHED)
def test_published_figures_of_healthy_links_reach_four_fifths_and_never_all(link: tuple[int, int]) -> None:
    assert 0.8 < PUBLISHED[link] / expected(*link).to_device < 1


def test_packets_cost_header_and_framing() -> None:
    found = expected(5, 16)
    wire = 32e9 * 128 / 130 * 16 / 8
    assert found.to_device == pytest.approx(wire * 256 / 276)
    assert found.from_device == pytest.approx(wire * 256 / 280)
    assert expected(5, 16, 128).to_device == pytest.approx(wire * 128 / 148)
    assert found.derivation == (
        "the narrowest link: PCIe 5 x16 = 63.0 GB/s each way",
        "packets of 256 B: 58.4 GB/s to the GPU, 57.6 GB/s from it",
    )
    assert "256 B, which is taken as given" in expected(5, 16, None).derivation[1]
    assert found.confidence is Confidence.DERIVED


@pytest.mark.parametrize(("lanes", "generation"), [(0, 5), (16, 0), (16, 9)])
def test_what_is_no_link_has_no_expectation(lanes: int, generation: int) -> None:
    assert isinstance(expect_host(HostPath(Pcie(generation, lanes)), None), Absent)


def test_a_link_that_is_not_known_says_why() -> None:
    found = expect_host(HostPath(Absent(Why.UNSUPPORTED, "not told")), near=True)
    assert found == Absent(Why.UNSUPPORTED, "PCIe generation and lanes: not told")


@pytest.mark.parametrize("nodes", [1, 2, None])
@pytest.mark.parametrize("near", [True, False, None])
def test_memory_is_placed_where_the_cpus_near_are_used_or_there_is_one_node(
    near: bool | None,  # noqa: FBT001 - of the document
    nodes: int | None,
) -> None:
    placed = near or (near is None and nodes == 1)
    assert is_placed(HostPath(Pcie(5, 16), nodes=nodes), near) is bool(placed)
