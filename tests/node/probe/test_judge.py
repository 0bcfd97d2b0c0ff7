"""Folding probes: what one finds is believed when another finds it too, and nothing is believed of those
that could not be done.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.node.probe.drawn import OFF, drawn, gloo, on_pcie, on_switch, probe_findings, two_islands
from tests.rows import each
from tests.support import EPOCH
from wirewatch.core.probe import MIB, Conditions, Outcome, Probed
from wirewatch.core.types import Absent, Finding, Health, Ok, Subject, Why
from wirewatch.probe.collector import next_due
from wirewatch.probe.findings import SLOW_WIRE, _wire_rate
from wirewatch.probe.gate import GateFacts, Refusal, SkipReason, Stillness
from wirewatch.probe.judge import BROKEN, KEPT, confirming, judge
from wirewatch.probe.measurement import measure
from wirewatch.probe.model import ProbeFinding, ProbeMemory, ProbeOptions, ProbePolicy, ProbeReading

OPTIONS, POLICY = ProbeOptions(jitter=0.0), ProbePolicy()
TWO = on_switch(2)
GOOD, SLOW = drawn(TWO), drawn(TWO, speed=0.5)
HEALTHS = (Health.DEGRADED, Health.FAILED)


def reading(
    probed: Probed | None = None, reason: SkipReason | None = None, mono: float = 0.0
) -> ProbeReading:
    refusal = Refusal(reason, "as drawn") if reason else None
    return ProbeReading(
        GateFacts((), (), None, mono), Stillness(), "nccl", due=True, refusal=refusal, probed=probed
    )


def folded(
    told: Iterable[Probed | SkipReason],
    policy: ProbePolicy = POLICY,
    every: float = 600.0,
    memory: ProbeMemory | None = None,
) -> tuple[ProbeMemory, tuple[Finding, ...]]:
    """What is believed after these probes and refusals, `every` seconds apart."""
    new = memory or ProbeMemory()
    findings: tuple[Finding, ...] = ()
    for n, one in enumerate(told):
        mono = 1000.0 + n * every
        if isinstance(one, Probed):
            one = replace(one, at=EPOCH + mono)  # noqa: PLW2901
        value = reading(reason=one, mono=mono) if isinstance(one, SkipReason) else reading(one, mono=mono)
        new, findings = judge(OPTIONS, new, Ok(value, EPOCH + mono, mono), policy)
    return new, findings


def healths(told: Iterable[Probed | SkipReason], policy: ProbePolicy = POLICY) -> dict[str, Health]:
    return {f.rule: f.health for f in folded(told, policy)[1]}


def broken(outcome: Outcome) -> Probed:
    return drawn(TWO, outcome=outcome)


# --- N of M


def test_one_slow_probe_is_degraded_a_second_fails_and_a_healthy_one_clears() -> None:
    assert healths([GOOD]) == {}
    assert healths([GOOD, SLOW]) == {"probe.busbw": Health.DEGRADED}
    assert healths([SLOW, SLOW]) == {"probe.busbw": Health.FAILED}
    assert healths([SLOW, SLOW, GOOD]) == {}
    assert healths([SLOW, GOOD, SLOW]) == {"probe.busbw": Health.DEGRADED}


def test_the_policy_says_how_often() -> None:
    assert healths([SLOW] * 3, ProbePolicy(confirm=4))["probe.busbw"] is Health.DEGRADED
    assert healths([SLOW] * 4, ProbePolicy(confirm=4))["probe.busbw"] is Health.FAILED
    assert healths([SLOW], ProbePolicy(confirm=1))["probe.busbw"] is Health.FAILED


def test_what_is_found_says_since_when_and_how_often() -> None:
    _, (finding,) = folded([GOOD, SLOW, SLOW, SLOW])
    assert finding.since == EPOCH + 1600.0
    assert finding.evidence.endswith(" (3 probes in a row)")
    assert "probes in a row" not in folded([SLOW])[1][0].evidence


def test_a_wrong_sum_fails_at_once() -> None:
    assert healths([drawn(TWO, wrong=1)]) == {"probe.wrong_data": Health.FAILED}
    assert healths([drawn(TWO, wrong=1), GOOD]) == {}


@pytest.mark.parametrize(
    "probed",
    [
        drawn(on_switch(8, settings={}), algorithm="ring"), drawn(TWO, share={1: 0.5}),
        drawn(TWO, link=(0, 3, 0.5)), drawn(TWO, errors={0: {"crc": 1}}),
    ],
)  # fmt: skip
def test_what_is_no_more_than_degraded_never_fails(probed: Probed) -> None:
    assert set(healths([probed] * 9).values()) == {Health.DEGRADED}


def test_another_gpu_is_another_finding() -> None:
    first, second = drawn(TWO, errors={0: {"crc": 1}}), drawn(TWO, errors={1: {"crc": 1}})
    memory, (finding,) = folded([first, second])
    assert finding.subject.gpu == "1"
    assert [streak.count for streak in memory.streaks.values()] == [1]


def test_what_is_inconclusive_never_fails_however_often() -> None:
    spread = drawn(TWO, speed=0.5, fast=1.8)
    assert healths([spread] * 20) == {"probe.busbw": Health.DEGRADED}
    assert healths([spread, SLOW]) == {"probe.busbw": Health.DEGRADED}
    assert healths([spread, SLOW, SLOW]) == {"probe.busbw": Health.FAILED}


def test_one_more_that_is_inconclusive_makes_nothing_better() -> None:
    document = SLOW.document
    assert document is not None
    unsteady = replace(document.collectives[-1], low=document.collectives[-1].seconds * 0.3)
    mixed = replace(SLOW, document=replace(document, collectives=(*document.collectives[:-1], unsteady)))
    assert healths([mixed, mixed]) == {"probe.busbw": Health.FAILED}


def test_what_was_found_before_mig_says_nothing_about_it() -> None:
    assert folded([SLOW, SLOW, SkipReason.BUSY])[1]
    memory, findings = folded([SLOW, SLOW, SkipReason.MIG])
    assert (findings, memory.streaks) == ((), {})


# --- those that could not be done


@pytest.mark.parametrize("outcome", sorted(BROKEN))
def test_what_cannot_be_done_is_unknown_from_three_in_a_row_on_and_never_failed(outcome: Outcome) -> None:
    for count in (1, 2):
        assert healths([broken(outcome)] * count) == {}
    for count in (3, 4, 50):
        assert healths([broken(outcome)] * count) == {"probe.failed": Health.UNKNOWN}
    assert healths([*[broken(outcome)] * 4, GOOD, broken(outcome)]) == {}
    assert healths([broken(outcome)], ProbePolicy(failures=1)) == {"probe.failed": Health.UNKNOWN}


def test_giving_way_is_no_failure() -> None:
    assert healths([broken("preempted")] * 9) == {}


def test_the_finding_says_how_the_last_one_ended() -> None:
    _, (finding,) = folded([broken("failed"), broken("failed"), broken("timeout")])
    assert finding.evidence == "3 probes in a row failed, the last one: timeout: as drawn"


ENDED: Sequence[Outcome] = (
    "failed", "timeout", "garbage", "stuck", "out_of_memory", "preempted", "no_engine",
)  # fmt: skip
ENDINGS = st.sampled_from([broken(outcome) for outcome in ENDED])


@given(st.lists(ENDINGS, max_size=12), st.integers(1, 5))
def test_no_number_of_broken_probes_is_ever_worse_than_unknown(told: list[Probed], failures: int) -> None:
    found = healths(told, ProbePolicy(failures=failures))
    assert set(found.values()) <= {Health.UNKNOWN}
    assert bool(found) == (sum(one.outcome in BROKEN for one in told) >= failures)


@given(st.lists(ENDINGS | st.sampled_from([SkipReason.BUSY, SkipReason.BLIND]), max_size=6))
def test_what_was_wrong_stays_wrong_while_nothing_can_be_probed(told: list[Probed | SkipReason]) -> None:
    before = folded([SLOW, SLOW])[1]
    assert set(folded([SLOW, SLOW, *told])[1]) >= set(before)
    assert "probe.busbw" not in healths([GOOD, *told])


# --- healthy histories: times that differ by less than what is slower than usual (0.85 of it)

NODES = (TWO, on_switch(4), on_switch(8), on_switch(8, settings={}), two_islands(), on_pcie(4))


@settings(max_examples=examples(250))
@given(
    st.sampled_from(NODES),
    st.lists(st.lists(st.floats(0.93, 1.07), min_size=1, max_size=9), max_size=12),
    st.integers(1, 3),
)
def test_a_healthy_history_never_has_a_finding(
    conditions: tuple[Conditions, ...], noises: list[list[float]], confirm: int
) -> None:
    told: Sequence[Probed] = [drawn(conditions, noise=noise) for noise in noises]
    memory, findings = folded(told, ProbePolicy(confirm=confirm))
    assert findings == memory.held == ()
    assert not confirming(memory)
    assert memory.runs == ({"ok": len(told)} if told else {})


# --- forced ones


@pytest.mark.parametrize("before", [[], [GOOD], [SLOW], [SLOW, SLOW]])
@pytest.mark.parametrize("forced", [SLOW, GOOD, drawn(TWO, wrong=9), broken("failed")])
def test_a_forced_probe_changes_no_verdict(before: list[Probed], forced: Probed) -> None:
    memory, findings = folded(before)
    after, now = folded([*before, *[replace(forced, forced=True)] * 3])
    assert now == findings
    assert (after.streaks, after.last, after.failures) == (memory.streaks, memory.last, memory.failures)
    assert after.count() == memory.count() + 3
    assert after.gpu_seconds > memory.gpu_seconds
    assert [past.forced for past in after.past] == [False] * len(before) + [True] * 3


# --- time


def test_results_are_fresh_for_a_while_and_what_was_found_stays() -> None:
    memory, _ = folded([SLOW, SLOW])
    last = 1600.0
    for mono, fresh in ((last + 7200.0, True), (last + 7200.5, False), (last + 3e6, False)):
        later, findings = judge(OPTIONS, memory, Ok(reading(reason=SkipReason.BUSY), EPOCH, mono), POLICY)
        assert later.fresh == fresh
        assert [f.health for f in findings] == [Health.FAILED]
    assert not ProbeMemory().fresh


def test_what_is_new_is_looked_at_again_soon_and_what_is_known_is_not() -> None:
    def wait(told: list[Probed], policy: ProbePolicy = POLICY) -> float:
        memory, _ = folded(told, policy)
        return next_due(memory, OPTIONS, ()) - (memory.tried_mono or 0.0)

    errors = drawn(TWO, errors={0: {"crc": 1}})
    assert [wait([SLOW]), wait([errors]), wait([SLOW] * 2, ProbePolicy(confirm=3))] == [60.0] * 3
    assert wait([errors, replace(SLOW, parts=errors.parts), replace(GOOD, parts=errors.parts)]) == 600.0
    assert wait([errors, replace(SLOW, parts=errors.parts)]) == 60.0, "one is known, the other is new"
    known = [[GOOD], [SLOW] * 2, [errors] * 2, [drawn(TWO, wrong=1)], [SLOW, GOOD], [broken("failed")]]
    assert [wait(told) for told in known] == [600.0] * len(known)
    assert 0.0 <= next_due(ProbeMemory(), OPTIONS, ()) <= OPTIONS.settle
    assert wait([SLOW, broken("out_of_memory")]) == 600.0


def test_a_skip_counts_once_in_the_time_between_probes() -> None:
    busy = [SkipReason.BUSY] * 20
    assert folded(busy, every=30.0)[0].skips == {SkipReason.BUSY: 1}
    assert folded(busy, every=60.0)[0].skips == {SkipReason.BUSY: 2}
    assert folded([*busy, SkipReason.ALLOCATED], every=30.0)[0].skips == {
        SkipReason.BUSY: 1,
        SkipReason.ALLOCATED: 1,
    }
    assert folded([SkipReason.BUSY, GOOD, SkipReason.BUSY], every=30.0)[0].skips == {SkipReason.BUSY: 2}


@pytest.mark.parametrize(
    ("late", "reason", "kept"),
    [(True, SkipReason.BUSY, True), (False, SkipReason.BUSY, False), (True, None, False)],
)
def test_a_refusal_counts_until_later_where_everything_was_asked(
    late: bool,  # noqa: FBT001
    reason: SkipReason | None,
    kept: bool,  # noqa: FBT001
) -> None:
    value = replace(reading(reason=reason), late=late)
    memory, _ = judge(OPTIONS, ProbeMemory(), Ok(value, EPOCH, 7.0), POLICY)
    assert memory.late == ((7.0, value.refusal) if kept else None)


def test_processors_are_no_clean_probe_of_gpus() -> None:
    assert folded([GOOD])[0].clean
    assert not folded([gloo()])[0].clean


def test_what_was_not_due_is_not_skipped() -> None:
    value = replace(reading(reason=SkipReason.BUSY), due=False)
    assert judge(OPTIONS, ProbeMemory(), Ok(value, EPOCH, 1.0), POLICY)[0].skips == {}


def test_the_account_holds_what_probes_cost() -> None:
    memory, _ = folded([GOOD, broken("timeout"), gloo()])
    assert memory.gpu_seconds == pytest.approx(4 * 1.1824)
    assert [round(cost, 4) for _, cost in memory.spent] == [2.3648, 2.3648, 0.0]
    assert memory.runs == {"ok": 2, "timeout": 1}


def test_the_newest_are_kept_in_short() -> None:
    worst = drawn(TWO, noise=(1.0, 0.5, 1.0))
    memory, _ = folded([GOOD] * KEPT + [worst, broken("timeout")], every=1.0)
    assert len(memory.past) == KEPT == 50
    ratio = memory.past[-2].worst_ratio
    assert ratio is not None
    assert ratio == pytest.approx(0.5, rel=0.1)
    assert (memory.past[-1].outcome, memory.past[-1].why, memory.past[-1].worst_ratio) == (
        "timeout",
        "as drawn",
        None,
    )


DEFAULTS = ProbePolicy()
HEALTHY: Mapping[str, Probed] = {
    "two": drawn(on_switch(2)),
    "four": drawn(on_switch(4)),
    "eight": drawn(on_switch(8)),
    "eight with NVLS": drawn(on_switch(8, settings={})),
    "islands": drawn(two_islands()),
    "islands through host memory": drawn(two_islands(), whole="SHM/direct/direct"),
    "islands on two sockets": drawn(two_islands(roots=2), whole="SHM/direct/direct"),
    "PCIe": drawn(on_pcie(4)),
    "PCIe through host memory": drawn(on_pcie(4), transport="SHM/direct/direct"),
    "a product that is not known": drawn(on_switch(8, "NVIDIA R100")),
    "processors": gloo(),
    "torch": drawn(on_switch(4), engine="torch"),
}


def found(probed: Probed, policy: ProbePolicy = DEFAULTS) -> dict[str, ProbeFinding]:
    """By rule; the first of each."""
    told: dict[str, ProbeFinding] = {}
    for one in probe_findings(probed, policy):
        told.setdefault(one.rule, one)
    return told


@each("name", HEALTHY)
def test_nothing_is_wrong_with_a_healthy_node(name: str) -> None:
    assert probe_findings(HEALTHY[name], DEFAULTS) == ()


@each("name", HEALTHY)
@each("outcome", ["preempted", "failed", "timeout", "garbage", "stuck", "out_of_memory"])
def test_a_probe_that_was_broken_off_finds_no_speed_wrong(name: str, outcome: Outcome) -> None:
    slow = replace(HEALTHY[name], outcome=outcome)
    assert not {"probe.busbw", "probe.wrong_data", "probe.nvls"} & set(found(slow))


# --- slow


@pytest.mark.parametrize("count", [2, 4, 8])
@given(st.floats(0.05, 0.6))
def test_slow_is_found_at_any_speed_well_below_the_limit(count: int, speed: float) -> None:
    slow = found(drawn(on_switch(count), speed=speed))
    assert set(slow) == {"probe.busbw"}
    assert (slow["probe.busbw"].worst, slow["probe.busbw"].subject) == (Health.FAILED, Subject())
    assert not slow["probe.busbw"].sure


def test_a_slow_one_names_the_worst_and_how_many_more() -> None:
    told = found(drawn(on_switch(4), noise=(1.0, 1.0, 0.5, 0.6, 1.0, 1.0, 1.0, 1.0, 1.0)))["probe.busbw"]
    assert told.evidence.startswith("all_reduce of 512 MiB: ")
    assert "50 % of the expected" in told.evidence
    assert told.evidence.endswith(", and 1 more below")


def test_the_limit_is_the_policys() -> None:
    slow = drawn(on_switch(4), speed=0.8)
    assert found(slow, ProbePolicy(usual=0.75)) == {}
    assert set(found(slow, ProbePolicy(ratio=0.9))) == {"probe.busbw"}


def test_settings_that_lower_bandwidth_are_reported_with_it() -> None:
    told = found(drawn(on_switch(4, settings={**OFF, "NCCL_MAX_NCHANNELS": "2"}), speed=0.2))
    assert "NCCL runs with NCCL_MAX_NCHANNELS=2 (" in told["probe.busbw"].evidence
    assert "NVLS_ENABLE" not in told["probe.busbw"].evidence  # What is expected follows it.
    assert told["probe.busbw"].action == SLOW_WIRE


def test_runs_that_were_fast_enough_make_it_inconclusive() -> None:
    spread = found(drawn(on_switch(4), speed=0.5, fast=1.6))["probe.busbw"]
    assert spread.worst is Health.DEGRADED
    assert spread.evidence.endswith("single runs were fast enough: not conclusive")
    assert found(drawn(on_switch(4), speed=0.5, fast=1.3))["probe.busbw"].worst is Health.FAILED


def with_fast_run(probed: Probed, *places: int) -> Probed:
    """The same, with one run of the collectives at these places far above the mean."""
    assert probed.document is not None
    timed = list(probed.document.collectives)
    for place in places:
        timed[place] = replace(timed[place], low=timed[place].seconds * 0.3)
    return replace(probed, document=replace(probed.document, collectives=tuple(timed)))


def test_the_worst_of_those_that_are_always_slow_is_named() -> None:
    # The slowest, of 256 MiB, was fast enough once: something came between.
    slow = drawn(on_switch(4), noise=(1.0, 0.4, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0))
    # The four messages for latency come first.
    told = found(with_fast_run(slow, 5))["probe.busbw"]
    assert told.evidence.startswith("all_reduce of 512 MiB: ")
    assert told.worst is Health.FAILED


PINNED = {"all_reduce": 40e9, "all_reduce@67108864": 40e9}


def test_a_slow_crossing_between_islands_names_the_wire() -> None:
    told = found(drawn(two_islands(pins=PINNED), speeds={0: 0.5, 1: 1.0, 2: 1.0}))
    assert set(told) == {"probe.busbw"}
    assert "; the ring crosses the host bridges of one NUMA node" in told["probe.busbw"].evidence
    assert " on GPUs " not in told["probe.busbw"].evidence


def test_a_slow_island_is_named_by_its_gpus() -> None:
    told = found(drawn(two_islands(), speeds={0: 1.0, 1: 1.0, 2: 0.5}))["probe.busbw"]
    assert " on GPUs 4-7: " in told.evidence
    assert "crosses" not in told.evidence


def test_processors_are_never_slow() -> None:
    assert probe_findings(replace(gloo(), seconds=500.0), DEFAULTS) == ()


# --- wrong data


def test_wrong_elements_are_believed_at_once() -> None:
    told = found(drawn(on_switch(2), wrong=3))["probe.wrong_data"]
    assert (told.worst, told.sure) == (Health.FAILED, True)
    assert "all_reduce of 8 B: 3 elements" in told.evidence
    assert "wrong results" in told.action


# --- the way


@pytest.mark.parametrize(
    ("transport", "wire"),
    [
        ("SHM/direct/direct", "host memory"),
        ("NET/Socket/0", "TCP sockets"),
        ("NET/IB/0", "InfiniBand without"),
    ],
)
def test_a_fallback_names_the_wire_the_ranks_and_the_setting(transport: str, wire: str) -> None:
    settings = {**OFF, "NCCL_P2P_DISABLE": "1"}
    told = found(drawn(on_switch(2, settings=settings), transport=transport, speed=0.1))
    assert set(told) == {"probe.busbw", "probe.transport"}
    fallback = told["probe.transport"]
    assert fallback.worst is Health.FAILED
    assert f"NCCL used {wire}" in fallback.evidence
    assert f"({transport}) between GPUs that have NVLink: ranks 0 to 1, 1 to 0" in fallback.evidence
    assert fallback.evidence.endswith("NCCL runs with NCCL_P2P_DISABLE=1")


def test_many_pairs_are_cut_short() -> None:
    told = found(drawn(on_switch(10), transport="SHM"))["probe.transport"]
    assert told.evidence.endswith("6 to 7, 7 to 8, ...")
    eight = found(drawn(on_switch(8), transport="SHM"))["probe.transport"]
    assert eight.evidence.endswith("6 to 7, 7 to 0")


def test_host_memory_within_an_island_is_a_fallback_and_between_them_is_not() -> None:
    whole = drawn(two_islands(), whole="SHM/direct/direct", speeds={0: 1.0})
    assert "probe.transport" not in found(whole)
    inside = drawn(two_islands(), transport="SHM/direct/direct", whole="P2P/CUMEM")
    assert "0 to 1, 1 to 2, 2 to 3, 3 to 0" in found(inside)["probe.transport"].evidence


def test_nvls_that_is_due_and_was_not_taken() -> None:
    told = found(drawn(on_switch(8, settings={}), algorithm="ring", speed=0.9))["probe.nvls"]
    assert told.worst is Health.DEGRADED
    assert told.evidence.startswith(
        "NCCL chose ring where NVLink SHARP (NVLS) is expected: all_reduce of 64 MiB"
    )
    for taken in ("nvls", "nvls_tree", ""):
        assert "probe.nvls" not in found(drawn(on_switch(8, settings={}), algorithm=taken))
    assert found(drawn(on_switch(8, settings=OFF), algorithm="ring")) == {}
    assert found(drawn(on_switch(8, settings={}), algorithm="ring", multicast=False)) == {}
    silent = drawn(on_switch(8, settings={}), algorithm="ring")
    assert silent.account is not None
    assert "probe.nvls" in found(silent)
    assert "probe.nvls" not in found(replace(silent, account=replace(silent.account, nvls=())))
    one_lacks = (replace(silent.account.nvls[0], available=False), *silent.account.nvls[1:])
    known = tuple(replace(conditions, multicast=True) for conditions in silent.conditions)
    mixed = replace(silent, account=replace(silent.account, nvls=one_lacks), conditions=known)
    assert "probe.nvls" in found(mixed)


def carrying(probed: Probed, share: float, part: str) -> Probed:
    """The same, with NVLink having carried another share in the parts that begin so."""
    parts = []
    for one in probed.parts:
        by = share if one.name.startswith(part) else 1.0
        moved = tuple(replace(m, transmit=int((m.transmit or 0) * by)) for m in one.moved)
        parts.append(replace(one, moved=moved))
    return replace(probed, parts=tuple(parts))


def test_a_tree_that_a_setting_forces_is_slow_and_no_fault_of_the_path() -> None:
    settings = {**OFF, "NCCL_ALGO": "Tree"}
    tree = drawn(on_switch(8, settings=settings), algorithm="tree", speed=0.4)
    told = found(carrying(tree, 1.7, "all_reduce"))
    assert set(told) == {"probe.busbw"}
    assert "NCCL_ALGO=Tree" in told["probe.busbw"].evidence
    assert "probe.path" in found(carrying(drawn(on_switch(8)), 1.7, "all_reduce"))


def test_ll_that_a_setting_forces_sends_twice_and_is_no_fault_of_the_path() -> None:
    twice = drawn(on_switch(2, settings={**OFF, "NCCL_PROTO": "LL"}), protocol="ll", speed=0.4)
    assert set(found(twice)) == {"probe.busbw", "probe.path"}
    assert set(found(carrying(carrying(twice, 2.0, "all"), 2.0, "reduce_"))) == {"probe.busbw"}


# --- bytes, links, errors


def test_bytes_that_are_missing_or_too_many_name_the_gpu() -> None:
    few = found(drawn(on_switch(4), share={2: 0.8}))
    assert set(few) == {"probe.path"}
    assert few["probe.path"].subject == Subject(gpu="2", uuid="GPU-2")
    assert few["probe.path"].worst is Health.DEGRADED
    assert "(80 %)" in few["probe.path"].evidence
    worst = carrying(drawn(on_switch(4), share={2: 0.8}), 0.5, "all_gather")
    assert found(worst)["probe.path"].evidence.startswith("all_gather.0: ")
    many = [b.subject.gpu for b in probe_findings(drawn(on_switch(4), share={0: 1.5, 3: 0.0}), DEFAULTS)]
    assert many == ["0", "3"]
    assert found(drawn(on_switch(4), share={2: 0.95, 1: None})) == {}


def test_an_uneven_link_is_named() -> None:
    told = probe_findings(drawn(on_switch(4), link=(3, 11, 0.5)), DEFAULTS)
    assert [(b.rule, b.subject) for b in told] == [("probe.uneven", Subject("3", "GPU-3", "11"))]
    assert told[0].evidence.startswith("link 11 ")
    assert " 49 % " in told[0].evidence
    assert probe_findings(drawn(on_switch(4), link=(3, 11, 0.9)), DEFAULTS) == ()
    assert probe_findings(drawn(two_islands(), link=(3, 11, 0.5)), DEFAULTS) == ()


@each(
    ("copy_bytes", "sent", "uneven"),
    [
        (256 * MIB, MIB, True), (0, 128 * MIB, True), (0, MIB, False),
        # One of eighteen carries half: the others make up for it.
        (0, 66 * MIB, True), (0, 65 * MIB, False),
    ],
    ids=["copies went over all", "enough without copies", "too little", "just enough", "just too little"],
)  # fmt: skip
def test_links_are_compared_by_copies_or_by_enough_bytes(copy_bytes: int, sent: int, *, uneven: bool) -> None:
    probed = drawn(on_switch(2))
    amounts = (sent // 2, *[sent] * 17)
    links = tuple(replace(one, transmit=amounts, receive=amounts) for one in probed.links)
    probed = replace(probed, links=links, plan=replace(probed.plan, copy_bytes=copy_bytes))
    assert ("probe.uneven" in found(probed)) is uneven


def test_new_errors_are_reported_by_gpu_and_kind() -> None:
    told = probe_findings(
        drawn(on_switch(4), errors={0: {"crc": 2}, 1: {"replay": 1, "symbol": 400}}), DEFAULTS
    )
    assert [(b.rule, b.subject.gpu, b.evidence.partition(": ")[2]) for b in told] == [
        ("probe.link_errors", "0", "6 crc"), ("probe.link_errors", "1", "3 replay"),
    ]  # fmt: skip
    assert {b.worst for b in told} == {Health.DEGRADED}


def test_gloo_finds_nothing_of_gpus_whatever_its_times() -> None:
    probed = gloo(2)
    assert probed.document is not None
    slow = tuple(replace(t, seconds=1e3, high=2e3) for t in probed.document.collectives)
    assert (
        probe_findings(replace(probed, document=replace(probed.document, collectives=slow)), DEFAULTS) == ()
    )


@given(st.sampled_from(NODES), st.lists(st.floats(0.94, 1.1), min_size=1, max_size=27))
def test_noise_of_a_twentieth_is_nothing(conditions: tuple[Conditions, ...], noise: list[float]) -> None:
    assert probe_findings(drawn(conditions, noise=noise), DEFAULTS) == ()


def test_the_fastest_copy_is_one_within_the_group() -> None:
    """Where no wire is known, copies from another island, or to it, say nothing of this one."""
    left = {f"pair {a}>{b}": 0.5 for a in range(4) for b in range(4) if a != b}
    probed = drawn(two_islands(), left=left)
    copies = {(one.source, one.destination): one.size_bytes / one.seconds for one in probed.shown.copies}
    of_island = next(one for one in measure(probed) if one.group == 1)
    unknown = replace(of_island, wire=Absent(Why.MISSING, "as drawn"))
    assert _wire_rate(probed, unknown) == pytest.approx(copies[0, 1])
    assert copies[0, 1] < copies[0, 4] == copies[4, 0]
