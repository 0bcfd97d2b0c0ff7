"""cost: what watching takes from the node, at default intervals with single links on."""

import argparse
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from proof.hardware import processes
from proof.hardware.daemon import DEFAULTS, WIRES, Daemon
from proof.hardware.kit import KitError, Report, quantile
from proof.hardware.processes import Cpu

SCRAPE_EVERY = 15.0
START_UP = 20.0

CPU_PERCENT = 0.8
CPU_PER_NVML = 1.2
PSS_BYTES = 130e6
SCRAPE_P99 = 0.010

POLLED = (*WIRES, "topology")
"""Collectors whose polls are mostly NVML; the others are in the CPU of the process."""


@dataclass(frozen=True)
class Moment:
    """Totals so far, `polls` in the agent itself, and the scrape that was taken just before."""

    mono: float
    agent: Cpu
    child: Cpu
    nvml: float
    polls: float
    scrape_seconds: float


def run(report: Report, options: argparse.Namespace) -> None:
    periods = int((options.seconds - START_UP) // SCRAPE_EVERY)
    if periods < 1:
        raise KitError(f"--seconds must be at least {START_UP + SCRAPE_EVERY:g}")
    with Daemon(DEFAULTS) as daemon:
        _until(daemon.started + START_UP)
        child = _child(daemon)
        first = _moment(daemon, child)
        scrapes = [_later(daemon, first.mono + n * SCRAPE_EVERY) for n in range(1, periods)]
        _until(first.mono + periods * SCRAPE_EVERY)
        last = _moment(daemon, child)
        report.check("the NVML process is the same one all the time", ok=daemon.child() == child)
        memory = {"agent": processes.memory(daemon.pid), "nvml": processes.memory(child)}
        report.note(ready_after_seconds=daemon.ready_after, threads=_threads(daemon.pid))
    scrapes += [first.scrape_seconds, last.scrape_seconds]
    _report_cpu(report, first, last)
    _report_start(report, first, last, periods)
    _report_memory(report, memory)
    _report_scrapes(report, scrapes)


def _until(mono: float) -> None:
    time.sleep(max(0.0, mono - time.monotonic()))


def _later(daemon: Daemon, mono: float) -> float:
    _until(mono)
    return daemon.get("/metrics").seconds


def _child(daemon: Daemon) -> int:
    child = daemon.child()
    if child is None:
        raise KitError(f"there is no NVML process; the daemon wrote: {daemon.log()}")
    return child


def _moment(daemon: Daemon, child: int) -> Moment:
    """Totals of now.

    The NVML seconds lag by a poll, at both ends of a window of whole intervals: their growth is true.
    """
    scrape = daemon.scrape()
    nvml = scrape.value("agent_nvml_seconds_total")
    if nvml is None:
        raise KitError("/metrics has no agent_nvml_seconds_total")
    polls = sum(scrape.value("collector_cpu_seconds_total", collector=name) or 0.0 for name in POLLED)
    return Moment(
        time.monotonic(), processes.cpu(daemon.pid), processes.cpu(child), nvml, polls, scrape.seconds
    )


def _threads(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())


def _report_cpu(report: Report, first: Moment, last: Moment) -> None:
    length = last.mono - first.mono
    parts = {"agent": last.agent.since(first.agent), "nvml": last.child.since(first.child)}
    rows = [
        [name, use.exact, use.ticks, use.seconds, 100 * use.seconds / length] for name, use in parts.items()
    ]
    both = sum(use.seconds for use in parts.values())
    nvml = last.nvml - first.nvml
    rows.append(["both", None, None, both, 100 * both / length])
    rows.append(["inside NVML (wall)", None, None, nvml, 100 * nvml / length])
    header = ["process", "CPU s (schedstat)", "CPU s (ticks)", "taken", "% of a core"]
    report.table(f"CPU over {length:.0f} s after the first {START_UP:.0f} s", header, rows)
    percent = 100 * both / length
    report.check(
        f"CPU of both <= {CPU_PERCENT} % of a core", ok=percent <= CPU_PERCENT, told=f"{percent:.3f} %"
    )
    polls = last.polls - first.polls
    ratio = (polls + parts["nvml"].seconds) / nvml if nvml > 0 else float("inf")
    told = f"{ratio:.3f} = ({1e3 * polls:.1f} + {1e3 * parts['nvml'].seconds:.1f}) / {1e3 * nvml:.1f} ms"
    report.check(f"CPU of the polls / NVML seconds <= {CPU_PER_NVML}", ok=ratio <= CPU_PER_NVML, told=told)
    rows = [["polls in the agent and the NVML process", ratio], ["everything, scrapes included", both / nvml]]
    report.table("CPU for each second inside NVML", ["of", "s"], rows)


def _report_start(report: Report, first: Moment, last: Moment, periods: int) -> None:
    """The start holds the one reading of single links; from it, the worst case of a reading every 600 s."""
    length = last.mono - first.mono
    both = (last.agent.seconds - first.agent.seconds) + (last.child.seconds - first.child.seconds)
    start = first.agent.seconds + first.child.seconds
    # By START_UP two polls have ended, of which the agent has published the first.
    detail = max(0.0, first.nvml - (last.nvml - first.nvml) / periods)
    rows = [
        ["CPU of the first 20 s, agent", first.agent.seconds],
        ["CPU of the first 20 s, NVML process", first.child.seconds],
        ["CPU of the first 20 s, both", start],
        ["NVML seconds of the first poll over those of a later one", detail],
        ["% of a core with that once in 600 s added", 100 * (both / length + detail / 600)],
    ]
    report.table("start-up (no limit)", ["what", "value"], rows)


def _report_memory(report: Report, memory: dict[str, dict[str, int]]) -> None:
    kinds = ("pss", "rss", "private")
    rows = [[name, *(use[k] / 1e6 for k in kinds)] for name, use in memory.items()]
    rows.append(["both", *(sum(use[k] for use in memory.values()) / 1e6 for k in kinds)])
    report.table("memory at the end, MB (10^6)", ["process", *kinds], rows)
    both = sum(use["pss"] for use in memory.values())
    report.check(
        f"PSS of both <= {PSS_BYTES / 1e6:.0f} MB", ok=both <= PSS_BYTES, told=f"{both / 1e6:.1f} MB"
    )


def _report_scrapes(report: Report, seconds: list[float]) -> None:
    report.note(scrape_seconds=seconds)
    p99 = quantile(seconds, 0.99)
    row = [len(seconds), 1e3 * statistics.median(seconds), 1e3 * p99, 1e3 * max(seconds)]
    report.table("scrapes, ms", ["scrapes", "median", "p99", "max"], [row])
    told = f"{1e3 * p99:.2f} ms of {len(seconds)}"
    report.check(f"scrape p99 <= {1e3 * SCRAPE_P99:.0f} ms", ok=p99 <= SCRAPE_P99, told=told)
