"""The sections of GPUs, of ports, and of the paths between GPUs and NICs. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from wirewatch.collectors.nvlink import LINK_STATES
from wirewatch.core.hostlist import natural
from wirewatch.core.nvml import UP
from wirewatch.core.words import GB, GBIT, count
from wirewatch.documents.health import ReportedFinding
from wirewatch.documents.state import Series
from wirewatch.page.content import PageContent
from wirewatch.page.findings import APART
from wirewatch.page.model import Cell, Column, Section, Sentence, Table
from wirewatch.page.tables import TONES, GpuName, Part, Readings, known, number, plain, table, unique, unknown

NO_MATTER = frozenset({"gpu_idle", "applications_clocks", "display_clocks"})
"""Reasons for low clocks that do not slow a job."""
WATCHING = ("inventory", "gpu", "nvlink", "pcie", "xid")
"""Collectors that judge single GPUs."""
GPU_HEADS = (
    Column("State"), Column("NVLink", "up", number=True), Column("NVLink errors"), Column("PCIe"),
    Column("Clocks held by"), Column("Utilisation", "%", number=True),
    Column("Power", "W", number=True), Column("Core", "°C", number=True),
    Column("Memory", "°C", number=True),
)  # fmt: skip
PORT_UP = "active"
PORT_HEADS = (
    Column("State"), Column("Wire"), Column("Rate", "Gb/s of expected", number=True), Column("Errors"),
    Column("Times down", number=True), Column("Link layer"), Column("Interface"), Column("NUMA", number=True),
    Column("Nearest to"),
)  # fmt: skip


def gpus_of(content: PageContent, here: Readings) -> tuple[GpuName, ...]:
    """Every GPU that the driver lists, the graph holds, or a finding names."""
    graph = content.topology.gpus if content.topology else ()
    listed = [
        GpuName(one.labels["gpu"], one.labels["uuid"], one.labels["pci"], one.labels["name"])
        for one in here.series.get("gpu_info", ())
    ]
    drawn = [GpuName(str(one.index), one.uuid, one.place.address, one.name) for one in graph]
    parts = [one.subject for one in content.findings.findings]
    named = [GpuName(one["gpu"], one.get("uuid", "")) for one in parts if one.get("gpu")]
    return unique([*listed, *drawn, *named])


def gpus_section(content: PageContent, here: Readings, gpus: Sequence[GpuName]) -> Section:
    if not gpus:
        seen = (inventory := here.collectors.get("inventory")) is not None and inventory.success
        why = "The driver lists no GPU." if seen else f"Not known: {here.why('inventory')}."
        return Section("gpus", "GPUs and links", (Sentence(why, "quiet" if seen else "unknown"),))
    products = ", ".join(sorted({one.product for one in gpus if one.product}))
    what = f"{count(len(gpus), 'GPU')}{f', {products}' if products else ''}."
    hint = (
        "Utilisation is the share of time in which any kernel ran: it is 100 % on all GPUs of a job that "
        "waits for one slow GPU."
    )
    lines = (Sentence(what), Sentence(hint, "quiet"))
    return Section("gpus", "GPUs and links", lines, (_table(content, here, gpus),))


def blind(here: Readings) -> list[str]:
    """Collectors of GPUs that cannot read them now."""
    return [name for name in WATCHING if name in here.collectors and not here.collectors[name].success]


def up_and_expected(here: Readings, gpu: GpuName) -> tuple[int | None, int | None]:
    """NVLinks that are up, and how many should be; None for not known."""
    states = here.by("nvlink_links", gpu.part, "state")
    up = int(sum(states.get(LINK_STATES[code], 0.0) for code in UP)) if states else None
    expected = here.value("nvlink_links_expected", gpu.part)
    return up, None if expected is None else int(expected)


def counted(errors: Mapping[str, float], why: str) -> Cell:
    """Show error counters in short: only counters above 0."""
    if not errors:
        return unknown(why)
    some = [f"{kind.replace('_', ' ')} {plain(value)}" for kind, value in errors.items() if value]
    return Cell(", ".join(some)) if some else Cell("0", "quiet")


def ports_section(here: Readings) -> Section:
    every = here.series.get("rdma_port_info", ())
    ports = sorted(every, key=lambda one: (natural(one.labels["device"]), natural(one.labels["port"])))
    away = [
        Sentence(f"{one.labels['device']} is not on this node any more: {one.labels['reason']}.", "quiet")
        for one in here.series.get("rdma_device_away_info", ())
    ]
    if not ports:
        line = here.nothing("infiniband", "This node has no RDMA port, and none is expected.")
        return Section("ports", "Ports", (line, *away))
    hint = Sentence("Errors are counted since the last reset of the NIC: old errors are no fault.", "quiet")
    lines = (Sentence(f"{count(len(ports), 'RDMA port')}."), hint, *away)
    tables = [_ports(here, ports)]
    checks = here.series.get("gpudirect_check_state", ())
    if checks:
        tables.append(_checks(here, checks))
    if carried := here.series.get("probe_nic_bytes_per_second", ()):
        tables.append(_carried(carried))
    return Section("ports", "Ports", lines, tuple(tables))


def _carried(carried: Sequence[Series]) -> Table:
    """NCCL's rate by each port alone, in the newest probe of it."""
    found = ((one.labels, number(f"{one.value / GB:.1f}")) for one in carried)
    rows = [(Cell(f"{at['device']} {at['port']}"), (Cell(at["gpudirect"]), rate)) for at, rate in found]
    heads = (Column("Port"), Column("GPUDirect"), Column("Each way", "GB/s", number=True))
    return table("nics-table", "NCCL between two GPUs over one port at a time", heads, rows)


