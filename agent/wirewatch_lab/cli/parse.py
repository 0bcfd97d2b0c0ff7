"""`wirewatch parse`: read and judge other tools' measurements."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, ClassVar, cast

import click

from wirewatch.cli.groups import RenamingCommand, examples
from wirewatch.cli.options import FiniteNumber, config_option, replay_options
from wirewatch.cli.output import shown
from wirewatch.core import words
from wirewatch.core.exits import exit_of
from wirewatch.core.pci import normal_pci
from wirewatch.core.probe import PRIMITIVES
from wirewatch.core.types import Absent, Health, Why
from wirewatch.core.words import GB, MICRO, printable
from wirewatch.documents.health import HEALTH_NAMES
from wirewatch_lab.advice.described import DescriptionError, network_of
from wirewatch_lab.cli.dumps import are_dumps, judge_dumps
from wirewatch_lab.cli.machinenames import HERE, MACHINE, machine_option, named_machine
from wirewatch_lab.cli.texts import first_lines, written
from wirewatch_lab.study import judge, parsed
from wirewatch_lab.study.basis import (
    BasisOf,
    Ground,
    NodeGround,
    RunGrounds,
    chosen,
    logged_network,
)
from wirewatch_lab.study.logsummary import LogSummary
from wirewatch_lab.study.loss import LossAccount, LossEvidence, account
from wirewatch_lab.study.nccljson import mixed_lines
from wirewatch_lab.study.nccllog import read_log
from wirewatch_lab.study.nccltests import Reader
from wirewatch_lab.study.parsed import ParsedPlacement, ParsedRow, ParsedRun
from wirewatch_lab.study.runs import BenchmarkRun
from wirewatch_lab.study.sources import SourceLines
from wirewatch_lab.study.topologyxml import NcclGraphs, NcclTopology
from wirewatch_lab.study.topologyxml import read_topology as read_nccl_topology

if TYPE_CHECKING:
    from wirewatch.config import Config
    from wirewatch.core.ports import Hardware

_HEAD = 1 << 16
"""Bytes in which a file shows that it is not text."""
_DUMPS = "dumps of the Flight Recorder"
_OF_A_NODE = "--json, --explain, --machine here, --config, --replay and --overlay"
_ROWS = 2000
"""Rows in the text."""


@dataclass(frozen=True, slots=True)
class Node:
    """The node to compare with: the local node, or a recording."""

    config_file: Path | None
    replay: str | None
    overlays: tuple[str, ...]

    @property
    def name(self) -> str:
        """Return the name for people."""
        return f"recording {self.replay}" if self.replay else "this node"

    @contextmanager
    def hardware(self) -> "Iterator[tuple[Config, Hardware]]":
        """Yield its configuration and its ports."""
        from wirewatch.catalogue import discover
        from wirewatch.cli.hardware import live, replayed
        from wirewatch.config import load

        config, _ = load(self.config_file, discover())
        found, nvml = replayed(self.replay, self.overlays, at_fault=True) if self.replay else live(config)
        try:
            yield config, found
        finally:
            nvml.stop()


@dataclass(frozen=True, slots=True)
class Parsed:
    """The parsed input, and the ratio that judges it."""

    source: str
    reader: Reader
    log: LogSummary
    ratio: float
    grounds: RunGrounds
    topology_file: str


def settings(_context: click.Context, option: click.Parameter, value: Sequence[str]) -> dict[str, str]:
    """Read repeated NCCL_NAME=VALUE (click callback). Raises BadParameter: another form."""
    found = {}
    for text in value:
        name, equals, worth = text.partition("=")
        if not equals or not name.startswith("NCCL_") or not name.isidentifier():
            raise click.BadParameter(f"{printable(text)!r} is not NCCL_NAME=VALUE", param=option)
        found[name] = worth
    return found


EXAMPLES = (
    "all_reduce_perf -b 8 -e 1G -f 2 -g 8 | wirewatch parse -",
    "wirewatch parse all_reduce.txt nccl.log nccl_topo.xml",
    "wirewatch parse ~/.cache/torch/comm_lib_trace_rank_*",
)


@click.command(cls=RenamingCommand, renamed=MACHINE, epilog=examples(*EXAMPLES))
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--op", type=click.Choice(PRIMITIVES), help="The operation of tables that do not say theirs.")
@click.option(
    "--ratio", type=FiniteNumber(0, min_open=True), default=0.7, show_default=True,
    help="Share of what is expected below which a size fails.",
)  # fmt: skip
@machine_option
@click.option(
    "--network", metavar="NAME",
    help="The network between nodes: p4d, p5, a3-mega, dgx-h100 and others, or its NICs on a node, such as "
    "8xNDR, 8x400G for RoCE, or 2x100G:sockets.",
)  # fmt: skip
@click.option(
    "--env", "environment", multiple=True, callback=settings,
    help="A setting that the run had, such as NCCL_NVLS_ENABLE=0; repeatable.",
)  # fmt: skip
@click.option(
    "--explain", is_flag=True, help="Show all rows, all of a log, and how each expected busbw follows."
)
@click.option(
    "--plot", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE.html",
    help="Write a page with plots of all runs and of what is expected.",
)  # fmt: skip
@click.option("--json", "form", flag_value="json", help="Print one JSON document instead of tables.")
@click.option("--openmetrics", "form", flag_value="openmetrics", help="Print series as OpenMetrics.")
@config_option
@replay_options
@click.pass_context
def parse(
    context: click.Context, *, files: Sequence[str], op: str | None, ratio: float, machine: str | None,
    network: str | None, environment: Mapping[str, str], explain: bool, form: str | None,
    plot: Path | None, config_file: Path | None, replay: str | None, overlays: Sequence[str]
) -> None:  # fmt: skip
    """Judge what nccl-tests, NCCL or PyTorch's Flight Recorder wrote into FILE.

    FILE is `-` for standard input. It may be standard output of nccl-tests, with or without a launcher's text
    before each line, the JSON that -J writes, a log of NCCL, or all of these together. Several are read as
    one: a table, a log and the topology file of a node show where a loss is. Each size is judged by the busbw
    that the GPUs' wires should give, between nodes by what their network should. The network is found in the
    log, or named by --network. Of a log it says which wire the hot collective uses. An XML of NCCL's topology
    is compared with this node, or with a recording. Dumps of the Flight Recorder, several files or a folder,
    show which rank is missing or differs.

    Exit codes: 0 OK; 1 one size is below the ratio, GPUs do not reach each other directly, or a topology
    differs; 2 several sizes are below the ratio, wrong values, a run that failed, or a rank that others wait
    for; 3 nothing could be judged; 64 FILE cannot be read, or holds none of this.
    """
    topology, described = named_machine(machine)
    of_runs = (op, described, network, environment, plot, form == "openmetrics")
    if are_dumps(files):
        _no_use(_DUMPS, "--json and --explain", *of_runs, topology, config_file, replay, overlays)
        context.exit(judge_dumps(files, as_json=form == "json", explain=explain))
    node, reader = _node(topology, config_file, replay, overlays), Reader(op or "")
    found, drawn = read_output(files, reader)
    file = files[0] if len(files) == 1 else _begun(reader, drawn)
    if isinstance(found, (NcclTopology, NcclGraphs)):
        _no_use("a topology file or graphs alone", _OF_A_NODE, *of_runs, topology not in {None, HERE})
        context.exit(exit_of(_topology_file(file, found, node, as_json=form == "json", explain=explain)))
    # What NCCL's log in the same file says that the run had, unless the user says otherwise.
    had = {one.name: one.value for one in found.settings} | dict(environment)
    grounds = RunGrounds(had, logged=logged_network(found))
    _name(grounds, topology, described, network)
    with ExitStack() as stack:
        if topology == HERE or replay or config_file:
            grounds.node = stack.enter_context(_here(node, grounds.settings))
        _plot(plot, file, reader.runs, grounds)
        known = Parsed(file, reader, found, ratio, grounds, drawn)
        context.exit(exit_of(_print(known, form or "", explain=explain)))


def _no_use(what: str, options: str, *given: object) -> None:
    """Raise UsageError where an option is given that this kind of file cannot use."""
    if any(given):
        raise click.UsageError(f"{what} take no option but {options}")


def _node(
    topology: str | None, config_file: Path | None, replay: str | None, overlays: Sequence[str]
) -> Node:
    """Return the node that the options choose. Raises UsageError: the options conflict."""
    if (replay or config_file) and topology not in {None, HERE}:
        raise click.UsageError("--config, --replay and --overlay are about this node: leave --machine out")
    return Node(config_file, replay, tuple(overlays))


def read_output(names: Sequence[str], reader: Reader) -> tuple[LogSummary | NcclTopology | NcclGraphs, str]:
    """Read files one after the other; a topology file among them names the NICs of the others.

    Also return the name of the topology file, empty for none. Raises UsageError: a file cannot be read, or
    has no known content.
    """
    texts: list[tuple[str, BinaryIO]] = []
    machine: NcclTopology | NcclGraphs | None = None
    said = topology = ""
    try:
        with ExitStack() as opened:
            for name in names:
                said = "standard input" if name == "-" else printable(name)
                file = cast("BinaryIO", opened.enter_context(click.open_file(name, "rb")))
                # The first bytes will be read again.
                peek = getattr(file, "peek", None)
                head = b"" if peek is None else peek(_HEAD)
                if b"\0" in head:
                    raise click.UsageError(f"{said}: it is binary, not text")
                if not head.lstrip().startswith(b"<"):
                    texts.append((said, file))
                    continue
                found = read_nccl_topology(file)
                if isinstance(found, Absent):
                    raise click.UsageError(f"{said}: {printable(found.detail)}")
                machine, topology = found, said
            if machine is not None and not texts:
                return machine, topology
            known = machine if isinstance(machine, NcclTopology) else None
            lines = (line for name, file in texts for line in mixed_lines(file, reader, name))
            log = read_log(
                lines, lambda: _placement(reader), known, reader.places.named, lambda: _buses(reader)
            )
    except OSError as error:
        raise click.UsageError(f"{said}: {error.strerror or error}") from error
    except ValueError as error:
        raise click.UsageError(f"{said}: {error}") from error
    if not (reader.runs or log.messages or any("Test" in failure for failure in reader.failures)):
        raise click.UsageError(f"{', '.join(map(printable, names))}: {_nothing(reader)}")
    return log, topology


def _begun(reader: Reader, topology: str) -> str:
    """Return each text with its first line in the count of all lines, and the topology file."""
    begun = zip(reader.places.names, reader.places.firsts, strict=True)
    texts = [f"{name} from line {read}" for name, read in begun]
    return ", ".join([*texts, topology] if topology else texts)


def _placement(reader: Reader) -> dict[int, str]:
    """Return the host of each rank by the first table, if its header names all hosts."""
    whole = (run.communicator for run in reader.runs if run.listed)
    return {device.rank: device.host for device in next(whole, ())}


def _buses(reader: Reader) -> dict[str, set[str]]:
    """Return each host's GPU PCI addresses, from table headers with full addresses."""
    found: dict[str, set[str]] = {}
    for one in (one for run in reader.runs for one in run.communicator):
        if address := normal_pci(one.bus_id):
            found.setdefault(one.host, set()).add(address.partition(".")[0])
    return found


