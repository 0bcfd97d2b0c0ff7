"""A poll of our own over collectors made for the purpose: what hangs, what raises, what is seen again."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest

from tests.node.collectors.drawn import Watched
from tests.patience import HANGS
from wirewatch.cli.check.answer import HEALTHS, Grounds, Terms, decide
from wirewatch.cli.check.command import Work
from wirewatch.cli.check.polling import PACE, PAUSE, Poll, paced, polls_needed, quiet
from wirewatch.core.collector import AnyCollector, Collector, Component, NoPolicy, Options
from wirewatch.core.types import Absent, Expect, Finding, Health, Ok, Subject, Why
from wirewatch.documents.health import ProbeStatus
from wirewatch.probe.collector import PROBE_NAME
from wirewatch.probe.model import ProbeMemory
from wirewatch.verdict.ledger import Entry, Ledger, Stage, VerdictPolicy

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


@pytest.mark.parametrize(("interval", "seconds"), [(0.05, PACE), (PACE, PACE), (60.0, 60.0)])
def test_a_play_of_minutes_is_not_polled_at_each_part_of_a_second(interval: float, seconds: float) -> None:
    assert paced(replace(collector("one", good), options=Options(interval=interval))) == seconds
