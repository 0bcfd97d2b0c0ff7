"""`wirewatch fleet probe`: rounds of pairs by the fleet's own scheduler, until it names a part."""

import json
import math
import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from wirewatch.cli.check.answer import HEALTHS
from wirewatch.cli.groups import RenamingCommand, examples
from wirewatch.cli.options import Duration, ExistingFile, FiniteNumber, Size, WholeNumber
from wirewatch.cli.output import shown, write_whole
from wirewatch.core.exits import Exit, exit_of
from wirewatch.core.extras import install
from wirewatch.core.hostlist import HostlistError, compact, expanded
from wirewatch.core.types import NotText, Unusable, utf8
from wirewatch.core.words import first, utc
from wirewatch.core.words import size as human
from wirewatch.signals import SIGNALS
from wirewatch_fleet.cli.pairs import LISTED, leafs_option, pairs_lines, queue_pairs_of, read_past, with_leafs

if TYPE_CHECKING:
    from wirewatch_fleet.pairs.document import RoundsDocument
    from wirewatch_fleet.pairs.model import MeasuredRound, PairRound
    from wirewatch_fleet.rounds.campaign import CampaignOptions
    from wirewatch_fleet.rounds.engine import PairNode, RoundEngine, RoundOrder
    from wirewatch_fleet.rounds.plan import PairWork

Command = Callable[..., None]
GPU = "nvidia.com/gpu"
CREDENTIALS = "/var/run/secrets/kubernetes.io/serviceaccount"


def slurm_options(command: Command) -> Command:
    """Add options that are passed on to Slurm."""
    for name in ("qos", "account", "reservation", "partition"):
        text = f"With --slurm: the {name} of its jobs."
        command = click.option(f"--{name}", default="", metavar="NAME", help=text)(command)
    return click.option(
        "--gres", default="", metavar="GRES", help="With --slurm: what each node of a job holds: gpu:8."
    )(command)


def slurm_engine(nodes: Sequence[str], chosen: Mapping[str, Any]) -> "RoundEngine":
    """Return Slurm's engine; its pairs are steps of our allocation, unless the user names a place."""
    from wirewatch_fleet.rounds.slurm import SlurmOptions, SlurmRounds

    inside = "" if chosen["partition"] or chosen["reservation"] else os.environ.get("SLURM_JOB_ID", "")
    return SlurmRounds(
        SlurmOptions(
            partition=chosen["partition"], reservation=chosen["reservation"], account=chosen["account"],
            qos=chosen["qos"], gres=chosen["gres"], nodes=tuple(nodes), job=inside,
            command=_command(chosen["command"]), port=chosen["port"],
        )
    )  # fmt: skip


