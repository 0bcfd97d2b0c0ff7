"""The evidence for a hardware return: who the part is, its numbers, and those of its peers."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.cli.schemas import complaints
from tests.node.collectors.test_overlays import DEMO, TABLE, played, playing, watch, without_blind
from tests.node.verdict.recordednode import RecordedNode
from tests.support import EPOCH, Node
from wirewatch import __version__
from wirewatch.catalogue import components
from wirewatch.cli.findings import HEADER, ticket
from wirewatch.core.probe import Copy, Micro, Probed
from wirewatch.core.types import Kind, OperatorNote
from wirewatch.documents.finding import FINDING, FindingDocument, Number, evidence, quantities_of, unit_of
from wirewatch.hw.overlay import load_overlay
from wirewatch.verdict.ledger import VerdictPolicy
from wirewatch.verdict.node import Judged, judge_state
from wirewatch.verdict.orders import OrderError, pick, repaired, suppress

LOST, NOT_SUPPORTED = 15, 3
SAID = OperatorNote("night-shift", "part is\nordered \x1b[31m\u00fc", EPOCH)


def all_of(here: Judged) -> list[FindingDocument]:
    """The documents of all findings, whole and as their schema has them."""
    made = []
    for standing in here.verdict.every:
        document = evidence(here, standing.id, EPOCH + 400, "replay")
        assert_whole(document)
        made.append(document)
    return made


def assert_whole(document: FindingDocument) -> None:
    text = FINDING.dump_json(document).decode()
    assert complaints("wirewatch.finding.1", text) == []
    plain = json.loads(text)
    assert [
        place
        for place, value in leaves(plain, "$")
        # A recording has no host.
        if isinstance(value, str) and not value.strip() and place != "$.host"
    ] == []
    for fact in (*document.part.values(), *document.node.values()):
        assert (fact.value is None) != (fact.unknown is None)
    for one in document.numbers:
        assert (one.value is None) != (one.value_unknown is None)
        assert (one.peers is None) != (one.peers_unknown is None)
        assert one.peers is None or one.peers.min <= one.peers.median <= one.peers.max
    assert bool(document.numbers) == (document.numbers_unknown is None) == (document.numbers_at is not None)
    lines = ticket(plain).splitlines()
    assert all(" " <= c <= "~" for line in lines for c in line)
    assert lines[0].startswith(f"wirewatch finding {document.finding.id}: ")
    assert not [line for line in lines if line[:20].strip() and not line[20:].strip() and line[0] != " "]


def leaves(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    """Every value in a document, but what an operator did not say and what has no event."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield from leaves(one, f"{place}.{name}")
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from leaves(one, f"{place}[{number}]")
    else:
        yield place, value


def only(node: Node) -> FindingDocument:
    (document,) = all_of(judge_state(node.state))
    return document


def number(document: FindingDocument, name: str, **labels: str) -> Number:
    (found,) = [one for one in document.numbers if one.name == name and one.labels == labels]
    return found


def facts(document: FindingDocument) -> Mapping[str, str | None]:
    return {name: fact.value for name, fact in document.part.items()}


@pytest.mark.parametrize("name", [name for name, told in TABLE.items() if told])
def test_every_finding_of_every_bundled_fault_has_a_whole_block(name: str) -> None:
    """As soon as all are there: test_overlays.py watches them for longer."""
    wanted = {(one.rule, one.health) for one in TABLE[name]}
    for node in playing(name):
        if {(one.rule, one.health) for one in without_blind(node.findings())} == wanted:
            break
    here = judge_state(node.state)
    documents = all_of(here)
    found = without_blind(standing.finding for standing in here.verdict.every)
    assert {(one.rule, one.health) for one in found} == wanted
    assert len(documents) == len(here.verdict.every)
    assert all(d.node["wirewatch"].value == __version__ for d in documents)
    assert all(d.node["driver"].value == "580.159.04" for d in documents)


