"""Rounds on an engine, from the first to a verdict, and what becomes of pairs that give no answer."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.fleet.rounds.playedengine import OPTIONS, PlayedEngine, PlayedView, answers
from tests.rows import each
from wirewatch_fleet.pairs.document import (
    ROUNDS,
    RoundsDocument,
    RoundsWork,
    measured_of,
    pairs_document,
    rounds_document,
)
from wirewatch_fleet.pairs.model import MeasuredRound, PairFleet, PairMember, PairRound, RoundPurpose
from wirewatch_fleet.rounds.campaign import order_of, run_rounds
from wirewatch_fleet.rounds.engine import PairNode, PairProgress, PairState, RoundEngineError

NODES = tuple(PairNode(f"n{number}", gpus=0) for number in range(16))
NOTHING = rounds_document(1e9, PairFleet(tuple(PairMember(one.name) for one in NODES)), (), seed=4)


def run(engine: PlayedEngine, made: RoundsDocument = NOTHING) -> tuple[RoundsDocument, PlayedView]:
    view = PlayedView(engine)
    return run_rounds(engine, made, OPTIONS, view), view


def test_a_node_that_sends_slowly_is_named_by_its_direction() -> None:
    made, view = run(PlayedEngine(NODES, slow={"n3": 5e9}))
    found = pairs_document(made)
    assert [(one.name, [loss.way for loss in one.losses]) for one in found.named] == [("n3", ["sends"])]
    assert found.named[0].losses[0].loss == pytest.approx(0.5)
    assert found.next is None
    assert view.kept[-1] == made
    assert [len(one.rounds) for one in view.kept] == list(range(1, len(made.rounds) + 1))


def test_nothing_slow_takes_three_rounds_and_names_no_node() -> None:
    made, _ = run(PlayedEngine(NODES))
    found = pairs_document(made)
    assert (found.health, found.rounds, found.named) == ("ok", 3, [])


def test_a_round_is_shown_when_it_begins_and_when_it_was_measured() -> None:
    """No pair is waited for once all have ended, and each is asked about five times a second till then."""
    engine = PlayedEngine(NODES, after=0.0)
    _, view = run(engine)
    assert view.shown == [f"{what} {number}" for number in (1, 2, 3) for what in ("began", "measured")]
    assert (engine.time, engine.cancels) == (0.0, 3)
    engine = PlayedEngine(NODES, after=0.5)
    run(engine)
    assert engine.time == pytest.approx(3 * 0.6)


def test_a_round_with_more_queue_pairs_tells_nccl_so_and_keeps_it() -> None:
    planned = PairRound(9, RoundPurpose.QUEUES, (("n0", "n1"),), queue_pairs=4)
    order = order_of(planned, OPTIONS)
    assert order.work.environment == {**OPTIONS.work.environment, "NCCL_IB_QPS_PER_CONNECTION": "4"}
    assert order_of(replace(planned, queue_pairs=0), OPTIONS).work == OPTIONS.work
    made = rounds_document(1e9, PairFleet((PairMember("n0"), PairMember("n1"))), [MeasuredRound(planned, ())])
    assert measured_of(made)[0].round == planned


@each(
    ("engine", "environment", "tried"),
    [
        ("distributed", {}, 4), ("distributed", {"NCCL_IB_QPS_PER_CONNECTION": "8"}, 32),
        ("distributed", {"NCCL_IB_QPS_PER_CONNECTION": "64"}, 128),
        ("distributed", {"NCCL_IB_QPS_PER_CONNECTION": "many"}, 0), ("gloo", {}, 0),
    ],
)  # fmt: skip
def test_queue_pairs_are_tried_where_there_are_any(
    engine: str, environment: dict[str, str], tried: int
) -> None:
    assert RoundsWork(engine, 8, 1 << 20, environment).more_queue_pairs == tried


def test_nothing_begins_once_it_is_ended() -> None:
    engine = PlayedEngine(NODES)
    view = PlayedView(engine, until=lambda _: True)
    assert run_rounds(engine, NOTHING, OPTIONS, view) == NOTHING
    assert not engine.orders


class _Timed(PlayedEngine):
    """Pairs with n0 wait until `admitted`, and answer `after` seconds after that; those with n1 at `late`."""

    admitted, late = 0.0, 0.0

    def _one(self, first: str, second: str) -> PairProgress:
        since = self.time - self._since
        if "n0" in {first, second} and since < self.admitted:
            return PairProgress(first, second, PairState.WAITING)
        after = self.admitted + self.after if "n0" in {first, second} else self.after
        if since < (self.late if "n1" in {first, second} else after):
            return PairProgress(first, second, PairState.RUNNING)
        told = answers(first, second)
        return PairProgress(first, second, PairState.DONE, told)


@pytest.mark.parametrize(
    ("admitted", "late", "failed"),
    [
        (50.0, 2.0, {}),
        (61.0, 2.0, {"n0": "not admitted within 60 s: no reason given"}),
        (50.0, 40.0, {"n1": "no answer within 30 s"}),
    ],
    ids=["long after the round began", "never", "after it was given up"],
)
def test_a_pair_has_its_time_from_when_it_was_admitted(
    admitted: float, late: float, failed: dict[str, str]
) -> None:
    engine = _Timed(NODES, after=25.0)
    engine.admitted, engine.late = admitted, late
    one_round = replace(OPTIONS, limits=replace(OPTIONS.limits, first=1, most=1))
    made = run_rounds(engine, NOTHING, one_round, PlayedView(engine))
    runs = made.rounds[0].runs
    for name in ("n0", "n1"):
        told = {run.failed for run in runs if name in {run.first, run.second}}
        assert told == {failed.get(name, "")}


def test_what_was_measured_is_kept_when_its_end_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = PlayedEngine(NODES)
    view = PlayedView(engine)

    def failed() -> None:
        raise RoundEngineError("no answer in time")

    monkeypatch.setattr(engine, "cancel", failed)
    with pytest.raises(RoundEngineError, match="no answer in time"):
        run_rounds(engine, NOTHING, OPTIONS, view)
    assert [len(one.rounds) for one in view.kept] == [1]
    assert all(run.answered for run in measured_of(view.kept[0])[0].runs)


def test_it_goes_on_from_what_is_kept_as_if_it_had_never_ended() -> None:
    whole, view = run(PlayedEngine(NODES, slow={"n3": 5e9}))
    kept = ROUNDS.validate_json(ROUNDS.dump_json(view.kept[0]))
    assert run(PlayedEngine(NODES, slow={"n3": 5e9}), kept)[0] == whole


def test_one_that_is_never_admitted_is_given_up_with_the_reason() -> None:
    engine = PlayedEngine(NODES, stuck={"n7": (PairState.WAITING, "Priority")})
    made, _ = run(engine)
    failed = {one.failed for round_ in made.rounds for one in round_.runs if "n7" in {one.first, one.second}}
    assert failed == {"not admitted within 60 s: Priority"}
    assert not engine.left
    assert pairs_document(made).silent == ["n7"]
    assert pairs_document(made).health == "unknown"


@pytest.mark.parametrize(
    ("state", "said", "failed"),
    [
        (PairState.RUNNING, "", "no answer within 30 s"),
        (PairState.FAILED, "NODE_FAIL", "NODE_FAIL"),
        (PairState.FAILED, "", "no answer"),
        (PairState.DONE, "srun: error: n7: Killed\n", "neither node answered: srun: error: n7: Killed"),
    ],
)
def test_a_pair_without_an_answer_is_a_failed_run(state: PairState, said: str, failed: str) -> None:
    made, _ = run(PlayedEngine(NODES, stuck={"n7": (state, said)}))
    assert {
        one.failed for round_ in made.rounds for one in round_.runs if "n7" in {one.first, one.second}
    } == {failed}


def test_with_half_of_the_answers_missing_a_slow_node_is_named_and_what_is_open_is_said() -> None:
    silent = {f"n{number}": (PairState.FAILED, "NODE_FAIL") for number in range(8, 14)}
    made, _ = run(PlayedEngine(NODES, slow={"n3": 4e9}, stuck=silent))
    found = pairs_document(made)
    asked = [run for one in made.rounds[:3] for run in one.runs]
    assert sum(bool(run.failed) for run in asked) >= len(asked) / 2
    assert [one.name for one in found.named] == ["n3"]
    assert found.silent == list(silent)
    assert found.health == "failed"


def test_after_a_round_without_any_answer_none_follows() -> None:
    engine = PlayedEngine(NODES, stuck={one.name: (PairState.WAITING, "down") for one in NODES})
    made, _ = run(engine)
    assert len(engine.orders) == len(made.rounds) == 1
    assert pairs_document(made).health == "unknown"


def test_when_it_is_ended_its_jobs_are_cancelled_and_the_round_is_run_again_later() -> None:
    engine = PlayedEngine(NODES, slow={"n3": 5e9})
    view = PlayedView(engine, until=lambda one: len(one.orders) == 2 and one.time > 3)
    made = run_rounds(engine, NOTHING, OPTIONS, view)
    assert (len(made.rounds), len(engine.orders), engine.left) == (1, 2, set())
    assert view.kept == [made]
    again = PlayedEngine(NODES, slow={"n3": 5e9})
    assert run(again, made)[0] == run(PlayedEngine(NODES, slow={"n3": 5e9}))[0]
    assert again.orders[0].pairs == engine.orders[1].pairs


def test_busy_nodes_are_in_no_pair() -> None:
    nodes = (replace(NODES[0], busy="allocated"), *NODES[1:])
    engine = PlayedEngine(nodes)
    made, _ = run(engine)
    assert not any("n0" in pair for order in engine.orders for pair in order.pairs)
    assert pairs_document(made).thin == ["n0"]


class _Refusing(PlayedEngine):
    def poll(self) -> Sequence[PairProgress]:
        raise RoundEngineError("the controller does not answer")


def test_an_engine_that_fails_leaves_nothing_running() -> None:
    engine = _Refusing(NODES)
    with pytest.raises(RoundEngineError, match="does not answer"):
        run_rounds(engine, NOTHING, OPTIONS, PlayedView(engine))
    assert (engine.cancels, engine.left) == (1, set())
