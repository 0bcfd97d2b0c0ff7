"""What is shown of the image as it runs. Each step asserts, and returns one line of what was seen."""

import json
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from proof.image.builder import build, lock_torch_of_this_machine, name
from proof.image.built import MB, OWN
from proof.image.running import NO_CAPABILITY, Container, get, resident
from proof.rehearsal.services import free_port
from tests.waiting import until

STOP_MOST = 5.0
MEMORY = 128 << 20
PROBER_MEMORY = "4g"
"""The chart's limit."""
CONFIG = "/etc/wirewatch.toml"
SERVE = ("serve", "--config", CONFIG, "--replay", "demo-dgx-h200", "--loop")
FOLDERS = """
[listen]
socket = "/run/wirewatch/wirewatch.sock"
[state]
directory = "/var/lib/wirewatch"
"""
"""Told, since a recording has neither socket nor state else."""
GLOO = """
[probe]
prober = "/run/wirewatch/prober.sock"
engine = "gloo"
ranks = 2
interval = 0.3
probe_interval = 600.0
jitter = 0.0
kill_after = 55.0
latency_sizes = [8]
bandwidth = [[1048576, 2]]
"""


def serves() -> str:
    with folders(FOLDERS) as mounts:
        port = free_port()
        little = ("--memory", str(MEMORY), "--memory-swap", str(MEMORY), *mounts)
        words = (*SERVE, "--listen", f"127.0.0.1:{port}")
        with Container(name("nccl"), little, *words) as agent:
            until(agent.log, lambda: '"health":"ok"' in get(port, "/health")[1], 60)
            text = get(port, "/metrics")[1]
            assert 'wirewatch_health{health="ok"} 1.0' in text
            assert get(port, "/")[0] == 200
            _unprivileged(agent, OWN)
            assert agent.attempt("touch", "/opt/wirewatch/x").returncode != 0
            agent.do("wirewatch", "check", "--cached", "--fail-on", "degraded,unknown,failed")
            held, most, counted = resident(agent.processes()), agent.most_memory(), len(agent.processes())
            took, status = agent.stop()
    assert status == 0
    assert took <= STOP_MOST
    return (
        f"read-only, no capability, user {OWN}, 128 MiB at most: serves the demo, `wirewatch check` exits 0; "
        f"{held / MB:.0f} MB resident in {counted} processes, {most / MB:.0f} MB at most with files; "
        f"{took:.1f} s from SIGTERM to the end, exit status 0"
    )


def probes() -> str:
    """Agent and prober in two containers: a probe on processors, asked through the socket between them."""
    build("torch", "--build-arg", f"TORCH={lock_torch_of_this_machine()}")
    with folders(FOLDERS + GLOO) as mounts:
        port = free_port()
        agent_words = (*SERVE, "--listen", f"127.0.0.1:{port}")
        root = (
            "--user",
            f"0:{OWN}",
            "--pid",
            "host",
            "--shm-size",
            "256m",
            "--memory",
            PROBER_MEMORY,
            *mounts,
        )
        asking = ("prober", "--config", CONFIG, "--group", OWN)
        with Container(name("torch"), root, *asking) as prober:
            until(prober.log, lambda: "listening at" in prober.log(), 60)
            with Container(name("nccl"), mounts, *agent_words) as agent:
                until(lambda: agent.log() + prober.log(), lambda: _last(port).get("outcome") is not None, 240)
                last = _last(port)
                assert last["outcome"] == "ok", last
                assert (last["engine"], {one["wrong"] for one in last["results"]}) == ("gloo", {0}), last
                _unprivileged(prober, "0")
                _unprivileged(agent, OWN)
                counted = len(last["results"])
                took, status = prober.stop()
                assert (status, took <= STOP_MOST) == (0, True)
    return (
        f"agent (user {OWN}) and prober (root without a capability, host's processes) share a socket: "
        f"{counted} results of gloo over torch {last['versions']['torch']}, none wrong; "
        f"the prober ends {took:.1f} s after SIGTERM"
    )


def reaps() -> str:
    """As process 1, the agent collects what is left to it."""
    with folders(FOLDERS) as mounts:
        port = free_port()
        with Container(name("nccl"), mounts, *SERVE, "--listen", f"127.0.0.1:{port}") as agent:
            until(agent.log, lambda: '"health":"ok"' in get(port, "/health")[1], 60)
            before = agent.processes()
            first = int(agent.state()["Pid"])
            assert before[first]["NSpid"].split()[-1] == "1"
            children = [pid for pid in before if pid != first]
            assert children
            for pid in children:
                os.kill(pid, signal.SIGKILL)
            until(agent.log, lambda: len(agent.processes().keys() - before.keys()) >= len(children), 30)
            until(agent.log, lambda: not _dead(agent), 30)
            until(agent.log, lambda: '"health":"ok"' in get(port, "/health")[1], 60)
    return f"process 1: its {len(children)} other process killed, started again, none left as a zombie"


def _dead(container: Container) -> list[int]:
    return [pid for pid, told in container.processes().items() if told["State"].startswith("Z")]


def _unprivileged(container: Container, user: str) -> None:
    processes = container.processes()
    assert processes
    for told in processes.values():
        capabilities = {told[one] for one in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")}
        assert (told["Uid"].split()[0], capabilities, told["NoNewPrivs"]) == (user, {NO_CAPABILITY}, "1"), (
            told
        )


def _last(port: int) -> dict[str, Any]:
    text = get(port, "/api/v1/probes")[1]
    return (json.loads(text).get("last") or {}) if text else {}


@contextmanager
def folders(config: str) -> Iterator[tuple[str, ...]]:
    """Words for podman: folders that the image's user may write to, as a volume is, and a configuration."""
    with tempfile.TemporaryDirectory(prefix="wirewatch-image-") as folder:
        words: list[str] = []
        Path(folder).chmod(0o755)
        for place in ("/run/wirewatch", "/var/lib/wirewatch", "/tmp"):
            here = Path(folder) / place.strip("/").replace("/", "-")
            here.mkdir()
            os.chown(here, int(OWN), int(OWN))
            here.chmod(0o770)
            words += ["--volume", f"{here}:{place}"]
        file = Path(folder) / "wirewatch.toml"
        file.write_text(config, "utf-8")
        file.chmod(0o644)
        yield (*words, "--volume", f"{file}:{CONFIG}:ro")
