"""The figures behind the expectations: as recorded, as published, and what follows from them."""

from dataclasses import replace

import pytest

from tests.node.busbw.nodes import A100, A100_CARD, B200, H100, H100_NVL, H200, L40S, V100
from tests.node.busbw.tables import A100 as A100_TABLE
from tests.node.busbw.tables import GIB, H100_FOUR, MIB, rows
from tests.node.busbw.tables import H200 as H200_TABLE
from tests.rows import each
from wirewatch.busbw.formulas import NVLS, RING, factor
from wirewatch.busbw.references import (
    LEAST_BYTES,
    NVLS_FROM,
    REFERENCES,
    Confidence,
    Reference,
    ReferenceQuery,
    architecture,
    find,
    fitted,
    same_wire,
)
from wirewatch.core.pci import Path
from wirewatch.core.topology import WireKind
from wirewatch.core.types import Absent, Why

HOPPER = 18 * 26.562e9
TABLES = [r for r in REFERENCES if len(r.points) > 1]
SINGLE = [r for r in REFERENCES if len(r.points) == 1]


def name(reference: Reference) -> str:
    arch = reference.architecture or "any"
    return f"{reference.kind.name}-{reference.algorithm}-{reference.op}-{arch}-{reference.ranks}"


def modelled(reference: Reference, size: int) -> float:
    model, share = fitted(reference), factor(reference.op, reference.ranks)
    assert isinstance(model.latency, float)
    return share * size / (model.latency + share * size / (model.efficiency * reference.wire))


@each(
    ("op", "arch", "ranks", "table"),
    [
        ("all_reduce", "Hopper", 8, H200_TABLE.format("all_reduce")),
        ("all_gather", "Hopper", 8, H200_TABLE.format("all_gather")),
        ("reduce_scatter", "Hopper", 8, H200_TABLE.format("reduce_scatter")),
        ("all_reduce", "Hopper", 4, H100_FOUR),
        ("all_reduce", "Ampere", 8, A100_TABLE),
    ],
)
def test_points_are_those_that_nccl_tests_printed(op: str, arch: str, ranks: int, table: str) -> None:
    wire = HOPPER if arch == "Hopper" else 300e9
    found = find(ReferenceQuery(WireKind.SWITCH, RING, op, arch, ranks, wire))
    assert isinstance(found, Reference)
    assert found.ranks == ranks
    printed = rows(table)
    assert [busbw for _, busbw in found.points] == [printed[size].busbw for size, _ in found.points]
    assert [modelled(found, size) for size, _ in found.points] == pytest.approx(
        [printed[size].busbw for size, _ in found.points], rel=0.03
    )


@each("reference", TABLES, ids=name)
def test_efficiency_and_latency_reproduce_the_points_within_three_per_cent(reference: Reference) -> None:
    for size, busbw in reference.points:
        assert modelled(reference, size) == pytest.approx(busbw, rel=0.03)


@pytest.mark.parametrize(("op", "low"), [("all_reduce", 0.08), ("all_gather", 0.2), ("reduce_scatter", 0.2)])
def test_at_sixteen_mebibytes_eight_h200_do_as_well_as_the_line_or_better(op: str, low: float) -> None:
    """The smallest message of which bandwidth is expected, by another protocol than the line's."""
    found = find(ReferenceQuery(WireKind.SWITCH, RING, op, "Hopper", 8, HOPPER))
    assert isinstance(found, Reference)
    real = rows(H200_TABLE.format(op))[LEAST_BYTES].busbw
    assert 1 - low < modelled(found, LEAST_BYTES) / real <= 1


@pytest.mark.parametrize("op", ["all_reduce", "all_gather", "reduce_scatter"])
def test_beyond_the_largest_point_the_line_is_at_most_three_per_cent_low_on_h200(op: str) -> None:
    found = find(ReferenceQuery(WireKind.SWITCH, RING, op, "Hopper", 8, HOPPER))
    assert isinstance(found, Reference)
    real = rows(H200_TABLE.format(op))[4 * GIB].busbw
    assert 0.97 < modelled(found, 4 * GIB) / real <= 1


@pytest.mark.parametrize(
    ("op", "ranks", "efficiency", "latency"),
    [
        ("all_reduce", 8, 0.752, 38e-6), ("all_gather", 8, 0.725, 36e-6), ("reduce_scatter", 8, 0.727, 32e-6),
        ("all_reduce", 4, 0.746, 48e-6),
    ],
)  # fmt: skip
def test_what_follows_for_ring_on_hopper(op: str, ranks: int, efficiency: float, latency: float) -> None:
    found = find(ReferenceQuery(WireKind.SWITCH, RING, op, "Hopper", ranks, HOPPER))
    assert isinstance(found, Reference)
    model = fitted(found)
    assert model.efficiency == pytest.approx(efficiency, abs=5e-4)
    assert model.latency == pytest.approx(latency, abs=5e-7)


@each("reference", REFERENCES, ids=name)
def test_every_reference_is_plausible_and_says_where_it_comes_from(reference: Reference) -> None:
    assert reference.source
    assert reference.fits[0] <= reference.ranks <= reference.fits[1]
    assert reference.fits[0] >= 2
    assert list(reference.points) == sorted(set(reference.points))
    assert reference.points[0][0] >= LEAST_BYTES
    assert reference.confidence is not Confidence.OPERATOR
    most = 1.05 if reference.algorithm == NVLS else 0.85
    assert 0.35 < fitted(reference).efficiency < most


@each("reference", SINGLE, ids=name)
def test_one_figure_gives_no_latency_term_and_is_never_called_measured(reference: Reference) -> None:
    assert isinstance(fitted(reference).latency, Absent)
    assert reference.confidence is not Confidence.MEASURED


