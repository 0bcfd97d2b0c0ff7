"""Probers whose workers are real, and short of patience."""

import tempfile
from pathlib import Path

import pytest

from tests.node.probe.rig import Rig
from wirewatch.probe import launcher


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """With workers that are given up sooner than in service, and temporary folders in one of our own."""
    monkeypatch.setattr(launcher, "KILL_SECONDS", 0.3)
    monkeypatch.setattr(launcher, "QUIET", 0.3)
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return Rig(tmp_path)