def _command(text: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise click.UsageError(f"--command {text}: {error}") from error
    if not words:
        raise click.UsageError("--command: wirewatch on the nodes is needed")
    return words


def kubernetes_options(command: Command) -> Command:
    """Add options that describe pairs as Jobs of Kubernetes."""
    texts = {
        "leaf-label": "a label by which nodes share a leaf; repeatable, the first that a node has.",
        "gpu-resource": "the resource by which pods get GPUs.",
        "priority-class": "the PriorityClass of its pods.",
        "queue": "Kueue's local queue, which admits its Jobs.",
        "selector": "labels of the nodes, as kubectl has them.",
        "namespace": "the namespace of its Jobs; default: that of this pod.",
    }
    for name, text in texts.items():
        many, said = name == "leaf-label", f"With --kubernetes: {text}"
        kind = {"multiple": True} if many else {"default": GPU if name == "gpu-resource" else ""}
        command = click.option(f"--{name}", metavar="NAME", help=said, **kind)(command)
    return click.option(
        "--pod-template", type=ExistingFile(), metavar="FILE.json",
        help="With --kubernetes: the pod of a pair as JSON, metadata and spec; its first container runs it.",
    )(command)  # fmt: skip


def kubernetes_engine(nodes: Sequence[str], chosen: Mapping[str, Any]) -> "RoundEngine":
    """Return Kubernetes' engine: by our pod's ServiceAccount, else by kubectl's configuration.

    Raises:
        UsageError: the template or the namespace is missing, or cannot be used.
        Unusable: a library is not installed.
    """
    try:
        from wirewatch_fleet.kubeclient import client_for
        from wirewatch_fleet.rounds.kubernetes import KubernetesRounds
    except ModuleNotFoundError as error:
        raise Unusable(f"{error.name} is not installed: {install('controller')}") from error
    from wirewatch.kubernetes.apiserver import api_server
    from wirewatch_fleet.rounds.jobs import LEAFS, PairJobsOptions

    folder = CREDENTIALS
    inside = "KUBERNETES_SERVICE_HOST" in os.environ and Path(folder, "token").exists()
    pod = os.environ.get("POD_NAME", ""), os.environ.get("POD_UID", "")
    options = PairJobsOptions(
        chosen["namespace"] or _namespace(Path(folder)), _template(chosen["pod_template"]),
        queue=chosen["queue"], priority=chosen["priority_class"], nodes=_names(nodes),
        selector=chosen["selector"], leafs=chosen["leaf_label"] or LEAFS, gpu=chosen["gpu_resource"],
        gpus=0 if chosen["engine"] == "gloo" else chosen["gpus"], port=chosen["port"],
        owner=pod if inside and all(pod) else None,
    )  # fmt: skip

    where = api_server("", folder, os.environ, "fleet probe") if inside else None
    return KubernetesRounds(options, partial(client_for, where))


def _template(file: Path | None) -> Mapping[str, Any]:
    from wirewatch_fleet.rounds.jobs import TemplateError, checked

    if file is None:
        raise click.UsageError("--kubernetes takes --pod-template: which image runs the pairs, and how")
    try:
        return checked(json.loads(utf8(file.read_bytes())))
    except OSError as error:
        raise click.UsageError(f"{file}: {error.strerror or error}") from error
    except NotText as error:
        raise click.UsageError(f"{file}: {error}") from error
    except (ValueError, RecursionError, TemplateError) as error:
        raise click.UsageError(f"{file}: not a pod template: {error}") from error


def _namespace(folder: Path) -> str:
    try:
        return (folder / "namespace").read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        raise click.UsageError("--namespace: outside of a pod, say where its Jobs go") from error


def _names(nodes: Sequence[str]) -> tuple[str, ...]:
    try:
        return tuple(dict.fromkeys(name for one in nodes for name in expanded(one)))
    except HostlistError as error:
        raise click.UsageError(f"--nodelist: {error}") from error


ENGINES: Mapping[str, Callable[[Sequence[str], Mapping[str, Any]], "RoundEngine"]] = {
    "slurm": slurm_engine,
    "kubernetes": kubernetes_engine,
}
"""Makers of engines, from the named nodes, if any, and all options of the command."""


START_SECONDS = 40.0
"""Seconds of a pair besides its work: the scheduler's scripts, and Python on cold disks."""
MEET_SECONDS = 8.0
"""Seconds that a node of a pair waits for the other before either measures."""
GLOO_SIZE = 4 << 20
"""Default size that processors send: it proves the way, and says little about wires."""


@click.command(
    cls=RenamingCommand, renamed={"--nodes": "--nodelist"},
    epilog=examples("wirewatch fleet probe --slurm --nodelist n[01-16]"),
)  # fmt: skip
@click.option("--slurm", "runs_on", flag_value="slurm", help="Run pairs by srun.")
@click.option("--kubernetes", "runs_on", flag_value="kubernetes", help="Run pairs as Jobs of Kubernetes.")
@click.option(
    "--nodelist",
    "nodes",
    multiple=True,
    metavar="LIST",
    help="Only these nodes, such as n[01-16]; repeatable. Else all idle.",
)
@click.option(
    "--rounds", type=WholeNumber(1, 100), default=8, show_default=True,
    help="Rounds at most, beside those in which suspects run alone.",
)  # fmt: skip
@leafs_option
@click.option(
    "--least", type=FiniteNumber(1, 50), default=3.0, show_default=True,
    help="Name what is so many percent slower, or more.",
)  # fmt: skip
@click.option(
    "--past", type=ExistingFile(), multiple=True,
    help="An earlier result of this fleet (--json), to see whether all are slower alike; repeatable.",
)  # fmt: skip
@click.option(
    "--results", type=click.Path(dir_okay=False, path_type=Path), default=Path("fleet-rounds.json"),
    show_default=True, help="Kept after each round; where it is there, rounds go on from it.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Say what would run where, how long, and end.")
@click.option(
    "--engine", type=click.Choice(("distributed", "gloo")), default="distributed", show_default=True,
    help="NCCL by torch.distributed, or gloo on processors.",
)  # fmt: skip
@click.option("--gpus", type=WholeNumber(1, 64), help="GPUs of each node, or processes of gloo.")
@click.option("--size", type=Size(4), help="How much a rail sends at a time, such as 256MiB.")
@click.option("--iterations", type=WholeNumber(1, 10_000), default=8, show_default=True, help="Timed runs.")
@click.option("--interface", metavar="NAME", help="The network interface of NCCL's and gloo's sockets.")
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="For the workers; repeatable.")
@click.option("--wait", type=Duration(), default="1m", help="To be admitted, for each pair; 1m by default.")
@click.option("--limit", type=Duration(), default="20s", help="To measure, for each pair; 20s by default.")
@click.option(
    "--port", type=WholeNumber(1024, 60_000), default=28700, show_default=True,
    help="At which the first node of a pair listens.",
)  # fmt: skip
@click.option("--command", default="wirewatch", show_default=True, help="wirewatch on the nodes.")
@click.option("--seed", type=WholeNumber(0, 1 << 31), default=0, help="Of the random pairs; default 0.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document (wirewatch.fleet-pairs/1).")
@slurm_options
@kubernetes_options
@click.pass_context
def probe(context: click.Context, /, runs_on: str | None, nodes: Sequence[str], **chosen: Any) -> None:
    """Find the slow node, direction, pair, rail or leaf: pairs of nodes measure each other, in rounds.

    First it prints what will run where, how long and for how many GPU-seconds; --dry-run ends there. Each
    pair runs `wirewatch fleet peer` on both nodes, which refuses GPUs that others use and gives way to jobs.
    Ctrl-C cancels its jobs, and the same command goes on later.

    Ends as `wirewatch fleet pairs` does: 0 nothing is slow, 1 something is named, 2 it has lost 30 % or more,
    3 something is open. 64: nodes that do not exist, or options that do not fit together; 69: the scheduler
    does not answer.
    """
    from wirewatch_fleet.rounds.engine import NodesError, RoundEngineError

    if runs_on is None:
        raise click.UsageError("say what runs the pairs: --slurm or --kubernetes")
    engine = ENGINES[runs_on](nodes, chosen)
    try:
        code = _probe(engine, nodes, chosen)
    except NodesError as error:
        raise click.UsageError(str(error)) from error
    except RoundEngineError as error:
        kept = f"; {chosen['results']} has the rounds so far" if chosen["results"].exists() else ""
        click.echo(f"wirewatch: {error}{kept}", err=True)
        code = Exit.NO_ANSWER
    context.exit(code)


