"""A poll of our own over collectors made for the purpose: what hangs, what raises, what is seen again."""

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.node.cli.checks import noted
from tests.node.collectors.drawn import Watched
from tests.node.probe.nicnode import NicNode, Way
from tests.patience import HANGS
from tests.rows import each
from wirewatch.cli.check import polling
from wirewatch.cli.check.answer import HEALTHS, Grounds, Terms, decide
from wirewatch.cli.check.command import Work
from wirewatch.cli.check.polling import (
    PAUSE,
    CheckedNode,
    NodeSource,
    PlayedPoll,
    Poll,
    lasting,
    paced,
    played,
    polls_needed,
    quiet,
)
from wirewatch.core.collector import AnyCollector, Collector, Component, NoPolicy, Options
from wirewatch.core.types import Absent, Expect, Finding, Health, Ok, Subject, Why
from wirewatch.daemon.baselines import LoadedBaseline
from wirewatch.documents.health import ProbeStatus
from wirewatch.hw.play import PlayOverdue
from wirewatch.probe.collector import PROBE_NAME
from wirewatch.probe.gate import SkipReason
from wirewatch.probe.history import History, HistoryLimits
from wirewatch.probe.model import NicsOptions, ProbeMemory, ProbeOptions, ProbePolicy
from wirewatch.probe.nics import nics_collector
from wirewatch.statefolder import StateFolder
from wirewatch.verdict.drift.component import DriftOptions
from wirewatch.verdict.drift.watch import DriftPolicy
from wirewatch.verdict.ledger import Entry, Ledger, Stage, VerdictPolicy
from wirewatch.verdict.pairs import NOTHING_HELD

Read = Callable[[], Health | Absent]


@dataclass(frozen=True, slots=True)
class Often(NoPolicy):
    """`confirm`: as many looks as that make it FAILED."""

    confirm: int = 1


def collector(name: str, read: Read, confirm: int = 1) -> AnyCollector:
    """One whose reading is what it finds; FAILED only when it was seen so often."""

    def judge(seen: int, ok: Ok[Health], policy: Often, _expect: Expect) -> tuple[int, tuple[Finding, ...]]:
        if ok.value is Health.OK:
            return 0, ()
        believed = ok.value if seen + 1 >= policy.confirm else min(ok.value, Health.DEGRADED)
        return seen + 1, (Finding(f"{name}.bad", believed, Subject(), f"seen {seen + 1} times", "look"),)

    return Collector(
        name=name, about="a test", lane="nvml", options=Options(), policy=Often(confirm), metrics=(), start=0,
        read=lambda _hardware, _memory, _options: read(), samples=lambda _reading, _memory: (), judge=judge,
        applicable=lambda _reading: True,
    )  # fmt: skip


def good() -> Health:
    return Health.OK


def bad() -> Health:
    return Health.FAILED


def look_at(
    collectors: Sequence[AnyCollector], recall: Callable[[], Component] | None = None,
    policy: VerdictPolicy | None = None, ledger: Ledger | None = None,
) -> Poll:  # fmt: skip
    # The inventory is asked whether there is but one GPU.
    here = collector("inventory", good)
    hardware = Watched("xid").hardware
    return Poll(
        (here, *collectors), hardware, Expect(), policy or VerdictPolicy(), ledger or Ledger(), recall
    )


def looked(*collectors: AnyCollector, seconds: float = HANGS) -> Grounds:
    look = look_at(collectors)
    look.run(time.monotonic() + seconds)
    return look.grounds("")


def interrupted(look: Poll, seconds: float) -> Grounds:
    """What is known when the time is up, as the command comes by it."""
    work = Work(lambda: look.run(time.monotonic() + seconds), lambda: None)
    with pytest.raises(TimeoutError):
        work.outcome(seconds)
    return look.grounds("")


def rules(grounds: Grounds) -> dict[str, Health]:
    return {finding.rule: HEALTHS[finding.health] for finding in grounds.findings}


