"""Hints of running jobs: when one of them last showed that a GPU or a wire may be slow."""

from wirewatch.core.collector import NodeState
from wirewatch.jobs.bursts import BurstFacts
from wirewatch.jobs.lockstep import LockstepFacts
from wirewatch.jobs.times import JobsFacts


def newest_hint(state: NodeState) -> float | None:
    """Return when a hint was last seen, in monotonic seconds, by all collectors of jobs; None for never."""
    lockstep, bursts, jobs = state.facts(LockstepFacts), state.facts(BurstFacts), state.facts(JobsFacts)
    hints = [None if known is None else known.last_hint for known in (bursts, jobs)]
    seen = [hint.mono for hint in hints if hint is not None]
    if lockstep is not None and lockstep.last_hint is not None:
        seen.append(lockstep.last_hint.last.mono)
    return max(seen, default=None)
