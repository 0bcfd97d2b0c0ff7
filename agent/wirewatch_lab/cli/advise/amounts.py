"""Amounts on the command line: counts in billions, and models by name."""

import math
import re
from collections.abc import Callable

import click

from wirewatch.core.names import did_you_mean
from wirewatch_lab.advice.shapes import SHAPES

_COUNT = re.compile(r"(\d{1,15}(?:\.\d{1,6})?(?:e\d{1,2})?) ?([KMBT]?)", re.ASCII | re.IGNORECASE)
_COUNTS = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
MOST_COUNT = 1e15


_LATENT = re.compile(r"deepseek.?(v[23]|r1|coder.?v2)|kimi.?k2", re.ASCII | re.IGNORECASE)
_LATENT_WHY = "its cache is one vector a token for all heads, and no cost here is right for it"


class Count(click.ParamType[float]):
    """A number above 0, with K, M, B or T for thousands, millions, billions and trillions."""

    name = "count"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = _COUNT.fullmatch(str(value).strip())
        count = float(found[1]) * _COUNTS[found[2].upper()] if found else math.nan
        if not 0 < count <= MOST_COUNT:
            self.fail(f"{str(value)[:40]!r} is not a count, such as 7B, 70B or 1.5e9", param, ctx)
        return count


class ModelName(click.Choice[str]):
    """A published architecture, in letters of any case; for a slip the nearest names."""

    def __init__(self) -> None:
        super().__init__([one.name for one in SHAPES], case_sensitive=False)

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        known = [one.name for one in SHAPES]
        if _LATENT.search(value):
            self.fail(f"{value[:40]!r} has latent attention (MLA): {_LATENT_WHY}", param, ctx)
        if value.lower() not in known and (meant := did_you_mean(value.lower(), known, "")):
            self.fail(f"no model {value[:40]!r} is known: {meant}", param, ctx)
        return super().convert(value, param, ctx)


def refused(name: str, what: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return an option that is refused with a message: no cost is known for a layout with it."""

    def refuse(_context: click.Context, _param: click.Parameter, value: str | None) -> None:
        if value is not None:
            raise click.UsageError(
                f"--{name}: {what} is neither placed nor costed here; give the job without"
            )

    return click.option(f"--{name}", callback=refuse, expose_value=False, hidden=True)


EXPERTS_OR_CONTEXT = (
    refused("ep", "expert parallelism (all-to-alls of unevenly chosen experts)"),
    refused("cp", "context parallelism (keys and values passed round a ring)"),
)
"""Kinds of parallelism that the costs here do not cover."""


def options(
    *several: Callable[[Callable[..., None]], Callable[..., None]],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds these options to a command, in their order."""

    def add(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(several):
            command = option(command)
        return command

    return add


def compared(least: float, most: float) -> str:
    """Return the difference between two shares in words, or that it is undecided."""
    if least <= 0 <= most:
        return "the same" if least == most else f"not decided: {between(least, most)}"
    return f"{shares(*sorted((abs(least), abs(most))))} {'more' if least > 0 else 'less'}"


def between(least: float, most: float) -> str:
    """Return two shares on opposite sides of 0."""
    return f"between {round(least * 100):+d} and {round(most * 100):+d} %"


def shares(least: float, most: float) -> str:
    """Return two shares, or a single share where both look alike."""
    ends = dict.fromkeys(f"{one * 100:.0f}" for one in (least, most))
    return f"{' to '.join(ends)} %"