def test_nothing_wrong_is_seen_once() -> None:
    read: list[int] = []

    def reading() -> Health:
        read.append(1)
        return Health.OK

    grounds = looked(collector("one", reading, confirm=5))
    assert (grounds.health, grounds.findings, grounds.source, len(read)) == (Health.OK, (), "own", 1)


def test_what_is_wrong_is_seen_as_often_as_it_takes_and_the_rest_but_once() -> None:
    read: list[int] = []

    def reading() -> Health:
        read.append(1)
        return Health.OK

    began = time.monotonic()
    grounds = looked(collector("ill", bad, confirm=3), collector("well", reading))
    assert (grounds.health, rules(grounds), len(read)) == (Health.FAILED, {"ill.bad": Health.FAILED}, 1)
    assert grounds.findings[0].evidence == "seen 3 times"
    assert time.monotonic() - began >= 2 * PAUSE


def test_what_is_over_at_a_second_look_fails_nothing() -> None:
    """It is told all the same, as the daemon tells it, for what it was."""
    found = iter((Health.FAILED, Health.OK))
    grounds = looked(collector("hitch", lambda: next(found), confirm=2))
    assert grounds.health <= Health.DEGRADED


def test_there_is_no_second_look_without_time_for_it() -> None:
    grounds = looked(collector("ill", bad, confirm=3), seconds=PAUSE / 2)
    assert rules(grounds) == {"ill.bad": Health.DEGRADED}


@pytest.mark.parametrize(
    ("took", "left", "slept"), [(0.0, 9.0, 2), (0.0, 0.9, 2), (0.0, 0.7, 1), (0.3, 0.9, 0), (0.3, 9.0, 2)]
)
def test_another_look_follows_after_a_hitch_where_there_is_time_for_it(
    monkeypatch: pytest.MonkeyPatch, took: float, left: float, slept: int
) -> None:
    """A look takes as long as the one before it, by a clock that only sleeps and looks move."""
    clock, noted_ = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        noted_.append(seconds)
        clock[0] += seconds

    def reading() -> Health:
        clock[0] += took
        return Health.FAILED

    monkeypatch.setattr(polling, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=sleep))
    look_at([collector("ill", reading, confirm=3)]).run(left)
    assert noted_ == [0.4] * slept


def test_a_recording_is_played_for_two_minutes_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    node = SimpleNamespace(
        poll=lambda _: SimpleNamespace(run=done.append), stop=lambda: done.append("stopped")
    )
    monkeypatch.setattr(polling, "CheckedNode", lambda source, keep: noted(done, (source, keep), node))
    before = time.monotonic()
    played(NodeSource(replay="r"))
    (opened, end, stopped) = done
    assert before <= end - 120.0 <= time.monotonic()
    assert (opened, stopped) == ((NodeSource(replay="r"), False), "stopped")


def test_what_hangs_is_not_known_and_hides_nothing() -> None:
    release = threading.Event()

    def hanging() -> Health:
        release.wait()
        return Health.OK

    look = look_at([collector("ill", bad), collector("hung", hanging), collector("well", good)])
    grounds = interrupted(look, 0.5)
    release.set()
    assert rules(grounds) == {"ill.bad": Health.FAILED, "hung.blind": Health.UNKNOWN}
    assert grounds.health is Health.FAILED
    assert decide(grounds, Terms(), 0.0).code == 2


def test_what_hangs_at_a_second_look_was_seen_at_the_first() -> None:
    release, first = threading.Event(), iter((False,))

    def reading() -> Health:
        if next(first, True):
            release.wait()
        return Health.FAILED

    look = look_at([collector("ill", reading, confirm=2)])
    grounds = interrupted(look, PAUSE + 0.5)
    release.set()
    assert rules(grounds) == {"ill.bad": Health.DEGRADED}


def test_what_raises_or_cannot_be_read_is_not_known_and_sinks_nothing() -> None:
    def raising() -> Health:
        raise RuntimeError("a bug")

    denied = Absent(Why.DENIED, "no permission")
    grounds = looked(collector("bug", raising), collector("blind", lambda: denied), collector("ill", bad))
    assert rules(grounds) == {
        "ill.bad": Health.FAILED, "bug.blind": Health.UNKNOWN, "blind.blind": Health.UNKNOWN,
    }  # fmt: skip


