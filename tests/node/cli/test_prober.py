"""`wirewatch prober` in this process: what it serves, where, and what it ends with."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from wirewatch.cli import prober as module
from wirewatch.cli.hardware import replayed

USAGE = 2


class Served:
    """Notes what would be served; `source` and `pid` of the process in which it would be."""

    def __init__(self, patch: pytest.MonkeyPatch, source: str = "replay", pid: int = 7) -> None:
        self.notes: list[Any] = []
        self._source = source
        patch.setattr(module, "replayed", self._replayed)
        patch.setattr(module, "live", lambda _config: self._replayed("h200x2-idle", (), loop=False))
        patch.setattr(module, "local", self._local)
        patch.setattr(module, "serve_prober", self._serve)
        patch.setattr(module, "remove_left_folders", lambda: self.notes.append("removed"))
        patch.setattr(module, "os", SimpleNamespace(getpid=lambda: pid))

    def run(self, *words: str) -> tuple[int, str]:
        done = CliRunner().invoke(module.prober, words)
        return done.exit_code, done.output

    def _replayed(self, name: str, overlays: Any, *, loop: bool) -> Any:
        self.notes.append((name, overlays, loop))
        hardware, _ = replayed(name, overlays, loop=loop)
        stopped = SimpleNamespace(stop=lambda: self.notes.append("stopped"))
        return replace(hardware, source=self._source), stopped

    @contextmanager
    def _local(self, *place: Any) -> Iterator[str]:
        self.notes.append(place)
        yield "listening"

    async def _serve(self, _hardware: Any, _options: Any, handles: Any, listening: str) -> None:
        self.notes.append((handles.prober, listening))


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ((), (module.SOCKET, 0o660, None)),
        (("--group", ""), (module.SOCKET, 0o660, None)),
        (("--group", "gpu"), (module.SOCKET, 0o660, "gpu")),
        (("--config", "w.toml"), ("/run/configured.sock", 0o660, None)),
        (("--config", "w.toml", "--socket", "/run/given.sock"), ("/run/given.sock", 0o660, None)),
    ],
)
def test_it_listens_where_it_is_asked_to_and_ends_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], place: tuple[Any, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("w.toml").write_text('[probe]\nprober = "/run/configured.sock"\n')
    served = Served(monkeypatch)
    assert served.run(*words) == (0, "")
    node = ("h200x2-idle", (), False)
    assert served.notes == ["removed", node, place, (None, "listening"), "stopped"]


@pytest.mark.parametrize(
    ("words", "node"),
    [
        (("--overlay", "gpu-busy"), None),
        (("--loop",), None),
        (("--replay", "h200x8"), ("h200x8", (), False)),
        (("--replay", "h200x8", "--loop", "--overlay", "gpu-busy"), ("h200x8", ("gpu-busy",), True)),
    ],
)
def test_a_recording_can_be_changed_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], node: Any
) -> None:
    served = Served(monkeypatch)
    code, text = served.run(*words)
    assert (code, "give --replay too" in text) == ((USAGE, True) if node is None else (0, False))
    assert (node in served.notes) is (node is not None)


@pytest.mark.parametrize(("source", "pid", "warned"), [("live", 1, 1), ("live", 7, 0), ("replay", 1, 0)])
def test_only_process_1_of_a_namespace_is_warned(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, source: str, pid: int, warned: int
) -> None:
    with caplog.at_level(logging.WARNING):
        assert Served(monkeypatch, source, pid).run()[0] == 0
    assert sum("hostPID" in one.getMessage() for one in caplog.records) == warned


def test_a_prober_of_this_machine_ends_its_own_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []
    live = vars(module)["live"]
    served = Served(monkeypatch)

    def here(config: Any) -> Any:
        hardware, nvml = live(config)
        found.append(hardware.probe)
        return hardware, nvml

    monkeypatch.setattr(module, "live", here)
    assert served.run()[0] == 0
    assert served.notes[-1] == (found[0], "listening")
