"""Placement: what none may ever do, the best there is on small clusters, and cases checked by hand."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations, product
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.lab.advice.clusters import node, placed, racks, refused, where
from tests.rows import each
from wirewatch.core.types import Health
from wirewatch_lab.advice.placement import document
from wirewatch_lab.advice.placement.cluster import ClusterNode, NodePool
from wirewatch_lab.advice.placement.document import placed_remarks
from wirewatch_lab.advice.placement.jobs import Infeasible, PlacedGpu, PlacedJob, PlacementJob
from wirewatch_lab.advice.placement.proposals import MOST_PP, Proposals
from wirewatch_lab.advice.placement.solver import place
from wirewatch_lab.advice.placement.space import Level, Space, bundles, most, space_of

SIZES = st.sampled_from([(8,), (4, 4), (2, 2), (6, 4), (8, 5, 3), (4,), (1, 1, 1, 1), (3,)])
JOBS = st.builds(PlacementJob, tp=st.integers(1, 9), pp=st.integers(1, 4), replicas=st.integers(1, 5))


@st.composite
def clusters(draw: st.DrawFn, most_nodes: int = 6) -> list[ClusterNode]:
    """Nodes of any health with islands, busy GPUs, racks and leafs that need not nest, and NVL72 parts."""
    nodes = []
    for number in range(draw(st.integers(0, most_nodes))):
        fabric = draw(st.sampled_from(["", "", "", "f1", "f2"]))
        sizes = (4,) if fabric else draw(SIZES)
        one = node(
            f"n{number}", *sizes, fabric=fabric,
            busy=sorted(draw(st.sets(st.integers(0, sum(sizes) - 1), max_size=3))),
            rack=draw(st.sampled_from(["", "r1", "r2", "r10"])), leaf=draw(st.sampled_from(["", "l1", "l2"])),
            product=draw(st.sampled_from(["H100", "H100", "A100"])),
            health=draw(st.sampled_from([None, Health.OK, Health.DEGRADED, Health.FAILED, Health.UNKNOWN])),
            drained=draw(st.sampled_from([False, False, False, True])),
        )  # fmt: skip
        nodes.append(one)
    return nodes


def usable(nodes: Sequence[ClusterNode]) -> Space:
    return space_of(NodePool("c", tuple(nodes)).usable(degraded=False))


def objective(space: Space, placed_job: PlacedJob) -> tuple[int, ...]:
    """What is as small as it can be in a space, the weightiest first.

    Products in a mix, then TP groups by how far they are stretched, then replicas by how far apart their
    GPUs are; of both the farthest level first.
    """
    groups = [stage.gpus for one in placed_job.replicas for stage in one.stages]
    replicas = [[gpu for stage in one.stages for gpu in stage.gpus] for one in placed_job.replicas]
    farthest = range(len(space.levels) - 1, 0, -1)
    counts = []
    for parts in (groups, replicas):
        places = [space.levels.index(narrowest(space, part)) for part in parts]
        counts += [sum(place >= level for place in places) for level in farthest]
    return (int(placed_job.mixed), *counts)


def narrowest(space: Space, gpus: Iterable[PlacedGpu]) -> Level:
    """The narrowest level with one unit around all of these GPUs."""
    units = {
        (cell.node.name, index): domain.units
        for domain in space.domains
        for cell in domain.cells
        for index in cell.gpus
    }
    around = zip(*(units[gpu.node.name, gpu.index] for gpu in gpus), strict=True)
    return next(level for level, same in zip(space.levels, around, strict=True) if len(set(same)) == 1)


def check(nodes: Sequence[ClusterNode], jobs: Sequence[PlacementJob], found: Sequence[PlacedJob]) -> None:
    """Every GPU once, free and of a node that may be used; all counts; levels as they are said."""
    by_name = {one.name: one for one in nodes}
    used = []
    for job, one in zip(jobs, found, strict=True):
        assert one.job is job
        assert len(one.replicas) == job.replicas
        for replica in one.replicas:
            assert len(replica.stages) == job.pp
            for stage in replica.stages:
                assert len(stage.gpus) == job.tp == sum(stage.shares)
                used += [(gpu.node.name, gpu.index) for gpu in stage.gpus]
                domains = {_domain(gpu.node, gpu.index) for gpu in stage.gpus}
                assert (stage.level is Level.DOMAIN) == (len(domains) == 1)
    assert len(used) == len(set(used))
    for name, index in used:
        of = by_name[name]
        assert index in range(of.wiring.gpus)
        assert index not in of.busy
        assert not of.drained
        assert of.health in {None, Health.OK}


def _domain(of: ClusterNode, index: int) -> object:
    return of.fabric or (of.name, next(one for one in of.wiring.islands if index in one))


@settings(max_examples=examples(400), deadline=None)
@given(clusters(), st.lists(JOBS, min_size=1, max_size=3), st.sampled_from(Level))
def test_never_over_capacity_and_never_where_it_may_not_be(
    nodes: list[ClusterNode], jobs: list[PlacementJob], level: Level
) -> None:
    space = usable(nodes)
    reach = level if level in space.levels else Level.CLUSTER
    found, inside = place(space, jobs, reach), place(space, jobs)
    if isinstance(found, Infeasible):
        assert found.reason
        assert isinstance(inside, Infeasible)
        return
    check(nodes, jobs, found)
    for replica in (replica for one in found for replica in one.replicas):
        assert all(stage.level is narrowest(space, stage.gpus) for stage in replica.stages)
        assert replica.level is narrowest(space, (gpu for stage in replica.stages for gpu in stage.gpus))
    stretched = [s.level for one in found for r in one.replicas for s in r.stages if s.level]
    assert all(one <= reach or one in {Level.LEAF, Level.RACK} for one in stretched)
    assert isinstance(inside, Infeasible) == bool(stretched), "a TP group is stretched though all fit"


@settings(max_examples=examples(300), deadline=None)
@given(clusters(), JOBS, SIZES, st.sampled_from(["", "r1", "r3"]), st.sampled_from(["H100", "A100"]))
def test_another_healthy_node_never_hurts(
    nodes: list[ClusterNode], job: PlacementJob, sizes: tuple[int, ...], rack: str, made: str
) -> None:
    fewer, more = usable(nodes), usable([*nodes, node("n99", *sizes, rack=rack, product=made)])
    before, after = place(fewer, [job]), place(more, [job])
    if isinstance(before, Infeasible):
        return
    assert not isinstance(after, Infeasible)
    assert objective(more, after[0]) <= objective(more, before[0])


@settings(max_examples=examples(300), deadline=None)
@given(clusters(), st.lists(JOBS, min_size=1, max_size=2), st.randoms(use_true_random=False))
def test_order_changes_nothing_and_new_numbers_change_only_names(
    nodes: list[ClusterNode], jobs: list[PlacementJob], random: object
) -> None:
    space = usable(nodes)
    first = place(space, jobs)
    shuffled = list(nodes)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert place(usable(shuffled), jobs) == first
    names = [f"host-{number:02}" for number in range(len(nodes))]
    random.shuffle(names)  # type: ignore[attr-defined]
    again = usable([replace(one, name=new) for one, new in zip(nodes, names, strict=True)])
    renamed = place(again, jobs)
    assert isinstance(renamed, Infeasible) == isinstance(first, Infeasible)
    if not isinstance(first, Infeasible) and not isinstance(renamed, Infeasible) and len(jobs) == 1:
        assert objective(again, renamed[0]) == objective(space, first[0])


@settings(max_examples=examples(300), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=5),
    st.integers(1, 4), st.integers(1, 3),
)  # fmt: skip
def test_no_arrangement_has_fewer_replicas_apart(
    leaves: list[tuple[int, int, int]], size: int, count: int
) -> None:
    """Against every arrangement, on up to five leaves in racks in halls."""
    capacity = [pieces for pieces, _, _ in leaves]
    racks_ = {(hall, rack): number for number, (hall, rack) in enumerate({(h, r) for _, r, h in leaves})}
    paths = [(n, racks_[hall, rack], hall, 0) for n, (_, rack, hall) in enumerate(leaves)]
    found = bundles(capacity, paths, size, count)
    used = [sum(n for one in found for leaf, n in one.parts if leaf == place) for place in range(len(leaves))]
    assert all(n <= free for n, free in zip(used, capacity, strict=True))
    assert all(sum(n for _, n in one.parts) == size for one in found)
    assert len(found) == min(count, sum(capacity) // size)
    best = _brute(tuple(capacity), paths, size, len(found))
    for level in range(4):
        inside = sum(one.level <= level for one in found)
        assert inside == best[level] == min(len(found), most(capacity, paths, size)[level])


def _brute(capacity: tuple[int, ...], paths: Sequence[tuple[int, ...]], size: int, count: int) -> list[int]:
    """The most bundles inside single units of each level, over all arrangements of so many."""
    shapes = [one for one in product(*(range(min(n, size) + 1) for n in capacity)) if sum(one) == size]
    widths = [
        next(
            level for level in range(4) if len({paths[n][level] for n, taken in enumerate(one) if taken}) == 1
        )
        for one in shapes
    ]
    best = [0, 0, 0, 0]

    def descend(first: int, left: tuple[int, ...], chosen: list[int]) -> None:
        if len(chosen) == count:
            for level in range(4):
                best[level] = max(best[level], sum(width <= level for width in chosen))
            return
        for number in range(first, len(shapes)):
            rest = tuple(a - b for a, b in zip(left, shapes[number], strict=True))
            if min(rest) >= 0:
                descend(number, rest, [*chosen, widths[number]])

    descend(0, capacity, [])
    return best


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 8), st.sampled_from([40e9, 80e9])), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 3), st.booleans()), min_size=1, max_size=3),
)
def test_groups_are_placed_whole_wherever_any_arrangement_is(
    sizes: list[tuple[int, float]], asked: list[tuple[int, int, bool]]
) -> None:
    """Several jobs, some of which need the larger memory, against every way to deal out their groups."""
    nodes = [node(f"n{number}", free, memory=memory) for number, (free, memory) in enumerate(sizes)]
    jobs = [PlacementJob(tp, 1, replicas, 70e9 if large else 30e9) for tp, replicas, large in asked]
    found = place(space_of(nodes), jobs)
    groups = sorted(((job.tp, job.memory) for job in jobs for _ in range(job.groups)), reverse=True)
    assert isinstance(found, tuple) == _dealt_out(tuple(sizes), tuple(groups))


@cache
def _dealt_out(domains: tuple[tuple[int, float], ...], groups: tuple[tuple[int, float], ...]) -> bool:
    if not groups:
        return True
    (gpus, memory), *rest = groups
    for place_, (free, has) in enumerate(domains):
        if free >= gpus and has >= memory:
            left = (*domains[:place_], (free - gpus, has), *domains[place_ + 1 :])
            if _dealt_out(left, tuple(rest)):
                return True
    return False


@settings(max_examples=examples(200), deadline=None)
@given(
    st.lists(st.sampled_from([(8,), (4, 4), (6, 4), (8, 5, 3)]), min_size=1, max_size=4),
    JOBS, st.randoms(use_true_random=False),
)  # fmt: skip
def test_other_indices_of_gpus_change_only_indices(
    shapes: list[tuple[int, ...]], job: PlacementJob, random: object
) -> None:
    nodes = [node(f"n{number}", *sizes) for number, sizes in enumerate(shapes)]
    again = []
    for one in nodes:
        order = list(range(one.wiring.gpus))
        random.shuffle(order)  # type: ignore[attr-defined]
        islands = tuple(sorted(tuple(sorted(order[gpu] for gpu in part)) for part in one.wiring.islands))
        again.append(replace(one, wiring=replace(one.wiring, islands=islands)))
    first, second = place(space_of(nodes), [job]), place(space_of(again), [job])
    if isinstance(first, Infeasible) or isinstance(second, Infeasible):
        assert isinstance(first, Infeasible) == isinstance(second, Infeasible)
        return
    check(again, [job], second)
    assert objective(space_of(nodes), first[0]) == objective(space_of(again), second[0])


def test_islands_of_four_refuse_eight() -> None:
    box = [node("a", 4, 4)]
    why = refused(box, PlacementJob(8))
    assert (why.proven, why.reason) == (
        True, "TP 8 takes 8 free GPUs in one NVLink domain, and the largest has 4 (a GPUs 0-3)",
    )  # fmt: skip
    (four,) = placed(box, PlacementJob(4, 1, 2))
    assert list(where(four)) == [("a", (0, 1, 2, 3)), ("a", (4, 5, 6, 7))]


def test_six_and_four_take_both_whole() -> None:
    """Four first would take the six's room, whatever the order in which they are named."""
    nodes = [node("a", 6), node("b", 4)]
    for jobs in ([PlacementJob(4), PlacementJob(6)], [PlacementJob(6), PlacementJob(4)]):
        found = placed(nodes, *jobs)
        assert {(one.job.tp, *where(one)) for one in found} == {
            (4, ("b", (0, 1, 2, 3))), (6, ("a", (0, 1, 2, 3, 4, 5))),
        }  # fmt: skip


