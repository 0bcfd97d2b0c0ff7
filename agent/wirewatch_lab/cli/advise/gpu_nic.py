"""`wirewatch advise gpu-nic`: which RDMA ports each GPU should use, and what a job sets for it."""

import time
from collections.abc import Iterator
from pathlib import Path

import click

from wirewatch.busbw.expected import pcie_rate
from wirewatch.cli.groups import examples
from wirewatch.cli.output import printable, shown
from wirewatch.cli.tables import table
from wirewatch.core.rdma import gigabits
from wirewatch.core.types import Absent
from wirewatch.core.words import GB
from wirewatch_lab.advice.gpunic.locality import Locality
from wirewatch_lab.advice.gpunic.mapping import SAME, map_nics
from wirewatch_lab.advice.gpunic.settings import (
    GPU_NIC,
    AdvisedGpu,
    GpuNicDocument,
    cpu_bindings,
    document,
    job_settings,
    slurm_binding,
    unsettable,
    wrapper,
)
from wirewatch_lab.advice.machine import AdvisedMachine
from wirewatch_lab.advice.shell import quoted
from wirewatch_lab.cli.advise.machines import ChosenMachine, machine_options
from wirewatch_lab.study.logsummary import count

ITSELF = (
    "NCCL finds the nearest ports by itself. Set variables where ports are left out above, or where a log of "
    "NCCL shows another choice (`wirewatch parse LOG`), and measure with and without."
)
_FAR = frozenset({"PHB", "NODE", "SYS"})
HOST = (
    "a path over the host bridge is beyond what NCCL takes for GPUDirect RDMA by default (PXB): data goes "
    "through host memory"
)


@click.command("gpu-nic", epilog=examples("wirewatch advise gpu-nic --replay demo-dgx-h200"))
@machine_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
@click.option(
    "--format", "form", type=click.Choice(["table", "shell"]), default="table", show_default=True,
    help="`shell`: a script that starts one rank with its settings.",
)  # fmt: skip
def gpu_nic(
    *, topology: str | None, described: str | None, measured: tuple[Path, ...], replay: str | None,
    overlays: tuple[str, ...], config_file: Path | None, as_json: bool, form: str,
) -> None:  # fmt: skip
    """Map each GPU to its nearest active RDMA ports and processors, and show what a job sets to use them.

    Each GPU gets the nearest port that is up, all ports of one network get as even a load as that allows, and
    ports of storage and management are left out with the reason. Nothing is changed. Exit codes: 0 done; 64
    wrong usage, or a file that cannot be read; 78 the node itself cannot be read.
    """
    if as_json and form == "shell":
        raise click.UsageError("--json and --format shell are two outputs: give one")
    machine = ChosenMachine(topology, described, measured, replay, overlays, config_file).read()
    near = machine.locality
    if isinstance(near, Absent):
        raise click.UsageError(
            f"{machine.of}: nothing is known of its network cards: {near.detail}; pass --topology or --replay"
        )
    found = map_nics(near, _gpu_rate(machine))
    if isinstance(found, Absent):
        raise click.UsageError(f"{machine.of}: {found.detail}")
    settings, bindings = job_settings(found), cpu_bindings(found, near)
    if form == "shell":
        click.echo(wrapper(found, settings, bindings), nl=False)
        return
    slurm = slurm_binding(bindings, len(found.gpus))
    remarks = tuple(filter(None, (*_cpu_remarks(near), unsettable(found))))
    made = document(time.time(), machine.of, found, settings, bindings, slurm, remarks)
    click.echo(GPU_NIC.dump_json(made, indent=1).decode() if as_json else shown(_lines(made)))


def _gpu_rate(machine: AdvisedMachine) -> float | None:
    """Bytes per second of a GPU's PCIe link."""
    for one in machine.conditions:
        if not isinstance(one.pcie, Absent):
            rate = pcie_rate(one.pcie.generation, one.pcie.lanes)
            return None if isinstance(rate, Absent) else rate
    return None


def _cpu_remarks(near: Locality) -> Iterator[str]:
    lists = {near.cpus.get(gpu.uuid, "") for gpu in near.gpus}
    if lists == {""}:
        yield "processors near the GPUs are not known here: local_cpulist of each GPU in sysfs has them"
    elif len(lists) == 1 and len(near.gpus) > 1:
        yield "all GPUs are near the same processors: binding to them changes nothing"