def test_a_history_that_raises_or_hangs_is_not_known() -> None:
    def raising() -> Component:
        raise RuntimeError("a bug")

    look = look_at([collector("well", good)], raising)
    look.run(time.monotonic() + HANGS)
    assert rules(look.grounds("")) == {f"{PROBE_NAME}.blind": Health.UNKNOWN}
    release = threading.Event()

    def hanging() -> Component:
        release.wait()
        return Component(PROBE_NAME, ProbeMemory())

    grounds = interrupted(look_at([collector("well", good)], hanging), 0.4)
    release.set()
    assert (rules(grounds), grounds.health) == ({f"{PROBE_NAME}.blind": Health.UNKNOWN}, Health.UNKNOWN)


def never() -> Component:
    return Component(PROBE_NAME, ProbeMemory(), Ok(None, 0.0, 0.0))


def test_a_fresh_probe_is_required_where_probing_is_on() -> None:
    wanted = VerdictPolicy(require_fresh_probe=True)
    on, off = (
        look_at([collector("well", good)], never, wanted),
        look_at([collector("well", good)], None, wanted),
    )
    for look in (on, off):
        look.run(time.monotonic() + HANGS)
    assert (on.grounds("").required, on.grounds("").probe is None) == (True, False)
    # Switched off is not "nothing can be probed": no job starts.
    probe = ProbeStatus(0.0, None, fresh=False, required=True)
    assert (off.grounds("").required, off.grounds("").probe, off.grounds("").exempt) == (True, probe, False)
    assert decide(off.grounds(""), Terms(), 0.0).code == 3


def test_what_is_remembered_of_faults_counts() -> None:
    entry = Entry(
        "xid.79", Subject(uuid="GPU-1"), "well", Health.FAILED, Stage.LATCHED, "fell off the bus", "reboot",
        100.0, 100.0,
    )  # fmt: skip
    look = look_at([collector("well", good)], ledger=Ledger().with_entry(entry))
    look.run(time.monotonic() + HANGS)
    (found,) = look.grounds("").findings
    assert (found.rule, found.stage, found.health, len(found.id)) == ("xid.79", "latched", "failed", 8)


def test_who_has_no_policy_is_looked_at_once() -> None:
    assert polls_needed(collector("one", good, confirm=4)) == 4
    assert polls_needed(replace(collector("one", good), policy=NoPolicy())) == 1


def test_a_play_is_quiet_and_leaves_the_levels_of_loggers_as_they_were() -> None:
    logger = logging.getLogger("wirewatch.probe.history")
    before = logger.getEffectiveLevel()
    with quiet():
        assert not logger.isEnabledFor(logging.INFO)
    assert logger.getEffectiveLevel() == before


@pytest.mark.parametrize(("interval", "seconds"), [(0.05, 5.0), (5.0, 5.0), (60.0, 60.0)])
def test_a_play_of_minutes_is_not_polled_at_each_part_of_a_second(interval: float, seconds: float) -> None:
    assert paced(replace(collector("one", good), options=Options(interval=interval))) == seconds


# --- a play


def playing(seconds: float = 400.0, steady: float = 0.0, stopped: Sequence[str] = ()) -> Any:
    """A play that is so old, with nothing in it."""
    play: Any = PlayedPoll.__new__(PlayedPoll)
    play._play = SimpleNamespace(seconds=lambda: seconds, mono_at=lambda at: at)  # noqa: SLF001
    play._steady, play._stopped, play._board, play._recall = steady, set(stopped), None, None  # noqa: SLF001
    return play


def remembering(
    refusal: SkipReason | None = None,
    tried: float | None = None,
    failures: int = 0,
    *,
    confirms: bool = False,
) -> Any:
    refused = None if refusal is None else SimpleNamespace(reason=refusal)
    return SimpleNamespace(refusal=refused, tried_mono=tried, failures=failures, confirms=confirms)


