"""What `wirewatch check` says of every bundled fault: the verdict that a daemon has once it has held."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.patience import HANGS
from wirewatch.cli.check.answer import CheckAnswer, Terms, decide, line
from wirewatch.cli.check.command import Attempt, CheckRequest
from wirewatch.core.types import Health
from wirewatch.hw import recording
from wirewatch.hw.overlay import bundled_overlays, load_overlay

DEMO = "demo-dgx-h200"
OK, D, U, F = Health
SECONDS = HANGS
"""What `check` gives a recording by default; each takes about one."""
EXPECTED: Mapping[str, Health] = {
    "acs-on": D, "driver-crash": U, "fabric-not-registered": F, "gpu-busy": OK, "gpu-ecc-uncorrected": D,
    "gpu-hang": U, "gpu-lost": F, "gpu-mig": OK, "gpu-missing": F, "gpu-power-brake": D,
    "gpu-recovery-action": F, "gpu-row-remap-failed": F, "gpu-row-remap-pending": D, "gpu-slow": U,
    "gpu-throttle-thermal": D, "gpudirect-lost": D, "host-link-slow": F,
    "ib-counter-saturated": D, "ib-device-gone": F,
    "ib-link-downed": D, "ib-port-down": F, "ib-port-flapping": F, "ib-port-init": F,
    "ib-port-polling": U, "ib-port-slow": F, "ib-symbol-errors": D, "ib-unreadable": U,
    "ibstat-disagrees": D, "iommu-translates": D, "nccl-conf-gdr-off": D, "nic-cable-hot": D,
    "job-hang-skipped": OK, "job-hang-stopped": OK,
    "nic-moved": OK, "nic-pcie-x8": F, "nvlink-all-down": F, "nvlink-crc": D, "nvlink-link-down": F,
    "nvlink-link-slow": F, "nvlink-recovery": D, "nvlink-replay": D, "pcie-aer": D, "pcie-generation": F,
    "pcie-replays": D, "pcie-slot": D, "pcie-x8": F, "peermem-unloaded": OK, "probe-fails": U,
    "probe-host-memory": F, "probe-link-errors": D, "probe-no-nvls": D, "probe-slow": F,
    "probe-uneven": D, "probe-unknown-product": F, "probe-wrong-data": F, "straggler-compute": F,
    "straggler-destination": D, "straggler-memory": D, "straggler-pair": F, "straggler-source": F,
    "sxid-fatal": F, "xid-149": F, "xid-154": F, "xid-74": F, "xid-79": F, "xid-94": D,
}  # fmt: skip
"""Before, all but two were OK: most begin after 20 s, and the first poll was the only one."""
EXIT = {OK: 0, D: 1, U: 3, F: 2}


@pytest.fixture(scope="module", autouse=True)
def once(module_patch: pytest.MonkeyPatch) -> None:
    """The recording is read once for all of them."""
    loaded = recording.load_recording(DEMO)
    module_patch.setattr("wirewatch.cli.hardware.load_recording", lambda _name: loaded)


@pytest.fixture(scope="module")
def module_patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def checked(*overlays: str, seconds: float = SECONDS, config: Path | None = None) -> CheckAnswer:
    request = CheckRequest(end=time.monotonic() + seconds, config=config, replay=DEMO, overlays=overlays)
    attempt = Attempt(request, lambda: None)
    try:
        return decide(attempt.run(), Terms(frozenset({D, U, F})), time.time())
    finally:
        attempt.tidy()


def test_the_table_has_every_bundled_fault() -> None:
    assert set(EXPECTED) == set(bundled_overlays())


@pytest.mark.parametrize("name", EXPECTED)
def test_a_bundled_fault_has_the_verdict_of_a_daemon(name: str) -> None:
    answer = checked(name)
    assert (answer.health, answer.code) == (EXPECTED[name], EXIT[EXPECTED[name]]), line(answer)
    shown = {(one.rule, one.health) for one in answer.grounds.findings}
    expected = load_overlay(name).findings
    of_jobs = {(one.rule, one.health.name.lower()) for one in expected if one.stage == "aside"}
    assert shown >= {(one.rule, one.health.name.lower()) for one in expected} - of_jobs
    assert not shown & of_jobs, "no job keeps another one away"
    orders = [one for one in answer.grounds.findings if one.action.startswith("drain")]
    assert {one.health for one in orders} <= {"failed", "unknown"}, (
        "a part that is to be drained takes no job"
    )


def test_intervals_of_a_part_of_a_second_make_no_play_longer(tmp_path: Path) -> None:
    """Before: it was polled hundreds of times for each second of the minutes that it plays."""
    config = tmp_path / "wirewatch.toml"
    names = ("infiniband", "nvlink", "topology", "xid")
    config.write_text("".join(f"[collectors.{name}]\ninterval = 0.01\n" for name in names), "utf-8")
    answer = checked("nvlink-link-down", seconds=20.0, config=config)
    assert (answer.health, [one.rule for one in answer.grounds.findings]) == (F, ["nvlink.link_down"])


def test_two_faults_at_once_are_both_played() -> None:
    answer = checked("xid-94", "nvlink-link-down")
    assert answer.health is F
    assert {one.rule for one in answer.grounds.findings} == {"xid.94", "nvlink.link_down"}


def test_a_healthy_recording_is_ok_and_its_probe_is_fresh() -> None:
    answer = checked()
    assert (answer.health, answer.grounds.findings) == (OK, ())
    assert answer.grounds.probe is not None
    assert answer.grounds.probe.fresh
    assert answer.grounds.verdict_at <= answer.at
    assert answer.grounds.probe.at <= answer.at
    assert "played for " in answer.grounds.why


def test_a_play_that_does_not_end_in_time_is_not_ok() -> None:
    answer = checked(seconds=0.0)
    assert (answer.health, answer.grounds.findings != ()) == (U, True)
