"""Readings of the topology, one after the other, against what was accepted: a pure fold."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from wirewatch.core.types import Expect
from wirewatch.verdict.drift.baseline import Accepted, Baseline
from wirewatch.verdict.drift.change import Change, Kind
from wirewatch.verdict.drift.diff import diff
from wirewatch.verdict.drift.graph import Graph
from wirewatch.verdict.drift.hidden import is_hidden
from wirewatch.verdict.drift.learning import listed, unread, why_not
from wirewatch.verdict.drift.over import Back, back, without
from wirewatch.verdict.drift.policy import DriftPolicy
from wirewatch.verdict.ledger import Word

LEARNER = "wirewatch"
"""By whom a baseline is that nobody accepted."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What was seen up to now.

    `graph` is the newest. `changes` against the baseline that nobody accepted, with information; those that
    cannot be seen now stay. Beside each in `streaks` how many readings in a row showed its kind at its part,
    in `since` when the first of them was (Unix seconds). `same`: readings in a row that were alike and well;
    `learning`: why nothing is learned yet. `against`: graph and word of the baseline that these are against.
    `back`: accepted changes that are not seen any more.
    """

    graph: Graph | None = None
    changes: tuple[Change, ...] = ()
    streaks: tuple[int, ...] = ()
    since: tuple[float, ...] = ()
    same: int = 0
    learning: str = ""
    against: tuple[Graph, Word] | None = None
    back: Back = ()

    def seen(self) -> Iterator["Seen"]:
        return map(Seen, self.changes, self.streaks, self.since)


@dataclass(frozen=True, slots=True)
class Seen:
    """One change of a memory."""

    change: Change
    streak: int
    since: float

    @property
    def key(self) -> tuple[Kind, str]:
        """A GPU that loses one more link goes on losing links."""
        return (self.change.kind, self.change.part)


def see(
    memory: Memory,
    baseline: Baseline | None,
    graph: Graph,
    at: float,
    troubles: Sequence[str],
    expect: Expect,
    policy: DriftPolicy,
    away: AbstractSet[str] = frozenset(),
) -> tuple[Memory, Baseline | None]:
    """One more reading.

    Args:
        memory: of the readings before.
        baseline: what to compare with; None to learn one.
        graph: what was read.
        at: when, in Unix seconds.
        troubles: rules of all findings that hold on the node now; while there are any, nothing is learned.
        expect: what the operator says the node must have to be learned.
        policy: how many readings it takes.
        away: keys of NICs in `graph` that somebody was given: only thought to be as they were.

    Returns:
        The new memory, and what is the baseline from now on, where that is another one: learned just now, or
        without accepted changes that are over, so that the same is told when it happens again.
    """
    if baseline is not None:
        new = _compared(memory, baseline, graph, at, policy, away)
        kept = without(baseline, new.back, policy.confirm)
        return new, None if kept == baseline else kept
    reasons = why_not(graph, troubles, expect)
    alike = memory.same + 1 if memory.same and memory.graph == graph else 1
    same = 0 if reasons else alike
    if same < policy.learn:
        told = "; ".join(reasons) or f"{same} of {policy.learn} readings alike, nothing wrong"
        return Memory(graph, same=same, learning=told), None
    said = Word(LEARNER, f"learned: {same} readings alike, nothing wrong", at)
    return Memory(graph, against=(graph, said)), Baseline(graph, said, "learned")


def _compared(
    memory: Memory, baseline: Baseline, graph: Graph, at: float, policy: DriftPolicy, away: AbstractSet[str]
) -> Memory:
    past = list(standing(memory, baseline))
    streaks = {one.key: one.streak for one in past}
    firsts = {one.key: one.since for one in past}
    now, changes = [], diff(baseline.graph, graph)
    for change in changes:
        key = (change.kind, change.part)
        if not is_accepted(baseline, change):
            now.append(Seen(change, streaks.get(key, 0) + 1, firsts.get(key, at)))
    here = {one.key for one in now}
    # A part that is lost takes its other changes with it: those stand until the loss is sure as well.
    unsure = any(one.streak < policy.confirm for one in now)
    now += [
        one
        for one in past
        if one.key not in here
        and ((unsure and one.streak >= policy.confirm) or is_hidden(one.change, baseline.graph, graph))
    ]
    known = memory.back if _is_against(memory, baseline) else ()
    return _memory(graph, baseline, now, back(known, baseline, changes, graph, away))


def _memory(graph: Graph | None, baseline: Baseline, seen: Iterable[Seen], gone: Back) -> Memory:
    order = list(Kind)
    told = sorted(seen, key=lambda one: order.index(one.change.kind))
    return Memory(
        graph,
        tuple(one.change for one in told),
        tuple(one.streak for one in told),
        tuple(one.since for one in told),
        against=(baseline.graph, baseline.said),
        back=gone,
    )


def _is_against(memory: Memory, baseline: Baseline) -> bool:
    return memory.against == (baseline.graph, baseline.said)


def standing(memory: Memory, baseline: Baseline) -> Iterator[Seen]:
    """Changes that were seen against this baseline and are not accepted in it."""
    if _is_against(memory, baseline):
        yield from (one for one in memory.seen() if not is_accepted(baseline, one.change))


def is_accepted(baseline: Baseline, change: Change) -> bool:
    return any(one.covers(change) for one in baseline.accepted)


def counts(memory: Memory) -> Mapping[Kind, int]:
    """Changes that nobody accepted, information included, by each kind there is."""
    return {kind: sum(one.kind is kind for one in memory.changes) for kind in Kind}


def name_of(change: Change) -> str:
    """Eight hexadecimal digits by which a person names a change."""
    words = (change.kind.value, change.part, change.before, change.after)
    return hashlib.blake2s("|".join(map(repr, words)).encode(), digest_size=4).hexdigest()


def accept_all(memory: Memory, word: Word) -> Baseline | str:
    """The newest reading as the baseline; or why it cannot be, in words."""
    if memory.graph is None:
        return "the topology was not read yet"
    if not memory.graph.gpus:
        return "no GPU is here"
    missing = unread(memory.graph)
    if missing:
        return f"not known now: {listed(memory.graph, missing)}"
    return Baseline(memory.graph, word, "accepted")


def accept_one(baseline: Baseline, memory: Memory, name: str, word: Word) -> Baseline | str:
    """The baseline with one change accepted, by `name_of`; or why not, in words."""
    found = next((one.change for one in standing(memory, baseline) if name_of(one.change) == name), None)
    if found is None:
        names = ", ".join(name_of(one.change) for one in standing(memory, baseline))
        return f"there is no change {name}{f'; there are {names}' if names else ', and no other'}"
    accepted = Accepted(found.kind.value, found.part, found.before, found.after, found.text, word)
    return replace(baseline, accepted=(*baseline.accepted, accepted))
