"""A real daemon whose collectors run many times as often as in service: its memory over hours of polls."""

import asyncio
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from proof.hardware import processes
from proof.siege.clients import Address, scrape
from proof.siege.daemon import ROOT, Besieged, Ground, Start
from wirewatch.catalogue import discover
from wirewatch.probe.model import ProbeOptions

FASTER = 15.0
SCRAPE, SAMPLE = 15.0 / FASTER, 10.0
"""Seconds between two scrapes in both formats, and between two looks."""
FORMATS = ("text/plain;version=0.0.4", "application/openmetrics-text;version=1.0.0")
_CHANGE = '[[change]]\nport = "nvml"\nmatch = "{match}"\nfrom = {start}\nuntil = {end}\nset = {value}\n'
FAULTS = (("gpu4/Field(165,3)", "0"), ("gpu6/ComputeRunningProcesses()", "[{pid = 4242}]"))
PERIOD, LASTS = 120, 20
"""Seconds between two faults, and those that each lasts."""


@dataclass(frozen=True, slots=True)
class Held:
    """What the daemon and the process that answers for NVML hold after `minutes`; memory in bytes."""

    minutes: float
    daemon: int
    nvml: int
    descriptors: int
    threads: int


def settings() -> str:
    """Every interval divided; the collectors that `Ground` has already set are left out."""
    done = ("agent", "gpu", "inventory", "nvlink", "pcie", "infiniband", "xid")
    others = [one for one in discover() if one.name not in done]
    sections = [f"[collectors.{one.name}]\ninterval = {one.options.interval / FASTER:g}\n" for one in others]
    usual = ProbeOptions()
    probe = f"interval = {usual.interval / FASTER:g}\nprobe_interval = {usual.probe_interval / FASTER:g}\n"
    probe += "settle = 0.0\nbudget = 1.0\n"
    return "".join((*sections, "[probe]\n", probe))


def faults(seconds: float) -> str:
    """A link that goes down and comes back, and a process on a GPU, in turn."""
    made = []
    for number in range(int(seconds) // PERIOD + 1):
        match, value = FAULTS[number % len(FAULTS)]
        start = number * PERIOD + PERIOD // 2
        made.append(_CHANGE.format(match=match, value=value, start=start, end=start + LASTS))
    return "".join(made)


async def _scrapes(address: Address, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for accept in FORMATS:
            streams = await asyncio.open_connection(*address)
            await scrape(streams, {"Accept": accept, "Connection": "close"})
            streams[1].close()
            await streams[1].wait_closed()
        await asyncio.sleep(SCRAPE)


def hold(seconds: float) -> list[Held]:
    """Run one for so long, and look every SAMPLE seconds."""
    with tempfile.TemporaryDirectory(prefix="siege-") as name:
        ground, held = Ground(ROOT, Path(name)), []
        (ground.folder / "faults.toml").write_text(faults(seconds), "utf-8")
        start = Start(config=settings(), arguments=("--overlay", str(ground.folder / "faults.toml")))
        with Besieged(ground, start) as daemon:
            began = time.monotonic()
            while (now := time.monotonic() - began) < seconds:
                asyncio.run(_scrapes(daemon.address, SAMPLE))
                size, below = daemon.size(), processes.children(daemon.pid)
                nvml = sum(processes.memory(pid)["pss"] for pid in below[-1:])
                held.append(Held(round(now / 60, 2), size.pss, nvml, size.descriptors, size.threads))
    return held
