"""`wirewatch sweep`: time and busbw over all message sizes, by algorithm, protocol, launch and setting."""

import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, NoReturn

import click

from wirewatch import __version__
from wirewatch.catalogue import discover
from wirewatch.cli.groups import examples
from wirewatch.cli.hardware import live, own_state
from wirewatch.cli.options import FiniteNumber, WholeNumber, config_option
from wirewatch.cli.options import owner as checked_owner
from wirewatch.cli.output import shown
from wirewatch.cli.tables import probe_tables
from wirewatch.config import Config, expectations, load
from wirewatch.core.exits import Exit
from wirewatch.core.ports import Hardware, Order
from wirewatch.core.probe import DTYPES, ENGINES, NOT_KNOWN, OPS, PRIMITIVES, Probed
from wirewatch.core.types import Absent
from wirewatch.documents.probed import refused
from wirewatch.probe.gate import GateFacts, Refusal, SkipReason, Stillness
from wirewatch.probe.setup import ProbeRequest, prepare, read_scene
from wirewatch.probe.workfolder import remove_left_folders
from wirewatch.signals import SIGNALS
from wirewatch_lab.cli.compare import print_comparison, read_study
from wirewatch_lab.cli.grids import Numbers, Sizes, Varied, Words
from wirewatch_lab.study.curve import AUTO, Configuration, KnownRates, known_rates
from wirewatch_lab.study.environment import capabilities, differences, environment, scout
from wirewatch_lab.study.export import CSV, JSON, REPORT, export
from wirewatch_lab.study.grid import (
    ALGORITHMS,
    EAGER,
    GRAPH,
    PROTOCOLS,
    Capabilities,
    GridCurve,
    SweepOptions,
    make_grid,
)
from wirewatch_lab.study.records import (
    SCHEMA,
    Records,
    RecordsError,
    SweepFile,
    SweepHeader,
    keys,
    read_records,
)
from wirewatch_lab.study.report import ReportError, write_report
from wirewatch_lab.study.summary import summary_lines
from wirewatch_lab.study.sweep import (
    Batch,
    SweepEnd,
    SweepRun,
    SweepView,
    batches,
    start_seconds,
    usual_seconds,
)

SWITCH = {"on": True, "off": False}
_COMPARING = frozenset({"compare", "fail_under", "as_json", "explain"})

STEPS = 1000
"""Steps of the progress bar for each second."""
_FOLDER = click.Path(path_type=Path, file_okay=False)


class Wish(NamedTuple):
    """The plan of a new sweep, and the seed of its order."""

    options: SweepOptions
    seed: int


class Allowed(NamedTuple):
    """The GPUs that the gate allowed."""

    hardware: Hardware
    order: Order
    facts: GateFacts


@click.command(
    epilog=examples(
        "wirewatch sweep --out /tmp/before --op all_reduce --size 8:1G",
        "wirewatch sweep --resume /tmp/before",
    )
)
@click.option("--out", type=_FOLDER, help="Folder for the results, new or empty.")
@click.option(
    "--resume", type=_FOLDER, help="Go on with the sweep in this folder, which did not come to its end."
)
@click.option("--export", type=_FOLDER, help="Write the results of what the sweep in this folder has so far.")
@click.option("--compare", nargs=2, type=click.Path(path_type=Path), hidden=True)
@click.option("--fail-under", type=FiniteNumber(0, min_open=True), hidden=True)
@click.option("--json", "as_json", is_flag=True, hidden=True)
@click.option("--explain", is_flag=True, hidden=True)
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
    compare: tuple[Path, Path] | None, fail_under: float | None, as_json: bool, explain: bool,
    ops: Sequence[str],
    sizes: Sequence[tuple[int, ...]], algorithm: tuple[str, ...], protocol: tuple[str, ...],
    gpus: tuple[int, ...] | None, registered: tuple[str, ...], launch: tuple[str, ...],
    vary: Sequence[tuple[str, tuple[str, ...]]], dtype: str, out_of_place: bool, iterations: int | None,
    repeats: int, seed: int | None, engine: str | None, owner: str | None, replay: str | None,
    config_file: Path | None,
) -> None:  # fmt: skip
    """Measure collectives over all message sizes.

    It runs on this node's idle GPUs. Each measurement is in the folder as soon as it is made: a sweep that
    Ctrl-C or a job has ended goes on with --resume. At its end it writes sweep.csv, sweep.json and
    report.html there. `wirewatch compare` says what is different between two sweeps.

    Exit codes: 0 all is measured; 2 some values were wrong; 3 GPUs are busy, or a job came; 64 wrong usage;
    70 ended by Ctrl-C or SIGTERM, or nothing more can be written.
    """
    # The name of before for `wirewatch compare`.
    if compare is not None:
        _compare(context, compare, fail_under, as_json=as_json, explain=explain)
    if fail_under is not None or as_json or explain:
        raise click.UsageError("--fail-under, --json and --explain go with --compare")

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
        context.exit(_ended(folder, lambda: _finish(read_records(folder), folder)))
    wish = None if resume else Wish(options, secrets.randbits(32) if seed is None else seed)
    context.exit(_ended(folder, lambda: _measure(folder, wish, config_file, owner)))


