"""The bundled faults that need a process that hangs or dies, in the real daemon on the demo node."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.node.daemon.process import FAST, Daemon, every_finding

OVERLAYS = ("gpu-hang", "gpu-slow", "driver-crash")


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Daemon]]:
    """By overlay, side by side: what they do most is wait."""
    with ExitStack() as stack:
        yield {
            overlay: stack.enter_context(
                Daemon(("--replay", "demo-dgx-h200", "--overlay", overlay), tmp_path_factory.mktemp(overlay))
            )
            for overlay in OVERLAYS
        }


@pytest.mark.parametrize(
    ("overlay", "rule", "gpu", "evidence", "action"),
    [
        ("gpu-hang", "gpu.blind", "5", "NVML did not answer within 5 s", "hung nvidia-smi"),
        ("gpu-slow", "gpu.blind", "5", "NVML did not answer within 5 s", "hung nvidia-smi"),
        ("driver-crash", "gpu.blind", "6", "SIGSEGV", "kernel log"),
    ],
)
def test_a_driver_that_hangs_or_dies_is_reported_of_its_gpu(
    daemons: Mapping[str, Daemon], overlay: str, rule: str, gpu: str, evidence: str, action: str
) -> None:
    daemon = daemons[overlay]
    document = daemon.wait("/health", rule).json()
    assert document["health"] == "unknown"
    assert document["job_ready"] is False
    (finding,) = [f for f in every_finding(document) if f["rule"] == rule]
    assert finding["subject"]["gpu"] == gpu
    assert evidence in finding["evidence"]
    assert action in finding["action"]
    named = {f["subject"]["gpu"] for f in every_finding(document) if "gpu" in f["subject"]}
    assert named == {gpu}
    ports = [s for s in daemon.get("/metrics").series() if s[0] == "wirewatch_rdma_port_state"]
    assert len(ports) == 10 * 4


def test_the_demo_serves_every_collector_and_is_healthy(tmp_path: Path) -> None:
    with Daemon(("--demo",), tmp_path, f"{FAST}[collectors.xid]\ninterval = 0.3\n") as daemon:
        daemon.ready()
        # XIDs wait for nobody: their GPUs have names once another collector has found them.
        daemon.wait("/api/v1/state", '"collector":"xid","health":"ok"')
        document = daemon.get("/health").json()
        assert (document["health"], document["findings"]) == ("ok", [])
        state = daemon.get("/api/v1/state").json()
        assert state["source"] == "synthetic"
        # No process of the demo computes, let alone with the tap, and no pair of nodes has measured it.
        without = {"agent", "jobs", "ledger", "pairs"}
        wires = [c for c in state["collectors"] if c["collector"] not in without]
        assert all(c["applicable"] and c["success"] for c in wires)
