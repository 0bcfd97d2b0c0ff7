"""The version is in pyproject.toml, and every other file has it from there."""

import pytest

from tools import version
from wirewatch import __version__


def test_every_file_says_the_version_of_the_project() -> None:
    assert __version__ == version.version()
    for path, text in version.made().items():
        assert path.read_text("utf-8") == text, f"{path}: run `make generated`"


def test_another_version_is_brought_to_every_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "version", lambda: "7.8.9")
    made = version.made()
    assert len(made) == len(version.PLACES)
    assert all("7.8.9" in text for text in made.values())
    chart = made[version.ROOT / "helm/wirewatch/Chart.yaml"]
    assert "\nversion: 7.8.9\nappVersion: 7.8.9\n" in chart


def test_a_file_that_does_not_say_it_any_more_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "PLACES", {"LICENSE": r"^version (1)$"})
    with pytest.raises(AssertionError, match="LICENSE does not say the version"):
        version.made()
