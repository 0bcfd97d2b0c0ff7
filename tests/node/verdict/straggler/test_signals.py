"""Rates of a probe, and limits of the policy, in tables; in each row a single difference decides."""

from dataclasses import replace

import pytest

from tests.node.probe.drawn import drawn, gloo, on_switch
from tests.node.verdict.straggler.nodes import POLICY, gpu, history, probe, told
from tests.rows import each
from wirewatch.core.probe import LinkBytes, Micro
from wirewatch.core.topology import WireKind
from wirewatch.verdict.straggler.naming import Ceiling, name_stragglers
from wirewatch.verdict.straggler.signals import (
    Deviation,
    Loss,
    RateHistory,
    Resource,
    Signals,
    StragglerPolicy,
    Unit,
    common,
    deviations,
    learn,
    memory_rate,
    product_seconds,
    signals,
)

GOOD = drawn(on_switch(4))
UUIDS = GOOD.plan.gpus
MICRO = Micro(0, 2.0, 2.0, 2.0, 100, 4.0, 4.0, 4.0)
UNIT = Unit(Resource.COMPUTE, "GPU-0")
SURE = 1e-3


@pytest.mark.parametrize(
    ("micro", "seconds", "rate"),
    [
        (MICRO, 2.0, 50.0),
        (replace(MICRO, gemm_mean=3.0, copy_mean=5.0), 3.0, 40.0),
        (replace(MICRO, gemm_seconds=0.0, copy_seconds=0.0), 0.0, 0.0),
    ],
)
def test_a_gpu_is_judged_by_its_mean_or_else_its_median(micro: Micro, seconds: float, rate: float) -> None:
    assert (product_seconds(micro), memory_rate(micro)) == (seconds, rate)


def test_what_took_no_time_has_no_rate() -> None:
    document = GOOD.shown
    copies = (replace(document.copies[0], seconds=0.0), *document.copies[1:])
    micros = (replace(document.micros[0], gemm_seconds=0.0, copy_seconds=0.0), *document.micros[1:])
    found = signals(replace(GOOD, document=replace(document, copies=copies, micros=micros))).rates
    without = {
        Unit(Resource.COMPUTE, UUIDS[0]), Unit(Resource.MEMORY, UUIDS[0]),
        Unit(Resource.PAIR, UUIDS[document.copies[0].source], UUIDS[document.copies[0].destination]),
    }  # fmt: skip
    assert signals(GOOD).rates.keys() - found.keys() == without


def test_a_probe_without_gpus_or_results_has_no_kind() -> None:
    assert signals(gloo()) == Signals("", {}, {})
    assert signals(replace(GOOD, document=None)) == Signals("", {}, {})
    assert signals(replace(GOOD, outcome="preempted")) == Signals("", {}, {})


@pytest.mark.parametrize(("kind", "wire"), [(WireKind.SWITCH, "NVSwitch [0, 1, 2, 3] "), (WireKind.PCIE, "")])
def test_a_pair_goes_by_the_even_wire_of_the_smallest_group_of_both(kind: WireKind, wire: str) -> None:
    (one,) = GOOD.conditions
    conditions = tuple(replace(one, group=replace(one.group, kind=each)) for each in (kind, WireKind.PAIR))
    plan = replace(GOOD.plan, groups=((0, 1, 2, 3), (0, 1)))
    found = signals(replace(GOOD, plan=plan, conditions=conditions)).wires
    for copy in GOOD.shown.copies:
        start = "an NVLink bridge [0, 1] " if {copy.source, copy.destination} == {0, 1} else wire
        how = "direct" if copy.direct else "through the host"
        unit = Unit(Resource.PAIR, UUIDS[copy.source], UUIDS[copy.destination])
        assert found[unit] == f"{start}{how}"


@each(
    ("transmit", "receive", "lost"),
    [
        ((100, 100, 40), (100, 100, 100), 0.5),
        ((100, 100, 100), (100, 100, 40), 0.5),
        ((100, 0, 100), (100, None, 100), 0.0),
        ((100, 0, 0), (None, 100, 40), 1 - 40 * 2 / 140),
        ((100, 0, 0), (None, None, 40), None),
    ],
)
def test_the_lowest_link_beside_the_mean(
    transmit: tuple[int | None, ...], receive: tuple[int | None, ...], lost: float | None
) -> None:
    probed = replace(GOOD, links=(LinkBytes(2, (0, 1, 2), transmit, receive),))
    known = {} if lost is None else {Unit(Resource.LINK, UUIDS[2]): pytest.approx(lost)}
    assert signals(probed).links == known


@each(
    ("kinds", "compared"),
    [
        ((WireKind.SWITCH,), True), ((WireKind.PAIR,), True), ((WireKind.SWITCH, WireKind.PAIR), True),
        ((WireKind.SWITCH, WireKind.MESH), False), ((WireKind.PCIE, WireKind.PAIR), False),
    ],
)  # fmt: skip
def test_links_are_compared_where_all_wires_spread_alike(
    kinds: tuple[WireKind, ...], *, compared: bool
) -> None:
    (one,) = GOOD.conditions
    conditions = tuple(replace(one, group=replace(one.group, kind=kind)) for kind in kinds)
    assert bool(signals(replace(GOOD, conditions=conditions)).links) is compared


