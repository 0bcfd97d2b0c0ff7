"""`wirewatch compare A B`: what changed between two studies, for a person or a script."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

import click

from wirewatch.cli.groups import examples
from wirewatch.cli.options import FiniteNumber
from wirewatch.core.exits import exit_of
from wirewatch.core.words import count
from wirewatch.documents.health import HEALTH_NAMES
from wirewatch_lab.cli.parse import read_output
from wirewatch_lab.cli.texts import first_lines, written
from wirewatch_lab.study import compare as comparing
from wirewatch_lab.study.curve import Study
from wirewatch_lab.study.export import read_study as read_sweep
from wirewatch_lab.study.nccltests import Reader
from wirewatch_lab.study.points import to_study
from wirewatch_lab.study.records import RecordsError
from wirewatch_lab.study.spread import Regime, regime
from wirewatch_lab.study.summary import setting, span, title

HEAD = 256
"""Bytes in which a sweep.json names its schema."""
SPREAD = 2
"""Repeats needed to show a spread."""
PARTS = (*(one.value for one in Regime), comparing.ALL_SIZES)


@click.command(epilog=examples("wirewatch compare before.txt after.txt --fail-under 97"))
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@click.option(
    "--fail-under", type=FiniteNumber(0, min_open=True), metavar="PERCENT",
    help="Exit with 1 where B keeps less than this much of A's speed.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
@click.option("--explain", is_flag=True, help="Print all of it, not 15 lines at most.")
@click.pass_context
def compare(
    context: click.Context, *, a: Path, b: Path, fail_under: float | None, as_json: bool, explain: bool
) -> None:
    """Say what is different in B, beside A.

    Each is the folder of a sweep, its sweep.json, or output of nccl-tests. Nothing is measured.

    Exit codes: 0 compared, and with --fail-under B is fast enough; 1 it is not; 3 nothing could be judged; 64
    wrong usage.
    """
    least = None if fail_under is None else fail_under / 100
    context.exit(print_comparison(read_study(a), read_study(b), least, as_json=as_json, explain=explain))


def read_study(path: Path) -> Study:
    """Read a sweep's folder or sweep.json, or output of nccl-tests. Raises UsageError: there is no study."""
    try:
        if path.is_dir() or _is_ours(path):
            return read_sweep(path)
    except RecordsError as error:
        raise click.UsageError(str(error)) from error
    reader = Reader("")
    read_output([str(path)], reader)
    if not reader.runs:
        raise click.UsageError(f"{path}: no table of nccl-tests is in it")
    study = to_study(reader.runs, str(path), path.stat().st_mtime)
    unknown = count(reader.not_understood, "line")
    doubts = [f"{unknown} that look like rows are not understood"] if reader.not_understood else []
    return replace(study, problems=(*study.problems, *reader.failures, *doubts))


def _is_ours(path: Path) -> bool:
    """Return whether the file begins like a sweep.json."""
    try:
        with path.open("rb") as file:
            return b'"wirewatch.sweep/' in file.read(HEAD)
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror or error}") from error


def print_comparison(
    a: Study, b: Study, least_speed: float | None, *, as_json: bool, explain: bool
) -> int:  # fmt: skip
    """Print it; return the exit code. `least_speed`: the share of A's speed that B must keep."""
    made = comparing.compare(a, b)
    if as_json:
        click.echo(comparing.COMPARISON.dump_json(made, indent=1).decode())
    else:
        click.echo(first_lines(comparison_text(made, least_speed), explain=explain))
    return exit_of(comparing.health(made, least_speed))


def comparison_text(made: comparing.Comparison, least_speed: float | None = None) -> str:
    """Return the text of a comparison: the result, then other differences and changes."""
    return written(
        "compare.j2", made, least_speed=least_speed,
        verdict=HEALTH_NAMES[comparing.health(made, least_speed)],
        losses=[] if least_speed is None else comparing.losses(made, least_speed), result=_result(made),
        environment=[(one.name, one.a or "not known", one.b or "not known") for one in made.environment],
        header=("", "setting", *PARTS, "seen from", "repeats"), rows=[_row(one) for one in made.curves],
        unlike=_unlike, title=title, setting=setting, span=span,
    )  # fmt: skip


def _result(made: comparing.Comparison) -> str:
    curves = count(len(made.curves), "curve")
    if not made.curves:
        return "A and B have no curve in common."
    if not made.judged:
        if all(min(part.repeats) < SPREAD for curve in made.curves for part in curve.parts):
            return f"{curves} in common: no spread, not judged: that takes two repeats or more in A and in B."
        return f"{curves} in common: the repeats differ too much to judge anything: more repeats see more."
    changed = sum(any(part.verdict == "changed" for part in curve.every()) for curve in made.curves)
    if all(part.spread is None for curve in made.curves for part in curve.parts):
        far = f"{changed} of them changed by more than healthy runs of one machine differ"
        return f"{curves} in common: no spread, and {far}; smaller changes take two repeats or more."
    if not changed:
        return f"{curves} in common: nothing changed by more than the spread."
    return f"{curves} in common: {changed} of them changed by more than the spread."


def _row(curve: comparing.CurveChange) -> tuple[str, ...]:
    parts = {part.part: part for part in curve.parts}
    all_sizes = parts.get(comparing.ALL_SIZES)
    least = "-" if all_sizes is None or all_sizes.least is None else f"{all_sizes.least:.1%}"
    repeats = "-" if all_sizes is None else "{} and {}".format(*all_sizes.repeats)
    cells = (_cell(parts[name]) if name in parts else "-" for name in PARTS)
    return (title(curve), setting(curve.configuration), *cells, least, repeats)


def _cell(part: comparing.PartChange) -> str:
    change = f"{part.speed - 1:+.1%}"
    return {"not judged": f"({change})", "changed": f"{change} *"}.get(part.verdict, change)


def _unlike(curve: comparing.CurveChange) -> Iterator[comparing.PartChange]:
    """Yield sizes that changed differently from their neighbours, which the table does not show."""
    for point in curve.points:
        where = regime(point.first_bytes)
        around = [one.speed for one in curve.points if regime(one.first_bytes) is where]
        if point.verdict == "changed" and abs(point.speed / median(around) - 1) > (point.least or 0):
            yield point
