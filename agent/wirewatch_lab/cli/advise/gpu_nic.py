"""`wirewatch advise gpu-nic`: which RDMA ports each GPU should use, and what a job sets for it."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import click

from wirewatch.busbw.expected import pcie_rate
from wirewatch.cli.groups import RenamingCommand, examples
from wirewatch.cli.templates import render
from wirewatch.core.rdma import gigabits
from wirewatch.core.statistics import grouped
from wirewatch.core.types import Absent, value_or
from wirewatch.core.words import GB, first, printable
from wirewatch_lab.advice.gpunic.locality import ETHERNET, Locality
from wirewatch_lab.advice.gpunic.mapping import SAME, GpuNicMap, Reach, map_nics, reach
from wirewatch_lab.advice.gpunic.settings import (
    GPU_NIC,
    ORDER,
    CpuBinding,
    GpuNicDocument,
    JobSetting,
    cpu_bindings,
    document,
    is_named,
    job_settings,
    port_name,
    slurm_binding,
    unsettable,
)
from wirewatch_lab.advice.machine import AdvisedMachine
from wirewatch_lab.advice.settings.plugins import NetworkPlugin, plugin_of
from wirewatch_lab.advice.shell import quoted
from wirewatch_lab.cli.advise.machines import ChosenMachine, machine_options, named_network, network_options
from wirewatch_lab.cli.machinenames import MACHINE
from wirewatch_lab.cli.texts import written

LINES, MOST_ROWS = 11, 8
"""Limits of a first answer: lines of GPUs with notes, and GPUs; the answer has at most four lines more."""
_FAR = frozenset({"PHB", "NODE", "SYS"})


@click.command(
    "gpu-nic",
    cls=RenamingCommand,
    renamed=MACHINE,
    epilog=examples("wirewatch advise gpu-nic --replay demo-dgx-h200"),
)
@machine_options
@network_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
@click.option(
    "--format", "form", type=click.Choice(["table", "shell"]), default="table", show_default=True,
    help="`shell`: a script that starts one rank with its settings.",
)  # fmt: skip
def gpu_nic(
    *, machine: str | None, network: str | None, explain: bool, as_json: bool, form: str, **given: Any
) -> None:  # fmt: skip
    """Map each GPU to its nearest active RDMA ports and processors, and show what a job sets to use them.

    Each GPU gets the nearest port that is up, all ports of one network get as even a load as that allows, and
    ports of storage and management are left out with the reason. Nothing is changed. Exit codes: 0 done; 64
    wrong usage, or a file that cannot be read; 69 the node itself cannot be read.
    """
    if as_json and form == "shell":
        raise click.UsageError("--json and --format shell are two outputs: give one")
    known = ChosenMachine.of(machine, given).read()
    joined = named_network(network) or known.network
    plugin = plugin_of(joined) if joined else None
    near = known.locality
    if isinstance(near, Absent) and plugin and not plugin.reads_ib and known.conditions:
        near = Locality(known.conditions[0].group.gpus, (), stated=False)
    if isinstance(near, Absent):
        raise click.UsageError(
            f"{known.of}: nothing is known of its network cards: {near.detail}; pass --machine or --replay"
        )
    if joined and plugin and plugin.interfaces and (near.interfaces or not near.ports):
        ports = tuple(replace(one, rate=value_or(one.rate, joined.nic_rate)) for one in near.interfaces)
        near = replace(near, ports=ports, others=())
    found = map_nics(near, _gpu_rate(known))
    if isinstance(found, Absent):
        raise click.UsageError(f"{known.of}: {found.detail}")
    settings, bindings = job_settings(found, plugin), cpu_bindings(found, near)
    if form == "shell":
        click.echo(wrapper(found, settings, bindings), nl=False)
        return
    slurm = slurm_binding(bindings, len(found.gpus))
    asked = _question(found, near, plugin)
    remarks = tuple(filter(None, (asked, unsettable(found, plugin), *_cpu_remarks(near))))
    made = document(time.time(), known.of, found, settings, bindings, slurm, remarks, plugin)
    click.echo(GPU_NIC.dump_json(made, indent=1).decode() if as_json else gpu_nic_text(made, explain=explain))


def _gpu_rate(machine: AdvisedMachine) -> float | None:
    """Bytes per second of a GPU's PCIe link."""
    links = (one.pcie for one in machine.conditions)
    rates = (pcie_rate(one.generation, one.lanes) for one in links if not isinstance(one, Absent))
    return next((value_or(rate, None) for rate in rates), None)


