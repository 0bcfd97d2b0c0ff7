"""`make image`: what is shipped stands on a base that cannot move."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DIGEST = f"docker.io/library/python@sha256:{'0a' * 32}"


def make(base: str) -> "subprocess.CompletedProcess[str]":
    """With `echo` in the place of the builder."""
    words = ["make", "--no-print-directory", "image", "BUILDER=@echo", f"BASE={base}", "TAG=x:1"]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("base", ["", "python:3.12-slim-bookworm", "python@sha256:0a", f"{DIGEST}x"])
def test_a_base_that_may_move_is_refused(base: str) -> None:
    done = make(base)
    assert done.returncode != 0
    assert "BASE=NAME@sha256:" in done.stderr
    assert done.stdout == ""


def test_a_base_by_digest_is_built_on() -> None:
    done = make(DIGEST)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"build --target nccl --build-arg BASE={DIGEST} ")
