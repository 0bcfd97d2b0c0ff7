"""The time that a job loses by a late rank: the part of the waiting that makes its steps longer. Pure.

Without overlap all ranks meet in each collective, and all waiting is lost. With overlap, computing goes on
beside the collectives of a step. Then each collective waits for a rank that is 0.1 ms late, and the step
takes 0.1 ms longer once. Only new lateness is lost (ADR 0075).
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from wirewatch.core.statistics import low_median
from wirewatch.jobs.running.model import JoinedCollective, RankMeeting

LONGEST = 0.25
"""Share of all computing that the longest stretches make up."""
NEW = 0.35
"""New lateness is less than such a part of all lateness, for the computing in front of it."""
APART = 2.0
"""How many times as long as the median are stretches that are not of the same kind."""
WENT_AHEAD, AHEAD = 0.1, 0.3
"""A rank went ahead if it needs at most the first part of the late rank's time between two collectives. If
ranks went ahead at the second share of collectives, computing goes on beside them."""
SLOWEST, HELD_UP = 0.35, 0.2
"""Shares of a rank's computing. No slow GPU loses more than the first: it would be half again as slow as
others. Sudden lateness above the second, or after long stretches, means a hold-up, for example by its
loader."""
ALIKE = 0.2
"""Lateness that differs by no more is of a GPU that is much slower, after stretches that are alike."""
KEEPS, FALLS = 0.5, 0.6
"""Ranks stay behind where lateness in front leaves at most the first part of what computing leaves
unexplained. They fall behind where it grows, or shrinks, twice in a row at the second share. Where ranks
meet, it does so a third of the time."""
QUEUED = 0.1
"""A collective was queued if the rank computed less than this part of its mean in front of it. It was ready
before the collective in front ended, and shows nobody's lateness."""


class Lateness(NamedTuple):
    """A rank at a collective: `late` seconds after the next rank, after `computed` seconds, the ranks' mean.

    `own`: seconds from the end of the collective in front until the rank came.
    """

    computed: float
    own: float
    late: float

    @property
    def ahead(self) -> bool:
        """Tell whether the next rank had done its computing while it waited in the collective in front."""
        return self.own - self.late <= WENT_AHEAD * self.own


def lost_by(
    found: Sequence[JoinedCollective], rank: int, alone: float, met: Sequence[RankMeeting]
) -> float | None:
    """Return the share of time that a job loses by a rank, with computing beside its collectives.

    The others wait for it `alone` of the time. `met`: the rank's newest meetings, in these collectives and
    earlier. Only new lateness is lost. It shows where lateness has suddenly shrunk, since all ranks have met,
    and after stretches of computing far longer than the others. There a slow rank loses the share that its
    lateness is of the computing in front, and at least the time it was held up. Elsewhere new lateness comes
    from ranks that had gone ahead and no longer do.

    Returns:
        None where no new lateness was seen.
    """
    every = _every(found, rank)
    usual, (apart, long) = _share(every), _long(every)
    anew = _share(met)
    far = any(_far_behind(one) == rank for one in found)
    least = min(alone, _sudden(found, rank) / covered(found) if far else 0.0)
    if 0 <= anew < NEW * usual:
        return max(least, min(alone, anew))
    if apart and 0 <= long < min(usual, HELD_UP):
        return max(least, min(alone, long))
    return max(least, alone * _new(_known(found, rank))) or None


def overlap(found: Sequence[JoinedCollective], rank: int, *, surely: bool = False) -> bool:
    """Tell whether computing goes on beside the collectives, so that not all waiting for a rank is lost.

    It does where ranks go ahead; where the rank's lateness varies and exceeds that of any slow GPU; or where
    it falls ever more behind. It also does where lateness after far longer stretches of computing is far less
    than usual, as a share of them. Queued collectives count there too: they are waited for as long. A pause
    in each step looks like this last case; `surely`: no slow GPU is so late, and the rank stays behind.
    """
    every = _every(found, rank)
    usual, (apart, long) = _share(every), _long(every)
    if usual <= 0:
        return False
    known = _known(found, rank)
    ahead = sum(one.ahead for one in known) >= AHEAD * len(known)
    middle, (stays, falls) = APART * low_median(one.computed for one in every), beside(found, (rank,))
    short = [one for one in every if one.computed < middle]
    far = apart and long < NEW * usual and (not surely or (stays and _share(short) > SLOWEST))
    return ahead or (usual > SLOWEST and _spread(known) > ALIKE) or far or (stays and falls)


