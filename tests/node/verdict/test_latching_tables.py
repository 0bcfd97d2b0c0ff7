"""Tables of entries and events, in each row of which a single difference decides."""

from dataclasses import replace

import pytest

from tests.node.verdict.drawn import EPOCH, HUNG, D, Drawn, F, U, address
from tests.rows import each
from wirewatch.collectors.infiniband import InfinibandFacts
from wirewatch.collectors.inventory import InventoryFacts, KnownGpu
from wirewatch.core.collector import Component, NodeState
from wirewatch.core.ports import Gpu
from wirewatch.core.types import Finding, Health, Ok, OperatorNote, Subject
from wirewatch.verdict.latching import covered, step
from wirewatch.verdict.ledger import DAY, Entry, Ledger, Now, Probes, Stage, VerdictPolicy
from wirewatch.verdict.node import troubles
from wirewatch.verdict.observation import (
    answering_gpus,
    asks_for_reset,
    cards,
    gone_for_good,
    needs_nothing,
)

XID, DOWN = "xid.149", "nvlink.link_down"
GPU = Subject(gpu="0", uuid="GPU-a", link="3")
CARD = Subject(device=address("GPU-a").partition(".")[0], link="3")
ENDED = EPOCH + 100.0
OVER = Entry(
    XID, GPU, "xid", F, Stage.PROBATION, "over", "repair it", EPOCH, ENDED, EPOCH, boot="boot-1",
    stamp=50.0, newest=50.0,
)  # fmt: skip
OLD = {"stamp": None, "newest": None}
"""What an entry of wirewatch 0.1 lacks."""
ACKED = {**OLD, "repaired": OperatorNote("ann", "cable exchanged", EPOCH + 50.0)}


@each(
    ("why", "entry", "event", "expected"),
    [
        ("the same", {}, {}, True),
        ("an older one", {}, {"stamp": 49.0}, True),
        ("a newer one, though the clock was set back", {}, {"stamp": 50.1, "last": EPOCH - 900.0}, False),
        ("remembered", {"stage": Stage.REMEMBERED}, {}, True),
        ("held", {"stage": Stage.LATCHED}, {}, False),
        ("seen", {"stage": Stage.ACTIVE}, {}, False),
        ("found by measurement", {}, {"last": 0.0, "stamp": 0.0}, False),
        ("of an entry that was measured", {**OLD, "event": 0.0}, {}, False),
        ("of 0.1, the same", {**OLD, "mono": 5.0}, {}, True),
        ("of 0.1, its time made again at the start", OLD, {"last": EPOCH + 40.0}, True),
        ("of 0.1, as it was found to be over", OLD, {"last": ENDED}, True),
        ("of 0.1, after it was over", OLD, {"last": ENDED + 0.1}, False),
        ("of 0.1, another while it was followed", {**OLD, "mono": 5.0}, {"last": EPOCH + 40.0}, False),
        ("of 0.1, up to the acknowledgement", ACKED, {"last": EPOCH + 50.0}, True),
        ("of 0.1, after the acknowledgement", ACKED, {"last": EPOCH + 50.1}, False),
    ],
)  # fmt: skip
def test_which_event_is_over(
    why: str, entry: dict[str, object], event: dict[str, object], *, expected: bool
) -> None:
    finding = replace(Finding(XID, F, GPU, "e", "a", EPOCH, EPOCH, 50.0), **event)  # type: ignore[arg-type]
    assert covered(replace(OVER, **entry), finding) is expected, why  # type: ignore[arg-type]


def remembering(entry: Entry) -> Drawn:
    """A node that remembers this alone."""
    node = Drawn()
    node.look()
    node.ledger = replace(node.ledger, entries={entry.key: entry})
    return node


def test_an_older_report_of_what_is_over_does_not_make_the_newest_one_new() -> None:
    node = remembering(OVER)
    for stamp in (49.0, 50.0):
        node.find(XID, GPU, F, EPOCH, stamp)
        assert node.look().health is D
    assert node.entry(XID, GPU).stamp == 50.0


def test_an_event_of_0_1_is_known_by_its_stamp_once_it_is_reported() -> None:
    node = remembering(replace(OVER, **OLD))  # type: ignore[arg-type]
    node.find(XID, GPU, F, EPOCH, 50.0)
    assert node.look().health is D
    assert node.entry(XID, GPU).stamp == 50.0
    node.find(XID, GPU, F, EPOCH, 50.1)
    assert node.look().health is F


