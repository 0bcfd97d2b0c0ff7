"""prober: an agent without privileges has `wirewatch prober` probe for it, which gives way and may die."""

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from proof.hardware import behindprober, processes
from proof.hardware.apart import AGENT, SOMEBODY, Asking, ProberProcess, Seen, Witness
from proof.hardware.comparing import compare, percent
from proof.hardware.holders import replayed
from proof.hardware.job import Job
from proof.hardware.kit import KitError, Report
from proof.hardware.preemption import Comer, Ended, Trial, judge, trial
from proof.hardware.probing import Probing, probing
from wirewatch.core.probe import MIB

ROUNDS = 5
FLOOR = 0.01
"""Medians of few probes may be so far apart, however near to each other the probes without prober were."""
IDLE = 5.0
IDLE_BYTES = 100e6
IDLE_CPU = 0.01
"""Part of a core while no request comes."""
TRIALS = 6
LATEST = 3.0
"""Seconds after the worker's contexts are up until which a foreign process starts its own."""
SEED = 20261122
UNKNOWN = 3

Busbw = Mapping[tuple[str, int], Sequence[float]]
"""Bus bandwidths in bytes per second by collective and size."""


@dataclass(frozen=True)
class Scene:
    """A prober of this machine, or with `here` None of processors."""

    report: Report
    folder: Path
    prober: ProberProcess
    asking: Asking
    here: Probing | None


def run(report: Report, _options: argparse.Namespace) -> None:
    if os.geteuid() != 0:
        raise KitError("the prober is to run as root, and who asks it as another user")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wirewatch-kit-")))
        folder.chmod(0o755)
        here = None if replayed() else stack.enter_context(probing(report))
        prober = stack.enter_context(ProberProcess(folder))
        scene = Scene(report, folder, prober, Asking.of(folder, prober), here)
        before = here.used() if here else []
        report.note(started_in=prober.start())
        try:
            report.attempt("at rest", lambda: _rest(scene))
            report.attempt("the command", lambda: _command(scene))
            report.attempt("who comes in the middle", lambda: _gives_way(scene))
            report.attempt("the agent", lambda: behindprober.run(report, prober, scene.asking, here))
        finally:
            report.note(prober_log=prober.log())
        report.check("SIGTERM ends the prober with status 0", ok=prober.stop() == 0)
        left = here.left(before) if here else ""
        report.check("no process is left, memory is as before", ok=not left, told=left)


def _rest(scene: Scene) -> None:
    """Nobody has asked yet."""
    pid, before = scene.prober.pid, processes.cpu(scene.prober.pid)
    time.sleep(IDLE)
    cpu = processes.cpu(pid).since(before).seconds / IDLE
    resident, children = processes.standing(pid).resident, processes.children(pid)
    scene.report.note(idle={"resident": resident, "cpu": cpu, **processes.memory(pid)})
    scene.report.check(
        f"unasked it holds at most {IDLE_BYTES / 1e6:g} MB, {IDLE_CPU:g} of a core, and no other process",
        ok=resident <= IDLE_BYTES and cpu <= IDLE_CPU and not children,
        told=f"{resident / 1e6:.1f} MB, {cpu:.4f}, {children}",
    )  # fmt: skip


def _command(scene: Scene) -> None:
    """In turns with and without a prober, so that what drifts meanwhile is the same for both."""
    with Witness(scene.prober.pid) as seen:
        first = _probe(scene, scene.asking.through)
    scene.report.note(first=first)
    _judge_workers(scene, seen)
    found: dict[str, defaultdict[tuple[str, int], list[float]]] = {}
    took: defaultdict[str, list[list[float]]] = defaultdict(list)
    for number in range(ROUNDS):
        configs = (scene.asking.direct, scene.asking.through)
        for config in configs if number % 2 == 0 else reversed(configs):
            into = found.setdefault(config.stem, defaultdict(list))
            document = _probe(scene, config)
            for one in document["results"]:
                if one["size_bytes"] >= MIB:
                    into[one["op"], one["size_bytes"]].append(one["busbw"])
            took[config.stem].append([document["seconds"], document["held_seconds"], document["took"]])
    judge_busbw(scene.report, found["direct"], found["through"])
    rows = [[how, *map(statistics.median, zip(*times, strict=True))] for how, times in took.items()]
    scene.report.table(
        f"medians of {ROUNDS}, s", ["probe", "as it tells", "contexts held", "the command"], rows
    )
    after = {pid: processes.standing(pid).resident for pid in _all(scene)}
    scene.report.note(took=took, resident_after=list(after.values()))


