"""`--owner`: who holds the GPUs and asks."""

import click

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