PROBING: Any = SimpleNamespace(lane="probe", policy=SimpleNamespace(failures=3))


@pytest.mark.parametrize(
    ("memory", "stopped", "probed"),
    [
        (remembering(), (), False),
        (remembering(), ("probe",), True),
        (remembering(), ("nvml",), False),
        (remembering(SkipReason.BUSY), (), True),
        (remembering(SkipReason.SETTLING), (), False),
        (remembering(SkipReason.BUDGET), (), False),
        (remembering(SkipReason.LOCKED), (), False),
        (remembering(tried=100.0), (), True),
        (remembering(tried=99.0), (), False),
        (remembering(tried=100.0, failures=1), (), False),
        (remembering(tried=100.0, failures=2), (), False),
        (remembering(tried=100.0, failures=3), (), True),
        (remembering(tried=100.0, confirms=True), (), False),
        (remembering(SkipReason.SETTLING, tried=100.0), (), True),
    ],
)
def test_a_play_waits_for_a_probe_that_shows_something(
    monkeypatch: pytest.MonkeyPatch, memory: Any, stopped: Sequence[str], *, probed: bool
) -> None:
    """One from before the last change shows nothing of it."""
    monkeypatch.setattr(polling, "confirming", lambda memory: memory.confirms)
    assert playing(steady=100.0, stopped=stopped)._is_probed(memory, PROBING) is probed  # noqa: SLF001


@each(
    ("memory", "seconds", "settled"),
    [
        (0, 299.0, False), (0, 300.0, True), (ProbeMemory(), 300.0, False),
        (ProbeMemory(tried_mono=50.0), 300.0, True), (ProbeMemory(), 3600.0, False),
        (ProbeMemory(), 3600.1, True), (ProbeMemory(tried_mono=50.0), 299.0, False),
    ],
)  # fmt: skip
def test_a_collector_is_settled_when_its_fault_has_lasted(
    memory: Any, seconds: float, *, settled: bool
) -> None:
    play = playing(seconds + 50.0, 50.0)
    component = SimpleNamespace(memory=memory)
    play._board = SimpleNamespace(state=SimpleNamespace(components={"one": component}))  # noqa: SLF001
    one = replace(collector("one", good), policy=NoPolicy())
    object.__setattr__(one, "policy", SimpleNamespace(failures=3, confirm=1))
    assert play._settled(one) is settled  # noqa: SLF001


@pytest.mark.parametrize(
    ("interval", "succeeding", "seconds"),
    [(60.0, True, 60.0), (60.0, False, 15.0), (1.0, True, 5.0), (1.0, False, 5.0)],
)
def test_what_fails_is_read_again_soon(interval: float, seconds: float, *, succeeding: bool) -> None:
    play = playing()
    play._board = SimpleNamespace(  # noqa: SLF001
        state=SimpleNamespace(components={"one": SimpleNamespace(succeeding=succeeding)})
    )
    one = replace(collector("one", good), options=Options(interval=interval))
    assert play._interval(one) == seconds  # noqa: SLF001


@dataclass(frozen=True, slots=True)
class Detailed(Options):
    """`detail` is read less often, where it is read."""

    detail: bool = True
    detail_interval: float = 500.0


@each(
    ("options", "confirm", "seconds"),
    [
        (Options(interval=60.0), 1, 300.0),
        (Options(interval=200.0), 1, 400.0),
        (Options(interval=60.0), 9, 600.0),
        (Options(interval=0.1), 99, 500.0),
        (Detailed(interval=60.0), 1, 1000.0),
        (Detailed(interval=60.0, detail=False), 1, 300.0),
    ],
)
def test_a_play_lasts_until_the_slowest_has_confirmed(options: Options, confirm: int, seconds: float) -> None:
    assert lasting(replace(collector("one", good, confirm), options=options)) == seconds


def test_polls_that_are_no_number_are_one() -> None:
    one = replace(collector("one", good), policy=NoPolicy())
    object.__setattr__(one, "policy", SimpleNamespace(confirm="often"))
    assert polls_needed(one) == 1


