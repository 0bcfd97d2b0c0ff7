"""`wirewatch sweep --compare A B`: what changed between two studies, for a person or a script."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import click

from wirewatch.cli.check.answer import EXIT
from wirewatch.cli.output import shown, utc
from wirewatch.cli.tables import table
from wirewatch.core import words
from wirewatch.core.words import count
from wirewatch.documents.health import HEALTH_NAMES
from wirewatch_lab.cli.parse import read_output
from wirewatch_lab.study.compare import (
    ALL_SIZES,
    COMPARISON,
    Comparison,
    CurveChange,
    PartChange,
    compare,
    health,
    losses,
)
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
"""Repeats that show a spread."""
PARTS = (*(one.value for one in Regime), ALL_SIZES)
NOTE = (
    "speed of B against A, which is busbw where there is one; *: more than the spread; "
    "in brackets: no spread, or too much, and not judged"
)


def read_study(path: Path) -> Study:
    """The study in a folder of a sweep, in its sweep.json, or in output of nccl-tests.

    Raises UsageError: there is none that can be read.
    """
    try:
        if path.is_dir() or _is_ours(path):
            return read_sweep(path)
    except RecordsError as error:
        raise click.UsageError(str(error)) from error
    reader = Reader("")
    read_output(str(path), reader)
    if not reader.runs:
        raise click.UsageError(f"{path}: no table of nccl-tests is in it")
    study = to_study(reader.runs, str(path), path.stat().st_mtime)
    unknown = count(reader.not_understood, "line")
    doubts = [f"{unknown} that look like rows are not understood"] if reader.not_understood else []
    return replace(study, problems=(*study.problems, *reader.failures, *doubts))


def _is_ours(path: Path) -> bool:
    """Whether the file begins as a sweep.json does."""
    try:
        with path.open("rb") as file:
            return b'"wirewatch.sweep/' in file.read(HEAD)
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror or error}") from error


def print_comparison(a: Study, b: Study, least_speed: float | None, *, as_json: bool) -> int:
    """Print it and return the exit code; `least_speed`: the share of A's that B must keep."""
    made = compare(a, b)
    verdict = health(made, least_speed)
    if as_json:
        click.echo(COMPARISON.dump_json(made, indent=1).decode())
    else:
        lines = list(comparison_lines(made))
        if least_speed is not None:
            word = HEALTH_NAMES[verdict].upper()
            lines.append(f"{word}: B must keep {least_speed:.1%} of A's speed{_worst(made, least_speed)}")
        click.echo(shown(lines))
    return EXIT[verdict]


def comparison_lines(made: Comparison) -> Iterator[str]:
    """The text of a comparison: what else is different first, then what changed."""
    yield f"A: {made.a}, {utc(made.at_a)}"
    yield f"B: {made.b}, {utc(made.at_b)}"
    if made.environment:
        yield "Not the same machine and software, which may be the reason:"
        rows = [(one.name, one.a or "not known", one.b or "not known") for one in made.environment]
        yield from table(("", "A", "B"), rows)
    yield ""
    yield _result(made)
    if made.curves:
        yield from table(("", "setting", *PARTS, "seen from", "repeats"), [_row(one) for one in made.curves])
        yield f"  {NOTE}"
    for curve in made.curves:
        yield from _remarks(curve)
    for one in made.unmatched:
        yield f"{title(one)}, {setting(one.configuration)}: not compared: {one.why}"
    for who, problems in (("A", made.problems_a), ("B", made.problems_b)):
        yield from (f"problem in {who}: {one}" for one in problems)


def _result(made: Comparison) -> str:
    curves = count(len(made.curves), "curve")
    if not made.curves:
        return "A and B have no curve in common."
    if not made.judged:
        if all(min(part.repeats) < SPREAD for curve in made.curves for part in curve.parts):
            return f"{curves} in common: no spread, not judged: that takes two repeats or more in A and in B."
        return f"{curves} in common: the repeats differ too much to judge anything: more repeats see more."
    changed = sum(any(part.verdict == "changed" for part in curve.every()) for curve in made.curves)
    if not changed:
        return f"{curves} in common: nothing changed by more than the spread."
    return f"{curves} in common: {changed} of them changed by more than the spread."


def _row(curve: CurveChange) -> tuple[str, ...]:
    parts = {part.part: part for part in curve.parts}
    all_sizes = parts.get(ALL_SIZES)
    least = "-" if all_sizes is None or all_sizes.least is None else f"{all_sizes.least:.1%}"
    repeats = "-" if all_sizes is None else "{} and {}".format(*all_sizes.repeats)
    cells = (_cell(parts[name]) if name in parts else "-" for name in PARTS)
    return (title(curve), setting(curve.configuration), *cells, least, repeats)


def _cell(part: PartChange) -> str:
    change = f"{part.speed - 1:+.1%}"
    return (
        f"({change})"
        if part.verdict == "not judged"
        else f"{change} *"
        if part.verdict == "changed"
        else change
    )


def _remarks(curve: CurveChange) -> Iterator[str]:
    """What the table does not show of a curve, such as a size that did not change as those around it did."""
    name = f"{title(curve)}, {setting(curve.configuration)}"
    for point in curve.points:
        around = [one.speed for one in curve.points if _regime(one) is _regime(point)]
        if point.verdict == "changed" and abs(point.speed / median(around) - 1) > (point.least or 0):
            yield f"{name}: {words.size(point.first_bytes)}: {point.speed - 1:+.1%} *"
    for who, sizes in (("A", curve.only_a), ("B", curve.only_b)):
        if sizes:
            yield f"{name}: only in {who}: {_sizes(sizes)}"
    for who, sizes in (("A", curve.wrong_a), ("B", curve.wrong_b)):
        if sizes:
            yield f"{name}: WRONG VALUES in {who}, not compared: {_sizes(sizes)}"


def _regime(point: PartChange) -> Regime:
    return regime(point.first_bytes)


def _worst(made: Comparison, least_speed: float) -> str:
    for curve, part in losses(made, least_speed)[:1]:
        sizes = span(part.first_bytes, part.last_bytes)
        return f", and keeps {part.speed:.1%} at {sizes} of {title(curve)}, {setting(curve.configuration)}"
    return ""


def _sizes(sizes: Sequence[int]) -> str:
    return f"{count(len(sizes), 'size')}, {span(sizes[0], sizes[-1])}"
