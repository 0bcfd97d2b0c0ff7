"""The table of witnesses: who sees a part goes before who only expects it, and silence proves nothing."""

from dataclasses import astuple, fields, replace
from itertools import product

from tests.rows import each
from wirewatch.core.witnesses import TABLE, Says, State, Witnesses, _holds, weigh

HERE, ILL, GONE, AWAY, HIDDEN, COMING, DUE = (
    Says.HERE, Says.ILL, Says.GONE, Says.AWAY, Says.HIDDEN, Says.COMING, Says.DUE,
)  # fmt: skip
WITNESSES = [one.name for one in fields(Witnesses)]
CAN_SAY = {
    "nvml": (HERE, ILL, GONE, AWAY, COMING), "pci": (HERE, ILL, GONE, AWAY, HIDDEN), "log": (ILL,),
    "clock": (COMING,), "memory": (DUE,), "siblings": (DUE, AWAY, GONE), "product": (DUE,),
}  # fmt: skip


@each(
    ("part", "state"),
    [
        (Witnesses(nvml=HERE, memory=DUE), State.PRESENT),
        (Witnesses(nvml=GONE, pci=AWAY, memory=DUE, product=DUE), State.LENT),
        (Witnesses(nvml=AWAY, memory=DUE), State.LENT),
        (Witnesses(nvml=GONE, pci=HERE), State.FAULTY),
        (Witnesses(nvml=GONE, pci=HERE, clock=COMING), State.STARTING),
        (Witnesses(nvml=GONE, pci=HIDDEN, product=DUE), State.LENT),
        (Witnesses(nvml=GONE, pci=HIDDEN, log=ILL), State.FAULTY),
        (Witnesses(nvml=GONE, pci=HIDDEN, memory=DUE), State.NOT_KNOWN),
        (Witnesses(nvml=GONE, pci=ILL), State.ABSENT),
        (Witnesses(nvml=GONE, pci=ILL, log=ILL), State.FAULTY),
        (Witnesses(nvml=GONE, pci=ILL, log=ILL, siblings=GONE), State.NOT_KNOWN),
        (Witnesses(nvml=GONE, pci=ILL, siblings=DUE), State.NOT_KNOWN),
        (Witnesses(nvml=GONE, pci=ILL, siblings=DUE, product=DUE), State.FAULTY),
        (Witnesses(nvml=GONE, pci=GONE), State.ABSENT),
        (Witnesses(nvml=GONE, pci=GONE, memory=DUE), State.FAULTY),
        (Witnesses(nvml=GONE, product=DUE), State.NOT_KNOWN),
        (Witnesses(nvml=GONE, siblings=DUE), State.FAULTY),
        (Witnesses(nvml=GONE, siblings=DUE, clock=COMING), State.STARTING),
        (Witnesses(nvml=ILL, product=DUE), State.FAULTY),
        (Witnesses(nvml=ILL, product=DUE, clock=COMING), State.STARTING),
        (Witnesses(nvml=ILL, product=DUE, clock=COMING, memory=DUE), State.FAULTY),
        (Witnesses(nvml=ILL, product=DUE, siblings=AWAY, memory=DUE), State.NOT_KNOWN),
        (Witnesses(nvml=ILL, siblings=DUE), State.NOT_KNOWN),
        (Witnesses(nvml=ILL), State.ABSENT),
    ],
)
def test_a_part_is_what_its_witnesses_say(part: Witnesses, state: State) -> None:
    assert weigh(part).state is state


def every() -> list[Witnesses]:
    said = product(*((Says.NOTHING, *CAN_SAY[name]) for name in WITNESSES))
    return [Witnesses(**dict(zip(WITNESSES, one, strict=True))) for one in said]


def test_every_row_decides_something() -> None:
    rows = {
        next(n for n, (row, _) in enumerate(TABLE) if _holds(astuple(row), astuple(one))) for one in every()
    }
    assert rows == set(range(len(TABLE)))


def test_what_is_not_decided_has_its_reason() -> None:
    for part in every():
        weighed = weigh(part)
        assert weighed.reason or weighed.state is State.PRESENT


def test_one_more_expectation_never_makes_a_fault_less() -> None:
    """Where nobody is away and nothing is starting."""
    for part in every():
        if weigh(part).state is not State.FAULTY or part.siblings is AWAY or part.clock is COMING:
            continue
        for name in ("memory", "product"):
            assert weigh(replace(part, **{name: DUE})).state is State.FAULTY, (part, name)


def test_nobody_who_is_silent_makes_a_fault() -> None:
    """Without a witness that sees it, or one that knows it, there is no fault."""
    for part in every():
        seen = {part.pci, part.log, part.memory} - {Says.NOTHING, GONE}
        due = {part.siblings, part.product} - {Says.NOTHING, GONE}
        if not seen and not due:
            assert weigh(part).state is not State.FAULTY