@each(
    ("recall", "last", "kept", "published"),
    [
        (True, None, "probe", True), (True, None, "finding", True), (True, None, "", False),
        (True, "probe", "probe", False), (False, None, "probe", False), (True, "missing", "probe", False),
    ],
)  # fmt: skip
def test_the_history_counts_where_no_probe_was_played(
    last: str | None, kept: str, *, recall: bool, published: bool
) -> None:
    play, noted_ = playing(), list[Any]()
    done: Any = object()
    own = Component(PROBE_NAME, ProbeMemory(last=done if last == "probe" else None))
    found = Finding("probe.busbw", Health.FAILED, Subject(), "slow", "look")
    known = Component(
        PROBE_NAME,
        ProbeMemory(last=done if kept == "probe" else None),
        findings=(found,) * (kept == "finding"),
    )
    play._recall = (lambda: known) if recall else None  # noqa: SLF001
    components = {} if last == "missing" else {PROBE_NAME: own}
    play._board = SimpleNamespace(state=SimpleNamespace(components=components), publish=noted_.append)  # noqa: SLF001
    play._hardware = SimpleNamespace(clock=None)  # noqa: SLF001
    play._recall_kept()  # noqa: SLF001
    assert noted_ == ([known] if published else [])


@pytest.mark.parametrize(("hangs", "overdue"), [(False, None), (True, None), (True, 3.0)])
def test_a_lane_that_hangs_in_a_play_reads_nothing_more(
    monkeypatch: pytest.MonkeyPatch, overdue: float | None, *, hangs: bool
) -> None:
    published: list[Any] = []
    monkeypatch.setattr(polling, "overdue", lambda _component, at, deadline: ("late", at, deadline))

    @contextmanager
    def within(_seconds: float) -> Iterator[None]:
        if hangs:
            raise PlayOverdue
        yield

    play = playing()
    play._play = SimpleNamespace(within=within, now=lambda: 7.0)  # noqa: SLF001
    play._poll = lambda one: ("polled", one.name)  # noqa: SLF001
    state = SimpleNamespace(components={"one": SimpleNamespace(overdue_since=overdue)})
    play._board = SimpleNamespace(state=state, publish=published.append)  # noqa: SLF001
    one = collector("one", good)
    play._turn(one)  # noqa: SLF001
    late = ("late", 7.0, one.options.deadline)
    assert published == ([("polled", "one")] if not hangs else [] if overdue else [late])
    assert play._stopped == ({"nvml"} if hangs else set())  # noqa: SLF001
    play._turn(one)  # noqa: SLF001
    assert len(published) == (2 if not overdue else 0)


def test_a_play_knows_nothing_to_be_well_before_its_end() -> None:
    play = playing(75.0)
    known = [Grounds(health, "own") for health in (Health.OK, Health.FAILED)]
    for ended, found in ((False, (Health.UNKNOWN, Health.FAILED)), (True, (Health.OK, Health.FAILED))):
        play._ended = ended  # noqa: SLF001
        with pytest.MonkeyPatch.context() as patch:
            rest = iter(known)
            patch.setattr(Poll, "grounds", lambda _, why, rest=rest: replace(next(rest), why=why))
            assert tuple(play.grounds("why").health for _ in known) == found
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Poll, "grounds", lambda _, why: Grounds(Health.OK, "own", why))
        assert play.grounds("why").why.startswith("why, played for 1 min")


# --- the node