def test_a_gpu_is_named_as_its_vendor_names_it() -> None:
    document = only(played("gpu-ecc-uncorrected"))
    assert document.kind == "gpu"
    assert facts(document) == {
        "product": "NVIDIA H200", "serial": "1650000000005", "board_part_number": "692-2G520-0282-001",
        "uuid": "GPU-00000000-0000-4000-8000-000000000005", "pci_address": "0000:c3:00.0",
        "pci_path": "pci0000:bd / 0000:bd:01.0 / 0000:be:00.0 / 0000:bf:03.0 / 0000:c3:00.0",
        "numa_node": "1", "module_id": "8", "vbios": "96.00.A5.00.1A", "gsp_firmware": "580.159.04",
        "inforom": "G520.0282.02.02",
    }  # fmt: skip
    node = {name: fact.value for name, fact in document.node.items()}
    assert (node["product"], node["gpus"], node["nvml"]) == ("NVIDIA H200", "8", "13.580.159.04")
    assert (node["cuda_driver"], node["kernel"]) == ("13.0", "5.15.0-1074-nvidia")


def test_numbers_stand_beside_those_of_the_other_gpus() -> None:
    node = played("gpu-ecc-uncorrected")
    document = only(node)
    name = "wirewatch_ecc_errors_total"
    wrong = number(document, name, kind="uncorrected", location="dram")
    assert (wrong.value, wrong.unit) == (2, "1")
    power = number(document, "wirewatch_gpu_power_watts")
    others = [value for gpu in "0123467" for value in node.series("gpu_power_watts", gpu=gpu)]
    assert [power.value] == node.series("gpu_power_watts", gpu="5")
    assert power.peers is not None
    assert (power.peers.of, power.peers.count, power.unit) == ("GPUs", 7, "watts")
    assert (power.peers.min, power.peers.max) == (min(others), max(others))
    assert power.peers.median == median(others)
    (collector,) = [c for c in components() if c.name == "gpu"]
    own = {s.metric for s in node.state.components["gpu"].samples if s.labels[0] == "5"}
    assert own <= set(collector.metrics)
    assert {n.name for n in document.numbers} == {
        f"wirewatch_{m.name}" for m in own if m.kind is not Kind.INFO
    }


def test_a_link_is_compared_with_all_other_links() -> None:
    document = only(played("nvlink-link-down"))
    up = number(document, "wirewatch_nvlink_link_up")
    assert up.value == 0
    assert up.peers is not None
    assert (up.peers.of, up.peers.count, up.peers.min) == ("links", 143, 1)
    speed = number(document, "wirewatch_nvlink_link_speed_bytes_per_second")
    assert speed.unit == "bytes per second"
    assert document.part["link"].value == "7"
    assert "not up" in str(document.part["link_goes_to"].unknown)
    active = number(document, "wirewatch_nvlink_links", state="active")
    assert (active.value, active.peers and active.peers.min) == (17, 18)


def test_series_of_single_links_take_the_place_of_what_was_read_and_stay_out_of_a_whole_gpu_s() -> None:
    node = Node(DEMO, load_overlay("nvlink-link-down").changes)
    node.options("nvlink", link_detail=True)
    node.change("gpu4/Field(165,*)", "set", 0)
    watch(node)
    documents = {d.finding.rule: d for d in all_of(judge_state(node.state))}
    assert number(documents["nvlink.link_down"], "wirewatch_nvlink_link_up").value == 0
    number(documents["nvlink.link_down"], "wirewatch_nvlink_link_errors_total", kind="crc")
    assert not [n for n in documents["nvlink.down"].numbers if "nvlink_link_" in n.name]


