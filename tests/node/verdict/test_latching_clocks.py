"""Wall clocks that are set, by an hour or a year, at any point of a history: no event depends on it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.node.collectors.drawn import Gpus, Watched
from tests.node.verdict.drawn import EPOCH, D, Drawn, F
from tests.rows import each
from tests.support import StillClock
from wirewatch.core.collector import Component, NodeState
from wirewatch.core.types import Health, OperatorNote, Subject
from wirewatch.daemon.persistence import read_ledger, save_ledger
from wirewatch.verdict.latching import step
from wirewatch.verdict.ledger import Ledger, Now, Stage, Suppression, VerdictPolicy
from wirewatch.verdict.node import Standing, judge_node
from wirewatch.verdict.orders import repaired

HOUR, DAY = 3600.0, 86400.0
YEAR = 365 * DAY
XID, MILD, DOWN = "xid.79", "xid.94", "nvlink.link_down"
STEPS = st.tuples(st.just("set"), st.sampled_from([HOUR, -HOUR, YEAR, -YEAR, 601.0, -601.0]))
LOOKS = st.tuples(st.just("look"), st.sampled_from([5.0, 15.0, 60.0, HOUR]))
RESTARTS = st.tuples(st.just("restart"), st.just(0.0))
REBOOTS = st.tuples(st.just("reboot"), st.just(0.0))
History = list[tuple[str, float]]
SAME_BOOT: st.SearchStrategy[History] = st.lists(st.one_of(STEPS, LOOKS, RESTARTS), max_size=12)
ANY_BOOT: st.SearchStrategy[History] = st.lists(st.one_of(STEPS, LOOKS, RESTARTS, REBOOTS), max_size=12)


class Skewed(Drawn):
    """A drawn node whose wall clock is set now and then; `wrong` by how many seconds."""

    wrong = 0.0

    def set(self, seconds: float) -> None:
        self.at += seconds
        self.wrong += seconds

    def play(self, history: History) -> None:
        for kind, seconds in history:
            if kind == "set":
                self.set(seconds)
            elif kind == "look":
                self.look(seconds)
            elif kind == "restart":
                self.restart()
                self.retell()
                self.look()
            else:
                self.reboot(f"{self.boot}+")

    def retell(self) -> None:
        """After a start the collector makes the Unix times of events again, of the log's own clock."""
        for key, told in self.found.items():
            if told.last:
                at = self.at - (self.mono - told.stamp)
                self.found[key] = replace(told, since=at, last=at)


def mended(rule: str, health: Health, acks: int) -> Skewed:
    node = Skewed()
    node.look()
    node.event(rule, node.gpu(), health)
    node.look()
    for _ in range(acks):
        node.repaired(rule, node.gpu())
    return node


@settings(max_examples=examples(60))
@given(SAME_BOOT, st.integers(1, 2))
@example([("set", HOUR), ("restart", 0.0)], 2)
@example([("set", -YEAR), ("restart", 0.0), ("look", 5.0)], 1)
def test_an_repaired_event_stays_so_whatever_the_clock_says(history: History, acks: int) -> None:
    """Before, an XID whose time a start made an hour later was a new one, and FAILED."""
    node = mended(XID, F, acks)
    for op in history:
        node.play([op])
        assert node.look(seconds=0.0).health < F
    mild = mended(MILD, D, 1)
    mild.play(history)
    assert mild.look().health is Health.OK


@settings(max_examples=examples(60))
@given(SAME_BOOT, SAME_BOOT, st.integers(1, 2))
@example([("set", -HOUR)], [("restart", 0.0)], 2)
def test_a_new_event_is_never_repaired_whatever_the_clock_says(
    before: History, after: History, acks: int
) -> None:
    """Before, one that came while the clock was set back was older than the acknowledgement, and over."""
    node = mended(XID, F, acks)
    node.play(before)
    node.event(XID, node.gpu())
    for op in after:
        node.play([op])
        assert node.look(seconds=0.0).health is F
    assert node.look().health is F


@settings(max_examples=examples(60))
@given(SAME_BOOT)
def test_an_event_that_is_followed_by_no_reset_is_failed_whatever_the_clock_says(history: History) -> None:
    node = Skewed()
    node.event(XID, node.gpu())
    node.look()
    for op in history:
        node.play([op])
        assert node.look(seconds=0.0).health is F


