"""The real daemon tells a real HTTPS server and a real datagram socket."""

import os
import signal
import socket
import time
from pathlib import Path

import pytest

from tests.node.daemon.process import FAST, SOON, Daemon
from tests.node.kubernetes.apiserver import NODE, ApiServer, refusing
from tests.patience import HANGS
from tests.processes import run_wirewatch

UNSPREAD = "tests.node.daemon.unspread"
KUBERNETES = """
[kubernetes]
node_condition = true
node = "{node}"
api_server = "127.0.0.1:{port}"
credentials = "{folder}"
condition_failed_after = 2
condition_unknown_after = 4
condition_recovered_after = 4
"""
DOWN = """
about = "GPU 2 loses NVLink 7, sooner than with the bundled fault"
[[change]]
port = "nvml"
match = "gpu2/Field(165,7)"
from = 3
set = 0
"""
UNKNOWN = "STATUS=UNKNOWN, no job may start: inventory.blind"
"""What stands first when a GPU does not answer; the other collectors that ask it stand under it."""


def config(api: ApiServer) -> str:
    return FAST + KUBERNETES.format(node=NODE, port=api.port, folder=api.folder)


def wait(api: ApiServer, status: str) -> dict[str, str]:
    end = time.monotonic() + SOON
    while api.condition().get("status") != status:
        assert time.monotonic() < end, (api.condition(), api.requests)
        time.sleep(0.1)
    return api.condition()


def test_a_link_that_goes_down_is_a_condition_that_a_restart_does_not_move(
    api: ApiServer, tmp_path: Path
) -> None:
    fault = tmp_path / "down.toml"
    fault.write_text(DOWN, "utf-8")
    arguments = ("--replay", "demo-dgx-h200", "--overlay", str(fault))
    with Daemon(arguments, tmp_path, config(api), UNSPREAD) as daemon:
        mine = wait(api, "False")
        assert mine["reason"] == "NvlinkLinkDown"
        assert mine["message"].startswith("a recording (")
        assert "nvlink.link_down GPU 2 link 7 (GPU-" in mine["message"]
        series = daemon.wait("/metrics", 'node_condition_status{status="false"} 1.0').series()
        assert (
            series["wirewatch_node_condition_last_update_timestamp_seconds", frozenset()] > time.time() - 300
        )
        assert series["wirewatch_node_condition_updates_total", frozenset({("result", "ok")})] >= 2
        status, _ = daemon.terminate()
        assert status == 0, daemon.log
    count = len(api.patched())
    with Daemon(arguments, tmp_path, config(api), UNSPREAD):
        end = time.monotonic() + SOON
        while len(api.patched()) == count:
            assert time.monotonic() < end
            time.sleep(0.1)
    after = api.condition()
    assert (after["status"], after["lastTransitionTime"]) == ("False", mine["lastTransitionTime"])
    told = [one["status"]["conditions"][0]["status"] for one in api.patched()[count:]]
    assert set(told) == {"False"}


def test_no_right_and_no_server_are_no_finding_and_the_daemon_ends_as_fast(tmp_path: Path) -> None:
    with ApiServer(tmp_path / "account", always=refusing(403, "forbidden")) as api:
        with Daemon(("--replay", "demo-dgx-h200"), tmp_path, config(api)) as daemon:
            daemon.wait("/metrics", 'node_condition_updates_total{result="forbidden"} 1.0')
            api.__exit__()
            # The first failure waits two seconds at most.
            daemon.wait("/metrics", 'node_condition_updates_total{result="unreachable"} 1.0')
            health = daemon.wait("/health", '"health":"ok"').json()
            assert health["findings"] == []
            assert daemon.log.count("may not `patch` `nodes/status`") == 1
            status, _ = daemon.terminate()
            assert status == 0, daemon.log
        api.__enter__()


def test_a_node_that_is_not_named_ends_the_start_with_one_line(tmp_path: Path) -> None:
    file = tmp_path / "wirewatch.toml"
    file.write_text('[listen]\nsocket = ""\n[kubernetes]\nnode_condition = true\n', "utf-8")
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("KUBERNETES_", "NODE_NAME"))}
    words = ("serve", "--replay", "demo-dgx-h200", "--listen", "127.0.0.1:0", "--config", str(file))
    done = run_wirewatch(*words, env=environ)
    assert done.returncode == 78
    assert "which node this is must be told" in done.stderr.splitlines()[-1]


def children(process: int) -> list[Path]:
    """Of whichever thread."""
    files = Path(f"/proc/{process}/task").glob("*/children")
    return [Path("/proc") / child for file in files for child in file.read_text("ascii").split()]


def received(end: socket.socket, seconds: float) -> list[str]:
    """All lines of so many seconds."""
    lines: list[str] = []
    stop = time.monotonic() + seconds
    while (left := stop - time.monotonic()) > 0:
        end.settimeout(left)
        try:
            lines += end.recv(4096).decode().split("\n")
        except TimeoutError:
            break
    return lines


def test_systemd_hears_of_the_start_the_verdict_and_the_end_and_nothing_from_a_hung_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GPU 5 hangs in the driver: that starves no watchdog. A daemon that is stopped feeds none."""
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "1000000")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(str(tmp_path / "notify"))
        with Daemon(("--replay", "demo-dgx-h200", "--overlay", "gpu-hang"), tmp_path) as daemon:
            lines: list[str] = []
            stop = time.monotonic() + SOON
            while not any(line.startswith(UNKNOWN) for line in lines):
                assert time.monotonic() < stop, lines
                lines += received(end, 0.5)
            assert lines[0] == "STATUS=first polls"
            assert lines.count("READY=1") == 1
            assert "WATCHDOG=1" not in lines[: lines.index("READY=1")]
            fed: list[str] = []
            while fed.count("WATCHDOG=1") < 3:
                assert time.monotonic() < stop, fed
                fed += received(end, 0.5)
            # The process that talks to NVML, and is killed now and then as it hangs, is not told where.
            while not (found := children(daemon.process.pid)):
                assert time.monotonic() < stop
            assert b"PATH=" in (told := (found[0] / "environ").read_bytes())
            assert b"NOTIFY_SOCKET" not in told
            daemon.process.send_signal(signal.SIGSTOP)
            # What it had sent before that is read first.
            while received(end, 0.3):
                assert time.monotonic() < stop
            assert received(end, 2.0) == []
            daemon.process.send_signal(signal.SIGCONT)
            while "WATCHDOG=1" not in received(end, 0.5):
                assert time.monotonic() < stop
            daemon.process.send_signal(signal.SIGTERM)
            assert daemon.process.wait(HANGS) == 0
            assert "STOPPING=1" in received(end, 0.5)
