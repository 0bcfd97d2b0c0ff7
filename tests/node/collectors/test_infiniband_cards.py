"""Cards that are renamed, replaced, bonded, lent or deleted, and looks at them that fail once."""

import pytest

from tests.node.collectors.drawn import PCI, RDMA, Files, Watched
from tests.node.collectors.test_infiniband import DEGRADED, FAILED, OK, UNKNOWN, fabric, watched
from tests.rows import each
from tests.support import Node
from wirewatch.collectors.infiniband.judge import CARD_PCIE, DEVICE_GONE
from wirewatch.core.ports import Output
from wirewatch.core.types import Absent, Expect, Health, Why

LOST = Absent(Why.TIMEOUT, "no answer", 110)
NETNS = "/sys/module/ib_core/parameters/netns_mode"
LONG = 25
"""Polls after which devices have been looked at again."""


def rename(files: Files, old: str, new: str) -> None:
    for table in (files.texts, files.links):
        for path in [p for p in table if p.startswith(f"{RDMA}/{old}/")]:
            table[path.replace(f"/{old}/", f"/{new}/")] = table.pop(path)  # type: ignore[assignment]


def take_out(files: Files, name: str) -> tuple[dict[str, object], dict[str, object]]:
    start = f"{RDMA}/{name}"
    out = (
        {p: t for p, t in files.texts.items() if p.startswith(start)},
        {p: t for p, t in files.links.items() if p.startswith(start)},
    )
    files.forget(start)
    return out  # type: ignore[return-value]


def test_an_excluded_card_is_neither_gone_nor_without_its_device() -> None:
    """Before: the second port of a demo node's cards, excluded as the README has it, was FAILED."""
    node = Node("demo-dgx-h200")
    node.options("infiniband", exclude=("mlx5_8", "mlx5_9"))
    node.poll("infiniband", times=6)
    assert node.findings() == ()
    assert node.series("rdma_port_rate_bytes_per_second", device="mlx5_8") == []


def test_a_card_with_a_new_name_is_the_same_one_and_keeps_its_past() -> None:
    node = watched(8, rdma_ports=8)
    node.poll()
    rename(node.files, "mlx5_4", "ibp20s0")
    assert node.poll(LONG) == ()
    node.files.set("ibp20s0", rate="100 Gb/sec (1X NDR)")
    node.poll(3)
    assert node.rules() == {("infiniband.port_slow", "ibp20s0 port 1"): FAILED}


def test_names_that_were_exchanged_start_again() -> None:
    node = watched(2)
    node.files.set("mlx5_1", rate="100 Gb/sec (4X EDR)", link_layer="Ethernet", counters__link_downed="7")
    node.files.texts[f"{RDMA}/mlx5_1/board_id"] = "MT_OTHER"
    node.poll(2)
    for old, new in (("mlx5_0", "spare"), ("mlx5_1", "mlx5_0"), ("spare", "mlx5_1")):
        rename(node.files, old, new)
    node.poll(2 * LONG)
    assert not [rule for rule, _ in node.rules() if rule != "infiniband.link_downed_errors"]


def test_two_functions_of_a_card_that_became_a_bond_are_not_gone() -> None:
    files = Files()
    for function in (0, 1):
        files.nic(f"mlx5_{function}", f"0000:10:00.{function}", "pci0000:00/0000:00:01.0")
    node = Watched("infiniband", files)
    node.poll()
    rename(files, "mlx5_0", "mlx5_bond_0")
    take_out(files, "mlx5_1")
    assert node.poll(LONG) == ()


def test_a_card_that_was_replaced_is_not_measured_by_its_predecessor() -> None:
    node = watched(2)
    node.poll()
    node.files.set("mlx5_1", rate="200 Gb/sec (4X HDR)")
    node.files.texts[f"{RDMA}/mlx5_1/board_id"] = "MT_NEW"
    node.files.texts[f"{RDMA}/mlx5_1/node_guid"] = "0000:0000:0000:9999"
    node.poll(LONG)
    assert node.rules() == {}