@pytest.mark.parametrize(
    ("source", "directory", "made", "kept"),
    [
        (NodeSource(), "", "live with the folder", True),
        (NodeSource(), "/d", "live with the folder", True),
        (NodeSource(replay="r", overlays=("o",)), "", "play r o until 1000.0", False),
        (NodeSource(replay="r", overlays=("o",)), "/d", "play r o until 1000.0", True),
        (NodeSource(replay="r", overlays=("o",), film=True), "", "film r o", False),
    ],
)
def test_a_node_is_this_machine_a_recording_at_its_end_or_a_film(
    monkeypatch: pytest.MonkeyPatch, source: NodeSource, directory: str, made: str, *, kept: bool
) -> None:
    """A play lasts as long as its slowest collector. A recording has a state folder only if that is named."""
    config = SimpleNamespace(state=SimpleNamespace(directory=directory))
    slow = replace(collector("slow", good), options=Options(interval=500.0))
    monkeypatch.setattr(polling, "load", lambda *_: (config, (collector("one", good), slow)))
    monkeypatch.setattr(polling, "_state", lambda _, keep: f"folder {keep}")
    monkeypatch.setattr(polling, "expectations", lambda _: None)
    monkeypatch.setattr(polling, "remote_prober", lambda *_: None)
    monkeypatch.setattr(polling, "live", lambda _, state: (f"live with the {state[:6]}", None))

    def play(name: str, overlays: Sequence[str], hold: float) -> Any:
        return SimpleNamespace(hardware=f"play {name} {overlays[0]} until {hold}", nvml=None)

    def film(name: str, overlays: Sequence[str], **more: bool) -> Any:
        assert more == {"loop": True, "at_fault": True}
        return f"film {name} {overlays[0]}", None

    monkeypatch.setattr(polling, "play", play)
    monkeypatch.setattr(polling, "replayed", film)
    here: Any = CheckedNode(source, keep=True)
    assert (here._hardware, here._state) == (made, "folder True" if kept else None)  # noqa: SLF001
    assert (here._played is not None) is made.startswith("play")  # noqa: SLF001


@pytest.mark.parametrize("stopped", ["stop", "kill"])
def test_the_nvml_process_of_a_node_ends_with_it(stopped: str) -> None:
    done: list[str] = []
    calls = {name: lambda name=name: done.append(name) for name in ("stop", "kill")}
    getattr(node(nvml=SimpleNamespace(**calls)), stopped)()
    assert done == [stopped]


def node(**parts: Any) -> Any:
    """A node of which only these parts are there."""
    made: Any = CheckedNode.__new__(CheckedNode)
    known = {"played": None, "state": None, "prober": None, "expect": Expect(), "collectors": ()}
    for name, part in {**known, **parts}.items():
        setattr(made, f"_{name}", part)
    return made


def probing(**options: Any) -> Any:
    """A configuration that says no more than how to probe."""
    return SimpleNamespace(probe=ProbeOptions(**options), policy=SimpleNamespace(probe=None))


