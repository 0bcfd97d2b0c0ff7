"""What a drawing consists of: boxes, wires and frames at their places, in the user units of an SVG."""

from dataclasses import dataclass
from typing import Literal

Look = Literal["plain", "good", "warn", "unknown", "bad", "quiet"]

WIDE = 720.0


@dataclass(frozen=True, slots=True)
class Box:
    """A part: `text` in its middle, `note` below that."""

    x: float
    y: float
    width: float
    height: float
    text: str
    note: str = ""
    look: Look = "plain"


@dataclass(frozen=True, slots=True)
class Wire:
    """A line, or a curve that bends upwards by `bend`; `text` is at its middle, with a cross if `broken`."""

    x1: float
    y1: float
    x2: float
    y2: float
    text: str = ""
    look: Look = "plain"
    broken: bool = False
    bend: float = 0.0

    @property
    def middle(self) -> tuple[float, float]:
        return (self.x1 + self.x2) / 2, (self.y1 + self.y2) / 2 - self.bend / 2


@dataclass(frozen=True, slots=True)
class Frame:
    """What belongs together, with its name at the lower left."""

    x: float
    y: float
    width: float
    height: float
    text: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """`title` says what it is, `words` the same in sentences, for who cannot see it."""

    title: str
    width: float
    height: float
    frames: tuple[Frame, ...]
    wires: tuple[Wire, ...]
    boxes: tuple[Box, ...]
    words: tuple[str, ...]

    @property
    def wide(self) -> bool:
        """Whether it would be too small to read on a phone, and should be scrolled there."""
        return self.width > WIDE
