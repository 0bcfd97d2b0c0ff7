"""Options that several commands share, and what their values look like."""

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wirewatch.cli.completion import overlay_names, recording_names

if TYPE_CHECKING:
    from collections.abc import Callable

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
KINDS = ("slurm", "pod")
_FORM = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([smhd]?)", re.ASCII)


class Duration(click.ParamType[float]):
    """Seconds, 0 or more and finite, written as `3s`, `10m`, `2h`, `1d`, or without a letter."""

    name = "duration"

    def convert(self, value: str | float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        text = str(value).strip().lower()
        found = _FORM.fullmatch(text)
        seconds = float(found[1]) * UNITS[found[2]] if found else math.inf
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is not a duration, such as 3s, 10m, 2h, 1d or 1.5", param, ctx)
        return seconds


class FiniteRange(click.FloatRange):
    """A finite number in a range; click's own takes `nan`, which lies in every range, and `inf`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


def owner(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    """A callback that checks the owner of GPUs.

    Raises:
        UsageError: the value is neither slurm:ID nor pod:UID.
    """
    kind, _, name = (value or "").partition(":")
    if value is not None and (kind not in KINDS or not name.strip()):
        raise click.UsageError("--owner must be slurm:ID or pod:UID")
    return value


def percent(_context: click.Context, option: click.Parameter, value: float | None) -> float | None:
    """A callback that checks a percentage.

    Raises:
        UsageError: it is not above 0, or not finite.
    """
    if value is not None and not (math.isfinite(value) and value > 0):
        raise click.UsageError(f"{option.opts[0]} must be above 0, not {value}")
    return value


def named_recording(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    """A callback that refuses an empty name, such as of a variable that is not set: it would mean this node.

    Raises:
        UsageError: the name is empty.
    """
    if value is not None and not value.strip():
        raise click.UsageError(
            "--replay names no recording; `wirewatch recordings list` lists the bundled ones"
        )
    return value


def daemon_options(command: "Callable[..., None]") -> "Callable[..., None]":
    """Add the options that say which daemon is asked: --config and --socket."""
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
        "--replay",
        callback=named_recording,
        shell_complete=recording_names,
        help="Play a recording instead: a folder, or the name of a bundled one.",
    )
    overlay = click.option(
        "--overlay", "overlays", multiple=True, shell_complete=overlay_names,
        help="Change the recording: a TOML file, or the name of a bundled fault; repeatable.",
    )  # fmt: skip
    return replay(overlay(command))
