"""How our own modules are started as processes: the words, and where Python looks for modules then."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.processes import ROOT
from wirewatch.hw.interpreter import absolute, module_places, python


@pytest.mark.parametrize(
    ("environment", "site", "options"),
    [(0, 0, ()), (1, 0, ("-E",)), (0, 1, ("-s",)), (1, 1, ("-E", "-s"))],
)
def test_a_python_of_ours_ignores_what_this_one_does(
    monkeypatch: pytest.MonkeyPatch, environment: int, site: int, options: tuple[str, ...]
) -> None:
    monkeypatch.setattr(sys, "flags", SimpleNamespace(ignore_environment=environment, no_user_site=site))
    assert python("-m", "ours") == (sys.executable, "-P", *options, "-m", "ours")


def test_a_path_is_the_same_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute(f"..{os.sep}x") == str(tmp_path.parent / "x")


@pytest.mark.parametrize(
    ("given", "places"),
    [
        (None, None), ("", None), (":", None), ("/site:/more", "/site:/more"), ("/site::", "/site"),
        ("agent", "HERE/agent"), (":agent:/site", "HERE/agent:/site"), (".", "HERE"), ("../x", "UP/x"),
    ],
)  # fmt: skip
def test_places_of_modules_that_an_administrator_names_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str | None, places: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    made = module_places({"HOME": "/root", **({} if given is None else {"PYTHONPATH": given})})
    wanted = (
        None if places is None else places.replace("HERE", str(tmp_path)).replace("UP", str(tmp_path.parent))
    )
    assert made == {"HOME": "/root", **({} if wanted is None else {"PYTHONPATH": wanted})}


def test_wirewatch_is_found_where_it_was_started_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT / "agent")
    assert module_places({"PYTHONPATH": "/site"})["PYTHONPATH"] == f"{ROOT / 'agent'}:/site"
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert module_places({"PYTHONPATH": "/site"})["PYTHONPATH"] == "/site"