def paths(here: Readings, gpus: Sequence[GpuName]) -> Section:
    """The PCI path from each GPU to each NIC."""
    every = (one.labels for one in here.series.get("gpu_nic_path_info", ()))
    found = {(one["uuid"] or one["gpu"], one["device"]): one for one in every}
    nics = sorted({device for _, device in found}, key=natural)
    if not nics or not gpus:
        line = here.nothing("gpudirect", "This node has no pair of a GPU and an RDMA NIC.")
        return Section("paths", "Paths between GPUs and NICs", (line,))
    rows = [
        (
            Cell(f"GPU {gpu.index}"),
            [_path(found.get((gpu.uuid or gpu.index, nic)), here, gpu) for nic in nics],
        )
        for gpu in gpus
    ]
    caption = "PCI path between GPU and NIC, the nearest of each GPU in bold"
    legend = Sentence(
        "As nvidia-smi names them, nearest first: PIX through one PCIe switch, PXB through several, PHB "
        "through the host bridge, NODE within a NUMA node, SYS between NUMA nodes.", "quiet",
    )  # fmt: skip
    made = table("path-table", caption, (Column("GPU"), *(Column(nic) for nic in nics)), rows, dense=True)
    return Section("paths", "Paths between GPUs and NICs", (legend,), (made,))


def _table(content: PageContent, here: Readings, gpus: Sequence[GpuName]) -> Table:
    rows = []
    split = content.topology.split if content.topology else ()
    for gpu in gpus:
        head = Cell(f"GPU {gpu.index}", note=gpu.pci)
        # In MIG mode no process can use the links, and the driver shows them as down.
        links = [Cell("not watched", "quiet")] * 2 if gpu.uuid in split else _links(here, gpu)
        rows.append((head, (_state(content, here, gpu), *links, _pcie(here, gpu), *_board(here, gpu))))
    caption = "GPUs: state, temperature, power, NVLink and PCIe"
    return table("gpu-table", caption, (Column("GPU"), *GPU_HEADS), rows)


def _state(content: PageContent, here: Readings, gpu: GpuName) -> Cell:
    """The worst of its findings; UNKNOWN while a collector of GPUs cannot read."""
    mine = [one for one in content.health.findings if _is_of(one, gpu)]
    unseen = blind(here)
    if unseen and not any(one.health == "failed" for one in mine):
        return Cell("UNKNOWN", "unknown", note=f"not read: {', '.join(unseen)}", strong=True)
    if not mine:
        apart = [one for one in content.findings.findings if one.stage in APART and _is_of(one, gpu)]
        return Cell("OK", "good", note=", ".join(f"{one.rule} {one.stage}" for one in apart))
    worst, more = mine[0].health, f" and {len(mine) - 1} more" if len(mine) > 1 else ""
    return Cell(worst.upper(), TONES[worst], note=f"{mine[0].rule}{more}", strong=True)


def _is_of(finding: ReportedFinding, gpu: GpuName) -> bool:
    part = finding.subject
    if part.get("uuid") and gpu.uuid:
        return part["uuid"] == gpu.uuid
    return bool(part.get("gpu")) and part["gpu"] == gpu.index


def _board(here: Readings, gpu: GpuName) -> Iterator[Cell]:
    why = here.why("gpu", gpu.part)
    reasons = here.by("clocks_event_active", gpu.part, "reason")
    holding = [name for name, on in reasons.items() if on and name not in NO_MATTER]
    nothing = Cell("nothing", "quiet") if reasons else unknown(why)
    yield Cell(", ".join(holding).replace("_", " "), "warn") if holding else nothing
    used = here.value("gpu_utilization_ratio", gpu.part)
    yield known(used, f"{(used or 0.0) * 100:.0f}", why)
    power = here.value("gpu_power_watts", gpu.part)
    yield known(power, f"{power or 0.0:.0f}", why)
    heat = here.by("gpu_temperature_celsius", gpu.part, "sensor")
    for sensor in ("core", "memory"):
        yield known(heat.get(sensor), plain(heat.get(sensor, 0.0)), why)


