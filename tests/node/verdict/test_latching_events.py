"""Events, which their collector tells of until the next boot: resets, acknowledgements, recurrence."""

from pathlib import Path

import pytest

from tests.node.verdict.drawn import HUNG, D, Drawn, F
from wirewatch.collectors.inventory import InventoryFacts, KnownGpu
from wirewatch.core.collector import Component, NodeState
from wirewatch.core.ports import Gpu
from wirewatch.core.types import Health, Subject
from wirewatch.verdict.ledger import Stage
from wirewatch.verdict.node import LATCHED, LIVE, PROBATION, REPAIRED, judge_node
from wirewatch.verdict.observation import cards

XID, OTHER, WISH, FABRIC = "xid.79", "xid.74", "xid.154", "xid.149"
NVLINK = "nvlink.link_down"


def fallen(folder: Path | None = None, rule: str = XID, **options: object) -> Drawn:
    """A node of which the kernel told a fatal event."""
    node = Drawn(folder, **options)  # type: ignore[arg-type]
    node.look()
    node.event(rule, node.gpu())
    assert node.look().health is F
    return node


def test_an_event_is_reported_and_failed_for_as_long_as_the_machine_is_up() -> None:
    node = fallen()
    assert node.look(seconds=3600.0, times=24 * 30).health is F
    (standing,) = node.verdict.standings
    assert (standing.stage, standing.finding.last) == (LIVE, node.found[XID, node.gpu()].last)


def test_a_log_that_was_overwritten_repairs_nothing(tmp_path: Path) -> None:
    node = fallen(tmp_path)
    node.restart()
    node.clear(XID, node.gpu())
    assert node.look(times=100).health is F
    (standing,) = node.verdict.standings
    assert standing.stage == LATCHED


def test_after_a_boot_it_is_on_probation(tmp_path: Path) -> None:
    node = fallen(tmp_path)
    node.reboot()
    assert node.look().health is D
    (standing,) = node.verdict.standings
    assert (standing.stage, standing.measured) == (PROBATION, None)
    assert node.look(seconds=3600.0, times=24).health is Health.OK


def test_an_event_of_a_switch_is_on_probation_after_a_boot(tmp_path: Path) -> None:
    node = Drawn(tmp_path)
    node.event("sxid.20034", Subject(device="0000:07:00.0", link="30"))
    assert node.look().health is F
    node.reboot()
    assert node.look().health is D


def test_the_same_event_in_the_new_boot_is_a_recurrence(tmp_path: Path) -> None:
    node = fallen(tmp_path)
    node.reboot()
    node.look()
    node.event(XID, node.gpu())
    assert node.look().health is F
    assert node.entry(XID, node.gpu()).times == 2


def test_an_event_before_the_first_look_of_the_new_boot_has_not_gone(tmp_path: Path) -> None:
    node = fallen(tmp_path)
    node.reboot()
    node.event(XID, node.gpu())
    assert node.look(times=10).health is F
    assert node.entry(XID, node.gpu()).boot == "boot-2"


# Resets


def asked(folder: Path | None = None, rule: str = XID) -> Drawn:
    node = fallen(folder, rule)
    node.wants = {"GPU-a"}
    assert node.look(times=3).health is F
    return node


def test_a_reset_is_when_the_driver_asked_for_one_and_needs_none_any_more() -> None:
    node = asked()
    node.wants = set()
    node.look()
    assert node.stage(XID, node.gpu()) is Stage.PROBATION
    node.look(times=5)  # the wish itself is not believed to be gone before a minute is over
    assert node.health is D
    (standing,) = (s for s in node.verdict.standings if s.finding.rule == XID)
    assert (standing.stage, standing.measured, standing.finding.health) == (PROBATION, F, D)
    assert node.look(seconds=3600.0, times=24).health is Health.OK
    (standing,) = node.verdict.standings
    assert standing.stage == REPAIRED
    assert node.look(seconds=3600.0, times=24 * 30).health is Health.OK


def test_a_reset_ends_what_is_latched(tmp_path: Path) -> None:
    node = asked(tmp_path)
    node.restart()
    node.clear(XID, node.gpu())
    assert node.look().health is F
    node.wants = set()
    node.look()
    assert node.stage(XID, node.gpu()) is Stage.PROBATION


def test_a_new_event_after_the_reset_is_a_recurrence() -> None:
    node = asked()
    node.wants = set()
    node.look(times=10)
    node.event(XID, node.gpu())
    assert node.look().health is F
    assert node.entry(XID, node.gpu()).times == 2
    assert node.look(times=100).health is F


