"""The documents of measured rounds (`wirewatch.fleet-rounds/1`) and findings (`wirewatch.fleet-pairs/1`)."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from annotated_types import Ge
from pydantic import TypeAdapter, ValidationError

from wirewatch.core.pairs import Measure, PartKind
from wirewatch.core.statistics import grouped
from wirewatch.core.types import Health, NotText, utf8
from wirewatch.documents import health as healths
from wirewatch.verdict.pairs import MOST_PARTNERS, MOST_PARTS, Moment, PairsLoss, PairsPart, PairsResult
from wirewatch_fleet.pairs.alone import CollisionLoss
from wirewatch_fleet.pairs.model import (
    DEFAULT_LIMITS,
    MeasuredRound,
    Name,
    NamedPart,
    PairFleet,
    PairLimits,
    PairMember,
    PairRound,
    PairRun,
    RoundPurpose,
    StrictPart,
    WayLoss,
)
from wirewatch_fleet.pairs.naming import AlikeLoss, Assessment, TypicalRate, alike, assess
from wirewatch_fleet.pairs.plan import PairsVerdict, health, next_step
from wirewatch_fleet.pairs.signs import PartCounters, counters_of

T = TypeVar("T")
MOST_BYTES = 256 << 20
QUEUE_PAIRS = "NCCL_IB_QPS_PER_CONNECTION"
TIMES, MOST_QUEUE_PAIRS = 4, 128
"""Queue pairs to try, besides the work's; NCCL takes up to 128 (its documentation)."""


class RoundsError(Exception):
    """The file has no readable rounds; one line for the user."""


@dataclass(frozen=True, slots=True)
class RoundEntry(StrictPart):
    """A round: a run for each pair that was asked, also where no answer came. `resting`: idle, in no pair.

    `queue_pairs`: of each connection; 0 for as many as the work has.
    """

    number: Annotated[int, Ge(1)]
    runs: list[PairRun]
    purpose: RoundPurpose = RoundPurpose.RANDOM
    resting: list[Name] = field(default_factory=list)
    queue_pairs: Annotated[int, Ge(0)] = 0


@dataclass(frozen=True, slots=True)
class RoundsWork(StrictPart):
    """What every pair measured: rates of one work say nothing beside those of another.

    `ranks`: GPUs of each node, or processes of gloo. `size_bytes`: what each sends at a time. `environment`:
    variables of the workers.
    """

    engine: Name
    ranks: Annotated[int, Ge(1)]
    size_bytes: Annotated[int, Ge(1)]
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def more_queue_pairs(self) -> int:
        """Return the queue pairs of a connection to try where routes are shared; 0 where there are none."""
        if self.engine != "distributed":
            return 0
        usual = self.environment.get(QUEUE_PAIRS, "1")
        return min(MOST_QUEUE_PAIRS, TIMES * int(usual)) if usual.isascii() and usual.isdigit() else 0


@dataclass(frozen=True, slots=True)
class RoundsDocument(StrictPart):
    """What was measured. `at`: when the first round began, Unix seconds. `seed`: of the matchings.

    `work`: what each pair measured; null where it is not known.
    """

    schema: Literal["wirewatch.fleet-rounds/1"]
    at: Moment
    members: list[PairMember]
    rounds: list[RoundEntry]
    seed: int = 0
    work: RoundsWork | None = None


@dataclass(frozen=True, slots=True)
class SlowEntry:
    """A part of the fleet that is slow. `peer`: the receiver of a pair; `rail`: on this one alone.

    `across`: of a leaf, towards other leafs alone. `measure`: what shows it. `members`: whom it concerns.
    """

    kind: PartKind
    name: str
    peer: str
    rail: str
    across: bool
    measure: Measure
    losses: list[WayLoss]
    members: list[str]
    action: str


