"""RDMA ports, the checks of GPUDirect, and which NIC is near which GPU. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from wirewatch.export.documents import Series
from wirewatch.export.page.cells import cell, number, table, unknown
from wirewatch.export.page.gpus import counted
from wirewatch.export.page.model import Cell, Head, Line, Section, Table
from wirewatch.export.page.readings import GpuName, Part, Readings
from wirewatch.export.page.words import GBIT, count, plain
from wirewatch.verdict.drift.graph import natural

PORT_UP = "active"
PORT_HEADS = (
    Head("State"), Head("Wire"), Head("Rate", "Gb/s of expected", number=True), Head("Errors"),
    Head("Times down", number=True), Head("Link layer"), Head("Interface"), Head("NUMA", number=True),
    Head("Nearest to"),
)  # fmt: skip


def ports_of(here: Readings) -> list[Series]:
    """One series for each port that is read now, in their natural order."""
    return sorted(
        here.series.get("rdma_port_info", ()),
        key=lambda one: (natural(one.labels["device"]), natural(one.labels["port"])),
    )


def ports_section(here: Readings) -> Section:
    ports = ports_of(here)
    away = [
        Line(f"{one.labels['device']} was here and is elsewhere: {one.labels['reason']}.", "quiet")
        for one in here.series.get("rdma_device_away_info", ())
    ]
    if not ports:
        line = (
            Line(f"Not known: {here.why('infiniband')}.", "unknown")
            if here.applies("infiniband")
            else Line("There are no RDMA ports here, and none are expected.", "quiet")
        )
        return Section("ports", "Ports", (line, *away))
    hint = Line("Errors are counted since the card was reset: old ones are no fault.", "quiet")
    lines = (Line(f"{count(len(ports), 'RDMA port')}."), hint, *away)
    tables = [_ports(here, ports)]
    checks = here.series.get("gpudirect_check_state", ())
    if checks:
        tables.append(_checks(here, checks))
    return Section("ports", "Ports", lines, tuple(tables))


def _ports(here: Readings, ports: Sequence[Series]) -> Table:
    rows = []
    for one in ports:
        device, port = one.labels["device"], one.labels["port"]
        rows.append((cell(f"{device} port {port}", note=one.labels["model"]), tuple(_port(here, one))))
    return table("port-table", "RDMA ports: state, rate and errors", (Head("Port"), *PORT_HEADS), rows)


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
        yield cell(info.labels[name]) if info.labels[name] else unknown("sysfs does not tell it")
    numa = info.labels["numa"]
    yield number(numa) if numa else unknown("the firmware does not tell it")
    near = [
        one.labels["gpu"]
        for one in here.of("gpu_nic_path_info", {"device": part["device"], "nearest": "true"})
    ]
    yield cell(f"GPU {', '.join(near)}") if near else cell("no GPU", "quiet")


def _word(state: str | None, good: str, why: str) -> Cell:
    if state is None:
        return unknown(why)
    fine = state == good
    return Cell((state or "another").replace("_", " "), "good" if fine else "bad", strong=not fine)


def _rate(here: Readings, part: Part, why: str) -> Cell:
    rate = here.value("rdma_port_rate_bytes_per_second", part)
    expected = here.value("rdma_port_rate_expected_bytes_per_second", part)
    if rate is None:
        return unknown(why)
    slow = expected is not None and rate < expected
    best = f" of {plain(expected / GBIT)}" if expected is not None else ""
    return Cell(f"{plain(rate / GBIT)}{best}", "bad" if slow else "", number=True, strong=slow)


def _checks(here: Readings, checks: Sequence[Series]) -> Table:
    names = list(dict.fromkeys(one.labels["check"] for one in checks))
    rows = []
    for name in names:
        part = {"check": name}
        state = here.state("gpudirect_check_state", part)
        needs = next((one.labels["privilege"] for one in here.of("gpudirect_check_needs_info", part)), "")
        words = {"passed": Cell("passed", "good"), "failed": Cell("failed", "bad", strong=True)}
        why = f"it would take {needs}" if needs and needs != "none" else "nothing here tells it"
        rows.append((cell(name.replace("_", " ")), (words.get(state or "", unknown(why)),)))
    return table("direct-table", "What GPUDirect RDMA needs", (Head("Check"), Head("Answer")), rows)


def paths(here: Readings, gpus: Sequence[GpuName]) -> Section:
    """The PCI path from each GPU to each NIC."""
    told: dict[tuple[str, str], Mapping[str, str]] = {}
    for one in here.series.get("gpu_nic_path_info", ()):
        told[one.labels["uuid"] or one.labels["gpu"], one.labels["device"]] = one.labels
    nics = sorted({device for _, device in told}, key=natural)
    if not nics or not gpus:
        line = (
            Line(f"Not known: {here.why('gpudirect')}.", "unknown")
            if here.applies("gpudirect")
            else Line("There is no pair of a GPU and an RDMA NIC here.", "quiet")
        )
        return Section("paths", "Paths between GPUs and NICs", (line,))
    rows = [
        (
            cell(f"GPU {gpu.index}"),
            tuple(_path(told.get((gpu.uuid or gpu.index, nic)), here, gpu) for nic in nics),
        )
        for gpu in gpus
    ]
    caption = "PCI path between GPU and NIC, the nearest of each GPU in bold"
    legend = Line(
        "As nvidia-smi names them, nearest first: PIX one PCIe switch, PXB several, PHB the host bridge, "
        "NODE within a NUMA node, SYS between them.", "quiet",
    )  # fmt: skip
    made = table("path-table", caption, (Head("GPU"), *(Head(nic) for nic in nics)), rows, dense=True)
    return Section("paths", "Paths between GPUs and NICs", (legend,), (made,))


def _path(labels: Mapping[str, str] | None, here: Readings, gpu: GpuName) -> Cell:
    if labels is None:
        return unknown(here.why("gpudirect", gpu.part))
    if labels["path"] == "unknown":
        return unknown("the PCI tree does not tell where both are")
    near = labels["nearest"] == "true"
    return Cell(labels["path"], "" if near else "quiet", aside="nearest" if near else "", strong=near)
