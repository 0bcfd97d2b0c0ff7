"""taken: a GPU whose device file is taken away and given back under a daemon that runs, and at its start.

The kit becomes a mount namespace of its own, in which a file that is no device covers /dev/nvidiaN. NVML
keeps open files, so that the process that talks to it is killed or let go by `wirewatch release` in between.
Takes root, unshare and mount, and two GPUs at least: the last loses its file.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from proof.hardware.daemon import Daemon, every
from proof.hardware.kit import KitError, Report, chosen
from proof.hardware.lane import by_number

APART = "WIREWATCH_KIT_APART"
INTERVAL = 1.0
SEEN_WITHIN, BACK_WITHIN = 90.0, 150.0
STAYS = 10.0
"""Seconds for which a state is watched after it was reached, so that one that does not last is seen."""
RELEASED = 5.0
State = tuple[str, bool, tuple[str, ...]]
"""Health, whether a job may start, and each finding as `rule subject health`."""


@dataclass
class Course:
    """States of the node in their order, each with the seconds since the daemon was ready."""

    began: float = field(default_factory=time.monotonic)
    states: list[tuple[float, str]] = field(default_factory=list)

    def see(self, what: str) -> None:
        """Add a line, unless it is the last line already."""
        if not self.states or self.states[-1][1] != what:
            self.states.append((round(time.monotonic() - self.began, 1), what))


@dataclass
class Scene:
    """A daemon with its socket, and the file of the GPU that is taken."""

    daemon: Daemon
    socket: Path
    file: Path
    course: Course = field(default_factory=Course)

    def state(self) -> State:
        """Raises KitError, OSError: no answer."""
        return state_of(self.daemon.get("/health").body)

    def until(self, wanted: Callable[[State], bool], within: float = SEEN_WITHIN) -> float | None:
        """Seconds until the node is so, and was so for STAYS; None: not within these seconds."""
        began, since = time.monotonic(), None
        while time.monotonic() - began < within + STAYS:
            state = self.state()
            self.course.see(worded(state))
            if not wanted(state):
                since = None
            elif since is None:
                since = time.monotonic()
            elif time.monotonic() - since >= STAYS:
                return since - began
            time.sleep(0.2)
        return None

    def kill(self) -> None:
        """End the process that talks to NVML, as a crash of the driver's library would."""
        child = self.daemon.child()
        if child is None:
            raise KitError(f"no NVML process; log: {self.daemon.log()}")
        os.kill(child, signal.SIGKILL)
        self.course.see("killed the NVML process")

    def take(self) -> None:
        """Cover the GPU's file."""
        take(self.file)
        self.course.see(f"took {self.file}")

    def give(self) -> None:
        """Uncover it."""
        give(self.file)
        self.course.see(f"gave {self.file} back")

    def release(self, during: Callable[[], None]) -> None:
        """Let go of all GPUs for a while, and do something meanwhile."""
        line = [sys.executable, "-m", "wirewatch", "release", "--socket", str(self.socket)]
        with subprocess.Popen([*line, "--for", f"{RELEASED:g}s"], stdout=subprocess.DEVNULL) as command:
            time.sleep(2.0)
            self.course.see("released")
            during()
            command.wait(30.0)


def take(file: Path) -> None:
    """Cover a device with a file that is none, which no library can remove."""
    cover = Path(tempfile.gettempdir()) / "wirewatch-no-device"
    cover.touch()
    subprocess.run(("mount", "--bind", cover, file), check=True)


def give(file: Path) -> None:
    """Uncover it."""
    subprocess.run(("umount", file), check=True)


def state_of(body: bytes) -> State:
    """The state of a health document."""
    said = json.loads(body)
    findings = (
        f"{one['rule']} {' '.join(map(str, one['subject'].values()))} {one['health']}"
        for one in said["findings"]
    )
    return said["health"], said["job_ready"], tuple(sorted(findings))


def worded(state: State) -> str:
    """A state as one line."""
    health, ready, findings = state
    return f"{health}, a job {'may' if ready else 'may not'} start: {'; '.join(findings) or 'nothing found'}"