def _nothing(reader: Reader) -> str:
    if not reader.lines:
        return "it is empty"
    nothing = f"nothing of nccl-tests or of NCCL's log in {reader.lines} lines"
    if not reader.first:
        return nothing
    one, some = reader.first[0], f"{reader.not_understood} look like rows"
    return f"{nothing}; {some}, the first is line {one.line}, {one.why}: {printable(one.text)[:80]!r}"


def _name(grounds: RunGrounds, topology: str | None, described: str | None, network: str | None) -> None:
    """Add the machine and network that options name. Raises UsageError: an unknown name, or two machines."""
    from wirewatch.cli.topologies import of_name
    from wirewatch_lab.cli.advise.machines import ChosenMachine

    if described is not None:
        grounds.machine = ChosenMachine(topology, described, (), None, (), None).read()
    elif topology not in {None, HERE}:
        named = of_name(topology or "")
        grounds.topology, grounds.of = named.topology, named.of
    if network is not None:
        try:
            grounds.network = network_of(network)
        except DescriptionError as error:
            raise click.UsageError(f"--network: {error}") from error


@contextmanager
def _here(node: Node, environment: Mapping[str, str]) -> Iterator[NodeGround]:
    """Yield the conditions of this node's GPUs, as a probe of them finds them."""
    from wirewatch.collectors.topology import read_topology
    from wirewatch.config import expectations
    from wirewatch.probe.setup import read_scene

    with node.hardware() as (config, hardware):
        topology, listed = read_topology(hardware), hardware.nvml.gpus()
        if isinstance(topology, Absent) or isinstance(listed, Absent):
            why = topology if isinstance(topology, Absent) else Absent(Why.MISSING, "no GPU is listed")
            yield lambda _run, _ranks: Absent(why.why, f"{node.name} cannot be read: {why.detail}")
            return
        pins = config.probe.pins

        def ground(run: BenchmarkRun, ranks: int | None) -> Ground | Absent:
            part = chosen(topology, run, ranks)
            if isinstance(part, Absent):
                return part
            names = {gpu.uuid for gpu in part.gpus}
            gpus = [gpu for gpu in listed if gpu.key in names]
            own = {**dict(run.settings), **environment}
            scene = read_scene(hardware, gpus, own, expectations(config), pins)
            if isinstance(scene, Absent):
                return scene
            return [scene.conditions[0]], (f"{len(gpus)} GPUs of {node.name}",)

        yield ground


