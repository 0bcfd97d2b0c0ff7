"""Every command and every document with each collector switched off alone, and with all of them off."""

import time
from pathlib import Path

import pytest

from tests.node.page.pages import content_of, html_of
from tests.patience import HANGS
from tests.processes import run_wirewatch
from tests.support import Node
from wirewatch.catalogue import components
from wirewatch.cli.check.answer import Terms, decide, document, line
from wirewatch.cli.check.command import Attempt, CheckRequest
from wirewatch.core.types import Health
from wirewatch.documents.drift import drift_of_state
from wirewatch.documents.finding import evidence
from wirewatch.documents.judged import DaemonStatus, findings, health, state
from wirewatch.documents.probed import probes_of
from wirewatch.documents.series import samples
from wirewatch.documents.state import STATE
from wirewatch.hw.overlay import load_overlay
from wirewatch.verdict.node import judge_state

RECORDING = "h200x2-idle"
NAMES = tuple(one.name for one in components())
OFF = [*((name,) for name in NAMES), NAMES]
IDS = [*NAMES, "all"]


def switched_off(folder: Path, names: tuple[str, ...]) -> Path:
    own = {"probe": "probe", "drift": "drift", "pairs": "pairs", "nics": "probe.nics"}
    sections = (own.get(name, f"collectors.{name}") for name in names)
    config = folder / "wirewatch.toml"
    config.write_text("".join(f"[{section}]\nenabled = false\n" for section in sections), "utf-8")
    return config


@pytest.mark.parametrize("names", OFF, ids=IDS)
def test_check_answers(tmp_path: Path, names: tuple[str, ...]) -> None:
    """Before: KeyError 'inventory', and exit code 70."""
    request = CheckRequest(time.monotonic() + HANGS, switched_off(tmp_path, names), replay=RECORDING)
    attempt = Attempt(request, lambda: None)
    try:
        answer = decide(attempt.run(), Terms(), time.time())
    finally:
        attempt.tidy()
    wanted = Health.UNKNOWN if len(names) > 1 else Health.OK
    assert answer.health is wanted, line(answer)
    assert document(answer)["schema"] == "wirewatch.check/1"


@pytest.mark.parametrize("names", OFF, ids=IDS)
@pytest.mark.parametrize("fault", ["", "gpu-lost"])
def test_documents_page_and_metrics_are_made(names: tuple[str, ...], fault: str) -> None:
    changes = load_overlay(fault).changes if fault else ()
    rest = [name for name in NAMES if name not in names and name != "agent"]
    node = Node("demo-dgx-h200", changes, only=rest or ["none"])
    node.poll(times=4)
    here = judge_state(node.state)
    daemon = DaemonStatus(node.clock.now(), node.clock.mono())
    assert html_of(content_of(here, node))
    assert list(samples(here, "replay"))
    assert health(here, daemon).health == findings(here, daemon.at).health
    assert STATE.dump_json(state(here, daemon.at, "replay"))
    assert drift_of_state(node.state, daemon.at).at == probes_of(node.state, daemon.at).at == daemon.at
    for one in here.verdict.every:
        assert evidence(here, one.id, daemon.at, "replay").finding.id == one.id


@pytest.mark.parametrize("names", [("inventory",), NAMES], ids=["inventory", "all"])
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("check", "--replay", RECORDING), None),
        (("check", "--replay", RECORDING, "--json", "--require-fresh-probe"), None),
        (("topology", "show", "--replay", RECORDING), 0),
        (("probe", "--replay", RECORDING), None),
    ],
)
def test_no_command_breaks(
    tmp_path: Path, names: tuple[str, ...], words: tuple[str, ...], code: int | None
) -> None:
    config = switched_off(tmp_path, names)
    done = run_wirewatch(*words, "--config", str(config))
    assert "Traceback" not in done.stderr
    assert done.returncode in ({0, 1, 2, 3} if code is None else {code})
