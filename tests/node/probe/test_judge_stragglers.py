"""Stragglers from probes to what people see: findings, series, documents, tables; and over restarts."""

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.node.probe.drawn import drawn, gloo, on_pcie, on_switch, two_islands
from tests.node.probe.hosted import hosted
from tests.node.probe.idle import Idle
from tests.node.probe.test_collector_metrics import READING
from tests.rows import each
from tests.support import EPOCH, StillClock
from wirewatch.cli.tables import probe_tables
from wirewatch.core.probe import Clocks, Probed
from wirewatch.core.types import Expect, Finding, Health
from wirewatch.documents.probed import probe
from wirewatch.probe.collector import next_due, samples
from wirewatch.probe.history import History, HistoryLimits
from wirewatch.probe.judge import (
    _of_node,
    _of_part,
    confirming,
    fold_probe,
    fold_probes,
    straggler_findings,
)
from wirewatch.probe.model import ProbeMemory, ProbeOptions, ProbePolicy
from wirewatch.probe.request import ProbeOverrides, probe_now
from wirewatch.probe.restore import SAMPLED, WITHOUT_DAEMON, accepted, keep, remember
from wirewatch.statefolder import StateFolder
from wirewatch.verdict.straggler.naming import ConfirmedStraggler, SlowNode, SlowPart, StragglerWatch
from wirewatch.verdict.straggler.signals import Loss, Resource, Unit, signals

POLICY = ProbePolicy()
EIGHT = on_switch(8)
GOOD = drawn(EIGHT)


def slow(**left: float) -> Probed:
    return drawn(EIGHT, left={name.replace("_", " "): value for name, value in left.items()})


def folded(probes: Sequence[Probed], memory: ProbeMemory | None = None) -> ProbeMemory:
    told = ((replace(one, at=EPOCH + 600.0 * n), 1000.0 + 600.0 * n) for n, one in enumerate(probes))
    return fold_probes(memory or ProbeMemory(), told, POLICY)


def only(memory: ProbeMemory) -> Finding:
    (finding,) = memory.held
    return finding


# --- findings


def test_one_probe_asks_for_another_and_two_make_a_finding() -> None:
    once = folded([GOOD] * 6 + [slow(memory_3=0.85)])
    assert (once.held, once.clean, confirming(once)) == ((), False, True)
    options = ProbeOptions(jitter=0.0)
    assert once.tried_mono is not None
    assert next_due(once, options, ()) == once.tried_mono + 60.0
    twice = folded([GOOD] * 6 + [slow(memory_3=0.85)] * 2)
    finding = only(twice)
    assert (finding.rule, finding.health) == ("straggler.memory", Health.DEGRADED)
    assert (finding.subject.gpu, finding.subject.uuid) == ("3", GOOD.gpus[3].uuid)
    assert finding.since == EPOCH + 6 * 600.0
    assert not confirming(twice)


def test_it_says_by_how_much_against_what_and_what_its_peers_reach() -> None:
    finding = only(folded([GOOD] * 6 + [slow(memory_3=0.85)] * 2))
    assert finding.evidence == (
        "GPU 3, copies within its memory: 3521.1 GB/s, 15 % slower than its own history of 6 probes "
        "(4142.5 GB/s); its peers reach 4142.5 GB/s; seen in 2 of the last 2 probes"
    )
    assert "ECC" in finding.action


def test_a_product_has_no_unit_but_its_time_and_the_clock() -> None:
    assert only(folded([slow(compute_5=0.7)] * 2)).health is Health.DEGRADED
    finding = only(folded([slow(compute_5=0.7)] * 3))
    assert finding.health is Health.FAILED
    assert finding.evidence == (
        "GPU 5, matrix products: 1.289 ms each, 30 % slower than its peers (0.902 ms each); it has no "
        "history of its own yet; seen in 3 of the last 3 probes; its SM clock was 1980 MHz"
    )


def test_what_holds_a_gpu_back_is_reported_with_its_clock() -> None:
    slowed = slow(compute_5=0.7)
    clocks = tuple(replace(c, sm=1.62e9, reasons=0x5) if c.gpu == 5 else c for c in slowed.clocks)
    finding = only(folded([replace(slowed, clocks=clocks)] * 2))
    assert finding.evidence.endswith("its SM clock was 1620 MHz, held back by sw_power_cap")