def test_a_port_has_its_card_s_numbers_and_names() -> None:
    document = only(played("ib-port-slow"))
    assert document.kind == "network_device"
    told = facts(document)
    assert (told["device"], told["psid"], told["firmware"]) == ("mlx5_6", "MT_0000000838", "28.41.1000")
    assert (told["port"], told["link_layer"]) == ("1", "InfiniBand")
    assert "lspci -vvs 0000:ce:00.0" in str(document.part["serial"].unknown)
    rate = number(document, "wirewatch_rdma_port_rate_bytes_per_second")
    assert rate.value == 12.5e9
    assert rate.peers is not None
    assert (rate.peers.of, rate.peers.count, rate.peers.median) == ("ports", 9, 50e9)


def test_a_card_has_its_pcie_link_which_no_series_shows() -> None:
    document = only(played("nic-pcie-x8"))
    width = number(document, "card_pcie_width")
    assert width.value == 8
    assert width.peers is not None
    assert (width.peers.of, width.peers.count, width.peers.min) == ("devices", 9, 16)


def test_a_card_that_only_the_kernel_names_is_known_by_its_address() -> None:
    document = only(played("nic-cable-hot"))
    assert (document.kind, document.part["device"].value) == ("network_device", "mlx5_1")


def test_a_bridge_names_what_is_below_it() -> None:
    document = only(played("acs-on"))
    assert document.kind == "pci_device"
    assert document.part["pci_path"].value == "pci0000:15 / 0000:15:01.0 / 0000:16:00.0 / 0000:17:00.0"
    assert document.part["above"].value == "mlx5_0"


def test_a_finding_of_the_node_has_the_node_s_numbers() -> None:
    document = only(played("gpudirect-lost"))
    assert document.kind == "node"
    failed = number(document, "wirewatch_gpudirect_check_state", check="peer_memory", state="failed")
    assert (failed.value, failed.peers) == (1, None)
    assert "dmidecode" in str(document.part["serial"].unknown)


def test_a_lost_gpu_keeps_its_name_and_a_restarted_agent_says_what_it_never_knew() -> None:
    node = Node(DEMO)
    node.poll()
    node.change("gpu5/*", "code", LOST)
    node.poll(times=3)
    (lost,) = [d for d in all_of(judge_state(node.state)) if d.finding.rule == "gpu.lost"]
    assert lost.part["serial"].value == "1650000000005"
    assert lost.node["gpus"].value == "8, 1 of them lost"
    assert lost.numbers == []
    fresh = Node(DEMO, node.changes)
    fresh.poll(times=3)
    (lost,) = [d for d in all_of(judge_state(fresh.state)) if d.finding.rule == "gpu.lost"]
    assert lost.finding.subject == {"gpu": "5"}
    for name in ("serial", "uuid", "vbios", "pci_address", "pci_path"):
        assert lost.part[name].value is None, name


def test_what_a_gpu_does_not_offer_is_reported_as_such() -> None:
    node = Node(DEMO, load_overlay("gpu-row-remap-failed").changes)
    node.change("gpu5/Serial()", "code", NOT_SUPPORTED)
    node.change("gpu5/BoardPartNumber()", "set", "")
    watch(node)
    document = only(node)
    assert "unsupported" in str(document.part["serial"].unknown)
    assert document.part["board_part_number"].unknown == "the driver gives an empty text"


def test_a_collector_that_is_blind_has_no_numbers_and_says_why() -> None:
    node = played("gpu-ecc-uncorrected")
    node.change("*", "code", 9)
    node.poll()
    documents = {d.finding.rule: d for d in all_of(judge_state(node.state))}
    for rule in ("gpu.blind", "gpu.ecc_uncorrected", "nvlink.blind", "pcie.blind"):
        assert documents[rule].numbers == []
        assert "driver is not loaded" in str(documents[rule].numbers_unknown), rule
    # What the last probe measured is still what it measured then.
    assert documents["probe.blind"].numbers


def test_a_part_that_cannot_be_read_says_so() -> None:
    node = played("gpu-row-remap-failed")
    node.change("gpu5/*", "code", 999)
    node.poll("gpu")
    documents = {d.finding.rule: d for d in all_of(judge_state(node.state))}
    assert "cannot be read" in str(documents["gpu.row_remap_failed"].numbers_unknown)


