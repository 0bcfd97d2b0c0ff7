"""What is said of host links: beside what is expected, their siblings and their past."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from tests.node.probe.drawn import broken, drawn, on_switch
from tests.node.probe.hosted import HIDDEN, PATH, RUNS, hosted
from tests.support import EPOCH
from wirewatch.core.hostlink import HostMoved, HostPath, Pcie
from wirewatch.core.probe import Probed, wrong_in_probed
from wirewatch.core.types import Absent, Finding, Health, Subject, Why
from wirewatch.probe.hostlinks import HOST, host_links, shares, uplinks
from wirewatch.probe.hostpaths import HOST_BYTES
from wirewatch.probe.judge import fold_probes
from wirewatch.probe.model import ProbeMemory, ProbePolicy
from wirewatch.probe.restore import PROBED
from wirewatch.verdict.straggler.signals import Resource, Unit, signals

POLICY = ProbePolicy()
EIGHT = drawn(on_switch(8))
GOOD = hosted(EIGHT)


def folded(probes: Sequence[Probed], memory: ProbeMemory | None = None) -> ProbeMemory:
    told = ((replace(one, at=EPOCH + 600.0 * n), 1000.0 + 600.0 * n) for n, one in enumerate(probes))
    return fold_probes(memory or ProbeMemory(), told, POLICY)


def rules(memory: ProbeMemory) -> list[tuple[str, str, Health]]:
    return sorted((one.rule, one.subject.gpu, one.health) for one in memory.held)


def of_rule(memory: ProbeMemory, rule: str = HOST.name) -> Finding:
    (finding,) = [one for one in memory.held if one.rule == rule]
    return finding


def test_a_healthy_node_names_nobody_and_learns() -> None:
    memory = folded([GOOD] * 12)
    assert memory.held == ()
    assert memory.clean
    assert memory.stragglers.references.values[Unit(Resource.HOST, "GPU-3")]
    assert len(shares(GOOD)) == 2


def test_a_probe_with_host_links_survives_the_way_to_disk_and_back() -> None:
    assert wrong_in_probed(GOOD) == ""
    assert PROBED.validate_json(PROBED.dump_json(GOOD)) == GOOD


def test_a_probe_without_host_links_says_nothing_of_them() -> None:
    """Recordings of before, an engine that measures none, memory that was refused, a probe that broke off."""
    document = EIGHT.shown
    refused = replace(hosted(EIGHT), document=replace(document, no_hosts="no memory"))
    for one in (EIGHT, refused, broken(GOOD, "preempted")):
        assert host_links(one) == ()
        assert shares(one) == {}
        memory = folded([one] * 12)
        assert memory.held == ()
        assert Unit(Resource.HOST, "GPU-3") not in memory.stragglers.named.scores


# --- what is expected


def test_a_gpu_that_moves_a_third_is_failed_by_the_second_probe_and_named() -> None:
    slow = hosted(EIGHT, {"to 3": 0.33}, now=Pcie(4, 8))
    once, twice = folded([slow]), folded([slow] * 2)
    assert rules(once) == [(HOST.name, "3", Health.DEGRADED)]
    assert rules(twice) == [(HOST.name, "3", Health.FAILED)], "one cause, one finding"
    repaired = folded([GOOD], folded([slow] * 5))
    assert repaired.held == (), "nor is it named beside its siblings once it is repaired"
    assert repaired.stragglers.looks == {}
    finding = of_rule(twice)
    assert finding.subject == Subject(gpu="3", uuid="GPU-3")
    assert finding.evidence == (
        "host to device: 18.3 GB/s, 31 % of the expected 58.4 GB/s; 1 of 8 GPUs so slow; its link runs at "
        "PCIe 4 x8, the way allows 5 x16 (2 probes in a row)"
    )


def test_the_direction_that_reaches_the_least_is_told() -> None:
    finding = of_rule(folded([hosted(EIGHT, {"to 3": 0.6, "from 3": 0.4})]))
    assert finding.evidence.startswith("device to host: 22.0 GB/s, 38 % of the expected 57.6 GB/s")


@pytest.mark.parametrize(("left", "found"), [(0.72, False), (0.70, True)])
def test_the_limit_is_70_percent_of_what_packets_leave(left: float, *, found: bool) -> None:
    """Expected are 58.4 GB/s: 55.6 of them are 95 %, and 0.735 of these the limit."""
    memory = folded([hosted(EIGHT, {"to 3": left * 58.4 / 55.6})] * 2)
    assert (HOST.name in {one.rule for one in memory.held}) is found


def test_single_copies_that_are_fast_enough_are_no_link_that_is_always_slow() -> None:
    finding = of_rule(folded([hosted(EIGHT, {"to 3": 0.6}, fast=2.0)] * 2))
    assert finding.health is Health.DEGRADED
    assert "single copies were fast enough: not conclusive" in finding.evidence


@pytest.mark.parametrize(
    ("count", "slow", "left", "found"),
    [
        (8, 4, 0.6, [(str(n), Health.FAILED) for n in range(4)]),
        (8, 5, 0.6, [("", Health.DEGRADED)]),
        (8, 8, 0.6, [("", Health.DEGRADED)]),
        (8, 8, 0.35, [("", Health.FAILED)]),
        (2, 1, 0.6, [("0", Health.FAILED)]),
        (2, 2, 0.6, [("", Health.DEGRADED)]),
    ],
)
def test_where_most_gpus_are_below_the_figure_itself_is_in_doubt(
    count: int, slow: int, left: float, found: list[tuple[str, Health]]
) -> None:
    """No layout explains less than half of the limit: then it is FAILED whatever the others do."""
    probed = hosted(drawn(on_switch(count)), {f"to {n}": left for n in range(slow)})
    memory = folded([probed] * 2)
    findings = [one for one in memory.held if one.rule == HOST.name]
    assert sorted((one.subject.gpu, one.health) for one in findings) == found
    assert all(f"{slow} of {count} GPUs so slow" in one.evidence for one in findings)


def test_gpus_of_one_socket_or_root_port_that_are_slow_together_share_a_cause() -> None:
    """The memory of one socket is no fault of each of its GPUs; what hangs on one port is slow by it."""
    slow = {f"to {n}": 0.6 for n in (0, 1)}
    sockets = [replace(PATH, cpus="0-31" if n < 2 else "32-63") for n in range(8)]
    memory = folded([hosted(EIGHT, slow, sockets)] * 3)
    assert rules(memory) == [(HOST.name, str(n), Health.DEGRADED) for n in (0, 1)]
    said = "2 of 8 GPUs so slow: all those near CPUs 0-31 and no other, so that they may share a cause"
    assert all(said in one.evidence for one in memory.held)
    failed = [(HOST.name, str(n), Health.FAILED) for n in (0, 1)]
    assert rules(folded([hosted(EIGHT, {"to 0": 0.35, "to 1": 0.35}, sockets)] * 3)) == failed
    ports = [replace(PATH, uplink=f"0000:0{n // 2}:01.0") for n in range(8)]
    memory = folded([hosted(EIGHT, slow, ports)] * 3)
    assert rules(memory) == failed
    assert all("all those below 0000:00:01.0 and no other" in one.evidence for one in memory.held)
    three = [replace(one, cpus="0-31" if n < 3 else "32-63") for n, one in enumerate(PATH for _ in range(8))]
    assert rules(folded([hosted(EIGHT, slow, three)] * 3)) == failed, "one near them is as it should be"
    one = [replace(PATH, cpus=f"{n}") for n in range(8)]
    assert rules(folded([hosted(EIGHT, {"to 0": 0.6}, one)] * 3)) == failed[:1], "one GPU is no group"


DOUBTED: Mapping[str, tuple[HostPath, bool | None]] = {
    "a hypervisor hides the way": (HIDDEN, None),
    "the CPUs near may not be used": (PATH, False),
    "which CPUs are near is not known, and there are two nodes": (replace(PATH, cpus=""), None),
    "how many nodes there are is not known": (replace(PATH, cpus="", nodes=None), None),
    "chip-to-chip links": (replace(PATH, c2c=450e9), True),
    "no generation": (replace(PATH, pcie=Absent(Why.UNSUPPORTED, "not told")), True),
    "a generation that nobody has measured": (replace(PATH, pcie=Pcie(6, 16)), True),
    "a generation that is not known": (replace(PATH, pcie=Pcie(7, 16)), True),
}


@pytest.mark.parametrize("doubt", DOUBTED)
def test_a_figure_that_is_in_doubt_judges_nobody(doubt: str) -> None:
    path, near = DOUBTED[doubt]
    one = host_links(hosted(EIGHT, path=path, near=near))[0]
    assert one.worst is None
    assert [way.expected for way in one.ways] == [None, None]
    slow = folded([hosted(EIGHT, {"to 3": 0.33}, path, near)] * 2)
    assert HOST.name not in {found.rule for found in slow.held}


def test_one_numa_node_leaves_no_doubt_about_which_cpus_are_near() -> None:
    path = replace(PATH, cpus="", nodes=1)
    assert host_links(hosted(EIGHT, path=path, near=None))[0].worst is not None


def test_gpus_of_several_generations_are_each_beside_their_own() -> None:
    paths = [replace(PATH, pcie=pcie) for pcie in (Pcie(5, 16), Pcie(4, 16), Pcie(5, 8), Pcie(3, 16))]
    left = {f"{way} {n}": share for way in ("to", "from") for n, share in ((1, 0.5), (2, 0.5), (3, 0.25))}
    four = drawn(on_switch(4))
    assert folded([hosted(four, left, paths)] * 3).held == ()
    assert rules(folded([hosted(four, left | {"to 3": 0.12}, paths)])) == [(HOST.name, "3", Health.DEGRADED)]


REFUSED = replace(hosted(EIGHT), document=replace(EIGHT.shown, no_hosts="no memory"))
BLIND: Mapping[str, Probed] = {
    "the memory was refused": REFUSED,
    "the CPUs near may not be used now": hosted(EIGHT, near=False),
}


@pytest.mark.parametrize("blind", BLIND)
def test_a_probe_that_cannot_judge_a_host_link_clears_no_fault_of_it(blind: str) -> None:
    slow = hosted(EIGHT, {"to 3": 0.33})
    faulty = folded([slow] * 2)
    memory = folded([BLIND[blind]] * 12, faulty)
    assert rules(memory) == [(HOST.name, "3", Health.FAILED)]
    assert not memory.clean
    assert of_rule(memory).evidence.count("the newest probe could not judge it") == 1
    assert of_rule(memory).since == of_rule(faulty).since
    again = folded([slow], memory)
    assert of_rule(again).health is Health.FAILED, "the probes between count for nothing"
    assert folded([GOOD], memory).held == ()
    assert rules(folded([BLIND[blind], slow], folded([slow]))) == [(HOST.name, "3", Health.FAILED)]
    all_slow = folded([hosted(EIGHT, {f"to {n}": 0.35 for n in range(8)})] * 2)
    assert rules(folded([BLIND[blind]], all_slow)) == [(HOST.name, "", Health.FAILED)]


def test_a_slower_sibling_stays_slow_while_nothing_is_measured_of_it() -> None:
    slow = hosted(EIGHT, {"to 5": 0.75, "from 5": 0.75})
    memory = folded([slow] * 2 + [REFUSED] * 5)
    assert (rules(memory), memory.clean) == ([("straggler.host_link", "5", Health.DEGRADED)], False)
    assert folded([GOOD] * 3, memory).held == ()
    assert folded([slow, REFUSED, REFUSED, REFUSED, slow]).held == (), "one look is too old beside the other"


def test_host_links_of_gpus_that_are_gone_or_not_asked_for_are_forgotten() -> None:
    faulty = folded([hosted(EIGHT, {"to 3": 0.33, "from 6": 0.75, "to 6": 0.75})] * 2)
    assert len(faulty.held) == 2
    assert folded([EIGHT] * 2, faulty).held == (), "host links are switched off"
    four = drawn(on_switch(4))
    left = folded([hosted(four, near=False)] * 3, faulty)
    assert rules(left) == [(HOST.name, "3", Health.FAILED)], "GPU 6 is not here any more"


# --- siblings and past


def test_a_gpu_slower_than_its_siblings_is_named_though_it_reaches_what_is_expected() -> None:
    slow = hosted(EIGHT, {"to 5": 0.75, "from 5": 0.75})
    assert rules(folded([slow] * 2)) == [("straggler.host_link", "5", Health.DEGRADED)]
    memory = folded([slow] * 2)
    said = "copies to and from the host: 41.4 GB/s, 25 % slower than its peers (55.2 GB/s)"
    assert said in memory.held[0].evidence
    worse = hosted(EIGHT, {"to 5": 0.7 / 0.95, "from 5": 0.7 / 0.95 + 0.005, "to 6": 1.0})
    assert ("straggler.host_link", "5", Health.FAILED) in rules(folded([worse] * 3))


def test_a_hypervisor_that_hides_the_way_makes_a_ticket_of_a_slower_sibling() -> None:
    """Its slot may be narrower by design; against its own past it is FAILED as anything else."""
    slow = hosted(EIGHT, {"to 5": 0.4, "from 5": 0.4}, HIDDEN, None)
    memory = folded([slow] * 4)
    assert rules(memory) == [("straggler.host_link", "5", Health.DEGRADED)]
    assert "the hypervisor hides its way to the host" in memory.held[0].evidence
    well = hosted(EIGHT, path=HIDDEN, near=None)
    assert rules(folded([well] * 6 + [slow] * 3)) == [("straggler.host_link", "5", Health.FAILED)]


@pytest.mark.parametrize("far", [{7}, {4, 5, 6, 7}])
def test_a_hypervisor_that_hides_the_way_may_hide_a_socket_too(far: set[int]) -> None:
    """The memory of another socket costs less than half, so a sibling that has half is no evidence."""
    socket = hosted(EIGHT, {f"{way} {n}": 0.55 for way in ("to", "from") for n in far}, HIDDEN, None)
    assert folded([socket] * 4).held == ()


@pytest.mark.parametrize("doubt", ["the CPUs near may not be used", "how many nodes there are is not known"])
def test_memory_that_may_lie_anywhere_is_compared_with_nothing(doubt: str) -> None:
    path, near = DOUBTED[doubt]
    slow = hosted(EIGHT, {"to 5": 0.4, "from 5": 0.4, "all 5": 0.4}, path, near)
    assert folded([hosted(EIGHT, path=path, near=near)] * 12 + [slow] * 3).held == ()


def test_slots_that_differ_by_design_are_no_siblings() -> None:
    paths = [replace(PATH, pcie=Pcie(5, 8)) if n == 5 else PATH for n in range(8)]
    assert folded([hosted(EIGHT, {"to 5": 0.5, "from 5": 0.5}, paths)] * 3).held == ()


def test_one_gpu_in_a_better_slot_makes_no_others_slow() -> None:
    faster = {f"{way} 2": 2.0 for way in ("to", "from")}
    assert folded([hosted(EIGHT, faster, HIDDEN, None)] * 3).held == ()


def test_all_links_slower_than_they_were_are_the_node_s() -> None:
    slow = {f"{way} {n}": 0.8 for way in ("to", "from") for n in range(8)}
    memory = folded([GOOD] * 6 + [hosted(EIGHT, slow)] * 2)
    assert rules(memory) == [("straggler.node", "", Health.DEGRADED)]
    assert (
        "copies between all GPUs and the host (8) are 20 % slower than they were" in memory.held[0].evidence
    )


# --- all at once


def shared(left: float) -> Probed:
    """Two GPUs on each root port; the last two get so much of what each gets alone."""
    paths = [replace(PATH, uplink=f"0000:0{n // 2}:01.0") for n in range(8)]
    half = {f"all {n}": 0.5 for n in range(8)}
    return hosted(EIGHT, {**half, "all 6": left, "all 7": left}, paths)


def test_gpus_that_share_an_uplink_are_known_and_no_fault() -> None:
    assert uplinks(shared(0.5)) == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert folded([shared(0.5)] * 12).held == ()
    assert uplinks(GOOD) == ()


def test_what_gpus_get_together_is_judged_by_its_own_past_and_makes_a_ticket() -> None:
    before = folded([shared(0.5)] * 12)
    memory = folded([shared(0.3)] * 3, before)
    finding = of_rule(memory)
    assert (finding.subject, finding.health) == (Subject(), Health.DEGRADED)
    said = "while all GPUs copy, GPUs 6, 7 get 30 % of what they get alone, and 50 % in 10 accepted probes"
    assert finding.evidence.partition(": ")[2].startswith(said)
    few = folded([shared(0.5)] * (POLICY.learn - 1))
    assert folded([shared(0.3)], few).held == ()
    assert folded([shared(0.46)] * 3, before).held == ()


def test_a_gpu_that_is_slow_by_itself_is_not_also_slow_beside_others() -> None:
    before = folded([GOOD] * 12)
    memory = folded([hosted(EIGHT, {"to 3": 0.33, "from 3": 0.33})] * 2, before)
    assert {one.subject.gpu for one in memory.held} == {"3"}


# --- what proves the way


def test_counters_prove_the_way_where_there_are_some() -> None:
    links = host_links(GOOD)
    assert [one.counted for one in links] == [1.0] * 8
    half = tuple(HostMoved(n, RUNS * HOST_BYTES, 0, Pcie(5, 16)) for n in range(8))
    assert host_links(replace(GOOD, hosts=half))[0].counted == 0.5
    none = tuple(HostMoved(n, None, RUNS, Pcie(5, 16)) for n in range(8))
    assert host_links(replace(GOOD, hosts=none))[0].counted is None
    assert host_links(replace(GOOD, hosts=()))[0].counted is None


def test_rates_are_signals_only_where_the_memory_lies_as_in_other_probes() -> None:
    assert signals(GOOD).rates[Unit(Resource.HOST, "GPU-0")] == pytest.approx(2 / (1 / 55.6e9 + 1 / 54.9e9))
    far = signals(hosted(EIGHT, near=False))
    assert Unit(Resource.HOST, "GPU-0") not in far.rates