def beside(found: Sequence[JoinedCollective], ranks: Collection[int]) -> tuple[bool, bool]:
    """Tell whether ranks stay as late as they were for the collective in front, and fall ever more behind.

    Where ranks meet in each collective, a rank is late by its computing since. Where the others compute while
    they wait, it stays as late as it was, up to the time since the collective in front ended.
    """
    since = kept = 0.0
    twice = count = 0
    for rank in ranks:
        known = [
            (_after(old, rank), Lateness(new.before or 0.0, _own(new, rank), _after(new, rank)))
            for old, new in _followed(found)
        ]
        share = _share([new for _, new in known])
        since += math.fsum(abs(new.late - share * new.computed) for _, new in known)
        # Behind or ahead still: no longer than the rank, or the others, computed since.
        more = [new.late - min(max(old, new.late - new.own), new.own) for old, new in known]
        kept += math.fsum(map(abs, more))
        twice, count = twice + sum(one * two > 0 for one, two in pairwise(more)), count + len(more)
    return kept <= KEEPS * since, twice >= FALLS * count > 0


def fresh(found: Sequence[JoinedCollective]) -> dict[int, float]:
    """Return by rank the part of the waiting for it that is new, where computing goes on beside collectives.

    Waiting that began in the collective in front goes on and delays nothing more, unless a rank went ahead.
    """
    new, every = defaultdict[int, float](float), defaultdict[int, float](float)
    for old, one in _followed(found):
        last, before = min(one.own, key=lambda rank: one.own[rank]), min(old.own.values())
        own = _own(one, last)
        for rank, seconds in one.own.items():
            waited = seconds - one.own[last]
            ahead = own - waited <= WENT_AHEAD * own
            every[last] += waited
            new[last] += max(0.0, waited - (0.0 if ahead else old.own.get(rank, before) - before))
    return {rank: new[rank] / waited for rank, waited in every.items() if waited > 0}


def _followed(found: Sequence[JoinedCollective]) -> Iterator[tuple[JoinedCollective, JoinedCollective]]:
    order = sorted((one for one in found if len(one.own) > 1), key=lambda one: one.at)
    return ((old, new) for old, new in pairwise(order) if new.before is not None)


def _after(one: JoinedCollective, rank: int) -> float:
    """Seconds by which a rank comes after the mean of the others."""
    mean = math.fsum(one.own.values()) / len(one.own)
    return (mean - one.own[rank]) * len(one.own) / (len(one.own) - 1)


def meetings(found: Sequence[JoinedCollective], rank: int) -> list[RankMeeting]:
    """Where a rank was suddenly less late than in the collective in front, but after short stretches."""
    came = _came(found, rank)
    known = [(old, new) for (old, _), (_, new) in pairwise(came) if new is not None]
    usual = low_median([new.computed for _, new in known]) if known else 0.0
    return [
        RankMeeting(rank, new.computed, new.late)
        for old, new in known
        if new.late < old / 2 and new.computed >= usual / 2
    ]


def held_up(found: Sequence[JoinedCollective], front: Sequence[JoinedCollective] = ()) -> dict[int, float]:
    """Return seconds by which ranks came suddenly later than in front: more than a slow GPU takes.

    A loader or host holds a rank up like this once a step, and the others go on as soon as it comes. So it
    shows in few collectives of a step, and another rank may be a little late in all others. Sudden lateness
    is unknown after a collective for which the next rank had gone ahead: the rank was later than could be
    seen. `front`: collectives in front of all these, which do not count themselves.
    """
    if front:
        before = held_up(front)
        return {rank: more - before.get(rank, 0.0) for rank, more in held_up((*front, *found)).items()}
    far = {last for one in found if (last := _far_behind(one)) is not None}
    return {rank: more for rank in sorted(far) if (more := _sudden(found, rank))}


def _sudden(found: Sequence[JoinedCollective], rank: int) -> float:
    """Seconds by which one rank came suddenly later than in front."""
    pairs = pairwise(came for _, came in _came(found, rank))
    more = [(new.late - max(0.0, old.late), new.own) for old, new in pairs if old and new and not old.ahead]
    return sum(late for late, own in more if late > HELD_UP * own)