@settings(max_examples=examples(80))
@given(ANY_BOOT, st.sampled_from([HOUR, DAY, 30 * DAY]))
@example([("set", YEAR), ("look", HOUR), ("set", -YEAR)], DAY)
@example([("reboot", 0.0), ("set", YEAR), ("look", HOUR), ("restart", 0.0), ("set", -YEAR)], DAY)
def test_no_clock_ends_a_suppression_for_good_or_makes_it_last(history: History, seconds: float) -> None:
    """Before, one jump forward dropped every suppression."""
    node = Skewed(plain=("nvlink.*",))
    node.find(DOWN, node.gpu())
    node.look()
    node.suppress(DOWN, node.gpu(), seconds)
    until = node.at + seconds
    node.play(history)
    node.set(-node.wrong)
    node.look()
    assert (node.health is Health.OK) == (node.at < until)
    node.look(seconds=max(0.0, until - node.at) + 1.0)
    assert node.health is F
    assert node.ledger.suppressions == {}


@settings(max_examples=examples(60))
@given(SAME_BOOT, st.sampled_from([HOUR, DAY]))
def test_in_the_boot_in_which_it_was_given_a_suppression_lasts_as_long_as_was_said(
    history: History, seconds: float
) -> None:
    node = Skewed()
    node.find(DOWN, node.gpu())
    node.look()
    node.suppress(DOWN, node.gpu(), seconds)
    given_at = node.mono
    for op in history:
        node.play([op])
        node.look(seconds=0.0)
        assert (node.health is Health.OK) == (node.mono - given_at < seconds)


def test_a_suppression_that_is_over_by_a_wrong_clock_is_kept_over_restarts_and_can_be_given_again(
    tmp_path: Path,
) -> None:
    node = Skewed(tmp_path)
    node.find(DOWN, node.gpu())
    node.look()
    node.suppress(DOWN, node.gpu(), DAY)
    node.reboot()
    node.set(YEAR)
    assert node.look().health is F
    assert (len(node.ledger.suppressions), len(node.ledger.ended)) == (0, 1)
    node.restart()
    assert node.look().health is F
    node.set(-YEAR)
    assert node.look().health is Health.OK
    node.set(YEAR)
    node.look()
    node.suppress(DOWN, node.gpu(), HOUR)
    assert (len(node.ledger.suppressions), len(node.ledger.ended)) == (1, 0)


GIVEN = Suppression(
    DOWN, Subject(), D, EPOCH + HOUR, OperatorNote("ann", "a part", EPOCH), "boot-1", 1000.0, unbroken=True
)
OVER = {"until": EPOCH - 1.0, "said": OperatorNote("ann", "a part", EPOCH - 1.0 - HOUR)}
LONG = {"until": EPOCH + YEAR, "said": OperatorNote("ann", "a part", EPOCH + YEAR - HOUR)}
BY_DATE = {"mono": None, "unbroken": False}
OTHER_BOOT = {"boot": "boot-0", "mono": 5.0}


@each(
    ("why", "change", "seconds", "holds"),
    [
        ("given in this boot", {}, HOUR - 1.0, True),
        ("given in this boot, and over", {}, HOUR, False),
        ("given in this boot, over by the clock alone", OVER, 0.0, True),
        ("given in this boot, not over by the clock alone", LONG, HOUR, False),
        ("known in this boot, over by the clock", {"unbroken": False, **OVER}, 0.0, False),
        ("known in this boot, not over by the clock alone", {"unbroken": False, **LONG}, HOUR, False),
        ("without the second of the order", BY_DATE, HOUR - 1.0, True),
        ("without the second of the order, over by the clock", {**BY_DATE, **OVER}, 0.0, False),
        ("given in another boot", OTHER_BOOT, HOUR - 1.0, True),
        ("given in another boot, over by the clock", {**OTHER_BOOT, **OVER}, 0.0, False),
    ],
)  # fmt: skip
def test_which_suppression_holds(why: str, change: dict[str, object], seconds: float, *, holds: bool) -> None:
    ledger = Ledger("boot-1", suppressions={GIVEN.key: replace(GIVEN, **change)})  # type: ignore[arg-type]
    now = Now(EPOCH + seconds, 1000.0 + seconds)
    assert bool(step(ledger, NodeState({}), now, VerdictPolicy()).suppressions) is holds, why


# Files of wirewatch 0.1, which have no stamps