def test_a_finding_of_the_probe_has_the_newest_complete_one_s_numbers() -> None:
    node = played("probe-uneven")
    document = only(node)
    last = node.state.components["probe"].memory.last
    assert document.numbers_at == last.at
    sent = number(document, "link_transmit_bytes")
    assert sent.peers is not None
    assert sent.value is not None
    assert sent.value < 0.6 * sent.peers.min
    assert {one.name for one in document.numbers} >= QUANTITIES


def test_a_finding_of_the_probe_without_a_gpu_has_all_of_them() -> None:
    document = only(played("probe-slow"))
    product = number(document, "matrix_product_seconds")
    assert (product.value, product.peers and product.peers.count) == (None, 8)
    ratios = [n for n in document.numbers if n.name == "wirewatch_probe_busbw_ratio"]
    assert len(ratios) == 9
    assert min(n.value for n in ratios if n.value is not None) < 0.5


def test_what_is_on_probation_repaired_or_suppressed_is_shown_as_well(tmp_path: Path) -> None:
    node = RecordedNode(tmp_path, "gpu-row-remap-failed")
    node.poll(times=4)
    board = node.board
    (found,) = board.node.verdict.standings
    board.order(lambda j, p, _: suppress(j.ledger, pick(j.verdict, found.id), EPOCH + 9999, SAID, p))
    (document,) = all_of(board.node)
    assert (document.finding.stage, document.health) == ("suppressed", "ok")
    plain = ticket(json.loads(FINDING.dump_json(document)))
    assert "until 2026-11-21 03:51:29Z: part is ordered \\x1b[31m\\xfc" in " ".join(plain.split())
    node.repair()
    node.poll(times=6)
    (document,) = all_of(board.node)
    assert (document.finding.stage, document.measured) == ("suppressed", None)
    assert document.last_seen is not None
    assert EPOCH + 45 <= document.last_seen <= EPOCH + 150
    assert "at the latest" in ticket(json.loads(FINDING.dump_json(document)))
    node = RecordedNode(tmp_path, "gpu-row-remap-failed")
    node.poll(times=4)
    node.repair()
    node.poll(times=6)
    (document,) = all_of(node.board.node)
    assert (document.finding.stage, document.measured) == ("probation", None)
    assert number(document, "wirewatch_row_remap_failed").value == 0


def test_what_is_only_suppressed_has_no_collector() -> None:
    node = played("gpu-ecc-uncorrected")
    here = judge_state(node.state)
    ledger = suppress(here.ledger, here.verdict.standings[0], EPOCH + 9999, SAID, VerdictPolicy())
    node.changes.clear()
    node.state = node.state.with_component(Node(DEMO).state.components["gpu"])
    (document,) = all_of(judge_state(node.state, ledger))
    assert (document.collector, document.last_seen) == (None, None)
    assert "suppressed" in str(document.numbers_unknown)
    assert document.part["serial"].value == "1650000000005"


def test_a_repaired_event_is_shown(tmp_path: Path) -> None:
    node = RecordedNode(tmp_path, "xid-94")
    node.poll(times=6)
    (found,) = node.verdict.standings
    node.board.order(lambda j, _p, now: repaired(j.ledger, pick(j.verdict, found.id), SAID, now.mono))
    (document,) = all_of(node.board.node)
    assert document.finding.stage == "repaired"
    assert document.last_seen == document.finding.last > 0
    assert number(document, "wirewatch_xid_events_total", xid="94").peers is None


def test_a_part_of_a_collector_that_is_switched_off(tmp_path: Path) -> None:
    node = RecordedNode(tmp_path, "gpu-row-remap-failed")
    node.poll(times=4)
    here = node.board.node
    only_gpu = {name: c for name, c in here.state.components.items() if name == "gpu"}
    (document,) = all_of(judge_state(type(here.state)(only_gpu), here.ledger))
    assert all(document.part[name].value is None for name in document.part if name != "uuid")
    assert document.node["driver"].value is None


