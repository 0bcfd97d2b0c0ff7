"""Commands in a folder of somebody else's, where modules, programs and libraries lie to be taken for ours."""

import ast
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.node.probe.rig import PLAN
from tests.patience import HANGS
from tests.processes import ROOT, Process
from wirewatch.client import NoAnswer, request
from wirewatch.hw.command import SystemCommand
from wirewatch.hw.interpreter import FOLDER
from wirewatch.hw.nvml.process import Child
from wirewatch.hw.nvml.protocol import Source
from wirewatch.hw.slurm import SystemSlurm
from wirewatch.probe.launcher import Worker

OURS = ("wirewatch", "wirewatch/hw", "wirewatch/hw/nvml", "wirewatch/worker")
MODULES = (
    "click", "cuda", "h11", "json", "logging", "nccl", "pydantic", "pynvml", "signal", "sitecustomize",
    "torch", "typing", "usercustomize",
)  # fmt: skip
MAIN = ("wirewatch/__main__.py", "wirewatch/worker/__main__.py", "wirewatch/hw/nvml/child.py")
PROGRAMS = ("gcc", "ibstat", "ldconfig", "lspci", "nvidia-smi", "python3", "scontrol", "squeue")
LIBRARIES = ("libnvidia-ml.so.1", "libnccl.so.2", "libcuda.so.1")
SOON = HANGS
COMMANDS = (
    ("check",),
    ("check", "--cached"),
    ("findings", "list"),
    ("findings", "list", "--socket", "SOCKET"),
    ("probe",),
    ("probe", "--force", "--engine", "gloo"),
    ("record", "OUT", "--moments", "1"),
    ("release", "--socket", "SOCKET"),
    ("release", "--end", "--socket", "SOCKET"),
    ("topology", "accept", "--why", "it is right", "--socket", "SOCKET"),
    ("topology", "expect"),
    ("topology", "show"),
)