def _lines(made: GpuNicDocument) -> Iterator[str]:
    used = {(port.device, port.port) for gpu in made.gpus for port in gpu.ports}
    network = f", {made.layer}" if made.layer else ""
    yield f"{made.of}: {count(len(made.gpus), 'GPU')}, {count(len(used), 'RDMA port')} in use{network}"
    if not used:
        yield (
            "No GPU has a port: there is no RDMA port that is up."
            if made.left_out
            else ("No RDMA port is here: nothing is to be mapped, and nothing is wrong with that.")
        )
    elif not made.visible and len(used) > 1:
        yield f"{_alike(made)} The ports are spread evenly by number, which is as good as any way."
    yield ""
    yield from table(
        ("rank", "GPU", "NUMA", "ports", "path", "rate", "share GB/s", "processors"), [*_rows(made)]
    )
    yield from _notes(made)
    yield from _settings(made)
    yield from _processors(made)


def _alike(made: GpuNicDocument) -> str:
    paths = {port.path for gpu in made.gpus for port in gpu.ports}
    known = next(iter(paths)) if len(paths) == 1 else ""
    return f"Every path is {known}: no difference is visible." if known else f"Mapping {SAME}."


def _rows(made: GpuNicDocument) -> Iterator[tuple[str, ...]]:
    for gpu in made.gpus:
        rates = {port.rate_bytes_per_second for port in gpu.ports}
        rate = next(iter(rates)) if len(rates) == 1 else None
        yield (
            str(gpu.rank), str(gpu.gpu), "-" if gpu.numa is None else str(gpu.numa),
            ", ".join(_port(port.device, port.port) for port in gpu.ports) or "none",
            ", ".join(dict.fromkeys(port.path or "not known" for port in gpu.ports)) or "-",
            "-" if rate is None else gigabits(rate), _share(gpu), gpu.cpus or "not known",
        )  # fmt: skip


def _share(gpu: AdvisedGpu) -> str:
    return "-" if gpu.share_bytes_per_second is None else f"{gpu.share_bytes_per_second / GB:.1f}"


def _port(device: str, port: str) -> str:
    return f"{device}:{port}" if port else device


def _notes(made: GpuNicDocument) -> Iterator[str]:
    yield ""
    if made.layer or any(gpu.ports for gpu in made.gpus):
        yield f"share: {made.source}; derived, and what a healthy node reaches of it is unproven."
    yield from (f"GPU {gpu.gpu}: {gpu.loss}" for gpu in made.gpus if gpu.loss)
    far = [str(gpu.gpu) for gpu in made.gpus if any(port.path in _FAR for port in gpu.ports)]
    if far:
        yield f"GPU {', '.join(far)}: {HOST}"
    yield from made.remarks
    if made.left_out:
        yield ""
        yield "Left out:"
        yield from table(("port", "why"), [(one.port, one.why) for one in made.left_out])


def _settings(made: GpuNicDocument) -> Iterator[str]:
    if not made.settings:
        return
    yield ""
    yield "What a job sets:"
    yield f"  {ITSELF}"
    shown_reasons: set[str] = set()
    for one in made.settings:
        where = "" if one.rank is None else f"rank {one.rank}: "
        word = "" if one.recommended else "(not needed) "
        yield f"  {where}{word}{one.name}={quoted(one.value)}"
        reason = f"    {one.why}. Not for: {one.when_not}."
        last = [other for other in made.settings if other.why == one.why][-1]
        if one is last and reason not in shown_reasons:
            shown_reasons.add(reason)
            yield reason


def _processors(made: GpuNicDocument) -> Iterator[str]:
    if not made.cpus:
        return
    yield ""
    yield "Processors, in front of the program of a rank (--format shell writes a script of all this):"
    for command in dict.fromkeys(one.command for one in made.cpus):
        ranks = ", ".join(str(one.rank) for one in made.cpus if one.command == command)
        yield f"  rank {ranks}: {printable(command)}"
    if made.slurm:
        yield f"  srun {made.slurm.gpu_bind} {made.slurm.mask_cpu}"
        yield f"  one processor a task: srun {made.slurm.map_gpu} {made.slurm.map_cpu}"
        yield f"    Not for: {made.slurm.when_not}."