def test_virtual_functions_are_not_watched_nor_missed_nor_counted_as_ports() -> None:
    node = watched(2, rdma_ports=3)
    node.files.nic("mlx5_8", "0000:10:00.1", "pci0000:00/0000:00:01.0")
    node.files.links[f"{PCI}/0000:10:00.1/physfn"] = "/sys/devices/pci0000:00/0000:00:01.0/0000:10:00.0"
    node.poll(3)
    assert node.series("rdma_port_rate_bytes_per_second", device="mlx5_8") == []
    assert node.rules() == {("infiniband.ports_missing", "node"): FAILED}
    take_out(node.files, "mlx5_8")
    node.files.links[f"{PCI}/0000:10:00.1/driver"] = "/sys/bus/pci/drivers/vfio-pci"
    node.poll(LONG)
    assert node.rules() == {("infiniband.ports_missing", "node"): FAILED}


def test_a_device_of_software_that_is_deleted_is_forgotten() -> None:
    node = watched(2)
    port = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "link_layer": "Ethernet", "lid": "0x0"}
    told = {**port, "rate": "2.5 Gb/sec (1X SDR)"}
    node.files.texts |= {f"{RDMA}/rxe0/ports/1/{file}": text for file, text in told.items()}
    assert node.poll(2) == ()
    take_out(node.files, "rxe0")
    assert node.poll(LONG) == ()


def test_a_port_that_was_down_when_its_card_went_away_is_not_repaired_by_that() -> None:
    node = watched(8, rdma_ports=8)
    node.files.texts[NETNS] = "N"
    node.poll()
    node.files.set("mlx5_4", state="1: DOWN", phys_state="2: Polling")
    node.poll(3)
    take_out(node.files, "mlx5_4")
    node.poll(3)
    assert node.component.health is FAILED


def test_a_card_that_comes_back_from_a_pod_is_as_the_pod_left_it() -> None:
    node = watched(2)
    node.files.texts[NETNS] = "N"
    node.poll()
    texts, links = take_out(node.files, "mlx5_1")
    node.poll(3)
    node.files.texts |= texts  # type: ignore[arg-type]
    node.files.links |= links  # type: ignore[arg-type]
    node.files.set("mlx5_1", link_layer="Ethernet", state="1: DOWN", phys_state="3: Disabled")
    assert node.poll(4) == ()


@pytest.mark.parametrize("file", ["ports", "ports/1/counters", "board_id", "node_guid"])
def test_a_look_at_a_device_that_fails_costs_what_it_hides_and_changes_nothing(file: str) -> None:
    node = watched(8, rdma_ports=8)
    node.files.set("mlx5_5", rate="200 Gb/sec (4X HDR)")
    node.poll(19)
    before = node.rules()
    path = f"{RDMA}/mlx5_5/{file}"
    kept = node.files.texts.get(path)
    node.files.texts[path] = LOST
    node.poll(3)
    assert node.rules() == {**before, ("infiniband.blind", "mlx5_5"): UNKNOWN}
    del node.files.texts[path]
    if kept is not None:
        node.files.texts[path] = kept
    node.poll(2)
    assert node.rules() == before


def test_a_device_whose_ports_cannot_be_listed_from_the_start_is_reported() -> None:
    node = watched(8, rdma_ports=8)
    node.files.texts[f"{RDMA}/mlx5_3/ports"] = LOST
    node.poll(3)
    assert node.component.health is UNKNOWN


def test_a_narrow_card_stays_one_while_its_place_cannot_be_read() -> None:
    node = watched(2)
    node.files.texts[f"{PCI}/0000:10:00.0/current_link_width"] = "4"
    node.poll(19)
    node.files.links[f"{RDMA}/mlx5_0/device"] = LOST
    node.poll(5)
    assert node.rules()["infiniband.pcie", "mlx5_0"] is FAILED


def test_a_driver_that_cannot_be_reported_makes_no_card_gone() -> None:
    node = watched(2)
    node.poll()
    take_out(node.files, "mlx5_1")
    node.files.links[f"{PCI}/0000:11:00.0/driver"] = LOST
    node.poll(4)
    assert node.rules() == {("infiniband.blind", "mlx5_1"): UNKNOWN}


def test_a_port_that_is_down_needs_neither_rate_nor_physical_state() -> None:
    node = watched(2)
    node.files.set("mlx5_1", state="1: DOWN", phys_state="0: <unknown>", link_layer="Ethernet")
    node.files.refuse("mlx5_1", "rate", Why.UNSUPPORTED, 22)
    assert node.poll(3) == ()
    assert node.component.health is OK