def _question(found: GpuNicMap, near: Locality, plugin: NetworkPlugin | None) -> str:
    """Return a question when no port is mapped and GPUs may send by network interfaces; else empty."""
    if found.ports():
        return ""
    if plugin and plugin.interfaces:
        give = "pass --machine with the file of NCCL_TOPO_DUMP_FILE, or ask on the node"
        return f"which network interface is near which GPU is not known here: {give}"
    ways = {one.device: map(reach, one.paths) for one in near.interfaces}
    by_switch = [device for device, reached in ways.items() if Reach.SWITCH in reached]
    if not by_switch:
        return ""
    names = first(by_switch, MOST_ROWS)
    ask = "do GPUs send by them (GPUDirect-TCPX, -TCPXO)? Say --network a3-high or a3-mega"
    return f"{names} are below the switches of GPUs: {ask}"


def _cpu_remarks(near: Locality) -> Iterator[str]:
    lists = {near.cpus.get(gpu.uuid, "") for gpu in near.gpus}
    if lists == {""}:
        yield "processors near the GPUs are not known here: local_cpulist of each GPU in sysfs has them"
    elif len(lists) == 1 and len(near.gpus) > 1:
        yield "all GPUs are near the same processors: binding to them changes nothing"


def gpu_nic_text(made: GpuNicDocument, *, explain: bool) -> str:
    """Return the mapping for people: in short, or with the settings of a job and all reasons."""
    commands = grouped((one.command, one.rank) for one in made.cpus)
    paths = {port.path for gpu in made.gpus for port in gpu.ports}
    known = next(iter(paths)) if len(paths) == 1 else ""
    alike = f"Every path is {known}: no difference is visible." if known else f"Mapping {SAME}."
    used = {(port.device, port.port) for gpu in made.gpus for port in gpu.ports}
    far = [gpu.gpu for gpu in made.gpus if any(port.path in _FAR for port in gpu.ports)]
    rows, notes = [*_rows(made)], [*_notes(made, far)]
    shown = min(len(rows), MOST_ROWS) if used else 0
    return written(
        "gpu_nic.j2", made, used=used, alike=alike, rows=rows if explain else rows[:shown], far=far,
        left_out=[(one.port, one.why) for one in made.left_out], explain=explain,
        kind="RDMA port" if made.plugin is None or made.layer != ETHERNET else "network interface",
        notes=notes[: LINES - shown], more=len(notes[LINES - shown :]) + bool(used) * (len(rows) - shown),
        commands={printable(command): ranks for command, ranks in commands.items()}, quoted=quoted,
    )  # fmt: skip


def _notes(made: GpuNicDocument, far: Sequence[int]) -> Iterator[str]:
    """Yield the job's settings, faults and oddities, a line each."""
    whole = [one for one in made.settings if one.recommended and one.rank is None and one.name != ORDER]
    if whole:
        yield "Set " + " ".join(f"{one.name}={quoted(one.value)}" for one in whole)
    elif made.settings:
        yield "Set nothing: NCCL finds the nearest ports by itself"
    yield from (f"GPU {gpu.gpu}: {gpu.loss}" for gpu in made.gpus if gpu.loss)
    if far:
        yield f"GPU {', '.join(map(str, far))}: over the host bridge, where NCCL leaves GPUDirect RDMA off"
    yield from made.remarks
    for why, ports in grouped((one.why, one.port) for one in made.left_out).items():
        yield f"left out: {', '.join(ports)}: {why}"


def wrapper(found: GpuNicMap, settings: Sequence[JobSetting], bindings: Sequence[CpuBinding]) -> str:
    """Return a script that starts the program of one rank with its settings and processors."""
    titles = []
    for seat in found.gpus:
        named = [one for one in seat.ports if is_named(one.port)]
        ways = ", ".join(f"{port_name(one.port)} {one.path or 'path not known'}" for one in named)
        titles.append(f"GPU {seat.gpu.index}: {ways or 'no port'}")
    near = {one.rank: one for one in bindings}
    values = {"gpus": titles, "settings": settings, "bindings": near, "quoted": quoted}
    return render("wirewatch_lab.cli", "gpu_nic.sh.j2", **values) + "\n"


def _rows(made: GpuNicDocument) -> Iterator[tuple[str, ...]]:
    for gpu in made.gpus:
        rates = {port.rate_bytes_per_second for port in gpu.ports}
        rate = next(iter(rates)) if len(rates) == 1 else None
        share = gpu.share_bytes_per_second
        yield (
            str(gpu.rank), str(gpu.gpu), "-" if gpu.numa is None else str(gpu.numa),
            ", ".join(f"{one.device}:{one.port}" if one.port else one.device for one in gpu.ports) or "none",
            ", ".join(dict.fromkeys(port.path or "not known" for port in gpu.ports)) or "-",
            "-" if rate is None else gigabits(rate), "-" if share is None else f"{share / GB:.1f}",
            gpu.cpus or "not known",
        )  # fmt: skip
