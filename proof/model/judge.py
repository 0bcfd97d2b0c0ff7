"""What was said of a job, against what is true of it.

A first line is read as a person reads it: which rank and GPU it gives as the cause, which wall, and whether
it says that nobody waits. It is held against the truth of the seconds before it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

from proof.model.job import Spending, spending
from proof.model.load import Load
from proof.model.play import MONO, Look, Played
from proof.model.rings import uuid
from proof.model.truth import BUSY, DEADLOCK, HANG, NOBODY, RAIL, RANK, REMOTE, WIRE, Case
from wirewatch.documents.jobs import ExplainedJob
from wirewatch.jobs.explain.evidence import Wall
from wirewatch.jobs.ledger.spent import GpuLedger, LedgerFacts, Spent

RIGHT, WRONG, DENIED, SILENT = "right", "wrong", "denied", "silent"
"""WRONG: an innocent rank, GPU or wire is accused, or a hang is called where there is none. DENIED: nobody
waits, or the GPUs do nothing, is said where it is false."""
COUNTS = 0.05
"""Share of the time from which on waiting must not be denied."""
NONE = 0.02
"""Share of the time below which nobody may be said to wait."""
LOOKED = 15.0
"""Seconds before a first line, in which it must be true."""
_NUMBERS = r"(\d+(?:(?:, | and |, and )\d+)*)"
_GPUS, _RANKS = (re.compile(rf"\b{word}s? {_NUMBERS}\b(?!\.\d| ?%)") for word in ("GPU", "[Rr]ank"))
_WAITS = re.compile(r"\bwaits? for (?!a rank)")
_DENIES = re.compile(r"nobody waits|nothing holds|No wall", re.IGNORECASE)
_OTHER_NODE = re.compile(r"another node|other nodes?\b|elsewhere|not on this node|rail", re.IGNORECASE)
_ORDER = re.compile(r"order|deadlock|cycle|each other", re.IGNORECASE)
_NOT_ATTRIBUTED = re.compile(r"(?:not|could not be) attributed", re.IGNORECASE)
_STATES = frozenset({Wall.STANDING, Wall.NOT_ATTRIBUTED, Wall.NOT_KNOWN})
_STARTS = re.compile(r"\bstarting\b", re.IGNORECASE)


@dataclass(frozen=True)
class Verdict:
    """How one job was judged. `after`: seconds until it was named rightly; `line` is what decided.

    `after` is set too where the right name came too late. `attributed`: where nothing was named, whether the
    waiting was shown, in the line or in the ledger, in half of the looks. `back`: the right
    name was followed by a denial. `number`: a rank was named by another number than the job's. `changes`: how
    often the first line changed in its words, numbers left out. `error`: how far the ledger's shares are from
    the truth on average; None without a ledger. `misattributed`: the share of the time that it lays on GPUs
    for which nobody waits.
    """

    outcome: str
    after: float | None = None
    line: str = ""
    second: float = 0.0
    attributed: bool = False
    back: bool = False
    number: bool = False
    changes: int = 0
    error: float | None = None
    misattributed: float = 0.0


@dataclass(frozen=True)
class Said:
    """One first line. `gpus`, `ranks`: those that it gives as the cause."""

    wall: Wall
    line: str
    gpus: frozenset[int]
    ranks: frozenset[int]

    @property
    def names(self) -> bool:
        return bool(self.gpus or self.ranks)


@dataclass
class First:
    """The second and the text of the first line of each kind; at which looks the waiting was shown."""

    lines: dict[str, tuple[float, str]] = field(default_factory=dict)
    shown: list[bool] = field(default_factory=list)
    number: bool = False


def read(job: ExplainedJob) -> Said:
    line = job.answer.sentence
    told = _WAITS.split(line)[-1] if _WAITS.search(line) else line
    if job.answer.wall in _STATES:
        # It describes what GPUs do; the cause, where there is one, stands first.
        told = line.partition(";")[0] if job.answer.gpu or _RANKS.search(line.partition(";")[0]) else ""
    gpus = {int(n) for found in _GPUS.finditer(told) for n in re.findall(r"\d+", found[1])}
    ranks = {int(n) for found in _RANKS.finditer(told) for n in re.findall(r"\d+", found[1])}
    return Said(job.answer.wall, line, frozenset(gpus), frozenset(ranks))


@dataclass
class Bench:
    """The judge of one job that was played."""

    played: Played

    @property
    def case(self) -> Case:
        return self.played.case

    def verdict(self) -> Verdict:
        case, first = self.case, self._first()
        told = Verdict(SILENT, None, self._last(), changes=_changes(self.played))
        error, misattributed = self._ledger()
        told = replace(told, error=error, misattributed=misattributed)
        wrong, right, denied = (first.lines.get(kind) for kind in (WRONG, RIGHT, DENIED))
        after = right and right[0] - case.onset
        if wrong is not None:
            return replace(told, outcome=WRONG, line=wrong[1], second=wrong[0])
        if right is not None and after is not None and after <= case.limit:
            return replace(
                told, outcome=RIGHT, after=after, line=right[1], second=right[0], back=denied is not None,
                number=first.number,
            )  # fmt: skip
        if denied is not None:
            return replace(told, outcome=DENIED, after=after, line=denied[1], second=denied[0])
        visible = sum(first.shown) >= max(1, len(first.shown) / 2)
        if case.kind is NOBODY and (right is not None or visible):
            return replace(told, outcome=RIGHT)
        return replace(told, after=after, attributed=visible)

    def _first(self) -> "First":
        """The first line of each kind; of denials after the time in which the cause must be named."""
        found = First()
        for look in self.played.looks:
            over, kinds = look.second > self.case.onset + self.case.limit, list[str]()
            for said in map(read, look.jobs):
                kinds.append(kind := self._kind(said, look.second))
                if kind is not DENIED or over:
                    found.lines.setdefault(kind, (look.second, said.line))
                found.number = found.number or (kind is RIGHT and self._misnumbered(said))
            if over:
                # A cause that is named too late is shown by its name.
                found.shown.append(RIGHT in kinds or self._shown(look))
        return found

    def _last(self) -> str:
        return self.played.looks[-1].jobs[0].answer.sentence if self.played.looks[-1].jobs else ""

    def _kind(self, said: Said, second: float) -> str:
        """RIGHT, WRONG or DENIED; SILENT where it says nothing of the cause."""
        case, begun = self.case, self.case.begun(second)
        known = {case.plan.gpus[rank] for rank in case.ranks} if begun else set()
        if said.wall is Wall.HANG and case.kind not in {HANG, DEADLOCK}:
            return WRONG
        if said.names:
            return self._named(said, known)
        if said.wall is Wall.SLOW_WIRE:
            return RIGHT if case.kind is WIRE and begun else SILENT if case.kind is RAIL and begun else WRONG
        if case.kind is REMOTE and begun and _OTHER_NODE.search(said.line):
            return RIGHT
        if case.kind is DEADLOCK and begun and said.wall is Wall.HANG and _ORDER.search(said.line):
            return RIGHT
        return self._stated(said, second)

    def _named(self, said: Said, known: set[int]) -> str:
        case, plan = self.case, self.case.plan
        ranks = {plan.gpus[rank] for rank in plan.ranks if plan.job_rank(rank) in said.ranks}
        blamed = set(said.gpus) or ranks
        if case.kind is RAIL:
            # The rank is as innocent as all others: it is its way to other nodes.
            rail = blamed <= known and said.wall is not Wall.LATE_RANK and _OTHER_NODE.search(said.line)
            return RIGHT if rail else WRONG
        if case.kind not in {RANK, BUSY, HANG, DEADLOCK}:
            return WRONG
        return RIGHT if blamed and blamed <= known else WRONG

    def _stated(self, said: Said, second: float) -> str:
        """A line without a name: false where the seconds before it belie it."""
        now = [one for one in self.played.loads if one.holds(second)]
        shares = [one.shares(second - LOOKED, second) for one in now]
        if _STARTS.search(said.line) or not shares:
            return SILENT
        waiting, idle = max(one[0] for one in shares), min(one[1] for one in shares)
        if said.wall is Wall.NOT_ATTRIBUTED:
            # It must not be said of a job in which nobody waits.
            return DENIED if waiting < NONE else SILENT
        if _DENIES.search(said.line) or said.wall is Wall.NOTHING:
            return (
                DENIED if waiting > COUNTS else RIGHT if self.case.kind is NOBODY and _firm(said) else SILENT
            )
        if said.wall is Wall.COMPUTING:
            return RIGHT if self.case.kind is NOBODY else SILENT
        if said.wall in {Wall.HOST, Wall.LAUNCH_GAPS, Wall.MEMORY} and idle < COUNTS:
            return DENIED
        return SILENT

    def _misnumbered(self, said: Said) -> bool:
        """Tell whether it gives the right GPU and another number of the rank than the job's own."""
        return not said.ranks <= {self.case.plan.job_rank(rank) for rank in self.case.ranks}

    def _shown(self, look: Look) -> bool:
        """Whether the waiting is shown: in the first line, or by half of its true share in the ledger."""
        if any(_NOT_ATTRIBUTED.search(one.answer.sentence) for one in look.jobs):
            return True
        return any(
            truth.waiting + truth.beyond > COUNTS and _lost(found) >= (truth.waiting + truth.beyond) / 2
            for truth, found in self._compared(look, LOOKED)
        )

    def _compared(self, look: Look, least: float) -> Iterator[tuple[Spending, GpuLedger]]:
        """The ledgers of a look, each with the truth of the same seconds."""
        for facts in look.facts:
            if not isinstance(facts, LedgerFacts):
                continue
            at = facts.mono - MONO
            for job in facts.jobs:
                for one in job.short:
                    load = self._load(one.index, at)
                    if load is not None and at - one.seconds >= max(load.begun + least, 0.0):
                        yield spending(load.rank, at - one.seconds, at), one

    def _load(self, index: str, second: float) -> Load | None:
        return next((x for x in self.played.loads if str(x.gpu) == index and x.holds(second)), None)

    def _ledger(self) -> tuple[float | None, float]:
        """How far the ledger is from the truth, and how much of the time it lays at a wrong GPU's door.

        The first is the mean difference of computing, of idle and of lost time; None without a ledger.
        """
        differences, wrong, compared = list[float](), 0.0, 0
        for look in self.played.looks[::6]:
            for truth, found in self._compared(look, LOOKED):
                shares, compared = found.shares, compared + 1
                differences += [
                    abs(truth.computing - shares.get(Spent.COMPUTING, 0.0)),
                    abs(truth.idle - shares.get(Spent.IDLE, 0.0)),
                    abs(truth.waiting + truth.beyond - _lost(found)),
                ]
                wrong += self._misattributed(truth, found)
        return (sum(differences) / len(differences), wrong / compared) if compared else (None, 0.0)

    def _misattributed(self, truth: Spending, found: GpuLedger) -> float:
        """The share of the time that is attributed to GPUs for which nobody waits; a culprit is never wrong.

        Where lateness is handed on from communicator to communicator, both may be named.
        """
        plan, case = self.case.plan, self.case
        due = {uuid(plan.gpus[rank]): truth.waits.get(rank, 0.0) for rank in plan.ranks}
        culprits = {uuid(plan.gpus[rank]) for rank in case.ranks}
        given = {gpu: share for gpu, share in found.waits_for.items() if gpu not in culprits}
        return sum(max(0.0, share - due.get(gpu, 0.0)) for gpu, share in given.items())


def _lost(found: GpuLedger) -> float:
    """The share that a ledger shows as lost, attributed or not."""
    kinds = (Spent.LOCAL_RANK, Spent.OTHER_NODE, Spent.BEYOND, Spent.NOT_ATTRIBUTED)
    return sum(found.shares.get(kind, 0.0) for kind in kinds)


def _firm(said: Said) -> bool:
    """Tell whether it says for sure that nothing of this node holds the job up."""
    return said.wall is not Wall.NOT_KNOWN


def _changes(played: Played) -> int:
    """How often the first line of the largest job changed, numbers left out."""
    lines = [re.sub(r"[\d.]+", "#", look.jobs[0].answer.sentence) for look in played.looks if look.jobs]
    return sum(1 for one, two in pairwise(lines) if one != two)