def test_a_small_group_takes_the_domain_that_it_fills() -> None:
    """So that TP 6 has its room when it comes, as another job, tomorrow."""
    assert list(where(placed([node("a", 6), node("b", 4)], PlacementJob(4))[0])) == [("b", (0, 1, 2, 3))]


def test_largest_first_is_not_enough_for_every_mix() -> None:
    """Six alone would go where it fills best, the eight; but then three fours have no room left."""
    nodes = [node("a", 8), node("b", 10)]
    assert [name for name, _ in where(placed(nodes, PlacementJob(6))[0])] == ["a"]
    found = placed(nodes, PlacementJob(6), PlacementJob(4, 1, 3))
    assert [name for name, _ in where(found[0])] == ["b"]
    assert sorted(name for name, _ in where(found[1])) == ["a", "a", "b"]


def test_unequal_islands_hold_what_they_hold() -> None:
    box = [node("a", 8, 5, 3)]
    assert len(placed(box, PlacementJob(4, 1, 3))[0].replicas) == 3
    assert "there is room for 3" in refused(box, PlacementJob(4, 1, 4)).reason
    assert [index for _, index in where(placed(box, PlacementJob(3, 1, 4))[0])][-1] == (13, 14, 15)


def test_sixteen_fit_an_nvl72_and_no_hgx() -> None:
    hgx = [node(f"h{n}") for n in range(4)]
    assert "the largest has 8" in refused(hgx, PlacementJob(16)).reason
    rack = [node(f"gb{n:02}", 4, fabric="nvl72", product="GB200", rack="r1") for n in range(18)]
    (found,) = placed(rack, PlacementJob(16, 1, 4))
    assert not any(objective(space_of(rack), found))
    first = sorted({gpu.node.name for gpu in found.replicas[0].stages[0].gpus})
    assert first == ["gb00", "gb01", "gb02", "gb03"]
    assert "takes 80 GPUs, and 72 are free" in refused(rack, PlacementJob(16, 1, 5)).reason


