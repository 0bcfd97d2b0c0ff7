"""Collectives that are too slow: for what is expected, for this node's own past, or for its wire."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.node.busbw.nodes import A100, B200, H100, H200
from tests.node.probe.drawn import OFF, bridged_pair, drawn, gloo, on_pcie, on_switch, two_islands
from tests.rows import each
from tests.support import EPOCH, StillClock
from wirewatch.core.probe import Conditions, Probed
from wirewatch.core.types import Absent, Finding, Health, Why
from wirewatch.probe.history import History
from wirewatch.probe.judge import fold_probe
from wirewatch.probe.model import ProbeMemory, ProbePolicy
from wirewatch.probe.restore import keep, remember

POLICY = ProbePolicy()
R100, GB200 = "NVIDIA R100", "NVIDIA GB200"
LEARN = POLICY.learn
DAY = 86400.0
UNKNOWN = on_switch(8, R100)
KNOWN = on_switch(4)


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


def after(probes: Iterable[Probed], memory: ProbeMemory | None = None) -> ProbeMemory:
    """The memory after these probes, ten minutes apart from the last that it had."""
    new = memory or ProbeMemory()
    for probed in probes:
        mono = (new.last_mono or 0.0) + 600.0
        new = fold_probe(new, replace(probed, at=EPOCH + mono), mono, POLICY)
    return new


def speeds(conditions: Sequence[Conditions], *speed: float) -> list[Probed]:
    return [drawn(conditions, speed=one) for one in speed]


def learned(conditions: Sequence[Conditions], count: int = LEARN) -> ProbeMemory:
    return after(speeds(conditions, *[1.0] * count))


def healths(memory: ProbeMemory) -> dict[str, Health]:
    return {finding.rule: finding.health for finding in memory.held}


def only(memory: ProbeMemory) -> Finding:
    (finding,) = memory.held
    return finding


# --- ten times too slow, whatever the product


@pytest.mark.parametrize(
    ("product", "count", "links", "rule"),
    [
        (H200, 8, 18, "probe.busbw"), (H100, 2, 18, "probe.busbw"), (A100, 8, 12, "probe.busbw"),
        (B200, 8, 18, "probe.busbw"),
        # Before: OK, since no expectation was known, and the wire with it.
        (A100, 2, 12, "probe.busbw"), (A100, 4, 12, "probe.busbw"), (GB200, 4, 18, "probe.busbw"),
        (GB200, 2, 18, "probe.implausible"), (B200, 2, 18, "probe.implausible"),
        ("NVIDIA B300 SXM6 AC", 8, 18, "probe.implausible"), (R100, 2, 18, "probe.implausible"),
        ("NVIDIA A800-SXM4-80GB", 8, 8, "probe.implausible"), (R100, 8, 18, "probe.implausible"),
        # An H200 by another name.
        (A100, 2, 18, "probe.implausible"), (A100, 8, 18, "probe.implausible"),
        ("", 8, 18, "probe.implausible"),
    ],
)  # fmt: skip
def test_ten_times_too_slow_is_failed_whatever_the_product(
    product: str, count: int, links: int, rule: str
) -> None:
    here = on_switch(count, product, links=links)
    assert healths(after(speeds(here, 1.0))) == {}
    slow = after(speeds(here, 0.1))
    assert max(healths(slow).values()) is Health.DEGRADED
    assert rule in healths(slow)
    assert healths(after(speeds(here, 0.1), slow))[rule] is Health.FAILED


@given(st.floats(0.005, 0.12))
@settings(max_examples=examples(100))
def test_no_speed_far_below_the_wire_is_healthy(speed: float) -> None:
    assert healths(after(speeds(UNKNOWN, speed, speed))) == {"probe.implausible": Health.FAILED}


def test_between_a_quarter_and_an_eighth_of_the_wire_is_degraded_and_never_failed() -> None:
    # 300 of 390 GB/s are drawn as healthy.
    assert healths(after(speeds(UNKNOWN, *[0.25] * 5))) == {"probe.implausible": Health.DEGRADED}
    assert healths(after(speeds(UNKNOWN, *[0.35] * 5))) == {}


def test_the_evidence_names_the_collective_the_share_and_the_wire() -> None:
    told = only(after(speeds(on_switch(2, GB200), 0.1)))
    assert (
        told.evidence == "reduce_scatter of 256 MiB: 23.9 GB/s, 3 % of the wire, 900.0 GB/s, and 5 more below"
    )
    assert "keep jobs away while it is FAILED" in told.action
    copies = only(after(speeds(UNKNOWN, 0.1)))
    assert "% of the fastest copy between two of its GPUs, 390.1 GB/s" in copies.evidence


def test_runs_that_were_fast_enough_make_it_inconclusive() -> None:
    told = only(after([drawn(UNKNOWN, speed=0.25, fast=2.0)] * 2))
    assert told.health is Health.DEGRADED
    assert "single runs were fast enough: not conclusive" in told.evidence


@each(
    "share",
    [0.52, 0.63, 0.36, 0.73, 0.26],
    ids=["2 H200", "2 H100", "2 H100 PCIe with bridges, in doubt", "8 V100 in a cube", "least"],
)
def test_published_shares_over_nvlink_are_plausible(share: float) -> None:
    assert healths(after(speeds(UNKNOWN, share * 390 / 300))) == {}


@each("gbs", [3.2, 4.4, 5.33, 22.2, 40.0])
def test_what_pcie_gives_somewhere_is_plausible(gbs: float) -> None:
    """From sockets of one host (4.4) and T4s (5.33) up; 63 GB/s is the wire."""
    assert healths(after(speeds(on_pcie(4), gbs / 20))) == {}


def test_of_a_board_without_a_switch_only_links_within_the_group_are_due() -> None:
    """Two of its four A100 in a virtual machine have 4 of their 12 links to each other, and all is well."""
    pair = bridged_pair(A100, 4)
    assert healths(after(speeds(pair, 75 / 300))) == {}
    assert healths(after(speeds(pair, 7 / 300, 7 / 300))) == {"probe.implausible": Health.FAILED}


@pytest.mark.parametrize("speed", [0.1, 0.02])
def test_too_little_of_pcie_is_degraded_and_drains_no_node(speed: float) -> None:
    assert healths(after(speeds(on_pcie(4), *[speed] * 5))) == {"probe.implausible": Health.DEGRADED}


def test_a_pin_is_the_operators_word_and_the_wire_is_not_asked() -> None:
    low = tuple(
        replace(one, pins=dict.fromkeys(("all_reduce", "all_gather", "reduce_scatter"), 30e9))
        for one in UNKNOWN
    )
    assert healths(after(speeds(low, 0.9))) == {}


def test_without_a_wire_nvlink_or_copies_nothing_is_implausible() -> None:
    unsure = tuple(
        replace(one, group=replace(one.group, kind=type(one.group.kind).UNKNOWN, why="as drawn"))
        for one in UNKNOWN
    )
    assert healths(after(speeds(unsure, 0.01))) == {}
    blind = tuple(replace(one, pcie=Absent(Why.MISSING)) for one in on_pcie(4))
    assert healths(after(speeds(blind, 0.001))) == {}
    assert healths(after([replace(gloo(), seconds=500.0)])) == {}


def test_small_messages_have_no_least_share() -> None:
    probed = drawn(UNKNOWN, speed=0.1)
    assert probed.document is not None
    few = tuple(one for one in probed.document.collectives if one.size_bytes < 256 << 20)
    told = after([replace(probed, document=replace(probed.document, collectives=few))])
    assert "probe.implausible" not in healths(told)


def test_a_large_message_for_latency_has_no_least_share() -> None:
    probed = drawn(UNKNOWN, speed=0.1)
    for sizes, rules in (((), {"probe.implausible"}), ((256 << 20, 512 << 20), set())):
        told = after([replace(probed, plan=replace(probed.plan, latency_sizes=sizes))])
        assert set(healths(told)) == rules


def test_one_slow_pair_makes_the_fastest_copy_no_slower() -> None:
    told = only(after([drawn(UNKNOWN, speed=0.1, left={"pair 0>1": 0.97})]))
    assert "% of the fastest copy between two of its GPUs, 390.1 GB/s" in told.evidence


# --- against this node's own accepted probes


def test_where_nothing_is_expected_the_history_decides() -> None:
    """Before: OK for as long as it lasted."""
    memory = learned(UNKNOWN)
    slow = after(speeds(UNKNOWN, 0.6), memory)
    assert healths(slow) == {"probe.slower": Health.DEGRADED}
    told = only(after(speeds(UNKNOWN, 0.6), slow))
    assert told.health is Health.FAILED
    assert "180.0 GB/s, 60 % of its usual 300.0 GB/s in 10 accepted probes, and 8 more below" in told.evidence
    assert "what changed since it was faster" in told.action


def test_with_an_expectation_a_loss_above_it_is_a_ticket_and_never_a_page() -> None:
    memory = after(speeds(KNOWN, *[0.75] * 4), learned(KNOWN))
    assert healths(memory) == {"probe.slower": Health.DEGRADED}
    assert "75 % of its usual" in only(memory).evidence
    assert "; that is still 7" in only(memory).evidence
    assert "% of what is expected" in only(memory).evidence


def test_a_node_that_was_far_above_what_is_expected_is_not_drained_within_it() -> None:
    memory = after(speeds(KNOWN, *[1.3] * LEARN))
    assert healths(after(speeds(KNOWN, *[0.75] * 4), memory)) == {"probe.slower": Health.DEGRADED}


def test_below_what_is_expected_is_one_finding() -> None:
    memory = after(speeds(KNOWN, 0.5, 0.5), learned(KNOWN))
    assert healths(memory) == {"probe.busbw": Health.FAILED}


def test_a_loss_above_what_is_expected_adds_nothing_to_one_below_it() -> None:
    told = only(after([drawn(KNOWN, noise=(0.5, *[0.75] * 8))], learned(KNOWN)))
    assert told.rule == "probe.busbw"
    assert told.evidence.startswith("all_reduce of 64 MiB: ")
    assert " more below" not in told.evidence


def test_the_slowest_of_its_usual_is_named() -> None:
    told = only(after([drawn(UNKNOWN, noise=(0.6, 0.5, *[1.0] * 7))], learned(UNKNOWN)))
    assert told.evidence.startswith("all_reduce of 256 MiB: ")
    assert "50 % of its usual" in told.evidence


def test_a_loss_where_nothing_is_expected_is_named_beside_one_below_what_is_expected() -> None:
    islands = two_islands(roots=2)
    slow = after([drawn(islands, speeds={0: 0.6, 1: 0.5, 2: 1.0})], learned(islands))
    assert healths(slow) == {"probe.busbw": Health.DEGRADED, "probe.slower": Health.DEGRADED}
    (told,) = [one.evidence for one in slow.held if one.rule == "probe.slower"]
    # Those of the island are below what is expected, and counted there.
    assert "60 % of its usual" in told
    assert ", and 8 more below" in told


def test_the_worst_where_nothing_is_expected_is_named_first() -> None:
    islands = two_islands(roots=2)
    told = only(after([drawn(islands, speeds={0: 0.8, 1: 0.75, 2: 1.0})], learned(islands)))
    assert "80 % of its usual" in told.evidence
    assert "of what is expected" not in told.evidence
    assert ", and 17 more below" in told.evidence


def test_one_that_is_always_slower_makes_the_loss_conclusive() -> None:
    slow = drawn(UNKNOWN, speed=0.6)
    assert slow.document is not None
    first, *others = slow.document.collectives
    fast = tuple(replace(one, low=one.seconds * 0.3) for one in others[:-1])
    mixed = replace(slow, document=replace(slow.document, collectives=(first, *fast, others[-1])))
    told = only(after([mixed] * 2, learned(UNKNOWN)))
    assert "not conclusive" not in told.evidence
    assert told.health is Health.FAILED


def test_below_its_usual_and_below_the_wire_is_one_finding() -> None:
    assert healths(after(speeds(UNKNOWN, 0.1), learned(UNKNOWN))) == {"probe.slower": Health.DEGRADED}


def test_a_little_slower_is_nothing() -> None:
    assert healths(after(speeds(UNKNOWN, 0.9, 0.87), learned(UNKNOWN))) == {}


@pytest.mark.parametrize("speed", [0.8, 0.72])
def test_from_fifteen_per_cent_on_it_is_degraded(speed: float) -> None:
    assert healths(after(speeds(UNKNOWN, *[speed] * 4), learned(UNKNOWN))) == {
        "probe.slower": Health.DEGRADED
    }


def test_it_takes_as_many_accepted_probes_as_the_policy_says() -> None:
    assert healths(after(speeds(UNKNOWN, 0.6), learned(UNKNOWN, LEARN - 1))) == {}


def test_it_is_over_with_the_next_probe_that_is_as_fast_as_ever() -> None:
    slow = after(speeds(UNKNOWN, 0.6, 0.6), learned(UNKNOWN))
    assert healths(after(speeds(UNKNOWN, 1.0), slow)) == {}


def test_what_found_something_is_never_learned() -> None:
    slow = after(speeds(UNKNOWN, *[0.6] * 200), learned(UNKNOWN))
    assert healths(slow) == {"probe.slower": Health.FAILED}
    assert slow.usual == learned(UNKNOWN).usual


def test_a_slow_start_below_the_least_share_is_never_learned() -> None:
    memory = after(speeds(UNKNOWN, *[0.2] * 3 * LEARN))
    assert memory.usual.values == {}
    assert healths(memory) == {"probe.implausible": Health.DEGRADED}


def test_a_start_at_half_the_speed_is_learned_and_repaired_becomes_usual_within_weeks() -> None:
    """What docs/adr/0028 says: no single node can know better, and the median follows."""
    memory = after(speeds(UNKNOWN, *[0.5] * LEARN))
    assert healths(memory) == {}
    for day in range(12):
        for part in (0.0, 0.5):
            at = EPOCH + (day + 1 + part) * DAY
            memory = fold_probe(memory, replace(drawn(UNKNOWN), at=at), 1e4 + day, POLICY)
    assert healths(after(speeds(UNKNOWN, 0.5), memory)) == {"probe.slower": Health.DEGRADED}


def test_a_node_that_varies_is_given_four_of_its_own_deviations() -> None:
    memory = after(speeds(UNKNOWN, *[1.0, 0.92, 1.08, 0.95, 1.05] * 2))
    assert healths(after(speeds(UNKNOWN, 0.8), memory)) == {}
    assert healths(after(speeds(UNKNOWN, 0.3, 0.3), memory)) == {"probe.slower": Health.FAILED}


def test_a_node_with_two_speeds_is_never_failed_at_the_lower_one() -> None:
    """PCIe nodes have two, by the socket on which the worker's memory lies."""
    memory = after(speeds(on_pcie(8), *[1.0, 1.0, 0.6, 1.0, 1.0] * 2))
    assert healths(memory) == {}
    twice = healths(after(speeds(on_pcie(8), 0.6, 0.6, 0.6), memory))
    assert Health.FAILED not in twice.values()
    assert healths(after(speeds(on_pcie(8), 0.3, 0.3), memory)) == {"probe.slower": Health.FAILED}