def test_what_follows_is_reported_with_its_cause() -> None:
    left = {"compute 2": 0.5, "memory 2": 0.2, **{f"pair {n}>2": 0.45 for n in range(8) if n != 2}}
    finding = only(folded([GOOD] * 6 + [drawn(EIGHT, left=left)] * 2))
    assert finding.rule == "straggler.compute"
    assert (
        "also slow because of this: GPU 2, copies within its memory, GPU 2, copies from its peers to it"
        in finding.evidence
    )


def test_of_several_pairs_of_a_gpu_the_slowest_is_reported() -> None:
    finding = only(folded([GOOD] * 6 + [drawn(EIGHT, left={"pair 1>4": 0.8, "pair 1>6": 0.5})] * 2))
    assert (finding.rule, finding.health) == ("straggler.pair", Health.FAILED)
    assert finding.evidence.startswith("copies from GPU 1 to GPU 6: 195.1 GB/s, 50 % slower than its own")


def test_what_cannot_be_reported_is_a_pair_and_says_so() -> None:
    """Of four GPUs two slow as sources and the others as destinations: several explanations are as short."""
    four = on_switch(4)
    left = {f"pair {a}>{b}": 0.7 for a in range(4) for b in range(4) if a != b and (a < 2 or b > 1)}
    held = folded([drawn(four)] * 6 + [drawn(four, left=left)] * 2).held
    assert {finding.rule for finding in held} == {"straggler.pair"}
    assert [
        f.evidence.partition("; it cannot be determined whether ")[2] for f in held if f.subject.gpu == "2"
    ] == ["only this pair is slow, or GPU 3, copies from its peers to it"]


def test_half_of_the_gpus_slow_as_sources_are_named_alone() -> None:
    left = {f"pair {a}>{b}": 0.6 for a in range(4) for b in range(8) if a != b}
    held = folded([GOOD] * 6 + [drawn(EIGHT, left=left)] * 2).held
    assert [(finding.rule, finding.subject.gpu) for finding in held] == [
        ("straggler.source", str(gpu)) for gpu in range(4)
    ]


def test_a_source_is_slow_by_the_wires_of_its_island() -> None:
    left = {f"pair 1>{b}": 0.6 for b in (0, 2, 3)} | {f"pair 1>{b}": 0.99 for b in range(4, 8)}
    islands = two_islands()
    (finding,) = folded([drawn(islands)] * 6 + [drawn(islands, left=left)] * 2).held
    assert (finding.rule, finding.subject.gpu) == ("straggler.source", "1")


def test_a_slow_node_is_one_finding() -> None:
    left = {f"{what} {n}": 0.8 for n in range(8) for what in ("compute", "memory")}
    finding = only(folded([GOOD] * 6 + [drawn(EIGHT, left=left)] * 2))
    assert (finding.rule, str(finding.subject), finding.health) == ("straggler.node", "node", Health.DEGRADED)
    assert finding.evidence == "matrix products on all GPUs (8) are 20 % slower than they were"


def test_pairs_are_compared_where_they_have_the_same_wire() -> None:
    """Between islands, and over PCIe, a pair may be slower than others by design."""
    between = {f"pair {a}>{b}": 0.1 for a in range(4) for b in range(4, 8)}
    assert folded([drawn(two_islands(), left=between)] * 3).held == ()
    within = folded([drawn(two_islands(), left=between | {"pair 1>2": 0.5})] * 3)
    assert [f.rule for f in within.held] == ["straggler.pair"]
    far = {"pair 0>3": 0.5, "pair 3>0": 0.5}
    assert folded([drawn(on_pcie(4), left=far)] * 3).held == ()