def test_two_domains_of_one_node_are_wider_than_one_island() -> None:
    box = [node("a", 4, 4), node("b", 4, 4)]
    (found,) = placed(box, PlacementJob(8, 1, 2), reach=Level.NODE)
    assert [one.stages[0].level for one in found.replicas] == [Level.NODE, Level.NODE]
    assert "even stretched" in refused(box, PlacementJob(12), reach=Level.NODE).reason


def test_stretching_takes_the_narrowest_unit_there_is() -> None:
    nodes = racks(1, 2, 2)
    (found,) = placed(nodes, PlacementJob(16, 1, 2), reach=Level.CLUSTER)
    assert [one.stages[0].level for one in found.replicas] == [Level.RACK, Level.RACK]
    assert "gpu001" not in {gpu.node.name for one in found.replicas for gpu in one.stages[0].gpus}
    assert isinstance(place(space_of(racks(1, 1)), [PlacementJob(16)], Level.RACK), Infeasible)


def test_stages_stay_in_a_rack_and_ranks_of_a_replica_together() -> None:
    (found,) = placed(racks(3, 2, 2), PlacementJob(8, 2, 3))
    assert [one.level for one in found.replicas] == [Level.RACK] * 3
    (found,) = placed(racks(3, 3), PlacementJob(8, 2, 3))
    assert sorted(one.level for one in found.replicas) == [Level.RACK, Level.RACK, Level.CLUSTER]
    (found,) = placed(racks(3, 3), PlacementJob(4, 2, 3))
    assert [one.level for one in found.replicas] == [Level.DOMAIN] * 3


