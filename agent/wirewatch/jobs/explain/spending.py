"""A job's ledger as `explain` takes it: shares over all of its GPUs, and who is waited for. Pure."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from wirewatch.core import words
from wirewatch.core.statistics import low_median
from wirewatch.core.types import Absent
from wirewatch.jobs.explain.words import in_words, percent
from wirewatch.jobs.ledger.spent import GpuLedger, JobLedger, Spent, is_share

NAMED = 0.05
"""Share of the time from which on waiting is a wall. Ranks of healthy jobs were waited for 3.9 % at most."""
NOBODY = 0.03
"""Share of the time below which `explain` may say that nobody waits."""
COVERED = 60.0
"""Seconds that the long window must cover to count alone."""
FULL = 290.0
"""Seconds of a long window that is full."""
NEW, LASTED = 2.0, 20.0
"""The short window counts where it shows so many times the long one, and has for so many seconds."""
UNJUDGED = "on the wire, nothing known to expect"
WAITS = 0.01
"""Least share of the time for which a GPU must wait to count as waiting."""
HALF = 0.5
WAITING = (Spent.LOCAL_RANK, Spent.OTHER_NODE, Spent.NOT_ATTRIBUTED)
"""Kinds that are, or may be, waiting."""

Gpus = Sequence[GpuLedger]
"""The ledgers of a job's GPUs over one window."""


@dataclass(frozen=True, slots=True)
class TimeShare:
    """A share, 0 to 1, of the time, or of a `window` such as `last 10 s`."""

    value: float
    window: str = "time"

    def __str__(self) -> str:
        return f"{percent(self.value)} of the {self.window}"


@dataclass(frozen=True, slots=True)
class JobSpending:
    """Both windows of a job's ledger, with the GPUs whose shares are valid; at least one has a GPU."""

    short: Gpus
    long: Gpus

    def share(self, pick: Callable[[Gpus], float]) -> TimeShare:
        """Return a share over the long window, or over the short one where something new has lasted.

        A rare stall raises the short window too; the long window shows it as soon as it matters.
        """
        long, short = pick(self.long), pick(self.short)
        if self.judged is self.short:
            return TimeShare(short)
        new = long < NAMED and short > NEW * long and long * covered(self.long) >= LASTED * short
        return TimeShare(short, f"last {words.span(covered(self.short))}") if new else TimeShare(long)

    def of(self, kind: Spent) -> TimeShare:
        """Return the mean share of a kind over the GPUs."""
        return self.share(lambda gpus: mean_of(gpus, kind))

    def waited(self, uuid: str) -> TimeShare:
        """Return for which share a GPU is waited for, the mean of those GPUs that wait for it at all."""
        return self.share(partial(_waited, uuid=uuid))

    def waiting_for(self, uuid: str) -> int:
        """Return how many GPUs wait for this GPU."""
        return max(len(_waiting(gpus, uuid)) for gpus in (self.short, self.long))

    def late(self) -> list[str]:
        """Return the GPUs (UUID) that are waited for and hardly wait themselves, the costliest first.

        Ten seconds alone may show that by chance: until the long window counts, it must agree.
        """
        seen = {uuid for one in self._every for uuid in one.waits_for}
        cost = {uuid: self.waited(uuid).value for uuid in sorted(seen)}
        named = [uuid for uuid, value in cost.items() if value >= NAMED]
        waits = {uuid: self.share(partial(_own, uuid=uuid, kind=Spent.LOCAL_RANK)).value for uuid in named}
        free = [uuid for uuid in named if waits[uuid] < HALF * cost[uuid]]
        if self.judged is self.short and self.long:
            own = {uuid: _own(self.long, uuid, Spent.LOCAL_RANK) for uuid in free}
            free = [uuid for uuid in free if own[uuid] < HALF * _waited(self.long, uuid)]
        return sorted(free, key=lambda uuid: -cost[uuid])

    def unnamed(self) -> TimeShare:
        """Return the mean share of waiting of which nobody is known to be the cause."""
        return self.share(lambda gpus: _mean([one.waiting for one in gpus]))

    def idle(self) -> Mapping[str, TimeShare]:
        """Return for each GPU (UUID) the share in which nothing ran on it."""
        every = {one.gpu: None for one in (*self.judged, *self.short)}
        return {uuid: self._started(partial(_own, uuid=uuid, kind=Spent.IDLE)) for uuid in every}

    def idler(self, uuid: str, rest: Sequence[str]) -> float:
        """Return by how much of the time a GPU is idler than the median of others."""

        def more(gpus: Gpus) -> float:
            others = [_own(gpus, other, Spent.IDLE) for other in rest]
            return _own(gpus, uuid, Spent.IDLE) - low_median(others)

        early = covered(self.long) < COVERED
        return (
            min(more(gpus) for gpus in (self.long, self.short) if gpus)
            if early
            else self._started(more).value
        )

    def unknown(self) -> TimeShare:
        """Return the mean share that is not attributed to anything."""
        return self._started(lambda gpus: mean_of(gpus, Spent.NOT_ATTRIBUTED))

    def _started(self, pick: Callable[[Gpus], float]) -> TimeShare:
        """Return a share; the lesser of both until the long window is full: it may have the job's start."""
        found = self.share(pick)
        started = not self.short or covered(self.long) >= FULL
        return found if started else min(found, TimeShare(pick(self.short)), key=lambda one: one.value)

    def lost(self) -> float:
        """Return the greatest share in which a GPU waits, or may wait, or its wire is slow or not judged."""
        return max(one.unjudged + one.shares.get(Spent.BEYOND, 0.0) + _waits(one) for one in self._every)

    def most_waiting(self) -> float:
        """Return the greatest share that any GPU waits, or may wait, in either window."""
        return max(map(_waits, self._every))

    @property
    def _every(self) -> Gpus:
        return (*self.short, *self.long)

    @property
    def judged(self) -> Gpus:
        """Return the window that counts where nothing is new: the long one once it covers enough."""
        return self.long if covered(self.long) >= COVERED or not self.short else self.short

    @property
    def uncertain(self) -> bool:
        """Tell whether the largest part of the time in which the GPUs do not compute is not attributed."""
        shares = {kind: mean_of(self.judged, kind) for kind in Spent if kind is not Spent.COMPUTING}
        return 0 < shares[Spent.NOT_ATTRIBUTED] >= max(shares.values())

    @property
    def texts(self) -> tuple[str, ...]:
        """Return each window in words."""
        both = (gpus for gpus in (self.long, self.short) if gpus)
        return tuple(f"in the last {words.span(covered(one))}: {in_words(shares_of(one))}" for one in both)


