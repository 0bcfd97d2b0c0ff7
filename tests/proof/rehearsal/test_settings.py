"""The daemon's configuration on a squeezed clock."""

from dataclasses import fields
from pathlib import Path

from proof.rehearsal.settings import REAL, configuration
from tools.options import unit_of
from wirewatch.catalogue import discover
from wirewatch.config import load
from wirewatch.probe.model import ProbeOptions, ProbePolicy
from wirewatch.verdict.drift.component import DriftOptions
from wirewatch.verdict.drift.watch import DriftPolicy
from wirewatch.verdict.ledger import VerdictPolicy


def test_what_passes_as_ever_are_lengths_of_time() -> None:
    values = [one for collector in discover() for one in (collector.options, collector.policy)]
    values += [ProbeOptions(), ProbePolicy(), DriftOptions(), DriftPolicy(), VerdictPolicy()]
    kinds = [(type(value), one.name) for value in values for one in fields(value) if one.name in REAL]
    assert {name for _, name in kinds} == REAL
    assert {unit_of(kind, name) for kind, name in kinds} == {"seconds"}


def test_the_daemon_takes_it(tmp_path: Path) -> None:
    file = tmp_path / "wirewatch.toml"
    file.write_text(configuration("/run/x.sock", "/var/x", {"drift": {"interval": 1.0}}), "utf-8")
    config, collectors = load(file, discover())
    of = {collector.name: collector for collector in collectors}
    assert {"lockstep", "bursts"}.isdisjoint(of)
    assert of["nvlink"].options.interval == 1.0
    assert of["nvlink"].policy.error_limits["crc"].seconds == 4.0
    assert of["infiniband"].policy.error_limits["link_downed"].seconds < 100
    assert (config.probe.probe_interval, config.policy.verdict.settle, config.drift.interval) == (
        40.0,
        4.0,
        1.0,
    )
    assert (config.listen.socket, config.state.directory) == ("/run/x.sock", "/var/x")
