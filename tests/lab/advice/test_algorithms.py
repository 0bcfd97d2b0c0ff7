"""What each algorithm moves: counted by playing it, byte by byte, and held against the sources' examples."""

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.rows import each
from wirewatch.busbw.formulas import factor, wire_bytes
from wirewatch.core.probe import OPS, PRIMITIVES
from wirewatch.core.types import Absent
from wirewatch_lab.advice.cost.algorithms import Operation, Traffic, traffic
from wirewatch_lab.advice.times.estimate import crossing

GB = 1e9
Message = tuple[int, int, frozenset[int]]
"""From, to, and which chunks."""
Held = list[dict[int, Counter[int]]]
"""Of each GPU, by chunk: from whom it has how often a part of the sum."""


def found(op: str, algorithm: str, size: float, ranks: int, nodes: int = 1) -> Traffic:
    (one,) = (one for one in traffic(Operation(op, size, ranks, nodes)) if one.algorithm == algorithm)
    return one


def ring_scatter(ranks: int) -> Iterator[list[Message]]:
    for step in range(ranks - 1):
        yield [(g, (g + 1) % ranks, frozenset({(g - step) % ranks})) for g in range(ranks)]


def ring_gather(ranks: int) -> Iterator[list[Message]]:
    for step in range(ranks - 1):
        yield [(g, (g + 1) % ranks, frozenset({(g + 1 - step) % ranks})) for g in range(ranks)]


def halving(ranks: int) -> Iterator[list[Message]]:
    """Near partners first: bit by bit, a GPU keeps the chunks that agree with it."""
    kept = {g: frozenset(range(ranks)) for g in range(ranks)}
    bit = 1
    while bit < ranks:
        mine = {g: frozenset(c for c in kept[g] if (c & bit) == (g & bit)) for g in kept}
        yield [(g, g ^ bit, kept[g] - mine[g]) for g in kept]
        kept, bit = mine, bit * 2


def doubling(ranks: int) -> Iterator[list[Message]]:
    for step in reversed(list(halving(ranks))):
        yield [(b, a, chunks) for a, b, chunks in step]


