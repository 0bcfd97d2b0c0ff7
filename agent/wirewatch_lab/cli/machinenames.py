"""How all lab commands name a machine: a description, a file, a recording, or `here`."""

import re
from collections.abc import Callable
from pathlib import Path

import click

HERE = "here"
MACHINE = {"--topology": "--machine"}
"""Former names of the option."""
_DESCRIPTION = re.compile(r"\s*\d+\s*x", re.ASCII | re.IGNORECASE)


def named_machine(text: str | None) -> tuple[str | None, str | None]:
    """Return the target of --machine: a recording, file or HERE; else a description."""
    from wirewatch.cli.topologies import is_recording

    if text is None:
        return None, None
    described = _DESCRIPTION.match(text) or not (text == HERE or Path(text).suffix or "/" in text)
    return (None, text) if described and not is_recording(text) and not Path(text).exists() else (text, None)


def machine_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add --machine, which is the same in all commands; see `named_machine` for its values."""
    return click.option(
        "--machine", metavar="MACHINE",
        help="A description (8xH100, 8xH100+8xNDR, 8xH100+p5, 4xL40S+2x100G, 72xGB200), a document of "
        "`topology show --json`, a topology file of NCCL, a recording, or `here` for this node.",
    )(command)  # fmt: skip