def _probe(engine: "RoundEngine", named: Sequence[str], chosen: dict[str, Any]) -> int:
    """Plan, run and print; return the exit code.

    Raises:
        RoundEngineError: the engine does not answer.
        UsageError: what is asked for cannot be measured, or the results cannot be kept.
    """
    from wirewatch_fleet.pairs.document import PAIRS, pairs_document
    from wirewatch_fleet.pairs.model import asked_limits
    from wirewatch_fleet.rounds.campaign import CampaignOptions, planned_next

    members = engine.members()
    made = _begun(members, bool(named), chosen["results"], chosen["seed"])
    work = _work(members, made, chosen)
    made = with_leafs(_of_work(made, work, chosen["results"]), chosen["leafs"])
    limits = asked_limits(chosen["least"], chosen["rounds"], queue_pairs_of(made))
    past = read_past(chosen["past"], made)
    options = CampaignOptions(work, chosen["limit"] + START_SECONDS, chosen["wait"], limits)
    planned = planned_next(engine, made, options)
    lines = announce(Announced(engine, members, made, options, planned, chosen["results"]))
    click.echo(shown(lines), err=chosen["as_json"])
    if chosen["dry_run"]:
        return 0
    ended = None
    if planned is not None:
        made, ended = run_and_keep(engine, made, options, chosen["results"])
    found = pairs_document(made, past, limits)
    click.echo(PAIRS.dump_json(found, indent=1).decode() if chosen["as_json"] else shown(pairs_lines(found)))
    if ended is not None:
        click.echo(f"{ended}; {len(made.rounds)} rounds are kept, the same command goes on", err=True)
    return exit_of(HEALTHS["unknown" if ended else found.health])


