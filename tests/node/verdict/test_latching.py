"""Faults that come and go before their collector has confirmed them."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.node.verdict.drawn import HUNG, D, Drawn, F, U
from wirewatch.core.collector import NodeState
from wirewatch.core.types import Absent, Finding, Health, Subject, Why
from wirewatch.daemon.persistence import lost
from wirewatch.verdict.ledger import LOST, Ledger, Stage, VerdictPolicy
from wirewatch.verdict.node import LATCHED, LIVE, PROBATION

DOWN = "nvlink.link_down"


def comes_and_goes(node: Drawn, times: int, every: float = 30.0, rule: str = DOWN) -> None:
    for _ in range(times):
        node.find(rule, node.gpu(), D)
        node.look(every / 2)
        node.clear(rule, node.gpu())
        node.look(every / 2)


def test_a_link_that_flaps_is_failed_though_never_confirmed() -> None:
    node = Drawn()
    comes_and_goes(node, 4)
    assert node.verdict.health < D
    node.find(DOWN, node.gpu(), D)
    assert node.look().health is F
    assert node.stage(DOWN, node.gpu()) is Stage.ACTIVE
    (entry,) = node.ledger.entries.values()
    assert entry.evidence.endswith("came and went 5 times within 60 min")
    node.clear(DOWN, node.gpu())
    assert node.look(times=9).health is D
    assert node.stage(DOWN, node.gpu()) is Stage.PROBATION


def test_one_that_comes_now_and_then_does_not() -> None:
    node = Drawn()
    comes_and_goes(node, 20, every=1000.0)
    assert not node.ledger.entries
    assert not node.ledger.occurrences or all(len(times) < 5 for times in node.ledger.occurrences.values())


@pytest.mark.parametrize("rule", ["nvlink.crc_errors", "gpu.throttle", "pcie.replays"])
def test_what_is_never_failed_may_come_as_often_as_it_likes(rule: str) -> None:
    node = Drawn()
    comes_and_goes(node, 20, rule=rule)
    assert not node.ledger.entries


def test_one_that_stays_while_nothing_is_read_has_come_once() -> None:
    node = Drawn()
    node.find(DOWN, node.gpu(), D)
    for _ in range(20):
        node.look()
        node.down = {"nvlink": Absent(Why.TIMEOUT)}
        node.look()
        node.down = {}
    assert {len(times) for times in node.ledger.occurrences.values()} == {1}


def test_a_window_of_its_own() -> None:
    node = Drawn(flaps=2, flap_window=60.0)
    comes_and_goes(node, 1, every=100.0)
    comes_and_goes(node, 1, every=100.0)
    assert not node.ledger.entries
    node.find(DOWN, node.gpu(), D)
    node.look(30.0)
    node.clear(DOWN, node.gpu())
    node.look(1.0)
    node.find(DOWN, node.gpu(), D)
    assert node.look(1.0).health is F


ACTIVE = Stage.ACTIVE
PLAIN = ("gpudirect.missing", Subject())


def sick(rule: str = DOWN, looks: int = 3, **options: object) -> Drawn:
    """A node whose GPU-a had a fault for some looks, which is gone since."""
    node = Drawn(**options)  # type: ignore[arg-type]
    node.look()
    node.find(rule, node.gpu())
    assert node.look(times=looks).health is F
    node.clear(rule, node.gpu())
    return node


def test_a_healthy_node_remembers_nothing() -> None:
    node = Drawn()
    assert node.look(times=10).health is Health.OK
    assert node.verdict.standings == ()
    assert node.ledger.entries == {}


@pytest.mark.parametrize("health", [D, U])
def test_what_never_was_failed_is_over_when_it_is_not_seen(health: Health) -> None:
    node = Drawn()
    node.find(DOWN, node.gpu(), health)
    assert node.look(times=3).health is health
    node.clear(DOWN, node.gpu())
    assert node.look().health is Health.OK
    assert node.ledger.entries == {}


def test_a_fault_is_shown_as_its_collector_gives_it() -> None:
    node = Drawn()
    node.find(DOWN, node.gpu(link="7"))
    node.look()
    (standing,) = node.verdict.standings
    assert (standing.stage, standing.measured, standing.times, standing.collector) == (LIVE, F, 1, "nvlink")
    assert standing.finding == node.state.components["nvlink"].findings[0]


def test_for_a_minute_it_is_not_believed_to_be_gone() -> None:
    node = sick()
    for _ in range(4):
        assert node.look().health is F
        assert node.stage(DOWN, node.gpu()) is ACTIVE
    (held,) = node.verdict.findings
    assert held.evidence == "evidence of nvlink.link_down; not seen now, not yet believed to be gone"
    assert node.look().health is D
    assert node.stage(DOWN, node.gpu()) is Stage.PROBATION


def test_a_minute_is_not_one_reading() -> None:
    node = sick()
    assert node.look(seconds=300.0).health is F
    assert node.look(seconds=300.0).health is D


def test_a_minute_is_of_readings_of_its_own_collector() -> None:
    node = sick()
    node.look()
    for _ in range(20):
        node.at, node.mono = node.at + 15.0, node.mono + 15.0
        node.poll("pcie")
        node.step()
        assert node.health is F
    assert node.look().health is D


def test_seen_again_within_the_minute_it_never_was_gone() -> None:
    node = sick()
    node.look(times=3)
    node.find(DOWN, node.gpu(), D)
    assert node.look().health is F
    assert node.entry(DOWN, node.gpu()).times == 1
    node.clear(DOWN, node.gpu())
    assert node.look(times=4).health is F
    assert node.look().health is D


def test_on_probation_the_node_is_degraded_and_takes_jobs() -> None:
    node = sick()
    verdict = node.look(times=5)
    assert (verdict.health, verdict.job_ready) == (D, True)
    (standing,) = verdict.standings
    assert (standing.stage, standing.measured, standing.finding.health) == (PROBATION, None, D)
    assert standing.finding.evidence.endswith("; over, on probation")
    assert standing.finding.action == "none, unless it comes back; then: repair it"


def test_probation_lasts_a_day() -> None:
    node = sick()
    node.look(times=5)
    assert node.look(seconds=3600.0, times=23).health is D
    assert node.look(seconds=3600.0).health is Health.OK
    assert node.stage(DOWN, node.gpu()) is Stage.REMEMBERED
    assert node.verdict.standings == ()


def test_after_a_week_nothing_is_remembered() -> None:
    node = sick()
    node.look(times=5)
    node.look(seconds=3600.0, times=7 * 24 - 1)
    assert node.stage(DOWN, node.gpu()) is Stage.REMEMBERED
    node.look(seconds=3600.0)
    assert node.ledger.entries == {}
    node.find(DOWN, node.gpu(), D)
    assert node.look().health is D


@pytest.mark.parametrize("hours", [0, 30])
def test_what_comes_back_is_failed_at_its_first_sight(hours: int) -> None:
    node = sick()
    node.look(times=5)
    node.look(seconds=3600.0, times=hours)
    node.find(DOWN, node.gpu(), D)
    assert node.look().health is F
    (standing,) = node.verdict.standings
    assert (standing.stage, standing.measured, standing.times) == (LIVE, D, 2)
    assert standing.finding.evidence.endswith("; occurred 2 times within days")


def test_another_part_is_not_the_one_that_comes_back() -> None:
    node = sick()
    node.look(times=5)
    node.find(DOWN, node.gpu("GPU-b"), D)
    node.find("nvlink.link_slow", node.gpu(), D)
    assert node.look().health is D


def test_the_third_time_it_stays() -> None:
    node = sick()
    for times in (2, 3):
        node.look(times=5)
        assert node.stage(DOWN, node.gpu()) is Stage.PROBATION
        node.find(DOWN, node.gpu())
        node.look()
        assert node.entry(DOWN, node.gpu()).times == times
        node.clear(DOWN, node.gpu())
    node.look(times=5)
    assert node.stage(DOWN, node.gpu()) is Stage.LATCHED
    assert node.look(seconds=3600.0, times=400).health is F
    (standing,) = node.verdict.standings
    assert standing.stage == LATCHED
    assert "occurred 3 times within days" in standing.finding.evidence


@pytest.mark.parametrize("rule", ["probe.wrong_data", "kernel.panic"])
def test_silence_repairs_nothing_that_latches(rule: str) -> None:
    node = sick(rule)
    node.probed()
    verdict = node.look()
    (standing,) = verdict.standings
    assert (verdict.health, standing.stage) == (F, LATCHED)
    assert "absence does not prove a repair" in standing.finding.evidence
    assert standing.finding.action == f"repair it; once repaired: `wirewatch findings repaired {standing.id}`"
    assert node.look(seconds=3600.0, times=24 * 30).health is F


def test_what_a_person_put_right_is_over_at_once() -> None:
    node = Drawn()
    node.find(*PLAIN)
    assert node.look(times=3).health is F
    assert node.ledger.entries == {}
    node.clear(*PLAIN)
    assert node.look().health is Health.OK


def test_a_rule_that_is_made_plain_is_forgotten() -> None:
    node = sick()
    node.look()
    node.policy = VerdictPolicy(plain=("nvlink.*",))
    assert node.look().health is Health.OK
    assert node.ledger.entries == {}


def test_a_rule_that_is_made_plain_while_it_is_seen_is_forgotten_once_it_is_not() -> None:
    node = Drawn()
    node.find(DOWN, node.gpu())
    node.look()
    node.policy = VerdictPolicy(plain=("nvlink.*",))
    assert node.look().health is F
    node.clear(DOWN, node.gpu())
    assert node.look().health is Health.OK


def test_a_rule_that_latches_no_more_goes_its_way() -> None:
    node = sick(latch=("nvlink.*",))
    node.look(times=9)
    assert node.stage(DOWN, node.gpu()) is Stage.LATCHED
    node.policy = VerdictPolicy()
    assert node.look().health is D


def test_a_fault_that_turned_milder_has_not_gone() -> None:
    node = Drawn()
    node.find(DOWN, node.gpu())
    node.look(times=3)
    node.find(DOWN, node.gpu(), D)
    assert node.look(times=100).health is F
    (standing,) = node.verdict.standings
    assert (standing.measured, standing.finding.health) == (D, F)
    assert standing.finding.evidence.endswith("; counts as FAILED until it is gone")


def test_of_two_with_one_name_the_worse_counts() -> None:
    node = Drawn()
    node.look()
    component = node.state.components["nvlink"]
    part = node.gpu()
    told = tuple(Finding(DOWN, health, part, "evidence", "action") for health in (F, D))
    for findings in (told, told[::-1]):
        node.state = node.state.with_component(replace(component, findings=findings))
        node.ledger = Ledger(node.boot)
        node.step()
        assert node.stage(DOWN, part) is ACTIVE


def test_what_is_held_is_as_it_was_seen_last() -> None:
    node = Drawn()
    node.find(DOWN, node.gpu())
    node.look()
    began = node.at
    worse = replace(node.found[DOWN, node.gpu()], evidence="two links now", action="replace it")
    node.found[DOWN, node.gpu()] = worse
    node.look(times=2)
    seen = node.at
    node.clear(DOWN, node.gpu())
    node.look()
    (held,) = node.verdict.findings
    assert held.evidence.startswith("two links now; ")
    assert (held.action, held.since, held.last) == ("replace it", began, 0.0)
    assert node.entry(DOWN, node.gpu()).last == seen


def test_since_is_when_it_came_this_time() -> None:
    node = sick()
    first = node.entry(DOWN, node.gpu()).since
    node.look(times=5)
    node.find(DOWN, node.gpu())
    node.look()
    assert node.entry(DOWN, node.gpu()).since == node.at > first


@pytest.mark.parametrize(
    "policy", [{}, {"plain": ("*",)}, {"latch_after": 2, "settle": 0.0, "recurrence": 90000.0}]
)
def test_that_a_memory_was_lost_stays_whatever_is_read_until_a_word(
    tmp_path: Path, policy: Mapping[str, object]
) -> None:
    node = Drawn(tmp_path, **policy)  # type: ignore[arg-type]
    node.ledger = lost(node.ledger, "latches", "the file was cut off", node.at)
    (known,) = node.ledger.entries.values()
    for happens in (node.look, node.probed, node.restart, node.reboot):
        happens()
        node.look(seconds=3600.0, times=48)
        (entry,) = node.ledger.entries.values()
        assert (entry.rule, entry.stage, entry.evidence) == (LOST, Stage.LATCHED, known.evidence)
        assert node.verdict.health is U
    node.repaired(LOST, Subject())
    assert not node.ledger.entries
    assert node.look().health is Health.OK


def test_no_collector_that_is_switched_off_holds_a_fault() -> None:
    node = sick()
    node.look()
    node.state = NodeState({n: c for n, c in node.state.components.items() if n != "nvlink"})
    node.step()
    assert node.health is Health.OK


# Clean probes


def test_where_probes_run_probation_waits_for_three_clean_ones() -> None:
    node = sick()
    node.probed()
    node.look(times=5)
    assert node.look(seconds=3600.0, times=30).health is D
    for _ in range(2):
        node.probed()
        assert node.look().health is D
    node.probed()
    assert node.look().health is Health.OK


def test_a_probe_that_finds_anything_begins_the_count_again() -> None:
    node = sick()
    node.probed()
    node.look(times=5)
    node.look(seconds=3600.0, times=30)
    for clean in (True, True, False, True, True):
        node.probed(clean=clean)
        assert node.look().health is D
    node.probed()
    assert node.look().health is Health.OK


def test_a_probe_that_finds_something_counts_though_the_part_is_not_read() -> None:
    node = sick()
    node.probed()
    node.look(times=5)
    for clean in (True, True, False):
        node.probed(clean=clean)
        node.down = {} if clean else {"nvlink": HUNG}
        node.look()
    assert node.entry(DOWN, node.gpu()).probes == 0


def test_a_clean_probe_says_nothing_of_a_part_that_is_not_read() -> None:
    node = sick()
    node.look(times=5)
    node.down["nvlink"] = HUNG
    node.probed()
    node.look()
    assert node.entry(DOWN, node.gpu()).probes == 0


def test_the_finding_of_a_probe_stands_until_another_was_made(tmp_path: Path) -> None:
    node = Drawn(tmp_path)
    node.probed(clean=False)
    node.find("probe.busbw", Subject())
    node.look(times=3)
    node.restart()
    node.clear("probe.busbw", Subject())  # the history of probes is lost
    assert node.look(times=100).health is F
    node.probed()
    assert node.look(times=5).health is D


def test_on_probation_time_counts_without_a_probe(tmp_path: Path) -> None:
    node = Drawn(tmp_path)
    node.probed(clean=False)
    node.find("probe.busbw", Subject())
    node.look(times=3)
    node.clear("probe.busbw", Subject())
    node.probed()
    assert node.look(times=5).health is D
    node.restart()
    node.probes = replace(node.probes, watched=False)
    node.look()
    assert node.look(seconds=3600.0, times=24).health is Health.OK


def test_a_probe_s_finding_that_is_reported_again_after_a_boot_is_of_the_boot_before(tmp_path: Path) -> None:
    node = Drawn(tmp_path)
    node.probed(clean=False)
    node.find("probe.wrong_data", Subject())
    node.look(times=3)
    node.reboot()
    assert node.look(times=3).health is F  # the history tells it
    node.probed()
    node.clear("probe.wrong_data", Subject())
    assert node.look().health is D


def test_one_that_is_found_again_in_the_new_boot_is_of_the_new_boot(tmp_path: Path) -> None:
    node = Drawn(tmp_path)
    node.probed(clean=False)
    node.find("probe.wrong_data", Subject())
    node.look(times=3)
    node.reboot()
    node.probed(clean=False)
    node.look()
    node.probed()
    node.clear("probe.wrong_data", Subject())
    assert node.look(times=10).health is F


def test_a_gpu_that_a_probe_found_must_answer(tmp_path: Path) -> None:
    node = Drawn(tmp_path)
    node.probed(clean=False)
    node.find("probe.link_errors", node.gpu())
    node.look(times=3)
    node.clear("probe.link_errors", node.gpu())
    node.gpus = ["GPU-b"]
    node.probed()
    assert node.look(times=20).health is F
    node.gpus = ["GPU-b", "GPU-a"]
    assert node.look(times=5).health is D