def test_drained_failed_unknown_and_degraded_nodes_are_left_out() -> None:
    nodes = [
        node("a", drained=True), node("b", health=Health.FAILED), node("c", health=Health.UNKNOWN),
        node("d", health=Health.DEGRADED), node("e", health=Health.OK),
    ]  # fmt: skip
    cluster = NodePool("c", tuple(nodes))
    assert [one.name for one in cluster.usable(degraded=False)] == ["e"]
    assert [one.name for one in cluster.usable(degraded=True)] == ["d", "e"]
    assert cluster.left_out(degraded=False) == {"drained": 1, "FAILED": 1, "UNKNOWN": 1, "DEGRADED": 1}


def test_a_partial_node_is_filled_before_a_whole_one_is_cut() -> None:
    nodes = [node("a"), node("b", busy=[0, 1, 2]), node("c", busy=[5])]
    (found,) = placed(nodes, PlacementJob(4))
    assert list(where(found)) == [("b", (4, 5, 6, 7))], "of b's five free GPUs the four that are neighbours"


def test_one_product_is_preferred_to_a_mix_and_the_faster_one() -> None:
    nodes = [node("a1", product="A100"), node("h1"), node("a2", product="A100")]
    assert [name for name, _ in where(placed(nodes, PlacementJob(8))[0])] == ["h1"]
    (found,) = placed(nodes, PlacementJob(8, 1, 2))
    assert (found.mixed, [name for name, _ in where(found)]) == (False, ["a1", "a2"])
    assert placed(nodes, PlacementJob(8, 1, 3))[0].mixed


