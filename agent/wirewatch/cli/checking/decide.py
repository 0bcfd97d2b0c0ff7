"""From what is known to whether a job may start. Pure."""

from dataclasses import replace

from wirewatch.cli.checking.values import Answer, Grounds, Terms
from wirewatch.core.types import Health
from wirewatch.documents.health import Probe


def decide(grounds: Grounds, terms: Terms, at: float) -> Answer:
    """The answer at `at`, Unix seconds.

    A node without a fresh probe, where one is required, is at least UNKNOWN, and that starts no job.
    """
    probe = aged(grounds.probe, terms.max_age)
    required = terms.require or grounds.required
    probe = None if probe is None else replace(probe, required=required)
    health, fail_on = grounds.health, terms.fail_on | {Health.FAILED}
    if required and not (probe is not None and probe.fresh):
        health, fail_on = max(health, Health.UNKNOWN), fail_on | {Health.UNKNOWN}
    return Answer(at, health, fail_on, required, replace(grounds, probe=probe))


def aged(probe: Probe | None, max_age: float | None) -> Probe | None:
    """The probe, judged by `max_age` seconds instead of the daemon's own measure."""
    if probe is None or max_age is None:
        return probe
    return replace(probe, fresh=probe.age_seconds is not None and probe.age_seconds <= max_age)
