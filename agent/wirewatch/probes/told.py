"""What the verdict needs to know of probes, and nothing else of them. Pure."""

from dataclasses import dataclass

from wirewatch.core.collector import Component
from wirewatch.probes.collector import PROBE_NAME
from wirewatch.probes.gate import Reason
from wirewatch.probes.values import Memory, complete

POINTLESS = frozenset({Reason.FEW_GPUS, Reason.MIG})
"""No engine is not one of them: the node could be probed, and nobody knows what would come of it."""


@dataclass(frozen=True, slots=True)
class ProbeSummary:
    """The newest complete probe that counts; forced ones and those that were broken off do not.

    `at`: when it began, Unix seconds, 0 for never; `age_seconds`: since it ended, None for never; `fresh`:
    whether its results still say something about now. `complete`: such probes since start; `clean`: the
    newest was of GPUs and found nothing at all. `watched`: whether there is something here to probe, and
    something to probe it with; `pointless`: there is nothing to probe. Neither says so before it is known.
    """

    at: float = 0.0
    age_seconds: float | None = None
    fresh: bool = False
    complete: int = 0
    clean: bool = False
    watched: bool = True
    pointless: bool = False


def probe_summary(component: Component | None, mono: float) -> ProbeSummary | None:
    """What the probe's component knows at `mono`, monotonic seconds; None where probing is switched off."""
    if component is None or component.name != PROBE_NAME or not isinstance(component.memory, Memory):
        return None
    return of_memory(component.memory, mono, watched=component.applicable is not False)


def of_memory(memory: Memory, mono: float, *, watched: bool = True) -> ProbeSummary:
    """What a memory tells at `mono`, monotonic seconds."""
    count, clean = complete(memory)
    pointless = memory.refusal is not None and memory.refusal.reason in POINTLESS
    if memory.last is None or memory.last_mono is None:
        return ProbeSummary(complete=count, watched=watched, pointless=pointless)
    return ProbeSummary(
        at=memory.last.at,
        age_seconds=max(0.0, mono - memory.last_mono),
        # Asked of the clock: a component that turns no more would be fresh for ever.
        fresh=memory.fresh_until is not None and mono <= memory.fresh_until,
        complete=count,
        clean=clean,
        watched=watched,
        pointless=pointless,
    )
