"""`wirewatch fleet controller`: what it cannot start with is one line and exit code 78 or 64."""

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.patience import HANGS
from wirewatch.cli import run
from wirewatch.cli.guarded import guard
from wirewatch.config import Config, Listen
from wirewatch.core.exits import Exit
from wirewatch.core.types import Unusable
from wirewatch.signals import SIGNALS
from wirewatch_fleet.cli import controller as controller_module


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ('[controller]\nact = "drain"', "controller.act"),
        ("[controller]\nlease = 3", "controller.lease"),
        ('[controller.budget]\ncluster = "5 %"', "controller.budget.cluster"),
        ("[controller.budget]\nrack = -1", "controller.budget.rack"),
        ("[controller]\ntaint = true", "unknown key 'controller.taint'"),
        ("[controller]", "controller: no API server"),
        (
            '[kubernetes]\napi_server = "127.0.0.1:1"\ncredentials = "/nowhere"',
            "controller.namespace: not given",
        ),
        ('[kubernetes]\napi_server = "nowhere"', "controller: not HOST:PORT of an API server"),
    ],
)
def test_a_wrong_configuration_is_one_line(
    lines: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    file = tmp_path / "wirewatch.toml"
    file.write_text(lines, "utf-8")
    assert run(["fleet", "controller", "--config", str(file)]) == Exit.CONFIG
    (line,) = [one for one in capsys.readouterr().err.splitlines() if one.startswith("wirewatch: ")]
    assert told in line


def test_a_wrong_measure_on_the_command_line_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fleet", "controller", "--act", "drain"]) == Exit.USAGE
    assert "'drain'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        ((), {}), (("--listen", "h:1"), {"listen": "h:1"}), (("--act", "undo"), {"act": "undo"}),
        (("--no-dry-run",), {"dry_run": False}), (("--dry-run",), {"dry_run": True}),
    ],
)  # fmt: skip
def test_an_option_stands_for_what_is_configured(
    words: tuple[str, ...], changed: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Config] = []

    def composed(config: Config) -> None:
        seen.append(config)
        raise Unusable("far enough")

    monkeypatch.setattr(controller_module, "_composed", composed)
    file = tmp_path / "wirewatch.toml"
    file.write_text('[controller]\nlisten = "c:9"\nact = "cordon"\ndry_run = false', "utf-8")
    assert run(["fleet", "controller", "--config", str(file), *words]) == Exit.CONFIG
    (config,) = seen
    kept = {"listen": "c:9", "act": "cordon", "dry_run": False}
    assert {name: getattr(config.controller, name) for name in kept} == {**kept, **changed}


@pytest.mark.parametrize(
    ("given", "file", "pod", "here"),
    [
        ("ours", b"of-the-pod\n", "p-0", ("p-0", "ours")),
        ("", b"of-the-pod\n", "p-0", ("p-0", "of-the-pod")),
        ("ours", None, "", (f"{socket.gethostname()}-{os.getpid()}", "ours")),
    ],
)  # fmt: skip
def test_a_controller_is_known_by_its_pod_and_holds_a_lease_in_its_namespace(
    given: str,
    file: bytes | None,
    pod: str,
    here: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if file is not None:
        (tmp_path / "namespace").write_bytes(file)
    monkeypatch.setenv("POD_NAME", pod)
    made = controller_module._identity(given, tmp_path)  # noqa: SLF001
    assert (made.name, made.namespace) == here


@pytest.mark.parametrize(
    ("file", "why"), [(None, "No such file or directory"), (b"\xff", "'utf-8' codec can't decode")]
)
def test_without_a_namespace_it_says_why(file: bytes | None, why: str, tmp_path: Path) -> None:
    if file is not None:
        (tmp_path / "namespace").write_bytes(file)
    with pytest.raises(Unusable) as caught:
        controller_module._identity("", tmp_path)  # noqa: SLF001
    assert str(caught.value).startswith(
        f"controller.namespace: not given, and {tmp_path / 'namespace'}: {why}"
    )


class Working:
    """Stands for the controller: it works until something happens to it."""

    report, turning, asked = None, True, ""

    def __init__(self, happens: Callable[[], object]) -> None:
        self.happens, self.cancelled = happens, False

    async def run(self) -> None:
        self.happens()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled = True


def serve(ours: Any) -> None:
    with ExitStack() as stack:
        port = guard(Listen(address="127.0.0.1:0"), None, None, stack)
        asyncio.run(asyncio.wait_for(controller_module._serve(ours, port), HANGS))  # noqa: SLF001


def test_a_signal_ends_the_controller_and_its_work() -> None:
    def comes() -> None:
        assert SIGNALS._stop is not None  # noqa: SLF001
        SIGNALS._stop("SIGTERM")  # noqa: SLF001

    ours = Working(comes)
    serve(ours)
    assert ours.cancelled


def test_work_that_breaks_ends_the_controller_with_its_reason() -> None:
    def breaks() -> None:
        raise RuntimeError("the lease is lost")

    with pytest.raises(RuntimeError, match="the lease is lost"):
        serve(Working(breaks))