def _ended(folder: Path, work: Callable[[], int]) -> int:
    """Return the exit code of work on a folder. Raises UsageError: the folder has no usable sweep."""
    try:
        return work()
    except RecordsError as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:
        click.echo(f"wirewatch: {folder}: {error.strerror or error}", err=True)
        return Exit.INTERNAL


def _compare(
    context: click.Context, paths: tuple[Path, Path], fail_under: float | None, *, as_json: bool,
    explain: bool,
) -> NoReturn:  # fmt: skip
    """Compare two studies and exit. Raises UsageError: a measuring option is also given."""
    others = [name for name in context.params if name not in _COMPARING and _is_given(context, name)]
    if others:
        raise click.UsageError(f"--compare measures nothing: without --{_option(others[0])}")
    a, b = map(read_study, paths)
    least = None if fail_under is None else fail_under / 100
    context.exit(print_comparison(a, b, least, as_json=as_json, explain=explain))


def _option(parameter: str) -> str:
    return {"ops": "op", "sizes": "size", "config_file": "config"}.get(parameter, parameter).replace("_", "-")


def _one_folder(
    context: click.Context, out: Path | None, resume: Path | None, export: Path | None, replay: str | None
) -> Path:
    """Return the folder from the option, among three, that chooses the work.

    Raises UsageError: none or several of the three, or options that conflict with the choice.
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


def _measure(folder: Path, wish: Wish | None, config_file: Path | None, owner: str | None) -> int:
    """Begin or resume a sweep; return the exit code."""
    config, _ = load(config_file, discover())
    if config.probe.prober:
        raise click.UsageError("[probe] prober: another container probes here, and a sweep must run in it")
    with SweepFile.create(folder) if wish else SweepFile.resume(folder) as file:
        if wish is not None or not file.records.complete:
            end = measure(config, file, wish, owner)
            if end is None:
                return Exit.UNKNOWN
            if end.how != "complete":
                return _unfinished(end, file, folder)
        return _finish(file.records, folder)


def _unfinished(end: SweepEnd, file: SweepFile, folder: Path) -> int:
    """Print the present results and how to resume; return the exit code."""
    click.echo(f"wirewatch: {end.why}", err=True)
    if file.begun:
        done, all_ = len(file.records.measured), sum(1 for _ in keys(file.records.header))
        click.echo(f"{done} of {all_} are measured; go on with: wirewatch sweep --resume {folder}", err=True)
    return Exit.INTERNAL if end.how == "stopped" else Exit.UNKNOWN


def _finish(records: Records, folder: Path) -> int:
    """Write and print the results; return the exit code."""
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
    return Exit.FAILED if wrong else 0


def measure(config: Config, file: SweepFile, wish: Wish | None, owner: str | None) -> SweepEnd | None:
    """Begin the sweep of a wish, or resume the sweep in the file.

    None, with the reason printed as for a probe, where the GPUs are not allowed. Raises UsageError: there is
    nothing to measure, or the sweep belongs to another machine. Raises OSError: the file cannot be written.
    """
    options = wish.options if wish else file.records.header.options
    with _permitted(config, options, owner) as allowed:
        return None if allowed is None else _run(config, allowed, file, wish)


@contextmanager
def _permitted(config: Config, options: SweepOptions, owner: str | None) -> Iterator[Allowed | None]:
    """Yield the GPUs while holding the probe lock."""
    remove_left_folders()
    engine = options.engine or config.probe.engine
    ranks = max(options.ranks, default=config.probe.ranks)
    probing = replace(config.probe, engine=engine, ranks=ranks, settle=0.0)  # type: ignore[arg-type]
    with ExitStack() as stack:
        hardware, nvml = live(config, state=own_state(config))
        stack.callback(nvml.stop)
        other = stack.enter_context(hardware.probe.lock())
        wanted = ProbeRequest(probing, "command", expectations(config).nvlink_links, owner)
        prepared = prepare(hardware, wanted, Stillness())
        order = prepared.order if other is None else Refusal(SkipReason.LOCKED, other)
        if isinstance(order, Refusal):
            text = probe_tables(refused(order, hardware.clock.now()), explain=False)
            click.echo(shown(text.split("\n")))
            yield None
        else:
            yield Allowed(hardware, order, prepared.facts)


def _run(config: Config, allowed: Allowed, file: SweepFile, wish: Wish | None) -> SweepEnd:
    """Run from the first worker, which detects the machine's means, to the last."""
    ended: list[str] = []

    def stop() -> str | None:
        return ended[0] if ended else None

    with SIGNALS.taken(stop=lambda name: ended.append(f"ended by {name}"), reload=lambda: None):
        options = wish.options if wish else file.records.header.options
        scouted = scout(allowed.hardware, replace(allowed.order, withdrawn=stop), options)
        if scouted.outcome != "ok":
            gave_way = scouted.outcome == "preempted"
            return SweepEnd("stopped" if ended else "gave_way" if gave_way else "failed", scouted.why)
        here = environment(allowed.hardware, allowed.order, scouted)
        if wish is not None:
            file.begin(_header(config, allowed, scouted, here, wish))
        elif other := differences(file.records.header.environment, here):
            raise click.UsageError(f"what was measured there would mix with what is here: {other}")
        with _shown_progress(file.records) as progress:
            view = SweepView(progress.began, progress.measured, stop)
            return SweepRun(allowed.hardware, allowed.order, file, view).run()