def test_an_ibstat_that_hangs_takes_nothing_back_of_what_it_said() -> None:
    node = watched(2)
    node.programs.printed = Output(255, "CA 'mlx5_0'\n\tCA type: MT4129\n", "ibpanic: mlx5_1")
    node.poll(2)
    assert node.rules() == {("infiniband.ibstat_disagrees", "mlx5_1"): DEGRADED}
    node.programs.printed = LOST
    node.poll(LONG)
    assert node.rules()["infiniband.ibstat_disagrees", "mlx5_1"] is DEGRADED


def test_forty_cards_expected_and_none_there_is_one_finding() -> None:
    node = Watched("infiniband", fabric(0), expect=Expect(rdma_ports=40))
    node.poll(3)
    assert node.rules() == {("infiniband.ports_missing", "node"): Health.FAILED}


def test_errors_of_a_card_that_has_been_lent_since_are_not_told_for_ever() -> None:
    node = watched(2)
    node.files.texts[NETNS] = "N"
    node.poll()
    node.files.set("mlx5_1", counters__link_downed="1")
    node.poll()
    assert node.rules() == {("infiniband.link_downed_errors", "mlx5_1 port 1"): DEGRADED}
    take_out(node.files, "mlx5_1")
    assert node.poll() == ()


def test_dual_port_cards_with_one_cable_each_and_a_management_port_are_no_fault() -> None:
    node = watched(8)
    for number in range(8):
        at = f"{RDMA}/mlx5_{number}/ports"
        second = {p.replace("/ports/1/", "/ports/2/"): t for p, t in node.files.texts.items() if at in p}
        node.files.texts |= second
        node.files.texts |= {f"{at}/2/state": "1: DOWN", f"{at}/2/phys_state": "2: Polling"}
    node.files.nic("mlx5_bond_0", "0000:a0:00.0", "pci0000:0a/0000:0a:01.0", link_layer="Ethernet")
    node.files.texts |= {
        f"{RDMA}/mlx5_bond_0/board_id": "MT_0000000359", f"{RDMA}/mlx5_bond_0/ports/1/state": "1: DOWN",
        f"{RDMA}/mlx5_bond_0/ports/1/phys_state": "3: Disabled",
    }  # fmt: skip
    assert node.poll(10) == ()
    node.files.set("mlx5_3", state="1: DOWN", phys_state="2: Polling")
    node.poll(3)
    assert node.rules() == {("infiniband.port_down", "mlx5_3 port 1"): FAILED}


def width(files: Files, lanes: str) -> None:
    files.texts[f"{PCI}/0000:10:00.0/current_link_width"] = lanes


@each(
    ("lanes", "health"),
    [
        (("16", "63", "63"), None),
        (("63", "63", "63"), None),
        (("4", "16", "16"), None),
        (("4", "63", "63"), DEGRADED),
        (("4", "4", "4"), FAILED),
    ],
    ids=["well and then lost", "lost from the start", "repaired", "narrow and then lost", "narrow"],
)
def test_a_card_is_narrow_by_what_was_read_of_its_pcie_link(
    lanes: tuple[str, ...], health: Health | None
) -> None:
    node = watched(2)
    for now in lanes:
        width(node.files, now)
        node.poll()
    assert node.rules() == ({(CARD_PCIE.name, "mlx5_0"): health} if health else {})


@pytest.mark.parametrize("file", ["current_link_width", "current_link_speed"])
def test_each_half_of_a_narrow_link_that_is_lost_holds_what_was_seen(file: str) -> None:
    node = watched(2)
    at = f"{PCI}/0000:10:00.0"
    node.files.texts |= {f"{at}/current_link_width": "4", f"{at}/current_link_speed": "16.0 GT/s PCIe"}
    node.poll()
    assert node.component.findings[0].evidence.endswith("PCIe generation 4 of 5, 4 of 16 lanes")
    node.files.texts[f"{at}/{file}"] = LOST
    node.poll(3)
    assert node.rules() == {(CARD_PCIE.name, "mlx5_0"): DEGRADED}


def test_a_card_whose_place_cannot_be_read_may_be_the_one_that_no_device_claims() -> None:
    node = watched(2)
    node.files.links[f"{RDMA}/mlx5_1/device"] = LOST
    node.poll(3)
    assert node.rules() == {("infiniband.blind", "mlx5_1"): UNKNOWN}