def test_a_probe_of_a_play_ends_by_the_clock_of_the_play(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(polling, "probe_now", lambda *given: asked.append(given))
    gone: list[bool] = []
    play = SimpleNamespace(clock=SimpleNamespace(let_go=lambda: gone.append(True)))
    clock = SimpleNamespace(mono=lambda: time.monotonic() + 1000.0)
    for film in (play, None):
        here = node(hardware=SimpleNamespace(clock=clock), config=probing(), played=film)
        end = time.monotonic() + 5.0
        here.probe("slurm:7", end)
        assert asked[-1][6] == pytest.approx(end + 1000.0, abs=1.0)
        assert asked[-1][4].owner == "slurm:7"
    assert gone == [True]


@pytest.mark.parametrize("enabled", [False, True])
def test_the_last_probe_is_known_where_probing_is_on(monkeypatch: pytest.MonkeyPatch, enabled: bool) -> None:  # noqa: FBT001
    here = node(
        config=probing(enabled=enabled), hardware=SimpleNamespace(clock=SimpleNamespace(mono=lambda: 5.0))
    )
    component = SimpleNamespace(findings=("found",))
    monkeypatch.setattr(CheckedNode, "_recall", lambda _: component)
    monkeypatch.setattr(polling, "probe_summary", lambda found, mono: (found is component, mono))
    assert here.last_probe() == (((True, 5.0), ("found",)) if enabled else (None, ()))


def test_the_history_of_nics_counts_where_they_are_probed_and_some_were(tmp_path: Path) -> None:
    found = NicNode()
    kept = partial(History, tmp_path / "nics.sqlite", found.clock, HistoryLimits())
    found.collector = nics_collector(found.made, ProbePolicy(), Expect(), history=kept)
    found.ways["mlx5_2:1"] = Way(gbs=20.0)
    found.days(0.8)
    on = probing(nics=NicsOptions(enabled=True))
    on.policy.probe = ProbePolicy()
    state = StateFolder(tmp_path)
    (collector,) = node(config=on, state=state, hardware=found.hardware)._nics()  # noqa: SLF001
    later = NicNode()
    later.collector = collector
    later.poll()
    assert later.healths() == {"mlx5_2 port 1": Health.DEGRADED}
    empty = StateFolder(tmp_path / "none")
    for config, folder in ((probing(), state), (on, empty), (on, None)):
        assert node(config=config, state=folder, hardware=found.hardware)._nics() == ()  # noqa: SLF001


@pytest.mark.parametrize(
    ("engine", "pointless", "refused"),
    [("auto", "one GPU", "one GPU"), ("auto", None, None), ("gloo", "one GPU", None)],
)
def test_where_nothing_can_be_probed_the_history_says_so(
    monkeypatch: pytest.MonkeyPatch, engine: Any, pointless: Any, refused: Any
) -> None:
    """The engine gloo probes processes, and needs no GPUs."""
    monkeypatch.setattr(polling, "recall", lambda *_: Component(PROBE_NAME, ProbeMemory()))
    monkeypatch.setattr(polling, "nothing_to_probe", lambda _: pointless)
    here = node(config=probing(engine=engine), hardware=None)
    assert here._recall().memory.refusal == refused  # noqa: SLF001


@pytest.mark.parametrize(
    ("state", "enabled", "held", "told"),
    [
        (True, True, "result", True), (True, True, NOTHING_HELD, False), (True, False, "result", False),
        (False, True, "result", False),
    ],
)  # fmt: skip
def test_what_pairs_found_out_counts_where_it_is_held(
    monkeypatch: pytest.MonkeyPatch, held: Any, *, state: bool, enabled: bool, told: bool
) -> None:
    monkeypatch.setattr(polling, "read_result", lambda _: held)
    monkeypatch.setattr(polling, "pairs_component", lambda *given: given[-1])
    config: Any = SimpleNamespace(pairs=SimpleNamespace(enabled=enabled), policy=SimpleNamespace(pairs=None))
    here = node(state=SimpleNamespace(pairs="path") if state else None, config=config)
    assert here._told() == ((held,) if told else ())  # noqa: SLF001


@pytest.mark.parametrize(
    ("state", "loaded", "given", "play", "enabled", "drifts"),
    [
        (True, "baseline", "", False, True, True),
        (True, "baseline", "", False, False, False),
        (True, "", "", False, True, False),
        (False, "baseline", "", False, True, False),
        (True, "", "product.json", False, True, True),
        (True, "", "", True, True, True),
        (True, "trouble", "", False, True, True),
        (False, "", "", True, True, True),
    ],
)
def test_drift_is_seen_where_there_is_something_to_compare_with(
    monkeypatch: pytest.MonkeyPatch, loaded: str, given: str, *, state: bool, play: bool, enabled: bool,
    drifts: bool,
) -> None:  # fmt: skip
    """A play learns a baseline, but none in the place of a file that cannot be used."""
    made = LoadedBaseline("b" if loaded == "baseline" else None, "wrong" if loaded == "trouble" else "")  # type: ignore[arg-type]
    monkeypatch.setattr(polling, "read_baseline", lambda _: made)
    monkeypatch.setattr(polling, "given_graph", lambda name: f"graph of {name}")
    monkeypatch.setattr(polling, "drift_component", lambda _, policy, around: (policy.learn, around.given))
    options = DriftOptions(enabled=enabled, baseline=given)
    held = SimpleNamespace(baseline="path") if state else None
    policy: Any = SimpleNamespace(drift=DriftPolicy())
    here = node(state=held, config=SimpleNamespace(drift=options, policy=policy), played=play or None)
    learn = sys.maxsize if loaded == "trouble" and state else DriftPolicy().learn
    assert here._drift() == (((learn, f"graph of {given}" if given else None),) if drifts else ())  # noqa: SLF001
