"""A node of the fleet: the real daemon on the demo recording, with a state folder and orders of its own."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from proof.rehearsal.expected import Change
from proof.rehearsal.overlays import as_toml
from proof.rehearsal.settings import configuration
from tests.node.daemon.process import Daemon

DEMO = "demo-dgx-h200"
ORDER = 60.0
"""Seconds that a command may take on a busy machine."""


class Node:
    """`wirewatch serve` as node `name`; its folder is kept for whoever wants to know why."""

    def __init__(self, name: str, folder: Path, state: Path | None = None) -> None:
        self.name = name
        self.folder = folder
        folder.mkdir(parents=True)
        self.socket = folder / "s.sock"
        self.state = folder / "state"
        if state is not None:
            shutil.copytree(state, self.state)
        self._daemon: Daemon | None = None
        self.began = 0.0
        """When the play began, in Unix seconds, to within the second that a recording takes to load."""

    def start(
        self, changes: Sequence[Change] = (), *, own: Mapping[str, dict[str, Any]] | None = None,
        listen: str = "127.0.0.1:0",
    ) -> None:  # fmt: skip
        """Start the daemon, with these changes to the recording and what `own` says of its configuration."""
        overlay = self.folder / "overlay.toml"
        overlay.write_text(as_toml(f"the rehearsal of {self.name}", changes), "utf-8")
        arguments = ["--replay", DEMO, "--listen", listen]
        if changes:
            arguments += ["--overlay", str(overlay)]
        settings = configuration(str(self.socket), str(self.state), own)
        self._daemon = Daemon(arguments, self.folder, settings)
        self.began = time.time()

    @property
    def daemon(self) -> Daemon:
        assert self._daemon is not None, f"{self.name} does not run"
        return self._daemon

    @property
    def url(self) -> str:
        return self.daemon.url

    @property
    def address(self) -> str:
        return self.url.removeprefix("http://")

    def stop(self) -> None:
        """As systemd would; it has to end by itself."""
        daemon, self._daemon = self._daemon, None
        if daemon is not None:
            with daemon:
                status, _ = daemon.terminate()
            assert status == 0, f"{self.name} ended with {status}: {daemon.log[-2000:]}"

    def kill(self) -> None:
        daemon, self._daemon = self._daemon, None
        if daemon is not None:
            with daemon:
                pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def order(self, *arguments: str) -> str:
        """One of the operator's commands, to this node's daemon; what it prints."""
        done = self.ordered(*arguments)
        assert done.returncode == 0, f"{self.name}: {arguments}: {done.stderr}"
        return done.stdout

    def ordered(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "wirewatch", *arguments, "--socket", str(self.socket)]
        return subprocess.run(command, capture_output=True, text=True, timeout=ORDER, check=False)

    def findings(self) -> list[dict[str, Any]]:
        found = self.daemon.get("/api/v1/findings").json()["findings"]
        assert isinstance(found, list)
        return found

    def told(self) -> str:
        """What the node says of itself now, for a report."""
        return json.dumps(
            [{key: one[key] for key in ("id", "rule", "health", "stage")} for one in self.findings()]
        )
