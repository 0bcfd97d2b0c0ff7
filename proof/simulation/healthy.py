"""Rates of real healthy probes; `python -m proof.simulation.healthy FILE` takes them from a list of probes.

A probe of the list is {"at": Unix seconds, "compute 0": products per second, "pair 0>1": bytes per second}
and so on, GPUs by number. `run`, where it is told, says which belong together; else a quarter of an hour.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.node.verdict.straggler.nodes import gpu
from wirewatch.verdict.straggler.signals import Resource, Signals, Unit

FILE = Path(__file__).with_name("healthy.json")
GAP = 900.0
"""Seconds without a probe that end a run: the next may be on other GPUs."""


@dataclass(frozen=True, slots=True)
class Run:
    """Probes one after the other on the same GPUs: when each was (Unix seconds), and its rates by unit."""

    at: Sequence[float]
    rates: Mapping[str, Sequence[float]]

    def pauses(self) -> Iterator[float]:
        """Seconds from each probe to the next."""
        return (later - earlier for earlier, later in pairwise(self.at))

    def signals(self) -> Iterator[tuple[float, Signals]]:
        units = {name: unit(name) for name in self.rates}
        alike = dict.fromkeys(units.values(), "alike")
        for number, at in enumerate(self.at):
            yield at, Signals("real", {one: self.rates[name][number] for name, one in units.items()}, alike)


def unit(name: str) -> Unit:
    """Of `compute 0` or `pair 0>1`."""
    what, _, which = name.partition(" ")
    one, _, other = which.partition(">")
    return Unit(Resource(what), gpu(int(one)), gpu(int(other)) if other else "")


def healthy(path: Path = FILE) -> tuple[Run, ...]:
    return tuple(Run(run["at"], run["rates"]) for run in json.loads(path.read_text("utf-8")))


def runs(probes: Sequence[Mapping[str, float]]) -> Iterator[Run]:
    """The runs of a list of probes, in the order of time."""
    told: list[Mapping[str, float]] = []
    for probe in sorted(probes, key=lambda one: one["at"]):
        if told and _another(told[-1], probe):
            yield _run(told)
            told = []
        told.append(probe)
    if told:
        yield _run(told)


def _another(last: Mapping[str, float], probe: Mapping[str, float]) -> bool:
    if "run" in probe or "run" in last:
        return probe.get("run") != last.get("run")
    return probe["at"] - last["at"] > GAP or probe.keys() != last.keys()


def _run(probes: Sequence[Mapping[str, float]]) -> Run:
    names = [name for name in probes[0] if name not in {"at", "run"}]
    return Run([one["at"] for one in probes], {name: [one[name] for one in probes] for name in names})


def compact(found: Sequence[Run]) -> str:
    """One line for each series."""
    parts = []
    for run in found:
        rates = ",\n  ".join(f'"{name}": [{_numbers(values)}]' for name, values in run.rates.items())
        parts.append(f'{{"at": [{_numbers(run.at)}],\n "rates": {{\n  {rates}}}}}')
    return "[" + ",\n".join(parts) + "]\n"


def _numbers(values: Sequence[float]) -> str:
    return ",".join(f"{value:.14g}" for value in values)


if __name__ == "__main__":
    FILE.write_text(compact(tuple(runs(json.loads(Path(sys.argv[1]).read_text("utf-8"))))), "utf-8")
