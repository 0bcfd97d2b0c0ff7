"""The Debian packages' wheels where no index is: docs/install.md to the letter, but for folder and Python."""

import re
import shutil
from pathlib import Path

from proof.containers import run
from proof.release.node import LOADS
from proof.release.place import PLACE, PYTHONS, package, python
from proof.release.pythons import serves
from tools.release.pages import linked
from tools.version import ROOT

SECTION = "## Without a network"
HERE = PLACE / "carried"


def carried() -> str:
    """Unpacked both ways, and installed on each Python."""
    by_dpkg, by_ar = blocks((ROOT / "docs/install.md").read_text("utf-8"))
    unpacked = [line for line in by_dpkg if line.startswith("dpkg-deb ")]
    installed = [line for line in by_dpkg if line not in unpacked]
    trees = []
    for name, lines in (("dpkg", unpacked), ("ar", by_ar)):
        trees.append(fresh(HERE / name))
        typed(lines, trees[-1])
    run("diff", "--recursive", "--no-dereference", *(str(tree / "carried") for tree in trees))
    pages = linked(trees[-1] / "carried/usr/share/doc/wirewatch")
    engines = set()
    for number in PYTHONS:
        place = HERE / f"venv-{number}"
        shutil.rmtree(place, ignore_errors=True)
        here = {"/opt/wirewatch": str(place), "python3 ": f"{python(number)} "}
        typed(installed, trees[-1], **here)
        engines.add(int(run(str(place / "bin/python"), "-c", LOADS)))
        serves(place)
        shutil.rmtree(place)
    (engine,) = engines
    told = f"{engine // 10000}.{engine // 100 % 100}.{engine % 100}"
    return (
        "unpacked by dpkg-deb and by ar, which gives the same; README's links, and those of the pages that "
        f"they lead to, lead to {len(pages)} files that are there; installed with no index on "
        f"{', '.join(PYTHONS)}: it serves, and NCCL {told} loads"
    )


def blocks(page: str) -> list[list[str]]:
    """The section's lines to type, block by block."""
    section = page.partition(f"\n{SECTION}\n")[2].partition("\n## ")[0]
    return [
        block.splitlines() for block in re.findall(r"^```bash\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    ]


def fresh(folder: Path) -> Path:
    """A folder that holds the packages and nothing else."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ("wirewatch", "wirewatch-nccl"):
        (folder / package(name).name).symlink_to(package(name))
    return folder


def typed(lines: list[str], folder: Path, **other: str) -> None:
    """These lines in a shell, with some of their words replaced."""
    text = "\n".join(lines)
    for word, instead in other.items():
        text = text.replace(word, instead)
    run("env", "-C", str(folder), "bash", "-euo", "pipefail", "-c", text)