def test_a_reset_that_is_asked_for_later_ends_what_is_latched(tmp_path: Path) -> None:
    node = fallen(tmp_path)
    node.restart()
    node.clear(XID, node.gpu())
    node.look(times=3)
    for wants in ({"GPU-a"}, set()):
        assert node.stage(XID, node.gpu()) is Stage.LATCHED
        node.wants = wants
        node.look(times=3)
    assert node.stage(XID, node.gpu()) is Stage.PROBATION


def test_what_happens_again_as_the_reset_is_seen_is_not_over() -> None:
    node = asked()
    node.wants = set()
    node.event(XID, node.gpu())
    assert node.look().health is F
    assert node.stage(XID, node.gpu()) is Stage.ACTIVE
    assert node.look().health is F  # the wish itself is not believed to be gone
    assert node.look(times=9).health is D


def test_without_a_request_there_was_no_reset() -> None:
    node = fallen()
    assert node.look(times=100).health is F


def test_a_wish_of_another_gpu_is_not_this_one_s() -> None:
    node = fallen()
    node.wants = {"GPU-b"}
    node.look(times=3)
    node.wants = set()
    assert node.look(times=100).health is F
    assert node.stage(XID, node.gpu()) is Stage.ACTIVE


def test_a_wish_seen_once_is_none() -> None:
    """A single reading of the recovery action is not believed by its collector either."""
    node = fallen()
    node.find("gpu.recovery_action", node.gpu(), D)
    node.look()
    node.clear("gpu.recovery_action", node.gpu())
    node.look(times=10)
    assert node.stage(XID, node.gpu()) is Stage.ACTIVE


@pytest.mark.parametrize("how", ["silent", "mute", "failing"])
def test_silence_of_the_driver_is_no_reset(how: str) -> None:
    node = asked()
    node.wants = set()
    if how == "silent":
        node.recovery_told = False
    if how == "mute":
        node.mute = {"GPU-a"}
    if how == "failing":
        node.down["gpu"] = HUNG
    node.look(times=20)
    assert node.stage(XID, node.gpu()) is Stage.ACTIVE


def test_the_kernel_s_word_is_heard_before_the_driver_is_said_to_ask_no_more(tmp_path: Path) -> None:
    """After a start the log is read later than the GPU: what it asks for is not known until then."""
    node = fallen(tmp_path, "nvlink.down", latch=("nvlink.*", "xid.*"))
    node.event(WISH, node.gpu())
    node.wants = {"GPU-a"}
    node.look(times=3)
    node.clear("nvlink.down", node.gpu())
    node.look()
    assert node.stage("nvlink.down", node.gpu()) is Stage.LATCHED
    node.restart()
    node.waiting = {"xid"}
    node.wants = set()
    node.look(times=3)
    assert node.stage("nvlink.down", node.gpu()) is Stage.LATCHED
    node.waiting = set()
    node.look(times=3)
    assert node.stage("nvlink.down", node.gpu()) is Stage.LATCHED


def test_none_ends_what_stood_and_the_wish_itself() -> None:
    node = fallen()
    node.event(WISH, node.gpu())
    assert node.look().health is F
    node.end(XID, node.gpu())
    node.clear(WISH, node.gpu())
    assert node.look().health is D
    assert node.stage(XID, node.gpu()) is Stage.PROBATION
    assert node.stage(WISH, node.gpu()) is Stage.PROBATION


def test_a_request_that_is_not_repeated_after_a_restart_was_not_taken_back(tmp_path: Path) -> None:
    """The log was overwritten meanwhile; that NVML said the contrary all the time proves nothing either."""
    node = fallen(tmp_path, WISH)
    node.look(times=5)
    node.restart()
    node.clear(WISH, node.gpu())
    assert node.look(times=20).health is F
    assert node.stage(WISH, node.gpu()) is Stage.LATCHED


def test_an_event_that_is_over_is_on_probation_also_across_a_restart(tmp_path: Path) -> None:
    """The times of events are made again at a start, and may be off by some seconds."""
    node = fallen(tmp_path)
    node.restart()
    node.find(XID, node.gpu(), D, last=node.found[XID, node.gpu()].last + 40.0)
    assert node.look().health is D


def test_a_milder_event_is_none_that_is_over(tmp_path: Path) -> None:
    """The log that told of the fatal one is gone, and a milder one came since: that repairs nothing."""
    node = fallen(tmp_path, FABRIC)
    node.restart()
    node.clear(FABRIC, node.gpu())
    node.look(seconds=900.0)
    assert node.stage(FABRIC, node.gpu()) is Stage.LATCHED
    node.event(FABRIC, node.gpu(), D)
    for _ in range(20):
        assert node.look().health is F


