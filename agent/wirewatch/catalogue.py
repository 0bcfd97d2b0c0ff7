"""All collectors, components and rules of this wirewatch, from every room that has some."""

import pkgutil
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module

from wirewatch import collectors
from wirewatch.core.collector import UNKNOWN, AnyCollector, Collector, Rule, blind_rule
from wirewatch.core.declared import faults_together, refuse
from wirewatch.core.types import Expect
from wirewatch.jobs import bursts, hangs, ledger, lockstep, running
from wirewatch.probe.collector import probe_collector
from wirewatch.probe.model import ProbeOptions, ProbePolicy
from wirewatch.probe.nics import nics_collector
from wirewatch.verdict.drift.component import DriftContext, DriftOptions, drift_component
from wirewatch.verdict.drift.watch import DriftPolicy
from wirewatch.verdict.ledger import LOST
from wirewatch.verdict.pairs import PairsOptions, PairsPolicy, pairs_component


@cache
def discover() -> tuple[AnyCollector, ...]:
    """Return every collector by name: each module of `collectors`, and five of running jobs.

    Raises TypeError: a module of `collectors` does not offer a `COLLECTOR`.
    Raises ValueError: a collector is not named like its module, or two claim the same name.
    """
    found: list[AnyCollector] = [part.COLLECTOR for part in (bursts, hangs, ledger, lockstep, running)]
    for module in pkgutil.iter_modules(collectors.__path__, f"{collectors.__name__}."):
        collector = getattr(import_module(module.name), "COLLECTOR", None)
        if not isinstance(collector, Collector):
            raise TypeError(f"{module.name} has no COLLECTOR")
        if collector.name != module.name.rpartition(".")[2]:
            raise ValueError(f"{module.name}: give the collector this name, in place of {collector.name!r}")
        found.append(collector)
    return _together(sorted(found, key=lambda c: c.name))


def components() -> tuple[AnyCollector, ...]:
    """Return every component with its defaults."""
    return _together((
        *discover(),
        probe_collector(ProbeOptions(), ProbePolicy(), Expect()),
        nics_collector(ProbeOptions(), ProbePolicy(), Expect()),
        drift_component(DriftOptions(), DriftPolicy(), DriftContext()),
        pairs_component(PairsOptions(), PairsPolicy()),
    ))  # fmt: skip


def _together(every: Iterable[AnyCollector]) -> tuple[AnyCollector, ...]:
    made = tuple(every)
    refuse(faults_together(made))
    return made


def rules() -> tuple[Rule, ...]:
    """Return every rule that a finding can carry."""
    every = components()
    own = (rule for one in every for rule in one.rules)
    blind = (Rule(blind_rule(c.name), UNKNOWN, "" if c.gates else "CollectorFailing") for c in every)
    return (*own, *blind, Rule(LOST, UNKNOWN))


def rule_of(name: str, among: Iterable[Rule] | None = None) -> Rule | None:
    """Return the rule by that name, else the first with a matching pattern; None where none is declared."""
    known = rules() if among is None else tuple(among)
    exact = (one for one in known if one.name == name)
    return next(exact, None) or next((one for one in known if fnmatchcase(name, one.name)), None)
