"""The daemon's probe and what it keeps, as a process on the demo node with one probe or another."""

import json
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.node.cli.schemas import complaints
from tests.node.cli.test_wrong_input import CONFIG, REPLAY, refused
from tests.node.daemon.process import FAST, Daemon
from tests.node.probe import recordings
from tests.node.probe.recordings import Change, with_probe
from tests.patience import HANGS
from wirewatch.core.probe import OPS

PROBES = "/api/v1/probes"
DONE = '"outcome":"ok"'
BUSY = '[[change]]\nport = "nvml"\nmatch = "gpu3/ComputeRunningProcesses()"\nset = [{pid = 4242}]\n'
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def config(folder: Path, probe: str = "", state: bool = True) -> str:  # noqa: FBT001, FBT002
    kept = f"[state]\ndirectory = '{folder / 'state'}'\n" if state else ""
    return f"{FAST}{kept}[probe]\ninterval = 0.3\nsettle = 0.0\nprobe_interval = 600.0\n{probe}\n"


def daemon(folder: Path, recording: str, probe: str = "", extra: tuple[str, ...] = ()) -> Daemon:
    return Daemon(("--replay", recording, *extra), folder, config(folder, probe))


def probes(running: Daemon) -> dict[str, Any]:
    """What is told of probes, which is as its schema says."""
    text = running.get(PROBES).text
    assert complaints("wirewatch.probes.1", text) == []
    document: dict[str, Any] = json.loads(text)
    return document


def value(series: Series, metric: str, **labels: str) -> float:
    return series[f"wirewatch_{metric}", frozenset(labels.items())]


def rows(folder: Path) -> int:
    with sqlite3.connect(f"file:{folder / 'state' / 'probes.sqlite'}?mode=ro", uri=True) as history:
        (count,) = history.execute("SELECT count(*) FROM probes").fetchone()
    history.close()
    return int(count)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("probing")


@pytest.fixture(scope="module")
def healthy(folder: Path) -> Iterator[Daemon]:
    with daemon(folder, with_probe(folder / "node")) as running:
        running.ready()
        running.wait(PROBES, DONE)
        yield running


def test_the_last_probe_is_reported_with_all_that_it_measured(healthy: Daemon) -> None:
    document = probes(healthy)
    assert document["gate"]["open"] is True
    assert (document["gate"]["engine"], document["fresh"]) == ("nccl", True)
    assert {(r["op"], r["size_bytes"]) for r in document["last"]["results"]} >= {(op, 64 << 20) for op in OPS}
    assert document["last"]["findings"] == []
    assert [(p["outcome"], p["engine"]) for p in document["past"]] == [("ok", "nccl")]


def test_its_series_are_exported_and_one_probe_in_ten_minutes_is_enough(healthy: Daemon) -> None:
    series = healthy.get("/metrics").series()
    where = {"op": "all_reduce", "size_bytes": str(256 << 20), "ranks": "8", "gpus": "all"}
    assert value(series, "probe_busbw_ratio", **where) == pytest.approx(0.99, abs=0.03)
    assert value(series, "probe_busbw_bytes_per_second", **where) > 300e9
    assert value(series, "probe_fresh") == 1
    time.sleep(1)
    later = healthy.get("/metrics").series()
    assert value(later, "probe_runs_total", result="ok") == 1
    assert value(later, "probe_gpu_seconds_total") == pytest.approx(8 * 0.025)


def test_health_counts_the_probe_in(healthy: Daemon) -> None:
    document = healthy.wait("/health", '"health":"ok"').json()
    assert document["findings"] == []
    state = healthy.get("/api/v1/state").json()
    (component,) = [c for c in state["collectors"] if c["collector"] == "probe"]
    assert (component["health"], component["success"]) == ("ok", True)


def test_a_second_agent_on_the_same_state_is_refused(healthy: Daemon, folder: Path) -> None:
    file = folder / "wirewatch.toml"
    line = refused(CONFIG, *REPLAY, "--listen", "127.0.0.1:0", "--config", str(file))
    assert line.startswith(f"wirewatch: another agent keeps its state in {folder / 'state'}: ")
    assert str(healthy.process.pid) in line
    assert healthy.get("/livez").status == 200


