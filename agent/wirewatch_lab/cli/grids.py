"""Options that name many values at once for a sweep: words, sizes, numbers of GPUs, settings."""

import re

import click

from wirewatch.cli.options import Size
from wirewatch.core.types import whole
from wirewatch_lab.study.grid import powers

MOST_RANKS = 1024
_SETTING = re.compile(r"(NCCL_[A-Z0-9_]+)=(.*)", re.ASCII)
_OPTIONS = {"NCCL_ALGO": "--algorithm", "NCCL_PROTO": "--protocol"}
"""Settings with their own option."""


class Words(click.ParamType[tuple[str, ...]]):
    """Words from a fixed list, separated by commas, in upper or lower case."""

    name = "list"

    def __init__(self, *words: str) -> None:
        self._words = {word.lower(): word for word in words}

    def convert(
        self, value: str | tuple[str, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        given = [word.strip() for word in value.split(",")]
        for word in given:
            if word.lower() not in self._words:
                self.fail(f"{word!r} is not one of {', '.join(self._words.values())}", param, ctx)
        return tuple(dict.fromkeys(self._words[word.lower()] for word in given))


class Sizes(click.ParamType[tuple[int, ...]]):
    """Bytes: a range `FROM:TO[:FACTOR]`, or sizes separated by commas."""

    name = "sizes"

    def convert(
        self, value: str | tuple[int, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        if ":" not in value:
            return tuple(Size(4).convert(part, param, ctx) for part in value.split(","))
        first, last, *factors = value.split(":")
        factor = whole(factors[0]) if factors else 2
        if len(factors) > 1 or factor is None or factor < 2:  # noqa: PLR2004
            self.fail(f"{value!r} is no range: FROM:TO, or FROM:TO:FACTOR, such as 8:8G:2", param, ctx)
        sizes = powers(Size(4).convert(first, param, ctx), Size(4).convert(last, param, ctx), factor)
        if not sizes:
            self.fail(f"{value!r} ends below its beginning", param, ctx)
        return sizes


class Numbers(click.ParamType[tuple[int, ...]]):
    """Numbers of GPUs, separated by commas."""

    name = "numbers"

    def convert(
        self, value: str | tuple[int, ...], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        found = [whole(part.strip()) for part in value.split(",")]
        numbers = [number for number in found if number is not None and 1 < number <= MOST_RANKS]
        if len(numbers) < len(found):
            self.fail(f"{value!r} is not a list of numbers from 2 to {MOST_RANKS}, such as 2,4", param, ctx)
        return tuple(dict.fromkeys(numbers))


class Varied(click.ParamType[tuple[str, tuple[str, ...]]]):
    """An NCCL setting with the values to try in turn; an empty value leaves the setting unchanged."""

    name = "setting"

    def convert(
        self, value: str | tuple[str, tuple[str, ...]], param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> tuple[str, tuple[str, ...]]:  # fmt: skip
        from wirewatch.probe.setup import OURS

        if isinstance(value, tuple):
            return value
        match = _SETTING.fullmatch(value)
        if match is None or not value.isprintable():
            self.fail(f"{value!r} is not NCCL_NAME=VALUE,VALUE,...", param, ctx)
        name, values = match[1], match[2].split(",")
        if name in _OPTIONS or name in OURS:
            why = f"{_OPTIONS[name]} does that" if name in _OPTIONS else "a probe sets it itself"
            self.fail(f"{name} cannot be varied: {why}", param, ctx)
        return name, tuple(dict.fromkeys(values))