def maybe_held_up(found: Sequence[JoinedCollective]) -> dict[int, float]:
    """Seconds by which ranks came far behind where it is not known by how much they were late in front.

    Far is more than all ranks compute between two collectives.
    """
    order = sorted((one for one in found if len(one.own) > 1), key=lambda one: one.at)
    least = covered(order) / max(1, sum(one.before is not None for one in order))
    seconds: dict[int, float] = defaultdict(float)
    for old, new in pairwise([*order[:1], *order]):
        last = min(new.own, key=lambda one: new.own[one])
        late = gap(new.own, last)
        if late > least and (old.before is None or new.before is None):
            seconds[last] += late
    return seconds


def _far_behind(one: JoinedCollective) -> int | None:
    """Return the last rank, where it is so late that it may have been held up; most often it is not."""
    if one.before is None or len(one.own) < 2:  # noqa: PLR2004
        return None
    last = min(one.own, key=lambda rank: one.own[rank])
    return last if gap(one.own, last) > HELD_UP * _own(one, last) else None


def covered(found: Sequence[JoinedCollective]) -> float:
    """Seconds of the collectives in front of which computing was seen, and of that computing."""
    return math.fsum(
        one.before + math.fsum(one.own.values()) / len(one.own)
        for one in found
        if one.before is not None and len(one.own) > 1
    )


def gap(seconds: Mapping[int, float], rank: int) -> float:
    """Return seconds by which a rank comes after the next rank; below 0 where another rank is last."""
    own, first = seconds[rank], min(seconds.values())
    return (sorted(seconds.values())[1] if own == first else first) - own


def _came(found: Sequence[JoinedCollective], rank: int) -> list[tuple[float, Lateness | None]]:
    """Return by how much the rank was late for each collective that was not queued, in their order."""
    order = sorted((one for one in found if len(one.own) > 1), key=lambda one: one.at)
    every = [(one, _lateness(one, rank)) for one in order]
    known = [came for _, came in every if came is not None]
    least = QUEUED * math.fsum(came.own for came in known) / max(1, len(known))
    left = ((one, came) for one, came in every if came is None or came.own > least)
    return [(came.late if came else gap(one.own, rank), came) for one, came in left]


def _every(found: Sequence[JoinedCollective], rank: int) -> list[Lateness]:
    """Return the rank's lateness for each collective, also for queued collectives."""
    return [came for one in found if len(one.own) > 1 and (came := _lateness(one, rank)) is not None]


def _lateness(one: JoinedCollective, rank: int) -> Lateness | None:
    return None if one.before is None else Lateness(one.before, _own(one, rank), gap(one.own, rank))


def _own(one: JoinedCollective, rank: int) -> float:
    """Seconds from the end of the collective in front until the rank came."""
    return (one.before or 0.0) + math.fsum(one.own.values()) / len(one.own) - one.own[rank]


def _known(found: Sequence[JoinedCollective], rank: int) -> list[Lateness]:
    return [came for _, came in _came(found, rank) if came is not None]


def _long(known: Sequence[Lateness]) -> tuple[bool, float]:
    """Tell whether some stretches are far longer than others; and how late the rank is then, as a share."""
    longest = _longest(known)
    apart = bool(known) and longest[-1].computed >= APART * low_median([one.computed for one in known])
    return apart, _share(longest)


def _share(stretches: Sequence[Lateness | RankMeeting]) -> float:
    """All lateness as a share of the computing in front of it; below 0 where there is none."""
    computed = math.fsum(one.computed for one in stretches)
    return math.fsum(one.late for one in stretches) / computed if computed > 0 else -1.0


def _spread(stretches: Sequence[Lateness]) -> float:
    """The middle half of all lateness, as a share of its median."""
    late = sorted(one.late for one in stretches)
    middle = low_median(late)
    return (late[3 * len(late) // 4] - late[len(late) // 4]) / middle if middle > 0 else 0.0


def _longest(stretches: Sequence[Lateness]) -> Sequence[Lateness]:
    ordered, part = sorted(stretches, key=lambda one: -one.computed), 0.0
    least = LONGEST * math.fsum(one.computed for one in ordered)
    for count, one in enumerate(ordered, 1):
        part += one.computed
        if part >= least:
            return ordered[:count]
    return ordered


def _new(stretches: Sequence[Lateness]) -> float:
    """The share of all lateness that came at the first collective of ranks that had gone ahead before."""
    came = (max(0.0, new.late) for old, new in pairwise(stretches) if old.ahead and not new.ahead)
    total = math.fsum(max(0.0, one.late) for one in stretches)
    return math.fsum(came) / total if total > 0 else 0.0