def test_a_function_that_is_gone_is_missed_though_another_of_its_card_is_there() -> None:
    files = Files()
    for function in (0, 1):
        files.nic(f"mlx5_{function}", f"0000:10:00.{function}", "pci0000:00/0000:00:01.0")
        files.texts[f"{RDMA}/mlx5_{function}/node_guid"] = f"0000:0000:0000:100{function}"
    files.texts[NETNS] = "Y"
    node = Watched("infiniband", files)
    node.poll()
    take_out(files, "mlx5_1")
    node.poll(3)
    assert node.rules() == {(DEVICE_GONE.name, "mlx5_1"): FAILED}


def test_the_only_card_is_still_watched_while_a_pod_has_it() -> None:
    node = watched(1)
    node.files.texts[NETNS] = "N"
    node.poll()
    take_out(node.files, "mlx5_0")
    node.poll()
    assert node.component.health is OK
    assert node.component.applicable is True


def test_a_device_of_software_takes_its_faults_along() -> None:
    node = watched(2)
    port = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "link_layer": "Ethernet", "lid": "0x0"}
    files = {**port, "rate": "2.5 Gb/sec (1X SDR)"}
    node.files.texts |= {f"{RDMA}/rxe0/ports/1/{file}": text for file, text in files.items()}
    node.poll()
    node.files.texts[f"{RDMA}/rxe0/ports/1/state"] = "1: DOWN"
    node.poll(3)
    assert node.rules() == {("infiniband.port_down", "rxe0 port 1"): FAILED}
    take_out(node.files, "rxe0")
    assert node.poll() == ()


def test_the_ports_that_are_missed_are_named_and_no_others() -> None:
    node = watched(4, rdma_ports=4)
    node.poll()
    node.files.set("mlx5_2", state="1: DOWN", phys_state="2: Polling")
    node.poll(3)
    finding = next(f for f in node.component.findings if f.rule == "infiniband.ports_missing")
    assert finding.evidence == "3 of 4 expected RDMA ports are active; not active: mlx5_2/1"


@pytest.mark.parametrize("why", [Why.UNSUPPORTED, Why.LOST, Why.TIMEOUT])
@pytest.mark.parametrize("file", ["state", "phys_state", "rate"])
def test_what_every_port_has_and_refuses_to_say_is_not_known(file: str, why: Why) -> None:
    node = watched(2)
    node.poll()
    node.files.refuse("mlx5_1", file, why, 22)
    node.poll()
    assert node.rules() == {("infiniband.blind", "mlx5_1 port 1"): UNKNOWN}
    (finding,) = node.component.findings
    assert finding.evidence.startswith("timeout" if why is Why.TIMEOUT else "lost")


def test_a_counter_that_the_device_does_not_have_is_no_blindness() -> None:
    node = watched(1)
    node.files.set("mlx5_0", counters__symbol_error="N/A (no PMA)")
    assert node.poll(2) == ()


def test_a_counter_that_could_not_be_read_once_is_asked_for_in_the_next_poll() -> None:
    node = watched(1)
    node.files.refuse("mlx5_0", "counters/symbol_error", Why.TIMEOUT, 110)
    node.poll()
    assert node.rules() == {("infiniband.blind", "mlx5_0 port 1"): UNKNOWN}
    node.files.set("mlx5_0", counters__symbol_error="7")
    assert node.poll() == ()
    assert node.series("rdma_port_errors_total", kind="symbol") == [7]


def test_a_counter_that_answered_in_between_is_left_alone_no_longer_than_at_first() -> None:
    node = watched(1)
    path = f"{RDMA}/mlx5_0/ports/1/counters/symbol_error"

    def refused() -> int:
        """Return how often it is asked for in 15 minutes in which it is refused."""
        before = node.files.opened.count(path)
        node.files.texts[path] = Absent(Why.UNSUPPORTED, "EINVAL", 22)
        node.poll(60)
        return node.files.opened.count(path) - before

    first = refused()
    node.files.texts[path] = "4"
    node.poll(100)
    assert node.series("rdma_port_errors_total", kind="symbol") == [4]
    assert refused() == first


EFA = {"hca_type": "EFA", "board_id": "EFA"}