def test_one_that_comes_back_milder_is_failed_and_stays_so() -> None:
    node = fallen(rule=FABRIC)
    node.end(FABRIC, node.gpu())
    node.look(seconds=900.0)
    node.event(FABRIC, node.gpu(), D)
    for _ in range(20):
        assert node.look().health is F


def test_what_is_over_stays_over_across_restarts(tmp_path: Path) -> None:
    node = asked(tmp_path)
    node.wants = set()
    node.look(times=20)
    for drift in (30.0, -30.0, 10.0):
        node.restart()
        told = node.found[XID, node.gpu()]
        node.find(XID, node.gpu(), F, last=told.last + drift)
        assert node.look(times=3).health is D
    assert node.entry(XID, node.gpu()).times == 1


def test_the_newest_of_several_is_the_one_that_ends() -> None:
    node = fallen()
    node.look(seconds=900.0)
    node.event(XID, node.gpu())
    node.look(times=2)
    node.end(XID, node.gpu())
    assert node.look().health is D


# Acknowledgements


def test_an_repaired_event_is_on_probation_and_no_more_than_that() -> None:
    node = fallen()
    node.repaired(XID, node.gpu())
    assert node.health is D
    (standing,) = node.verdict.standings
    assert (standing.stage, standing.measured) == (PROBATION, F)
    assert standing.finding.evidence == "evidence of xid.79; repaired by ann: cable exchanged"
    assert node.look(seconds=3600.0, times=23).health is D
    assert node.look(seconds=3600.0).health is Health.OK
    (standing,) = node.verdict.standings
    assert (standing.stage, standing.takes_part) == (REPAIRED, False)


def test_repaired_twice_it_takes_no_part() -> None:
    node = fallen()
    node.repaired(XID, node.gpu())
    node.repaired(XID, node.gpu())
    assert node.health is Health.OK
    assert node.look(times=100).health is Health.OK
    assert node.verdict.standings[0].stage == REPAIRED


def test_a_newer_event_is_a_recurrence() -> None:
    node = fallen()
    node.repaired(XID, node.gpu())
    node.look(times=10)
    node.event(XID, node.gpu())
    assert node.look(times=10).health is F
    assert (node.entry(XID, node.gpu()).times, node.entry(XID, node.gpu()).repaired) == (2, None)


def test_a_newer_event_is_one_although_the_clock_was_set_back() -> None:
    node = fallen()
    node.repaired(XID, node.gpu())
    node.look(times=10)
    node.at -= 7200.0
    node.event(XID, node.gpu())
    assert node.look(times=10).health is F


def test_an_event_of_a_new_boot_is_one_although_the_clock_is_wrong_then(tmp_path: Path) -> None:
    node = fallen(tmp_path)
    node.repaired(XID, node.gpu())
    node.repaired(XID, node.gpu())
    node.reboot()
    node.at -= 86400.0
    node.event(XID, node.gpu())
    for _ in range(10):
        assert node.look().health is F


@pytest.mark.parametrize("acks", [1, 2])
def test_an_acknowledgement_holds_across_restarts(acks: int, tmp_path: Path) -> None:
    node = fallen(tmp_path)
    for _ in range(acks):
        node.look(times=4)
        node.repaired(XID, node.gpu())
    before = node.health
    for drift in (30.0, -20.0):
        node.restart()
        told = node.found[XID, node.gpu()]
        node.find(XID, node.gpu(), F, last=told.last + drift)
        assert node.look().health is before
    node.event(XID, node.gpu())
    assert node.look().health is F


def test_an_repaired_degraded_event_takes_no_part_until_a_newer_one() -> None:
    node = Drawn()
    node.event("xid.94", node.gpu(), D)
    assert node.look().health is D
    node.repaired("xid.94", node.gpu())
    assert node.look(times=10).health is Health.OK
    assert node.verdict.standings[0].stage == REPAIRED
    node.event("xid.94", node.gpu(), D)
    assert node.look().health is D
    assert node.ledger.entries == {}


def test_one_that_is_worse_than_the_repaired_is_failed() -> None:
    node = Drawn()
    node.event(FABRIC, node.gpu(), D)
    node.look()
    node.repaired(FABRIC, node.gpu())
    node.event(FABRIC, node.gpu())
    assert node.look(times=10).health is F


def test_one_that_got_worse_is_held_as_what_it_became(tmp_path: Path) -> None:
    node = Drawn(tmp_path)
    node.event(FABRIC, node.gpu(), D)
    node.look()
    node.repaired(FABRIC, node.gpu())
    node.event(FABRIC, node.gpu())
    node.look()
    node.restart()
    node.clear(FABRIC, node.gpu())
    assert node.look(times=10).health is F


