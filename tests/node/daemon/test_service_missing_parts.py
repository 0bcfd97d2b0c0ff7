"""One part pulled out at a time: the others go on, the finding names it, nothing says OK, nothing hangs."""

import time
from pathlib import Path

import pytest

from tests.node.daemon.process import Daemon, every_finding
from wirewatch.catalogue import discover

SCRAPE = 1.0
"""Seconds; a question to NVML is waited for five times as long."""
NVLINK_BYTES = "wirewatch_nvlink_transmit_bytes_total"


def overlay(folder: Path, match: str, action: str, port: str = "nvml") -> list[str]:
    file = folder / "fault.toml"
    file.write_text(f'[[change]]\nport = "{port}"\nmatch = "{match}"\n{action}\n', "utf-8")
    return ["--replay", "h200x8", "--overlay", str(file)]


def gpus_with(series: dict[tuple[str, frozenset[tuple[str, str]]], float], metric: str) -> set[str]:
    return {dict(labels)["gpu"] for name, labels in series if name == metric}


def scrapes_are_quick(daemon: Daemon) -> bool:
    """One of ten is: a busy machine may delay many, a daemon that waits for NVML delays all."""
    return any(daemon.get("/metrics").seconds < SCRAPE for _ in range(10))


def goes_on(daemon: Daemon) -> None:
    """Scrapes are quick, the loops turn, and SIGTERM ends it in time."""
    assert scrapes_are_quick(daemon)
    assert daemon.get("/livez").status == 200
    assert daemon.terminate()[0] == 0


@pytest.mark.parametrize(
    ("match", "action", "rule", "health"),
    [
        ("gpu3/*", "code = 15", "gpu.lost", "failed"),
        ("gpu3/Field(138,all)", "hang = true", "nvlink.blind", "unknown"),
        ("gpu3/Field(138,all)", "crash = true", "nvlink.blind", "unknown"),
    ],
    ids=["GPU lost", "NVML call that never returns", "driver library crashes"],
)
def test_one_gpu_out_leaves_the_others(
    tmp_path: Path, match: str, action: str, rule: str, health: str
) -> None:
    with Daemon(overlay(tmp_path, match, action), tmp_path) as daemon:
        daemon.wait("/health", rule)
        reply = daemon.get("/health")
        assert reply.status == 503
        document = reply.json()
        assert document["health"] == health
        assert document["job_ready"] is False
        found = [f for f in every_finding(document) if f["rule"] == rule]
        assert [f["subject"]["gpu"] for f in found] == ["3"]
        others = {str(n) for n in range(8)} - {"3"}
        metrics = daemon.get("/metrics")
        assert gpus_with(metrics.series(), NVLINK_BYTES) == others
        assert gpus_with(metrics.series(), "wirewatch_gpu_temperature_celsius") >= others
        goes_on(daemon)


def test_scrapes_and_sigterm_go_on_while_nvml_hangs(tmp_path: Path) -> None:
    """Within the 5 s in which the hanging call is still waited for."""
    with Daemon(overlay(tmp_path, "*", "hang = true"), tmp_path) as daemon:
        assert scrapes_are_quick(daemon)
        assert daemon.get("/health").status == 503
        goes_on(daemon)


def test_a_node_where_nvml_never_answers_becomes_ready_and_unknown(tmp_path: Path) -> None:
    impatient = "[listen]\nsocket = ''\n[probe]\ndeadline = 0.5\nkill_after = 0.4\n[drift]\ndeadline = 0.5\n"
    impatient += "".join(f"[collectors.{c.name}]\ndeadline = 0.5\n" for c in discover())
    with Daemon(overlay(tmp_path, "*", "hang = true"), tmp_path, impatient) as daemon:
        # Later each says instead why NVML was asked in vain.
        document = daemon.wait("/health", "no result after 0.5 s").json()
        daemon.ready()
        assert document["health"] == "unknown"
        state = daemon.get("/api/v1/state").json()
        by_name = {c["collector"]: c for c in state["collectors"]}
        assert by_name["nvlink"]["success"] is False
        assert by_name["agent"]["success"] is True
        goes_on(daemon)


