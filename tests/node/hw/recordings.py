"""Small recordings and overlays, and a play whose time the tests set."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from wirewatch.core.ports import Answer
from wirewatch.core.types import Absent, Json
from wirewatch.hw.overlay import Player, load_overlay
from wirewatch.hw.recording import Key, Recording

Told = Mapping[int, Json | Absent]
"""Answers by moment."""


@dataclass
class Time:
    """Seconds that pass when a test says so; called, it returns them."""

    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


def recording(times: Sequence[float], told: Mapping[Key, Told]) -> Recording:
    answers = {key: tuple((n, Answer(v, 1.0)) for n, v in sorted(t.items())) for key, t in told.items()}
    return Recording("small", {}, tuple(times), answers)


def overlay_file(folder: Path, text: str, name: str = "fault") -> str:
    path = folder / f"{name}.toml"
    path.write_text(text, "utf-8")
    return str(path)


def one_change(folder: Path, line: str, match: str = "gpu0/PowerUsage()", port: str = "nvml") -> str:
    """An overlay of one change, `line` holding its action and times."""
    return overlay_file(folder, f'[[change]]\nport = "{port}"\nmatch = "{match}"\n{line}\n')


def player(played: Recording, time: Time, *overlays: str, loop: bool = False, strict: bool = True) -> Player:
    return Player(played, time, tuple(load_overlay(o) for o in overlays), loop=loop, strict=strict)
