"""Durations as people write them: `3s`, `10m`, `2h`, `1d`, or seconds without a letter."""

import math
import re

import click

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_FORM = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([smhd]?)", re.ASCII)


class Duration(click.ParamType[float]):
    """Seconds, 0 or more, never infinite."""

    name = "duration"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip().lower()
        found = _FORM.fullmatch(text)
        seconds = float(found[1]) * UNITS[found[2]] if found else math.inf
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is not a duration, such as 3s, 10m, 2h, 1d or 1.5", param, ctx)
        return seconds


KINDS = ("slurm", "pod")


def owner(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    """A callback that lets through what can be an owner.

    Raises:
        UsageError: it is none.
    """
    kind, _, name = (value or "").partition(":")
    if value is not None and (kind not in KINDS or not name.strip()):
        raise click.UsageError("--owner is slurm:ID or pod:UID")
    return value
