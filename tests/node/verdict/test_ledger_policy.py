"""The policy as data: what can be meant, and which rules latch."""

from pathlib import Path

import pytest

from tests.rows import each
from wirewatch.config import ConfigError, load
from wirewatch.verdict.ledger import DAY, VerdictPolicy

FAIL_ON = "fail_on must name failed, and besides unknown and degraded at most: {}"


def test_the_defaults_can_be_meant() -> None:
    assert VerdictPolicy().wrong() == ""


@pytest.mark.parametrize("name", ["settle", "probation", "recurrence", "longest_suppression"])
@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
def test_seconds_that_are_none(name: str, seconds: float) -> None:
    policy = VerdictPolicy(**{name: seconds})  # type: ignore[arg-type]
    assert policy.wrong() == f"must not be below 0: {name!r}"


@each(
    ("policy", "wrong"),
    [
        (VerdictPolicy(recurrence=DAY - 1), "must not be shorter than probation: 'recurrence'"),
        (VerdictPolicy(clean_probes=-1), "clean_probes must be at least 0"),
        (VerdictPolicy(latch_after=1), "latch_after must be at least 2"),
        (VerdictPolicy(flaps=1), "flaps must be at least 2"),
        (VerdictPolicy(fail_on=("unknown",)), FAIL_ON.format(["unknown"])),
        (VerdictPolicy(fail_on=("failed", "ok")), FAIL_ON.format(["failed", "ok"])),
        (VerdictPolicy(fail_on=("failed", "unknown", "degraded")), ""),
        (VerdictPolicy(recurrence=DAY), ""),
        (
            VerdictPolicy(settle=0.0, probation=0.0, recurrence=0.0, clean_probes=0, latch_after=2, flaps=2),
            "",
        ),
    ],
)
def test_what_cannot_be_meant(policy: VerdictPolicy, wrong: str) -> None:
    assert policy.wrong() == wrong


@each(
    ("rule", "latches", "forgets"),
    [
        ("xid.79", True, False),
        ("sxid.20034", True, False),
        ("kernel.nic_power", True, False),
        ("probe.wrong_data", True, False),
        ("probe.busbw", False, False),
        ("nvlink.link_down", False, False),
        ("gpu.lost", False, False),
        ("gpudirect.missing", False, True),
        ("agent.nvml_stuck", False, True),
        ("xid", False, False),
    ],
)
def test_which_rules_latch_and_which_are_over_at_once(rule: str, latches: bool, forgets: bool) -> None:  # noqa: FBT001
    policy = VerdictPolicy()
    assert (policy.latches(rule), policy.forgets(rule)) == (latches, forgets)


def written(folder: Path, text: str) -> Path:
    path = folder / "wirewatch.toml"
    path.write_text(f"[policy.verdict]\n{text}\n")
    return path


def test_it_is_read_from_the_configuration(tmp_path: Path) -> None:
    path = written(tmp_path, 'latch = ["nvlink.*"]\nplain = []\nsettle = 30\nlatch_after = 2')
    config, _ = load(path, ())
    assert config.policy.verdict == VerdictPolicy(latch=("nvlink.*",), plain=(), settle=30.0, latch_after=2)


@pytest.mark.parametrize(
    "text", ["settle = -1", "latch_after = 1", 'latch = "xid.*"', "setle = 1", "clean_probes = 1.5"]
)
def test_what_cannot_be_meant_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        load(written(tmp_path, text), ())


def test_the_figures_are_those_of_the_decision() -> None:
    """ADR 0010 has their reasons; one that moves here moves there."""
    policy = VerdictPolicy()
    assert (policy.settle, policy.probation, policy.recurrence) == (60.0, DAY, 7 * DAY)
    assert (policy.clean_probes, policy.latch_after) == (3, 3)
    assert (policy.flaps, policy.flap_window) == (5, 3600.0)
    assert policy.longest_suppression == 90 * DAY


@each(
    ("rule", "flaps"),
    [
        ("nvlink.link_down", True), ("nvlink.down", True), ("nvlink.link_slow", True), ("nvlink.slow", True),
        ("c2c.link_down", True), ("pcie.width", True), ("infiniband.port_down", True),
        ("infiniband.port_slow", True), ("infiniband.pcie", True), ("pcie.generation", False),
        ("gpu.throttle", False), ("xid.79", False), ("probe.busbw", False),
    ],
)  # fmt: skip
def test_which_rules_are_failed_by_coming_and_going(rule: str, flaps: bool) -> None:  # noqa: FBT001
    assert VerdictPolicy().flaps_count(rule) is flaps