def test_another_product_is_no_peer() -> None:
    """A node of two kinds of GPU: each is compared with its like."""
    (first, *rest) = EIGHT
    old = tuple(replace(gpu, name="NVIDIA H100 80GB HBM3") for gpu in first.group.gpus[:2])
    mixed = (replace(first, group=replace(first.group, gpus=(*old, *first.group.gpus[2:]))), *rest)
    left = {f"{what} {n}": 0.7 for what in ("compute", "memory") for n in (0, 1)}
    assert folded([drawn(mixed, left=left)] * 3).held == ()
    named = folded([drawn(mixed, left=left | {"compute 1": 0.5})] * 3).held
    assert [(finding.rule, finding.subject.gpu) for finding in named] == [("straggler.compute", "1")]


def test_there_a_pair_is_judged_by_its_own_history() -> None:
    memory = folded([drawn(on_pcie(4))] * 6 + [drawn(on_pcie(4), left={"pair 0>3": 0.5})] * 2)
    assert [f.rule for f in memory.held] == ["straggler.pair"]


def test_processors_are_no_stragglers() -> None:
    memory = folded([gloo()] * 3)
    assert (memory.held, memory.stragglers.named.scores) == ((), {})


def test_a_forced_probe_changes_nothing() -> None:
    before = folded([GOOD] * 6)
    after = fold_probe(before, replace(slow(memory_3=0.2), forced=True), 1e4, POLICY)
    assert after.stragglers == before.stragglers


def test_a_probe_that_found_something_else_is_no_history() -> None:
    assert folded([drawn(EIGHT, speed=0.5)] * 8).stragglers.references.values == {}


# --- series


def series(memory: ProbeMemory, name: str) -> Mapping[tuple[str, ...], float]:
    told = samples(READING, replace(memory, fresh=True))
    return {(s.labels[0], s.labels[2]): s.value for s in told if s.metric.name == name}


def test_every_gpu_has_a_score_of_every_signal_and_the_slow_one_is_named() -> None:
    memory = folded([hosted(GOOD)] * 6 + [hosted(slow(memory_3=0.85))] * 2)
    scores = series(memory, "straggler_score")
    assert set(scores) == {(str(n), resource.value) for n in range(8) for resource in Resource}
    assert scores["3", "memory"] == pytest.approx(0.15 / 0.005, rel=0.01)
    assert all(abs(score) < 2 for key, score in scores.items() if key != ("3", "memory"))
    assert series(memory, "straggler") == {("3", "memory"): 1}


def test_an_uneven_link_is_a_slow_link() -> None:
    memory = folded([drawn(EIGHT, link=(2, 5, 0.5))] * 2)
    assert series(memory, "straggler") == {("2", "link"): 1}
    assert series(memory, "straggler_score")["2", "link"] > 20


def test_no_part_is_named_on_a_healthy_node() -> None:
    assert series(folded([GOOD] * 6), "straggler") == {}


# --- documents


def test_a_probe_names_at_once_what_it_found() -> None:
    memory = folded([GOOD] * 6 + [drawn(EIGHT, left={"pair 1>4": 0.8})])
    assert memory.last is not None
    document = probe(memory.last, memory.measured, memory.held, memory.stragglers.named)
    (one,) = document.stragglers
    assert (one.resource, one.gpu, one.peer, one.against, one.probes) == ("pair", 1, 4, "own", 6)
    assert one.lost == pytest.approx(0.2)
    assert document.findings == []
    text = probe_tables(document, explain=False)
    assert "slow, by this probe:" in text
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "GPU 1 to 4 pair 20 % its own history 40" in rows


def test_a_slow_node_is_reported_as_such() -> None:
    left = {f"memory {n}": 0.8 for n in range(8)}
    memory = folded([GOOD] * 6 + [drawn(EIGHT, left=left)])
    assert memory.last is not None
    document = probe(memory.last, memory.measured, memory.held, memory.stragglers.named)
    assert [(one.resource, one.gpu) for one in document.stragglers] == [("memory", None)]
    text = " ".join(probe_tables(document, explain=False).split())
    assert "all GPUs memory 20 % its own history" in text


# --- somebody else on a GPU