@each(
    ("memory", "slow", "others"),
    [
        (0.7, {"gemm_high": 1.0, "gemm_low": 0.7}, {UUIDS[1]: True}),
        (0.5, {"copy_high": 1.0, "copy_low": 0.7}, {UUIDS[1]: True}),
        (0.4, {"copy_high": 1.0, "copy_low": 0.7}, {UUIDS[1]: False}),
        (0.7, {"copy_high": 1.0, "copy_low": 0.8, "gemm_high": 1.0, "gemm_low": 0.8}, {}),
        (None, {"gemm_high": 1.0, "gemm_low": 0.7}, {}),
    ],
)
def test_another_process_shows_where_it_is_known_and_some_runs_waited(
    memory: float | None, slow: dict[str, float], others: dict[str, bool]
) -> None:
    document = GOOD.shown
    micros = tuple(replace(one, **slow) if one.gpu == 1 else one for one in document.micros)  # type: ignore[arg-type]
    gpus = tuple(replace(one, others_memory=memory) if n == 1 else one for n, one in enumerate(GOOD.gpus))
    found = signals(replace(GOOD, gpus=gpus, document=replace(document, micros=micros)))
    assert found.others == others
    assert found.used == (set() if memory is None else {UUIDS[1]})


@each(
    ("values", "wrong"),
    [
        ({}, ""),
        ({"confirm": 1, "among": 1, "learn": 1}, ""),
        ({"confirm": 3, "among": 3}, ""),
        ({"confirm": 4}, "confirm must not be above among: 4"),
        ({"learn": 0}, "must be above 0: 'learn'"),
        ({"confirm": 0}, "must be above 0: 'confirm'"),
        ({"own": 0.0}, "must be above 0 and below 1: 'own'"),
        ({"peers": 1.0}, "must be above 0 and below 1: 'peers'"),
        ({"noise_link": 1.0}, "must be above 0 and below 1: 'noise_link'"),
        ({"score": 0.0}, "score must be above 0: 0.0"),
        ({"score": float("inf")}, "score must be above 0: inf"),
    ],
)
def test_which_policies_can_be_meant(values: dict[str, float], wrong: str) -> None:
    assert replace(POLICY, **values).wrong() == wrong  # type: ignore[arg-type]


def test_sure_is_one_probe_more_than_confirms_as_far_as_are_looked_at() -> None:
    assert [StragglerPolicy(confirm=n).sure for n in (1, 2, 3)] == [2, 3, 3]


def deviation(own: float | None = None, peers: float | None = None, uuid: str = "GPU-0") -> Deviation:
    mine, theirs = (None if part is None else Loss(part, SURE, 1.0) for part in (own, peers))
    return Deviation(Unit(Resource.COMPUTE, uuid), 1.0, mine, theirs)


@pytest.mark.parametrize(
    ("own", "peers", "score"), [(0.1, 0.3, 300.0), (0.3, 0.1, 300.0), (0.1, None, 100.0), (None, None, 0.0)]
)
def test_the_score_is_the_larger_of_both(own: float | None, peers: float | None, score: float) -> None:
    assert deviation(own, peers).score == pytest.approx(score)


@each(
    ("own", "peers", "lost"),
    [
        (0.2, 0.3, 0.3), (0.29, 0.3, 0.29), (0.3, 0.2, 0.3), (0.05, 0.2, 0.2), (0.2, 0.05, 0.2),
        (0.05, 0.05, None), (None, 0.2, 0.2), (None, None, None),
    ],
)  # fmt: skip
def test_the_loss_that_decides(own: float | None, peers: float | None, lost: float | None) -> None:
    found = deviation(own, peers).decisive_loss(POLICY)
    assert (None if found is None else found.part) == lost


@each(
    ("ones", "lost"),
    [
        ([deviation(0.2), deviation(0.3)], 0.2),
        ([deviation(0.2), deviation(0.05)], 0.0),
        ([deviation(0.2), deviation(None, 0.3)], 0.0),
        ([deviation(0.2)], 0.0),
        ([], 0.0),
    ],
)
def test_what_all_have_lost(ones: list[Deviation], lost: float) -> None:
    assert common(ones, POLICY) == lost


def test_a_gpu_alone_has_no_peers() -> None:
    assert {one.peers for one in deviations(probe(1), history(1), POLICY).values()} == {None}


def test_one_that_is_slower_than_it_was_is_compared_with_its_peers_as_it_is_now() -> None:
    references = RateHistory()
    for number in range(12):
        references = learn(references, probe(4, {"compute 2": 0.95}), 600.0 * number)
    found = deviations(probe(4, {"compute 2": 0.8}), references, POLICY)[Unit(Resource.COMPUTE, gpu(2))]
    assert found.own is not None
    assert found.peers is not None
    assert found.own.part == pytest.approx(1 - 0.8 / 0.95)
    assert found.peers.part > 0.18


