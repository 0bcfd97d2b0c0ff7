"""How much each command imports. The bounds are modules, since these are the same on every machine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from proof.bench.start import ASKED, HELPED, beside_a_daemon, every, loaded

HEAVY = frozenset({
    "pydantic", "fastapi", "starlette", "uvicorn", "prometheus_client", "jinja2", "asyncio", "yaml", "bcrypt",
    "psutil", "matplotlib", "kubernetes_asyncio", "wirewatch.catalogue", "wirewatch.config",
})  # fmt: skip
READS = {"pydantic"}
TEXT = {"jinja2"}
LISTED = 180
"""Modules that the longest list of commands takes, as `wirewatch --help`."""
ANSWERED: dict[str, tuple[int, set[str]]] = {
    "check": (160, set()),
    "status": (185, set()),
    "findings": (215, TEXT),
    "topology": (340, READS | TEXT),
    "top": (320, READS),
    "demo overlays": (200, set()),
    "demo recordings": (180, set()),
    "completion": (180, set()),
    "parse": (345, TEXT),
    "advise cost": (330, TEXT),
    "advise nccl-env": (360, TEXT | {"yaml"}),
    "advise bench-script": (260, TEXT),
}
"""Most modules of a command that is run, and the heavy ones that it needs."""
HELP: dict[str, tuple[int, set[str]]] = {
    "parse": (290, set()),
    "advise cost": (290, set()),
    "advise gpu-nic": (290, TEXT),
    "advise nccl-env": (330, {"yaml"}),
    "advise placement": (340, READS),
    "advise bench-script": (260, TEXT),
    "topology": (210, set()),
    "top": (200, set()),
    "status": (185, set()),
    "explain": (180, set()),
    "findings": (185, set()),
    "check": (175, set()),
    "probe": (180, set()),
    "jobs": (180, set()),
    "release": (180, set()),
}
"""The same for a help."""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with beside_a_daemon() as made:
        yield made


def held(code: int, modules: frozenset[str], most: int, needed: set[str]) -> list[str]:
    wrong = [f"{len(modules)} modules"] if len(modules) > most else []
    return [*wrong, *sorted(modules & HEAVY - needed), *([f"exit code {code}"] if code else [])]


def test_each_command_is_bounded() -> None:
    assert every()
    for command in ASKED:
        assert [name for name in ANSWERED if command.startswith(name)], command


@pytest.mark.parametrize("command", ASKED)
def test_a_command_that_is_run(command: str, folder: Path) -> None:
    most, needed = next(bound for name, bound in ANSWERED.items() if command.startswith(name))
    assert held(*loaded(command, folder), most, needed) == []


@pytest.mark.parametrize("name", [name for name in HELPED if name in HELP or name in {"", "advise", "fleet"}])
def test_a_help(name: str, folder: Path) -> None:
    most, needed = HELP.get(name, (LISTED + 20, set[str]()))
    assert held(*loaded(f"{name} --help".strip(), folder), most, needed) == []