def test_single_runs_that_were_fast_enough_confirm_nothing() -> None:
    told = only(after([drawn(UNKNOWN, speed=0.6, fast=1.6)] * 3, learned(UNKNOWN)))
    assert told.health is Health.DEGRADED
    assert "not conclusive" in told.evidence


@pytest.mark.parametrize(
    "other",
    [
        drawn(UNKNOWN, speed=0.6, version="2.30.1"),
        drawn(UNKNOWN, speed=0.6, engine="torch"),
        drawn(on_switch(8, R100, settings={**OFF, "NCCL_MAX_NCHANNELS": "4"}), speed=0.6),
        drawn(on_switch(4, R100), speed=0.6),
    ],
    ids=["another NCCL", "another engine", "another setting", "other GPUs"],
)
def test_what_measures_something_else_is_not_compared(other: Probed) -> None:
    assert healths(after([other], learned(UNKNOWN))) == {}


def test_back_under_the_old_conditions_the_old_history_is_there() -> None:
    memory = after([drawn(UNKNOWN, version="2.30.1")] * LEARN, learned(UNKNOWN))
    assert healths(after(speeds(UNKNOWN, 0.6), memory)) == {"probe.slower": Health.DEGRADED}
    assert healths(after([drawn(UNKNOWN, speed=0.6, version="2.30.1")], memory)) == {
        "probe.slower": Health.DEGRADED
    }


