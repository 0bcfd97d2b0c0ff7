"""What is known of which node: the wire, and so the share of it, nearly everywhere; an expectation where
something was published. A row for each product, kind of wire and number of GPUs that operators have.

A row says whether the wire is known, and the confidence for all_reduce, all_gather and reduce_scatter of
256 MiB with NCCL's defaults, `-` for no expectation.
"""

from tests.node.busbw.nodes import (
    A100,
    A100_CARD,
    B200,
    H100,
    H100_NVL,
    H200,
    L40S,
    bridged,
    cube,
    meshed,
    node,
    sockets,
    switched,
)
from tests.rows import each
from wirewatch.busbw.expected import Expectation, GroupWire, expect, wire
from wirewatch.core.hostlink import Pcie
from wirewatch.core.probe import MIB, OPS, Conditions
from wirewatch.core.topology import Topology, groups, islands

B300, GB200, GB300 = "NVIDIA B300 SXM6 AC", "NVIDIA GB200", "NVIDIA GB300"
H20, H800, A800, R100 = "NVIDIA H20", "NVIDIA H800", "NVIDIA A800-SXM4-80GB", "NVIDIA R100"
GOOD = ("measured", "measured", "measured")
NONE = ("-", "-", "-")
SOLE = ("published", "-", "-")
LOW = ("low", "-", "-")


def slots(count: int, each: int) -> Topology:
    return node([L40S] * count, {}, sockets(count, each))


ROWS: tuple[tuple[str, Topology, bool, tuple[str, str, str]], ...] = (
    ("2 H100", switched(H100, 2), True, GOOD),
    ("4 H100", switched(H100, 4), True, GOOD),
    ("6 H100", switched(H100, 6), True, ("published", "low", "low")),
    ("8 H100", switched(H100, 8), True, ("published", "measured", "measured")),
    ("2 H200", switched(H200, 2), True, GOOD),
    ("4 H200", switched(H200, 4), True, GOOD),
    ("8 H200", switched(H200, 8), True, ("published", "measured", "measured")),
    ("8 H20", switched(H20, 8), True, ("published", "measured", "measured")),
    ("8 H800", switched(H800, 8, 8), True, ("low", "low", "low")),
    # Before: neither an expectation nor a share of the wire, so that a probe ten times too slow was OK.
    ("2 A100", switched(A100, 2, 12), True, SOLE),
    ("4 A100", switched(A100, 4, 12), True, SOLE),
    ("4 A100 without a switch", meshed(A100, 4, 4), True, SOLE),
    ("8 A100", switched(A100, 8, 12), True, ("measured", "-", "-")),
    ("16 A100", switched(A100, 16, 12), True, ("low", "-", "-")),
    ("8 A800", switched(A800, 8, 8), True, ("low", "-", "-")),
    ("2 B200", switched(B200, 2), True, NONE),
    ("4 B200", switched(B200, 4), True, SOLE),
    ("8 B200", switched(B200, 8), True, ("published", "published", "published")),
    ("8 B300", switched(B300, 8), True, ("low", "low", "low")),
    ("2 GB200", switched(GB200, 2), True, NONE),
    ("4 GB200", switched(GB200, 4), True, SOLE),
    ("4 GB300", switched(GB300, 4), True, ("low", "-", "-")),
    ("8 V100 in a cube", cube(), True, LOW),
    ("2 H100 NVL", bridged(H100_NVL, 1), True, LOW),
    ("2 A100 with bridges", bridged(A100_CARD, 1), True, LOW),
    ("2 L40S on one PCIe switch", slots(2, 2), True, LOW),
    ("4 L40S on one NUMA node", slots(4, 2), True, LOW),
    ("8 L40S on two sockets", slots(8, 2), True, LOW),
    ("8 of a product without data", switched(R100, 8), False, NONE),
)


def conditions(topology: Topology, **more: object) -> Conditions:
    return Conditions(groups(topology, islands(topology))[0], pcie=Pcie(5, 16), **more)  # type: ignore[arg-type]


def confidence(here: Conditions, op: str) -> str:
    told = expect(here, op, 256 * MIB)
    return told.confidence.value if isinstance(told, Expectation) else "-"


@each(("name", "topology", "known", "confidences"), ROWS, ids=[row[0] for row in ROWS])
def test_what_is_known(
    name: str, topology: Topology, *, known: bool, confidences: tuple[str, str, str]
) -> None:
    assert name
    here = conditions(topology)
    assert isinstance(wire(here), GroupWire) == known
    assert tuple(confidence(here, op) for op in OPS) == confidences


def test_the_rate_that_the_driver_shows_makes_the_wire_of_any_product_known() -> None:
    told = wire(conditions(switched(R100, 8), link_rate=100e9))
    assert isinstance(told, GroupWire)
    assert told.rate == 1.8e12


@each(("name", "topology", "known", "confidences"), ROWS, ids=[row[0] for row in ROWS])
def test_a_pin_is_an_expectation_and_takes_nothing_from_the_wire(
    name: str, topology: Topology, *, known: bool, confidences: tuple[str, str, str]
) -> None:
    assert name
    assert confidences
    here = conditions(topology, pins=dict.fromkeys(OPS, 100e9))
    assert {confidence(here, op) for op in OPS} == {"operator"}
    assert isinstance(wire(here), GroupWire) == known
