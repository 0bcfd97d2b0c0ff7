"""straggler: a slow GPU or pair is named with what of it is slow; a healthy node names none."""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from proof.hardware.job import Job
from proof.hardware.kit import KitError, Report
from proof.hardware.probing import Probing, command, loaded, probing
from wirewatch.core.probe import Probed
from wirewatch.probe.history import History
from wirewatch.probe.judge import fold_probe
from wirewatch.probe.model import ProbeMemory, ProbePolicy
from wirewatch.probe.restore import accepted, keep
from wirewatch.statefolder import open_state
from wirewatch.verdict.straggler.naming import NamedStragglers, StragglerWatch
from wirewatch.verdict.straggler.signals import RateHistory, Unit, signals

KINDS = ("compute", "memory", "peer")
FIRST = 12
"""Healthy probes that make the history."""
TRIALS, COLD, HEALTHY = 30, 5, 50
EACH = 6
"""One of so many trials is without a history, another one each time."""
SEEN = 2.0
"""Seconds after which NVML's utilisation is that of the load."""
SAVE = 10
"""Healthy probes after which their results are written."""
LATE = 15.0
"""Seconds after which a probe that its own load holds up is given up."""
POLICY = ProbePolicy()


@dataclass(frozen=True)
class Case:
    """A load: of its kind on one of so many GPUs, to another for `peer`; all by index."""

    kind: str
    gpu: int
    other: int
    gpus: int

    def expected(self) -> list[str]:
        """Who is to be named: of a copy both ends, of two GPUs the pair."""
        if self.kind != "peer":
            return [f"{self.kind} {self.gpu}"]
        if self.gpus == 2:
            return [f"pair {self.gpu}>{self.other}"]
        return [f"destination {self.other}", f"source {self.gpu}"]

    def __str__(self) -> str:
        return f"{self.kind} {self.gpu}" + (f">{self.other}" if self.kind == "peer" else "")


@dataclass(frozen=True)
class Trial:
    """What was done, and who was named: `right` when that is the loaded part and no other."""

    case: str
    how: str
    outcome: str
    named: list[str]
    lost: list[float]
    right: bool


def run(report: Report, options: argparse.Namespace) -> None:
    with probing(report) as here, tempfile.TemporaryDirectory(prefix="wirewatch-kit-") as folder:
        history = History.open(open_state(Path(folder)).history, here.hardware.clock)
        kit = Kit(here, history, folder, options.loads or KINDS)
        report.note(gpus=[gpu.uuid for gpu in here.gpus])
        report.attempt("history", kit.learn)
        count = options.trials or TRIALS
        report.attempt("own load", lambda: kit.own(count))
        report.attempt("foreign load", lambda: kit.foreign(count))
        report.attempt("healthy", lambda: kit.healthy(HEALTHY, options.healthy))
        judge(report, kit.trials, kit.named, kit.count, count)


