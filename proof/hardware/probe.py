"""probe: the probe against nccl-tests on the same GPUs, its path proof, and what it takes from the node."""

import argparse
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from proof.hardware import probecost, probedefault
from proof.hardware.comparing import compare, farthest, percent
from proof.hardware.kit import KitError, Report, chosen
from proof.hardware.nccltests import ITERATIONS, WARMUP, NcclTests, smallest
from proof.hardware.probing import Probing, probing
from wirewatch.core.probe import MIB, OPS, Probed
from wirewatch.probe.measurement import measure

ROUNDS = 5
SIZES = (256 * MIB, 1024 * MIB)
WITHIN = 0.02
LATENCY_WITHIN = 0.20
GRAPHS = 5
ORACLE = "nccl-tests"
ENGINES = {"nccl": "graph", "torch": "stream"}
"""How each launches small messages."""
NOTHING_ELSE: Mapping[str, Any] = {"copy_bytes": 0, "micro": False}

Key = tuple[str, int]
"""Collective and bytes."""
Values = dict[Key, list[float]]


def run(report: Report, options: argparse.Namespace) -> None:
    with probing(report) as here:
        oracle = NcclTests(options.nccl_tests, len(here.gpus))
        report.note(gpus=[gpu.uuid for gpu in here.gpus], nccl_tests=oracle.ran)
        # The first probe on this machine shows what a cold start costs.
        pieces = {
            "cost": lambda: probecost.run(here, oracle),
            "default": lambda: probedefault.run(here, oracle),
            "parity": lambda: parity(here, oracle),
            "latency": lambda: latency(here, oracle),
        }
        for kind in chosen(options.kinds, pieces):
            report.attempt(kind, pieces[kind])


def parity(here: Probing, oracle: NcclTests) -> None:
    """Rounds in which nccl-tests and both engines take turns, so that a slow drift favours none."""
    plan = {"bandwidth": tuple((size, ITERATIONS) for size in SIZES), "warmup": WARMUP, "latency_sizes": ()}
    found: dict[str, Values] = defaultdict(lambda: defaultdict(list))
    names = [ORACLE, *ENGINES]
    for number in range(ROUNDS):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            here.report.progress(f"parity: round {number + 1} of {ROUNDS}, {name}")
            if name == ORACLE:
                _ask_oracle(oracle, found[name])
            else:
                _ask_probe(here, f"parity {name}", found[name], engine=name, **plan, **NOTHING_ELSE)
    for engine in ENGINES:
        _judge_parity(here.report, engine, found)
    _same_library(here.report, oracle)


def _ask_oracle(oracle: NcclTests, into: Values) -> None:
    for op in OPS:
        table = oracle.sizes(op, *SIZES)
        for size in SIZES:
            into[op, size].append(table.row(size).in_place.busbw)


def _ask_probe(here: Probing, what: str, into: Values, **order: Any) -> Probed | None:
    """One probe's bus bandwidths; one that fails is a limit that fails, and the rounds go on."""
    probed = here.run(what, **order)
    if probed.outcome != "ok":
        here.report.check(f"{what}: the probe came to its end", ok=False, told=probed.why)
        return None
    for one in measure(probed):
        into[one.op, one.size_bytes].append(one.busbw)
    return probed


def _judge_parity(report: Report, engine: str, found: Mapping[str, Values]) -> None:
    compared = compare(found[ORACLE], found[engine])
    rows = [
        [op, size // MIB, one.theirs / 1e9, one.ours / 1e9, percent(one.off), f"{100 * one.spread:.2f} %"]
        for (op, size), one in compared.items()
    ]
    header = ["collective", "MiB", "nccl-tests, GB/s", "probe, GB/s", "off", "spread"]
    report.table(f"bus bandwidth in place by engine {engine}, medians of {ROUNDS}", header, rows)
    report.note(**{f"parity_{engine}": {str(key): values for key, values in found[engine].items()}})
    worst = farthest(compared)
    told = f"worst {worst[0][0]} of {worst[0][1] // MIB} MiB: {percent(worst[1])}" if worst else "nothing"
    whole = len(compared) == len(OPS) * len(SIZES)
    report.check(
        f"engine {engine} within {100 * WITHIN:g} % of nccl-tests",
        ok=whole and worst is not None and abs(worst[1]) <= WITHIN, told=told,
    )  # fmt: skip


def _same_library(report: Report, oracle: NcclTests) -> None:
    theirs = {one["nccl"] for one in oracle.ran}
    ours = {
        one["document"]["versions"].get("nccl", "")
        for one in report.data.get("probes", ())
        if one["document"]
    }
    ok = len(theirs) == 1 and theirs == ours
    report.check("the same NCCL on both sides", ok=ok, told=f"nccl-tests {theirs}, probes {ours}")


def latency(here: Probing, oracle: NcclTests) -> None:
    """The smallest messages that both measured; without a graph only for information."""
    ranks = len(here.gpus)
    sizes = {op: smallest(op, ranks) for op in OPS}
    plan = {"latency_sizes": tuple(sorted(set(sizes.values()))), "bandwidth": (), **NOTHING_ELSE}
    found: dict[str, Values] = defaultdict(lambda: defaultdict(list))
    for number in range(ROUNDS):
        here.report.progress(f"latency: round {number + 1} of {ROUNDS}")
        for op, size in sizes.items():
            found["graph"][op, size].append(oracle.small(op, graphs=GRAPHS).in_place.seconds)
            found["stream"][op, size].append(oracle.small(op).in_place.seconds)
        for engine, launch in ENGINES.items():
            try:
                _times(here.must(f"latency {engine}", engine=engine, **plan), launch, found[engine])
            except KitError as error:
                here.report.check(
                    f"latency by engine {engine}, round {number + 1}", ok=False, told=str(error)
                )
    for engine, launch in ENGINES.items():
        _judge_latency(here.report, engine, launch, found)


def _times(probed: Probed, launch: str, into: Values) -> None:
    """Seconds by collective and size.

    Raises:
        KitError: not launched in the way that belongs to the engine.
    """
    assert probed.document is not None
    for one in probed.document.collectives:
        if one.launch != launch:
            raise KitError(f"{one.op} of {one.size_bytes} B was launched from a {one.launch}, not a {launch}")
        into[one.op, one.size_bytes].append(one.seconds)


def _judge_latency(report: Report, engine: str, launch: str, found: Mapping[str, Values]) -> None:
    compared = compare(found[launch], found[engine])
    rows = [
        [op, size, 1e6 * one.theirs, 1e6 * one.ours, percent(one.off), f"{100 * one.spread:.1f} %"]
        for (op, size), one in compared.items()
    ]
    header = ["collective", "bytes", "nccl-tests, us", "probe, us", "off", "spread"]
    report.table(f"latency from a {launch} by engine {engine}, medians of {ROUNDS}", header, rows)
    report.note(**{f"latency_{engine}": {str(key): values for key, values in found[engine].items()}})
    report.check(f"engine {engine} tells that it launches from a {launch}", ok=len(compared) == len(OPS))
    worst = farthest(compared)
    if launch == "graph":
        told = f"worst {worst[0][0]}: {percent(worst[1])}" if worst else "nothing"
        report.check(
            f"latency by engine {engine} within {100 * LATENCY_WITHIN:g} % of nccl-tests -G {GRAPHS}",
            ok=worst is not None and abs(worst[1]) <= LATENCY_WITHIN, told=told,
        )  # fmt: skip
