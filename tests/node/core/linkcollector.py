"""A small collector whose readings are said by the tests, and its component moved through a history."""

from collections.abc import Iterator
from dataclasses import dataclass

from wirewatch.core.collector import Collector, Component, NoPolicy, Options
from wirewatch.core.fold import Step, after, fold
from wirewatch.core.ports import Hardware
from wirewatch.core.types import (
    Absent,
    Expect,
    Failed,
    Finding,
    Health,
    Kind,
    Metric,
    Ok,
    Sample,
    Subject,
    Why,
)

POLLS = Metric("polls", Kind.GAUGE, (), "How many polls were judged.", unit="polls")
TIMEOUT = Absent(Why.TIMEOUT, "the driver timed out", 10)


@dataclass(frozen=True)
class Seen:
    """What one poll saw: what is wrong with which GPU, and whether there is anything to watch."""

    wrong: tuple[tuple[str, Health], ...] = ()
    here: bool = True


@dataclass(frozen=True)
class LinkFacts:
    """What others may know: how many polls were judged, and whether there was anything to watch."""

    polls: int
    here: bool


def _judge(polls: int, ok: Ok[Seen], _policy: NoPolicy, _expect: Expect) -> tuple[int, tuple[Finding, ...]]:
    found = (
        Finding("links.down", health, Subject(gpu=gpu), "evidence", "action")
        for gpu, health in ok.value.wrong
    )
    return polls + 1, tuple(found)


def _samples(_seen: Seen, polls: int) -> Iterator[Sample]:
    yield POLLS.sample(polls)


def _read(_hardware: Hardware, _polls: int, _options: Options) -> Seen | Absent:
    raise AssertionError("these tests say what was read")


LINKS: Collector[Seen, int, Options, NoPolicy] = Collector(
    name="links",
    about="links",
    lane="nvml",
    options=Options(),
    policy=NoPolicy(),
    metrics=(POLLS,),
    start=0,
    read=_read,
    samples=_samples,
    judge=_judge,
    applicable=lambda seen: seen.here,
    facts=lambda seen, polls: LinkFacts(polls, seen.here),
)

NEW = Component("links", 0)


def step(memory: object, read: Seen | Absent, at: float) -> Step:
    outcome = Failed(read, at, at) if isinstance(read, Absent) else Ok(read, at, at)
    return fold(LINKS, memory, outcome, 0.1, Expect())


def poll(component: Component, read: Seen | Absent, at: float) -> Component:
    """The component after one more run."""
    return after(component, step(component.memory, read, at))


def bad(gpu: str = "0", health: Health = Health.FAILED) -> Seen:
    return Seen(((gpu, health),))


def findings_of(component: Component) -> list[tuple[str, str, Health, float]]:
    """Its findings, short: rule, GPU, health, since."""
    return [(f.rule, f.subject.gpu, f.health, f.since) for f in component.findings]