def shared(gemm: float, copied: float, used: float | None) -> list[str]:
    """Who is named where somebody else has slices of GPU 1's time; means in times of the healthy ones."""
    document = GOOD.document
    assert document is not None
    micros = list(document.micros)
    one = micros[1]
    micros[1] = replace(
        one, gemm_mean=gemm * one.gemm_seconds, gemm_high=2.5 * one.gemm_seconds,
        copy_mean=copied * one.copy_seconds, copy_high=10 * one.copy_seconds,
    )  # fmt: skip
    gpus = tuple(replace(gpu, others_memory=used if n == 1 else None) for n, gpu in enumerate(GOOD.gpus))
    probed = replace(GOOD, gpus=gpus, document=replace(document, micros=tuple(micros)))
    named = folded([GOOD] * 6 + [probed]).stragglers.named
    return [one.unit.resource.value for one in named.slow]


def test_the_mean_shows_what_the_median_hides() -> None:
    assert shared(1.0, 1.0, None) == []
    assert shared(1.2, 1.0, None) == ["compute"]


def test_slices_slow_everything_and_what_the_others_use_decides() -> None:
    assert shared(2.0, 2.0, 0.9) == ["memory"]
    assert shared(2.0, 2.0, 0.2) == ["compute"]
    assert shared(2.0, 2.0, None) == ["compute"]
    assert shared(1.0, 2.0, 0.2) == ["memory"]


@each("place", range(8))
def test_which_gpus_others_use_is_known_by_what_was_asked_before(place: int) -> None:
    gpus = tuple(replace(gpu, others_memory=0.0 if n == place else None) for n, gpu in enumerate(GOOD.gpus))
    assert signals(replace(GOOD, gpus=gpus)).used == {GOOD.gpus[place].uuid}
    assert signals(GOOD).used == frozenset()


# --- the history


@pytest.fixture
def clock() -> StillClock:
    made = StillClock()
    made.seconds = 1e8
    return made


def filled(path: Path, clock: StillClock, probes: Sequence[Probed], every: float = 600.0) -> History:
    history = History.open(path, clock)
    began = clock.now() - len(probes) * every
    for n, one in enumerate(probes):
        keep(history, replace(one, at=began + n * every), began + n * every + 2, "boot", "daemon")
    return history


def test_a_daemon_that_starts_again_judges_by_what_was_long_ago(tmp_path: Path, clock: StillClock) -> None:
    probes = [GOOD] * 90 + [slow(compute_1=0.9)] * 60
    memory = remember(filled(tmp_path / "probes.sqlite", clock, probes), clock, POLICY)
    finding = only(memory)
    assert (finding.rule, finding.subject.gpu) == ("straggler.compute", "1")
    reference = memory.stragglers.references.of(
        Unit(Resource.COMPUTE, GOOD.gpus[1].uuid), signals(GOOD).kind, 5
    )
    assert reference is not None
    assert reference.rate == pytest.approx(1 / 902e-6)


def test_the_whole_history_is_read_and_not_all_of_it(tmp_path: Path, clock: StillClock) -> None:
    two = drawn(on_switch(2))
    history = filled(tmp_path / "probes.sqlite", clock, [two] * 205)
    for count in (SAMPLED, WITHOUT_DAEMON):
        sample = history.sample(count)
        assert isinstance(sample, tuple)
        assert count <= len(sample) <= count * 1.3
        times = [record.at for record in sample]
        assert times == sorted(times)
        assert times[-1] - times[0] >= 180 * 600.0


def test_only_complete_probes_of_daemons_are_history(tmp_path: Path, clock: StillClock) -> None:
    two = drawn(on_switch(2))
    history = filled(tmp_path / "probes.sqlite", clock, [two] * 3)
    keep(history, replace(two, by="command"), clock.now(), "boot", "command")
    keep(history, replace(two, forced=True), clock.now(), "boot", "daemon")
    keep(history, drawn(on_switch(2), outcome="timeout"), clock.now(), "boot", "daemon")
    sample = history.sample(SAMPLED)
    assert isinstance(sample, tuple)
    assert len(sample) == 3


def test_an_empty_or_broken_history_accepts_nothing(tmp_path: Path, clock: StillClock) -> None:
    path = tmp_path / "probes.sqlite"
    assert accepted(History.open(path, clock), POLICY) == ProbeMemory()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE probes")
    reader = History(path, clock, HistoryLimits(), read_only=True)
    assert accepted(reader, POLICY) == ProbeMemory()