def test_a_gpu_that_is_too_small_or_not_known_holds_no_model() -> None:
    nodes = [node("a", memory=40e9), node("b", memory=80e9), node("c", product="")]
    (found,) = placed(nodes, PlacementJob(8, memory=70e9))
    assert [name for name, _ in where(found)] == ["b"]
    assert "are counted" in refused(nodes, PlacementJob(8, 1, 2, memory=70e9)).reason


def test_racks_and_leafs_that_cross_count_as_one() -> None:
    nodes = [
        node("a", rack="r1", leaf="l1"), node("b", rack="r2", leaf="l1"),
        node("c", rack="r1", leaf="l2"), node("d", rack="r3", leaf="l3"),
    ]  # fmt: skip
    assert space_of(nodes).joined == (
        "racks r1, r2 count as one rack: something inside lies in several of them",
    )
    inside = [replace(one, leaf="l1") for one in nodes]
    assert space_of(inside).levels == (Level.DOMAIN, Level.NODE, Level.RACK, Level.LEAF, Level.CLUSTER)
    assert space_of(inside).joined == ()


def test_a_single_stretched_group_is_as_wide_as_its_replica() -> None:
    (found,) = placed(racks(2, 2), PlacementJob(16), reach=Level.CLUSTER)
    (replica,) = found.replicas
    assert (replica.level, replica.stages[0].level) == (Level.RACK, Level.RACK)


def test_nodes_without_a_rack_are_in_racks_of_their_own() -> None:
    nodes = [node("a", rack="r1"), node("b"), node("c"), node("d", rack="r1")]
    (found,) = placed(nodes, PlacementJob(8, 2))
    assert [name for name, _ in where(found)] == ["a", "d"]


@pytest.mark.parametrize("pair", list(combinations(range(3), 2)))
def test_a_rack_that_holds_all_replicas_is_taken(pair: tuple[int, int]) -> None:
    sizes = [5 if place in pair else 3 for place in range(3)]
    (found,) = placed(racks(*sizes), PlacementJob(8, 1, 3))
    assert len({gpu.node.rack for one in found.replicas for s in one.stages for gpu in s.gpus}) == 1


def test_of_groups_that_are_stretched_the_widest_is_said() -> None:
    """One leaves an island of its node, and one its node."""
    nodes = [node("a", 4, 4, rack="r1"), node("b", 4, rack="r1"), node("c", 4, rack="r1")]
    found = placed(nodes, PlacementJob(8, 1, 2), reach=Level.RACK)
    assert [stage.level for one in found[0].replicas for stage in one.stages] == [Level.NODE, Level.RACK]
    (remark,) = placed_remarks(space_of(nodes), found)
    assert remark.startswith(
        "TP IS STRETCHED: 2 of 2 TP groups of 8 leave one node: each of their all-reduces"
    )