def _topology_file(
    source: str, found: NcclTopology | NcclGraphs, node: Node, *, as_json: bool, explain: bool
) -> Health:
    from wirewatch_lab.study.topologycompare import compare_topology, read_node

    text, health, why = list(found.lines()), Health.UNKNOWN, "graphs are compared with nothing"
    read = parsed.ParsedTopologyFile(text, "", [], [], [])
    if isinstance(found, NcclTopology):
        with node.hardware() as (_, hardware):
            seen = read_node(hardware)
        if isinstance(seen, Absent):
            why = f"it could not be compared with {node.name}: {seen}"
        else:
            beside = compare_topology(found, seen)
            text = [*beside.lines(), *text]
            read = parsed.ParsedTopologyFile(
                text, node.name, list(beside.same), list(beside.differs), list(beside.unknown)
            )
            health = Health.DEGRADED if beside.differs else Health.OK if beside.same else Health.UNKNOWN
            why = (*beside.differs, f"nothing differs from {node.name}")[0]
            if beside.other_machine:
                health = Health.UNKNOWN
    if as_json:
        document = parsed.ParseDocument(
            "wirewatch.parse/1", time.time(), HEALTH_NAMES[health], why, source, 0.0, 0, 0, 0, 0, 0, [], [],
            [], topology_file=read,
        )  # fmt: skip
        click.echo(parsed.PARSE.dump_json(document, indent=1).decode())
    else:
        click.echo(first_lines(shown([f"{health.name}: {why}", *text]), explain=explain))
    return health


