"""GPUs and their links, one row each. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from wirewatch.collectors.nvlink import LINK_STATES
from wirewatch.core.nvml import UP
from wirewatch.export.healthdocuments import Finding, Health
from wirewatch.export.page.cells import cell, known, table, unknown
from wirewatch.export.page.findings import APART
from wirewatch.export.page.model import Cell, Head, Line, Section, Table, Tone
from wirewatch.export.page.readings import GpuName, Readings, unique
from wirewatch.export.page.told import Told
from wirewatch.export.page.words import count, plain

TONES: dict[Health, Tone] = {"ok": "good", "degraded": "warn", "unknown": "unknown", "failed": "bad"}
NO_MATTER = frozenset({"gpu_idle", "applications_clocks", "display_clocks"})
"""Reasons for low clocks that hold nothing back."""
WATCHING = ("inventory", "gpu", "nvlink", "pcie", "xid")
"""Collectors that judge single GPUs."""
GPU_HEADS = (
    Head("State"), Head("NVLink", "up", number=True), Head("NVLink errors"), Head("PCIe"),
    Head("Clocks held by"), Head("Utilisation", "%", number=True),
    Head("Power", "W", number=True), Head("Core", "°C", number=True),
    Head("Memory", "°C", number=True),
)  # fmt: skip


def gpus_of(told: Told, here: Readings) -> tuple[GpuName, ...]:
    """Every GPU that the driver lists, the graph holds, or a finding names."""
    graph = told.topology.gpus if told.topology else ()
    listed = [
        GpuName(one.labels["gpu"], one.labels["uuid"], one.labels["pci"], one.labels["name"])
        for one in here.series.get("gpu_info", ())
    ]
    drawn = [GpuName(str(one.index), one.uuid, one.place.address, one.name) for one in graph]
    parts = [one.subject for one in told.findings.findings]
    named = [GpuName(one["gpu"], one.get("uuid", "")) for one in parts if one.get("gpu")]
    return unique([*listed, *drawn, *named])


def gpus_section(told: Told, here: Readings, gpus: Sequence[GpuName]) -> Section:
    if not gpus:
        inventory = here.collectors.get("inventory")
        seen = inventory is not None and inventory.success
        why = "The driver lists no GPU." if seen else f"Not known: {here.why('inventory')}."
        return Section("gpus", "GPUs and links", (Line(why, "quiet" if seen else "unknown"),))
    products = ", ".join(sorted({one.product for one in gpus if one.product}))
    told_of = f"{count(len(gpus), 'GPU')}{f', {products}' if products else ''}."
    hint = (
        "Utilisation is the share of time in which any kernel ran: in a job that waits for one slow GPU "
        "it reads 100 % on all of them."
    )
    return Section(
        "gpus", "GPUs and links", (Line(told_of), Line(hint, "quiet")), (_table(told, here, gpus),)
    )


def _table(told: Told, here: Readings, gpus: Sequence[GpuName]) -> Table:
    rows = []
    for gpu in gpus:
        head = cell(f"GPU {gpu.index}", note=gpu.pci)
        rows.append(
            (head, (_state(told, here, gpu), *_links(here, gpu), _pcie(here, gpu), *_board(here, gpu)))
        )
    return table(
        "gpu-table", "GPUs: state, temperature, power, NVLink and PCIe", (Head("GPU"), *GPU_HEADS), rows
    )


def _state(told: Told, here: Readings, gpu: GpuName) -> Cell:
    """The worst of its findings; while somebody who watches GPUs sees nothing, nobody is OK."""
    mine = [one for one in told.health.findings if _of(one, gpu)]
    unseen = blind(here)
    if unseen and not any(one.health == "failed" for one in mine):
        return Cell("UNKNOWN", "unknown", note=f"not read: {', '.join(unseen)}", strong=True)
    if not mine:
        apart = [one for one in told.findings.findings if one.stage in APART and _of(one, gpu)]
        return Cell("OK", "good", note=", ".join(f"{one.rule} {one.stage}" for one in apart))
    first = mine[0]
    more = f" and {len(mine) - 1} more" if len(mine) > 1 else ""
    return Cell(first.health.upper(), TONES[first.health], note=f"{first.rule}{more}", strong=True)


def blind(here: Readings) -> list[str]:
    """Collectors of GPUs that see none of them now."""
    return [name for name in WATCHING if name in here.collectors and not here.collectors[name].success]


def _of(finding: Finding, gpu: GpuName) -> bool:
    told = finding.subject
    if told.get("uuid") and gpu.uuid:
        return told["uuid"] == gpu.uuid
    return bool(told.get("gpu")) and told["gpu"] == gpu.index


def _board(here: Readings, gpu: GpuName) -> Iterator[Cell]:
    why = here.why("gpu", gpu.part)
    reasons = here.by("clocks_event_active", gpu.part, "reason")
    holding = [name for name, on in reasons.items() if on and name not in NO_MATTER]
    if not reasons:
        yield unknown(why)
    else:
        yield (
            Cell(", ".join(one.replace("_", " ") for one in holding), "warn")
            if holding
            else cell("nothing", "quiet")
        )
    used = here.value("gpu_utilization_ratio", gpu.part)
    yield known(used, f"{(used or 0.0) * 100:.0f}", why)
    power = here.value("gpu_power_watts", gpu.part)
    yield known(power, f"{power or 0.0:.0f}", why)
    heat = here.by("gpu_temperature_celsius", gpu.part, "sensor")
    for sensor in ("core", "memory"):
        yield known(heat.get(sensor), plain(heat.get(sensor, 0.0)), why)


def up_and_expected(here: Readings, gpu: GpuName) -> tuple[int | None, int | None]:
    """NVLinks that are up, and how many should be; None for not known."""
    states = here.by("nvlink_links", gpu.part, "state")
    up = int(sum(states.get(LINK_STATES[code], 0.0) for code in UP)) if states else None
    expected = here.value("nvlink_links_expected", gpu.part)
    return up, None if expected is None else int(expected)


def _links(here: Readings, gpu: GpuName) -> Iterator[Cell]:
    up, expected = up_and_expected(here, gpu)
    if up is None and not here.applies("nvlink"):
        # In MIG mode the wires are there, and nobody can use them.
        wired = bool(here.of("nvlink_peer_links", gpu.part))
        yield from [cell("not watched" if wired else "none here", "quiet")] * 2
        return
    why = here.why("nvlink", gpu.part)
    if up is None:
        yield unknown(why)
    elif not up and not expected:
        yield cell("none", "quiet")
    else:
        short = expected is not None and up < expected
        yield Cell(
            f"{up} of {'?' if expected is None else expected}",
            "bad" if short else "",
            number=True,
            strong=short,
        )
    yield counted(here.by("nvlink_errors_total", gpu.part, "kind"), why)


def counted(errors: Mapping[str, float], why: str) -> Cell:
    """Error counters in short: only those that have counted anything."""
    if not errors:
        return unknown(why)
    some = [f"{kind.replace('_', ' ')} {plain(value)}" for kind, value in errors.items() if value]
    return cell(", ".join(some)) if some else cell("0", "quiet")


def _pcie(here: Readings, gpu: GpuName) -> Cell:
    names = ("pcie_generation", "pcie_generation_max", "pcie_width", "pcie_width_max")
    generation, best, width, widest = (here.value(name, gpu.part) for name in names)
    if generation is None or width is None:
        return unknown(here.why("pcie", gpu.part))
    narrow = widest is not None and width < widest
    slow = best is not None and generation < best
    lanes = f"x{width:.0f}{f' of x{widest:.0f}' if narrow else ''}"
    return Cell(
        f"gen {generation:.0f}{f' of {best:.0f}' if slow else ''} {lanes}",
        "bad" if narrow else "",
        strong=narrow,
    )