def _all(scene: Scene) -> list[int]:
    return [scene.prober.pid, *processes.children(scene.prober.pid)]


def _probe(scene: Scene, config: Path) -> dict[str, Any]:
    """A probe that comes to its end; raises KitError when it does not."""
    status, document, seconds = scene.asking.ask(config)
    kept = {name: document[name] for name in ("outcome", "why", "seconds", "held_seconds", "results")}
    scene.report.data.setdefault("commands", []).append({"config": config.stem, "status": status, **kept})
    if document["outcome"] != "ok":
        raise KitError(f"probe {config.stem}: status {status}, {document['outcome']}: {document['why']}")
    return {**document, "took": seconds}


def _judge_workers(scene: Scene, seen: Seen) -> None:
    told = {pid: asdict(one) for pid, one in seen.workers.items()}
    scene.report.note(workers=told, most_resident=seen.most)
    rows = [[role, size / 1e6] for role, size in sorted(seen.most.items())]
    scene.report.table("most that was resident in a probe, MB", ["process", "MB"], rows)
    ours = {(one.parent, one.user) for one in seen.workers.values()}
    scene.report.check(
        f"asked by user {AGENT}, the prober alone starts a worker, as root",
        ok=(scene.prober.pid, 0) in ours and {user for _, user in ours} == {0}, told=str(ours),
    )  # fmt: skip


def judge_busbw(report: Report, direct: Busbw, through: Busbw) -> None:
    """Through the prober as without it, give or take how far apart the latter are."""
    compared = compare(direct, through)
    rows, bad = [], []
    for key, one in compared.items():
        spread = (max(direct[key]) - min(direct[key])) / one.theirs
        if abs(one.off) > max(FLOOR, spread):
            bad.append(f"{key[0]} {key[1] // MIB} MiB {percent(one.off)}")
        rows.append([*key, one.theirs / 1e9, one.ours / 1e9, percent(one.off), percent(spread)])
    header = ["collective", "bytes", "without, GB/s", "through the prober", "off", "spread without"]
    report.table(f"bus bandwidth, medians of {ROUNDS}", header, rows)
    counts = {len(values) for side in (direct, through) for values in side.values()}
    whole = direct.keys() == through.keys() and counts == {ROUNDS}
    report.check(
        "bus bandwidth through the prober is that without it, within the spread of the latter",
        ok=whole and not bad, told="; ".join(bad) or f"{len(compared)} cases",
    )  # fmt: skip


def _gives_way(scene: Scene) -> None:
    """Somebody's process comes while the prober's worker computes."""
    here = scene.here
    if here is None:
        scene.report.progress("nobody comes to a recording")
        return
    dice = random.Random(SEED)  # noqa: S311 - moments, not secrets
    trials: list[Trial] = []
    with Job("observer") as observer:
        observer.wait("READY", 60)
        for number in range(TRIALS):
            moment = dice.uniform(0, LATEST)
            scene.report.attempt(
                f"trial {number}",
                lambda number=number, moment=moment: trials.append(  # type: ignore[misc]
                    _trial(scene, here, observer, number, moment)
                ),
            )
    judge(scene.report, trials, TRIALS)


def _trial(scene: Scene, here: Probing, observer: Job, number: int, moment: float) -> Trial:
    gpu = number % len(here.gpus)
    with Job("foreign", str(gpu), user=SOMEBODY) as job:
        pid = int(job.wait("READY", 60))
        # With what it takes of every GPU by starting CUDA, before it has a context anywhere.
        before = here.used()

        def come() -> Comer:
            observer.send(json.dumps({"trial": number, "worker": here.pid(20), "foreign": pid}))
            observer.wait(f"UP{number}", 20)
            time.sleep(moment)
            job.send("go")
            began, ready, _ = map(float, job.wait("UP", 20).split(" "))
            return Comer(pid, gpu, moment, began, ready)

        with ThreadPoolExecutor(1) as pool:
            coming = pool.submit(come)
            status, document, _ = scene.asking.ask(scene.asking.lasting)
        ended = Ended(document["outcome"], document["why"], bool(document["results"]))
        comer = coming.result()
        if status != UNKNOWN:
            raise KitError(f"exit status {status}; {ended}")
        seen = json.loads(observer.wait(f"SEEN{number}", 60))
    here.left(before)
    made = trial(number, comer, ended, seen, before)
    scene.report.data.setdefault("seen", []).append(seen)
    scene.report.data.setdefault("trials", []).append(asdict(made))
    scene.report.progress(made.line())
    return made