def _judged(parsed_file: Parsed, basis: BasisOf) -> Iterator[judge.JudgedRun]:
    """Yield and drop each judged run. Raises UsageError: too many different rows in a run."""
    left = parsed_file.reader.runs[::-1]
    parsed_file.reader.runs.clear()
    while left:
        run = left.pop()
        try:
            yield judge.judge(run, basis, parsed_file.ratio)
        except ValueError as error:
            raise click.UsageError(f"{printable(parsed_file.source)}: line {run.line}: {error}") from error


def _print(parsed_file: Parsed, form: str, *, explain: bool) -> Health:
    reader, log, series, tally = parsed_file.reader, parsed_file.log, parsed.ParsedSeries(), Tally()
    free = replace(parsed_file.grounds, settings={}, known={})
    runs: list[ParsedRun] = []
    room = parsed.MOST if form == "json" else _ROWS
    for judged in _judged(parsed_file, parsed_file.grounds.basis):
        tally.add(judged)
        if form == "openmetrics":
            series.add(judged)
        if len(runs) < parsed.MOST_RUNS * (1 + (judged.health in tally.bad)):
            runs.append(parsed.parsed_run(judged, room, _loss(parsed_file, judged, free)))
            room -= len(runs[-1].rows)
    known = runs or reader.failures
    health = judge.overall(tally.healths, reader.failures, asks=tally.asks) if known else judge.of_log(log)
    if form == "openmetrics":
        from wirewatch.server.exposition import as_openmetrics

        samples = series.samples(HEALTH_NAMES[health], reader.not_understood)
        click.echo(as_openmetrics(samples), nl=False)
        return health
    document = parsed.ParseDocument(
        "wirewatch.parse/1", time.time(), HEALTH_NAMES[health], tally.why(health, reader, log),
        parsed_file.source, parsed_file.ratio, reader.lines, reader.rows, reader.others, reader.messages,
        reader.not_understood, reader.first, reader.failures, runs,
        tally.runs - len(runs), log if log.messages else None,
    )  # fmt: skip
    if form == "json":
        click.echo(parsed.PARSE.dump_json(document, indent=1).decode())
    else:
        click.echo(parse_text(document, reader.places, explain=explain))
    return health


