"""`make release` in a clean clone, twice, signed. Each step asserts, and says what was seen."""

import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import file_digest
from pathlib import Path

from proof.containers import run, store
from proof.image import builder
from proof.release.place import CLONE, DIST, PLACE, clone, make, typed
from tools.release.image import Builder

KB, MB = 1e3, 1e6
KEY = """
%no-protection
Key-Type: eddsa
Key-Curve: ed25519
Name-Email: release@example.org
Expire-Date: 1d
%commit
"""


def made() -> str:
    """All of it, with the base of e2e-image in the place of python:3.12-slim-bookworm."""
    builder.prepare()
    clone()
    told = Builder(f"buildah {' '.join(store(builder.PLACE))}", shlex.join(builder.how()), builder.base())
    with key() as gpg:
        sign = f"{shlex.join(gpg)} --armor --detach-sign"
        *_, last = make(
            "release", f"BUILDER={told.program}", f"WORDS={told.words}", f"BASE={told.base}", f"SIGN={sign}"
        )
        assert last.endswith("SHA256SUMS: signed"), last
        run(*gpg, "--verify", str(DIST / "SHA256SUMS.asc"), str(DIST / "SHA256SUMS"))
    run("sh", "-c", f"cd {DIST} && sha256sum --check --strict --quiet SHA256SUMS")
    files = ", ".join(f"{path.name} ({size(path)})" for path in sorted(DIST.iterdir()))
    return f"{files}; the checksums fit, and so does a signature of a key that was made for it"


@contextmanager
def key() -> Iterator[tuple[str, ...]]:
    """gpg with a new key. Its agent is ended: one whose folder is gone takes the next one's socket along."""
    with tempfile.TemporaryDirectory() as home:
        gpg = ("gpg", "--homedir", home, "--batch")
        (Path(home) / "key").write_text(KEY, "ascii")
        try:
            run(*gpg, "--quiet", "--generate-key", f"{home}/key")
            yield gpg
        finally:
            run("gpgconf", "--homedir", home, "--kill", "gpg-agent")


def size(path: Path) -> str:
    found = path.stat().st_size
    return f"{found / MB:.1f} MB" if found >= MB else f"{found / KB:.1f} kB"


def again() -> str:
    """A second time, the image left out: its layers are kept by the builder, which would show nothing."""
    before = digests(DIST)
    second = PLACE / "second"
    run("rm", "-rf", str(second))
    run(
        "env", "-C", str(CLONE), str(CLONE / ".venv/bin/python"), "-m", "tools.release", "--image", "no",
        "--out", str(second), seconds=1800,
    )  # fmt: skip
    after = digests(second)
    assert set(after) == {name for name in before if not name.endswith(("image.oci.tar", ".asc"))}
    other = [name for name, digest in after.items() if before[name] != digest and name != "SHA256SUMS"]
    same = len(after) - len(other) - 1
    told = f"; not {', '.join(other)}" if other else ""
    return (
        f"{same} of {len(after) - 1} files are equal to the last byte{told}; the image is not compared: "
        "pip's compiled modules in it carry the time of their installation"
    )


def refused() -> str:
    """What cannot be made again is not made."""
    readme = CLONE / "README.md"
    text = readme.read_text("utf-8")
    readme.write_text(f"{text}\n", "utf-8")
    try:
        lines = failing("release", "IMAGE=no")
    finally:
        readme.write_text(text, "utf-8")
    assert lines[0] == "make release: not committed: README.md", lines
    lines = failing("release")
    assert "BASE=NAME@sha256:" in lines[0], lines
    return f"a changed tree, and an image without a base by digest: `{lines[0]}`"


def failing(*words: str) -> list[str]:
    """What `make` says on standard error where it must fail."""
    done = typed(*words)
    assert done.returncode != 0
    return done.stderr.splitlines()


def digests(folder: Path) -> dict[str, str]:
    found = {}
    for path in sorted(folder.iterdir()):
        with path.open("rb") as opened:
            found[path.name] = file_digest(opened, "sha256").hexdigest()
    return found