def _begun(members: "Sequence[PairNode]", named: bool, results: Path, seed: int) -> "RoundsDocument":  # noqa: FBT001
    """Return the results so far, or a new fleet: of the named nodes, else of all idle nodes."""
    from wirewatch_fleet.pairs.document import RoundsError, read_rounds, rounds_document
    from wirewatch_fleet.pairs.model import PairFleet, PairMember

    wanted = [one for one in members if named or not one.busy]
    if results.exists():
        try:
            made = read_rounds(results)
        except RoundsError as error:
            raise click.UsageError(str(error)) from error
        if (
            named and {one.name for one in made.members} != {one.name for one in wanted}
        ) or made.seed != seed:
            raise click.UsageError(f"{results} is of other nodes or another seed: name another file")
        return made
    if len(wanted) < 2:  # noqa: PLR2004
        busy = ", ".join(f"{one.name} is {one.busy}" for one in members[:8] if one.busy)
        raise click.UsageError(f"it takes two idle nodes{f'; {busy}' if busy else ''}")
    fleet = PairFleet(tuple(PairMember(one.name, one.leaf) for one in wanted))
    return rounds_document(time.time(), fleet, (), seed)


def _of_work(made: "RoundsDocument", work: "PairWork", results: Path) -> "RoundsDocument":
    """Return the rounds with their pairs' work.

    Raises:
        UsageError: rounds of other work are in the file already.
    """
    from wirewatch_fleet.rounds.plan import measured_work

    ours = measured_work(work)
    if made.work not in (None, ours):
        raise click.UsageError(
            f"{results} was measured with another engine, size, number of GPUs or environment: "
            "name another file"
        )
    return replace(made, work=ours)


def _work(members: "Sequence[PairNode]", made: "RoundsDocument", chosen: dict[str, Any]) -> "PairWork":
    from wirewatch_fleet.rounds.plan import INTERFACES, PairWork, wrong_work

    gloo = chosen["engine"] == "gloo"
    environment = dict.fromkeys(INTERFACES, chosen["interface"]) if chosen["interface"] else {}
    for text in chosen["variables"]:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"--env {text}: not NAME=VALUE")
        environment[name] = value
    ranks = chosen["gpus"] or (1 if gloo else _gpus(members, {one.name for one in made.members}))
    if not gloo and (few := _with_fewer(members, {one.name for one in made.members}, ranks)):
        raise click.UsageError(f"--gpus {ranks}: {few.name} has {few.gpus}")
    size = chosen["size"] or (GLOO_SIZE if gloo else PairWork().size_bytes)
    work = PairWork(
        chosen["engine"], ranks, size, chosen["iterations"], seconds=chosen["limit"],
        patience=min(chosen["limit"] / 2, MEET_SECONDS), environment=environment,
    )  # fmt: skip
    wrong = wrong_work(work)
    if wrong:
        raise click.UsageError(wrong)
    return work


def _with_fewer(members: "Sequence[PairNode]", names: set[str], gpus: int) -> "PairNode | None":
    """Return an idle node with fewer GPUs, by the scheduler's count."""
    idle = (one for one in members if one.name in names and not one.busy)
    return next((one for one in idle if one.gpus is not None and one.gpus < gpus), None)


def _gpus(members: "Sequence[PairNode]", names: set[str]) -> int:
    """Return how many GPUs all of them have.

    Raises:
        UsageError: it is not known, or they differ.
    """
    counts = {one.gpus for one in members if one.name in names}
    if counts == {None}:
        raise click.UsageError("the scheduler counts no GPUs there: give --gpus")
    known = [one for one in counts if one]
    if len(counts) != 1 or not known:
        raise click.UsageError("the nodes have different numbers of GPUs: give --gpus")
    return known[0]


@dataclass(frozen=True, slots=True)
class Announced:
    """The known plan before anything runs; `planned` None: nothing is left to measure."""

    engine: "RoundEngine"
    nodes: "Sequence[PairNode]"
    made: "RoundsDocument"
    options: "CampaignOptions"
    planned: "PairRound | None"
    results: Path


