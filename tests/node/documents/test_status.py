"""The document of `wirewatch status`, from series drawn by hand: each row differs in one thing."""

from collections.abc import Sequence
from dataclasses import replace

from tests.node.cli.topnodes import collector, snapshot
from tests.node.jobs.explain.drawn import NOW
from tests.rows import each
from wirewatch.documents.health import (
    Gate,
    GpuStatus,
    HeadlineProbe,
    NicStatus,
    PathStatus,
    PortStatus,
    StatusDocument,
)
from wirewatch.documents.probed import refused
from wirewatch.documents.probes import CollectiveResult, ProbeDocument, ProbesDocument
from wirewatch.documents.state import CollectorState, Series
from wirewatch.documents.status import status

OPEN = Gate(open=True, reason="", meaning="", detail="", engine="nccl")
LAST = replace(refused(None, NOW - 240), outcome="ok")


def of(*samples: tuple[str, float, str], last: ProbeDocument | None = None) -> StatusDocument:
    """The document of a node with these series; labels as `gpu=0 uuid=GPU-0`."""
    found = [
        Series(f"wirewatch_{name}", dict(word.split("=") for word in labels.split()), value)
        for name, value, labels in samples
    ]
    return document([collector("some", NOW, *found)], last)


def document(collectors: Sequence[CollectorState], last: ProbeDocument | None = None) -> StatusDocument:
    node = snapshot(gpus=0)
    node = replace(node, state=replace(node.state, collectors=list(collectors)))
    return status(
        node, ProbesDocument("wirewatch.probes/1", NOW, OPEN, fresh=True, last=last, past=[]), "daemon"
    )


NONE = (None,) * 9
A = "gpu=0 uuid=A"


@each(
    ("why", "samples", "gpus"),
    [
        (
            "by number, not by text",
            [("x", 1, "gpu=10 uuid=A"), ("x", 1, "gpu=9 uuid=B")],
            [("9", "B", *NONE), ("10", "A", *NONE)],
        ),
        ("no name", [("x", 1, "gpu=3")], []),
        ("a name without a number", [("x", 1, "uuid=A")], []),
        (
            "links asleep are up",
            [("nvlink_links", 10, f"{A} state=active"), ("nvlink_links", 8, f"{A} state=sleep")],
            [("0", "A", None, None, None, 18, *NONE[4:])],
        ),
        (
            "none can sleep",
            [("nvlink_links", 17, f"{A} state=active"), ("nvlink_links_expected", 18, A)],
            [("0", "A", None, None, None, 17, 18, *NONE[5:])],
        ),
        ("none is known to be up", [("nvlink_links", 8, f"{A} state=sleep")], [("0", "A", *NONE)]),
        (
            "each number in its place",
            [
                ("gpu_temperature_celsius", 70, f"{A} sensor=memory"),
                ("gpu_temperature_celsius", 40, f"{A} sensor=core"),
                ("gpu_power_watts", 600, A),
                ("gpu_utilization_ratio", 0.5, A),
                ("pcie_generation", 4, A),
                ("pcie_generation_max", 5, A),
                ("pcie_width", 8, A),
                ("pcie_width_max", 16, A),
                ("gpu_power_watts", 1, "gpu=1 uuid=B"),
            ],
            [("0", "A", 40, 600, 0.5, None, None, 4, 5, 8, 16), ("1", "B", None, 1, *NONE[2:])],
        ),
    ],
)
def test_gpus(why: str, samples: Sequence[tuple[str, float, str]], gpus: list[tuple[object, ...]]) -> None:
    assert of(*samples).gpus == [GpuStatus(*one) for one in gpus], why  # type: ignore[arg-type]


