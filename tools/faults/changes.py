"""When the changes of a fault begin and are over, in seconds of play."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from wirewatch.hw.overlay import AnswerChange


def begun(changes: Sequence[AnswerChange], at: float) -> list[AnswerChange]:
    """The changes with the first of them at so many seconds of play; what has an end keeps its length."""
    later = at - min((one.start for one in changes), default=0.0)
    return [
        replace(one, start=one.start + later, until=one.until + later, argument=_stamped(one, later))
        for one in changes
    ]


def ended(changes: Sequence[AnswerChange], at: float) -> Iterator[AnswerChange]:
    """The changes, over at so many seconds of play: what was counted and logged is not taken back."""
    for one in changes:
        counted = one.action == "ramp" or (one.action == "add" and not one.at)
        if one.until <= at or one.start > at or one.port in {"kmsg", "host"}:
            yield one
        elif one.action == "ramp":
            yield replace(one, until=at)
            yield replace(one, action="add", argument=int(one.argument * (at - one.start)), start=at)
        elif counted:
            yield one
        else:
            yield replace(one, until=at)


def _stamped(one: AnswerChange, later: float) -> object:
    """Records of the kernel's log are stamped with microseconds, which move with the fault."""
    if one.port != "kmsg" or not isinstance(one.argument, list):
        return one.argument
    return [_moved(str(record), later) for record in one.argument]


def _moved(record: str, later: float) -> str:
    head, _, text = record.partition(";")
    priority, number, stamp, *flags = head.split(",")
    return ",".join([priority, number, str(int(stamp) + int(later * 1e6)), *flags]) + f";{text}"