def healthy(state: State) -> bool:
    return state[0] == "ok" and state[1]


def ready(state: State) -> bool:
    """Whether a job may start; a part that was lost stays DEGRADED for a day."""
    return state[1]


def lost(state: State) -> bool:
    """Whether the GPU counts as lost, and no job may start."""
    return state[0] == "failed" and not state[1] and any(one.startswith("gpu.") for one in state[2])


def run(report: Report, options: argparse.Namespace) -> None:
    if not os.environ.get(APART):
        _apart()
    files = by_number([file.name for file in Path("/dev").iterdir()])
    if len(files) < 2:
        raise KitError("one GPU cannot be missed among others: two are needed")
    file = Path("/dev") / files[max(files)]
    for name in chosen(options.kinds, PIECES):
        report.attempt(name, lambda name=name: PIECES[name](report, file))  # type: ignore[misc]


def _apart() -> None:
    """Become the kit in a mount namespace of its own."""
    line = ("unshare", "--mount", "--propagation", "private", sys.executable, "-m", "proof.hardware")
    os.environ[APART] = "1"
    os.execvp(line[0], (*line, *sys.argv[1:]))  # noqa: S606 - it is the kit itself


@contextmanager
def _scene(report: Report, name: str, file: Path, state: Path) -> Iterator[Scene]:
    with tempfile.TemporaryDirectory(prefix="wirewatch-taken-") as folder:
        socket = Path(folder) / "wirewatch.sock"
        config = every(INTERVAL, link_detail=False).replace('socket = ""', f'socket = "{socket}"')
        with Daemon(f'{config}[state]\ndirectory = "{state}"\n') as daemon:
            scene = Scene(daemon, socket, file)
            try:
                daemon.fresh(time.time())
                yield scene
            finally:
                report.note(**{name: [list(one) for one in scene.course.states]})


def _wait(
    report: Report, scene: Scene, name: str, wanted: Callable[[State], bool], within: float = SEEN_WITHIN
) -> None:
    after = scene.until(wanted, within)
    told = worded(scene.state()) if after is None else f"after {after:.1f} s: {worded(scene.state())}"
    report.check(name, ok=after is not None, told=told)


def _killed(report: Report, file: Path) -> None:
    with tempfile.TemporaryDirectory() as state, _scene(report, "killed", file, Path(state)) as scene:
        _wait(report, scene, "killed: healthy before", healthy)
        scene.kill()
        _wait(report, scene, "killed: healthy after the NVML process was killed", healthy)
        scene.release(lambda: None)
        _wait(report, scene, "killed: healthy after a release", healthy)


def _while_running(report: Report, file: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        with _scene(report, "while it runs", file, state) as scene:
            _wait(report, scene, "while it runs: healthy before", healthy)
            scene.take()
            try:
                scene.kill()
                _wait(report, scene, "while it runs: the GPU that is taken away is lost", lost)
            finally:
                scene.give()
            _wait(report, scene, "while it runs: a job may start once it is back", ready, BACK_WITHIN)
        with _scene(report, "started again with it back", file, state) as scene:
            _wait(report, scene, "started again with it back: a job may start", ready)


def _during_release(report: Report, file: Path) -> None:
    with tempfile.TemporaryDirectory() as state, _scene(report, "release", file, Path(state)) as scene:
        _wait(report, scene, "release: healthy before", healthy)
        scene.release(scene.take)
        try:
            _wait(report, scene, "release: the GPU that was taken meanwhile is lost", lost)
        finally:
            scene.give()
        _wait(report, scene, "release: a job may start once it is back", ready, BACK_WITHIN)


def _at_start(report: Report, file: Path) -> None:
    take(file)
    try:
        with tempfile.TemporaryDirectory() as state, _scene(report, "at start", file, Path(state)) as scene:
            scene.until(lambda _: False, within=10.0)
            said = scene.state()
            name = "at start: a node without a GPU that its driver has is not OK"
            report.check(name, ok=said[0] != "ok", told=worded(said))
    finally:
        give(file)


PIECES = {"killed": _killed, "running": _while_running, "release": _during_release, "start": _at_start}
