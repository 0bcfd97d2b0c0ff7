"""How processes spend time in which nothing runs on their GPU, and which ranks are behind. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from operator import attrgetter

from wirewatch.core.jobs import RingState
from wirewatch.core.types import Absent, value_or
from wirewatch.jobs.ledger.model import CountedCommunicator, Doing, ProcessSight
from wirewatch.jobs.ledger.spent import RankBehind
from wirewatch.jobs.ledger.split import JobNow, spins

FILES = 1e6
"""Bytes per second from which on a process moves files."""
BURNS, TAKES = 0.5, 0.1
"""Shares of a core from which on CPU time is said always, and where nothing else is to say."""
NOT_READABLE, ENDED = "not readable", "its process has ended"
_BLOCKED, _STOPPED = "D", "TtZX"
"""The kernel's letters: in a driver or a file system; stopped, traced or ended."""
_MB = 1e6
_PARTS = attrgetter(*(part.name for part in fields(Doing)))
_SIDE_BY_SIDE = ("seconds", "unread", "blocked", "stopped")
Sight = ProcessSight | Absent | None
Sights = Mapping[int, ProcessSight | Absent]


def doing(then: Sight, now: Sight, seconds: float) -> Doing:
    """Return how a process spent the time between two sights; an id that is used again is another process."""
    if not isinstance(now, ProcessSight):
        return Doing(seconds, unread=seconds)
    found = Doing(
        seconds, blocked=seconds * (now.state == _BLOCKED), stopped=seconds * (now.state in _STOPPED)
    )
    known = then if isinstance(then, ProcessSight) and then.began == now.began else None
    cpu = _growth(known.cpu, now.cpu) if known else None
    if cpu is None:
        return found if found.blocked or found.stopped else replace(found, unread=seconds)
    assert known is not None  # noqa: S101 - or there was no CPU time
    read, written = _growth(known.read, now.read), _growth(known.written, now.written)
    return replace(found, cpu=cpu, read=read or 0.0, written=written or 0.0)


def together(some: Sequence[Doing]) -> Doing:
    """Return what the processes of one GPU did at the same time."""
    if len(some) <= 1:
        return some[0] if some else Doing()
    longest = {name: max(getattr(one, name) for one in some) for name in _SIDE_BY_SIDE}
    return replace(added(some), **longest)


def added(some: Sequence[Doing]) -> Doing:
    """Return what was done one after the other."""
    return Doing(*map(sum, zip(*map(_PARTS, some), strict=True))) if some else Doing()


def part_of(one: Doing, share: float) -> Doing:
    """Return that share of what was done."""
    return Doing(*(share * part for part in _PARTS(one)))


def doing_words(one: Doing) -> str:
    """Return what was done, in words such as `in state D, writes 230 MB/s`; empty for no time."""
    if one.seconds <= 0:
        return ""
    if 2 * one.unread > one.seconds:
        return NOT_READABLE
    known = one.seconds - one.unread
    said = ["stopped"] if 2 * one.stopped > known else ["in state D"] if 2 * one.blocked > known else []
    for verb, moved in (("reads", one.read), ("writes", one.written)):
        if moved >= FILES * known:
            said.append(f"{verb} {moved / known / _MB:.0f} MB/s")
    cpu = one.cpu / known
    if cpu >= (TAKES if not said else BURNS):
        said.append(f"burns {100 * cpu:.0f} % of a core")
    return ", ".join(said) or "sleeps"


def ranks_behind(job: JobNow, then: Sights, now: Sights, seconds: float) -> Iterator[RankBehind]:
    """Yield the ranks that have enqueued least, have made no call lately, and for which others wait."""
    for one in job.counted:
        most = max(rank.enqueued for rank in one.here)
        least = min(rank.enqueued for rank in one.here)
        if least == most or not _waits(one, most, job):
            continue
        for rank in one.here:
            gpu, pid = str(rank.gpu), value_or(rank.pid, None)
            age = job.around.counted - rank.event
            free = not (gpu in job.sights and spins(job.sights[gpu], job.policy))
            if rank.enqueued == least and age >= job.policy.behind and free:
                does = ENDED if rank.state is RingState.DEAD else ""
                if not does and pid is not None:
                    does = doing_words(doing(then.get(pid), now.get(pid), seconds))
                yield RankBehind(
                    rank.rank, one.id, "" if isinstance(rank.gpu, Absent) else gpu, rank.index, pid,
                    most - least, age, does,
                )  # fmt: skip


def _waits(one: CountedCommunicator, most: int, job: JobNow) -> bool:
    """Tell whether a first rank waits: its GPU spins, or it makes no call where that is not known."""
    for rank in one.here:
        if rank.enqueued == most:
            gpu = str(rank.gpu)
            state = spins(job.sights[gpu], job.policy) if gpu in job.sights else None
            if state or (state is None and job.around.counted - rank.event >= job.policy.still):
                return True
    return False


def _growth(then: float | Absent, now: float | Absent) -> float | None:
    """Return the growth of a counter, None where either is not known or it was reset."""
    if isinstance(then, Absent) or isinstance(now, Absent) or not now >= then:
        return None
    return now - then