def test_a_milder_event_after_one_of_0_1_that_is_over_is_a_recurrence() -> None:
    node = remembering(replace(OVER, **OLD, mono=1000.0))  # type: ignore[arg-type]
    node.find(XID, GPU, D, EPOCH + 40.0, 90.0)
    assert node.look().health is F
    assert node.entry(XID, GPU).times == 2


@each(
    ("why", "over", "by_address", "kept"),
    [
        ("the same event", {}, {}, "over"),
        ("an older event", {}, {"stamp": 49.0}, "over"),
        ("a newer event", {}, {"stamp": 51.0}, "by address"),
        ("the same stamp of another boot", {"boot": "boot-0"}, {}, "by address"),
        ("the other was followed since the start", {"mono": 5.0}, {}, "by address"),
        ("the other is held", {"stage": Stage.LATCHED}, {}, "by address"),
        ("the other is seen", {"stage": Stage.ACTIVE}, {}, "over"),
        ("the other is of 0.1", OLD, {}, "over"),
        ("this is of 0.1", {}, OLD, "over"),
        ("the other is of 0.1, and this came later", OLD, {"event": ENDED + 1.0}, "by address"),
        ("the other is of 0.1 and held", {**OLD, "stage": Stage.LATCHED}, {}, "by address"),
        ("the other is of 0.1 and was followed", {**OLD, "mono": 5.0}, {}, "by address"),
        ("both were measured", OLD, {**OLD, "event": 0.0}, "by address"),
        ("both are on probation", {"mono": 5.0}, {"stage": Stage.PROBATION}, "over"),
        ("the other is milder", {"mono": 5.0, "stage": Stage.REMEMBERED}, {"stage": Stage.PROBATION},
         "by address"),
    ],
)  # fmt: skip
def test_which_of_two_names_of_a_gpu_is_kept(
    why: str, over: dict[str, object], by_address: dict[str, object], kept: str
) -> None:
    active = replace(OVER, subject=CARD, stage=Stage.ACTIVE, evidence="by address")
    entries = [replace(OVER, **over), replace(active, **by_address)]  # type: ignore[arg-type]
    node = Drawn()
    node.look()
    node.ledger = replace(node.ledger, entries={entry.key: entry for entry in entries})
    node.look()
    (entry,) = node.ledger.entries.values()
    assert (entry.evidence, entry.subject) == (kept, GPU), why


@pytest.mark.parametrize(("stage", "times"), [(Stage.ACTIVE, 1), (Stage.PROBATION, 1), (Stage.REMEMBERED, 2)])
def test_what_is_not_known_yet_neither_renews_a_fault_nor_ends_it(stage: Stage, times: int) -> None:
    node = Drawn()
    node.look()
    entry = replace(OVER, rule=DOWN, collector="nvlink", stage=stage, times=times, event=0.0, **OLD)  # type: ignore[arg-type]
    node.ledger = replace(node.ledger, entries={entry.key: entry})
    node.find(DOWN, node.gpu(link="3"), U)
    node.look(times=9)
    after = node.entry(DOWN, GPU)
    assert (after.stage, after.times, after.absent, after.evidence) == (stage, times, 0.0, "over")


def test_a_fault_seen_once_counts_no_time_before_its_first_reading_without_it() -> None:
    node = Drawn()
    node.find(DOWN, node.gpu())
    node.look()
    node.clear(DOWN, node.gpu())
    assert node.look(seconds=300.0).health is F
    assert node.verdict.findings[0].evidence == (
        f"evidence of {DOWN}; not seen now, not yet believed to be gone"
    )
    assert node.look(seconds=300.0).health is D


def test_an_entry_says_since_when_and_when_last_and_which_event() -> None:
    node = Drawn()
    node.find(DOWN, node.gpu())
    node.find(XID, GPU, F, EPOCH + 3.0, 3.0)
    node.look()
    first = node.at
    for _ in range(2):
        measured, event = node.entry(DOWN, node.gpu()), node.entry(XID, GPU)
        assert (measured.since, measured.last, measured.event) == (first, node.at, 0.0)
        assert (measured.mono, measured.stamp, measured.newest) == (None, None, None)
        assert (event.since, event.last, event.event) == (EPOCH + 3.0, EPOCH + 3.0, EPOCH + 3.0)
        assert (event.mono, event.stamp, event.newest) == (node.mono, 3.0, 3.0)
        node.look()
    node.find(XID, GPU, D, EPOCH + 9.0, 9.0)
    node.look()
    event = node.entry(XID, GPU)
    assert (event.since, event.last, event.event) == (EPOCH + 3.0, EPOCH + 9.0, EPOCH + 3.0)
    assert (event.health, event.stamp, event.newest) == (F, 3.0, 9.0)


