"""Accepted changes that are over: the part is again as it was in the baseline."""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from wirewatch.verdict.drift.baseline import Accepted, Baseline
from wirewatch.verdict.drift.change import Change, Kind
from wirewatch.verdict.drift.graph import Graph
from wirewatch.verdict.drift.hidden import is_hidden

Back = tuple[tuple[Accepted, int], ...]
"""Accepted changes, each with how many readings in a row showed its part as it was before."""
_KINDS = frozenset(kind.value for kind in Kind)
"""A file of a later agent may know more."""


def back(
    before: Back, baseline: Baseline, changes: Sequence[Change], graph: Graph, away: AbstractSet[str]
) -> Back:
    """After one more reading; one that cannot tell neither counts nor begins anew.

    `before`: after the readings up to now. `graph`: what was read, `changes`: all that is different from the
    baseline in it, `away`: NICs in it that are only thought to be as they were.
    """
    counts = dict(before)
    return tuple((one, count) for one, count in _counted(counts, baseline, changes, graph, away) if count)


def _counted(
    counts: Mapping[Accepted, int],
    baseline: Baseline,
    changes: Sequence[Change],
    graph: Graph,
    away: AbstractSet[str],
) -> Iterator[tuple[Accepted, int]]:
    # A change that nobody accepted may stand in the place of one that was.
    plain = all(any(one.covers(change) for one in baseline.accepted) for change in changes)
    for one in baseline.accepted:
        if any(one.covers(change) for change in changes):
            yield one, 0
        elif plain and _shown(one, baseline.graph, graph, away):
            yield one, counts.get(one, 0) + 1
        else:
            yield one, counts.get(one, 0)


def _shown(one: Accepted, before: Graph, now: Graph, away: AbstractSet[str]) -> bool:
    """Whether the change would be among the changes if it were still there."""
    if one.kind not in _KINDS:
        return False
    had, have = ({part.key for part in graph.parts} for graph in (before, now))
    change = Change(Kind(one.kind), one.part, one.before, one.after, one.text, worse=False)
    is_here = one.part in have or one.part not in had
    lent = any(key in f"{one.part} {one.before} {one.after}" for key in away)
    return is_here and not lent and not is_hidden(change, before, now)


def without(baseline: Baseline, seen: Back, confirm: int) -> Baseline:
    """The baseline without those that so many readings in a row showed to be over."""
    over = {one for one, count in seen if count >= confirm}
    return replace(baseline, accepted=tuple(one for one in baseline.accepted if one not in over))
