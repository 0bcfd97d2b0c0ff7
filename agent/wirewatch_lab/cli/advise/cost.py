"""`wirewatch advise cost`: what collectives cost here, and what they make of a token or a training step."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from wirewatch.cli.groups import examples
from wirewatch.cli.options import WholeNumber
from wirewatch.cli.output import shown, write_whole
from wirewatch.cli.probe import Primitive
from wirewatch.core.probe import ALL_REDUCE, KIB, MIB, PRIMITIVES
from wirewatch_lab.advice.cost.answer import CostQuestion, cost
from wirewatch_lab.advice.cost.document import COST, CostDocument
from wirewatch_lab.advice.cost.tokens import Served
from wirewatch_lab.advice.machine import AdvisedMachine
from wirewatch_lab.advice.shapes import HEAD, SHAPES, TRAINED, WIDTHS, ModelShape, plain_shape
from wirewatch_lab.advice.times.estimate import CollectiveTimes, Ranks
from wirewatch_lab.cli.advise.amounts import Bytes, Count, ModelName
from wirewatch_lab.cli.advise.costtext import cost_lines
from wirewatch_lab.cli.advise.machines import ChosenMachine, machine_options
from wirewatch_lab.cli.grids import Numbers

SIZES = (16 * KIB, MIB, 8 * MIB, 64 * MIB, 256 * MIB, 1024 * MIB)
MOST_NODES, MOST_TOKENS, MOST_LAYERS, MOST_HIDDEN = 4096, 1 << 30, 10_000, 1 << 20
MODEL = "give --model, or --layers, --hidden and --parameters"


@dataclass(frozen=True, slots=True)
class _Model:
    """The options that say which model it is."""

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
            raise click.UsageError(
                "--experts and --active go together, and a token takes no more than there are"
            )
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


def _model_options(command: Callable[..., None]) -> Callable[..., None]:
    options = (
        click.option("--model", type=ModelName(), help="A published architecture."),
        click.option("--layers", type=WholeNumber(1, MOST_LAYERS), help="Layers of another model."),
        click.option("--hidden", type=WholeNumber(1, MOST_HIDDEN), help="Its hidden size."),
        click.option("--parameters", type=Count(), help="Its parameters, such as 70B."),
        click.option("--kv-heads", type=WholeNumber(1, 1024), help="Its heads of keys and values."),
        click.option("--experts", type=WholeNumber(0, 4096), default=0, help="Experts of each layer."),
        click.option("--active", type=WholeNumber(0, 4096), default=0, help="Experts that a token takes."),
    )
    return _with(command, options)


def _work_options(command: Callable[..., None]) -> Callable[..., None]:
    options = (
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
    return _with(command, options)


def _with(command: Callable[..., None], options: Sequence[Callable[..., Any]]) -> Callable[..., None]:
    for option in reversed(options):
        command = option(command)
    return command


@click.command("cost", epilog=examples("wirewatch advise cost --machine 8xH200 --model llama-3-70b --tp 8"))
@machine_options
@click.option("--nodes", type=WholeNumber(1, MOST_NODES), default=1, help="Machines of this kind.")
@click.option("--gpus", type=Numbers(), help="How many take part, such as 2,4. Default: all.")
@click.option("--op", "ops", multiple=True, type=Primitive(), help="A collective; repeatable.")
@click.option(
    "--size", "sizes", multiple=True, type=Bytes(),
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

    Exit codes: 0 done, 64 wrong usage, 78 where this node cannot be read. Nothing is judged.
    """
    chosen = ChosenMachine(**{name: given.pop(name) for name in ChosenMachine.__slots__})
    model = _Model(*(given.pop(option) for option in _OF_MODEL))
    plot, explain, as_json = (given.pop(name) for name in ("plot", "explain", "as_json"))
    shape = model.shape(trained=given["train"])
    _check(shape, given)
    machine = chosen.read()
    asked = _question(shape, given, machine)
    made = cost(machine, CollectiveTimes(machine), asked, time.time())
    if plot is not None:
        _draw(made, plot)
    lines = cost_lines(made, collectives=asked.by_size, explain=explain)
    click.echo(COST.dump_json(made, indent=1).decode() if as_json else shown(lines))


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
    gpus = max((one.group.ranks for one in machine.conditions), default=1)
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
    """Over as few of the machines as have so many GPUs.

    Raises:
        UsageError: they have fewer, or cannot share them out.
    """
    domains = -(-ranks // gpus)
    if domains > nodes:
        raise click.UsageError(f"{ranks} GPUs are more than {nodes} x {gpus} = {nodes * gpus}: see --nodes")
    if ranks % domains:
        raise click.UsageError(f"{ranks} GPUs cannot be shared out over {domains} machines of {gpus}")
    return Ranks(ranks, domains)


def _draw(made: CostDocument, path: Path) -> None:
    if find_spec("matplotlib") is None:
        raise click.UsageError("--plot takes matplotlib: pip install 'wirewatch[report]'")
    from wirewatch_lab.advice.cost.plots import draw_cliff

    try:
        write_whole(path, draw_cliff(made.cliff, made.machine))
    except OSError as error:
        raise click.UsageError(f"{path} cannot be written: {error.strerror or error}") from error