def test_no_two_references_are_for_the_same() -> None:
    keys = [(r.kind, r.algorithm, r.op, r.architecture, r.ranks, r.wire, r.paths) for r in REFERENCES]
    assert len(set(keys)) == len(keys)


def test_nvls_has_a_reference_from_where_the_tuner_takes_it() -> None:
    for arch, least in NVLS_FROM.items():
        wire = HOPPER if arch == "Hopper" else 900e9
        for ranks in range(least, 9):
            assert isinstance(
                find(ReferenceQuery(WireKind.SWITCH, NVLS, "all_reduce", arch, ranks, wire)), Reference
            )


def test_the_same_wire_comes_before_the_same_number_of_gpus() -> None:
    h800 = find(ReferenceQuery(WireKind.SWITCH, NVLS, "all_reduce", "Hopper", 6, 8 * 26.562e9))
    h100 = find(ReferenceQuery(WireKind.SWITCH, NVLS, "all_reduce", "Hopper", 6, HOPPER))
    assert isinstance(h800, Reference)
    assert isinstance(h100, Reference)
    assert "H800" in h800.source
    assert h100.ranks == 6
    assert same_wire(h800, 8 * 26.5e9)
    assert not same_wire(h800, HOPPER)
    assert not same_wire(h800, 8 * 26.562e9 * 1.015)


@each(
    ("path", "efficiency"),
    [(Path.PIX, 0.80), (Path.PHB, 0.80), (Path.NODE, 0.63), (Path.SYS, 0.35), (None, 0.80)],
)
def test_pcie_depends_on_what_lies_between(path: Path | None, efficiency: float) -> None:
    hidden = Absent(Why.UNSUPPORTED, "hidden")
    found = find(ReferenceQuery(WireKind.PCIE, RING, "all_reduce", hidden, 4, 31.5e9, path or hidden))
    assert isinstance(found, Reference)
    assert fitted(found).efficiency == pytest.approx(efficiency, abs=0.01)


@each(
    "wanted",
    [
        ReferenceQuery(WireKind.PCIE, RING, "all_gather", "Ampere", 4, 31.5e9, Path.SYS),
        ReferenceQuery(WireKind.PCIE, RING, "all_gather", "Ampere", 4, 31.5e9, Path.PIX),
        ReferenceQuery(WireKind.MESH, RING, "all_gather", "Ampere", 4, 300e9),
        ReferenceQuery(WireKind.SWITCH, RING, "all_gather", "Ampere", 8, 300e9),
        ReferenceQuery(WireKind.SWITCH, RING, "all_reduce", "Blackwell", 2, 900e9),
        ReferenceQuery(WireKind.SWITCH, RING, "all_reduce", "Hopper", 72, HOPPER),
        ReferenceQuery(WireKind.SWITCH, RING, "all_reduce", "Volta", 8, 150e9),
        ReferenceQuery(WireKind.SWITCH, RING, "all_reduce", Absent(Why.MISSING, "?"), 8, HOPPER),
        ReferenceQuery(WireKind.SWITCH, RING, "alltoall", "Hopper", 8, HOPPER),
        ReferenceQuery(WireKind.SWITCH, NVLS, "all_reduce", "Ampere", 8, 300e9),
    ],
)
def test_what_was_never_measured_has_no_reference(wanted: ReferenceQuery) -> None:
    told = find(wanted)
    assert isinstance(told, Absent)
    assert told.why is Why.MISSING
    assert f"{wanted.op} of {wanted.ranks}" in told.detail


@each(
    ("product", "arch"),
    [
        (H100, "Hopper"), (H200, "Hopper"), (H100_NVL, "Hopper"), ("NVIDIA H20-3e", "Hopper"),
        ("NVIDIA H800", "Hopper"), ("NVIDIA GH200 480GB", "Hopper"),
        (B200, "Blackwell"), ("NVIDIA B300 SXM6 AC", "Blackwell"), ("NVIDIA GB200", "Blackwell"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "Blackwell"),
        (A100, "Ampere"), (A100_CARD, "Ampere"), ("NVIDIA A800-SXM4-80GB", "Ampere"),
        ("NVIDIA A40", "Ampere"), ("NVIDIA RTX A6000", "Ampere"), (V100, "Volta"),
        ("NVIDIA GeForce RTX 2080 Ti", "Turing"), ("Tesla T4", "Turing"),
    ],
)  # fmt: skip
def test_architectures(product: str, arch: str) -> None:
    assert architecture(product) == arch


@each("product", [L40S, "NVIDIA L4", "NVIDIA R100", "NVIDIA H2000", "NVIDIA A400X", ""])
def test_a_product_that_is_not_listed_has_no_architecture(product: str) -> None:
    assert isinstance(architecture(product), Absent)


def test_sizes_are_powers_of_two_in_the_complete_tables() -> None:
    measured = [r for r in TABLES if r.confidence is Confidence.MEASURED]
    assert {tuple(size for size, _ in r.points) for r in measured} == {
        (64 * MIB, 256 * MIB, GIB),
        (64 * MIB, 256 * MIB, 512 * MIB),
    }


def test_a_reference_is_for_its_own_number_of_gpus_alone() -> None:
    ampere = ReferenceQuery(WireKind.SWITCH, RING, "all_reduce", "Ampere", 3, 300e9)
    assert isinstance(find(ampere), Reference)
    assert isinstance(find(replace(ampere, ranks=17)), Absent)
    assert isinstance(find(replace(ampere, ranks=2, kind=WireKind.MESH)), Absent)