def test_the_command_judges_by_the_history_and_looks_twice(tmp_path: Path) -> None:
    node = Idle(2)
    state = StateFolder(tmp_path)
    known = replace(drawn(on_switch(2)), at=EPOCH)
    first = probe_now(node.hardware, ProbeOptions(), POLICY, Expect(), ProbeOverrides(), state)
    assert first.probed is not None
    history = History.open(state.history, node.hardware.clock)
    for n in range(8):
        keep(history, replace(first.probed, at=known.at + n, by="daemon"), EPOCH + n, "boot", "daemon")
    node.knobs = {"left": {"memory 0": 0.9, "memory 1": 0.9}}
    told = probe_now(node.hardware, ProbeOptions(), POLICY, Expect(), ProbeOverrides(), state)
    assert [one.rule for one in told.findings] == ["straggler.node"]
    assert told.health is Health.DEGRADED
    assert len(node.probes.ordered) == 3
    assert [one.resource for one in told.named.uniform] == [Resource.MEMORY]
    node.knobs = {"left": {"memory 0": 0.7}}
    told = probe_now(node.hardware, ProbeOptions(), POLICY, Expect(), ProbeOverrides(), state)
    assert [(one.rule, one.health) for one in told.findings] == [("straggler.memory", Health.FAILED)]
    assert len(node.probes.ordered) == 6


def test_a_probe_that_broke_off_gives_no_rates_although_it_has_some() -> None:
    assert signals(GOOD).rates
    for outcome in ("failed", "preempted", "stuck"):
        assert signals(replace(GOOD, outcome=outcome)).rates == {}


UNIT = Unit(Resource.COMPUTE, "GPU-0")
PART = SlowPart(UNIT, 1e3, Loss(0.2, 0.01, 1.25e3), own=False)


@each(
    ("clocks", "told"),
    [
        ((), ""),
        ((Clocks(0, None, None, None),), ""),
        ((Clocks(0, 1.98e9, 3.2e9, None),), "its SM clock was 1980 MHz"),
        ((Clocks(0, 1.98e9, 3.2e9, 0x1),), "its SM clock was 1980 MHz"),
        ((Clocks(0, 1.98e9, 3.2e9, 0x5),), "its SM clock was 1980 MHz, held back by sw_power_cap"),
    ],
)
def test_a_slow_product_is_reported_with_what_is_known_of_its_clock(
    clocks: tuple[Clocks, ...], told: str
) -> None:
    held = _of_part(
        ConfirmedStraggler(PART, 7.0, 1, 1, failed=False), PART, {}, clocks[0] if clocks else None
    )
    known = "it has no history of its own yet"
    assert held.evidence.partition(f"{known}; ")[2] == told
    assert "probes" not in held.evidence, "seen once"
    twice = _of_part(ConfirmedStraggler(PART, 7.0, 2, 3, failed=False), PART, {}, None)
    assert twice.evidence.endswith(f"{known}; seen in 2 of the last 3 probes")


def test_clocks_of_gpus_that_are_not_there_name_nobody() -> None:
    """A document from a disk may say anything."""
    watch = StragglerWatch()
    assert (
        straggler_findings(watch, replace(gloo(), clocks=(Clocks(0, 1e9, 1e9, 0),)), POLICY.straggler) == ()
    )


def test_a_slow_node_is_as_bad_as_its_worst_and_as_old_as_its_first() -> None:
    memory, compute = (SlowNode(what, 0.2, 8) for what in (Resource.MEMORY, Resource.COMPUTE))
    held = [
        ConfirmedStraggler(memory, 9.0, 2, 2, failed=False),
        ConfirmedStraggler(compute, 4.0, 3, 3, failed=True),
        ConfirmedStraggler(PART, 1.0, 3, 3, failed=True),
    ]
    (finding,) = _of_node(held, {})
    assert (finding.health, finding.since) == (Health.FAILED, 4.0)
    assert [one.health for one in _of_node(held[:1], {})] == [Health.DEGRADED]
    assert list(_of_node(held[2:], {})) == []