def test_one_that_came_often_is_latched_only_when_it_is_believed_to_be_gone() -> None:
    node = Drawn(latch_after=2)
    for _ in range(2):
        node.find(DOWN, node.gpu())
        node.look(times=2)
        node.clear(DOWN, node.gpu())
        node.look(times=4)
        assert node.stage(DOWN, node.gpu()) is Stage.ACTIVE
        node.look()
    assert node.stage(DOWN, node.gpu()) is Stage.LATCHED


def test_a_rule_that_is_made_plain_while_it_is_seen_counts_as_it_is_measured() -> None:
    node = Drawn()
    node.find(DOWN, node.gpu())
    assert node.look().health is F
    node.policy = VerdictPolicy(plain=("nvlink.*",))
    node.find(DOWN, node.gpu(), D)
    assert node.look().health is D
    assert node.ledger.entries == {}


def test_the_most_gpus_that_were_here_are_remembered() -> None:
    node = Drawn()
    node.look()
    node.gpus = ["GPU-b"]
    node.look()
    assert node.ledger.gpus == 2


def test_a_reset_that_was_asked_for_while_a_fault_was_over_does_not_end_its_recurrence() -> None:
    node = Drawn()
    node.event(XID, node.gpu())
    node.look()
    node.repaired(XID, node.gpu())
    node.wants = {"GPU-a"}
    node.look()
    node.wants = set()
    node.look()
    node.event(XID, node.gpu())
    assert node.look(times=20).health is F
    assert node.stage(XID, node.gpu()) is Stage.ACTIVE


def test_troubles_are_rules_that_count_of_other_collectors() -> None:
    node = Drawn()
    node.find(DOWN, node.gpu(), D)
    node.find("pcie.width", node.gpu(), D)
    node.find("gpu.throttle", node.gpu(), Health.OK)
    node.find("infiniband.port_slow", Subject(device="mlx5_0", port="1"), D)
    node.look()
    node.suppress("pcie.width", node.gpu())
    assert set(troubles(node.verdict, "")) == {DOWN, "infiniband.port_slow"}
    assert troubles(node.verdict, "infiniband") == (DOWN,)


def test_an_event_of_a_gpu_without_a_uuid_is_over_after_a_boot() -> None:
    node, nameless = Drawn(), Subject(gpu="0")
    node.event(XID, nameless)
    node.look()
    node.reboot()
    node.look()
    assert node.stage(XID, nameless) is Stage.PROBATION


def test_no_gpu_answers_while_the_inventory_cannot_be_read() -> None:
    node = Drawn()
    node.look()
    assert answering_gpus(node.state) == {"GPU-a", "GPU-b"}
    node.down["inventory"] = HUNG
    node.look()
    assert answering_gpus(node.state) == frozenset()


def test_a_fault_of_a_collector_that_was_switched_off_is_held() -> None:
    node = remembering(replace(OVER, rule="fans.at_most", collector="fans", stage=Stage.LATCHED))
    node.look(times=9)
    assert node.stage("fans.at_most", GPU) is Stage.LATCHED


@each(
    ("why", "rule", "facts", "inactive", "held"),
    [
        ("the port is still down", "infiniband.port_down", True, {("mlx5_0", "1")}, True),
        ("another fault of it is over", "infiniband.port_slow", True, {("mlx5_0", "1")}, False),
        ("another port is down", "infiniband.port_down", True, {("mlx5_1", "1")}, False),
        ("no port is down", "infiniband.port_down", True, set(), False),
        ("nothing is known of ports", "infiniband.port_down", False, set(), False),
    ],
)
def test_a_port_that_was_down_is_up_when_it_is_not_down_any_more(
    why: str, rule: str, inactive: set[tuple[str, str]], *, facts: bool, held: bool
) -> None:
    node, port = Drawn(), Subject(device="mlx5_0", port="1")
    node.find(rule, port)
    node.look()
    node.clear(rule, port)
    for _ in range(9):
        node.look()
        one = node.state.components["infiniband"]
        told = InfinibandFacts({}, {}, frozenset(inactive)) if facts else None
        node.state = node.state.with_component(replace(one, facts=told))
        node.step()
    expected = Stage.ACTIVE if held else Stage.PROBATION
    assert node.stage(rule, port) is expected, why


