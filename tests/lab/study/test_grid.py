"""Which curves a sweep has, and what NCCL, an operation or a machine does not offer."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rows import each
from wirewatch.core.probe import DTYPES, MIB, PRIMITIVES
from wirewatch_lab.study.curve import AUTO, Configuration
from wirewatch_lab.study.grid import (
    ALGORITHMS,
    PROTOCOLS,
    Capabilities,
    SweepOptions,
    aligned,
    configurations,
    make_grid,
    not_offered,
    powers,
    usual_iterations,
)

H200 = Capabilities("nccl", 8, 128 << 30, 8, True, frozenset({"Hopper"}), True)  # noqa: FBT003
PCIE = Capabilities("nccl", 4, 64 << 30, 0, False, frozenset({"Ampere"}), False)  # noqa: FBT003
PAIRS = replace(PCIE, nvlink=2)
OFF = replace(H200, settings=(("NCCL_NVLS_ENABLE", "0"),))
ALONE = "it has Simple alone"
CASES = [
    ("all_reduce", Configuration(4), H200, ""),
    ("all_reduce", Configuration(4, "Tree", "LL128"), H200, ""),
    ("all_reduce", Configuration(4, "NVLS"), H200, ""),
    ("all_gather", Configuration(4, "NVLS", "Simple"), H200, ""),
    ("all_gather", Configuration(4, "Tree"), H200, "all_gather with Tree: NCCL has Ring, NVLS, "),
    ("reduce_scatter", Configuration(4, "Tree", "LL"), H200, "reduce_scatter with Tree: "),
    ("broadcast", Configuration(4, "Ring"), H200, ""),
    ("broadcast", Configuration(4, "NVLS"), H200, "broadcast with NVLS: NCCL has Ring for it"),
    ("reduce", Configuration(4, "Tree"), H200, "reduce with Tree: NCCL has Ring for it"),
    ("alltoall", Configuration(4), H200, ""),
    ("alltoall", Configuration(4, "Ring"), H200, "alltoall with Ring: sends and receives"),
    ("sendrecv", Configuration(4, AUTO, "LL"), H200, "sendrecv with LL: the protocol of sends follows"),
    ("gather", Configuration(4, "Tree"), H200, "gather with Tree: sends and receives"),
    ("scatter", Configuration(4, AUTO, "LL128"), H200, "scatter with LL128: the protocol of sends"),
    ("all_reduce", Configuration(4, "NVLSTree"), H200, "NVLSTree: NCCL uses it between nodes alone"),
    ("all_reduce", Configuration(4, "CollNetChain"), H200, "CollNetChain: it takes a network that reduces"),
    ("all_gather", Configuration(4, "CollNetDirect"), H200, "CollNetDirect: it takes a network"),
    ("all_gather", Configuration(4, "PAT"), H200, "PAT: NCCL connects it with one GPU a node alone"),
    ("all_reduce", Configuration(4, "PAT"), H200, "all_reduce with PAT: NCCL has Ring, Tree, NVLS"),
    ("all_reduce", Configuration(4, "NVLS", "LL"), H200, f"NVLS with LL: {ALONE}"),
    ("all_reduce", Configuration(4, "NVLS"), OFF, "NVLS: switched off by NCCL_NVLS_ENABLE=0"),
    ("all_reduce", Configuration(4, "NVLS", settings=(("NCCL_NVLS_ENABLE", "2"),)), OFF, ""),
    (
        "all_reduce",
        Configuration(4, "NVLS", settings=(("NCCL_NVLS_ENABLE", "0x0"),)),
        H200,
        "NVLS: switched off by NCCL_NVLS_ENABLE=0x0",
    ),
    (
        "all_reduce",
        Configuration(4, "NVLS"),
        replace(H200, multicast=False),
        "NVLS: the driver offers no mult",
    ),
    ("all_reduce", Configuration(4, "NVLS"), replace(H200, multicast=None), ""),
    (
        "all_reduce",
        Configuration(4, "NVLS"),
        replace(H200, switch=False),
        "NVLS: no NVLink switch joins these 4",
    ),
    (
        "all_reduce",
        Configuration(4, "NVLS"),
        replace(H200, architectures=frozenset({"Ampere"})),
        "NVLS: it takes Hopper or newer, not Ampere",
    ),
    ("all_reduce", Configuration(4, AUTO, "LL128"), PCIE, "LL128: NCCL trusts it over NVLink alone"),
    ("all_reduce", Configuration(2, AUTO, "LL128"), PAIRS, ""),
    ("all_reduce", Configuration(4, AUTO, "LL128"), PAIRS, "LL128: NCCL trusts it over NVLink alone"),
    (
        "all_reduce",
        Configuration(4, "Ring", "LL128"),
        replace(H200, architectures=frozenset({"Volta", "Ampere"})),
        "LL128: NCCL trusts it between GPUs of one architecture",
    ),
    (
        "gather",
        Configuration(4),
        replace(H200, without=frozenset({"gather"})),
        "gather: engine nccl does not",
    ),
    ("all_reduce", Configuration(2, registered=True, launch="graph"), H200, ""),
    ("all_reduce", Configuration(9), H200, "9 GPUs: there are 8"),
    ("all_reduce", Configuration(1), H200, "1 GPU: it has nothing to send to"),
    ("all_reduce", Configuration(2), Capabilities("gloo", 4, MIB), ""),
    (
        "all_reduce",
        Configuration(2, "Ring"),
        Capabilities("gloo", 4, MIB),
        "Ring: engine gloo has nothing of",
    ),
    (
        "all_reduce",
        Configuration(2, launch="graph"),
        Capabilities("gloo", 4, MIB),
        "CUDA graphs: engine gloo",
    ),
    (
        "all_reduce",
        Configuration(2, registered=True),
        Capabilities("gloo", 4, MIB),
        "registered buffers: engine",
    ),
    (
        "all_reduce",
        Configuration(2, settings=(("NCCL_X", "1"),)),
        Capabilities("gloo", 4, MIB),
        "NCCL_X: engine gloo has nothing of NCCL",
    ),
]


@each(("op", "wanted", "here", "why"), CASES)
def test_what_is_offered_is_what_nccl_has_here(
    op: str, wanted: Configuration, here: Capabilities, why: str
) -> None:
    found = not_offered(op, wanted, here, "float32")
    assert found.startswith(why)
    assert bool(found) is bool(why)


def test_nvls_adds_no_small_integers_and_gathers_any() -> None:
    wanted = Configuration(4, "NVLS")
    assert not_offered("all_reduce", wanted, H200, "uint8") == "NVLS with uint8: switches do not add that up"
    assert not_offered("all_gather", wanted, H200, "uint8") == ""


def test_every_combination_is_a_curve_or_is_named_with_its_reason() -> None:
    options = SweepOptions(
        "nccl", PRIMITIVES, (8, 1024), (AUTO, *ALGORITHMS), (AUTO, *PROTOCOLS), (2, 16), (False, True),
        ("eager", "graph"), (("NCCL_MAX_NCHANNELS", ("8", "")), ("NCCL_BUFFSIZE", ("1",))),
    )  # fmt: skip
    grid = make_grid(options, H200)
    every = list(configurations(options, 8))
    assert len(every) == len(set(every)) == 8 * 4 * 2 * 2 * 2 * 2
    there = {(curve.op, curve.configuration) for curve in grid.curves}
    for op in PRIMITIVES:
        for wanted in every:
            why = not_offered(op, wanted, H200, "float32")
            assert ((op, wanted) in there) is (why == "")
            assert why == "" or why in grid.not_offered
    assert len(grid.not_offered) == len(set(grid.not_offered))
    settings = {curve.configuration.settings for curve in grid.curves}
    buffer = ("NCCL_BUFFSIZE", "1")
    assert settings == {(buffer, ("NCCL_MAX_NCHANNELS", "8")), (buffer,)}


def test_without_sizes_it_goes_from_8_bytes_to_what_memory_allows() -> None:
    options = SweepOptions("nccl", ("all_reduce", "all_gather"))
    reduce, gather = make_grid(options, replace(H200, memory=(1 << 20) + 5)).curves
    assert reduce.sizes == powers(8, 1 << 20)
    assert gather.sizes == powers(128, 1 << 20)
    assert reduce.configuration == Configuration(8)


def test_sizes_beyond_memory_are_named() -> None:
    options = SweepOptions("nccl", ("all_reduce",), (1024, 8 * MIB, 16 * MIB))
    grid = make_grid(options, replace(H200, memory=4 * MIB))
    assert [curve.sizes for curve in grid.curves] == [(1024,)]
    assert grid.not_offered == ("8 MiB and more: a buffer has 4 MiB at most",)
    nothing = make_grid(replace(options, sizes=(8 * MIB,)), replace(H200, memory=4 * MIB))
    assert (nothing.curves, nothing.not_offered) == ((), ("8 MiB and more: a buffer has 4 MiB at most",))


def test_sizes_without_a_piece_for_each_rank_are_named() -> None:
    grid = make_grid(SweepOptions("nccl", ("all_gather",), (8,)), H200)
    assert (grid.curves, grid.not_offered) == ((), ("all_gather: no size has 16 B for each of 8 ranks",))


@given(
    st.sampled_from(PRIMITIVES), st.integers(1, 1 << 40), st.integers(2, 64), st.sampled_from(sorted(DTYPES))
)
def test_sizes_are_rounded_down_to_whole_elements_and_pieces(
    op: str, size: int, ranks: int, dtype: str
) -> None:
    found = aligned(op, size, ranks, DTYPES[dtype])
    assert 0 <= size - found < max(16 * ranks, 8)
    assert found % DTYPES[dtype] == 0
    assert aligned(op, found, ranks, DTYPES[dtype]) == found
    if op in {"all_gather", "reduce_scatter", "alltoall", "gather", "scatter"}:
        assert found % (16 * ranks) == 0


@given(st.integers(1, 1 << 20), st.integers(1, 1 << 40), st.integers(2, 10))
def test_powers_begin_at_the_first_and_end_before_the_last(first: int, last: int, factor: int) -> None:
    sizes = powers(first, last, factor)
    assert all(b == a * factor for a, b in pairwise(sizes))
    assert not sizes if first > last else (sizes[0] == first and sizes[-1] <= last < sizes[-1] * factor)


def test_small_sizes_run_more_often_and_iterations_can_be_given() -> None:
    (curve,) = make_grid(
        SweepOptions("nccl", ("all_reduce",), (8, 8 << 30), launches=("graph",)), H200
    ).curves
    small, large = (curve.case(size, None) for size in curve.sizes)
    assert (small.launch, large.launch) == ("graph", "graph")
    assert small.iterations > large.iterations > 0
    assert curve.case(8, 7).iterations == 7


@pytest.mark.parametrize(
    ("in_place", "op", "found"),
    [
        (True, "all_reduce", True),
        (False, "all_reduce", False),
        (True, "alltoall", False),
        (False, "alltoall", False),
    ],
)
def test_what_runs_in_place_was_asked_to_and_can(in_place: bool, op: str, found: bool) -> None:  # noqa: FBT001
    assert SweepOptions("nccl", in_place=in_place).runs_in_place(op) is found


@each(
    ("op", "size", "ranks", "element", "found"),
    [
        ("all_reduce", 15, 4, 4, 12), ("all_reduce", 3, 4, 4, 0), ("all_gather", 63, 4, 4, 0),
        ("all_gather", 64, 4, 4, 64), ("all_gather", 127, 4, 4, 64), ("all_gather", 128, 4, 4, 128),
        ("broadcast", 15, 4, 2, 14),
    ],
)  # fmt: skip
def test_a_piece_has_sixteen_bytes_for_each_rank(
    op: str, size: int, ranks: int, element: int, found: int
) -> None:
    assert aligned(op, size, ranks, element) == found


@pytest.mark.parametrize(
    ("size", "runs"), [(64 << 10, 50), ((64 << 10) + 1, 20), (512 * MIB, 20), (513 * MIB, 10)]
)
def test_how_often_a_size_is_timed(size: int, runs: int) -> None:
    assert usual_iterations(size) == runs


def test_what_is_missing_is_named_beside_sizes_beyond_memory() -> None:
    """A size that is too large says it for all; an operation that does not exist says so as well."""
    options = SweepOptions("nccl", ("all_reduce", "all_gather"), (8, 8 * MIB), ("Tree",))
    found = make_grid(options, replace(H200, memory=4 * MIB))
    assert [curve.op for curve in found.curves] == ["all_reduce"]
    assert found.not_offered[0] == "8 MiB and more: a buffer has 4 MiB at most"
    assert found.not_offered[1].startswith("all_gather with Tree: NCCL has ")
    none = make_grid(
        replace(options, ops=("all_gather",), algorithms=("auto",)), replace(H200, memory=4 * MIB)
    )
    assert none.not_offered == ("8 MiB and more: a buffer has 4 MiB at most",)


@each(
    ("wanted", "here", "why"),
    [
        (Configuration(8), H200, ""),
        (
            Configuration(2, AUTO, "LL128"),
            replace(PCIE, nvlink=2, architectures=frozenset({"Hopper", "Blackwell"})),
            "",
        ),
        (Configuration(2, AUTO, "LL128"), replace(PCIE, nvlink=2, architectures=frozenset()), ""),
        (Configuration(2, AUTO, "LL"), PCIE, ""),
        (Configuration(4, "NVLS"), replace(H200, architectures=frozenset()), ""),
        (Configuration(4, "NVLS"), replace(H200, nvlink=3), "NVLS: no NVLink switch joins these 4 GPUs"),
        (
            Configuration(4, "NVLS"),
            replace(H200, architectures=frozenset({"Hopper", "Ampere"})),
            "NVLS: it takes Hopper or newer, not Ampere",
        ),
        (Configuration(4, "NVLS", settings=(("NCCL_NVLS_ENABLE", "1"),)), replace(H200, multicast=False), ""),
        (Configuration(4, "NVLS"), replace(H200, settings=(("NCCL_NVLS_ENABLE", ""),)), ""),
        (Configuration(4, "NVLS"), H200, ""),
        (
            Configuration(2, registered=True),
            replace(H200, engine="torch"),
            "registered buffers: engine torch registers none",
        ),
        (
            Configuration(2, launch="graph"),
            replace(H200, engine="torch"),
            "CUDA graphs: engine torch launches one operation after the other",
        ),
        (Configuration(2, "Ring"), replace(H200, engine="torch"), ""),
        (
            Configuration(2, protocol="LL"),
            replace(H200, engine="gloo"),
            "LL: engine gloo has nothing of NCCL",
        ),
    ],
)
def test_why_there_is_no_such_configuration_in_whole_words(
    wanted: Configuration, here: Capabilities, why: str
) -> None:
    assert not_offered("all_reduce", wanted, here, "float32") == why