class HostileFolder:
    """A folder whose files leave a mark when they are run or loaded, and an environment that looks there."""

    def __init__(self, folder: Path) -> None:
        self.path, self.beside, self._marks = folder / "hostile", folder, folder / "marks"
        self._marks.mkdir()
        for name in (*OURS, *MODULES):
            self._module(name, self.path / name / "__init__.py")
        for name in MAIN:
            self._module(name, self.path / name)
        for name in PROGRAMS:
            (self.path / name).write_text(f"#!/bin/sh\n: > '{self._marks}/{name}'\n", "utf-8")
            (self.path / name).chmod(0o755)
        self._library()
        self.environment = {
            **os.environ, "PATH": f":.:{os.environ['PATH']}:", "LD_LIBRARY_PATH": ":", "PYTHONPATH": ":",
            "XDG_RUNTIME_DIR": str(folder), "STATE_DIRECTORY": str(folder / "state"),
        }  # fmt: skip

    def _module(self, name: str, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"open({str(self._marks / name.replace('/', '.'))!r}, 'w').close()\n", "utf-8")

    def _library(self) -> None:
        first, *others = (self.path / name for name in LIBRARIES)
        made = f'creat("{self._marks}/library", 384);'
        text = f"#include <fcntl.h>\n__attribute__((constructor)) void load(void) {{ {made} }}"
        line = ("gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(first))
        subprocess.run(line, input=text.encode(), check=True)
        for other in others:
            other.hardlink_to(first)

    def marks(self) -> list[str]:
        """What has been run or loaded since the last question."""
        left = sorted(self._marks.iterdir())
        for mark in left:
            mark.unlink()
        return [mark.name for mark in left]

    def run(self, *words: str) -> str:
        """A command of wirewatch there, to its end; returns what it printed."""
        line = ("wirewatch", *words)
        with Process(line, subprocess.PIPE, subprocess.PIPE, self.environment, self.path) as process:
            return "".join(process.communicate(SOON))


@pytest.fixture
def hostile(tmp_path: Path) -> HostileFolder:
    return HostileFolder(tmp_path)


def test_the_folder_is_as_hostile_as_it_looks(hostile: HostileFolder) -> None:
    """Whoever takes no care loads and runs what lies there."""
    code = "import ctypes, json, torch; ctypes.CDLL('libnvidia-ml.so.1')"
    for line in ((sys.executable, "-c", code), ("ibstat",), ("sh", "-c", "scontrol")):
        subprocess.run(line, cwd=hostile.path, env=hostile.environment, check=True)
    assert {"json", "torch", "sitecustomize", "library", "ibstat", "scontrol"} <= set(hostile.marks())


@pytest.fixture
def daemon(hostile: HostileFolder) -> Iterator[Mapping[str, str]]:
    """A daemon and a prober that work there, once they have polled; their sockets."""
    sockets = {name: str(hostile.beside / f"{name}.sock") for name in ("SOCKET", "PROBER")}
    config = hostile.beside / "wirewatch.toml"
    config.write_text(f'[listen]\nsocket = "{sockets["SOCKET"]}"\n', "utf-8")
    lines = (
        ("wirewatch", "serve", "--listen", "127.0.0.1:0", "--config", str(config)),
        ("wirewatch", "prober", "--socket", sockets["PROBER"]),
    )
    started = [Process(line, env=hostile.environment, cwd=hostile.path) for line in lines]
    try:
        for socket, target in ((sockets["SOCKET"], "/readyz"), (sockets["PROBER"], "/")):
            answering(socket, target)
        yield sockets
    finally:
        for process in started:
            process.kill()
            process.wait()


def answering(socket: str, target: str) -> None:
    """Wait until all polls have ended, or any answer comes where there are none."""
    end = time.monotonic() + SOON
    while time.monotonic() < end:
        try:
            if request(socket, "GET", target, None, SOON)[0] != 503:
                return
        except NoAnswer:
            pass
        time.sleep(0.05)
    raise AssertionError(f"no answer from {socket}")


def test_no_command_runs_what_lies_in_the_folder_where_it_is_called(
    hostile: HostileFolder, daemon: Mapping[str, str]
) -> None:
    ran: dict[tuple[str, ...], list[str]] = {("serve", "prober"): hostile.marks()}
    places = {**daemon, "OUT": str(hostile.beside / "recording")}
    for command in COMMANDS:
        printed = hostile.run(*(places.get(word, word) for word in command))
        assert "Traceback" not in printed
        ran[command] = hostile.marks()
    assert {command: marks for command, marks in ran.items() if marks} == {}


def test_nor_does_the_module_itself(hostile: HostileFolder) -> None:
    """`python -m` looks there first: for nothing but the name wirewatch."""
    line = ("-m", "wirewatch", "check", "--socket", "")
    isolated = hostile.environment | {"LD_LIBRARY_PATH": ""}
    plain = isolated | {"PYTHONPATH": ""}
    for environment, words in ((isolated, ("-I", *line)), (plain, (*line, "--cached"))):
        if words[0] == "-m":
            (hostile.path / "wirewatch").rename(hostile.beside / "wirewatch")
        command = [sys.executable, *words]
        done = subprocess.run(
            command, cwd=hostile.path, env=environment, capture_output=True, text=True, check=False
        )
        assert (hostile.marks(), "Traceback" in done.stderr, done.stdout[:7]) == ([], False, "UNKNOWN")


@pytest.mark.parametrize("engine", ["nccl", "torch", "gloo"])
def test_no_worker_does(hostile: HostileFolder, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    monkeypatch.chdir(hostile.path)
    worker = Worker(replace(PLAN, engine=engine), hostile.beside, hostile.environment)
    end = time.monotonic() + SOON
    while not worker.ended and time.monotonic() < end:
        if worker.read_mark(0.05) is not None:
            worker.go()
    worker.end()
    assert b'"no_engine"' in worker.document
    assert hostile.marks() == []


def test_no_program_is_looked_for_there(hostile: HostileFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(hostile.path)
    monkeypatch.setenv("PATH", hostile.environment["PATH"])
    SystemCommand().run("ibstat")
    SystemSlurm().jobs()
    assert hostile.marks() == []


def test_a_child_works_in_a_folder_of_roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not where a core file of it could be read."""
    monkeypatch.chdir(tmp_path)
    child = Child(Source("h200x1-idle"))
    try:
        child.hello(SOON)
        proc = Path(f"/proc/{child.pid}")
        assert proc.joinpath("cwd").readlink() == Path(FOLDER)
        assert proc.joinpath("cmdline").read_bytes().split(b"\0")[1] == b"-P"
    finally:
        child.kill()


BESIDE = re.compile(
    r"\bos\.(exec|spawn|posix_spawn|system|popen)|multiprocessing import"
    r"|multiprocessing\.(?!connection import Connection)|\bsubprocess\.(?!Popen\b|[A-Z])"
)


def test_every_process_of_ours_is_started_so() -> None:
    """By Popen alone, in FOLDER; and Python by one function, which gives it -P."""
    starts = []
    for file in sorted((ROOT / "agent").rglob("*.py")):
        text = file.read_text("utf-8")
        assert BESIDE.findall(text) == [], file
        assert ("sys.executable" in text) == (file.name == "interpreter.py"), file
        nodes = ast.walk(ast.parse(text)) if "subprocess" in text else ()
        starts += [node for node in nodes if isinstance(node, ast.Call) and "Popen" in ast.unparse(node.func)]
    for start in starts:
        given = {one.arg: ast.unparse(one.value) for one in start.keywords}
        assert given["cwd"] == "FOLDER"
        assert given["env"]
    assert len(starts) == 5