def spending(ledger: JobLedger | Absent) -> JobSpending | None:
    """Return the ledger of a job over its GPUs; None where there is none.

    A GPU whose shares cannot be has none.
    """
    if isinstance(ledger, Absent):
        return None
    odd = {one.gpu for one in (*ledger.short, *ledger.long) if not _is_sound(one)}
    short, long = (tuple(o for o in gpus if o.gpu not in odd) for gpus in (ledger.short, ledger.long))
    return JobSpending(short, long) if short or long else None


def _is_sound(one: GpuLedger) -> bool:
    """Tell whether shares can be of one GPU's time: all of 0 to 1, and 1 together."""
    parts = (*one.shares.values(), *one.waits_for.values(), one.unjudged, one.waiting)
    whole = 0 <= one.seconds < math.inf and math.isclose(math.fsum(one.shares.values()), 1, abs_tol=0.01)
    return whole and all(map(is_share, parts))


def _waits(one: GpuLedger) -> float:
    """Return the share in which a GPU waits, or may wait."""
    return sum(one.shares.get(kind, 0.0) for kind in WAITING)


def ledger_shares(ledger: JobLedger | Absent) -> dict[str, float]:
    """Return the shares of a job by the name of their kind, over the window that counts; empty without."""
    spent = spending(ledger)
    return shares_of(spent.judged) if spent else {}


def mean_of(gpus: Gpus, kind: Spent) -> float:
    """Return the mean share of a kind over GPUs."""
    return _mean([one.shares.get(kind, 0.0) for one in gpus])


def covered(gpus: Gpus) -> float:
    """Return how long a window is: the shortest of its GPUs."""
    return min((one.seconds for one in gpus), default=0.0)


def shares_of(gpus: Gpus) -> dict[str, float]:
    """Return the mean shares of GPUs by the name of their kind: computing first, then the largest."""
    shares = {kind.value: mean_of(gpus, kind) for kind in Spent}
    if unjudged := _mean([one.unjudged for one in gpus]):
        shares |= {UNJUDGED: unjudged, Spent.WIRE.value: shares[Spent.WIRE.value] - unjudged}
    rest = sorted(list(shares)[1:], key=lambda name: -shares[name])
    return {name: shares[name] for name in (Spent.COMPUTING.value, *rest)}


def _waiting(gpus: Gpus, uuid: str) -> list[GpuLedger]:
    return [one for one in gpus if one.gpu != uuid and one.waits_for.get(uuid, 0.0) >= WAITS]


def _waited(gpus: Gpus, uuid: str) -> float:
    """Return for which share a GPU is waited for: the mean over all GPUs that wait for it."""
    return _mean([one.waits_for[uuid] for one in _waiting(gpus, uuid)])


def _own(gpus: Gpus, uuid: str, kind: Spent) -> float:
    """Return a share of one GPU."""
    return mean_of([one for one in gpus if one.gpu == uuid], kind)


def _mean(shares: Sequence[float]) -> float:
    return math.fsum(shares) / len(shares) if shares else 0.0