def test_ports_checks_paths_and_versions_are_those_that_hold() -> None:
    found = of(
        ("rdma_port_state", 0, "device=a port=1 state=down"),
        ("rdma_port_state", 1, "device=a port=1 state=active"),
        ("rdma_port_rate_bytes_per_second", 5, "device=a port=1"),
        ("rdma_port_rate_expected_bytes_per_second", 6, "device=a port=1"),
        ("rdma_port_rate_bytes_per_second", 7, "device=a port=2"),
        ("gpudirect_check_state", 1, "check=acs state=failed"),
        ("gpudirect_check_state", 0, "check=acs state=passed"),
        ("gpu_nic_path_info", 1, "gpu=10 device=d path=PIX nearest=true"),
        ("gpu_nic_path_info", 1, "gpu=9 device=c path=PXB nearest=true"),
        ("gpu_nic_path_info", 1, "gpu=9 device=b path=PXB nearest=true"),
        ("gpu_nic_path_info", 1, "gpu=9 device=a path=SYS nearest=false"),
        ("node_info", 1, "product=H200 driver=580"),
    )
    assert found.ports == [PortStatus("a", "1", "active", 5, 6)]
    assert found.gpudirect == {"acs": "failed"}
    assert found.paths == [PathStatus("9", "PXB", ["b", "c"]), PathStatus("10", "PIX", ["d"])]
    assert (found.product, found.driver) == ("H200", "580")
    assert (of().product, of().driver, of().paths) == ("", "", [])


def result(op: str, size: int, ranks: int) -> CollectiveResult:
    return CollectiveResult(
        op, size, ranks, "all", 0.001, 3e9, 3e9, 3e9, 0, "", "", 4e9, 0.75, 0.7, "", "", []
    )


@each(
    ("why", "last", "best"),
    [
        ("no probe", None, None),
        ("a probe without results", LAST, None),
        ("all_reduce before more bytes", [("all_gather", 9, 8), ("all_reduce", 8, 4)], ("all_reduce", 8, 4)),
        ("ranks before bytes", [("all_reduce", 9, 4), ("all_reduce", 8, 8)], ("all_reduce", 8, 8)),
        ("then bytes", [("all_reduce", 8, 8), ("all_reduce", 9, 8)], ("all_reduce", 9, 8)),
        ("no all_reduce", [("all_gather", 9, 8), ("broadcast", 8, 8)], ("all_gather", 9, 8)),
    ],
)
def test_the_headline(
    why: str, last: ProbeDocument | list[tuple[str, int, int]] | None, best: tuple[str, int, int] | None
) -> None:
    known = replace(LAST, results=[result(*one) for one in last]) if isinstance(last, list) else last
    expected = None if best is None else HeadlineProbe(NOW - 240, 240.0, *best, 3e9, 4e9, 0.75)
    assert of(last=known).probe == expected, why


def test_a_probe_of_a_moment_ahead_is_no_second_old() -> None:
    known = replace(LAST, at=NOW + 5, results=[result("all_reduce", 8, 8)])
    found = of(last=known).probe
    assert found is not None
    assert found.age_seconds == 0.0


@each(
    ("change", "age", "error"),
    [
        ({}, 0.0, ""),
        ({"last_success": NOW - 9}, 9.0, ""),
        ({"last_success": NOW + 9}, 0.0, ""),
        ({"last_success": 0.0, "success": False}, None, "not read yet"),
        ({"success": False, "overdue_since": NOW}, 0.0, "overdue"),
        ({"success": False, "error": "denied"}, 0.0, "denied"),
        ({"success": False, "error": "denied", "overdue_since": NOW}, 0.0, "denied"),
        ({"success": True, "error": "denied"}, 0.0, ""),
    ],
)
def test_collectors_have_an_age_and_what_is_wrong(
    change: dict[str, object], age: float | None, error: str
) -> None:
    one = replace(collector("gpu", NOW), **change)  # type: ignore[arg-type]
    (found,) = document([one]).collectors
    assert (found.age_seconds, found.error) == (age, error)


def test_each_nic_that_is_probed_alone_has_its_rates_and_when() -> None:
    at, rate = "probe_nic_last_success_timestamp_seconds", "probe_nic_bytes_per_second"
    ways = [(rate, 48e9, "device=m0 port=1 gpudirect=on"), (rate, 20e9, "device=m0 port=1 gpudirect=off")]
    found = of((at, NOW - 60, "device=m0 port=1"), (at, 0, "device=m0 port=2"), *ways).nics
    assert found == [
        NicStatus("m0", "1", NOW - 60, {"on": 48e9, "off": 20e9}),
        NicStatus("m0", "2", None, {}),
    ]
    assert of().nics == []