@each(
    ("why", "reader", "wish", "well", "asks", "nothing"),
    [
        ("it asks", "gpu", (GPU, F), False, True, False),
        ("it asks by the log, and NVML needs none", "gpu", (GPU, F), True, False, False),
        ("its wish is milder", "gpu", (GPU, D), True, False, False),
        ("it asks for nothing", "gpu", None, True, False, True),
        ("it says nothing", "gpu", None, False, False, False),
        ("another one asks", "gpu", (Subject(gpu="1", uuid="GPU-b"), F), True, False, True),
        ("it is not read", "", None, True, False, False),
        ("it is not read, and asks by the log", "", (GPU, F), True, True, False),
    ],
)  # fmt: skip
def test_what_the_driver_asks_for(
    why: str, reader: str, wish: tuple[Subject, Health] | None, *, well: bool, asks: bool, nothing: bool
) -> None:
    node = Drawn()
    node.look()
    if wish:
        node.find("gpu.recovery_action", *wish)
    node.recovery_told = well
    node.look()
    if not reader:
        node.hang("gpu")
    assert (asks_for_reset(node.state, "GPU-a"), needs_nothing(node.state, "GPU-a")) == (asks, nothing), why


def test_where_no_collector_watches_gpus_nothing_is_asked_for_and_nothing_is_well() -> None:
    assert not asks_for_reset(NodeState({}), "GPU-a")
    assert not needs_nothing(NodeState({}), "GPU-a")


def test_the_wish_of_a_gpu_without_a_name_is_of_no_other_one() -> None:
    node = Drawn()
    node.find("gpu.recovery_action", Subject(gpu="0"))
    node.look()
    assert not asks_for_reset(node.state, "")


@pytest.mark.parametrize(
    ("why", "gpu", "known"),
    [
        ("both known", Gpu(0, "GPU-a", "0000:61:00.0"), {"0000:61:00": Subject(gpu="0", uuid="GPU-a")}),
        ("no address", Gpu(0, "GPU-a", ""), {}),
        ("no name", Gpu(0, "", "0000:61:00.0"), {}),
    ],
)
def test_a_card_is_known_by_address_and_name(why: str, gpu: Gpu, known: dict[str, Subject]) -> None:
    facts = InventoryFacts({gpu.key: KnownGpu(gpu, {})}, frozenset(), {}, frozenset({gpu.key}))
    node = NodeState({"inventory": Component("inventory", None, outcome=Ok(None, 1.0, 1.0), facts=facts)})
    assert cards(node) == known, why


@each(
    ("why", "uuid", "most", "forgotten", "gone"),
    [
        ("another took its place", "GPU-z", 2, (), True),
        ("there were more", "GPU-z", 3, (), False),
        ("none was ever counted", "GPU-z", 0, (), False),
        ("there were more, and somebody took it out", "GPU-z", 3, ("GPU-z",), True),
        ("it answers", "GPU-a", 2, ("GPU-a",), False),
        ("it has no name", "", 2, ("",), False),
    ],
)
def test_which_gpu_is_gone_for_good(
    why: str, uuid: str, most: int, forgotten: tuple[str, ...], *, gone: bool
) -> None:
    node = Drawn()
    node.look()
    one = node.state.components["inventory"]
    assert isinstance(one.facts, InventoryFacts)
    state = node.state.with_component(replace(one, facts=replace(one.facts, forgotten=frozenset(forgotten))))
    assert gone_for_good(state, uuid, most) is gone, why
    assert not gone_for_good(NodeState({}), "GPU-z", 2)


def test_of_two_findings_with_one_name_the_worse_is_remembered() -> None:
    for healths in ((D, F), (F, D)):
        told = tuple(Finding(DOWN, one, GPU, one.name, "a", 1.0) for one in healths)
        one = Component("nvlink", None, outcome=Ok(None, EPOCH, 5.0), applicable=True, findings=told)
        after = step(Ledger("boot-1"), NodeState({"nvlink": one}), Now(EPOCH, 5.0), VerdictPolicy())
        assert [entry.evidence for entry in after.entries.values()] == ["FAILED"]


