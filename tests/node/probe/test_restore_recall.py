"""The history read by who owns it not: what it tells, and that nothing is changed by it."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from tests.node.probe.idle import Idle
from wirewatch.core.collector import Component
from wirewatch.core.types import Expect, Health
from wirewatch.probe.collector import probe_summary
from wirewatch.probe.model import ProbeOptions, ProbePolicy
from wirewatch.probe.request import ProbeOverrides, probe_now
from wirewatch.probe.restore import recall
from wirewatch.statefolder import StateFolder, open_state

OPTIONS, POLICY = ProbeOptions(), ProbePolicy()


@pytest.fixture
def state(tmp_path: Path) -> StateFolder:
    return open_state(tmp_path / "state")


def probed(node: Idle, state: StateFolder) -> None:
    """One probe on somebody's word, kept."""
    asked = probe_now(node.hardware, OPTIONS, POLICY, Expect(), ProbeOverrides(), state)
    assert asked.probed is not None


def recalled(node: Idle, path: Path | None) -> Component:
    return recall(path, node.hardware, OPTIONS, POLICY, Expect())


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_good_probe_of_before_is_recalled_with_its_age(state: StateFolder) -> None:
    node = Idle(4)
    probed(node, state)
    node.clock.seconds += 600
    component = recalled(node, state.history)
    assert (component.findings, component.health, component.succeeding) == ((), Health.OK, True)
    known = probe_summary(component, node.hardware.clock.mono())
    assert known is not None
    assert (known.fresh, known.clean, round(known.age_seconds or 0)) == (True, True, 600)
    node.clock.seconds += OPTIONS.fresh
    known = probe_summary(recalled(node, state.history), node.hardware.clock.mono())
    assert known is not None
    assert not known.fresh


def test_what_probes_of_before_have_confirmed_is_found(state: StateFolder) -> None:
    node = Idle(4)
    node.knobs = {"speed": 0.5}
    probed(node, state)
    component = recalled(node, state.history)
    assert {f.rule: f.health for f in component.findings} == {"probe.busbw": Health.FAILED}


def test_probes_that_could_not_be_done_are_reported_as_by_the_daemon(state: StateFolder) -> None:
    node = Idle(4)
    node.outcome = "failed"
    for _ in range(POLICY.failures):
        probed(node, state)
    component = recalled(node, state.history)
    assert {f.rule: f.health for f in component.findings} == {"probe.failed": Health.UNKNOWN}


def test_a_probe_under_other_settings_is_not_the_nodes(state: StateFolder) -> None:
    node = Idle(4)
    probe_now(node.hardware, replace(OPTIONS, copies=False), POLICY, Expect(), ProbeOverrides(), state)
    assert recalled(node, state.history).health is None


@pytest.mark.parametrize("content", [None, b"", b"no database, but as long as one" * 10])
def test_a_history_that_cannot_be_read_is_none_and_stays(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "probes.sqlite"
    if content is not None:
        path.write_bytes(content)
    before = contents(tmp_path)
    component = recalled(Idle(4), path)
    assert (component.findings, component.health, component.applicable) == ((), None, None)
    assert contents(tmp_path) == before
    assert recalled(Idle(4), None).health is None


def test_it_is_read_while_another_writes_and_nothing_is_changed(state: StateFolder) -> None:
    node = Idle(4)
    probed(node, state)
    before = contents(state.directory)
    with sqlite3.connect(state.history, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("DELETE FROM probes")
        assert recalled(node, state.history).health is Health.OK
        other.execute("ROLLBACK")
    other.close()
    assert recalled(node, state.history).health is Health.OK
    after = contents(state.directory)
    assert {name: after[name] for name in before} == before