@dataclass(frozen=True, slots=True)
class MemberEntry:
    """A member's own loss each way, by its runs that nothing else explains; null without any.

    `partners`: with whom a run gave an answer. `nodes`: of a clique that runs as one.
    """

    name: str
    runs: int
    answered: int
    sends: float | None
    receives: float | None
    partners: list[str] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class NextRound:
    """What to measure next for a verdict."""

    number: int
    purpose: RoundPurpose
    pairs: list[tuple[str, str]]
    queue_pairs: int = 0


@dataclass(frozen=True, slots=True)
class PairsDocument:
    """What the rounds say. `typical`: bytes per second; of a later result it is the past.

    `suspects`: slow, and not beyond chance, or not measured alone yet. `collisions`: what runs lose when all
    pairs talk, by no node's fault. `unseen`: members that others may have slowed in each of their runs.
    `counters`: what those of both ends say of what is slow; unproven on hardware, so it decides nothing.

    `thin`: members with too few runs to be judged; `silent`: without an answer. `alike`: all are slower
    than they were. `spread`: standard deviation of healthy members, as a share; `seen_from`: the loss from
    which on a node is named. `next`: null when no round would tell more. `work`: what each pair measured;
    null where it is not known.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = {"allow_inf_nan": False}

    schema: Literal["wirewatch.fleet-pairs/1"]
    at: Moment
    health: healths.Health
    rounds: int
    runs: int
    answered: int
    named: list[SlowEntry]
    suspects: list[SlowEntry]
    alike: list[AlikeLoss]
    thin: list[str]
    silent: list[str]
    typical: list[TypicalRate]
    spread: float | None
    seen_from: float | None
    members: list[MemberEntry]
    next: NextRound | None
    work: RoundsWork | None = None
    collisions: list[CollisionLoss] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    counters: list[PartCounters] = field(default_factory=list)


ROUNDS = TypeAdapter(RoundsDocument)
PAIRS = TypeAdapter(PairsDocument)
INPUTS: dict[str, TypeAdapter[Any]] = {"wirewatch.fleet-rounds.1": ROUNDS}
DOCUMENTS: dict[str, TypeAdapter[Any]] = {"wirewatch.fleet-pairs.1": PAIRS}
ACTIONS = {
    PartKind.RAIL: "look at this rail's spine and leaf switches, and at what all nodes set for it",
    PartKind.LEAF: "look at the leaf's uplinks, its cables and its routes, before any of its nodes",
    PartKind.NODE: "look at its NIC side alone first, with `wirewatch probe --transport net` there; then run "
    "`wirewatch check` and `wirewatch topology diff`, and look at its ports",
    PartKind.PAIR: "both nodes are well with others: look at the route between them",
}


def read_rounds(path: Path) -> RoundsDocument:
    """Read the rounds of a file.

    Raises:
        RoundsError: it cannot be read, or has no rounds.
    """
    made = _read(path, ROUNDS, "a document of rounds (wirewatch.fleet-rounds/1)")
    _check(made, path)
    return made


def read_pairs(path: Path) -> PairsDocument:
    """Read an earlier result from a file.

    Raises:
        RoundsError: it cannot be read, or is not a result.
    """
    return _read(path, PAIRS, "an earlier result (wirewatch.fleet-pairs/1)")


def check_past(path: Path, earlier: PairsDocument, made: RoundsDocument) -> None:
    """Check that an earlier result can be compared with the present measurements.

    Raises:
        RoundsError: it is of another fleet, of other work, or not earlier.
    """
    if earlier.at > made.at:
        raise RoundsError(f"{path}: it was measured {earlier.at - made.at:.0f} s after these rounds")
    if not {one.name for one in earlier.members} & {one.name for one in made.members}:
        raise RoundsError(f"{path}: none of these nodes took part in it")
    if earlier.work and made.work and (what := _differs(earlier.work, made.work)):
        raise RoundsError(f"{path}: it cannot be compared: {what}")


def _differs(one: RoundsWork, other: RoundsWork) -> str:
    """Return why the rates of two works cannot be compared, in words; empty where they can."""
    if one.engine != other.engine:
        return f"engine {one.engine} there, {other.engine} here"
    if one.ranks != other.ranks:
        return f"{one.ranks} ranks a node there, {other.ranks} here"
    if one.size_bytes != other.size_bytes:
        return f"{one.size_bytes:,} bytes at a time there, {other.size_bytes:,} here"
    return ""


def _read(path: Path, adapter: TypeAdapter[T], what: str) -> T:
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise RoundsError(f"{path}: {error.strerror or error}") from error
    if len(text) > MOST_BYTES:
        raise RoundsError(f"{path}: larger than {MOST_BYTES >> 20} MiB")
    try:
        return adapter.validate_json(utf8(text))
    except NotText as error:
        raise RoundsError(f"{path}: {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise RoundsError(f"{path}: not {what}: {place}: {first['msg']}") from error


def _check(made: RoundsDocument, path: Path) -> None:
    """Check what types cannot: each node in one member, each round once, each name in one run of a round."""
    names = Counter(one.name for one in made.members)
    nodes = names + Counter(node for one in made.members for node in one.nodes if node != one.name)
    twice = [name for name, count in nodes.items() if count > 1]
    numbers = [one.number for one in made.rounds]
    if twice:
        raise RoundsError(f"{path}: members: {twice[0]} is there twice")
    if len(set(numbers)) < len(numbers):
        raise RoundsError(f"{path}: rounds: a number is there twice")
    for one in made.rounds:
        seen: set[str] = set()
        for run in one.runs:
            for name in (run.first, run.second):
                if name not in names:
                    raise RoundsError(f"{path}: round {one.number}: {name} is not a member")
                if name in seen:
                    raise RoundsError(f"{path}: round {one.number}: {name} is in two runs, or with itself")
                seen.add(name)


def fleet_of(made: RoundsDocument) -> PairFleet:
    """Return its members."""
    return PairFleet(tuple(made.members))


def _pair(run: PairRun) -> tuple[str, str]:
    return run.first, run.second


def measured_of(made: RoundsDocument) -> list[MeasuredRound]:
    """Return its rounds, in order."""
    return [
        MeasuredRound(
            PairRound(
                one.number, one.purpose, tuple(map(_pair, one.runs)), tuple(one.resting), one.queue_pairs
            ),
            one.runs,
        )
        for one in sorted(made.rounds, key=lambda one: one.number)
    ]  # fmt: skip


def rounds_document(
    at: float, fleet: PairFleet, rounds: Sequence[MeasuredRound], seed: int = 0,
    work: RoundsWork | None = None,
) -> RoundsDocument:  # fmt: skip
    """Return measurements as a document; a planned pair without a run counts as without an answer."""
    entries = []
    for one in rounds:
        runs = {_pair(run): run for run in one.runs}
        every = [runs.get(pair, PairRun(*pair, failed="no answer")) for pair in one.round.pairs]
        entries.append(RoundEntry(
            one.round.number, every, one.round.purpose, list(one.round.resting), one.round.queue_pairs
        ))  # fmt: skip
    return RoundsDocument("wirewatch.fleet-rounds/1", at, list(fleet.members), entries, seed, work)


def pairs_document(
    made: RoundsDocument, earlier: Sequence[PairsDocument] = (), limits: PairLimits = DEFAULT_LIMITS
) -> PairsDocument:
    """Return the findings of the rounds, beside earlier results of the same fleet."""
    fleet, rounds = fleet_of(made), measured_of(made)
    step = next_step(fleet, rounds, None, limits, made.seed)
    known = step.assessment or assess(fleet, rounds, limits)
    follows = None if isinstance(step, PairsVerdict) else step.round
    slower = alike(known.typical, [one.typical for one in earlier], limits)
    runs = [run for one in rounds for run in one.runs]
    return PairsDocument(
        "wirewatch.fleet-pairs/1", made.at, healths.HEALTH_NAMES[_health(known, slower, limits)],
        len(rounds), len(runs), sum(run.answered for run in runs),
        [_slow(part, fleet) for part in known.named], [_slow(part, fleet) for part in known.open],
        list(slower), list(known.thin), list(known.silent), list(known.typical),
        known.spread, known.seen_from,
        _members(known, fleet, runs),
        None if follows is None
        else NextRound(follows.number, follows.purpose, list(follows.pairs), follows.queue_pairs),
        made.work, list(known.collisions), list(known.unseen),
        list(counters_of((*known.named, *known.open), known.collisions, rounds, fleet.leafs())),
    )  # fmt: skip


def _members(known: Assessment, fleet: PairFleet, runs: Sequence[PairRun]) -> list[MemberEntry]:
    pairs = [_pair(run) for run in runs if run.answered]
    partners = grouped(each for a, b in pairs for each in ((a, b), (b, a)))
    nodes = {one.name: list(one.nodes) for one in fleet.members}
    return [
        MemberEntry(
            one.name, one.runs, one.answered, one.sends, one.receives,
            list(dict.fromkeys(partners.get(one.name, ()))), nodes[one.name],
        )
        for one in known.members
    ]  # fmt: skip


def _health(known: Assessment, slower: Sequence[AlikeLoss], limits: PairLimits) -> Health:
    found = [Health.FAILED if one.loss >= limits.failed else Health.DEGRADED for one in slower]
    return max(health(known, limits), *found, Health.OK)


def _slow(part: NamedPart, fleet: PairFleet) -> SlowEntry:
    place = part.place
    if place.kind is PartKind.LEAF:
        members = [one.name for one in fleet.members if one.leaf == place.name]
    else:
        members = [name for name in (place.name, place.peer) if name and place.kind is not PartKind.RAIL]
    return SlowEntry(
        place.kind, place.name, place.peer, place.rail, place.across, part.measure, list(part.losses),
        members, ACTIONS[place.kind],
    )  # fmt: skip


def member_of(found: PairsDocument, names: Iterable[str]) -> MemberEntry | None:
    """Return the member for which any of these names stands or that has it as a node, None without any."""
    every = ((name, one) for name in names if name for one in found.members)
    return next((one for name, one in every if name == one.name or name in one.nodes), None)


def result_for(found: PairsDocument, member: MemberEntry) -> PairsResult | str:
    """Return the result that a member's agent gets, or why it gets none, in words.

    A named member always gets its result. No result means that a member is well only if it was measured
    enough and nothing open concerns it.
    """
    parts = [_part(one, found.at) for one in found.named if _concerns(one, member)]
    open_ = _undecided(found, member)
    if open_ and not parts:
        return open_
    return PairsResult(
        found.at, member.name, max(len(member.nodes), 1), not open_, tuple(parts[:MOST_PARTS]),
        tuple((one.measure, one.across) for one in found.typical), tuple(member.partners[:MOST_PARTNERS]),
    )  # fmt: skip


def concerned(found: PairsDocument) -> list[str]:
    """Return the nodes that named parts concern, a clique's nodes singly, in the order of the members."""
    members = (one for one in found.members if any(_concerns(part, one) for part in found.named))
    return [name for one in members for name in (one.nodes or [one.name])]


def _concerns(part: SlowEntry, member: MemberEntry) -> bool:
    return part.kind is not PartKind.RAIL and member.name in part.members


def _undecided(found: PairsDocument, member: MemberEntry) -> str:
    """Return why nothing is said about an unnamed member, in words; empty if it is known to be well."""
    if not member.answered:
        return f"{member.name} gave no answer in {member.runs} runs"
    if member.name in (*found.thin, *found.silent):
        return f"{member.name} has too few runs to be judged"
    if any(_concerns(one, member) for one in found.suspects):
        return f"{member.name} is open: slow so far, but not beyond chance, or not measured alone"
    if member.name in found.unseen:
        return f"{member.name} is open: in each of its runs others may have slowed it"
    return ""


def _part(one: SlowEntry, at: float) -> PairsPart:
    losses = tuple(PairsLoss(x.way, x.loss, x.low, x.high, x.slow, x.runs, x.partners) for x in one.losses)
    return PairsPart(one.kind, one.name, one.peer, one.rail, one.across, one.measure, losses, at)
