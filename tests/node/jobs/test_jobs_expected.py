"""Each guard of the expectation of a collective alone: what is due, what explains a gap, and the floor."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from tests.node.jobs.ringjobs import AROUND, topology, uuid
from tests.rows import each
from wirewatch.busbw.formulas import RING
from wirewatch.core.probe import ALL_REDUCE, ALLTOALL, MIB, Conditions
from wirewatch.core.topology import Topology, WireKind
from wirewatch.core.types import Absent
from wirewatch.jobs.running.expected import algorithm_words, conditions_of, inside_settings, with_expected
from wirewatch.jobs.times import CommunicatorWindow, OperationTimes

A100, H100_PCIE = "NVIDIA A100-SXM4-80GB", "NVIDIA H100 PCIe"
NVLS_OFF = {"NCCL_NVLS_ENABLE": "0"}
MIXED = replace(topology(), gpus=(*topology(1, A100).gpus, *topology().gpus[1:]))


def of(count: int, node: Topology | None = None, settings: Mapping[str, str] | None = None) -> Conditions:
    """Return the facts by which bus bandwidth of the first GPUs of a node is expected."""
    around = replace(AROUND, topology=node or topology())
    found = conditions_of(around, [uuid(number) for number in range(count)], 1, settings or {})
    assert isinstance(found, Conditions)
    return found


def expected(
    conditions: Conditions | Absent,
    row: Mapping[str, object] | None = None,
    settings: Mapping[str, str] | None = None,
) -> OperationTimes:
    """A row of 256 MiB that got 526 GB/s by Ring, or differs by this, with what is expected of it."""
    made = OperationTimes(
        op=ALL_REDUCE, size_bytes=256 * MIB, ranks=4, joined=10, calls=10, bytes=256 * MIB,
        wire_seconds=1e-3, low=1e-3, high=1e-3, algorithm="RING", protocol="SIMPLE", channels=24,
        busbw=526e9, best=526e9,
    )  # fmt: skip
    window = CommunicatorWindow(0.0, 5.0, (replace(made, **row or {}),), ())  # type: ignore[arg-type]
    (found,) = with_expected(window, conditions, settings or {}).collectives
    return found


@pytest.mark.parametrize(
    ("guard", "conditions", "row", "busbw"),
    [
        ("NVLS of eight GPUs", of(8), {"ranks": 8, "algorithm": "NVLS"}, 433.8e9),
        ("NVLS where the job ran Tree", of(8), {"ranks": 8, "algorithm": "TREE"}, 433.8e9),
        ("a Ring where the job ran one, since NVLS may not be offered", of(8), {"ranks": 8}, 349.5e9),
        ("a Ring of four", of(4), {}, 342.3e9),
        ("a Ring of four where the job ran Tree", of(4), {"algorithm": "TREE"}, 342.3e9),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_guard_alone_decides_by_which_algorithm_it_is_expected(
    guard: str, conditions: Conditions, row: Mapping[str, object], busbw: float
) -> None:
    found = expected(conditions, row)
    assert found.expected == pytest.approx(busbw, rel=0.01), guard
    assert found.trusted
    assert found.derivation


TREE = {"algorithm": "TREE", "busbw": 360e9, "best": 526e9}


@pytest.mark.parametrize(
    ("guard", "row", "got", "best"),
    [
        ("no more than Tree can have on these wires", TREE, 256.7e9, 256.7e9),
        ("less than that stays", {**TREE, "busbw": 200e9}, 200e9, 256.7e9),
        ("a Ring may have it all", {**TREE, "algorithm": "RING"}, 360e9, 526e9),
        ("in a tree of two each sends once", {**TREE, "ranks": 2}, 360e9, 526e9),
        ("in a tree of three one sends twice", {**TREE, "ranks": 3}, 228.2e9, 228.2e9),
        ("an operation of which no Ring is known", {**TREE, "op": "broadcast"}, 360e9, 526e9),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_guard_alone_decides_what_a_tree_can_have(
    guard: str, row: Mapping[str, object], got: float, best: float
) -> None:
    found = expected(of(4), row)
    assert found.busbw == pytest.approx(got, rel=0.01), guard
    assert found.best == pytest.approx(best, rel=0.01)


RAN_TREE = "NCCL ran Tree where its defaults take Ring"
LL = "NCCL ran the protocol LL: LL sends 4 bytes of flags with each 4 of data"
P2P = "NCCL_P2P_DISABLE=1: GPUs do not reach each other: through host memory, measured 26 GB/s on 4 H200"


@pytest.mark.parametrize(
    ("guard", "conditions", "row", "explained"),
    [
        ("as the defaults are", of(4), {}, ()),
        ("written in another way", of(4), {"algorithm": "ring"}, ()),
        ("Tree", of(4), {"algorithm": "TREE"}, (RAN_TREE,)),
        ("an algorithm that is not known", of(4), {"algorithm": ""}, ()),
        ("Tree, and nothing is expected of it", of(4), {"algorithm": "TREE", "op": "broadcast"}, ()),
        ("NVLS of more nodes", of(8), {"ranks": 8, "algorithm": "NVLS_TREE"},
         ("NCCL ran NVLSTree where its defaults take NVLS",)),
        ("sends have no algorithm to choose", of(8), {"ranks": 8, "op": ALLTOALL}, ()),
        ("LL for a large message", of(4), {"protocol": "ll"}, (LL,)),
        ("LL for the smallest of the large", of(4), {"protocol": "LL", "bytes": 16 * MIB}, (LL,)),
        ("LL for a message that is not large", of(4), {"protocol": "LL", "bytes": 8 * MIB}, ()),
        ("both", of(4), {"algorithm": "TREE", "protocol": "LL"}, (RAN_TREE, LL)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_what_explains_a_gap(
    guard: str, conditions: Conditions, row: Mapping[str, object], explained: Sequence[str]
) -> None:
    found = expected(conditions, row)
    assert found.explained == explained, guard
    assert found.other_way is bool(explained)


def test_a_setting_explains_a_gap_unless_it_is_expected() -> None:
    settings = {"NCCL_P2P_DISABLE": "1", "NCCL_IB_DISABLE": "1", **NVLS_OFF}
    found = expected(of(8, settings=settings), {"ranks": 8}, settings)
    assert (found.explained, found.other_way) == ((P2P,), False)
    assert inside_settings(settings) == (P2P, "NCCL_NVLS_ENABLE=0: no NVLink SHARP: Ring instead")


@pytest.mark.parametrize(
    ("guard", "conditions", "op", "seconds"),
    [
        ("of two", of(2), ALL_REDUCE, 6.83e-6),
        ("of four", of(4), ALL_REDUCE, 13.7e-6),
        ("of eight", of(8), ALL_REDUCE, 13.67e-6),
        ("no table of so many as one graph", of(6), ALL_REDUCE, None),
        ("no table of this operation as one graph", of(2), ALLTOALL, None),
        ("other wires", of(2, replace(topology(2, H100_PCIE), nvlink=())), ALL_REDUCE, None),
        ("another architecture", of(2, topology(8, A100)), ALL_REDUCE, None),
        ("two architectures", of(2, MIXED), ALL_REDUCE, None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_a_guard_alone_decides_which_floor_a_small_message_has(
    guard: str, conditions: Conditions, op: str, seconds: float | None
) -> None:
    found = expected(conditions, {"op": op, "size_bytes": 8192, "bytes": 8192})
    assert found.floor == seconds or (seconds is None and isinstance(found.floor, Absent)), guard
    assert isinstance(found.expected, Absent)
    assert found.expected.detail == "a small message is held against the floor"


def test_nothing_is_expected_where_the_wires_are_not_known() -> None:
    away = conditions_of(AROUND, [uuid(0), uuid(1)], 2, {})
    assert isinstance(away, Absent)
    for row in ({}, {"algorithm": "TREE"}):
        found = expected(away, row, NVLS_OFF)
        assert (found.expected, found.explained, found.trusted) == (away, (), False)
    assert expected(away, {"size_bytes": 8192}).floor == away
    (unsized,) = (expected(of(4), {"size_bytes": 0, "bytes": 0}).expected,)
    assert isinstance(unsized, Absent)
    assert "does not name the type" in unsized.detail


def test_only_the_wires_of_its_own_gpus_count() -> None:
    assert of(4, replace(topology(), unread=(uuid(7),))).group.kind is WireKind.SWITCH
    assert of(4, replace(topology(), unread=(uuid(1),))).group.kind is WireKind.UNKNOWN
    assert of(4, replace(topology(), nvlink=topology().nvlink[:4])).group.links == (18,) * 4


def test_what_is_expected_of_an_old_table_carries_no_verdict() -> None:
    assert not expected(of(8, topology(8, A100)), {"ranks": 8}).trusted
    assert expected(of(8), {"ranks": 8}).trusted


@each(
    ("algorithm", "protocol", "words"),
    [
        ("RING", "SIMPLE", f"{RING}, Simple"),
        ("TREE", "LL128", "Tree, LL128"),
        ("NVLS_TREE", "", "NVLSTree"),
        ("PAT", "", "PAT"),
        ("CollNetDirect", "", "CollNetDirect"),
        ("", "LL", "LL"),
        ("NVLS", "", "NVLS"),
        ("", "", ""),
    ],
)
def test_algorithm_and_protocol_as_people_write_them(algorithm: str, protocol: str, words: str) -> None:
    assert algorithm_words(algorithm, protocol) == words