def test_ibstat_need_not_list_a_device_that_it_cannot_open() -> None:
    node = watched(2)
    for number in range(2):
        node.files.texts |= {f"{RDMA}/mlx5_{number}/{file}": text for file, text in EFA.items()}
    node.programs.printed = Output(255, "", "ibpanic: no devices")
    assert node.poll(3) == ()


def ethernet(netdevs: int, layer: str = "Ethernet") -> Watched:
    """A port with so many network devices, each without a signal, that was active."""
    node = watched(2)
    node.files.set("mlx5_1", link_layer=layer)
    node.files.forget(f"{RDMA}/mlx5_1/device/net")
    for number in range(netdevs):
        node.files.texts[f"{RDMA}/mlx5_1/device/net/eth{number}/address"] = "00"
        node.files.texts[f"/sys/class/net/eth{number}/carrier"] = "0"
    node.poll()
    return node


@pytest.mark.parametrize(
    ("netdevs", "layer", "rule"),
    [
        (1, "Ethernet", "infiniband.port_down"),
        (0, "Ethernet", "infiniband.port_disabled"),
        (2, "Ethernet", "infiniband.port_disabled"),
        (1, "InfiniBand", "infiniband.port_disabled"),
    ],
    ids=[
        "its only network device shows it",
        "it has none",
        "which of two is not known",
        "InfiniBand says so",
    ],
)
def test_only_an_ethernet_port_with_one_network_device_is_disabled_for_want_of_a_signal(
    netdevs: int, layer: str, rule: str
) -> None:
    node = ethernet(netdevs, layer)
    node.files.set("mlx5_1", state="1: DOWN", phys_state="3: Disabled")
    node.poll(3)
    assert [found for found, _ in node.rules()] == [rule]


def test_the_signal_of_a_port_that_is_not_disabled_is_not_asked_for() -> None:
    node = ethernet(1)
    node.files.texts["/sys/class/net/eth0/carrier"] = Absent(Why.DENIED, "no", 13)
    assert node.poll() == ()


@pytest.mark.parametrize("file", ["phys_state", "link_layer"])
def test_a_port_without_a_signal_stays_one_while_that_cannot_be_read(file: str) -> None:
    node = ethernet(1)
    node.files.set("mlx5_1", state="1: DOWN", phys_state="3: Disabled")
    node.poll(3)
    node.files.refuse("mlx5_1", file, Why.TIMEOUT, 110)
    node.poll()
    known = {rule for rule, _ in node.rules()} - {"infiniband.blind"}
    assert known == {"infiniband.port_down"}


def test_a_bond_takes_the_functions_of_its_own_card_alone() -> None:
    node = watched(2)
    rename(node.files, "mlx5_0", "mlx5_bond_0")
    node.poll()
    take_out(node.files, "mlx5_1")
    node.poll(3)
    assert node.rules() == {(DEVICE_GONE.name, "mlx5_1"): FAILED}


def test_rdma_devices_that_cannot_be_listed_are_not_none() -> None:
    node = watched(2)
    node.poll()
    node.files.texts[RDMA] = Absent(Why.DENIED, "no", 13)
    node.poll()
    assert node.rules() == {("infiniband.blind", "node"): UNKNOWN}
    assert node.component.findings[0].evidence.endswith("no")


def test_a_fault_of_a_card_that_has_gone_stays_when_another_has_its_name() -> None:
    node = watched(3)
    node.poll()
    node.files.set("mlx5_0", state="1: DOWN", phys_state="2: Polling")
    node.poll(3)
    take_out(node.files, "mlx5_0")
    node.files.forget(f"{PCI}/0000:10:00.0")
    for old, new in (("mlx5_1", "mlx5_0"), ("mlx5_2", "mlx5_1")):
        rename(node.files, old, new)
    node.poll(3)
    assert node.rules() == {
        ("infiniband.device_gone", "0000:10:00.0"): FAILED,
        ("infiniband.port_down", "0000:10:00.0 port 1"): FAILED,
    }


def test_an_ibstat_that_hangs_does_not_confirm_what_was_seen_once() -> None:
    node = watched(2)
    node.programs.printed = Output(255, "CA 'mlx5_0'\n\tCA type: MT4129\n", "ibpanic: mlx5_1")
    node.poll()
    node.programs.printed = LOST
    node.poll()
    assert node.rules() == {}
    node.poll()
    assert node.rules() == {("infiniband.ibstat_disagrees", "node"): DEGRADED}
