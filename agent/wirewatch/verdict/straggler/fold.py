"""Folding probes: who is believed to be slow, and what the accepted history is."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from wirewatch.verdict.straggler.naming import Named, Slow, Uniform, name
from wirewatch.verdict.straggler.policy import StragglerPolicy
from wirewatch.verdict.straggler.references import References, learn
from wirewatch.verdict.straggler.signals import Signals, Unit

Seen = Slow | Uniform


@dataclass(frozen=True, slots=True)
class Held:
    """What is believed, as the newest look that saw it: since when (Unix seconds), in how many of the last.

    `failed`: jobs should be kept away.
    """

    seen: Seen
    since: float
    times: int
    looks: int
    failed: bool


@dataclass(frozen=True, slots=True)
class Watch:
    """`looks`: what the newest probes saw of each unit, newest last; `began`: when it was first seen.

    A unit without a GPU stands for all of its resource. `named`: the newest probe's word alone.
    """

    references: References = field(default_factory=References)
    looks: Mapping[Unit, tuple[Seen | None, ...]] = field(default_factory=dict)
    began: Mapping[Unit, float] = field(default_factory=dict)
    named: Named = field(default_factory=Named)

    def held(self, policy: StragglerPolicy) -> tuple[Held, ...]:
        return tuple(self._held(policy))

    def _held(self, policy: StragglerPolicy) -> Iterator[Held]:
        for unit, looks in self.looks.items():
            seen = [one for one in looks if one is not None]
            if len(seen) >= policy.confirm:
                failed = sum(one.worst >= policy.failed for one in seen) >= policy.confirm
                yield Held(seen[-1], self.began[unit], len(seen), len(looks), failed)

    def unsure(self, policy: StragglerPolicy) -> bool:
        """Whether the newest probe saw something that another would confirm or clear."""
        return any(
            looks[-1] is not None and sum(one is not None for one in looks) < policy.confirm
            for looks in self.looks.values()
        )


def look(
    watch: Watch, told: Signals, at: float, policy: StragglerPolicy, *, accepted: bool
) -> Watch:  # fmt: skip
    """The watch after a complete probe (at Unix seconds).

    `accepted`: nothing else was wrong, so that its rates may become history where nobody is slow.
    """
    named = name(told, watch.references, policy)
    now: dict[Unit, Seen] = {slow.unit: slow for slow in named.slow}
    now |= {Unit(all_of.resource, ""): all_of for all_of in named.uniform}
    looks = {
        unit: (*watch.looks.get(unit, ()), now.get(unit))[-policy.among :] for unit in {**watch.looks, **now}
    }
    looks = {unit: seen for unit, seen in looks.items() if any(one is not None for one in seen)}
    references = watch.references
    if accepted and not looks:
        references = learn(references, told, at)
    return Watch(references, looks, {unit: watch.began.get(unit, at) for unit in looks}, named)
