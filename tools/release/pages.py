"""The pages that a package carries: README and all that its links lead to, so that none of them is dead."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from tools.release.source import ReleaseError

FIRST = Path("README.md")
_LINK = re.compile(r"\]\(([^)\s#]+)")


def linked(root: Path) -> frozenset[Path]:
    """Every file, relative to the root, that links lead to from README; of a folder all its files.

    Raises:
        ReleaseError: a link leads to nothing, or out of the root.
    """
    found: set[Path] = set()
    waiting = [FIRST]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        if path.suffix == ".md":
            for link in links(root / path):
                waiting += _files(root, path, link)
    return frozenset(found)


def links(page: Path) -> Iterator[str]:
    """The page's links to files, as they are written, without the place in the file."""
    for link in _LINK.findall(page.read_text("utf-8")):
        if "://" not in link and not link.startswith("mailto:"):
            yield link


def carry(root: Path, folder: Path) -> None:
    """Copy them into a folder, each where it is below the root.

    Raises:
        ReleaseError: as `linked` has it.
    """
    for path in linked(root):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / path, folder / path)


def _files(root: Path, page: Path, link: str) -> Iterator[Path]:
    target = Path(os.path.normpath(page.parent / link))
    if target.parts[:1] == ("..",) or target.is_absolute() or not (root / target).exists():
        raise ReleaseError(f"{page}: the link to {link} leads to nothing")
    if (root / target).is_file():
        yield target
        return
    yield from (path.relative_to(root) for path in sorted((root / target).rglob("*")) if path.is_file())
