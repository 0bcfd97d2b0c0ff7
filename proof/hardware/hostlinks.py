"""hostlinks: copies between each GPU and the host beside a reference, faults by name, and what a probe costs.

Of one GPU or more, in some three minutes; compiles the reference with cc. What this machine cannot show, such
as a far NUMA node where there is one, is said and is no limit.
"""

import argparse
import os
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from proof.hardware.kit import KitError, Report
from proof.hardware.probing import Probing, loaded, probing
from wirewatch.core.ports import Order
from wirewatch.core.probe import MIB, Plan, Probed
from wirewatch.core.tree import count_nodes
from wirewatch.core.types import Absent, Finding, value_or
from wirewatch.probe.hostlinks import HostLink, host_links, uplinks
from wirewatch.probe.hostpaths import HOST_BYTES, read_paths
from wirewatch.probe.judge import fold_probe
from wirewatch.probe.model import ProbeMemory, ProbePolicy

ROUNDS, WITHIN = 5, 0.03
REFERENCE, RUNS = 256 * MIB, 8
HEALTHY, FAULTY = 8, 3
"""Probes before a fault, of which five make a history, and with it."""
SEEN = 0.12
"""The least loss that is named: four times the noise that is assumed."""
COUNTED = 0.15
"""How far PCIe's counters may be from the bytes of the copies: packets and other traffic come on top."""
COSTS, HELD = 4, 0.5
"""Pairs of default plans, and seconds of contexts that host links may add."""


def run(report: Report, _options: argparse.Namespace) -> None:
    with probing(report, least=1) as here, tempfile.TemporaryDirectory(prefix="wirewatch-kit-") as folder:
        paths = read_paths(here.hardware, here.gpus)
        report.note(gpus=[gpu.uuid for gpu in here.gpus], paths=[str(path) for path in paths])
        report.attempt("the reference", lambda: _beside(here, compiled(Path(folder))))
        before: list[ProbeMemory] = []
        report.attempt("healthy probes", lambda: before.append(_healthy(here)))
        for memory in before:
            report.attempt("the far node", partial(_far, here, memory))
            report.attempt("a copying neighbour", partial(_neighbour, here, memory))
        report.attempt("the cost", lambda: _cost(here))


def compiled(folder: Path) -> Path:
    """The reference program; raises CalledProcessError or OSError without a compiler."""
    source, made = Path(__file__).parent / "jobs" / "hostcopies.c", folder / "hostcopies"
    subprocess.run(["cc", "-O2", "-o", str(made), str(source), "-ldl"], check=True)
    return made


def order(here: Probing, near: Sequence[str] | None = None) -> Order:
    """Host links alone; `near`: other CPUs than those near each GPU."""
    paths = read_paths(here.hardware, here.gpus)
    plan = Plan(
        "nccl", tuple(gpu.uuid for gpu in here.gpus), (), (), (), (), copy_bytes=0, micro=False,
        host_bytes=HOST_BYTES, near=tuple(near or (path.cpus for path in paths)),
    )  # fmt: skip
    return Order(plan, here.gpus, (), {}, lambda: None, "command", paths=paths)


def probe(
    here: Probing, what: str, near: Sequence[str] | None = None, worker: Sequence[str] | None = None
) -> Probed:
    """One probe of the host links; raises KitError where it measured none."""
    probed = here.prober(worker=worker).run(order(here, near))
    here.keep(what, probed)
    if probed.outcome != "ok" or not host_links(probed):
        raise KitError(f"probe {what}: {probed.outcome}: {probed.why or probed.shown.no_hosts}")
    return probed


def folded(memory: ProbeMemory, probes: Sequence[Probed]) -> ProbeMemory:
    """The memory after these probes, ten minutes apart."""
    for number, probed in enumerate(probes):
        memory = fold_probe(memory, replace(probed, forced=False), 600.0 * number, ProbePolicy())
    return memory