@pytest.mark.parametrize("name", ["00000000", "00", ""])
def test_an_id_that_is_not_there_is_one_line(name: str) -> None:
    with pytest.raises(OrderError, match="id"):
        evidence(judge_state(played("gpu-ecc-uncorrected").state), name, EPOCH, "replay")


@cache
def probed() -> Probed:
    """The demo node's probe."""
    node = Node(DEMO)
    node.options("probe", settle=0.0)
    node.poll(times=2)
    last = node.state.components["probe"].memory.last
    assert isinstance(last, Probed)
    return last


QUANTITIES = {
    "matrix_product_seconds", "memory_copy_bytes_per_second", "copies_from_it_bytes_per_second",
    "copies_to_it_bytes_per_second", "sm_clock_hertz",
}  # fmt: skip
PLACES = st.integers(0, 7)
SECONDS = st.floats(1e-6, 1e3)
COPIES = st.lists(
    st.builds(Copy, PLACES, PLACES, st.integers(1, 1 << 40), SECONDS, st.just(1), st.booleans())
)
MICROS = st.lists(
    st.builds(
        Micro, PLACES, SECONDS, SECONDS, SECONDS, st.integers(1, 1 << 40), SECONDS, SECONDS, SECONDS
    ),
    unique_by=lambda one: one.gpu,
)  # fmt: skip


@given(PLACES, COPIES, MICROS)
def test_a_gpu_has_what_a_probe_measured_of_it_and_nothing_else(
    place: int, copies: list[Copy], micros: list[Micro]
) -> None:
    document = probed().document
    assert document is not None
    document = replace(document, copies=tuple(copies), micros=tuple(micros))
    one = replace(probed(), document=document)
    found = quantities_of(one, place)
    for name, values in (
        ("matrix_product_seconds", [m.gemm_seconds for m in micros if m.gpu == place]),
        (
            "memory_copy_bytes_per_second",
            [2 * m.copy_bytes / m.copy_seconds for m in micros if m.gpu == place],
        ),
        (
            "copies_from_it_bytes_per_second",
            [c.size_bytes / c.seconds for c in copies if c.source == place],
        ),
        (
            "copies_to_it_bytes_per_second",
            [c.size_bytes / c.seconds for c in copies if c.destination == place],
        ),
    ):
        assert found.get(name) == (median(values) if values else None)
    assert found["sm_clock_hertz"] == one.clocks[place].sm
    assert {unit_of(name) for name in found} <= {"seconds", "bytes per second", "hertz"}


def test_a_probe_that_measured_no_gpu_has_nothing_of_it() -> None:
    assert quantities_of(replace(probed(), document=None, clocks=()), 0) == {}


def test_units_follow_the_names() -> None:
    units = {metric.name: unit_of(metric.name) for c in components() for metric in c.metrics}
    assert units["nvlink_transmit_bytes_total"] == "bytes"
    assert units["clocks_event_seconds_total"] == "seconds"
    assert units["xid_last_event_timestamp_seconds"] == "unix seconds"
    assert units["rdma_port_rate_expected_bytes_per_second"] == "bytes per second"
    assert units["nvlink_links_expected"] == "1"


@cache
def throttled() -> bytes:
    return FINDING.dump_json(only(played("gpu-throttle-thermal")))


@given(st.text(max_size=300), st.text(max_size=300))
def test_whatever_people_and_devices_say_a_ticket_is_plain_ascii(evidence_text: str, why: str) -> None:
    document = json.loads(throttled())
    document["finding"]["evidence"] = evidence_text
    document["finding"]["repaired"] = {"by": why, "why": why, "at": EPOCH}
    text = ticket(document)
    assert all(" " <= c <= "~" or c == "\n" for c in text)
    assert sum(line.startswith("evidence ") for line in text.splitlines()) <= 1
    assert sum(all(word in line for word in HEADER) for line in text.splitlines()) == 1
