"""The daemon's configuration on a squeezed clock."""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from proof.rehearsal.settings import REAL, SQUEEZED, configuration
from wirewatch.catalogue import discover
from wirewatch.config import load
from wirewatch.probe.model import ProbeOptions, ProbePolicy
from wirewatch.verdict.drift.component import DriftOptions
from wirewatch.verdict.drift.watch import DriftPolicy
from wirewatch.verdict.ledger import VerdictPolicy

NO_SECONDS = frozenset(
    {
        "jitter", "budget", "slow_ratio", "effective_ber", "throttled_ratio", "replay_factor",
        "sibling_ratio", "ratio", "usual", "wire", "wire_pcie", "path", "uneven",
        "low_power", "still", "moved", "files", "clear", "votes", "cost", "chance", "other_ratio", "unlike",
        "domain_time",
    }
)  # fmt: skip
"""Numbers of the configuration that are no lengths of time."""


def every_value() -> Iterator[Any]:
    for collector in discover():
        if collector.options.enabled:
            yield from (collector.options, collector.policy)
    yield from (ProbeOptions(), ProbePolicy(), DriftOptions(), DriftPolicy(), VerdictPolicy())


def test_every_number_of_the_configuration_is_known_to_be_seconds_or_not() -> None:
    named = {
        f.name for value in every_value() for f in fields(value) if isinstance(getattr(value, f.name), float)
    }
    assert named
    assert named - NO_SECONDS - SQUEEZED - REAL == set()
    assert not SQUEEZED & REAL


def test_the_daemon_takes_it(tmp_path: Path) -> None:
    file = tmp_path / "wirewatch.toml"
    file.write_text(configuration("/run/x.sock", "/var/x", {"drift": {"interval": 1.0}}), "utf-8")
    config, collectors = load(file, discover())
    of = {collector.name: collector for collector in collectors}
    assert of["nvlink"].options.interval == 1.0
    assert of["nvlink"].policy.error_limits["crc"].seconds == 4.0
    assert of["infiniband"].policy.error_limits["link_downed"].seconds < 100
    assert (config.probe.every, config.policy.verdict.settle, config.drift.interval) == (40.0, 4.0, 1.0)
    assert (config.listen.socket, config.state.directory) == ("/run/x.sock", "/var/x")