def reference(program: Path, here: Probing) -> dict[str, tuple[float, ...]]:
    """Bytes per second to each GPU, from it, and each way at once, by UUID."""
    paths = read_paths(here.hardware, here.gpus)
    wanted = [f"{gpu.uuid}={path.cpus or '-'}" for gpu, path in zip(here.gpus, paths, strict=True)]
    line = [str(program), str(REFERENCE), str(RUNS), *wanted]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise KitError(f"hostcopies: status {done.returncode}: {done.stderr.strip()}")
    return parsed(done.stdout)


def parsed(text: str) -> dict[str, tuple[float, ...]]:
    """What the reference prints, as rates."""
    rows = (line.split() for line in text.splitlines())
    return {uuid: tuple(REFERENCE / float(seconds) for seconds in times) for uuid, *times in rows}


def _beside(here: Probing, program: Path) -> None:
    ours: list[Sequence[HostLink]] = []
    theirs: list[Mapping[str, tuple[float, ...]]] = []
    for number in range(ROUNDS):
        here.report.progress(f"beside the reference: round {number + 1} of {ROUNDS}")
        # Every other round begins with the probe, so that a slow drift favours neither.
        if number % 2:
            ours.append(host_links(probe(here, "beside the reference")))
        theirs.append(reference(program, here))
        if number % 2 == 0:
            ours.append(host_links(probe(here, "beside the reference")))
    compare(here.report, [gpu.uuid for gpu in here.gpus], ours, theirs)
    counted = [one.counted for links in ours for one in links if one.counted is not None]
    if not counted:
        here.report.progress("not shown: this driver counts no PCIe bytes")
        here.report.note(counters="not shown")
        return
    here.report.check(
        f"PCIe's counters are within {COUNTED:.0%} of the bytes copied",
        ok=all(abs(one - 1) <= COUNTED for one in counted),
        told=f"{min(counted):.2f} to {max(counted):.2f} in {len(counted)} readings",
    )


def compare(
    report: Report, uuids: Sequence[str], ours: Sequence[Sequence[HostLink]],
    theirs: Sequence[Mapping[str, tuple[float, ...]]],
) -> None:  # fmt: skip
    """Medians of the rounds, GPU by GPU and direction by direction."""
    rows: list[list[object]] = []
    off: list[float] = []
    for place, uuid in enumerate(uuids):
        mine = [next(one for one in links if one.copies.gpu == place) for links in ours]
        rates = [(one.ways[0].rate, one.ways[1].rate, one.both) for one in mine]
        for way, name in enumerate(("to it", "from it", "both, each")):
            middle = statistics.median(one[way] for one in rates)
            oracle = statistics.median(one[uuid][way] for one in theirs)
            rows.append([place, name, middle / 1e9, oracle / 1e9, f"{middle / oracle - 1:+.1%}"])
            off += [middle / oracle - 1] if name != "both, each" else []
    header = ["gpu", "way", "probe", "reference", "off"]
    report.table("host links beside the reference, GB/s, medians", header, rows)
    report.check(
        f"each GPU and direction within {WITHIN:.0%} of the reference",
        ok=bool(off) and max(map(abs, off)) <= WITHIN,
        told=f"worst {max(off, key=abs):+.1%} of {len(off)}" if off else "nothing was compared",
    )


def _healthy(here: Probing) -> ProbeMemory:
    memory = folded(ProbeMemory(), [probe(here, "healthy") for _ in range(HEALTHY)])
    said = "; ".join(f"{one.rule} {one.subject}: {one.evidence}" for one in memory.held)
    here.report.check(f"{HEALTHY} healthy probes name nobody", ok=not said, told=said)
    assert memory.last is not None
    rows = [
        [
            one.copies.gpu, *(way.rate / 1e9 for way in one.ways), one.both / 1e9,
            *(way.together / 1e9 for way in one.ways), "-" if one.worst is None else f"{one.worst[0]:.0%}",
            one.ran_at or "-", one.copies.near,
            str(one.expected) if isinstance(one.expected, Absent) else one.expected.derivation[-1],
        ]
        for one in host_links(memory.last)
    ]  # fmt: skip
    header = ["gpu", "to", "from", "both", "all to", "all from", "of expected", "link", "near", "derivation"]
    title = f"the last of them, GB/s; GPUs on one root port: {uplinks(memory.last) or 'none known'}"
    here.report.table(title, header, rows)
    return memory


