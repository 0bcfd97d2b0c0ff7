"""The first command of the README, in a fresh clone, prints what stands there."""

import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.tools.blocks import ROOT, blocks

pytestmark = pytest.mark.system
LONGEST = 300.0
"""Seconds for the packages and the first reading, on a machine with much else to do."""


def test_make_run_prints_what_the_readme_says(tmp_path: Path) -> None:
    block = next(one for one in blocks(ROOT / "README.md") if "$ make run" in one.text)
    command, printed = block.commands[0]
    clone, log = tmp_path / "clone", tmp_path / "log"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    words = [*shlex.split(command, comments=True), "LISTEN=127.0.0.1:0"]
    with log.open("wb") as output, subprocess.Popen(
        words, cwd=clone, stdout=output, stderr=output, env={**os.environ, "MAKEFLAGS": ""},
        start_new_session=True,
    ) as running:  # fmt: skip
        try:
            end = time.monotonic() + LONGEST
            while "/metrics" not in log.read_text("utf-8") and time.monotonic() < end:
                assert running.poll() is None, log.read_text("utf-8")
                time.sleep(0.2)
        finally:
            os.killpg(running.pid, signal.SIGTERM)
    told = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:9410", log.read_text("utf-8"))
    for line in printed.splitlines():
        assert all(part.strip() in told for part in line.split("...")), told