def _loss(parsed_file: Parsed, judged: judge.JudgedRun, free: RunGrounds) -> LossAccount | None:
    places, without = parsed_file.reader.places, free.basis(replace(judged.run, settings=()))
    evidence = LossEvidence(parsed_file.log, places.whole, places.short(parsed_file.topology_file), without)
    return account(judged, parsed_file.grounds.basis(judged.run), evidence)


def _plot(path: Path | None, source: str, runs: Sequence[BenchmarkRun], grounds: RunGrounds) -> None:
    """Draw all runs where a path is given.

    Raises UsageError: there is no run, no matplotlib, or the file cannot be written.
    """
    if path is None:
        return
    from wirewatch_lab.study.points import to_study
    from wirewatch_lab.study.report import ReportError, write_report

    study = to_study(runs, source, time.time())
    if not study.curves:
        raise click.UsageError("--plot: no table of nccl-tests is in it")
    try:
        write_report(study, path, [rates for run in runs if (rates := grounds.expected(run))])
    except ReportError as error:
        raise click.UsageError(f"--plot: {error}") from error


_RUNS = 50
"""Runs in the text."""
_ONE_RATE = 0.9
"""Above this share of the best, the expected range is printed as one rate."""
_HEADER = (
    "size", "type", "us", "busbw GB/s", "ratio", "in place us", "busbw GB/s", "ratio", "expected", "wrong"
)  # fmt: skip


@dataclass(slots=True)
class Tally:
    """Common result of all runs: how many faults, and the first fault, with slow sizes last.

    `lowest`: ratio of the row nearest to its limit, and its text.
    """

    runs: int = 0
    wrong: dict[tuple[Health, bool], tuple[int, str]] = field(default_factory=dict)
    lowest: tuple[float, str] = (math.inf, "")
    reason: str = ""
    asks: bool = False
    checked: bool = False
    healths: set[Health] = field(default_factory=set)
    bad: ClassVar[frozenset[Health]] = frozenset({Health.DEGRADED, Health.FAILED})

    def add(self, judged: judge.JudgedRun) -> None:
        """Add a run."""
        self.runs += 1
        self.healths.add(judged.health)
        self.checked |= judged.checked
        # A question is what a reader can answer.
        self.reason = judged.reason if judged.asks and not self.asks else self.reason or judged.reason
        self.asks |= judged.asks
        low = [parsed.low_text(judged.run, one) for one in judged.low]
        self._count(Health.FAILED, judged.failures)
        self._count(judge.severity(judged.low), low, slow=True)
        for one in (one for one in judged.sizes if one.well):
            self.lowest = min(self.lowest, (one.ratio, _lowest(judged.run.op, one)))

    def why(self, health: Health, reader: Reader, log: LogSummary) -> str:
        """Return a verdict in one line, with its limits."""
        self._count(Health.FAILED, reader.failures)
        missed = reader.not_understood
        parts = [self._why(health, log)]
        parts += ["values were not checked"] if self.runs and not self.checked else []
        parts += [f"{missed} row{'' if missed == 1 else 's'} not understood"] if missed else []
        return "; ".join(parts)

    def _count(self, health: Health, found: Sequence[str], *, slow: bool = False) -> None:
        if found:
            count, first = self.wrong.get((health, slow), (0, found[0]))
            self.wrong[health, slow] = (count + len(found), first)

    def _why(self, health: Health, log: LogSummary) -> str:
        wrong = [self.wrong[key] for key in ((health, False), (health, True)) if key in self.wrong]
        if wrong:
            more = sum(count for count, _ in wrong) - 1
            return wrong[0][1] + (f", and {more} more below" if more else "")
        if not self.runs:
            return log.answer
        if health is not Health.OK:
            return self.reason or "nothing could be judged"
        return self.lowest[1]