def named(findings: Sequence[Finding], uuid: str) -> bool:
    """Whether exactly this GPU's host link is called slow."""
    slow = {one.subject.uuid for one in findings if one.rule.endswith(".host_link")}
    return slow == {uuid}


def loss(healthy: Probed, slow: Probed, gpu: int) -> float:
    """What a GPU has lost of its way there and back."""
    rates = [
        next(2 / sum(1 / way.rate for way in one.ways) for one in host_links(probed) if one.copies.gpu == gpu)
        for probed in (healthy, slow)
    ]
    return 1 - rates[1] / rates[0]


def judge(
    report: Report, what: str, uuid: str, gpu: int, before: ProbeMemory, probes: Sequence[Probed]
) -> None:
    """A loss that can be told from noise is named, and a smaller one names nobody."""
    memory = folded(before, probes)
    assert before.last is not None
    lost = min(loss(before.last, one, gpu) for one in probes)
    said = "; ".join(f"{one.health.name} {one.rule} {one.subject}: {one.evidence}" for one in memory.held)
    right = named(memory.held, uuid) if lost >= SEEN else not memory.held or named(memory.held, uuid)
    report.check(
        f"{what}: {'named' if lost >= SEEN else 'too little to be named, and nobody else is'}", ok=right,
        told=f"it lost {lost:.1%} at least; {said or 'nobody is named'}",
    )  # fmt: skip


def _far(here: Probing, before: ProbeMemory) -> None:
    paths, sysfs = read_paths(here.hardware, here.gpus), here.hardware.sysfs
    nodes = range(count_nodes(sysfs) or 1)
    lists = [value_or(sysfs.read(f"/sys/devices/system/node/node{node}/cpulist"), "") for node in nodes]
    far = next((cpus for cpus in lists if cpus and cpus != paths[0].cpus), "")
    if not far or not paths[0].cpus:
        known = paths[0].cpus or "unknown"
        here.report.progress(f"not shown: a far node ({len(nodes)} NUMA nodes, GPU 0 near CPUs {known})")
        here.report.note(far_node="not shown")
        return
    near = [far, *(path.cpus for path in paths[1:])]
    probes = [probe(here, "far", near) for _ in range(FAULTY)]
    judge(here.report, "GPU 0 from the far node", here.gpus[0].uuid, 0, before, probes)


def _neighbour(here: Probing, before: ProbeMemory) -> None:
    """The load is in the worker's own process, since the gate ends a probe beside another."""
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    place = len(here.gpus) - 1
    worker = loaded("host", here.gpus[place].index)
    probes = [probe(here, "neighbour", worker=worker) for _ in range(FAULTY)]
    judge(here.report, f"GPU {place} beside other copies", here.gpus[place].uuid, place, before, probes)


def _cost(here: Probing) -> None:
    if len(here.gpus) < 2:
        here.report.progress("not shown: the cost of a default probe, which takes two GPUs")
        here.report.note(cost="not shown")
        return
    here.must("cost, warm-up")
    rows: list[list[float]] = []
    for number in range(COSTS):
        turns = [0, HOST_BYTES][:: -1 if number % 2 else 1]
        found = {size: here.must(f"cost {size}", host_bytes=size) for size in turns}
        without, beside = found[0], found[HOST_BYTES]
        if host_links(without) or not host_links(beside):
            raise KitError(f"host links were not measured as asked: {beside.shown.no_hosts}")
        rows.append([without.seconds, beside.seconds, without.held_seconds, beside.held_seconds])
    header = ["without", "with", "held without", "held with"]
    here.report.table("a default probe without and with host links, s", header, rows)
    more = statistics.median(row[3] - row[2] for row in rows)
    told = f"median {more:.2f} s"
    here.report.check(f"host links hold the GPUs for <= {HELD:g} s more", ok=more <= HELD, told=told)
