"""Every product of the matrix: healthy it is OK, one wire less is named, at the start and later."""

from functools import cache

import pytest

from tests.node.products.faults import Wire, wires
from tests.node.products.machine import draw
from tests.node.products.rows import ROWS, Row
from tests.support import Node
from wirewatch.catalogue import discover
from wirewatch.core.topology import nvlink_product
from wirewatch.core.types import Health
from wirewatch.hw.recording import Recording

CONFIRMED = 3
"""Polls after which a fault that stays is FAILED."""
CASES = [(row, wire) for row in ROWS for wire in wires(row)]
each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
each_case = pytest.mark.parametrize(
    ("row", "wire"), CASES, ids=lambda one: getattr(one, "id", None) or one.name
)


@cache
def recording(row: Row) -> str | Recording:
    return row.recording or draw(row)


def found(node: Node) -> set[tuple[str, str, str]]:
    """Rule, GPU and link of each finding, all of which must be FAILED."""
    assert {finding.health for finding in node.findings()} <= {Health.FAILED}
    return {(rule, gpu, link) for rule, gpu, link, _ in node.rules()}


@each_row
def test_a_healthy_node_is_ok_with_all_that_is_watched(row: Row) -> None:
    node = Node(recording(row))
    assert set(node.collectors) >= {one.name for one in discover() if one.options.enabled} - {"agent"}
    for _ in range(8):
        node.poll()
        assert node.findings() == ()
        assert node.health() is Health.OK
    whole = row.gpus - len(row.mig)
    assert len(node.series("gpu_info")) == row.gpus
    assert node.series("nvlink_links", state="active") == [len(row.active)] * whole * bool(row.links)
    peak = len(row.active) * row.rate * 1e6
    assert node.series("nvlink_peak_bytes_per_second") == pytest.approx([peak] * whole * bool(row.links))
    assert node.series("nvlink_links_expected") == [len(row.active)] * whole * row.watched
    assert node.series("c2c_links", state="active") == [row.c2c] * whole * bool(row.c2c)


@each_case
def test_one_wire_less_is_named_later(row: Row, wire: Wire) -> None:
    node = Node(recording(row))
    node.poll("nvlink", "pcie", "inventory")
    wire.happen(node)
    node.poll("nvlink", "pcie", "inventory", times=CONFIRMED)
    assert found(node) == wire.later


@each_case
def test_one_wire_less_is_named_at_the_start(row: Row, wire: Wire) -> None:
    node = Node(recording(row))
    wire.happen(node)
    node.poll("nvlink", "pcie", "inventory", times=CONFIRMED)
    assert found(node) == wire.start


@each_row
def test_a_row_says_where_it_comes_from_and_what_was_drawn(row: Row) -> None:
    assert row.drawn
    assert bool(row.recording) == (row.proof == "recorded")
    assert row.listing or row.proof == "unproven: drawn"
    product = nvlink_product(row.name)
    if row.watched:
        assert product is not None
        assert len(row.active) in product.counts
        assert row.rate * 1e6 == pytest.approx(product.link_rate, rel=0.07)