def announce(known: Announced) -> Iterator[str]:
    """Yield the planned work: where it runs, how long at most, and which resources it holds."""
    from wirewatch_fleet.rounds.campaign import order_of

    members = [one.name for one in known.made.members]
    leafs = len({one.leaf for one in known.made.members if one.leaf})
    yield f"{len(members)} nodes{f' in {leafs} leafs' if leafs else ''}: {compact(members)}"
    busy = [f"{one.name} ({one.busy})" for one in known.nodes if one.busy]
    if busy:
        yield f"not idle, in no pair: {first(busy, LISTED)}"
    if known.made.rounds:
        count = len(known.made.rounds)
        these = "1 round is" if count == 1 else f"{count} rounds are"
        yield f"{these} in {known.results} already, from {utc(known.made.at)} on; another file begins afresh"
    if known.planned is None:
        yield "nothing is left to measure"
        return
    yield _pair_words(known.options)
    yield from known.engine.describe(order_of(known.planned, known.options))
    planned, pairs = known.planned, [f"{a} with {b}" for a, b in known.planned.pairs]
    yield f"round {planned.number} ({planned.purpose}), {len(pairs)} pairs: {first(pairs, LISTED)}"
    yield from _most(known, len(members))
    yield f"results: {known.results}"


def _pair_words(options: "CampaignOptions") -> str:
    work = options.work
    rails = ", " if work.ranks == 1 else f" on each of {work.ranks} rails, on all at once, "
    what = "processes" if work.engine == "gloo" else "GPUs"
    return (
        f"each pair sends {human(work.size_bytes)} each way{rails}then an all_reduce, by {work.engine}: "
        f"{work.seconds:g} s at most on 2 x {work.ranks} {what}"
    )


def _most(known: Announced, members: int) -> Iterator[str]:
    from wirewatch_fleet.pairs.plan import QUIET

    options = known.options
    quiet = sum(one.purpose in QUIET for one in known.made.rounds)
    left = max(0, options.limits.most - len(known.made.rounds) + quiet)
    seconds = left * (options.patience + options.seconds)
    held = left * members * options.work.gpus * options.work.seconds
    gpus = f", {held:,.0f} GPU-seconds" if options.work.gpus else ", no GPU"
    yield (
        f"at most {left} rounds, each {options.patience:g} s to be admitted, {options.seconds:g} s to run: "
        f"{math.ceil(seconds / 60)} min{gpus}; mostly {min(left, options.limits.first)} rounds and small ones"
    )
    if options.limits.quiet:
        each = 2 * options.work.gpus * options.work.seconds
        yield (
            f"what is slow then runs alone before it is named, with three partners: {options.limits.quiet} "
            f"more rounds at most, {f'{each:,.0f} GPU-seconds' if each else 'no GPU'} for a pair in each"
        )
    if options.limits.queue_pairs:
        yield (
            "where routes are shared, one more round of all pairs, with "
            f"{options.limits.queue_pairs} queue pairs for a connection"
        )


@dataclass
class ShownCampaign:
    """Reports each round on standard error, and keeps it in the file."""

    results: Path
    ended_by: list[str] = field(default_factory=list)
    _since: float = 0.0

    def mono(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def ended(self) -> bool:
        return bool(self.ended_by)

    def keep(self, made: "RoundsDocument") -> None:
        from wirewatch_fleet.pairs.document import ROUNDS

        write_whole(self.results, ROUNDS.dump_json(made, indent=1).decode() + "\n")

    def began(self, order: "RoundOrder") -> None:
        self._since = self.mono()
        pairs = "1 pair" if len(order.pairs) == 1 else f"{len(order.pairs)} pairs"
        click.echo(f"round {order.number} ({order.purpose}): {pairs}", err=True)

    def measured(self, measured: "MeasuredRound") -> None:
        answered = sum(run.answered for run in measured.runs)
        seconds = self.mono() - self._since
        click.echo(f"  {answered} of {len(measured.runs)} answered, {seconds:.0f} s", err=True)
        for run in measured.runs:
            if run.failed:
                click.echo(f"  {run.first} with {run.second}: {run.failed}", err=True)


def run_and_keep(
    engine: "RoundEngine", made: "RoundsDocument", options: "CampaignOptions", results: Path
) -> "tuple[RoundsDocument, str | None]":
    """Run to the verdict or to a signal; return the measurements, and the signal.

    Raises:
        RoundEngineError: the engine does not answer.
        UsageError: the results cannot be kept.
    """
    from wirewatch_fleet.rounds.campaign import run_rounds

    view = ShownCampaign(results)
    with SIGNALS.taken(stop=view.ended_by.append, reload=lambda: None):
        try:
            view.keep(made)
            made = run_rounds(engine, made, options, view)
        except OSError as error:
            raise click.UsageError(f"{results}: {error.strerror or error}") from error
    return made, f"ended by {view.ended_by[0]}" if view.ended_by else None
