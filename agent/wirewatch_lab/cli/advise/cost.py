"""`wirewatch advise cost`: what collectives cost here, for each token or training step."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from wirewatch.busbw.formulas import NVLS, factor
from wirewatch.cli.groups import RenamingCommand, examples
from wirewatch.cli.options import Size, WholeNumber
from wirewatch.cli.output import write_whole
from wirewatch.cli.probe import Primitive
from wirewatch.cli.tables import table
from wirewatch.core import words
from wirewatch.core.extras import install
from wirewatch.core.probe import ALL_REDUCE, KIB, MIB, PRIMITIVES
from wirewatch.core.statistics import grouped
from wirewatch.core.words import GB, MICRO, UNKNOWN
from wirewatch_lab.advice.cost import document
from wirewatch_lab.advice.cost.answer import CostQuestion, cost
from wirewatch_lab.advice.cost.cliff import AXIS, CliffStep, bars, plotted
from wirewatch_lab.advice.cost.tokens import FREE, WORTHWHILE, Served
from wirewatch_lab.advice.cost.training import ENOUGH, TORCH_BUCKET
from wirewatch_lab.advice.machine import AdvisedMachine
from wirewatch_lab.advice.shapes import HEAD, OPTIONS, SHAPES, TRAINED, WIDTHS, ModelShape, plain_shape
from wirewatch_lab.advice.times.estimate import CollectiveTimes, Ranks
from wirewatch_lab.cli.advise.amounts import (
    EXPERTS_OR_CONTEXT,
    Count,
    ModelName,
    between,
    compared,
    options,
    shares,
)
from wirewatch_lab.cli.advise.machines import ChosenMachine, machine_options
from wirewatch_lab.cli.grids import Numbers
from wirewatch_lab.cli.machinenames import MACHINE
from wirewatch_lab.cli.texts import written
from wirewatch_lab.study.grid import EAGER, GRAPH

SIZES = (16 * KIB, MIB, 8 * MIB, 64 * MIB, 256 * MIB, 1024 * MIB)
MOST_NODES, MOST_TOKENS, MOST_LAYERS, MOST_HIDDEN = 4096, 1 << 30, 10_000, 1 << 20
BAR = 40
"""Characters of the longest bar of the cliff."""
FEW, MANY = 3, 6
"""Rows of a first answer: with two tables, and with a single table."""
MODEL = "give --model, or --layers, --hidden and --parameters"


@dataclass(frozen=True, slots=True)
class _Model:
    """The options that choose the model."""

    name: str | None
    layers: int | None
    hidden: int | None
    parameters: float | None
    kv_heads: int | None
    experts: int
    active: int

    def shape(self, *, trained: bool) -> ModelShape | None:
        given = (self.layers, self.hidden, self.parameters)
        any_other = any((*given, self.kv_heads, self.experts, self.active))
        if self.name is not None:
            if any_other:
                raise click.UsageError("--model has its own layers, hidden size, parameters and experts")
            return next(one for one in SHAPES if one.name == self.name)
        if not any_other:
            return None
        if self.parameters is None or (not all(given) and not (trained and not any(given[:2]))):
            raise click.UsageError(f"{MODEL}; for --train without layers, --parameters alone")
        if bool(self.experts) != bool(self.active) or self.active > self.experts:
            why = "--experts and --active go together, and a token takes no more than there are"
            raise click.UsageError(why)
        heads = max(1, (self.hidden or 0) // HEAD)
        if self.kv_heads and self.hidden and heads % self.kv_heads:
            raise click.UsageError(
                f"--kv-heads {self.kv_heads} does not divide the {heads} heads of --hidden, {HEAD} wide each"
            )
        shape = plain_shape(
            self.layers or 0, self.hidden or 0, self.parameters, self.kv_heads, self.experts, self.active
        )
        if shape.layers and not shape.feed_forward:
            raise click.UsageError(
                f"--parameters {self.parameters:g} are too few: attention alone takes {shape.counted():,} in "
                f"{shape.layers:,} layers of hidden size {shape.hidden:,}, less with fewer --kv-heads"
            )
        return shape


_model_options = options(
    click.option("--model", type=ModelName(), help="A published architecture."),
    click.option("--layers", type=WholeNumber(1, MOST_LAYERS), help="Layers of another model."),
    click.option("--hidden", type=WholeNumber(1, MOST_HIDDEN), help="Its hidden size."),
    click.option("--parameters", type=Count(), help="Its parameters, such as 70B."),
    click.option("--kv-heads", type=WholeNumber(1, 1024), help="Its heads of keys and values."),
    click.option("--experts", type=WholeNumber(0, 4096), default=0, help="Experts of each layer."),
    click.option("--active", type=WholeNumber(0, 4096), default=0, help="Experts that a token takes."),
)


_work_options = options(
    *EXPERTS_OR_CONTEXT,
    click.option(
        "--dtype", type=click.Choice(list(WIDTHS)), default="bfloat16", show_default=True,
        help="Of weights; activations, keys and values have 16 bits or more.",
    ),
    click.option(
        "--batch", type=WholeNumber(1, MOST_TOKENS), default=1, show_default=True,
        help="Sequences at once.",
    ),
    click.option(
        "--context", type=WholeNumber(0, MOST_TOKENS), default=2048, show_default=True,
        help="Tokens of each sequence that are in memory.",
    ),
    click.option("--prompt", type=WholeNumber(1, MOST_TOKENS), help="Show prefill of so many tokens."),
    click.option("--tp", type=WholeNumber(1, 65536), help="Tensor-parallel degree; else all GPUs."),
    click.option(
        "--tokens-per-second", "rate", type=Count(),
        help="Of each sequence: show the share of the collectives in that budget.",
    ),
    click.option("--train", is_flag=True, help="Show a training step too: bytes, memory, buckets."),
    click.option(
        "--tokens", type=WholeNumber(1, MOST_TOKENS), default=8192, show_default=True,
        help="With --train: tokens of a step on each GPU.",
    ),
)  # fmt: skip


@click.command(
    "cost",
    cls=RenamingCommand,
    renamed=MACHINE,
    epilog=examples("wirewatch advise cost --machine 8xH200 --model llama-3-70b --tp 8"),
)
@machine_options
@click.option("--nodes", type=WholeNumber(1, MOST_NODES), default=1, help="Machines of this kind.")
@click.option("--gpus", type=Numbers(), help="How many take part, such as 2,4. Default: all.")
@click.option("--op", "ops", multiple=True, type=Primitive(), help="A collective; repeatable.")
@click.option(
    "--size", "sizes", multiple=True, type=Size(),
    help="Message size; repeatable. K, M, G are powers of 1024, KB, MB, GB of 1000.",
)  # fmt: skip
@_model_options
@_work_options
@click.option("--plot", type=click.Path(path_type=Path), help="Draw the bandwidth cliff: an SVG file.")
@click.option(
    "--explain", is_flag=True, help="How each figure follows, its source, and when it does not hold."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def cost_command(**given: Any) -> None:
    """Say what collectives cost on a machine, and what they make of a token or a training step.

    By itself: the bandwidth cliff, times by size, and what each algorithm moves. With a model: decode and
    prefill by tensor-parallel degree, and where it stops gaining. With --train: what a step sends.

    Exit codes: 0 done, 64 wrong usage, 69 where this node cannot be read. Nothing is judged.
    """
    explicit = bool(given["sizes"] or given["ops"] or given["gpus"])
    chosen = ChosenMachine.of(given.pop("machine"), given)
    model = _Model(*(given.pop(option) for option in _OF_MODEL))
    plot, explain, as_json = (given.pop(name) for name in ("plot", "explain", "as_json"))
    shape = model.shape(trained=given["train"])
    _check(shape, given)
    machine = chosen.read()
    asked = _question(shape, given, machine)
    made = cost(machine, CollectiveTimes(machine), asked, time.time())
    if plot is not None:
        _draw(made, plot)
    if as_json:
        click.echo(document.COST.dump_json(made, indent=1).decode())
    else:
        click.echo(cost_text(made, collectives=asked.by_size and (explicit or explain), explain=explain))


_OF_MODEL = ("model", "layers", "hidden", "parameters", "kv_heads", "experts", "active")
_TAKES_MODEL = ("tp", "prompt", "rate")


def _check(shape: ModelShape | None, given: Mapping[str, Any]) -> None:
    serves = shape is not None and shape.layers > 0
    for option in _TAKES_MODEL:
        if given[option] is not None and not serves:
            name = "tokens-per-second" if option == "rate" else option
            raise click.UsageError(f"--{name} is about a model: {MODEL}")
    if given["train"] and shape is None:
        raise click.UsageError("--train is about a model: give --model or --parameters")
    if given["train"] and given["dtype"] not in TRAINED:
        raise click.UsageError(f"--train has gradients of {', '.join(TRAINED)}, not of {given['dtype']}")


def _question(shape: ModelShape | None, given: Mapping[str, Any], machine: AdvisedMachine) -> CostQuestion:
    nodes, tp = given["nodes"], given["tp"]
    gpus = machine.gpus
    spans = tuple(_span(ranks, gpus, nodes) for ranks in given["gpus"] or ())
    if tp is not None:
        _span(tp, gpus, nodes)
    width, batch, context = WIDTHS[given["dtype"]], given["batch"], given["context"]
    served = None if shape is None else Served(shape, width, batch, context)
    ops = tuple(dict.fromkeys(given["ops"]))
    return CostQuestion(
        ops or (ALL_REDUCE,), tuple(sorted(set(given["sizes"] or SIZES))),
        () if ops else tuple(op for op in PRIMITIVES if op != ALL_REDUCE), spans, nodes, served,
        given["dtype"], tp, given["prompt"], given["rate"], given["tokens"] if given["train"] else None,
        by_size=shape is None or bool(given["sizes"] or ops or spans),
    )  # fmt: skip


def _span(ranks: int, gpus: int, nodes: int) -> Ranks:
    """Spread ranks over the fewest machines. Raises UsageError: too few machines, or unequal shares."""
    domains = -(-ranks // gpus)
    if domains > nodes:
        raise click.UsageError(f"{ranks} GPUs are more than {nodes} x {gpus} = {nodes * gpus}: see --nodes")
    if ranks % domains:
        raise click.UsageError(f"{ranks} GPUs cannot be shared out over {domains} machines of {gpus}")
    return Ranks(ranks, domains)


def _draw(made: document.CostDocument, path: Path) -> None:
    if find_spec("matplotlib") is None:
        raise click.UsageError(f"--plot takes matplotlib: {install('report')}")
    from wirewatch_lab.study.plots import draw_bars

    try:
        write_whole(path, draw_bars(made.machine, AXIS, plotted(made.cliff)))
    except OSError as error:
        raise click.UsageError(f"{path} cannot be written: {error.strerror or error}") from error


def cost_text(made: document.CostDocument, *, collectives: bool, explain: bool) -> str:
    """Return the answer, first as a sentence. `collectives`: with times and algorithms by size."""
    serving, training = made.serving, made.training
    rows = serving.decode if serving else ()
    row = next((one for one in rows if serving and (one.tp, one.pp) == (serving.tp, serving.pp)), None)
    judged = next(one for one in row.launches if one.launch == serving.judged_by) if row and serving else None
    known_times = [one for one in made.times if one.seconds is not None and one.launch == EAGER]
    by_size = sorted(known_times, key=lambda one: one.size_bytes)
    largest = next((one for one in by_size if one.size_bytes == by_size[-1].size_bytes), None)
    answered = [one for one in (*by_size[:1], largest) if one is not None]
    filled = serving.prefill if serving else ()
    drawn = zip(made.cliff, bars(made.cliff, BAR), strict=True)
    gains = [_gains(made, serving, serving.stops), _stages(serving)] if serving and serving.stops else []
    return written(
        "cost.j2", made, collectives=collectives, explain=explain, chosen=row, judged=judged,
        answered=answered, gains=list(filter(None, gains)),
        decode=[_decoded(one) for one in _first(rows, FEW if filled else MANY, explain=explain)],
        prefill=[_filled(one) for one in _first(filled, FEW, explain=explain)],
        schemes="\n".join(_schemes(training)) if training else "",
        cliff=[_step(step, bar) for step, bar in drawn], times=list(_times(made)),
        unknown=_unknown(made.times), algorithms=list(_algorithms(made)), nvls=_on_the_links(made),
        sources=_sources(made, collectives=collectives), size=_size, bytes=_bytes, head=HEAD,
        options=OPTIONS, free=FREE, enough=ENOUGH, torch_bucket=TORCH_BUCKET,
    )  # fmt: skip


def _gains(made: document.CostDocument, one: document.ServingCost, stops: int) -> str:
    """Return the TP degree where decode stops gaining, as far as the errors of its times allow."""
    steps = {row.tp: found for row, found in _judged(one) if row.pp == 1 and row.fits is not False}
    known = {tp: found for tp, found in steps.items() if found.step is not None}
    if len(known) == 1:
        return f"Of these TP degrees the model fits, or its time is known, at TP {stops} alone."
    half, twice = known.get(stops // 2), known.get(2 * stops)
    saved = (
        ""
        if half is None
        else f", where doubling saves {shares(*_saves(half, known[stops]))} of a token's time"
    )
    if twice is None:
        here = "in one machine" if made.nodes > 1 and stops <= made.gpus else "here"
        last = f"the most {here}" if stops == max(steps) else "the most that is known here"
        return f"Decode still gains at TP {stops}, {last}{saved}."
    gains = f"Decode gains up to TP {stops}{saved}; " if half else ""
    least, most = _saves(known[stops], twice)
    if most < WORTHWHILE:
        return f"{gains or 'Decode gains '}less than a tenth beyond{'' if half else f' TP {stops}'}."
    ask = f"whether TP {2 * stops} gains more than TP {stops} is not decided"
    return f"{gains}{ask if half else f'W{ask[1:]}'}: a token takes {between(-most, -least)}."


def _stages(one: document.ServingCost) -> str:
    """Compare stages on several machines with the widest TP over as many GPUs; empty without stages."""
    staged = [(row, found) for row, found in _judged(one) if row.pp > 1 and found.step is not None]
    if not staged:
        return ""
    row, found = staged[0]
    name = f"TP {row.tp} x PP {row.pp} takes {(found.step or 0) * 1e3:.2f} ms a token"
    wide = [two for other, two in _judged(one) if other.tp == row.tp * row.pp and two.step is not None]
    fits = "" if row.fits is not False else "; it does not fit"
    if not wide:
        return f"{name}, of one sequence{fits}."
    beside = compared(*(-share for share in _saves(wide[0], found)[::-1]))
    many = f"its stages serve {row.pp} batches at once"
    return f"{name}, beside TP {row.tp * row.pp} {beside}{fits}; {many}."


def _judged(one: document.ServingCost) -> Iterator[tuple[document.PassRow, document.LaunchCost]]:
    return ((row, found) for row in one.decode for found in row.launches if found.launch == one.judged_by)


def _saves(one: document.LaunchCost, other: document.LaunchCost) -> tuple[float, float]:
    """Return the share by which the other step is shorter, at least and at most."""
    first, second = one.step or math.inf, other.step or math.inf
    off = (one.error or 0.0) + (other.error or 0.0)
    return (first - second - off) / first, (first - second + off) / first


def _first(rows: Sequence[document.PassRow], most: int, *, explain: bool) -> Sequence[document.PassRow]:
    """Return the rows of a first answer: the widest that fit."""
    fitting = [row for row in rows if row.fits is not False] or rows
    return rows if explain or len(rows) <= most else fitting[-most:]


def _decoded(row: document.PassRow) -> tuple[str, ...]:
    """Return the cells of a decode row of one TP degree."""
    fits = "" if row.fits is not False else " (too much)"
    return (
        str(row.tp) if row.pp == 1 else f"{row.tp} x PP {row.pp}", f"{row.held / GB:.1f}{fits}",
        UNKNOWN if row.work is None else f"{row.work * 1e3:.2f}", _reductions(row), *_cells(row),
    )  # fmt: skip


def _filled(row: document.PassRow) -> tuple[str, ...]:
    """Return the cells of a prefill row of one TP degree."""
    return str(row.tp), _size(row.message_bytes), _reductions(row), *_cells(row)


def _reductions(row: document.PassRow) -> str:
    return UNKNOWN if row.tp == 1 else str(row.all_reduces)


def _cells(row: document.PassRow) -> tuple[str, ...]:
    """Return the eager and graph times, where both are known and differ."""
    each = [one.collective.seconds if one.collective else None for one in row.launches]
    return (
        _pair(each, MICRO, 1),
        _pair([one.communication for one in row.launches], 1e3, 2) if row.tp > 1 else UNKNOWN,
        _pair([one.step for one in row.launches], 1e3, 2),
        _pair([one.hidden_step for one in row.launches], 1e3, 2),
        _pair([one.share for one in row.launches], 100, 0, " %") if row.tp > 1 else UNKNOWN,
    )


def _pair(values: Sequence[float | None], scale: float, digits: int, unit: str = "") -> str:
    texts = [UNKNOWN if one is None else f"{one * scale:.{digits}f}{unit}" for one in values]
    return texts[0] if len(set(texts)) == 1 else " / ".join(texts)


def _schemes(one: document.TrainingCost) -> Iterator[str]:
    crosses = ("leaves the node",) if one.nodes > 1 else ()
    return table(
        ("scheme", "a GPU sends", *crosses, "keeps", "by"),
        [
            (
                found.scheme, UNKNOWN if found.objection else _bytes(found.sends),
                *([UNKNOWN if found.objection else _bytes(found.crosses or 0.0)] if crosses else []),
                UNKNOWN if found.memory is None or found.objection else _bytes(found.memory),
                f"not possible: {found.objection}" if found.objection else found.calls,
            )
            for found in one.schemes
        ],
    )  # fmt: skip


def _step(step: CliffStep, bar: str) -> tuple[str, ...]:
    printed = UNKNOWN if step.printed is None else f"{step.printed / GB:.0f}"
    return step.name, f"{step.rate / GB:.1f}", printed, bar.ljust(BAR), step.what


def _times(made: document.CostDocument) -> Iterator[tuple[tuple[int, int], list[tuple[str, ...]]]]:
    """Yield each span of ranks and domains with a row for each of its times."""
    graphs = {(one.ranks, one.op, one.size_bytes): one for one in made.times if one.launch == GRAPH}
    for span in dict.fromkeys((one.ranks, one.domains) for one in made.times):
        eager = [one for one in made.times if (one.ranks, one.launch) == (span[0], EAGER)]
        yield span, [_timed(one, graphs[one.ranks, one.op, one.size_bytes]) for one in eager]


def _timed(eager: document.EstimatedCollective, graph: document.EstimatedCollective) -> tuple[str, ...]:
    known = eager if eager.seconds is not None else graph
    stands = f"{document.basis(known, ' ({})')}{_within(known)}" if known.basis else "not known"
    if eager.basis and graph.basis and graph.basis != eager.basis:
        stands += f"; graph {document.basis(graph, ' ({})')}{_within(graph)}"
    return (
        eager.op, _size(eager.size_bytes), _us(eager.seconds), _us(graph.seconds),
        UNKNOWN if known.busbw is None else f"{known.busbw / GB:.1f}", _us(eager.least), stands,
    )  # fmt: skip


def _within(one: document.EstimatedCollective) -> str:
    return f", within {one.within:.0%}" if one.within else ""


def _us(seconds: float | None) -> str:
    if seconds is None:
        return UNKNOWN
    return f"{seconds * 1e6:.1f}" if seconds >= 1e-6 else f"{seconds * 1e6:.2g}"  # noqa: PLR2004


def _unknown(found: Sequence[document.EstimatedCollective]) -> dict[str, list[str]]:
    """Return the reasons for unknown times, each with its collectives."""
    unknown = (one for one in found if one.why and one.launch == EAGER)
    return grouped((one.why, f"{one.op} {_size(one.size_bytes)}") for one in unknown)


def _algorithms(
    made: document.CostDocument,
) -> Iterator[tuple[tuple[int, int], float, list[tuple[str, ...]]]]:
    """Yield each span of ranks and nodes with the size and a row for each algorithm."""
    for span in dict.fromkeys((row.ranks, row.nodes) for row in made.algorithms):
        rows = [row for row in made.algorithms if row.ranks == span[0]]
        yield span, rows[0].size_bytes, [_moved(row) for row in rows]


def _moved(row: document.AlgorithmRow) -> tuple[str, ...]:
    one = row.traffic
    return (
        row.op, one.algorithm + ("" if one.nccl else " *"), str(one.steps), _bytes(one.sends),
        _bytes(one.receives), _bytes(one.crosses), _bytes(one.links), _us(row.least),
    )  # fmt: skip


def _on_the_links(made: document.CostDocument) -> tuple[float, float]:
    """Return the highest NVLS busbw and the matching rate on the links; zeros where NVLS does not run."""
    reduced = [row for row in made.algorithms if row.op == ALL_REDUCE and row.traffic.nccl]
    nvls = {row.ranks for row in reduced if row.traffic.algorithm == NVLS}
    timed = [one for one in made.times if one.op == ALL_REDUCE and one.ranks in nvls]
    rates = [(one.busbw, one.busbw / factor(ALL_REDUCE, one.ranks)) for one in timed if one.busbw]
    return max(rates, default=(0.0, 0.0))


def _sources(made: document.CostDocument, *, collectives: bool) -> list[str]:
    """Return the sources of the times, each once."""
    used = list(made.times) if collectives else []
    if made.serving is not None:
        rows = (*made.serving.decode, *made.serving.prefill)
        used += [one.collective for row in rows for one in row.launches if one.collective is not None]
    known = (one for one in used if one.seconds is not None)
    return list(dict.fromkeys(f"{document.basis(one, ', {}')}{_within(one)}: {one.source}" for one in known))


def _size(size: float) -> str:
    """Return a size in powers of 1024 where the number is whole, else in powers of 1000."""
    whole = round(size)
    if whole % 1000 == 0 and whole % 1024:
        return _bytes(whole)
    text = words.size(whole)
    return text if not text.endswith(" B") or whole < 10_000 else _bytes(whole)  # noqa: PLR2004


def _bytes(count: float) -> str:
    """Return bytes in powers of 1000."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
        if count >= unit:
            return f"{count / unit:.4g} {name}"
    return f"{count:.4g} B"