@pytest.mark.parametrize(("most_names", "end"), [(4, "a1,b"), (3, "a1,...")])
def test_the_nodes_of_ranks_off_their_rail_are_shown_shortly(
    monkeypatch: pytest.MonkeyPatch, most_names: int, end: str
) -> None:
    monkeypatch.setattr(document, "MOST_NAMES", most_names)
    nodes = [replace(node("a1", 4), rails=4), replace(node("b", 4, busy=(0,)), rails=3)]
    found = placed(nodes, PlacementJob(3, 2))
    (remark,) = placed_remarks(space_of(nodes), found)
    assert remark.startswith("3 of 3 tensor ranks reach their peer in the next stage on another rail")
    assert remark.endswith(f": {end}")


def test_what_cannot_be_placed_says_the_simplest_reason() -> None:
    busy = [node("a", busy=range(8))]
    assert refused(busy, PlacementJob(1)).reason == "no GPU is free that may be used"
    assert refused([], PlacementJob(1)).reason == "no GPU is free that may be used"
    one = [node("a", busy=range(7))]
    assert refused(one, PlacementJob(2)).reason == "TP 2 x PP 1 x 1 replica takes 2 GPUs, and 1 is free"
    assert (
        refused(one, PlacementJob(1, 2, 2)).reason == "TP 1 x PP 2 x 2 replicas takes 4 GPUs, and 1 is free"
    )
    halves = [node("a", 4, 4)]
    assert refused(halves, PlacementJob(8)).reason == (
        "TP 8 takes 8 free GPUs in one NVLink domain, and the largest has 4 (a GPUs 0-3)"
    )
    assert refused(halves, PlacementJob(3, 1, 2), PlacementJob(2)).reason == (
        "each job fits alone, but their TP groups do not fit whole into the NVLink domains side by side"
    )
    assert refused(halves, PlacementJob(4), PlacementJob(8)).reason.startswith("TP 8 takes 8 free GPUs")
    assert (
        refused(halves, PlacementJob(4, 2), PlacementJob(1)).reason
        == "together the jobs take 9 GPUs, and 8 are free"
    )
    two = [node("a", 5), node("b", 5)]
    assert refused(two, PlacementJob(3, 3)).reason == (
        "3 TP groups of 3 GPUs have to lie whole in NVLink domains, and there is room for 2: of the 10 free "
        "GPUs 4 are left over in pieces"
    )
    assert refused(two, PlacementJob(6), reach=Level.NODE).reason == (
        "1 TP groups of 6 GPUs do not fit, even stretched within one node each"
    )
    assert refused(two, PlacementJob(1, memory=90e9)).reason.endswith(
        "no GPU is free that may be used (GPUs with 90.0 GB and more are counted)"
    )


@pytest.mark.parametrize(
    ("jobs", "reach", "proven"),
    [
        ((PlacementJob(9),), Level.DOMAIN, True),
        ((PlacementJob(9),), Level.CLUSTER, True),
        ((PlacementJob(9), PlacementJob(9)), Level.DOMAIN, True),
        ((PlacementJob(9), PlacementJob(9)), Level.CLUSTER, False),
    ],
)
def test_several_stretched_jobs_are_not_proven_to_have_no_place(
    jobs: tuple[PlacementJob, ...],
    reach: Level,
    proven: bool,  # noqa: FBT001
) -> None:
    assert refused([node("a")], *jobs, reach=reach).proven is proven


@each(
    ("pp", "free", "layers", "example", "most"),
    [
        (9, 1000, 96, False, 8),  # fewer than asked for
        (9, 8, 96, False, 4),  # as many as there is room for, by TP and replicas
        (200, 1000, 96, False, 96),  # no more than the model has layers
        (200, 1000, 96, True, 199),  # an example has no layers
        (1, 1000, 96, False, 0),
    ],
)
def test_fewer_stages_begin_with_the_most_that_can_be(
    pp: int,
    free: int,
    layers: int,
    example: bool,  # noqa: FBT001
    most: int,
) -> None:
    workload: Any = SimpleNamespace(example=example, shape=SimpleNamespace(layers=layers))
    space: Any = SimpleNamespace(domains=[SimpleNamespace(free=free)])
    pool: Any = None
    found = list(Proposals(pool, workload, degraded=False)._fewer_stages(PlacementJob(2, pp, 1), space))  # noqa: SLF001
    assert [one for _, one, _ in found] == list(range(most, max(0, most - MOST_PP), -1))