def play(ranks: int, reduce: Iterator[list[Message]], spread: Iterator[list[Message]]) -> tuple[Held, int]:
    """All messages of a step at once; returns what each GPU has then, and the steps."""
    held: Held = [{c: Counter({g: 1}) for c in range(ranks)} for g in range(ranks)]
    steps = 0
    for phase, adds in ((reduce, True), (spread, False)):
        for step in phase:
            before = [{c: Counter(v) for c, v in one.items()} for one in held]
            for source, to, chunks in step:
                for c in chunks:
                    held[to][c] = held[to][c] + before[source][c] if adds else before[source][c]
            steps += 1
    return held, steps


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
@pytest.mark.parametrize(
    ("algorithm", "reduce", "spread"),
    [("Ring", ring_scatter, ring_gather), ("halving-doubling", halving, doubling)],
)
@pytest.mark.parametrize("nodes", [1, 2])
def test_a_played_all_reduce_sums_all_and_sends_what_is_said(
    algorithm: str, reduce: Callable[[int], Iterator[list[Message]]],
    spread: Callable[[int], Iterator[list[Message]]], ranks: int, nodes: int,
) -> None:  # fmt: skip
    held, steps = play(ranks, reduce(ranks), spread(ranks))
    assert all(one[c] == Counter(range(ranks)) for one in held for c in range(ranks))
    messages = [message for phase in (reduce(ranks), spread(ranks)) for step in phase for message in step]
    each = ranks // nodes
    crossing = sum(len(c) for a, b, c in messages if a // each != b // each)
    said = found("all_reduce", algorithm, ranks, ranks, nodes)  # A chunk of one byte.
    assert (said.steps, said.links) == (steps, sum(len(c) for _, _, c in messages))
    assert said.crosses * ranks == pytest.approx(crossing)
    assert {sum(len(c) for a, _, c in messages if a == g) for g in range(ranks)} == {said.sends}


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_a_ring_leaves_gpu_g_with_chunk_g_plus_one(ranks: int) -> None:
    """Source 001 has GPU 0 end with chunk 3 of 4, which is the chunk that it sends last."""
    held, _ = play(ranks, ring_scatter(ranks), iter(()))
    for gpu in range(ranks):
        whole = [c for c in range(ranks) if held[gpu][c] == Counter(range(ranks))]
        assert whole == [(gpu + 1) % ranks]


def test_halving_halves_what_is_sent_step_by_step() -> None:
    sizes = [len(step[0][2]) for step in halving(8)]
    assert sizes == [4, 2, 1]
    assert not found("all_reduce", "halving-doubling", GB, 8).nccl


def test_of_two_nodes_of_eight_125_mb_a_gpu_cross() -> None:
    crosses = {one.algorithm: one.crosses for one in traffic(Operation("all_reduce", GB, 16, 2))}
    assert crosses["hierarchical"] == crosses["SHARP"] == crosses["Tree"] == crosses["NVLSTree"] == 125e6
    assert crosses["Ring"] == pytest.approx(234.4e6, rel=1e-3)
    assert found("all_reduce", "SHARP", GB, 512, 64).crosses == 125e6
    assert found("all_reduce", "hierarchical", GB, 512, 64).crosses == pytest.approx(246.1e6, rel=1e-3)
    assert found("all_gather", "hierarchical", GB, 16, 2).crosses == 62.5e6


@pytest.mark.parametrize("op", ["broadcast", "reduce"])
def test_a_broadcast_crosses_p_minus_one_links_whatever_the_tree(op: str) -> None:
    one = found(op, "Ring", GB, 8)
    assert (one.links, one.steps, one.most) == (7 * GB, 7, GB)


def test_an_all_to_all_is_half_of_an_all_reduce() -> None:
    assert found("alltoall", "pairwise", GB, 8).sends * 2 == found("all_reduce", "Ring", GB, 8).sends
    assert found("alltoall", "pairwise", GB, 16, 2).crosses == GB / 2


def test_nvls_sends_the_message_once() -> None:
    """Source 004's NVLS busbw of 376 GB/s on 4 GPUs is 251 on the links."""
    nvls, ring = found("all_reduce", "NVLS", GB, 4), found("all_reduce", "Ring", GB, 4)
    assert (nvls.sends, nvls.receives, nvls.steps) == (GB, GB, 2)
    assert 376 * nvls.sends / ring.sends == pytest.approx(251, abs=0.5)


def test_a_tree_inside_a_node_is_a_chain() -> None:
    tree, ring = found("all_reduce", "Tree", GB, 8), found("all_reduce", "Ring", GB, 8)
    assert tree.steps == ring.steps == 14
    assert found("all_reduce", "Tree", GB, 128, 16).steps == 2 * (7 + 4)
    assert found("all_reduce", "Ring", GB, 128, 16).steps == 254


def test_pat_takes_logarithmic_steps_with_one_gpu_a_node() -> None:
    one = found("all_gather", "PAT", GB, 64, 64)
    assert (one.steps, one.nccl, one.crosses) == (6, True, one.sends)
    assert not found("all_gather", "PAT", GB, 64, 8).nccl
    assert all(one.algorithm != "PAT" for one in traffic(Operation("all_reduce", GB, 64, 64)))


@each(
    ("op", "size", "ranks", "wire", "milliseconds"),
    [
        ("all_reduce", 100e6, 4, 18 * 26.562e9, 0.31),  # Source 000 has 0.1
        ("all_reduce", 100e6, 4, 63e9, 2.4),  # 1.5
        ("all_reduce", 100e6, 8, 50e9, 3.5),  # 2, over one port
        ("sendrecv", GB, 8, 900e9, 1.11),  # Source 003 has 0.6
        ("all_reduce", GB, 8, 900e9, 1.94),
        ("sendrecv", GB, 8, 12.5e9, 80.0),
        ("all_reduce", 16 << 20, 8, 450e9, 0.065),  # Source 002 has 0.02
    ],
)  # fmt: skip
def test_the_least_time_has_the_factor(
    op: str, size: float, ranks: int, wire: float, milliseconds: float
) -> None:
    one = traffic(Operation(op, size, ranks))[0]
    assert one.seconds(wire, None) * 1e3 == pytest.approx(milliseconds, rel=0.02)


def test_what_crosses_goes_over_the_network() -> None:
    one = found("all_reduce", "hierarchical", GB, 16, 2)
    assert one.seconds(900e9, 50e9) == pytest.approx(125e6 / 50e9)
    assert one.seconds(450e9, 500e9) == pytest.approx(1.75 * GB / 450e9)


@pytest.mark.parametrize(
    ("op", "nodes", "milliseconds"),
    [("sendrecv", 2, 20.0), ("sendrecv", 4, 20.0), ("gather", 2, 10.0), ("scatter", 4, 15.0)],
)
def test_one_gpu_s_port_brings_what_its_node_sends_to_a_neighbour_or_a_root(
    op: str, nodes: int, milliseconds: float
) -> None:
    """1 GB, 8 GPUs a node, 50 GB/s each: all of it to a neighbour, (nodes-1)/nodes to or from a root."""
    one = found(op, "pairwise", GB, 8 * nodes, nodes)
    assert one.seconds(450e9, 50e9) * 1e3 == pytest.approx(milliseconds)
    times = crossing(op, 8, nodes).share * GB
    assert one.most_crosses == pytest.approx(times)


WHOLE = st.tuples(
    st.sampled_from(PRIMITIVES), st.integers(1, 64), st.integers(1, 16), st.integers(1, 1 << 40)
)


@settings(max_examples=examples(60))
@given(WHOLE)
def test_no_algorithm_sends_less_than_it_must(drawn: tuple[str, int, int, int]) -> None:
    op, nodes, each, size = drawn
    if nodes * each < 2:
        return
    one = Operation(op, size, nodes * each, nodes)
    for made in traffic(one):
        assert 0 <= made.crosses <= made.sends * (1 + 1e-12)
        assert (made.crosses > 0) == (nodes > 1)
        assert made.crosses * (1 - 1e-12) <= made.most_crosses <= made.most * (1 + 1e-12)
        assert made.most >= max(made.sends, made.receives) * (1 - 1e-12)
        assert made.links == pytest.approx(made.sends * one.ranks)
        assert made.steps >= 1
        wired = wire_bytes(op, made.algorithm, one.ranks, size)
        if not isinstance(wired, Absent):
            assert wired.bytes == pytest.approx(made.sends)
        if op == "all_reduce" and made.algorithm not in {"NVLS", "NVLSTree", "SHARP"}:
            assert made.sends >= factor(op, one.ranks) * size * (1 - 1e-12)


@pytest.mark.parametrize(("ranks", "nodes"), [(1, 1), (8, 3), (8, 0), (0, 1)])
def test_ranks_that_cannot_be_shared_out_are_refused(ranks: int, nodes: int) -> None:
    with pytest.raises(ValueError, match="ranks over"):
        Operation("all_reduce", GB, ranks, nodes)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(("each", "nodes"), [(8, 2), (8, 16), (4, 3)])
def test_times_count_what_crosses_by_nccls_own_algorithm(op: str, each: int, nodes: int) -> None:
    own = found(op, "Tree" if op == "all_reduce" else "Ring", GB, each * nodes, nodes)
    assert crossing(op, each, nodes).share * GB == pytest.approx(own.crosses)


@each(
    ("op", "ranks", "nodes", "names"),
    [
        ("all_reduce", 2, 1, "Ring Tree NVLS halving-doubling"),
        ("all_reduce", 3, 1, "Ring Tree NVLS"),
        ("all_reduce", 2, 2, "Ring Tree SHARP halving-doubling"),
        ("all_reduce", 4, 2, "Ring Tree NVLSTree SHARP hierarchical halving-doubling"),
        ("all_reduce", 6, 3, "Ring Tree NVLSTree SHARP hierarchical"),
        ("all_gather", 4, 1, "Ring NVLS halving-doubling"),
        ("all_gather", 4, 2, "Ring PAT hierarchical halving-doubling"),
        ("all_gather", 2, 2, "Ring PAT halving-doubling"),
        ("reduce_scatter", 6, 2, "Ring PAT hierarchical"),
        ("broadcast", 4, 2, "Ring"),
        ("alltoall", 4, 2, "pairwise"),
        ("gather", 4, 1, "pairwise"),
        ("sendrecv", 4, 2, "pairwise"),
    ],
)
def test_each_collective_has_its_algorithms(op: str, ranks: int, nodes: int, names: str) -> None:
    """NCCL's first, but PAT where a node has more GPUs than one."""
    assert {one.algorithm for one in traffic(Operation(op, GB, ranks, nodes))} == set(names.split())
    found = traffic(Operation(op, GB, ranks, nodes))
    assert [one.nccl for one in found] == sorted((one.nccl for one in found), reverse=True)
    pat = [one.nccl for one in found if one.algorithm == "PAT"]
    assert pat == ([ranks == nodes] if pat else [])


@each(
    ("op", "algorithm", "ranks", "nodes", "steps", "sends", "crosses", "most", "most_crosses"),
    [
        ("all_reduce", "Ring", 4, 1, 6, 1.5, 0, 1.5, 0),
        ("all_reduce", "Ring", 4, 2, 6, 1.5, 0.75, 1.5, 0.75),
        ("all_gather", "Ring", 4, 2, 3, 0.75, 0.375, 0.75, 0.375),
        ("broadcast", "Ring", 4, 2, 3, 0.75, 0.25, 1, 0.25),
        ("all_reduce", "Tree", 2, 1, 2, 1, 0, 1, 0),
        ("all_reduce", "Tree", 8, 2, 8, 1.75, 0.25, 2, 0.25),
        ("all_reduce", "NVLS", 4, 1, 2, 1, 0, 1, 0),
        ("all_gather", "NVLS", 4, 1, 1, 0.25, 0, 1, 0),
        ("reduce_scatter", "NVLS", 4, 1, 1, 1, 0, 1, 0),
        ("all_reduce", "NVLSTree", 8, 2, 4, 1.25, 0.25, 1.25, 0.25),
        ("all_gather", "PAT", 8, 2, 3, 0.875, 0.5, 0.875, 0.5),
        ("all_reduce", "SHARP", 4, 4, 2, 1, 1, 1, 1),
        ("all_reduce", "SHARP", 8, 2, 4, 1.75, 0.25, 1.75, 0.25),
        ("all_reduce", "hierarchical", 8, 2, 8, 1.75, 0.25, 1.75, 0.25),
        ("all_gather", "hierarchical", 8, 2, 4, 0.875, 0.125, 0.875, 0.125),
        ("all_reduce", "halving-doubling", 8, 2, 6, 1.75, 0.25, 1.75, 0.25),
        ("all_gather", "halving-doubling", 8, 1, 3, 0.875, 0, 0.875, 0),
        ("alltoall", "pairwise", 8, 2, 7, 0.875, 0.5, 0.875, 0.5),
        ("gather", "pairwise", 8, 2, 1, 0.109375, 0.0625, 0.875, 0.5),
        ("sendrecv", "pairwise", 8, 2, 1, 1, 0.25, 1, 1),
        ("sendrecv", "pairwise", 8, 1, 1, 1, 0, 1, 0),
    ],
)  # fmt: skip
def test_what_an_algorithm_moves_of_one_gb(
    op: str, algorithm: str, ranks: int, nodes: int, steps: int, sends: float, crosses: float, most: float,
    most_crosses: float,
) -> None:  # fmt: skip
    one = found(op, algorithm, GB, ranks, nodes)
    moved = one.sends, one.crosses, one.most, one.most_crosses
    assert one.steps == steps
    assert [each / GB for each in moved] == pytest.approx([sends, crosses, most, most_crosses])


@pytest.mark.parametrize(("ranks", "nodes"), [(1, 1), (4, 0), (4, 3)])
def test_ranks_that_cannot_be_shared_out_are_no_operation(ranks: int, nodes: int) -> None:
    with pytest.raises(ValueError, match=f"{ranks} ranks over {nodes} nodes"):
        Operation("all_reduce", GB, ranks, nodes)
