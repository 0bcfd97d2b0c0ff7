"""Options that several commands share, and the form of their values."""

import math
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wirewatch.cli.completion import overlay_names, recording_names
from wirewatch.core.amounts import seconds, size, time_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

KINDS = ("slurm", "pod")
MOST_BYTES = 1 << 50
SHOWN = 40
"""Characters of a wrong value that an error repeats."""


class Duration(click.ParamType[float]):
    """Seconds, finite, written as `3s`, `10m`, `2h`, `1d`, or without a letter; 0 or more, or in a range."""

    name = "duration"

    def __init__(self, least: float = 0.0, most: float = math.inf, *, above_zero: bool = False) -> None:
        self._least, self._most, self._above_zero = least, most, above_zero

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        given = seconds(str(value))
        wanted = math.inf if given is None else given
        within = self._least <= wanted <= self._most and (wanted > 0 or not self._above_zero)
        if not (math.isfinite(wanted) and within):
            said = f"{str(value)[:SHOWN]!r} is not a duration{self._range()}, such as 3s, 10m, 2h, 1d or 1.5"
            self.fail(said, param, ctx)
        return wanted

    def _range(self) -> str:
        least = " above 0" if self._above_zero else f" of {time_text(self._least)} or more"
        least = least if self._above_zero or self._least else ""
        most = f" of at most {time_text(self._most)}" if math.isfinite(self._most) else ""
        return f"{least} and{most.removeprefix(' of')}" if least and most else least or most


class Size(click.ParamType[int]):
    """Bytes, written as `64MiB`, `64M` (the same), `64MB` (of powers of 1000), or without letters."""

    name = "size"

    def __init__(self, multiple_of: int = 1) -> None:
        self._multiple_of = multiple_of

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        found = size(str(value)) or 0
        if not 1 <= found <= MOST_BYTES or found % self._multiple_of:
            several = f": a multiple of {self._multiple_of} bytes" if self._multiple_of > 1 else ""
            self.fail(
                f"{str(value)[:SHOWN]!r} is not a size{several}, such as 16KiB, 256M or 1GB", param, ctx
            )
        return found


def span(bounds: click.IntRange | click.FloatRange) -> str:
    """Return the words for a range, such as `from 1 to 50`; empty for a range without bounds."""
    low, high = bounds.min, bounds.max
    if low is not None and high is not None and not bounds.min_open:
        return f" from {low:.12g} to {high:.12g}"
    above = "" if low is None else f" above {low:.12g}" if bounds.min_open else f" of {low:.12g} or more"
    most = "" if high is None else f" of at most {high:.12g}"
    return f"{above} and{most.removeprefix(' of')}" if above and most else above or most


class WholeNumber(click.IntRange):
    """A whole number in a range; the error gives the range."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return super().convert(value, None, None)
        except click.BadParameter:
            self.fail(f"{str(value)[:SHOWN]!r} is not a whole number{span(self)}", param, ctx)


class FiniteNumber(click.FloatRange):
    """A finite number in a range; click's own takes `nan`, which lies in every range, and `inf`."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = math.nan
        with suppress(click.BadParameter):
            number = super().convert(value, None, None)
        if not math.isfinite(number):
            self.fail(f"{str(value)[:SHOWN]!r} is not a number{span(self)}", param, ctx)
        return number


class Date(click.DateTime):
    """A date, or a date and time, in UTC."""

    def __init__(self) -> None:
        super().__init__(("%Y-%m-%d", "%Y-%m-%dT%H:%M"))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        try:
            return super().convert(value, None, None)
        except click.BadParameter:
            said = f"{str(value)[:SHOWN]!r} is not a date, such as 2027-01-31 or 2027-01-31T18:00"
            self.fail(said, param, ctx)


class ExistingFile(click.Path):
    """A file that is there and can be read."""

    def __init__(self) -> None:
        super().__init__(exists=True, dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, None, None)
        except click.BadParameter as error:
            self.fail(error.message[:1].lower() + error.message[1:], param, ctx)


def owner(_context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """Return the owner of GPUs, slurm:ID or pod:UID; raise BadParameter for anything else."""
    kind, _, name = (value or "").partition(":")
    if value is not None and (kind not in KINDS or not name.strip()):
        raise click.BadParameter(f"{value!r} is neither slurm:ID nor pod:UID", param=option)
    return value


def named_recording(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    """Refuse an empty name with a UsageError: it comes from an unset variable, and would mean this node."""
    if value is not None and not value.strip():
        listed = "`wirewatch demo recordings` lists the bundled ones"
        raise click.UsageError(f"--replay names no recording; {listed}")
    return value


def of_recording(context: click.Context, _option: click.Parameter, value: "Sequence[str]") -> "Sequence[str]":
    """Refuse overlays without a recording with a UsageError; `demo --here` may still choose one."""
    if value and not (context.params.get("replay") or context.params.get("demo")):
        raise click.UsageError("--overlay changes a recording: give --replay too")
    return value


def daemon_options(command: "Callable[..., None]") -> "Callable[..., None]":
    """Add the options that choose the daemon: --config and --socket."""
    config = click.option("--config", type=click.Path(path_type=Path), help="The daemon's TOML file.")
    socket = click.option("--socket", help="The daemon's socket, instead of the configured one.")
    return config(socket(command))


def config_option(command: "Callable[..., None]") -> "Callable[..., None]":
    """Add --config, as `config_file`."""
    kind = click.Path(path_type=Path)
    return click.option("--config", "config_file", type=kind, help="TOML file of the configuration.")(command)


def replay_options(command: "Callable[..., None]") -> "Callable[..., None]":
    """Add the options that play a recording: --replay, and --overlay as `overlays`."""
    replay = click.option(
        "--replay", callback=named_recording, is_eager=True, shell_complete=recording_names,
        help="Play a recording instead: a folder, or the name of a bundled one.",
    )  # fmt: skip
    overlay = click.option(
        "--overlay", "overlays", multiple=True, callback=of_recording, shell_complete=overlay_names,
        help="Change the recording: a TOML file, or the name of a bundled fault; repeatable.",
    )  # fmt: skip
    return replay(overlay(command))
