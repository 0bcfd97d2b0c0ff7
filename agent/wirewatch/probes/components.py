"""All components of the daemon, the collectors, the probe and the topology's drift, and all their rules."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from wirewatch.collectors import discover
from wirewatch.core.collector import UNKNOWN, AnyCollector, Rule, blind_rule
from wirewatch.core.types import Expect
from wirewatch.probes.collector import probe_component
from wirewatch.probes.policy import ProbeOptions, ProbePolicy
from wirewatch.verdict.drift.component import Around, DriftOptions, drift_component
from wirewatch.verdict.drift.watch import DriftPolicy
from wirewatch.verdict.ledger import LOST


def components() -> tuple[AnyCollector, ...]:
    """Every component with its defaults."""
    return (
        *discover(),
        probe_component(ProbeOptions(), ProbePolicy(), Expect()),
        drift_component(DriftOptions(), DriftPolicy(), Around()),
    )


def rules() -> tuple[Rule, ...]:
    """Every rule that a finding can carry."""
    every = components()
    own = (rule for one in every for rule in one.rules)
    blind = (Rule(blind_rule(one.name), UNKNOWN) for one in every)
    return (*own, *blind, Rule(LOST, UNKNOWN))


def rule_of(name: str, among: Iterable[Rule] | None = None) -> Rule | None:
    """The rule by that name, else the first whose pattern has it; None where nobody declared it."""
    known = rules() if among is None else tuple(among)
    exact = (one for one in known if one.name == name)
    return next(exact, None) or next((one for one in known if fnmatchcase(name, one.name)), None)