class Kit:
    """Trials on one machine, judged by the history that healthy probes made first."""

    def __init__(self, here: Probing, history: History, folder: str, kinds: Sequence[str]) -> None:
        self._here, self._history, self._folder, self._kinds = here, history, folder, kinds
        self._references = RateHistory()
        self.trials: list[Trial] = []
        self.named: list[str] = []
        self.count = 0

    def learn(self) -> None:
        for _ in range(FIRST):
            keep(self._history, self._well(), self._here.hardware.clock.now(), "", "daemon")
        self._references = accepted(self._history, POLICY).stragglers.references

    def _well(self) -> Probed:
        """A probe that nothing disturbs, its rates kept; all of its results would be megabytes."""
        prober = self._here.prober()
        probed = prober.run(self._here.order(prober))
        if probed.outcome != "ok":
            raise KitError(f"a probe that nothing disturbs: {probed.outcome}: {probed.why}")
        rates = {unit_name(unit, probed): rate for unit, rate in signals(probed).rates.items()}
        data = self._here.report.data
        data.setdefault("healthy", []).append({"at": round(probed.at, 1), **rates})
        if len(data["healthy"]) % SAVE == 0:
            self._here.report.save()
        return probed

    def _cases(self) -> list[Case]:
        gpus = range(len(self._here.gpus))
        return [Case(kind, gpu, (gpu + 1) % len(gpus), len(gpus)) for gpu in gpus for kind in self._kinds]

    def own(self, count: int) -> None:
        """Load inside the worker itself; one of six without a history, as on a node that just came up."""
        cases = self._cases()
        for number in range(count):
            case, cold = cases[number % len(cases)], number % EACH == number // EACH % EACH
            worker = loaded(case.kind, case.gpu, case.other)
            prober = self._here.prober(worker=worker)
            probed = prober.run(self._here.order(prober, deadline=LATE))
            self._try(
                case, "own, cold" if cold else "own", probed, RateHistory() if cold else self._references
            )

    def foreign(self, count: int) -> None:
        """The same from another process: refused without force, named with it."""
        cases = self._cases()
        for number, case in enumerate(cases):
            times = len(range(number, count, len(cases)))
            with Job("load", case.kind, str(case.gpu), str(case.other)) as job:
                job.wait("READY", 60)
                time.sleep(SEEN)
                for _ in range(times):
                    self._refused(case)
                    self._forced(case)
                self._command(case)

    def _refused(self, case: Case) -> None:
        status, document, _ = command(changes={"STATE_DIRECTORY": self._folder})
        why = document["why"]
        busy = document["outcome"] == "skipped" and why.startswith("busy") and not document["results"]
        self._add(Trial(str(case), "foreign", why[:40], [], [], right=busy and status == 3))

    def _forced(self, case: Case) -> None:
        prober = self._here.prober()
        probed = prober.run(replace(self._here.order(prober), forced=True))
        self._try(case, "forced", probed, self._references)

    def _command(self, case: Case) -> None:
        """The same with the command, whose word a person reads."""
        _, document, _ = command("--force", changes={"STATE_DIRECTORY": self._folder})
        named = [_told(one) for one in document["stragglers"]]
        lost = [one["lost"] for one in document["stragglers"]]
        right = sorted(named) == case.expected()
        self._add(Trial(str(case), "command", document["outcome"], named, lost, right=right))

    def _try(self, case: Case, how: str, probed: Probed, references: RateHistory) -> None:
        named = named_by(probed, references)
        who = list(parts(named, probed))
        lost = [one.lost for one in named.slow]
        right = sorted(who) == case.expected()
        if not right:
            self._here.keep(f"{how} {case}", probed)
        self._add(Trial(str(case), how, probed.outcome, who, lost, right=right))

    def _add(self, trial: Trial) -> None:
        self.trials.append(trial)
        self._here.report.data.setdefault("trials", []).append(asdict(trial))
        self._here.report.save()
        self._here.report.progress(json.dumps(asdict(trial)))

    def healthy(self, count: int, seconds: float) -> None:
        """At least so many, and as many more as the time allows, each as if it were the first of its kind."""
        end = time.monotonic() + seconds
        time.sleep(2)
        while self.count < count or time.monotonic() < end:
            probed = self._well()
            self.count += 1
            for references in (self._references, RateHistory()):
                self.named += parts(named_by(probed, references), probed)


def judge(report: Report, trials: list[Trial], named: list[str], healthy: int, count: int) -> None:
    """All trials against the limits; `named`: in so many `healthy` probes."""
    for how in ("own", "own, cold", "foreign", "forced", "command"):
        of_kind = [trial for trial in trials if trial.how == how]
        right = sum(trial.right for trial in of_kind)
        ok = right == len(of_kind) > 0
        report.check(f"{how}: the right word", ok=ok, told=f"{right} of {len(of_kind)}")
    own = [trial for trial in trials if trial.how.startswith("own")]
    cold = sum(trial.how == "own, cold" for trial in own)
    report.check(
        "own: trials",
        ok=len(own) >= count and cold >= min(COLD, count // EACH),
        told=f"{len(own)}, {cold} cold",
    )
    line = f"{named} in {healthy} probes"
    report.check("healthy: nobody is named", ok=not named and healthy >= HEALTHY, told=line)


def named_by(probed: Probed, references: RateHistory) -> NamedStragglers:
    """Who is slow by one probe alone."""
    memory = ProbeMemory(stragglers=StragglerWatch(references))
    return fold_probe(memory, replace(probed, forced=False), 0.0, POLICY).stragglers.named


def parts(named: NamedStragglers, probed: Probed) -> Iterator[str]:
    yield from (unit_name(one.unit, probed) for one in named.slow)
    yield from (f"all {one.resource.value}" for one in named.uniform)


def unit_name(unit: Unit, probed: Probed) -> str:
    """Such as `compute 1`, `pair 0>1`, by index."""
    places = {gpu.uuid: gpu.index for gpu in probed.gpus}
    to = f">{places[unit.peer]}" if unit.peer else ""
    return f"{unit.resource.value} {places[unit.uuid]}{to}"


def _told(one: dict[str, Any]) -> str:
    if one["gpu"] is None:
        return f"all {one['resource']}"
    return f"{one['resource']} {one['gpu']}" + ("" if one["peer"] is None else f">{one['peer']}")
