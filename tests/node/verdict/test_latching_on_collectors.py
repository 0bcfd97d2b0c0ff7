"""Every bundled fault on the demo node, and what becomes of it: repaired, restarted, booted, unread."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.node.collectors.test_every_collector import FAULTS, OWN, PATTERNS, STANDING
from tests.node.collectors.test_overlays import TABLE
from tests.node.verdict.drawn import D, F, collector_of
from tests.node.verdict.recordednode import DEMO, RecordedNode
from wirewatch.core.types import Health
from wirewatch.hw.overlay import AnswerChange
from wirewatch.verdict.ledger import Stage

FAILED = sorted(name for name, told in TABLE.items() if any(t.health is F for t in told))
OF_THE_LOG = frozenset({"xid-74", "xid-79", "xid-149", "xid-154", "sxid-fatal"})
"""What the kernel told once stays told while the machine is up."""
OF_THE_PROBE = frozenset(
    {
        "probe-slow", "probe-host-memory", "probe-unknown-product", "probe-wrong-data",
        "straggler-compute", "straggler-source", "straggler-pair", "host-link-slow",
    }
)  # fmt: skip
KEPT_FOR_LONG = frozenset({"ib-port-flapping"})
"""Told for 12 hours, and forgotten by a daemon that is started again."""
SLOW_START = {"fabric-not-registered": 24, "ib-port-init": 9}
"""Polls after which the grace of what may be starting is spent."""
QUICK, SLOW = 6, 20
"""Polls of 15 s, after which a bundled fault is believed; those of the last two kinds take longer."""
DAY = 86400.0
GPUS = ("inventory", "nvlink", "gpu", "pcie", "xid")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


def only(overlay: str) -> tuple[str, ...]:
    """The collectors that see it; those of GPUs, of which one tells what another has found."""
    own = {collector_of(told.rule) for told in TABLE[overlay] if told.health is F}
    return tuple(sorted(own if own == {"infiniband"} else own | {"inventory", "gpu", "xid"}))


def failed(folder: Path, overlay: str) -> RecordedNode:
    """The node once the fault is believed."""
    node = RecordedNode(folder, overlay, only=only(overlay))
    polls = SLOW if overlay in OF_THE_PROBE | KEPT_FOR_LONG else SLOW_START.get(overlay, QUICK)
    node.poll(times=polls)
    assert node.health is F
    told = {t.rule for t in TABLE[overlay] if t.health is F}
    assert {rule for rule, stage in node.stages().items() if stage is Stage.ACTIVE} == told
    return node


@pytest.mark.parametrize("overlay", FAILED)
def test_what_becomes_of_it_once_it_is_repaired(overlay: str, folder: Path) -> None:
    node = failed(folder, overlay)
    node.repair()
    node.poll(times=2)
    assert node.health is F
    if overlay in OF_THE_LOG | KEPT_FOR_LONG:
        assert node.poll(times=6).health is F
        assert Stage.ACTIVE in node.stages().values()
        return
    if overlay in OF_THE_PROBE:
        node.poll("probe", times=31, every=60.0)
    node.poll(times=6)
    wanted = Stage.LATCHED if overlay == "probe-wrong-data" else Stage.PROBATION
    assert set(node.stages().values()) == {wanted}
    assert node.health is (F if wanted is Stage.LATCHED else D)


@pytest.mark.parametrize("overlay", FAILED)
def test_a_restart_or_a_boot_does_not_repair_it(overlay: str, folder: Path) -> None:
    node = failed(folder, overlay)
    node.restart()
    if overlay in KEPT_FOR_LONG:
        assert node.poll(times=8).health is D
        return
    for again in (node.boot, None):
        for _ in range(6):
            assert not node.poll().job_ready
        assert node.health is F
        if again is not None:
            again()
    assert Stage.PROBATION not in node.stages().values()


@pytest.mark.parametrize("overlay", sorted(set(FAILED) - OF_THE_PROBE))
def test_repaired_with_a_boot_it_is_on_probation_at_once(overlay: str, folder: Path) -> None:
    node = failed(folder, overlay)
    node.repair()
    node.boot()
    assert node.poll().health is D
    assert set(node.stages().values()) == {Stage.PROBATION}
    assert node.poll(times=5).health is D


@pytest.mark.parametrize("overlay", sorted(OF_THE_LOG))
def test_a_log_that_lost_it_and_a_restart_leave_it_latched(overlay: str, folder: Path) -> None:
    node = failed(folder, overlay)
    node.repair()
    node.restart()
    assert node.poll(times=8).health is F
    assert set(node.stages().values()) == {Stage.LATCHED}
    node.boot()
    assert node.poll().health is D


@pytest.mark.parametrize("overlay", sorted(OF_THE_PROBE))
def test_what_a_probe_found_another_must_clear_after_a_boot(overlay: str, folder: Path) -> None:
    node = failed(folder, overlay)
    node.repair()
    node.boot()
    assert node.poll(times=3).health is F
    node.poll("probe", times=12, every=60.0)
    assert node.health is D
    assert set(node.stages().values()) == {Stage.PROBATION}


# A reset


RECORD = "4,{},8643100{:05},-;NVRM: Xid (PCI:0000:c3:00): {}"
FELL = "79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
ASKS = "154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"
NONE = "154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"


def tell(node: RecordedNode, *words: str) -> None:
    lines = [RECORD.format(2000 + n, n, word) for n, word in enumerate(words)]
    node.change("Records()", "set", lines, port="kmsg")


def test_a_reset_is_seen_by_the_driver_s_word_in_the_log(folder: Path) -> None:
    node = RecordedNode(folder, only=GPUS)
    node.poll()
    tell(node, FELL, ASKS)
    node.change("gpu5/Field(230)", "set", 1)
    assert node.poll(times=3).health is F
    tell(node, FELL, ASKS, NONE)
    node.change("gpu5/Field(230)", "set", 0)
    node.poll(times=6)
    assert node.stages() == {
        "xid.79": Stage.PROBATION, "xid.154": Stage.PROBATION, "gpu.recovery_action": Stage.PROBATION,
    }  # fmt: skip
    assert node.health is D
    node.restart()
    assert node.poll(times=3).health is D
    tell(node, FELL, ASKS, NONE, FELL)
    assert node.poll().health is F


def test_a_reset_is_seen_by_what_nvml_says(folder: Path) -> None:
    node = RecordedNode(folder, only=GPUS)
    node.poll()
    tell(node, FELL)
    assert node.poll(times=20).health is F
    node.change("gpu5/Field(230)", "set", 1)
    assert node.poll(times=3).health is F
    node.change("gpu5/Field(230)", "set", 0)
    node.poll(times=6)
    assert (node.health, node.stages()["xid.79"]) == (D, Stage.PROBATION)


def test_a_driver_that_does_not_say_what_a_gpu_needs_needs_an_acknowledgement(folder: Path) -> None:
    node = RecordedNode(folder, only=GPUS)
    node.change("gpu5/Field(230)", "code", 3)
    tell(node, FELL, ASKS)
    assert node.poll(times=3).health is F
    node.node.changes[:] = [c for c in node.node.changes if c.port != "kmsg"]
    node.restart()
    assert node.poll(times=20).health is F
    assert set(node.stages().values()) == {Stage.LATCHED}


# A GPU that has gone


def test_a_gpu_that_fell_off_is_failed_after_a_restart_with_seven(folder: Path) -> None:
    node = RecordedNode(folder, only=GPUS)
    node.poll(times=2)
    node.change("gpu7/*", "code", 15)
    assert node.poll(times=3).health is F
    node.repair()
    node.change("Count()", "set", 7)
    for again in (node.restart, node.restart, node.boot):
        again()
        for _ in range(8):
            assert not node.poll().job_ready
    # The PCI tree shows it still, with its driver.
    found = {"gpu.lost": Stage.ACTIVE, "gpu.missing": Stage.ACTIVE}
    assert (node.health, node.stages()) == (F, found)
    (lost,) = (one for one in node.verdict.standings if one.finding.rule == "gpu.lost")
    assert "its part is not read" in lost.finding.evidence
    node.repair()
    assert node.poll(times=6).health is D


def test_a_gpu_that_fell_off_with_an_xid_is_failed_after_a_boot_with_seven(folder: Path) -> None:
    node = RecordedNode(folder, only=GPUS)
    node.poll(times=2)
    tell(node, FELL)
    node.change("gpu5/*", "code", 15)
    assert node.poll(times=3).health is F
    assert set(node.stages()) == {"gpu.lost", "xid.79"}
    node.node.changes[:] = [c for c in node.node.changes if c.port == "nvml"]
    node.boot()
    for _ in range(8):
        assert not node.poll().job_ready


# Losses, on the recording of eight H200


CODES = st.sampled_from([4, 10, 999])
"""Not those by which the driver calls a GPU lost: that is a fault."""


@settings(max_examples=examples(120))
@given(
    st.sampled_from(sorted(STANDING)),
    st.lists(st.tuples(PATTERNS, FAULTS), min_size=1, max_size=3),
    st.sampled_from(["restart", "boot"]),
)
def test_no_reading_that_is_lost_and_no_restart_makes_a_sick_node_ready(
    folder: Path,
    fault: str,
    losses: list[tuple[str, int]],
    again: str,
) -> None:
    node = RecordedNode(folder, recording="h200x8", only=GPUS)
    for match, action, argument in STANDING[fault]:
        node.change(match, action, argument)
    node.poll(times=3)
    assert node.health is F
    lost = [AnswerChange("nvml", match, "code", code) for match, code in losses]
    node.node.changes += lost
    node.poll(times=2)
    getattr(node, again)()
    for _ in range(3):
        assert not node.poll().job_ready
    node.node.changes[:] = [c for c in node.node.changes if c not in lost]
    for _ in range(6):
        assert not node.poll().job_ready
    assert node.health is F


@pytest.mark.parametrize("fault", sorted(OWN))
def test_a_fault_that_cannot_be_read_after_a_restart_is_held(fault: str, folder: Path) -> None:
    node = RecordedNode(folder, recording="h200x8", only=GPUS)
    for match, action, argument in STANDING[fault]:
        node.change(match, action, argument)
    node.poll(times=3)
    faults = {rule for rule, stage in node.stages().items() if stage is Stage.ACTIVE}
    node.change(OWN[fault], "code", 999)
    node.restart()
    assert node.poll(times=8).health is F
    assert {rule for rule, stage in node.stages().items() if stage is Stage.ACTIVE} == faults


FILES = ("read *", "list /sys/class/infiniband", "link /sys/class/infiniband/*", "read */ports/1/state")


@pytest.mark.parametrize("overlay", ["ib-port-down", "ib-port-slow", "ib-device-gone", "nic-pcie-x8"])
@pytest.mark.parametrize("files", FILES)
def test_files_that_cannot_be_read_after_a_restart_repair_no_port(
    overlay: str, files: str, folder: Path
) -> None:
    node = failed(folder, overlay)
    lost = AnswerChange("sysfs", files, "errno", "EIO")
    node.node.changes.append(lost)
    node.restart()
    for _ in range(6):
        assert not node.poll().job_ready
    assert node.health is F
    node.node.changes.remove(lost)
    for _ in range(6):
        assert not node.poll().job_ready
    node.repair()
    assert node.poll(times=6).health is D


@settings(max_examples=examples(150))
@given(st.lists(st.lists(st.tuples(PATTERNS, CODES), max_size=2), min_size=1, max_size=4), st.data())
def test_readings_that_are_lost_make_a_healthy_node_never_failed(
    folder: Path, losses: list[list[tuple[str, int]]], data: st.DataObject
) -> None:
    node = RecordedNode(folder, recording="h200x8", only=GPUS)
    for lost in losses:
        node.node.changes[:] = [AnswerChange("nvml", match, "code", code) for match, code in lost]
        for _ in range(data.draw(st.integers(1, 3))):
            assert node.poll().health is not F
        if data.draw(st.booleans()):
            node.restart()
    node.repair()
    node.poll(times=2)
    assert (node.health, node.ledger.entries) == (Health.OK, {})


def test_the_healthy_demo_remembers_nothing_over_restarts_and_boots(folder: Path) -> None:
    node = RecordedNode(folder, recording=DEMO)
    for again in (node.restart, node.boot, node.restart):
        node.poll(times=3)
        assert (node.health, node.ledger.entries) == (Health.OK, {})
        again()
    assert node.verdict.standings == ()


def test_probation_ends_after_a_day_and_three_clean_probes(folder: Path) -> None:
    node = RecordedNode(folder, "nvlink-link-down", only=("inventory", "nvlink", "probe"))
    node.poll("inventory", "nvlink", times=5)
    assert node.health is F
    node.repair()
    node.poll("inventory", "nvlink", times=6)
    node.poll("probe")
    node.poll("inventory", "nvlink", times=3, every=DAY / 2)
    assert (node.health, node.stages()) == (D, {"nvlink.link_down": Stage.PROBATION})
    began = node.node.clock.seconds
    while node.health is D and node.node.clock.seconds - began < DAY / 4:
        node.poll("probe", every=600.0)
        node.poll("nvlink", every=0.0)
    assert node.health is Health.OK
    (clean,) = (e.probes for e in node.ledger.entries.values())
    assert clean == 3
    assert node.stages() == {"nvlink.link_down": Stage.REMEMBERED}
