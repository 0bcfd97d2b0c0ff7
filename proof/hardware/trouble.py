"""Workers that die, hang or talk nonsense, GPUs that are full or alone: it is reported, and nothing stays."""

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from proof.hardware.job import Job
from proof.hardware.probing import LONG, Probing, as_document, command
from wirewatch.core.ports import Answer, Gpu, Nvml, NvmlCost, Question
from wirewatch.core.types import Absent, Expect, Health
from wirewatch.probe.gate import SkipReason
from wirewatch.probe.model import ProbeOptions, ProbePolicy
from wirewatch.probe.request import ProbeOverrides, probe_now

SOON = 0.5
"""Seconds after its contexts are up at which a worker gets a signal."""
SHORT, HANGING = 0.5, 12.0
"""Deadlines in seconds: before a worker has contexts, and long after one that works would have ended."""
LEAVE_MIB = 300
UNKNOWN = 3
GARBAGE = ("-c", 'import os, sys; os.write(int(sys.argv[1]), b\'{"schema": "of nothing"}\')')

Case = Callable[[Probing], None]


def run(here: Probing) -> None:
    cases: Mapping[str, Case] = {
        "a killed worker": killed,
        "a worker that hangs": hanging,
        "a deadline that is too short": late,
        "a worker that talks nonsense": garbage,
        "a worker that sees one GPU": hidden,
        "a node with one GPU": alone,
        "a full GPU": full,
    }
    for name, case in cases.items():
        here.report.progress(name)
        here.report.attempt(name, lambda case=case: case(here))  # type: ignore[misc]


def ends(here: Probing, name: str, outcomes: Sequence[str], why: str = "", **order: Any) -> None:
    """A probe that has to end in one of these ways, say why, and leave nothing behind."""
    before = here.used()
    began = time.monotonic()
    probed = here.run(name, **order)
    seconds = time.monotonic() - began
    document = as_document(probed)
    here.report.check(
        f"{name}: {' or '.join(outcomes)}", ok=probed.outcome in outcomes and why in probed.why,
        told=f"{probed.outcome} after {seconds:.2f} s: {probed.why}",
    )  # fmt: skip
    here.report.check(
        f"{name}: health unknown, no result", ok=document["health"] == "unknown" and not document["results"],
        told=document["health"],
    )  # fmt: skip
    left = here.left(before)
    here.report.check(f"{name}: no process is left, memory is as before", ok=not left, told=left)


def _signalled(here: Probing, number: signal.Signals, work: Callable[[], None]) -> None:
    """Do the work while another thread sends its worker a signal in the middle of it."""

    def send() -> None:
        pid = here.pid()
        here.up(pid)
        time.sleep(SOON)
        os.kill(pid, number)

    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(send)
        work()
    sent.result()


def killed(here: Probing) -> None:
    name = "worker killed in the middle"
    _signalled(here, signal.SIGKILL, lambda: ends(here, name, ("failed",), **LONG))


def hanging(here: Probing) -> None:
    name = "worker stopped in the middle"
    _signalled(here, signal.SIGSTOP, lambda: ends(here, name, ("timeout",), deadline=HANGING, **LONG))


def late(here: Probing) -> None:
    ends(here, f"deadline of {SHORT:g} s", ("timeout",), deadline=SHORT)


def garbage(here: Probing) -> None:
    ends(here, "worker that talks nonsense", ("garbage",), worker=GARBAGE)


def hidden(here: Probing) -> None:
    name = "CUDA_VISIBLE_DEVICES=0"
    ends(here, name, ("failed",), "CUDA_VISIBLE_DEVICES", changes={"CUDA_VISIBLE_DEVICES": "0"})


@dataclass(frozen=True)
class FirstGpu:
    """The NVML port of a node that has the first GPU alone."""

    nvml: Nvml

    def session(self) -> int:
        return self.nvml.session()

    def gpus(self) -> Sequence[Gpu] | Absent:
        found = self.nvml.gpus()
        return found if isinstance(found, Absent) else found[:1]

    def ask(self, gpu: str | None, questions: Sequence[Question]) -> Sequence[Answer]:
        return self.nvml.ask(gpu, questions)

    def seek(self) -> None:
        self.nvml.seek()

    def cost(self) -> NvmlCost:
        return self.nvml.cost()


def alone(here: Probing) -> None:
    hardware = replace(here.hardware, nvml=FirstGpu(here.hardware.nvml), probe=here.prober())
    asked = probe_now(hardware, ProbeOptions(engine="nccl"), ProbePolicy(), Expect(), ProbeOverrides(), None)
    reason = asked.refusal.reason if asked.refusal else None
    here.report.check(
        "one GPU: no probe, reason few_gpus, health unknown",
        ok=reason is SkipReason.FEW_GPUS and asked.probed is None and asked.health is Health.UNKNOWN,
        told=str(asked.refusal),
    )


def full(here: Probing) -> None:
    """Another process holds nearly all memory of the first GPU."""
    before = here.used()
    with Job("foreign", "0", "--leave", str(LEAVE_MIB)) as holder:
        holder.wait("READY", 60)
        holder.send("go")
        free = holder.wait("UP", 60).split(" ")[-1]
        here.report.progress(f"GPU 0 has {int(free) >> 20} MiB left")
        _full_command(here, "a full GPU: the gate refuses, reason busy", (), ("skipped",), "busy: ")
        outcomes = ("out_of_memory", "failed")
        _full_command(here, "a full GPU, forced: it cannot be done", ("--force",), outcomes, "")
    left = here.left(before)
    here.report.check("a full GPU: no process is left, memory is as before", ok=not left, told=left)


def _full_command(
    here: Probing, name: str, arguments: Sequence[str], outcomes: Sequence[str], why: str
) -> None:
    status, document, seconds = command(*arguments)
    here.report.note(**{name: {"status": status, "seconds": seconds, "document": document}})
    right = document["outcome"] in outcomes and document["why"].startswith(why)
    here.report.check(
        f"{name}, exit status {UNKNOWN}, health unknown",
        ok=right and status == UNKNOWN and document["health"] == "unknown",
        told=f"{status}, {document['outcome']}, health {document['health']}: {document['why']}",
    )
