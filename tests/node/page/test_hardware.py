"""Cells of GPUs and ports by their readings, in tables; in each row a single reading decides."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from tests.node.page.states import state
from tests.rows import each
from tests.support import EPOCH
from wirewatch.documents.state import CollectorState, Series
from wirewatch.page.hardware import gpus_section, paths, ports_section
from wirewatch.page.model import Cell, Section
from wirewatch.page.tables import GpuName, Readings

GPU = {"gpu": "0", "uuid": "GPU-0"}
NAME = GpuName("0", "GPU-0")
PORT = {"device": "mlx5_0", "port": "1"}
INFO = {**PORT, "model": "MT4129", "link_layer": "InfiniBand", "netdev": "ib0", "numa": "1"}
State = tuple[str, str, float]
"""A metric, the value of its one more label, and the number."""


def collector(name: str, *, applicable: bool | None = True, success: bool = True) -> CollectorState:
    return CollectorState(name, "ok", applicable, success, None, None, EPOCH, 0.0, 0, [], [])


def readings(*series: Series, collectors: Sequence[CollectorState] = ()) -> Readings:
    found: dict[str, list[Series]] = {}
    for one in series:
        found.setdefault(one.name, []).append(one)
    return Readings(found, {one.collector: one for one in collectors}, EPOCH)


def of_gpu(values: Mapping[str, float], labels: Sequence[Series] = (), **more: bool) -> tuple[Cell, ...]:
    """The cells of a GPU with these readings."""
    series = [Series(name, GPU, value) for name, value in values.items()]
    here = readings(*series, *labels, collectors=[collector(n, applicable=a) for n, a in more.items()])
    return cells(gpus_section(state("healthy"), here, (NAME,)))


def cells(section: Section) -> tuple[Cell, ...]:
    (row,) = section.tables[0].rows
    return row.cells


def said(cell: Cell) -> tuple[str, str]:
    return (cell.text.partition(":")[0], cell.tone)


UNKNOWN = ("not known", "unknown")
WIDTH, WIDEST, GENERATION, BEST = (
    "pcie_width", "pcie_width_max", "pcie_generation", "pcie_generation_max",
)  # fmt: skip


@each(
    ("values", "expected"),
    [
        ({}, UNKNOWN),
        ({WIDTH: 16}, UNKNOWN),
        ({GENERATION: 5}, UNKNOWN),
        ({GENERATION: 5, WIDTH: 16}, ("gen 5 x16", "")),
        ({GENERATION: 5, BEST: 5, WIDTH: 16, WIDEST: 16}, ("gen 5 x16", "")),
        ({GENERATION: 4, BEST: 5, WIDTH: 16, WIDEST: 16}, ("gen 4 of 5 x16", "")),
        ({GENERATION: 5, BEST: 5, WIDTH: 8, WIDEST: 16}, ("gen 5 x8 of x16", "bad")),
    ],
)
def test_pcie_of_a_gpu(values: Mapping[str, float], expected: tuple[str, str]) -> None:
    # Utilisation is known, so that the unknown cells before it are few and keep their places.
    row = of_gpu({"gpu_utilization_ratio": 0.5, "nvlink_links_expected": 0, **values}, UP_NONE)
    assert said(row[3]) == expected


def links(**states: float) -> list[Series]:
    return [Series("nvlink_links", {**GPU, "state": name}, value) for name, value in states.items()]


UP_NONE = [*links(active=0.0), Series("nvlink_errors_total", {**GPU, "kind": "replay"}, 0.0)]


@each(
    ("states", "expected", "cell"),
    [
        ({"active": 18}, None, ("18 of ?", "")),
        ({"active": 18}, 18, ("18 of 18", "")),
        ({"active": 10, "sleep": 8}, 18, ("18 of 18", "")),
        ({"active": 17, "inactive": 1}, 18, ("17 of 18", "bad")),
        ({"active": 0}, 18, ("0 of 18", "bad")),
        ({"active": 0}, 0, ("none", "quiet")),
        ({"active": 0}, None, ("none", "quiet")),
        ({}, 18, UNKNOWN),
    ],
)
def test_links_of_a_gpu(states: Mapping[str, float], expected: int | None, cell: tuple[str, str]) -> None:
    due = {} if expected is None else {"nvlink_links_expected": float(expected)}
    errors = Series("nvlink_errors_total", {**GPU, "kind": "crc_flit"}, 3.0)
    row = of_gpu(due, [*links(**states), errors])
    assert said(row[1]) == cell
    assert row[2].text == "crc flit 3"


@pytest.mark.parametrize(("wired", "text"), [(True, "not watched"), (False, "none")])
def test_links_that_nobody_watches(text: str, *, wired: bool) -> None:
    peers = [Series("nvlink_peer_links", {**GPU, "peer": "switch"}, 18.0)] if wired else []
    assert [one.text for one in of_gpu({}, peers, nvlink=False)[1:3]] == [text] * 2


def reasons(**active: float) -> list[Series]:
    return [Series("clocks_event_active", {**GPU, "reason": name}, value) for name, value in active.items()]


@pytest.mark.parametrize(
    ("active", "cell"),
    [
        ({"gpu_idle": 1, "sw_power_cap": 0}, ("nothing", "quiet")),
        ({"gpu_idle": 1, "sw_power_cap": 1, "hw_slowdown": 1}, ("sw power cap, hw slowdown", "warn")),
        ({}, UNKNOWN),
    ],
)
def test_what_holds_the_clocks_of_a_gpu(active: Mapping[str, float], cell: tuple[str, str]) -> None:
    row = of_gpu({WIDTH: 16, GENERATION: 5, "gpu_utilization_ratio": 0.25}, [*UP_NONE, *reasons(**active)])
    assert said(row[4]) == cell
    assert (row[5].text, said(row[6])) == ("25", UNKNOWN)


@each(
    ("why", "subject", "gpu", "is_of"),
    [
        ("both have the name", {"gpu": "3", "uuid": "GPU-0"}, NAME, True),
        ("another name at this index", {"gpu": "0", "uuid": "GPU-1"}, NAME, False),
        ("the finding has no name", {"gpu": "0"}, NAME, True),
        ("the finding has no name and another index", {"gpu": "1"}, NAME, False),
        ("the GPU has no name", {"gpu": "0", "uuid": "GPU-1"}, GpuName("0", ""), True),
        ("of a port", {"device": "mlx5_0"}, GpuName("", ""), False),
    ],
)
def test_the_state_of_a_gpu_is_that_of_its_findings(
    why: str, subject: dict[str, str], gpu: GpuName, *, is_of: bool
) -> None:
    content = state("healthy")
    (template,) = state("link-down").health.findings
    content = replace(
        content,
        health=replace(content.health, findings=[replace(template, subject=subject, health="degraded")]),
    )
    row = cells(gpus_section(content, readings(), (gpu,)))
    assert row[0].text == ("DEGRADED" if is_of else "OK"), why


def test_what_is_repaired_or_suppressed_of_a_gpu_is_noted_beside_ok() -> None:
    content = state("healthy")
    (template,) = state("link-down").findings.findings
    told = [
        replace(template, subject=dict(GPU), stage="suppressed"),
        replace(template, subject=dict(GPU), stage="live", rule="pcie.width"),
        replace(template, subject={"gpu": "1", "uuid": "GPU-1"}, stage="repaired", rule="xid.79"),
    ]
    content = replace(content, findings=replace(content.findings, findings=told), topology=None)
    row = cells(gpus_section(content, readings(), (NAME,)))
    assert (row[0].text, row[0].note) == ("OK", "nvlink.link_down suppressed")


@pytest.mark.parametrize(
    ("inventory", "text", "tone"),
    [
        ([collector("inventory")], "The driver lists no GPU.", "quiet"),
        ([collector("inventory", success=False)], "Not known: this part or its driver does not report it.",
         "unknown"),
        ([], "Not known: the collector inventory is switched off.", "unknown"),
    ],
)  # fmt: skip
def test_without_a_gpu_the_reason_is_said(inventory: Sequence[CollectorState], text: str, tone: str) -> None:
    (line,) = gpus_section(state("healthy"), readings(collectors=inventory), ()).lines
    assert (line.text, line.tone) == (text, tone)


def test_more_findings_of_a_gpu_are_counted_and_blind_collectors_named() -> None:
    content = state("healthy")
    (template,) = state("link-down").health.findings
    one = replace(template, subject=dict(GPU), health="degraded")
    content = replace(content, health=replace(content.health, findings=[one, one]))
    here = readings(collectors=[collector("pcie"), collector("gpu")])
    row = cells(gpus_section(content, here, (NAME,)))
    assert (row[0].text, row[0].note) == ("DEGRADED", "nvlink.link_down and 1 more")
    blind = readings(collectors=[collector("pcie"), collector("gpu", success=False)])
    row = cells(gpus_section(content, blind, (NAME,)))
    assert (row[0].text, row[0].note) == ("UNKNOWN", "not read: gpu")


def port(info: Mapping[str, str] = INFO, *series: Series) -> tuple[Cell, ...]:
    return cells(ports_section(readings(Series("rdma_port_info", dict(info), 1.0), *series)))


def up(name: str, states: Mapping[str, float]) -> list[Series]:
    return [Series(name, {**PORT, "state": one}, value) for one, value in states.items()]


LINK_UP = up("rdma_port_physical_state", {"link_up": 1.0})
OFF = "the collector infiniband is switched off"
RATE, DUE = "rdma_port_rate_bytes_per_second", "rdma_port_rate_expected_bytes_per_second"


@pytest.mark.parametrize(
    ("rate", "expected", "cell"),
    [
        (50e9, None, ("400", "")), (50e9, 50e9, ("400 of 400", "")), (25e9, 50e9, ("200 of 400", "bad")),
        (None, 50e9, UNKNOWN),
    ],
)  # fmt: skip
def test_the_rate_of_a_port(rate: float | None, expected: float | None, cell: tuple[str, str]) -> None:
    given = [
        Series(name, PORT, value) for name, value in ((RATE, rate), (DUE, expected)) if value is not None
    ]
    row = port(INFO, *up("rdma_port_state", {"active": 1.0}), *LINK_UP, *given)
    assert [said(one) for one in row[:3]] == [("active", "good"), ("link up", "good"), cell]
    assert row[2].why == ("" if rate else OFF)
    if rate is None:
        row = port(INFO, *up("rdma_port_state", {"down": 1.0}), *LINK_UP, *given)
        assert row[2].why == "it has none while it is down"


@pytest.mark.parametrize(
    ("states", "cell"),
    [
        ({"active": 1.0, "down": 0.0}, ("active", "good")), ({"active": 0.0, "down": 1.0}, ("down", "bad")),
        ({"active": 0.0, "down": 0.0}, ("other", "bad")), ({}, UNKNOWN),
    ],
)  # fmt: skip
def test_the_state_of_a_port(states: Mapping[str, float], cell: tuple[str, str]) -> None:
    known = [*LINK_UP, Series(RATE, PORT, 50e9)]
    assert said(port(INFO, *up("rdma_port_state", states), *known)[0]) == cell


def test_what_else_is_known_of_a_port() -> None:
    downed = Series("rdma_port_link_downed_total", PORT, 2.0)
    errors = [
        Series("rdma_port_errors_total", {**PORT, "kind": kind}, n) for kind, n in (("a_b", 1), ("c", 0))
    ]
    near = [
        Series("gpu_nic_path_info", {**PORT, "gpu": gpu, "uuid": "", "path": "PIX", "nearest": nearest}, 1.0)
        for gpu, nearest in (("0", "true"), ("1", "true"), ("2", "false"))
    ]
    row = port(INFO, downed, *errors, *near)
    assert [said(one) for one in row[-6:]] == [
        ("a b 1", ""), ("2", "warn"), ("InfiniBand", ""), ("ib0", ""), ("1", ""), ("GPU 0, 1", ""),
    ]  # fmt: skip
    none = port({**INFO, "netdev": "", "link_layer": "", "numa": ""}, replace(downed, value=0.0))
    assert [said(one) for one in none[-5:]] == [
        ("0", "quiet"), UNKNOWN, UNKNOWN, UNKNOWN, ("no GPU", "quiet"),
    ]  # fmt: skip


def test_what_gpudirect_needs_is_said_with_the_right_that_is_missing() -> None:
    checks = {
        "a_b": ("passed", "none"), "c": ("failed", "none"), "d": ("", "root"), "e": ("", "none"),
        "f": ("", ""),
    }  # fmt: skip
    series = [
        Series("gpudirect_check_state", {"check": name, "state": one}, float(one == now))
        for name, (now, _) in checks.items()
        for one in ("passed", "failed")
    ]
    series += [
        Series("gpudirect_check_needs_info", {"check": name, "privilege": right}, 1.0)
        for name, (_, right) in checks.items()
    ]
    section = ports_section(readings(Series("rdma_port_info", dict(INFO), 1.0), *series))
    rows = section.tables[1].rows
    assert [(one.head.text, one.cells[0].text) for one in rows] == [
        ("a b", "passed"), ("c", "failed"), ("d", "not known"), ("e", "not known"), ("f", "not known"),
    ]  # fmt: skip
    assert section.tables[1].notes == ("it needs root", "nothing on this node shows it")


def test_what_each_port_carried_alone_stands_below_the_ports() -> None:
    carried = [
        Series("probe_nic_bytes_per_second", {"device": "mlx5_0", "port": "1", "gpudirect": way}, rate)
        for way, rate in (("on", 48.04e9), ("off", 31e9))
    ]
    section = ports_section(readings(Series("rdma_port_info", dict(INFO), 1.0), *carried))
    assert [(one.head.text, [cell.text for cell in one.cells]) for one in section.tables[1].rows] == [
        ("mlx5_0 1", ["on", "48.0"]), ("mlx5_0 1", ["off", "31.0"]),
    ]  # fmt: skip


def test_paths_are_of_the_gpu_by_its_name_or_else_its_index() -> None:
    def path(gpu: str, uuid: str, device: str, kind: str, nearest: str) -> Series:
        labels = {"gpu": gpu, "uuid": uuid, "device": device, "path": kind, "nearest": nearest}
        return Series("gpu_nic_path_info", labels, 1.0)

    here = readings(
        path("0", "GPU-0", "mlx5_0", "PIX", "true"), path("1", "", "mlx5_0", "SYS", "false"),
        path("1", "", "mlx5_1", "unknown", "false"),
    )  # fmt: skip
    made = paths(here, (NAME, GpuName("1", ""))).tables[0]
    assert [[said(cell) for cell in row.cells] for row in made.rows] == [
        [("PIX", ""), UNKNOWN], [("SYS", "quiet"), UNKNOWN],
    ]  # fmt: skip
    assert made.rows[0].cells[0].aside == "nearest"
    for nothing in (paths(readings(), (NAME,)), paths(here, ())):
        assert nothing.tables == ()
