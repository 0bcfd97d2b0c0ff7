"""`wirewatch fleet pairs`: find slow nodes, pairs, rails or leafs in measured rounds of pairs."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from wirewatch.cli.check.answer import HEALTHS
from wirewatch.cli.groups import examples
from wirewatch.cli.options import ExistingFile, FiniteNumber, WholeNumber
from wirewatch.cli.output import shown
from wirewatch.cli.tables import table
from wirewatch.core.exits import exit_of
from wirewatch.core.extras import install
from wirewatch.core.hostlist import HostlistError, topology_places
from wirewatch.core.types import NotText, utf8
from wirewatch.core.words import GB, first, utc

if TYPE_CHECKING:
    from wirewatch_fleet.pairs.document import PairsDocument, RoundsDocument, SlowEntry

FORMS = (".svg", ".png")
LISTED = 8
"""Most names in a line."""
SUSPECTS = 10
MEASURES = {"rails": "sends on one rail", "send": "sends on all rails", "all_reduce": "all_reduce of a pair"}
CLASSES = {True: " across leafs", False: " inside a leaf", None: ""}
WAYS = {"sends": "sends", "receives": "receives", "together": "both ways"}
_FILE = ExistingFile()


leafs_option = click.option(
    "--leafs", type=_FILE, metavar="FILE",
    help="Which nodes share a leaf, as Slurm's topology.conf has it: SwitchName=leaf1 Nodes=n[01-32].",
)  # fmt: skip


@click.command(epilog=examples("wirewatch fleet pairs rounds.json"))
@click.argument("results", type=_FILE)
@click.option(
    "--past",
    type=_FILE,
    multiple=True,
    help="An earlier result of this fleet (--json), to see whether all are slower alike; repeatable.",
)
@click.option(
    "--least",
    type=FiniteNumber(1, 50),
    default=3.0,
    show_default=True,
    help="Name what is so many percent slower, or more.",
)
@click.option(
    "--rounds",
    type=WholeNumber(1, 100),
    default=8,
    show_default=True,
    help="Rounds at most, beside those in which suspects run alone.",
)
@leafs_option
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE.svg|FILE.png",
    help="Draw the matrix of all runs; takes the extra `report`.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@click.pass_context
def pairs(
    context: click.Context, /,
    results: Path, past: tuple[Path, ...], least: float, rounds: int, leafs: Path | None,
    picture: Path | None, as_json: bool,  # noqa: FBT001
) -> None:  # fmt: skip
    """Name the slow node, direction, pair, rail or leaf in RESULTS, which rounds of pairs measured.

    RESULTS is a document wirewatch.fleet-rounds/1 (docs/fleet-pairs.md). Suspects not beyond doubt are
    listed as open, with the pairs to measure next. Ends with 0 where nothing is slow, with 1 where something
    is named, with 2 where that has lost 30 % or more, and with 3 where something is open.
    """
    from wirewatch_fleet.pairs.document import PAIRS, RoundsError, pairs_document, read_rounds
    from wirewatch_fleet.pairs.model import asked_limits

    if picture is not None and picture.suffix not in FORMS:
        raise click.UsageError("--picture takes a file that ends in .svg or .png")
    if picture is not None and find_spec("matplotlib") is None:
        raise click.UsageError(f"--picture takes matplotlib: {install('report')}")
    try:
        made = read_rounds(results)
    except RoundsError as error:
        raise click.UsageError(str(error)) from error
    made = with_leafs(made, leafs)
    found = pairs_document(made, read_past(past, made), asked_limits(least, rounds, queue_pairs_of(made)))
    if picture is not None:
        _draw(made, found, picture)
    click.echo(PAIRS.dump_json(found, indent=1).decode() if as_json else shown(pairs_lines(found)))
    context.exit(exit_of(HEALTHS[found.health]))


def with_leafs(made: "RoundsDocument", file: Path | None) -> "RoundsDocument":
    """Return the rounds with the leafs of a file, where it names a leaf of any node.

    Raises:
        UsageError: it cannot be read, or has no leaf of any of these nodes.
    """
    if file is None:
        return made
    try:
        leafs, blocks = topology_places(utf8(file.read_bytes()))
    except (OSError, ValueError, NotText, HostlistError) as error:
        raise click.UsageError(f"--leafs {file}: {getattr(error, 'strerror', None) or error}") from error
    known = {**blocks, **leafs}
    if not any(one.name in known for one in made.members):
        raise click.UsageError(
            f"--leafs {file}: no line like SwitchName=leaf1 Nodes=n[01-32] has these nodes"
        )
    return replace(made, members=[replace(one, leaf=known.get(one.name, one.leaf)) for one in made.members])


def queue_pairs_of(made: "RoundsDocument") -> int:
    """Return the queue pairs of a connection to try where routes are shared; 0 for none."""
    return made.work.more_queue_pairs if made.work else 0


def read_past(files: Sequence[Path], made: "RoundsDocument") -> "list[PairsDocument]":
    """Read earlier results that can be compared with the measurements.

    Raises:
        UsageError: a file is not such a result.
    """
    from wirewatch_fleet.pairs.document import RoundsError, check_past, read_pairs

    found = []
    for file in files:
        try:
            one = read_pairs(file)
            check_past(file, one, made)
        except RoundsError as error:
            raise click.UsageError(str(error)) from error
        found.append(one)
    return found


def _draw(made: "RoundsDocument", found: "PairsDocument", picture: Path) -> None:
    from wirewatch_fleet.pairs.picture import draw_matrix

    try:
        draw_matrix(made, found, picture)
    except OSError as error:
        raise click.UsageError(f"{picture}: {error.strerror or error}") from error


def pairs_lines(found: "PairsDocument") -> Iterator[str]:
    """Yield the text of a result: named parts, then open parts, then the evidence."""
    yield (
        f"{found.health.upper()}: {len(found.named)} named, {len(found.suspects)} open, "
        f"by {found.answered} of {found.runs} runs of pairs in {found.rounds} rounds, {utc(found.at)}"
    )
    if found.named:
        yield ""
        yield "slow:"
        yield from table(_HEADER, [row for one in found.named for row in _rows(one)])
        for action in dict.fromkeys(one.action for one in found.named):
            yield f"  {action}"
    yield from _collisions(found)
    yield from _counters(found)
    for one in found.alike:
        yield (
            f"all alike: {MEASURES[one.measure]}{CLASSES[one.across]} are {one.loss:.1%} slower than "
            f"{one.past / GB:.1f} GB/s, {_earlier(one.results)}"
        )
    yield from _open(found)
    yield ""
    yield from _basis(found)


def _collisions(found: "PairsDocument") -> Iterator[str]:
    """Yield the cost of sharing the links, and why no node is at fault for it."""
    for one in found.collisions:
        yield ""
        kind = f"{MEASURES[one.measure]}{CLASSES[one.across]}"
        yield (
            f"{'other traffic' if one.traffic else 'collision'}: {kind} lose {one.loss:.0%} when all pairs "
            f"talk, {one.slow} of {one.runs} runs are slow; no node is at fault for that"
        )
        if not one.alone:
            yield "  no pair has run alone, so other traffic may have done it"
        elif one.alone_slow:
            yield f"  {one.alone_slow} of {one.alone} runs alone are slow too: other traffic is there as well"
        else:
            yield f"  in {one.alone} of {one.alone} runs alone it is {one.rate / GB:.1f} GB/s"
        if one.with_queues is not None:
            yield f"  with NCCL_IB_QPS_PER_CONNECTION={one.queue_pairs} they lose {one.with_queues:.0%}"
    if found.collisions:
        yield "  what may help: adaptive routing on the switches, or more queue pairs for a connection"


COUNTED = {
    "wire": "errors of a wire grew, and nothing of a full network",
    "others": "its ports carried bytes of others",
    "full": "the network was full: it is loaded, or a receiver drains slowly",
    "mixed": "they do not agree",
    "nothing": "none grew: neither a full network nor a bad wire",
}


def _counters(found: "PairsDocument") -> Iterator[str]:
    """Yield the text for the counters of both ends of a slow pair."""
    if found.counters:
        yield ""
        yield "counters beside those of nodes that are well (unproven on hardware, they decide nothing):"
    for one in found.counters[:SUSPECTS]:
        to = f" to {one.peer}" if one.peer else ""
        place = f"{one.name}{to}{f', rail {one.rail}' if one.rail else ''}" or "all that collide"
        kinds = f" ({', '.join(one.kinds)})" if one.kinds else ""
        yield f"  {place}: {COUNTED[one.says]}"
        yield (
            f"    of {one.runs} runs: wire errors in {one.wire}, a full network in {one.full}{kinds}, "
            f"bytes of others in {one.others}"
        )


def _earlier(results: int) -> str:
    return "in an earlier result" if results == 1 else f"the median of {results} earlier results"


_HEADER = ("what", "way", "slower by", "between", "slow runs", "alone", "partners", "deviations", "seen in")


def _rows(one: "SlowEntry") -> Iterator[Sequence[str]]:
    for loss in one.losses:
        yield (
            _place(one), "" if one.kind == "pair" else WAYS[loss.way], f"{loss.loss:.1%}",
            f"{loss.low:.1%} to {loss.high:.1%}", f"{loss.slow} of {loss.runs}",
            f"{loss.alone_slow} of {loss.alone}" if one.kind in {"node", "pair"} else "", f"{loss.partners}",
            f"{loss.deviations:.0f}", MEASURES[one.measure],
        )  # fmt: skip


def _place(one: "SlowEntry") -> str:
    rail = f", rail {one.rail}" if one.rail else ""
    if one.kind == "rail":
        return f"rail {one.name}, everywhere"
    if one.kind == "pair":
        return f"{one.name} to {one.peer}{rail}"
    if one.kind == "leaf":
        return f"leaf {one.name}{' to other leafs' if one.across else ''}{rail}"
    return f"{one.name}{rail}"


def _open(found: "PairsDocument") -> Iterator[str]:
    """Yield undecided parts, and what would decide them."""
    if found.suspects:
        yield ""
        yield "open, slow so far, but not beyond chance, or not in three runs alone:"
        yield from table(_HEADER, [row for one in found.suspects[:SUSPECTS] for row in _rows(one)])
        if len(found.suspects) > SUSPECTS:
            yield f"  and {len(found.suspects) - SUSPECTS} more"
    if found.thin:
        yield f"too few runs to be judged: {first(found.thin, LISTED)}"
    if found.unseen:
        yield f"in each of their runs others may have slowed them: {first(found.unseen, LISTED)}"
    if found.collisions and all(one.across is None for one in found.collisions):
        yield (
            "leafs are not known: a slow leaf cannot be told from slow nodes, and only one pair at a time "
            "runs alone; give --leafs, or let the scheduler know them"
        )
    if found.silent:
        yield f"no answer in any run: {first(found.silent, LISTED)}"
    if found.next is not None:
        yield (
            f"measure next, as round {found.next.number} ({found.next.purpose}): "
            f"{first([f'{a} with {b}' for a, b in found.next.pairs], LISTED)}"
        )
    elif found.rounds and (found.suspects or found.thin or found.unseen):
        yield "no further round is planned: start again with those that are open and partners that are well"


def _basis(found: "PairsDocument") -> Iterator[str]:
    for one in found.typical:
        yield f"typical: {MEASURES[one.measure]}{CLASSES[one.across]}: {one.rate / GB:.2f} GB/s"
    if found.spread is None or found.seen_from is None:
        yield "nothing was measured"
    else:
        yield (
            f"healthy nodes differ by {found.spread:.1%} (standard deviation); "
            f"one is named from {found.seen_from:.1%} on"
        )