def test_a_pair_is_beside_its_end_by_history_as_by_peers_where_one_of_them_is_not_known() -> None:
    pair = deviation(0.3, 0.3)
    for end, own, peers in (
        (deviation(0.3, 0.1), 0.0, 1 - 0.7 / 0.9),
        (deviation(0.3), 0.0, 0.0),
        (deviation(None, 0.3), 0.0, 0.0),
        (deviation(), 0.3, 0.3),
    ):
        left = Ceiling(end, 0.0, 0.0).leaves(pair)
        assert left.own is not None
        assert left.peers is not None
        assert [left.own.part, left.peers.part] == pytest.approx([own, peers])


@pytest.mark.parametrize(
    ("why", "part", "usual", "explained"),
    [
        ("hardly more than the end", 0.29, 1.0, True), ("far more than the end", 0.6, 1.0, False),
        ("far more, but no slower than what the end lets through", 0.6, 2.0, True),
    ],
)  # fmt: skip
def test_a_pair_is_explained_by_what_its_end_lets_through(
    why: str, part: float, usual: float, *, explained: bool
) -> None:
    pair = Deviation(UNIT, usual * (1 - part), Loss(part, SURE, usual))
    assert Ceiling(deviation(0.2), 0.8, 0.0).explains(pair, POLICY) is explained, why


@each(
    ("left", "copies", "named"),
    [
        ((0.57, 0.5), None, "compute 0"),
        ((0.57, 0.5), False, "compute 0"),
        ((0.57, 0.5), True, "memory 0"),
        ((0.82, 0.34), None, "memory 0"),
        ((0.82, 0.34), False, "compute 0"),
        ((0.82, 0.34), True, "memory 0"),
    ],
)
def test_what_another_process_mostly_uses_is_the_cause(
    left: tuple[float, float], named: str, *, copies: bool | None
) -> None:
    faults = dict(zip(("compute 0", "memory 0"), left, strict=True))
    others = {} if copies is None else {gpu(0): copies}
    (one,) = name_stragglers(replace(probe(4, faults), others=others), history(4), POLICY).slow
    assert told(one.unit) == named


def test_of_gpus_that_are_slow_alike_the_worst_is_told() -> None:
    left = {f"compute {n}": 0.85 for n in range(4)} | {"compute 1": 0.5}
    (node,) = name_stragglers(probe(4, left), history(4), POLICY).uniform
    assert (node.resource, round(node.worst, 2)) == (Resource.COMPUTE, 0.5)


def test_of_the_pairs_that_a_gpu_sends_by_the_worst_gives_its_score() -> None:
    scores = name_stragglers(probe(4, {"pair 2>3": 0.5}), history(4), POLICY).scores
    assert scores[Unit(Resource.PAIR, gpu(2))] > 10 > scores[Unit(Resource.PAIR, gpu(1))]


def test_a_pair_of_two_slow_ends_is_slow_by_the_slower_one() -> None:
    found = name_stragglers(probe(8, {"source 0": 0.8, "destination 3": 0.5}), history(8), POLICY)
    worst = {told(one.unit): round(one.worst, 2) for one in found.slow}
    assert worst == {"source 0": 0.2, "destination 3": 0.5}
    assert found.scores[Unit(Resource.PAIR, gpu(0))] < 1


def test_of_pairs_that_are_slow_alike_the_worst_is_told() -> None:
    left = {f"source {n}": 0.8 for n in range(4)} | {"pair 0>1": 0.5}
    (node,) = name_stragglers(probe(4, left), history(4), POLICY).uniform
    assert (node.resource, round(node.worst, 2)) == (Resource.PAIR, 0.5)


def test_an_end_keeps_its_own_loss_where_the_middle_of_its_pairs_shows_none() -> None:
    end = Ceiling(deviation(0.3, 0.3), 1.0, 1.0)
    assert end.of([deviation(0.2), deviation(0.4)], POLICY).deviation.own == Loss(0.2, SURE, 1.0)
    assert end.of([deviation(0.2, 0.0), deviation(None, 0.2)], POLICY) == end
    counted = [replace(deviation(0.2), count=n) for n in (9, 5, 7)]
    assert end.of(counted, POLICY).deviation.count == 5


def test_a_cause_does_not_hide_how_bad_the_worst_of_its_pairs_is() -> None:
    left = {"pair 0>1": 0.8, "pair 0>2": 0.78, "pair 0>3": 0.71}
    (slow,) = name_stragglers(probe(4, left), history(4), POLICY).slow
    assert (told(slow.unit), round(slow.lost, 2), round(slow.worst, 2)) == ("source 0", 0.22, 0.29)


@pytest.mark.parametrize("count", [2, 4, 6])
def test_slow_pairs_beside_one_that_is_well_are_no_slow_source(count: int) -> None:
    pairs = [f"pair 0>{n}" for n in range(1, count + 1)]
    found = name_stragglers(probe(8, dict.fromkeys(pairs, 0.7)), history(8), POLICY)
    assert sorted(told(one.unit) for one in found.slow) == pairs
