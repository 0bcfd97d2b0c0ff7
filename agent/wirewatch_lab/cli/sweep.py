"""`wirewatch sweep`: time and busbw over all message sizes, by algorithm, protocol, launch and setting."""

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from wirewatch.cli.groups import examples
from wirewatch.cli.options import Number, WholeNumber, config_option
from wirewatch.cli.options import owner as checked_owner
from wirewatch.core.probe import DTYPES, ENGINES, OPS, PRIMITIVES
from wirewatch_lab.cli.grids import Numbers, Sizes, Varied, Words
from wirewatch_lab.study.curve import AUTO
from wirewatch_lab.study.grid import ALGORITHMS, EAGER, GRAPH, PROTOCOLS, SweepOptions

if TYPE_CHECKING:
    from wirewatch_lab.cli.sweeping import Wish
    from wirewatch_lab.study.records import Records, SweepFile
    from wirewatch_lab.study.sweep import SweepEnd

INTERNAL, UNKNOWN, FAILED = 70, 3, 2
SWITCH = {"on": True, "off": False}
_COMPARING = frozenset({"compare", "fail_under", "as_json"})

_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command(
    epilog=examples(
        "wirewatch sweep --out /tmp/before --op all_reduce --size 8:1G",
        "wirewatch sweep --compare /tmp/before /tmp/after --fail-under 97",
    )
)
@click.option("--out", type=_FOLDER, help="Folder for the results, new or empty.")
@click.option(
    "--resume", type=_FOLDER, help="Go on with the sweep in this folder, which did not come to its end."
)
@click.option("--export", type=_FOLDER, help="Write the results of what the sweep in this folder has so far.")
@click.option(
    "--compare", nargs=2, type=click.Path(path_type=Path), metavar="A B",
    help="Say what is different in B: folders of sweeps, their sweep.json, or output of nccl-tests.",
)  # fmt: skip
@click.option(
    "--fail-under", type=Number(0, min_open=True), metavar="PERCENT",
    help="With --compare: exit with 1 where B keeps less than this much of A's speed.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="With --compare: print one JSON document.")
@click.option(
    "--op", "ops", multiple=True, type=click.Choice(PRIMITIVES),
    help=f"Operation; repeatable. Default: {', '.join(OPS)}.",
)  # fmt: skip
@click.option(
    "--size", "sizes", multiple=True, type=Sizes(), metavar="FROM:TO[:FACTOR]|SIZE,...",
    help="Message sizes; repeatable. Default: powers of two from 8 B to as much as memory allows.",
)  # fmt: skip
@click.option("--algorithm", type=Words(AUTO, *ALGORITHMS), default=AUTO, help="NCCL's algorithms, or auto.")
@click.option("--protocol", type=Words(AUTO, *PROTOCOLS), default=AUTO, help="NCCL's protocols, or auto.")
@click.option("--gpus", type=Numbers(), help="How many GPUs, such as 2,4. Default: all.")
@click.option("--registered", type=Words(*SWITCH), default="off", help="Register the buffers: on, off.")
@click.option("--launch", type=Words(EAGER, GRAPH), default=EAGER, help="One by one, or as a CUDA graph.")
@click.option(
    "--vary", multiple=True, type=Varied(), metavar="NCCL_NAME=VALUE,...",
    help="A setting of NCCL, each value a configuration; repeatable. An empty value leaves it as it is.",
)  # fmt: skip
@click.option("--dtype", type=click.Choice(tuple(DTYPES)), default="float32", help="Element type.")
@click.option("--out-of-place", is_flag=True, help="Receive into another buffer.")
@click.option("--iterations", type=WholeNumber(1, 100_000), help="Timed runs in a row. Default: by size.")
@click.option(
    "--repeats", type=WholeNumber(1, 1000), default=5, show_default=True,
    help="Passes over all, each configuration in a process of its own each time.",
)  # fmt: skip
@click.option("--seed", type=WholeNumber(0, (1 << 32) - 1), help="Of the order. Default: drawn.")
@click.option("--engine", type=click.Choice(("auto", *ENGINES)), help="What runs the operations.")
@click.option(
    "--owner", callback=checked_owner, help="The job whose GPUs count as idle: slurm:ID or pod:UID."
)  # fmt: skip
@click.option("--replay", hidden=True)
@config_option
@click.pass_context
def sweep(
    context: click.Context, *, out: Path | None, resume: Path | None, export: Path | None,
    compare: tuple[Path, Path] | None, fail_under: float | None, as_json: bool, ops: Sequence[str],
    sizes: Sequence[tuple[int, ...]], algorithm: tuple[str, ...], protocol: tuple[str, ...],
    gpus: tuple[int, ...] | None, registered: tuple[str, ...], launch: tuple[str, ...],
    vary: Sequence[tuple[str, tuple[str, ...]]], dtype: str, out_of_place: bool, iterations: int | None,
    repeats: int, seed: int | None, engine: str | None, owner: str | None, replay: str | None,
    config_file: Path | None,
) -> None:  # fmt: skip
    """Measure collectives over all message sizes.

    It runs on this node's idle GPUs. Each measurement is in the folder as soon as it is made: a sweep that
    Ctrl-C or a job has ended goes on with --resume. At its end it writes sweep.csv, sweep.json and
    report.html there.

    Exit codes: 0 all is measured; 2 some values were wrong; 3 GPUs are busy, or a job came; 64 wrong usage;
    70 ended by Ctrl-C or SIGTERM, or nothing more can be written. With --compare and --fail-under: 0 B is
    fast enough; 1 it is not; 3 nothing could be judged.
    """
    if compare is not None:
        _compare(context, compare, fail_under, as_json=as_json)
    if fail_under is not None or as_json:
        raise click.UsageError("--fail-under and --json go with --compare")
    from wirewatch_lab.cli.sweeping import Wish

    folder = _one_folder(context, out, resume, export, replay)
    if len({name for name, _ in vary}) < len(vary):
        raise click.UsageError("--vary: a setting is given twice")
    options = SweepOptions(
        engine=engine or "", ops=tuple(dict.fromkeys(ops)) or OPS,
        sizes=tuple(sorted({size for some in sizes for size in some})), algorithms=algorithm,
        protocols=protocol, ranks=gpus or (), registered=tuple(SWITCH[word] for word in registered),
        launches=launch, varied=tuple(vary), dtype=dtype, in_place=not out_of_place, iterations=iterations,
        repeats=repeats,
    )  # fmt: skip
    if export is not None:
        context.exit(_ended(folder, lambda: _exported(folder)))
    wish = None if resume else Wish(options, secrets.randbits(32) if seed is None else seed)
    context.exit(_ended(folder, lambda: _measure(folder, wish, config_file, owner)))


def _exported(folder: Path) -> int:
    from wirewatch_lab.study.records import read_records

    return _finish(read_records(folder), folder)


def _ended(folder: Path, work: Callable[[], int]) -> int:
    """The exit code of work on a folder.

    Raises:
        UsageError: the folder holds no sweep that can be used.
    """
    from wirewatch_lab.study.records import RecordsError

    try:
        return work()
    except RecordsError as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:
        click.echo(f"wirewatch: {folder}: {error.strerror or error}", err=True)
        return INTERNAL


def _compare(
    context: click.Context, paths: tuple[Path, Path], fail_under: float | None, *, as_json: bool
) -> NoReturn:
    """Compare and end.

    Raises:
        UsageError: an option that measures is there too.
    """
    from wirewatch_lab.cli.compare import print_comparison, read_study

    others = [name for name in context.params if name not in _COMPARING and _is_given(context, name)]
    if others:
        raise click.UsageError(f"--compare measures nothing: without --{_option(others[0])}")
    a, b = map(read_study, paths)
    context.exit(print_comparison(a, b, None if fail_under is None else fail_under / 100, as_json=as_json))


def _option(parameter: str) -> str:
    return {"ops": "op", "sizes": "size", "config_file": "config"}.get(parameter, parameter).replace("_", "-")


def _one_folder(
    context: click.Context, out: Path | None, resume: Path | None, export: Path | None, replay: str | None
) -> Path:
    """The folder, of the one of three options that says what to do.

    Raises:
        UsageError: none or several of them, or others that do not go with it.
    """
    if replay is not None:
        raise click.UsageError("a recording has no GPUs to measure: a sweep cannot be replayed")
    given = [folder for folder in (out, resume, export) if folder is not None]
    if len(given) != 1:
        raise click.UsageError("give --out DIR for a new sweep, or one of --resume DIR and --export DIR")
    kept = {"out", "resume", "export", "config_file", "owner", *_COMPARING}
    said = [name for name in context.params if name not in kept and _is_given(context, name)]
    if out is None and said:
        raise click.UsageError(f"a sweep goes on as it was begun: without --{_option(said[0])}")
    return given[0]


def _is_given(context: click.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _measure(folder: Path, wish: "Wish | None", config_file: Path | None, owner: str | None) -> int:
    """Begin a sweep, or go on with one; returns the exit code."""
    from wirewatch.catalogue import discover
    from wirewatch.config import load
    from wirewatch_lab.cli.sweeping import measure
    from wirewatch_lab.study.records import SweepFile

    config, _ = load(config_file, discover())
    if config.probe.prober:
        raise click.UsageError("[probe] prober: another container probes here, and a sweep must run in it")
    with SweepFile.create(folder) if wish else SweepFile.resume(folder) as file:
        if wish is not None or not file.records.complete:
            end = measure(config, file, wish, owner)
            if end is None:
                return UNKNOWN
            if end.how != "complete":
                return _unfinished(end, file, folder)
        return _finish(file.records, folder)


def _unfinished(end: "SweepEnd", file: "SweepFile", folder: Path) -> int:
    """What is there, and how to go on; returns the exit code."""
    from wirewatch_lab.study.records import keys

    click.echo(f"wirewatch: {end.why}", err=True)
    if file.begun:
        done, all_ = len(file.records.measured), sum(1 for _ in keys(file.records.header))
        click.echo(f"{done} of {all_} are measured; go on with: wirewatch sweep --resume {folder}", err=True)
    return INTERNAL if end.how == "stopped" else UNKNOWN


def _finish(records: "Records", folder: Path) -> int:
    """Write the results and print them; returns the exit code."""
    from wirewatch.cli.output import shown
    from wirewatch_lab.study.export import CSV, JSON, REPORT, export
    from wirewatch_lab.study.report import ReportError, write_report
    from wirewatch_lab.study.summary import summary_lines

    study = export(records, folder)
    files = [CSV, JSON]
    try:
        write_report(study, folder / REPORT, records.header.known)
        files.append(REPORT)
    except ReportError as error:
        click.echo(f"wirewatch: no {REPORT}: {error}", err=True)
    wrong = sum(point.wrong or 0 for curve in study.curves for point in curve.points)
    lines = list(summary_lines(study))
    lines += [f"WRONG DATA: {wrong} elements were not what they should be"] if wrong else []
    points = sum(len(curve.points) for curve in study.curves)
    some = "" if records.complete else f", not all of it: --resume {folder} goes on"
    lines.append(f"{points} points of {len(study.curves)} curves in {folder}: {', '.join(files)}{some}")
    click.echo(shown(lines))
    return FAILED if wrong else 0