@pytest.mark.parametrize(
    ("change", "health", "rule", "past"),
    [(recordings.slow, "failed", "probe.busbw", 2), (recordings.failed, "unknown", "probe.failed", 3)],
)
def test_what_a_probe_finds_is_the_node_s_health(
    tmp_path: Path, change: Change, health: str, rule: str, past: int
) -> None:
    """Found slow twice it is FAILED; failed three times it is told. No place for state is made unasked."""
    often = "probe_interval = 0.5\nbudget = 1.0\njitter = 0.0"
    recording = with_probe(tmp_path / "node", change)
    settings = config(tmp_path, "", state=False).replace("probe_interval = 600.0", often)
    with Daemon(("--replay", recording), tmp_path, settings) as running:
        running.ready()
        reply = running.wait("/health", f'"health":"{health}"')
        assert reply.status == 503
        assert [f["rule"] for f in reply.json()["findings"]] == [rule]
        assert len(probes(running)["past"]) >= past
    assert not (tmp_path / "state").exists()


def test_busy_gpus_are_not_probed_and_it_says_why(tmp_path: Path) -> None:
    overlay = tmp_path / "busy.toml"
    overlay.write_text(BUSY, "utf-8")
    recording = with_probe(tmp_path / "node")
    with daemon(tmp_path, recording, extra=("--overlay", str(overlay))) as running:
        running.ready()
        running.wait(PROBES, "4242")
        gate = probes(running)["gate"]
        assert (gate["open"], gate["reason"], gate["detail"]) == (
            False, "busy", "GPU 3 is used by process 4242",
        )  # fmt: skip
        time.sleep(0.7)
        document = probes(running)
        assert (document["last"], document["past"]) == (None, [])
        series = running.get("/metrics").series()
        assert value(series, "probe_skips_total", reason="busy") == 1
        assert running.get("/health").json()["health"] == "ok"


def test_a_daemon_that_was_killed_knows_its_probes_when_it_is_back(tmp_path: Path) -> None:
    recording = with_probe(tmp_path / "node", recordings.uneven)
    with daemon(tmp_path, recording) as first:
        first.wait("/health", "probe.uneven")
        before = probes(first)
        first.process.kill()
        first.process.wait(HANGS)
    assert rows(tmp_path) == len(before["past"]) == 1
    with daemon(tmp_path, recording) as second:
        second.ready()
        document = second.wait("/health", "probe.uneven").json()
        assert document["health"] == "degraded"
        after = probes(second)
        assert after["past"] == before["past"]
        assert after["last"]["results"] == before["last"]["results"]
        assert after["fresh"] is True
        # Counters start again; the probe that was run before is not run again at once.
        assert value(second.get("/metrics").series(), "probe_runs_total", result="ok") == 0
        status, _ = second.terminate()
        assert status == 0


def test_a_garbled_history_is_set_aside_and_the_daemon_goes_on(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    garbled = tmp_path / "state" / "probes.sqlite"
    garbled.write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 40)
    with daemon(tmp_path, with_probe(tmp_path / "node")) as running:
        running.ready()
        running.wait(PROBES, DONE)
        assert "WARNING" in running.log
        aside = [p for p in garbled.parent.iterdir() if p.name.startswith("probes.sqlite.")]
        named = [p for p in aside if str(p) in running.log]
        assert named
        assert running.terminate()[0] == 0
    assert rows(tmp_path) == 1
    assert named[0].read_bytes().endswith(bytes(range(256)))


def test_a_probe_that_takes_long_holds_up_nothing_nor_the_end(tmp_path: Path) -> None:
    recording = with_probe(tmp_path / "node", seconds=60.0)
    with daemon(tmp_path, recording, "kill_after = 0.5\ndeadline = 1.0") as running:
        running.ready()
        document = running.wait("/health", "no result after 1 s").json()
        assert [f["rule"] for f in document["findings"]] == ["probe.blind"]
        assert probes(running)["past"] == []
        assert len({s for s in running.get("/metrics").series() if s[0] == "wirewatch_gpu_power_watts"}) == 8
        assert running.get("/livez").status == 200
        status, _ = running.terminate()
        assert status == 0
        assert "Traceback" not in running.log
    assert rows(tmp_path) == 0


def test_a_probe_that_is_switched_off_is_not_there(tmp_path: Path) -> None:
    with daemon(tmp_path, with_probe(tmp_path / "node"), "enabled = false") as running:
        running.ready()
        assert probes(running)["past"] == []
        names = {c["collector"] for c in running.get("/api/v1/state").json()["collectors"]}
        assert "probe" not in names
        assert not [s for s in running.get("/metrics").series() if s[0].startswith("wirewatch_probe")]
