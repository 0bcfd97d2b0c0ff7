"""`make e2e-release` types make in a clone as a user does, though it is started by make itself."""

from pathlib import Path

import pytest

from proof.release.place import typed


def test_a_make_in_the_clone_knows_nothing_of_the_make_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Makefile").write_text("STEPS = none\nall:\n\t@echo $(STEPS)\n\t@exit 1\n", "ascii")
    monkeypatch.setenv("MAKELEVEL", "1")
    monkeypatch.setenv("MAKEFLAGS", " -- STEPS=README")
    done = typed(cwd=tmp_path)
    assert done.stdout == "none\n"
    assert done.stderr.startswith("make: *** "), done.stderr