def test_each_island_has_a_history_of_its_own() -> None:
    islands = two_islands(roots=2)
    memory = learned(islands)
    slow = after([drawn(islands, speeds={0: 0.5, 1: 1.0, 2: 1.0})], memory)
    assert healths(slow) == {"probe.slower": Health.DEGRADED}
    assert "; the ring crosses the wire between sockets" in only(slow).evidence
    assert healths(after([drawn(islands, speeds={0: 1.0, 1: 1.0, 2: 0.8})], memory)) == {
        "probe.slower": Health.DEGRADED
    }


def test_a_forced_probe_is_neither_judged_nor_learned() -> None:
    memory = learned(UNKNOWN)
    assert after([drawn(UNKNOWN, speed=0.6, forced=True)], memory).usual == memory.usual


def test_a_probe_counts_once_however_often_the_daemon_starts(tmp_path: Path, clock: StillClock) -> None:
    history = History.open(tmp_path / "probes.sqlite", clock)
    for number in range(LEARN // 2):
        at = EPOCH + 600.0 * number
        keep(history, replace(drawn(UNKNOWN), at=at), at, "boot-1", "daemon")
    assert healths(after(speeds(UNKNOWN, 0.6), remember(history, clock, POLICY))) == {}


def test_the_history_outlives_the_daemon(tmp_path: Path, clock: StillClock) -> None:
    history = History.open(tmp_path / "probes.sqlite", clock)
    for number in range(LEARN):
        at = EPOCH + 600.0 * number
        keep(history, replace(drawn(UNKNOWN), at=at), at, "boot-1", "daemon")
    memory = remember(history, clock, POLICY)
    assert healths(memory) == {}
    assert healths(after(speeds(UNKNOWN, 0.6), memory)) == {"probe.slower": Health.DEGRADED}
    assert len(next(iter(memory.usual.values.values()))) == LEARN
    for number in range(2):
        at = EPOCH + DAY + 600.0 * number
        keep(history, replace(drawn(UNKNOWN, speed=0.6), at=at), at, "boot-2", "daemon")
    assert healths(remember(history, clock, POLICY)) == {"probe.slower": Health.FAILED}
