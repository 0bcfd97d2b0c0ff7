"""A daemon and `wirewatch probe` beside it, processes of their own, on recordings with one state folder."""

import os
import time
from pathlib import Path
from typing import Any

from tests.node.daemon.process import FAST, Daemon
from tests.node.daemon.test_service_probe import PROBES, config, probes, value
from tests.node.probe import recordings
from tests.node.probe.recordings import with_probe
from tests.patience import HANGS
from tests.processes import run_wirewatch

OK, FAILED = 0, 2


def beside(folder: Path, recording: str, *arguments: str) -> int:
    """Exit code of `wirewatch probe` with the daemon's configuration."""
    config = str(folder / "wirewatch.toml")
    return run_wirewatch("probe", "--replay", recording, "--config", config, *arguments).returncode


def all_gather(probed: dict[str, Any]) -> None:
    """As one of all_gather alone would be."""
    probed["plan"]["ops"] = ["all_gather"]
    document = probed["document"]
    document["collectives"] = [t for t in document["collectives"] if t["op"] == "all_gather"]
    probed["parts"] = [part for part in probed["parts"] if not part["name"].startswith(("all_r", "reduce"))]


def runs(running: Daemon) -> float:
    return value(running.get("/metrics").series(), "probe_runs_total", result="ok")


def found(running: Daemon) -> list[tuple[str, str]]:
    """Rule and severity of what the probe's component believes."""
    state = running.get("/api/v1/state").json()
    (component,) = [c for c in state["collectors"] if c["collector"] == "probe"]
    return [(finding["rule"], finding["health"]) for finding in component["findings"]]


def logged(running: Daemon, line: str, seconds: float = HANGS) -> int:
    """How often, once it has been at all."""
    end = time.monotonic() + seconds
    while line not in running.log and time.monotonic() < end:
        time.sleep(0.05)
    return running.log.count(line)


def test_what_a_command_finds_is_the_running_daemons_and_the_next_ones(tmp_path: Path) -> None:
    healthy = with_probe(tmp_path / "healthy")
    slow = with_probe(tmp_path / "slow", recordings.slow)
    part = with_probe(tmp_path / "part", all_gather)
    arguments, text = ("--replay", healthy), config(tmp_path)
    with Daemon(arguments, tmp_path, text) as running:
        running.wait(PROBES, '"outcome":"ok"')
        assert (found(running), runs(running)) == ([], 1)
        assert beside(tmp_path, slow) == FAILED
        running.wait("/metrics", 'wirewatch_probe_runs_total{result="ok"} 3.0')
        assert found(running) == [("probe.busbw", "failed")]
        assert "(2 probes in a row)" in running.get("/api/v1/state").text
        assert probes(running)["last"]["findings"] != []
        # Half a look clears nothing, and a forced one is nobody's.
        assert beside(tmp_path, part) == OK
        assert beside(tmp_path, healthy, "--force") == OK
        assert logged(running, "does not count here: it ran of other collectives or sizes") == 1
        time.sleep(0.7)
        assert (found(running), runs(running)) == ([("probe.busbw", "failed")], 3)
        running.process.kill()
        running.process.wait(HANGS)
        assert logged(running, "taken over from another process") == 2
    assert beside(tmp_path, healthy) == OK
    with Daemon(arguments, tmp_path, text) as running:
        running.wait("/metrics", 'wirewatch_probe_runs_total{result="ok"} 1.0')
        assert found(running) == []
        assert len(probes(running)["past"]) == 4
        assert logged(running, "does not count here") == 1


def test_the_next_daemon_knows_what_the_last_one_took_over(tmp_path: Path) -> None:
    recording = with_probe(tmp_path / "node", recordings.slow)
    arguments, text = ("--replay", recording), config(tmp_path)
    (tmp_path / "wirewatch.toml").write_text(text, "utf-8")
    (tmp_path / "state").mkdir()
    assert beside(tmp_path, recording) == FAILED
    for taken in (2, 0):
        with Daemon(arguments, tmp_path, text) as running:
            running.wait("/api/v1/state", "(2 probes in a row)")
            assert (found(running), runs(running)) == ([("probe.busbw", "failed")], taken)
            running.process.kill()
            running.process.wait(HANGS)


def test_a_recording_keeps_no_state_unless_it_is_told_where(tmp_path: Path) -> None:
    (tmp_path / "wirewatch.toml").write_text(FAST, "utf-8")
    recording = with_probe(tmp_path / "node")
    environment = {**os.environ, "STATE_DIRECTORY": str(tmp_path / "state")}
    words = ("probe", "--replay", recording, "--config", str(tmp_path / "wirewatch.toml"))
    assert run_wirewatch(*words, env=environment).returncode == OK
    assert not (tmp_path / "state").exists()
