"""The image as an archive of OCI, by docker, podman or buildah."""

import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from tools.release.source import BUILD, ReleaseError, Source

DIGEST = re.compile(r"[^@]+@sha256:[0-9a-f]{64}")
TARGET = "nccl"


@dataclass(frozen=True, slots=True)
class Builder:
    """The program with words that go before its command, words for the build, and the base by its digest.

    Raises:
        ReleaseError: the base may move, or the program is not there.
    """

    program: str
    words: str
    base: str

    def __post_init__(self) -> None:
        if not DIGEST.fullmatch(self.base):
            raise ReleaseError(
                "BASE=NAME@sha256:... names the image's base, see docs/install.md; IMAGE=no leaves it out"
            )
        words = shlex.split(self.program)
        if not words or shutil.which(words[0]) is None:
            raise ReleaseError(
                f"{self.program} is not installed: BUILDER names another; IMAGE=no leaves the image out"
            )


def image(source: Source, builder: Builder, folder: Path) -> Path:
    """wirewatch-VERSION-image.oci.tar, of the target `nccl`.

    Raises:
        ReleaseError: it cannot be built.
    """
    place = source.tree(BUILD / "image")
    target = folder / f"wirewatch-{source.version}-image.oci.tar"
    name = f"localhost/wirewatch:{source.version}"
    told = (
        "--target", TARGET, "--build-arg", f"BASE={builder.base}", "--build-arg",
        f"REVISION={source.revision}", *shlex.split(builder.words),
    )  # fmt: skip
    program = shlex.split(builder.program)
    if Path(program[0]).name == "docker":
        source.run(*program, "buildx", "build", *told, "--output", f"type=oci,dest={target}", str(place))
        return target
    source.run(*program, "build", *told, "--tag", name, str(place))
    source.run(*program, "push", "--quiet", name, f"oci-archive:{target}:{source.version}")
    return target
