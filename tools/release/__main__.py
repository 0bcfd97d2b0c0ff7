"""`make release`: wheel, source archive, chart, Debian packages, image, bills of materials, checksums."""

import argparse
import shlex
import shutil
import sys
from collections.abc import Iterator
from hashlib import file_digest
from pathlib import Path

from tools.release import chart, debian
from tools.release.image import Builder, image
from tools.release.source import BUILD, ROOT, ReleaseError, Source, committed

SUMS = "SHA256SUMS"
BILLS = {"wheel": "", "debian": "-debian", "nccl": "-image"}
"""Bills of materials as tests/ship/bills calls them, and as they are released."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--image", choices=("yes", "no"), default="yes")
    parser.add_argument("--builder", default="docker", help="docker, podman or buildah, and words for it")
    parser.add_argument("--words", default="", help="more words for the build of the image")
    parser.add_argument("--base", default="", help="the image's base, by digest")
    parser.add_argument("--sign", default="", help="a command; the checksums' path is added to it")
    given = parser.parse_args()
    try:
        builder = Builder(given.builder, given.words, given.base) if given.image == "yes" else None
        release(committed(), given.out, builder, given.sign)
    except ReleaseError as error:
        print(f"make release: {error}", file=sys.stderr)
        return 1
    return 0


def release(source: Source, folder: Path, builder: Builder | None, sign: str) -> None:
    """Make all into a folder that is made again.

    Raises:
        ReleaseError: something is missing or fails.
    """
    debian.ready()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    BUILD.mkdir(parents=True, exist_ok=True)
    for path in parts(source, folder, builder):
        print(f"{path.stat().st_size:>11,}  {path.name}", flush=True)
    sums = folder / SUMS
    sums.write_text(checksums(folder), "utf-8")
    if sign:
        source.run(*shlex.split(sign), str(sums))
    print(
        f"{sums}: {'signed' if sign else 'not signed: SIGN=COMMAND is given its path, as in docs/install.md'}"
    )


def parts(source: Source, folder: Path, builder: Builder | None) -> Iterator[Path]:
    """Every file, as it is made."""
    yield from distributions(source, folder)
    packed = chart.package(source, folder)
    yield packed
    yield chart.layout(source, packed, folder)
    yield from debian.packages(source, folder)
    yield from bills(source, folder)
    if builder is not None:
        yield image(source, builder, folder)


def distributions(source: Source, folder: Path) -> tuple[Path, ...]:
    """The wheel and the source archive, of what was committed alone."""
    place = source.tree(BUILD / "python")
    source.run(sys.executable, "-m", "hatchling", "build", "-d", str(folder), cwd=place)
    return tuple(sorted(folder.iterdir()))


def bills(source: Source, folder: Path) -> Iterator[Path]:
    """In CycloneDX: of the wheel with what pip installs, of the Debian packages, of the image."""
    made = BUILD / "bills"
    source.run("tests/ship/bills", str(made))
    for name, released in BILLS.items():
        target = folder / f"wirewatch-{source.version}{released}.cdx.json"
        yield Path(shutil.copy2(made / f"sbom-{name}.cdx.json", target))


def checksums(folder: Path) -> str:
    """As sha256sum prints them."""
    lines = []
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            lines.append(f"{file_digest(file, 'sha256').hexdigest()}  {path.name}\n")
    return "".join(lines)


if __name__ == "__main__":
    sys.exit(main())
