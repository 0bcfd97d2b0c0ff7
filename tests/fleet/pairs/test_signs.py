"""Counters at both ends of runs, beside those of members that are well: what is said of a slow part."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tests.fleet.pairs.rounds import around, measured
from tests.rows import each
from wirewatch.core.pairs import Measure, PartKind
from wirewatch_fleet.cli.pairs import pairs_lines
from wirewatch_fleet.pairs.alone import CollisionLoss
from wirewatch_fleet.pairs.document import pairs_document, rounds_document
from wirewatch_fleet.pairs.model import (
    MeasuredRound,
    NamedPart,
    PairEnd,
    PairFleet,
    PairMember,
    RoundPurpose,
    SlowPlace,
)
from wirewatch_fleet.pairs.signs import PartCounters, counters_of

NAMES = [f"n{n:02}" for n in range(8)]
BYTES = {"mlx5_0:1": 1_000_000}
SYMBOL, CNP, DROPPED = (
    {f"mlx5_0:1 {kind}": 500} for kind in ("symbol_error", "rp_cnp_handled", "rx_dropped")
)
NODE = NamedPart(SlowPlace(PartKind.NODE, "n00"), Measure.SEND, ())
COLLIDED = CollisionLoss(Measure.SEND, None, 0.4, 1e9, 9, 16, 4, 0)
USUAL = PairEnd(sent=BYTES, received=BYTES, congestion={"mlx5_0:1 rp_cnp_handled": 20})


def rounds(slow: PairEnd, others: PairEnd = USUAL, name: str = "n00") -> list[MeasuredRound]:
    """Three rounds of all, in which both ends of one member's runs have these counters."""
    made = [measured(n, around(NAMES, n), lambda *_: 0.0) for n in range(1, 4)]
    return [with_ends(one, {run: slow if name in run else others for run in one.round.pairs}) for one in made]


def with_ends(one: MeasuredRound, ends: Mapping[tuple[str, str], PairEnd]) -> MeasuredRound:
    return replace(one, runs=[
        replace(run, ends=dict.fromkeys((run.first, run.second), ends[run.first, run.second]))
        for run in one.runs
    ])  # fmt: skip


def told(some: Sequence[MeasuredRound], part: NamedPart = NODE) -> PartCounters | None:
    return next(counters_of([part], [], some, {}), None)


@each(
    ("end", "says", "counts"),
    [
        (USUAL, "nothing", (0, 0, 0)),
        (replace(USUAL, errors=SYMBOL), "wire", (3, 0, 0)),
        # What a full network drops says nothing of a wire.
        (replace(USUAL, errors=DROPPED), "nothing", (0, 0, 0)),
        (replace(USUAL, congestion=CNP), "full", (0, 3, 0)),
        (replace(USUAL, sent={"mlx5_0:1": 1_300_000}), "others", (0, 0, 3)),
        (replace(USUAL, sent={"mlx5_0:1": 1_300_000}, congestion=CNP), "others", (0, 3, 3)),
        (replace(USUAL, errors=SYMBOL, congestion=CNP), "mixed", (3, 3, 0)),
        # Twice the usual, and fewer than anybody counts, are no sign.
        (replace(USUAL, congestion={"mlx5_0:1 rp_cnp_handled": 40}), "nothing", (0, 0, 0)),
        (replace(USUAL, sent={"mlx5_0:1": 1_100_000}), "nothing", (0, 0, 0)),
    ],
)
def test_what_grew_beside_members_that_are_well(
    end: PairEnd, says: str, counts: tuple[int, int, int]
) -> None:
    found = told(rounds(end))
    assert found is not None
    assert (found.says, (found.wire, found.full, found.others), found.runs) == (says, counts, 3)
    assert found.kinds == (("rp_cnp_handled",) if found.full else ())


def test_marks_that_all_runs_have_are_no_sign_of_a_loaded_part() -> None:
    marked = replace(USUAL, congestion={"mlx5_0:1 rp_cnp_handled": 400})
    found = told(rounds(replace(USUAL, congestion=CNP), marked))
    assert found is not None
    assert found.says == "nothing"


def test_what_grew_in_some_runs_alone_is_said_as_that() -> None:
    one, *rest = rounds(USUAL)
    (first, *_) = rounds(replace(USUAL, congestion=CNP))
    found = told([first, *rest])
    assert one is not first
    assert found is not None
    assert (found.says, found.full) == ("mixed", 1)