def _lowest(op: str, one: judge.JudgedSize) -> str:
    """Return the row in words, with a range where its ranks may be joined in different ways."""
    best, what = one.expected.busbw, f"{op} of {words.size(one.point.size_bytes)}"
    if not one.least or one.least > _ONE_RATE * best:
        return f"the lowest is {words.percent(one.ratio)} of what is expected, {what}"
    due = f"{one.least / GB:.1f} to {words.rate(best)}"
    return f"the lowest is {one.busbw / GB:.1f} of {due} that its wires may give, {what}"


def parse_text(document: parsed.ParseDocument, places: SourceLines, *, explain: bool) -> str:
    """Return the deciding facts, up to 15 lines. `explain`: all, with each row and what follows."""
    log = document.nccl_log
    beside = bool(document.runs or document.failures)
    losses = {
        run.line: list(map(printable, run.loss.lines()))
        for run in document.runs
        if run.loss and (log or run.loss.parts or run.loss.others)
    }
    at, told = places.brief, any(run.loss and (run.loss.parts or run.loss.others) for run in document.runs)
    lines = () if log is None else log.lines(at) if explain else log.first(at, beside=beside, told=told)
    lines = lines[0 if beside else 1 :]  # The answer of a log alone is the verdict's reason.
    text = written(
        "parse.j2", document, explain=explain, header=_HEADER, title=partial(_title, places), most_runs=_RUNS,
        rows=lambda run: [_row(row) for row in run.rows], log=list(map(printable, lines)), losses=losses,
        at=places.named, most=(_ROWS,) * 3 if explain else (1, 2, 2 if told else 3),
        more=max(len(document.runs) - _RUNS, 0) + document.runs_left_out,
    )  # fmt: skip
    return first_lines(text, explain=explain or not document.runs)


def _title(places: SourceLines, run: ParsedRun) -> str:
    hosts, products = run.nodes, ", ".join(run.products)
    on = f" on {hosts} host{'' if hosts == 1 else 's'}" if hosts else ""
    ranks = "an unknown number of ranks" if run.ranks is None else f"{run.ranks} ranks"
    versions = [f"nccl-tests {run.nccl_tests}"] if run.nccl_tests else []
    versions += [f"NCCL {run.nccl}"] if run.nccl else []
    parts = [run.op or "an unknown operation", ranks + on, products, *versions, run.launch]
    return f"{places.named(run.line)}: {', '.join(part for part in parts if part)}: {run.health.upper()}"


def _row(row: ParsedRow) -> tuple[str, ...]:
    times = "" if row.repeats == 1 else f" x{row.repeats}"
    wrong = [placed.wrong for placed in (row.out_of_place, row.in_place) if placed is not None]
    known = [count for count in wrong if count is not None]
    return (
        words.size(row.size_bytes) + times, row.dtype, *_placed(row.out_of_place), *_placed(row.in_place),
        "-" if row.expected_busbw is None else f"{row.expected_busbw / GB:.1f}",
        "not checked" if not known else str(sum(known) or "no"),
    )  # fmt: skip


def _placed(placed: ParsedPlacement | None) -> tuple[str, str, str]:
    if placed is None:
        return "-", "-", "-"
    return (
        "-" if placed.seconds is None else f"{placed.seconds * MICRO:.1f}",
        "-" if placed.busbw is None else f"{placed.busbw / GB:.1f}",
        "-" if placed.ratio is None else f"{placed.ratio * 100:.0f} %",
    )