def test_an_repaired_event_is_forgotten_only_when_it_is_no_longer_reported(tmp_path: Path) -> None:
    node = fallen(tmp_path)
    node.repaired(XID, node.gpu())
    assert node.look(seconds=3600.0, times=24 * 20).health is Health.OK
    node.reboot()
    assert node.look(seconds=3600.0, times=3).health is Health.OK
    assert node.ledger.entries == {}


def test_an_event_of_a_rule_that_a_person_puts_right_may_be_repaired() -> None:
    node = fallen(plain=("xid.*",))
    assert node.ledger.entries == {}
    node.repaired(XID, node.gpu())
    assert node.look().health is D
    node.clear(XID, node.gpu())
    assert node.look().health is Health.OK
    assert node.ledger.entries == {}


def test_an_event_that_is_not_reported_while_the_log_cannot_be_read_is_held(tmp_path: Path) -> None:
    node = fallen(tmp_path)
    node.restart()
    node.down["xid"] = HUNG
    assert node.look(times=100).health is F
    assert node.stage(XID, node.gpu()) is Stage.ACTIVE


# A GPU of which only the address is known at first

CARD = Subject(device=f"0000:{ord('a'):02x}:00", link="3")
"""That of GPU-a."""


def test_an_event_at_an_address_is_the_gpu_s_once_that_is_known(tmp_path: Path) -> None:
    node = Drawn(tmp_path)
    node.waiting = {"inventory"}
    node.event(FABRIC, CARD)
    assert node.look().health is F
    node.clear(FABRIC, CARD)
    node.event(FABRIC, node.gpu(link="3"))
    node.waiting = set()
    assert node.look().health is F
    (entry,) = node.ledger.entries.values()
    assert entry.subject == Subject(gpu="0", uuid="GPU-a", link="3")
    assert (entry.times, entry.stage) == (1, Stage.ACTIVE)


def test_a_word_for_an_event_at_an_address_holds_while_it_is_reported_so() -> None:
    node = Drawn()
    node.event(FABRIC, CARD)
    node.look()
    # Told by its address, and known by its name all the same.
    node.repaired(FABRIC, node.gpu(link="3"))
    assert node.look(times=3).health is D


def test_after_a_restart_an_repaired_event_is_known_by_its_address_before_nvml_answers(
    tmp_path: Path,
) -> None:
    node = Drawn(tmp_path)
    node.event(FABRIC, CARD)
    node.look()
    node.repaired(FABRIC, node.gpu(link="3"))
    node.look()
    node.restart()
    node.waiting = {"inventory"}
    assert F not in {s.finding.health for s in node.look().standings}


def test_an_address_is_its_gpu_s_while_the_inventory_cannot_be_read() -> None:
    node = Drawn()
    node.look()
    node.down["inventory"] = HUNG
    node.event(FABRIC, CARD)
    node.look()
    # By what the inventory offers, and not by what the ledger remembers.
    (standing,) = (s for s in judge_node(node.state).standings if s.finding.rule == FABRIC)
    assert standing.finding.subject == Subject(gpu="0", uuid="GPU-a", link="3")


def test_an_address_is_that_of_the_gpu_which_is_there_and_not_of_a_lost_one() -> None:
    lost, new = Gpu(0, "GPU-z", "0000:61:00.0"), Gpu(0, "GPU-a", "0000:61:00.0")
    for gpus in ((lost, new), (new, lost)):
        facts = InventoryFacts(
            {gpu.key: KnownGpu(gpu, {}) for gpu in gpus}, frozenset({lost.key}), {}, frozenset({new.key})
        )
        state = NodeState({"inventory": Component("inventory", None, facts=facts)})
        assert cards(state) == {"0000:61:00": Subject(gpu="0", uuid="GPU-a")}


@pytest.mark.parametrize("acked", [CARD, Subject(gpu="0", uuid="GPU-a", link="3")])
def test_of_two_names_of_one_event_the_worse_is_kept(acked: Subject) -> None:
    node = Drawn()
    other = node.gpu(link="3") if acked == CARD else CARD
    node.waiting = {"inventory"}
    node.event(FABRIC, CARD)
    node.event(FABRIC, node.gpu(link="3"))
    node.look()
    node.repaired(FABRIC, acked)
    node.repaired(FABRIC, acked)
    node.waiting = set()
    node.found.clear()
    assert node.look(times=9).health is F
    assert node.stage(FABRIC, other) in {None, Stage.LATCHED}
    (entry,) = node.ledger.entries.values()
    assert entry.stage is Stage.LATCHED
