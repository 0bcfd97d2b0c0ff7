"""Files that are made from others are as they are made: `make check` and the tests of a release."""

import pytest

from tools import generated


def test_no_file_is_stale() -> None:
    assert list(generated.stale()) == [], "run `make generated`"


def test_a_stale_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    path = generated.ROOT / "docs" / "recordings.md"
    monkeypatch.setattr(generated, "STEPS", (lambda: {path: "other"},))
    assert list(generated.stale()) == [path]