def test_a_run_that_takes_longer_may_carry_more_of_what_always_comes() -> None:
    """A run at half the rate takes twice as long, and so much more of it is no sign of others."""
    for sent, says in ((1_900_000, "nothing"), (2_900_000, "others")):
        slow = rounds(replace(USUAL, sent={"mlx5_0:1": sent}, received={"mlx5_0:1": sent}))
        made = [
            replace(one, runs=[
                replace(run, sends=run.sends and run.sends / 2, receives=run.receives and run.receives / 2)
                if "n00" in {run.first, run.second} else run for run in one.runs
            ])
            for one in slow
        ]  # fmt: skip
        found = told(made)
        assert found is not None
        assert found.says == says, sent


def test_without_counters_or_without_members_that_are_well_nothing_is_said() -> None:
    assert told(rounds(PairEnd(), USUAL)) is None
    # An interface without counters of a full network cannot say that there was none.
    bare = replace(USUAL, congestion={})
    assert told(rounds(bare, bare)) is None
    assert told(rounds(USUAL, PairEnd())) is None
    alone = [measured(n, [("n00", name)], lambda *_: 0.0) for n, name in enumerate(NAMES[1:], start=1)]
    assert told([with_ends(one, {one.round.pairs[0]: USUAL}) for one in alone]) is None


def test_runs_alone_are_compared_with_runs_alone_where_there_are_enough() -> None:
    loud = replace(USUAL, congestion=CNP)
    shared = rounds(loud, loud)
    pairs = [("n00", "n01"), ("n02", "n03"), ("n04", "n05"), ("n00", "n06"), ("n06", "n07")]
    quiet = [
        with_ends(measured(n, [pair], lambda *_: 0.0, RoundPurpose.ALONE),
                  {pair: loud if "n00" in pair else USUAL})
        for n, pair in enumerate(pairs, start=4)
    ]  # fmt: skip
    found = told([*shared, *quiet])
    assert found is not None
    assert (found.says, found.runs) == ("full", 2)


@each(
    ("place", "counts"),
    [
        (SlowPlace(PartKind.PAIR, "n00", "n01"), lambda pair: {*pair} == {"n00", "n01"}),
        (SlowPlace(PartKind.NODE, "n00", rail="1"), lambda pair: "n00" in pair),
        (SlowPlace(PartKind.LEAF, "x", across=True), lambda pair: bool({*pair} & {"n00", "n01"})),
        (SlowPlace(PartKind.RAIL, "1", rail="1"), lambda _: False),
    ],
)  # fmt: skip
def test_whose_runs_count(place: SlowPlace, counts: Callable[[tuple[str, str]], bool]) -> None:
    pair = ("n00", "n01")
    some = [*rounds(USUAL), with_ends(measured(9, [pair], lambda *_: 0.0), {pair: USUAL})]
    part = NamedPart(place, Measure.SEND, ())
    found = next(counters_of([part], [], some, {"n00": "x", "n01": "x"}), None)
    assert (found.runs if found else 0) == sum(counts(one) for two in some for one in two.round.pairs)


def test_runs_that_collide_are_compared_with_runs_alone_of_their_kind() -> None:
    loud = replace(USUAL, congestion=CNP)
    quiet = [
        with_ends(measured(n, [pair], lambda *_: 0.0, RoundPurpose.ALONE), {pair: USUAL})
        for n, pair in enumerate([("n00", "n01"), ("n02", "n03")], start=4)
    ]
    (found,) = counters_of([], [COLLIDED], [*rounds(loud, loud), *quiet], {})
    assert (found.kind, found.says, found.runs) == (None, "full", 12)
    assert not list(counters_of([], [COLLIDED], rounds(loud, loud), {}))


def test_a_result_says_it_and_that_it_is_unproven() -> None:
    fleet = PairFleet(tuple(PairMember(name) for name in NAMES))
    lost = [measured(n, around(NAMES, n), lambda a, *_: 0.4 if a == "n00" else 0.0) for n in range(1, 4)]
    counted = rounds(replace(USUAL, congestion=CNP))
    made = [
        with_ends(one, {(run.first, run.second): next(iter(run.ends.values())) for run in two.runs})
        for one, two in zip(lost, counted, strict=True)
    ]  # fmt: skip
    found = pairs_document(rounds_document(1e9, fleet, made))
    (one,) = found.counters
    assert (one.name, one.says) == ("n00", "full")
    text = "\n".join(pairs_lines(found))
    assert "(unproven on hardware, they decide nothing)" in text
    assert "n00: the network was full: it is loaded, or a receiver drains slowly" in text
    assert "of 3 runs: wire errors in 0, a full network in 3 (rp_cnp_handled), bytes of others in 0" in text
