"""`wirewatch parse DUMPS`: judge dumps of PyTorch's Flight Recorder."""

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import click

from wirewatch.core.exits import exit_of
from wirewatch.core.words import first, printable
from wirewatch.documents.health import HEALTH_NAMES
from wirewatch_lab.cli.texts import first_lines, written
from wirewatch_lab.study.flightdumps import LARGEST, DumpError, RankDump, looks_like_dump, named, read_dump
from wirewatch_lab.study.flightjudge import FLIGHT, FlightDocument, FlightJudge

_MOST_FILES = 100_000
_HEAD = 1 << 16
_SHOWN = 64
"""Ranks and groups in the text."""


def are_dumps(names: Sequence[str]) -> bool:
    """Return whether these are dumps: a folder, or files of which some begin like a dump."""
    found = [Path(name) for name in names if name != "-"]
    if len(names) > 1 and not all(path.exists() for path in found):
        return True
    return any(one.is_dir() or (one.is_file() and os.access(one, os.R_OK) and _begins(one)) for one in found)


def judge_dumps(names: Sequence[str], *, as_json: bool, explain: bool) -> int:
    """Print the findings of the dumps; return the exit code. Raises UsageError: no file is a dump."""
    dumps: dict[int, RankDump] = {}
    not_read: list[str] = []
    for path, root in _files(names):
        try:
            rank, host = named(path, root)
            dump = read_dump(_read(path, LARGEST + 1), rank, host, str(path))
            if dumps.setdefault(rank, dump) is not dump:
                not_read.append(f"{path}: rank {rank} is read from {dumps[rank].file}")
        except (OSError, DumpError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            not_read.append(f"{path}: {why}")
    if not dumps:
        raise click.UsageError(
            printable(first(not_read, 1, "; ")) or f"{printable(names[0])}: no dump is in it"
        )
    document = FlightJudge(dumps.values()).document(not_read)
    if as_json:
        click.echo(FLIGHT.dump_json(document, indent=1).decode())
    else:
        click.echo(first_lines(dumps_text(document), explain=explain))
    return next(exit_of(health) for health, name in HEALTH_NAMES.items() if name == document.health)


def dumps_text(document: FlightDocument) -> str:
    """Return the verdict, then its evidence."""
    header = ("rank", "host", "GPU", "calls", "waits in", "line of the job")
    rows = [
        (
            str(one.rank), one.host or "-", "-" if one.gpu is None else str(one.gpu), str(one.calls),
            one.waits or "-", one.where or "-",
        )
        for one in document.ranks
    ]  # fmt: skip
    return written(
        "dumps.j2", document, header=header, rows=rows[:_SHOWN], most=_SHOWN, more=len(rows) - _SHOWN
    )


def _read(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        return file.read(most)


def _files(names: Sequence[str]) -> Iterator[tuple[Path, Path]]:
    """Yield each file with the given folder; from a folder, only files that begin like a dump.

    Raises UsageError: a name is neither file nor folder.
    """
    for name in names:
        path = Path(name)
        if path.is_dir():
            found = (Path(folder, file) for folder, _, files in os.walk(path) for file in sorted(files))
            yield from ((one, path) for one in islice(found, _MOST_FILES) if one.is_file() and _begins(one))
        elif path.is_file():
            yield path, path.parent
        else:
            raise click.UsageError(f"{printable(name)}: it is no file or folder")


def _begins(path: Path) -> bool:
    """Return whether a file begins like a dump; an unreadable file counts as a dump."""
    try:
        return looks_like_dump(_read(path, _HEAD))
    except OSError:
        return True