def test_an_repaired_event_that_the_log_tells_again_after_a_restart_is_over() -> None:
    """Acknowledged while it was held and not reported: its stamp is that of the event."""
    node = Drawn()
    node.event(XID, GPU)
    node.look()
    known = node.found[XID, GPU]
    node.restart()
    node.clear(XID, GPU)
    node.look(times=2)
    node.repaired(XID, GPU)
    node.found[XID, GPU] = known
    assert node.look().health is D


MEASURED = replace(OVER, rule=DOWN, collector="nvlink", event=0.0, mono=1015.0, **OLD)  # type: ignore[arg-type]
"""On probation, and read at the first look of `remembering`."""


@each(
    ("why", "entry", "before", "now", "stage"),
    [
        ("a day and clean probes", {}, (0, False, True), (0, False, True), Stage.REMEMBERED),
        ("not yet a day", {"absent": DAY - 16.0}, (0, False, True), (0, False, True), Stage.PROBATION),
        ("a probe short", {"probes": 2}, (0, False, True), (0, False, True), Stage.PROBATION),
        ("no probe can run", {"probes": 0}, (0, False, False), (0, False, False), Stage.REMEMBERED),
        ("a probe more, which is clean", {"probes": 2}, (0, False, True), (1, True, True), Stage.REMEMBERED),
        ("a probe more, which is not", {}, (0, False, True), (1, False, True), Stage.PROBATION),
        ("the same probe, which was not clean", {}, (1, False, True), (1, False, True), Stage.REMEMBERED),
        ("the same probe, which was clean", {"probes": 2}, (1, True, True), (1, True, True), Stage.PROBATION),
    ],
)  # fmt: skip
def test_when_probation_is_over(
    why: str, entry: dict[str, object], before: tuple[int, bool, bool], now: tuple[int, bool, bool],
    stage: Stage,
) -> None:  # fmt: skip
    one = replace(MEASURED, **{"absent": DAY - 15.0, "probes": 3, **entry})  # type: ignore[arg-type]
    node = remembering(one)
    node.ledger = replace(node.ledger, complete=before[0])
    node.probes = Probes(*now)
    node.look()
    assert node.stage(DOWN, GPU) is stage, why


def test_what_is_remembered_is_forgotten_after_a_week() -> None:
    for absent, known in ((7 * DAY - 16.0, Stage.REMEMBERED), (7 * DAY - 15.0, None)):
        node = remembering(replace(MEASURED, stage=Stage.REMEMBERED, absent=absent))
        node.look()
        assert node.stage(DOWN, GPU) is known


@each(
    ("why", "entry", "wants", "asked"),
    [
        ("it asked before, and is there still", {"stage": Stage.ACTIVE, "asked": True}, False, True),
        ("it asks now", {"stage": Stage.ACTIVE}, True, True),
        ("it never asked", {"stage": Stage.ACTIVE}, False, False),
        ("it asked while it was over", {"asked": True}, False, False),
        ("it is back, and asks now", {}, True, True),
    ],
)
def test_whether_a_reset_was_asked_for_since(
    why: str, entry: dict[str, object], *, wants: bool, asked: bool
) -> None:
    node = remembering(replace(MEASURED, **entry))  # type: ignore[arg-type]
    node.wants = {"GPU-a"} if wants else set()
    node.find(DOWN, GPU)
    node.look()
    assert node.entry(DOWN, GPU).asked is asked, why


def test_a_fault_of_a_probe_is_of_this_boot_once_a_probe_of_this_boot_finds_it() -> None:
    node = remembering(replace(MEASURED, rule="probe.busbw", collector="probe", boot="boot-0"))
    node.find("probe.busbw", GPU)
    node.look()
    assert node.entry("probe.busbw", GPU).boot == "boot-0"
    node.probed(clean=False)
    node.look()
    assert node.entry("probe.busbw", GPU).boot == "boot-1"


@pytest.mark.parametrize(("stage", "again"), [(Stage.ACTIVE, False), (Stage.PROBATION, True)])
def test_since_when_it_is_there_is_kept_over_a_restart_unless_it_was_over(
    stage: Stage, *, again: bool
) -> None:
    node = remembering(replace(MEASURED, stage=stage, since=EPOCH - 9.0))
    node.find(DOWN, GPU)
    node.look()
    assert node.entry(DOWN, GPU).since == (node.at if again else EPOCH - 9.0)