def _links(here: Readings, gpu: GpuName) -> Iterator[Cell]:
    up, expected = up_and_expected(here, gpu)
    if not here.applies("nvlink"):
        wired = bool(here.of("nvlink_peer_links", gpu.part))
        yield from [Cell("not watched" if wired else "none", "quiet")] * 2
        return
    why = here.why("nvlink", gpu.part)
    if up is None:
        yield unknown(why)
    elif not up and not expected:
        yield Cell("none", "quiet")
    else:
        short = expected is not None and up < expected
        text = f"{up} of {'?' if expected is None else expected}"
        yield Cell(text, "bad" if short else "", number=True, strong=short)
    yield counted(here.by("nvlink_errors_total", gpu.part, "kind"), why)


def _pcie(here: Readings, gpu: GpuName) -> Cell:
    names = ("pcie_generation", "pcie_generation_max", "pcie_width", "pcie_width_max")
    generation, best, width, widest = (here.value(name, gpu.part) for name in names)
    if generation is None or width is None:
        return unknown(here.why("pcie", gpu.part))
    narrow = widest is not None and width < widest
    slow = best is not None and generation < best
    lanes = f"x{width:.0f}{f' of x{widest:.0f}' if narrow else ''}"
    text = f"gen {generation:.0f}{f' of {best:.0f}' if slow else ''} {lanes}"
    return Cell(text, "bad" if narrow else "", strong=narrow)


def _ports(here: Readings, ports: Sequence[Series]) -> Table:
    named = ((one, "{device} port {port}".format(**one.labels)) for one in ports)
    rows = [(Cell(name, note=one.labels["model"]), _port(here, one)) for one, name in named]
    return table("port-table", "RDMA ports: state, rate and errors", (Column("Port"), *PORT_HEADS), rows)


def _port(here: Readings, info: Series) -> Iterator[Cell]:
    part = {"device": info.labels["device"], "port": info.labels["port"]}
    why = here.why("infiniband", part)
    state = here.state("rdma_port_state", part)
    yield _word(state, PORT_UP, why)
    yield _word(here.state("rdma_port_physical_state", part), "link_up", why)
    yield _rate(here, part, "it has none while it is down" if state == "down" else why)
    yield counted(here.by("rdma_port_errors_total", part, "kind"), why)
    downed = here.value("rdma_port_link_downed_total", part)
    yield unknown(why) if downed is None else number(plain(downed), "warn" if downed else "quiet")
    for name in ("link_layer", "netdev"):
        yield Cell(info.labels[name]) if info.labels[name] else unknown("sysfs does not have it")
    numa = info.labels["numa"]
    yield number(numa) if numa else unknown("the firmware does not give it")
    nearest = here.of("gpu_nic_path_info", {"device": part["device"], "nearest": "true"})
    near = [one.labels["gpu"] for one in nearest]
    yield Cell(f"GPU {', '.join(near)}") if near else Cell("no GPU", "quiet")


def _word(state: str | None, good: str, why: str) -> Cell:
    if state is None:
        return unknown(why)
    fine = state == good
    return Cell((state or "other").replace("_", " "), "good" if fine else "bad", strong=not fine)


def _rate(here: Readings, part: Part, why: str) -> Cell:
    rate = here.value("rdma_port_rate_bytes_per_second", part)
    expected = here.value("rdma_port_rate_expected_bytes_per_second", part)
    if rate is None:
        return unknown(why)
    slow = expected is not None and rate < expected
    best = f" of {plain(expected / GBIT)}" if expected is not None else ""
    return Cell(f"{plain(rate / GBIT)}{best}", "bad" if slow else "", number=True, strong=slow)


def _checks(here: Readings, checks: Sequence[Series]) -> Table:
    rows = []
    for name in dict.fromkeys(one.labels["check"] for one in checks):
        part = {"check": name}
        state = here.state("gpudirect_check_state", part)
        needs = next((one.labels["privilege"] for one in here.of("gpudirect_check_needs_info", part)), "")
        found: dict[str | None, Cell] = {
            "passed": Cell("passed", "good"), "failed": Cell("failed", "bad", strong=True),
        }  # fmt: skip
        why = f"it needs {needs}" if needs and needs != "none" else "nothing on this node shows it"
        rows.append((Cell(name.replace("_", " ")), (found.get(state, unknown(why)),)))
    return table("direct-table", "What GPUDirect RDMA needs", (Column("Check"), Column("Result")), rows)


def _path(labels: Mapping[str, str] | None, here: Readings, gpu: GpuName) -> Cell:
    if labels is None:
        return unknown(here.why("gpudirect", gpu.part))
    if labels["path"] == "unknown":
        return unknown("the PCI tree does not show where both are")
    near = labels["nearest"] == "true"
    return Cell(labels["path"], "" if near else "quiet", aside="nearest" if near else "", strong=near)
