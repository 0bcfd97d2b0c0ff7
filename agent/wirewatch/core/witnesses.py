"""Weigh an expected part: each witness says one word, and a table gives its state.

Collectors make a `Witnesses` of a reading and their memory, and a finding of the result. They keep windows
and streaks: no witness decides how often a state must be seen before it counts.
"""

from dataclasses import astuple, dataclass
from enum import Enum
from functools import cache
from typing import NamedTuple


class Says(Enum):
    """The word of a witness about a part."""

    NOTHING = "nothing"
    HERE = "it works"
    ILL = "it is there and does not work"
    GONE = "it is not there"
    AWAY = "somebody else has it"
    HIDDEN = "its driver does not show it here"
    COMING = "it is starting"
    DUE = "it should be there"


class State(Enum):
    """The state of a part; only FAULTY is a fault, and STARTING is not remembered."""

    PRESENT = "present"
    ABSENT = "absent"
    LENT = "lent"
    STARTING = "starting"
    FAULTY = "faulty"
    NOT_KNOWN = "not known"


@dataclass(frozen=True, slots=True)
class Witnesses:
    """The words of all witnesses about one expected part.

    `nvml`, `pci` and `log` (the kernel's) see the part itself; `clock` knows how long ago the machine
    started. `memory` (an earlier time), `siblings` (like parts) and `product` (the data sheet) know whether
    it is due.
    """

    nvml: Says = Says.NOTHING
    pci: Says = Says.NOTHING
    log: Says = Says.NOTHING
    clock: Says = Says.NOTHING
    memory: Says = Says.NOTHING
    siblings: Says = Says.NOTHING
    product: Says = Says.NOTHING


class Weighed(NamedTuple):
    """A part's state and the reason in words; without a reason where the part was simply seen."""

    state: State
    reason: str = ""


_, _T = Says, Witnesses
PEER_AWAY = Weighed(State.NOT_KNOWN, "it may lead to a GPU that is split or lent")
MAY_START = Weighed(State.STARTING, "it may still be starting")
TABLE: tuple[tuple[Witnesses, Weighed], ...] = (
    (_T(nvml=_.HERE), Weighed(State.PRESENT)),
    (_T(nvml=_.AWAY), Weighed(State.LENT, "it is split by MIG")),
    (_T(pci=_.AWAY), Weighed(State.LENT, "a virtual machine or a program has it")),
    (_T(nvml=_.COMING), MAY_START),
    (_T(pci=_.HIDDEN, log=_.ILL), Weighed(State.FAULTY, "the kernel log says why it did not start")),
    (_T(pci=_.HIDDEN, memory=_.DUE), Weighed(State.NOT_KNOWN, "this container may not be given it any more")),
    (_T(pci=_.HIDDEN), Weighed(State.LENT, "it was not given to this container")),
    (_T(siblings=_.AWAY, memory=_.DUE), PEER_AWAY),
    (_T(memory=_.DUE), Weighed(State.FAULTY, "it was there before")),
    (_T(log=_.ILL, siblings=_.GONE), Weighed(State.NOT_KNOWN, "nothing here is like it; it may be no part")),
    (_T(log=_.ILL), Weighed(State.FAULTY, "the kernel log says why it did not start")),
    (_T(clock=_.COMING, product=_.DUE), MAY_START),
    (_T(clock=_.COMING, siblings=_.DUE), MAY_START),
    (_T(siblings=_.AWAY), PEER_AWAY),
    (_T(clock=_.COMING, pci=_.HERE), MAY_START),
    (_T(pci=_.HERE), Weighed(State.FAULTY, "its driver has it")),
    (_T(pci=_.ILL, product=_.DUE), Weighed(State.FAULTY, "the board is not whole without it")),
    (_T(pci=_.ILL, siblings=_.DUE), Weighed(State.NOT_KNOWN, "its like has a driver; it may be kept out")),
    (_T(nvml=_.ILL, product=_.DUE), Weighed(State.FAULTY, "its product always has it")),
    (_T(nvml=_.ILL, siblings=_.DUE), Weighed(State.NOT_KNOWN, "its like here is otherwise; it may be meant")),
    (_T(nvml=_.GONE, siblings=_.DUE), Weighed(State.FAULTY, "its like here has it")),
    (_T(nvml=_.GONE, product=_.DUE), Weighed(State.NOT_KNOWN, "its product has it, and no source shows it")),
    (_T(), Weighed(State.ABSENT, "nothing says that it is due")),
)
"""The first row whose words were all said holds. Rows by sight stand before rows by expectation."""


@cache
def weigh(said: Witnesses) -> Weighed:
    """Return the state of the part by all its witnesses."""
    words = astuple(said)
    return next(weighed for row, weighed in TABLE if _holds(astuple(row), words))


def _holds(row: tuple[Says, ...], words: tuple[Says, ...]) -> bool:
    return all(wanted in {Says.NOTHING, word} for wanted, word in zip(row, words, strict=True))
