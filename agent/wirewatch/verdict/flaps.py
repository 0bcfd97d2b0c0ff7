"""Faults that come and go before they are confirmed: N comings within a window are one that stays. Pure."""

from collections.abc import Collection, Mapping

from wirewatch.core.types import Finding
from wirewatch.verdict.ledger import Key
from wirewatch.verdict.policy import VerdictPolicy

Comings = Mapping[Key, tuple[float, ...]]
"""When (monotonic seconds) each fault came, newest last; what the window has left."""


def comings(
    before: Comings, told: Collection[Key], live: Mapping[Key, tuple[str, Finding]], mono: float,
    policy: VerdictPolicy,
) -> Comings:  # fmt: skip
    """Those of before with those that are `live` now and were not `told` at the last look."""
    made = {}
    for key in {**before, **live}:
        kept = tuple(at for at in before.get(key, ()) if mono - at < policy.flap_window)
        new = (mono,) if key in live and key not in told and policy.flaps_count(key[0]) else ()
        if kept or new:
            made[key] = (*kept, *new)[-policy.flaps :]
    return made


def flapping(times: tuple[float, ...], policy: VerdictPolicy) -> str:
    """In words, that it came so often that it counts as confirmed; empty where it does not."""
    if len(times) < policy.flaps:
        return ""
    return f"came and went {len(times)} times within {policy.flap_window / 60:g} min"
