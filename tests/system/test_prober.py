"""A real probe on processors from end to end: agent, prober, worker of real torch, and back."""

import os
from pathlib import Path

import pytest

from tests.groups import living
from tests.node.cli.schemas import complaints
from tests.node.daemon.proberprocess import ROOT, SOON, ProberProcess
from tests.node.daemon.process import FAST, Daemon
from tests.node.daemon.test_service_probe import PROBES, probes
from tests.node.hw.children import until
from tests.node.worker.workerprocess import torch_python
from wirewatch.core.probe import OPS

pytestmark = pytest.mark.system

GLOO = """
[probe]
prober = "{folder}/prober.sock"
engine = "gloo"
ranks = 2
interval = 0.3
probe_interval = {every}
jitter = 0.0
kill_after = 55.0
latency_sizes = [8]
bandwidth = [[1048576, 2]]
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    return FAST + GLOO.format(folder=tmp_path, every=600.0)


@pytest.fixture
def prober(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str) -> ProberProcess:
    """On this machine itself, with the configuration that the agent has."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'agent'}:{os.environ.get('PYTHONPATH', '')}")
    file = tmp_path / "prober.toml"
    file.write_text(config, "utf-8")
    return ProberProcess(tmp_path, ("--config", str(file)), (torch_python(), "-m", "wirewatch", "prober"))


def test_a_gloo_probe_runs_in_the_prober_and_is_the_agents(
    tmp_path: Path, prober: ProberProcess, config: str
) -> None:
    with prober, Daemon(("--replay", "demo-dgx-h200"), tmp_path, config) as running:
        running.wait(PROBES, '"outcome":"ok"', SOON)
        document = probes(running)
        assert complaints("wirewatch.probes.1", running.get(PROBES).text) == []
        last = document["last"]
        assert (last["engine"], last["versions"]["torch"][:2]) == ("gloo", "2.")
        assert [(r["op"], r["size_bytes"], r["ranks"], r["wrong"]) for r in last["results"]] == [
            (op, size, 2, 0) for op in OPS for size in (8, 1 << 20)
        ]
        assert running.get("/metrics").series()["wirewatch_probe_fresh", frozenset()] == 1
        assert prober.log.count("probe ok in") == 1
        assert prober.terminate()[0] == 0


def test_told_to_stop_in_the_middle_it_leaves_no_rank_behind(
    tmp_path: Path, prober: ProberProcess, config: str
) -> None:
    with prober, Daemon(("--replay", "demo-dgx-h200"), tmp_path, config) as running:
        until(lambda: any(worker_of(pid) for pid in ours(prober)))
        (worker,) = [pid for pid in ours(prober) if worker_of(pid)]
        status, seconds = prober.terminate()
        assert (status, seconds < 5.0) == (0, True)
        until(lambda: not living(worker))
        running.wait(PROBES, '"why":"the prober ends"')


def ours(prober: ProberProcess) -> list[int]:
    """Processes that it has started."""
    tasks = Path(f"/proc/{prober.process.pid}/task").glob("*/children")
    return [int(pid) for file in tasks for pid in file.read_text("ascii").split()]


def worker_of(pid: int) -> bool:
    return b"wirewatch.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