def aged(path: Path) -> None:
    """The file as 0.1 wrote it."""
    told = json.loads(path.read_text())
    for entry in told["entries"]:
        del entry["stamp"], entry["newest"]
    for one in told["suppressions"]:
        del one["boot"], one["mono"], one["unbroken"]
    del told["ended"]
    path.write_text(json.dumps(told))


@pytest.mark.parametrize("drift", [0.0, 30.0, -30.0])
def test_a_file_of_0_1_is_read_and_its_acknowledgements_and_suppressions_hold(
    tmp_path: Path, drift: float
) -> None:
    node = Skewed(tmp_path)
    node.event(XID, node.gpu())
    node.find(DOWN, node.gpu("GPU-b"))
    node.look(times=4)
    node.repaired(XID, node.gpu())
    node.suppress(DOWN, node.gpu("GPU-b"), DAY)
    before, path = node.health, tmp_path / "latches.json"
    node.restart()
    aged(path)
    node.ledger = read_ledger(path, node.boot, node.at, own=True)
    assert {one.stamp for one in node.ledger.entries.values()} == {None}
    told = node.found[XID, node.gpu()]
    node.find(XID, node.gpu(), F, last=told.last + drift)
    assert node.look().health is before is D
    node.event(XID, node.gpu())
    assert node.look().health is F


def test_where_no_boot_is_known_the_time_decides_as_in_0_1(tmp_path: Path) -> None:
    node = Skewed(tmp_path)
    node.boot = ""
    node.ledger = Ledger("")
    node.event(XID, node.gpu())
    node.look()
    node.repaired(XID, node.gpu())
    node.restart()
    assert node.look().health is D
    node.clear(XID, node.gpu())
    node.mono = 5.0  # another boot, perhaps: a lower stamp is no proof that the event is known
    node.restart()
    node.event(XID, node.gpu())
    assert node.look().health is F


# The collector, the ledger and its file together


class SetClock(StillClock):
    """A clock that is wrong by so many seconds."""

    wrong = 0.0

    def now(self) -> float:
        return super().now() + self.wrong


class Logged:
    """The collector of XIDs and the ledger over one kernel log; a start reads the whole log again."""

    def __init__(self, path: Path) -> None:
        self.path, self.clock = path, SetClock()
        self.ledger, self.lines = Ledger("boot-1"), [""]
        self.start()

    def start(self) -> None:
        save_ledger(self.path, self.ledger, self.clock.now())
        self.ledger = read_ledger(self.path, "boot-1", self.clock.now(), own=True)
        self.watched = Watched("xid", gpus=Gpus(("0000:05:00.0",)))
        self.watched.log.lines, self.watched.log.step = self.lines, 60.0
        self.watched.hardware = replace(self.watched.hardware, clock=self.clock)
        self.watched.host.told["BootTime"] = self.clock.now() - self.clock.mono()
        self.state = NodeState({"inventory": Component("inventory", None)})

    def fault(self) -> None:
        self.clock.seconds = max(self.clock.seconds, len(self.lines) * 60.0)
        self.lines.append("NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus.")

    def look(self) -> Standing:
        self.watched.poll(every=0.0)
        self.clock.seconds += 5.0
        self.state = self.state.with_component(self.watched.component)
        self.ledger = step(self.ledger, self.state, self._now(), VerdictPolicy())
        found = judge_node(self.state, self.ledger).standings
        return next(one for one in found if one.finding.rule == XID)

    def repaired(self) -> None:
        said = OperatorNote("ann", "reset", self.clock.now())
        self.ledger = repaired(self.ledger, self.look(), said, self.clock.mono())

    def _now(self) -> Now:
        return Now(self.clock.now(), self.clock.mono())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clocks")


@settings(max_examples=examples(30))
@given(st.lists(st.sampled_from([HOUR, -HOUR, YEAR, -YEAR, 0.0]), min_size=1, max_size=5), st.booleans())
def test_what_the_log_said_is_known_again_by_its_own_clock(
    folder: Path,
    steps: list[float],
    faulty: bool,  # noqa: FBT001 - drawn
) -> None:
    node = Logged(folder / "latches.json")
    node.fault()
    node.repaired()
    assert node.look().finding.health is D
    for seconds in steps:
        node.clock.wrong += seconds
        node.start()
        assert node.look().finding.health is D
    assert {one.stage for one in node.ledger.entries.values()} == {Stage.PROBATION}
    if faulty:
        node.fault()
    for seconds in steps:
        assert node.look().finding.health is (F if faulty else D)
        node.clock.wrong -= seconds
        node.start()