def test_a_library_that_crashes_again_and_again_is_no_proof_that_the_gpu_is_lost(tmp_path: Path) -> None:
    with Daemon(overlay(tmp_path, "gpu3/*", "crash = true"), tmp_path) as daemon:
        daemon.wait("/health", "inventory.blind")
        time.sleep(2)
        document = daemon.get("/health").json()
        assert document["health"] == "unknown"
        assert "gpu.lost" not in {f["rule"] for f in document["findings"]}


def test_a_driver_that_comes_back_is_healthy_again_without_a_restart(tmp_path: Path) -> None:
    changes = overlay(tmp_path, "gpu3/Field(138,all)", "crash = true\nuntil = 8.0")
    with Daemon(changes, tmp_path) as daemon:
        daemon.wait("/health", "nvlink.blind")
        document = daemon.wait("/health", '"health":"ok"').json()
        assert document["findings"] == []
        assert len(gpus_with(daemon.get("/metrics").series(), NVLINK_BYTES)) == 8


def test_without_the_driver_library_the_agent_runs_and_says_so(tmp_path: Path) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a driver; the test is about one that has none")
    with Daemon([], tmp_path) as daemon:
        daemon.ready()
        reply = daemon.get("/health")
        assert (reply.status, reply.json()["health"]) == (503, "unknown")
        # Ready does not wait for collectors of running jobs.
        for name in ("hangs", "ledger"):
            document = daemon.wait("/health", f"{name}.blind").json()
        assert {f["rule"] for f in document["findings"]} - {"xid.blind"} == {"inventory.blind"}
        # One of them waits for a gap between others.
        later = {"xid.blind", "lockstep.blind"}
        found = [f for f in every_finding(document) if f["rule"] not in later]
        assert {f["rule"] for f in found} == {
            f"{name}.blind"
            for name in (
                "drift",
                "gpu",
                "gpudirect",
                "hangs",
                "inventory",
                "ledger",
                "nvlink",
                "pcie",
                "probe",
                "topology",
            )
        }
        assert all("libnvidia-ml.so.1 not found" in f["evidence"] for f in found)
        series = daemon.get("/metrics").series()
        assert series["wirewatch_collector_success", frozenset({("collector", "agent")})] == 1
        assert series["wirewatch_collector_success", frozenset({("collector", "gpu")})] == 0
        assert not gpus_with(series, NVLINK_BYTES)
        goes_on(daemon)


def test_a_raising_collector_costs_itself_and_no_other(tmp_path: Path) -> None:
    changes = overlay(tmp_path, "gpu0/CurrPcieLinkWidth()", 'raise = "pulled out"')
    with Daemon(changes, tmp_path) as daemon:
        reply = daemon.wait("/health", "pcie.blind")
        document = reply.json()
        assert (reply.status, document["health"]) == (503, "unknown")
        assert [f["rule"] for f in document["findings"]] == ["pcie.blind"]
        assert "pulled out" in document["findings"][0]["evidence"]
        series = daemon.get("/metrics").series()
        assert len(gpus_with(series, NVLINK_BYTES)) == 8
        assert not gpus_with(series, "wirewatch_pcie_width")
        goes_on(daemon)


@pytest.mark.parametrize(
    ("match", "gone"),
    [
        ("gpu*/Field(163,all)", ""),
        ("gpu*/Field(1[346]*", NVLINK_BYTES),
        ("gpu*/RemappedRows()", "wirewatch_rows_remapped"),
    ],
    ids=["one field unsupported", "no NVLink", "no row remapping"],
)
def test_what_is_not_there_changes_nothing(tmp_path: Path, match: str, gone: str) -> None:
    changes = overlay(tmp_path, match, "code = 3")
    more = tmp_path / "more.toml"
    more.write_text('[[change]]\nport = "nvml"\nmatch = "gpu*/NvLinkState(*)"\ncode = 3\n', "utf-8")
    extra = ["--overlay", str(more)] if gone == NVLINK_BYTES else []
    with Daemon([*changes, *extra], tmp_path) as daemon:
        daemon.ready()
        reply = daemon.wait("/health", '"health":"ok"')
        assert (reply.status, reply.json()["findings"]) == (200, [])
        assert not gpus_with(daemon.get("/metrics").series(), gone)
        goes_on(daemon)