def _header(
    config: Config, allowed: Allowed, scouted: Probed, here: dict[str, str], wish: Wish
) -> SweepHeader:
    """Return the header. Raises UsageError when nothing requested exists here."""
    options = replace(wish.options, engine=allowed.order.plan.engine)
    reserve = config.probe.free_bytes
    can = capabilities(allowed.hardware, allowed.order, allowed.facts, scouted, options, reserve)
    grid = make_grid(options, can)
    if not grid.curves:
        raise click.UsageError(f"nothing of that exists here: {'; '.join(grid.not_offered)}")
    at = allowed.hardware.clock.now()
    known = tuple(_known(config, allowed, can, grid.curves))
    made = grid.curves, grid.not_offered, known
    return SweepHeader(SCHEMA, __version__, at, wish.seed, options, here, *made)


def _known(
    config: Config, allowed: Allowed, can: Capabilities, curves: Sequence[GridCurve]
) -> Iterator[KnownRates]:
    """Yield the expected rates of the first GPUs' wires, for each operation and number of GPUs."""
    order, sizes = allowed.order, {size for curve in curves for size in curve.sizes}
    if not order.gpus:
        return
    for op, ranks in dict.fromkeys((curve.op, curve.configuration.ranks) for curve in curves):
        gpus, expect = order.gpus[:ranks], expectations(config)
        scene = read_scene(allowed.hardware, gpus, order.settings, expect, config.probe.pins)
        if not isinstance(scene, Absent) and len(scene.conditions) == 1:
            multicast = NOT_KNOWN if can.multicast is None else can.multicast
            yield known_rates(replace(scene.conditions[0], multicast=multicast), op, sizes)


class Progress:
    """Progress of a sweep, in the usual seconds of its launches, bytes and worker starts."""

    def __init__(self, records: Records) -> None:
        header = records.header
        left = batches(header, records.left())
        self._start = start_seconds(header.options.engine)
        self._workers = len(left)
        self.total = usual_seconds(header, records.left()) + self._start * self._workers
        self._done, self._begun, self._starting = 0.0, 0, 0.0
        self._since = time.monotonic()
        self.text = ""

    def began(self, batch: Batch) -> None:
        """Note that a worker starts."""
        self._begun += 1
        self._starting += self._start
        repeat = f"repeat {batch.repeat + 1}"
        self.text = f"{repeat}, {describe(batch.configuration)}, worker {self._begun} of {self._workers}"
        self.show(0.0)

    def measured(self, seconds: float) -> None:
        """Add work that usually takes so many seconds."""
        step, self._starting = seconds + self._starting, 0.0
        self._done += step
        self.show(step)

    def show(self, step: float) -> None:
        """Print a line for each worker; `step`: usual seconds of the finished work."""
        if not step:
            click.echo(f"{self.text}{self._time_left()}", err=True)

    def _time_left(self) -> str:
        """Return the remaining time at the present pace."""
        if not self._done:
            return ""
        left = (time.monotonic() - self._since) * (self.total / self._done - 1)
        return f", {left / 60:.0f} min left" if left >= 60 else f", {max(0.0, left):.0f} s left"  # noqa: PLR2004


class ProgressBar(Progress):
    """The same progress as a bar, on a terminal."""

    def __init__(self, records: Records) -> None:
        super().__init__(records)
        length = max(1, round(self.total * STEPS))
        self.bar = click.progressbar(
            length=length, file=sys.stderr, item_show_func=lambda text: text, update_min_steps=1
        )

    def show(self, step: float) -> None:
        self.bar.update(round(step * STEPS), self.text)


@contextmanager
def _shown_progress(records: Records) -> Iterator[Progress]:
    if not sys.stderr.isatty():
        yield Progress(records)
        return
    bar = ProgressBar(records)
    with bar.bar:
        yield bar


def describe(configuration: Configuration) -> str:
    """Return a configuration in a few words."""
    words = [configuration.algorithm, configuration.protocol]
    chosen = [word for word in words if word != AUTO] or [AUTO]
    chosen += ["registered"] if configuration.registered else []
    chosen += ["=".join(pair) for pair in configuration.settings]
    return f"{configuration.ranks} ranks {' '.join(chosen)}"
