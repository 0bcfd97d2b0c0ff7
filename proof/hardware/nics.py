"""nics: the component of NICs on this machine: its RDMA ports, sockets inside it, and wires that tc slows.

Without RDMA ports two GPUs stand at the ends of wires between two network namespaces: one of three is slowed
and has to be named. Inside one namespace no NIC carries sockets, and that has to be said.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Literal

from proof.hardware.kit import KitError, Report
from tests.system.rails import Watched, laid
from wirewatch.cli.hardware import live
from wirewatch.config import Config
from wirewatch.core.ports import Hardware
from wirewatch.core.types import Absent, Expect, Finding
from wirewatch.probe.model import ProbeOptions
from wirewatch.probe.nics import NicsMemory, list_rails

Engine = Literal["gloo", "distributed"]
RATE, SLOW = 2e9, 1e9
"""Bits per second of a wire each way, and of the one that is slowed."""
LEAST = 0.75
"""Share of a wire's rate that carries data at least: tc counts heads too."""
KERNEL = "the kernel turned its sockets around"
PAIR = 2


def run(report: Report, options: argparse.Namespace) -> None:
    """Every piece by itself; the wires take root."""
    engine: Engine = options.engine
    hardware, nvml = live(Config())
    try:
        gpus = hardware.nvml.gpus()
        if engine != "gloo":
            if isinstance(gpus, Absent) or len(gpus) < PAIR:
                raise KitError("it takes two GPUs")
            report.note(gpus=[gpu.name for gpu in gpus])
            report.attempt("RDMA ports", partial(_of_ports, report, hardware))
        if os.geteuid():
            raise KitError("network namespaces take root")
        report.attempt("sockets inside the node", partial(_inside, report, hardware, engine))
        report.attempt("wires", partial(_of_wires, report, hardware, engine))
    finally:
        nvml.stop()


def _of_ports(report: Report, hardware: Hardware) -> None:
    """All RDMA ports that NCCL takes, as a daemon would probe them in a day."""
    rails = list_rails(hardware, ProbeOptions(), Expect())
    if isinstance(rails, Absent):
        raise KitError(f"the ports cannot be listed: {rails}")
    report.note(rails=asdict(rails))
    if rails.names:
        node = Watched(hardware, (), "", engine="nccl")
        found = node.day()
        _keep(report, "ports", node.memory, found)
        told = [one.evidence for one in found] or ["nothing found"]
        report.check(
            "each RDMA port was measured", ok=measured(node.memory, rails.names), told="; ".join(told)
        )


def measured(memory: NicsMemory, rails: Sequence[str]) -> bool:
    """Whether a probe shows something of each of these rails."""
    return {job.rail for job in memory.results} == {*rails} != set()


def _inside(report: Report, hardware: Hardware, engine: Engine) -> None:
    with laid(1, RATE) as rails:
        node = Watched(hardware, rails.names, "", engine=engine)
        found = [one for one in node.day() if one.subject.device in rails.names]
        _keep(report, "inside", node.memory, found)
    told = "; ".join(one.why for _, one in node.memory.failed.values())
    ok = not found and not node.memory.results and KERNEL in told
    report.check("sockets inside the node prove nothing, and that is said", ok=ok, told=told)


def _of_wires(report: Report, hardware: Hardware, engine: Engine) -> None:
    with laid(3, RATE) as rails:
        node, slow = Watched(hardware, rails.names, rails.far, engine=engine), rails.names[1]
        rounds: dict[str, tuple[Mapping[str, float], tuple[Finding, ...]]] = {}
        for title, rate in (("healthy", RATE), ("slowed", SLOW), ("healthy again", RATE)):
            rails.hold(slow, rate)
            found = tuple(one for one in node.day() if one.subject.device in rails.names)
            rounds[title] = (node.rates(), found)
            _keep(report, title, node.memory, found)
    judge(report, rounds, rails.names, slow)


def judge(
    report: Report, rounds: Mapping[str, tuple[Mapping[str, float], tuple[Finding, ...]]],
    rails: Sequence[str], slow: str,
) -> None:  # fmt: skip
    """Whether the slowed rail was named while it was slow, and no other ever."""
    for title, (rates, found) in rounds.items():
        slowed = title == "slowed"
        due = {rail: (SLOW if slowed and rail == slow else RATE) / 8 for rail in rails}
        told = ", ".join(f"{rail} {rates.get(rail, 0.0) / 1e9:.3f} GB/s" for rail in rails)
        carried = all(LEAST * each <= rates.get(rail, 0.0) <= each for rail, each in due.items())
        report.check(f"{title}: each wire carries what tc lets through", ok=carried, told=told)
        named = [(one.rule, one.subject.device) for one in found]
        wanted = [("nics.slow", slow)] if slowed else []
        said = "; ".join(one.evidence for one in found) or "nobody"
        report.check(
            f"{title}: {'the slow wire' if slowed else 'nobody'} is named", ok=named == wanted, told=said
        )


def _keep(report: Report, title: str, memory: NicsMemory, found: Sequence[Finding]) -> None:
    results = {f"{job.rail} {job.direct}": asdict(one) for job, (_, one) in memory.results.items()}
    failed = {f"{job.rail} {job.direct}": one.why for job, (_, one) in memory.failed.items()}
    probes = [(past.outcome, past.why, past.seconds) for past in memory.gate.past]
    words = [(one.rule, one.health.name, str(one.subject), one.evidence) for one in found]
    report.note(**{title: {"results": results, "failed": failed, "findings": words, "probes": probes}})
