"""Guards that no caller can bring about: locks that another thread holds, and calls into libc that fail."""

import subprocess
from pathlib import Path

import pytest

from tests.node.jobs.tap.playing import built, environment
from tests.patience import HANGS


@pytest.mark.parametrize("kind", ["PLAIN", "ADDRESS"])
def test_each_guard_alone_refuses(folder: Path, kind: str) -> None:
    """guards.c names what does not hold; no ring stays in the folder."""
    ran = subprocess.run(
        [built(kind) / "guards"], capture_output=True, text=True, timeout=HANGS, check=False,
        env=environment(folder, WIREWATCH_TAP_UNMEASURED="1"),
    )  # fmt: skip
    assert (ran.stdout, ran.stderr, ran.returncode) == ("", "", 0)
    assert list(folder.iterdir()) == []
