"""A played job: one process a rank, each with the tap and a GPU of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from proof.played.score import Score

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).with_name("standin.c")
START = 0.5
"""Seconds that all ranks are given to start."""
END = 20.0


@dataclass(frozen=True)
class PlayedLibraries:
    """The tap, and what stands in for the libraries that it asks."""

    tap: Path
    standin: Path


def build(folder: Path) -> PlayedLibraries:
    """Compile the stand-in into a folder, and the tap by `make tap` where it is out of date.

    Raises:
        subprocess.CalledProcessError: it does not compile.
    """
    standin = folder / "libcuda.so.1"
    words = ("cc", "-shared", "-fPIC", "-O1", "-Wl,-soname,libcuda.so.1", "-o", str(standin), str(SOURCE))
    subprocess.run(words, check=True)
    subprocess.run(("make", "--silent", "tap"), cwd=ROOT, check=True)
    return PlayedLibraries(ROOT / "build" / "tap" / "libwirewatch-tap.so", standin)


class PlayedJob:
    """The ranks of a score on GPUs of these UUIDs, from the start of the block to its end.

    Args:
        libraries: what each rank loads.
        rings: the folder for the rings.
        budget: calls a second that are timed in each rank.
        settings: NCCL's, as they stand in the environment of the ranks.
    """

    def __init__(
        self, libraries: PlayedLibraries, rings: Path, score: Score, gpus: Sequence[str],
        budget: int = 50, settings: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        if len(gpus) != score.ranks:
            raise ValueError(f"{score.ranks} ranks need as many GPUs, not {len(gpus)}")
        environment = {
            **os.environ, **(settings or {}), "WIREWATCH_TAP_DIR": str(rings),
            "WIREWATCH_TAP_BUDGET": str(budget),
        }  # fmt: skip
        begin = str(time.monotonic() + START)
        common = (str(libraries.tap), str(libraries.standin), begin, score.text())
        self.ranks = [
            subprocess.Popen(
                (sys.executable, "-m", "proof.played.rank", str(rank), *common), cwd=ROOT,
                env={**environment, "PLAYED_GPU_UUID": gpu}, stdout=subprocess.PIPE, text=True,
            )
            for rank, gpu in enumerate(gpus)
        ]  # fmt: skip

    @property
    def pids(self) -> list[int]:
        """The processes, by rank."""
        return [rank.pid for rank in self.ranks]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for rank in self.ranks:
            if rank.poll() is None:
                rank.kill()
            rank.communicate()

    def stop(self) -> list[tuple[int, str]]:
        """End in good order; the exit status of each rank, and the lines that the tap logged in it."""
        for rank in self.ranks:
            if rank.poll() is None:
                rank.send_signal(signal.SIGTERM)
        said = [rank.communicate(timeout=END)[0] for rank in self.ranks]
        return [(rank.returncode, text) for rank, text in zip(self.ranks, said, strict=True)]
