"""Help examples, played where a user types them: beside a daemon, with the files that they name.

A place that no test may write to, such as /etc/wirewatch or /tmp, lies in the test's own folder, and a port is any
free one. Programs of others are stand-ins that take any words.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.node.daemon.process import FAST, Daemon
from tests.patience import HANGS
from tests.processes import ROOT, TIMEOUT, Process

RECORDED = ROOT / "tests" / "recorded"
LISTENS = re.compile(r"https?://\S+|listening at|wirewatch\.sock")
PLACES = ("/etc/wirewatch", "/opt/wirewatch", "/run/wirewatch", "/tmp/")  # noqa: S108 - named, and never written to
LASTING = frozenset({("serve",), ("demo",), ("prober",), ("fleet", "controller"), ("fleet", "simulate")})
"""Commands that go on until a signal ends them."""
SHELL = re.compile(r"[|<>;&$*~]")


def placed(text: str, folder: Path) -> str:
    """The command with its places in the folder of the test, and with any free port."""
    for place in PLACES:
        text = re.sub(rf"(?<![\w.]){re.escape(place)}", f"{folder}{place}", text)
    return re.sub(r"(--listen \S+):\d+", r"\1:0", text)


def play(line: str, folder: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    """Exit code and whole output of a line; a command that lasts is ended once it listens."""
    text = placed(line, folder)
    words = shlex.split(text, comments=True)
    if words[0] == "wirewatch" and not SHELL.search(text):
        kind = next((one for one in LASTING if tuple(words[1 : 1 + len(one)]) == one), None)
        if kind is not None and not {"overlays", "recordings"} & set(words):
            return _lasting(words, folder, environment)
        with Process(words, subprocess.PIPE, subprocess.PIPE, environment, folder) as process:
            out, err = process.communicate(TIMEOUT)
        return process.wait(), out + err
    ours = f'wirewatch() {{ {shlex.quote(sys.executable)} -m wirewatch "$@"; }}; set -o pipefail; '
    done = subprocess.run(
        ["bash", "-c", ours + text], cwd=folder, env=environment, capture_output=True, text=True,
        timeout=TIMEOUT, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def _lasting(words: list[str], folder: Path, environment: Mapping[str, str]) -> tuple[int, str]:
    more = ["--listen", "127.0.0.1:0"] if "--listen" not in words and words[1] != "prober" else []
    log = folder / "lasting.log"
    with log.open("wb") as file, Process([*words, *more], file, file, environment, folder) as process:
        end = time.monotonic() + HANGS
        while process.poll() is None and not LISTENS.search(log.read_text("utf-8")):
            assert time.monotonic() < end, f"it does not listen: {log.read_text('utf-8')}"
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        return process.wait(HANGS), log.read_text("utf-8")
