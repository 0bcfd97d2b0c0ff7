"""Against real components of Debian and the real kernel. A tool that is missing is a failure here."""

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.node.daemon.process import Daemon
from tests.node.goldens import made
from wirewatch.hw.recording import bundled_names

pytestmark = pytest.mark.system


def promtool(text: str) -> str:
    """What `promtool check metrics` complains of."""
    tool = shutil.which("promtool")
    assert tool, "promtool is missing: tests/system/packages installs it"
    done = subprocess.run([tool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_promtool_complains_of_bad_metrics() -> None:
    assert "counter" in promtool("# HELP bad x\n# TYPE bad counter\nbad 1\n")


@pytest.mark.parametrize("name", bundled_names())
def test_promtool_finds_nothing_wrong_with_a_recording(name: str) -> None:
    for node in made.played(name):
        assert promtool(made.metrics(node)) == ""


def test_promtool_finds_nothing_wrong_with_a_node_full_of_faults(tmp_path: Path) -> None:
    overlay = tmp_path / "faults.toml"
    overlay.write_text(
        """
        [[change]]
        port = "nvml"
        match = "gpu3/*"
        code = 15
        [[change]]
        port = "nvml"
        match = "gpu2/Field(165,7)"
        set = 0
        """,
        "utf-8",
    )
    with Daemon(("--replay", "h200x8", "--overlay", str(overlay)), tmp_path) as daemon:
        daemon.wait("/health", "gpu.lost")
        text = daemon.get("/metrics").text
    assert "wirewatch_finding_severity{" in text
    assert promtool(text) == ""


def test_sigterm_ends_the_agent_also_as_process_one_and_while_it_starts(tmp_path: Path) -> None:
    """As in a container, where a signal without a handler does nothing."""
    for pause in (0.15, 3.0):
        log = tmp_path / f"{pause}.log"
        command = [
            "unshare",
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child",
            sys.executable,
            "-m",
            "wirewatch",
        ]
        arguments = ["serve", "--replay", "h200x8", "--listen", "127.0.0.1:0"]
        with log.open("wb") as errors:
            process = subprocess.Popen([*command, *arguments], stderr=errors)
        time.sleep(pause)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text("ascii").split()
        began = time.monotonic()
        assert len(children) == 1
        subprocess.run(["kill", f"-{signal.SIGTERM}", children[0]], check=True)
        assert process.wait(10) == 0, log.read_text("utf-8")
        assert time.monotonic() - began < 5
