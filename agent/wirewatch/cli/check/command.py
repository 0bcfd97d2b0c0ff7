"""`wirewatch check`: may a job start here. Answers in milliseconds, and always by its deadline."""

import gc
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

from wirewatch.cli.check.answer import Terms, decide, document, line
from wirewatch.cli.check.daemon import Attempt, Wanted, Work, leave, stderr_of_our_own
from wirewatch.cli.options import Duration
from wirewatch.cli.options import owner as an_owner
from wirewatch.core.types import Health

RESERVE, PART = 0.5, 0.15
"""Seconds, but at most a part of the deadline, for the interpreter's start before us and its end after us."""
BAD = {"failed": Health.FAILED, "unknown": Health.UNKNOWN, "degraded": Health.DEGRADED}


class Healths(click.ParamType[frozenset[Health]]):
    """A list of healths, with commas; FAILED belongs to each: nothing better stops what it lets pass."""

    name = "healths"

    def convert(
        self, value: str | frozenset[Health], param: click.Parameter | None, ctx: click.Context | None
    ) -> frozenset[Health]:
        names = [] if isinstance(value, frozenset) else [name.strip().lower() for name in value.split(",")]
        for name in names:
            if name not in BAD:
                self.fail(f"{name!r} is none of {', '.join(BAD)}", param, ctx)
        return value if isinstance(value, frozenset) else frozenset({Health.FAILED, *(BAD[n] for n in names)})


def _above_zero(_context: click.Context, option: click.Parameter, value: float) -> float:
    if value <= 0:
        raise click.BadParameter("must be above 0 s", param=option)
    return value


@click.command()
@click.option("--config", type=click.Path(path_type=Path), help="TOML file, the daemon's.")
@click.option("--socket", help="Path of the daemon's socket, instead of the configuration's.")
@click.option("--max-age", type=Duration(), help="Of the last probe, such as 2h; else as the daemon has it.")
@click.option(
    "--deadline",
    type=Duration(),
    default="3s",
    show_default=True,
    callback=_above_zero,
    help="For an answer, whatever hangs.",
)
@click.option(
    "--fail-on",
    type=Healths(),
    default="failed",
    show_default=True,
    help="Healths that end in another exit code than 0: failed[,unknown,degraded].",
)
@click.option(
    "--owner",
    callback=an_owner,
    help="slurm:ID or pod:UID that holds the GPUs: probe them if the last probe is old.",
)
@click.option("--cached", is_flag=True, help="The daemon's word or UNKNOWN: look at nothing.")
@click.option("--require-fresh-probe", "require", is_flag=True, help="An old or missing probe blocks.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of a line.")
@click.option("--replay", help="Look at a recording instead: a folder, or the name of a bundled one.")
@click.option("--overlay", "overlays", multiple=True, help="Change the recording; repeatable.")
@click.pass_context
def check(
    context: click.Context, *, config: Path | None, socket: str | None, max_age: float | None,
    deadline: float, fail_on: frozenset[Health], owner: str | None, cached: bool, require: bool,
    as_json: bool, replay: str | None, overlays: Sequence[str],
) -> None:  # fmt: skip
    """Say whether a job may start on this node: by the daemon's word, else after a look of its own.

    Exit code 0 unless the health is one of --fail-on: then 1 DEGRADED, 2 FAILED, 3 UNKNOWN. An answer that
    takes longer than the deadline is UNKNOWN.
    """
    began: float | None = context.find_object(float)
    end = (time.monotonic() if began is None else began) + deadline - min(RESERVE, deadline * PART)
    if overlays and not replay:
        raise click.UsageError("--overlay changes a recording: give --replay too")
    if cached and (replay or owner):
        raise click.UsageError("--cached looks at nothing: it goes with neither --replay nor --owner")
    terms = Terms(fail_on, max_age, require)
    wanted = Wanted(end, config, socket, max_age, owner, cached, replay, tuple(overlays))
    verbose = bool(context.find_root().params.get("verbose"))
    _answer(wanted, terms, as_json=as_json, verbose=verbose)


def _answer(wanted: Wanted, terms: Terms, *, as_json: bool, verbose: bool) -> NoReturn:
    """Print the answer and end the process: to take an interpreter apart costs a sixth of all the time."""

    def settle_in() -> None:
        gc.enable()
        stderr_of_our_own(verbose=verbose)

    attempt = Attempt(wanted, settle_in)
    work = Work(attempt.run, attempt.tidy)
    try:
        grounds, in_time = work.outcome(wanted.end - time.monotonic()), True
    except TimeoutError:
        grounds, in_time = attempt.sofar(), False
    answer = decide(grounds, terms, time.time())
    click.echo(json.dumps(document(answer), indent=1) if as_json else line(answer))
    if not in_time or not work.ended(wanted.end - time.monotonic()):
        attempt.shoot()
    leave(answer.code)
