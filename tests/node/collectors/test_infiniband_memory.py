"""RDMA ports and cards that were there before the agent started, or that should be by what others show."""

from dataclasses import replace

import pytest

from tests.node.collectors.drawn import PCI, RDMA, Files, Watched
from tests.node.collectors.test_infiniband import DEGRADED, FAILED, fabric, watched
from tests.node.collectors.test_infiniband_cards import rename, take_out
from tests.rows import each
from wirewatch.collectors.infiniband import COLLECTOR
from wirewatch.collectors.infiniband.judge import PORT_SLOW
from wirewatch.collectors.infiniband.siblings import PORT_INACTIVE
from wirewatch.core.types import Absent, Expect, Health, Why

POLLING = {"state": "1: DOWN", "phys_state": "2: Polling"}
CONFIRMED = 3
UNKNOWN = Health.UNKNOWN


def restarted(node: Watched) -> Watched:
    """The same node after a reboot: what outlives the process, and no more."""
    assert COLLECTOR.lasting is not None
    kept = COLLECTOR.lasting.keep(node.component.memory)
    new = Watched("infiniband", node.files, expect=node.expect)
    new.component = replace(new.component, memory=COLLECTOR.lasting.recall(kept))
    return new


def before(ports: int = 8) -> Watched:
    """A node on which all was well."""
    node = watched(ports)
    assert node.poll(2) == ()
    return node


@pytest.mark.parametrize("down", [range(8), range(4), range(7, 8)], ids=["all", "half", "one"])
def test_ports_that_poll_since_the_machine_was_started_are_failed_by_memory(down: range) -> None:
    """Before: OK, since only ports that this process had seen active were judged."""
    node = before()
    for number in down:
        node.files.set(f"mlx5_{number}", **POLLING)
    node = restarted(node)
    node.poll(CONFIRMED)
    assert node.rules() == {("infiniband.port_down", f"mlx5_{n} port 1"): FAILED for n in down}
    assert "was active at 400 Gb/s" in node.component.findings[0].evidence


def test_ports_that_are_narrower_or_slower_than_they_were_are_failed() -> None:
    node = before()
    for number in range(8):
        node.files.set(f"mlx5_{number}", rate="200 Gb/sec (2X NDR)")
    node = restarted(node)
    node.poll(CONFIRMED)
    assert node.rules() == {("infiniband.port_slow", f"mlx5_{n} port 1"): FAILED for n in range(8)}


def test_a_node_as_it_was_is_healthy_after_a_restart() -> None:
    assert restarted(before()).poll(30) == ()


def test_a_card_that_is_missing_is_named_though_the_others_have_moved_up_to_its_name() -> None:
    node = before(3)
    take_out(node.files, "mlx5_0")
    node.files.forget(f"{PCI}/0000:10:00.0")
    for old, new in (("mlx5_1", "mlx5_0"), ("mlx5_2", "mlx5_1")):
        rename(node.files, old, new)
    node = restarted(node)
    node.poll(CONFIRMED)
    assert node.rules() == {("infiniband.device_gone", "0000:10:00.0"): FAILED}
    assert node.poll(30) == node.component.findings
    assert len(node.component.findings) == 1


def test_cards_whose_buses_are_numbered_again_are_the_same_cards() -> None:
    node = before(2)
    files = Files()
    files.nic("mlx5_0", "0000:a0:00.0", "pci0000:00/0000:00:01.0")
    files.nic("mlx5_1", "0000:a1:00.0", "pci0000:00/0000:00:02.0", rate="200 Gb/sec (4X HDR)")
    for number in (0, 1):
        files.texts[f"{RDMA}/mlx5_{number}/node_guid"] = f"0000:0000:0000:{16 + number:04x}"
    node.files = files
    node = restarted(node)
    node.poll(CONFIRMED)
    assert node.rules() == {("infiniband.port_slow", "mlx5_1 port 1"): FAILED}


def test_a_port_that_is_not_listed_any_more_is_down_and_one_bad_look_is_not_enough() -> None:
    node = before(2)
    for table in (node.files.texts, node.files.links):
        for path in [p for p in table if p.startswith(f"{RDMA}/mlx5_1/ports/")]:
            del table[path]
    node = restarted(node)
    node.poll()
    assert node.rules() == {("infiniband.port_down", "mlx5_1 port 1"): DEGRADED}
    node.poll(2)
    assert node.rules() == {("infiniband.port_down", "mlx5_1 port 1"): FAILED}
    assert "no longer listed" in node.component.findings[0].evidence


def test_ports_that_are_listed_again_are_looked_at_at_once() -> None:
    node = before(2)
    node = restarted(node)
    texts = dict(node.files.texts)
    node.files.texts = {p: t for p, t in texts.items() if not p.startswith(f"{RDMA}/mlx5_1/ports/")}
    node.poll()
    node.files.texts = texts
    node.poll()
    assert node.rules() == {}


def test_what_was_taken_out_is_forgotten_and_what_is_slower_is_as_it_is() -> None:
    node = before(4)
    take_out(node.files, "mlx5_0")
    node.files.forget(f"{PCI}/0000:10:00.0")
    node.files.set("mlx5_1", **POLLING)
    for number in (2, 3):
        node.files.set(f"mlx5_{number}", rate="200 Gb/sec (4X HDR)")
    node = restarted(node)
    node.poll(CONFIRMED)
    assert len(node.rules()) == 4
    assert COLLECTOR.forget is not None
    node.component = replace(node.component, memory=COLLECTOR.forget(node.component.memory))
    node.poll(CONFIRMED)
    assert node.rules() == {("infiniband.port_inactive", "mlx5_1 port 1"): DEGRADED}, "as on any node"
    new = restarted(node)
    new.poll(CONFIRMED)
    assert new.rules() == node.rules()
    assert {str(one) for one in node.component.observed.devices or ()} >= {"mlx5_0"}


def test_half_of_the_ports_without_a_signal_are_reported_without_any_memory() -> None:
    """Before: OK, as fewer than three quarters were active."""
    node = watched(8)
    for number in range(4):
        node.files.set(f"mlx5_{number}", **POLLING)
    node.poll(2)
    assert node.rules() == {("infiniband.port_inactive", f"mlx5_{n} port 1"): DEGRADED for n in range(4)}


def test_no_port_with_a_signal_is_one_finding_for_all() -> None:
    """Before: OK."""
    node = watched(8)
    for number in range(8):
        node.files.set(f"mlx5_{number}", **POLLING)
    node.poll(2)
    assert node.rules() == {("infiniband.port_inactive", "node"): DEGRADED}
    assert "all 8 ports" in node.component.findings[0].evidence


@pytest.mark.parametrize("counter", ["counters__port_rcv_data", "counters__link_downed"])
def test_a_port_that_has_received_since_its_card_was_started_was_active(counter: str) -> None:
    node = watched(2)
    node.files.set("mlx5_1", **POLLING, **{counter: "7"})
    node.poll(CONFIRMED)
    assert node.rules() == {("infiniband.port_down", "mlx5_1 port 1"): FAILED}


def test_second_ports_that_are_never_wired_are_no_fault() -> None:
    files = Files()
    for card in range(4):
        for function in (0, 1):
            address = f"0000:1{card}:00.{function}"
            down = POLLING if function else {}
            files.nic(f"mlx5_{2 * card + function}", address, f"pci0000:0{card}/0000:0{card}:01.0", **down)
    assert Watched("infiniband", files).poll(CONFIRMED) == ()


def test_two_spare_cards_beside_working_ones_are_no_fault() -> None:
    files = fabric(8)
    for number in (8, 9):
        files.nic(
            f"mlx5_{number}", f"0000:b{number}:00.0", f"pci0000:0{number}/0000:0{number}:01.0", **POLLING
        )
        files.texts[f"{RDMA}/mlx5_{number}/board_id"] = "MT_STORAGE"
    assert Watched("infiniband", files).poll(CONFIRMED) == ()


def test_an_infiniband_port_with_two_lanes_is_reported_unless_siblings_or_the_operator_mean_it() -> None:
    files = fabric(1)
    files.set("mlx5_0", rate="200 Gb/sec (2X NDR)")
    node = Watched("infiniband", files)
    node.poll(CONFIRMED)
    assert node.rules() == {("infiniband.port_slow", "mlx5_0 port 1"): DEGRADED}
    assert "2 of 4 lanes" in node.component.findings[0].evidence
    alike = fabric(2)
    for number in range(2):
        alike.set(f"mlx5_{number}", rate="200 Gb/sec (2X NDR)")
    assert Watched("infiniband", alike).poll(CONFIRMED) == ()
    meant = Watched("infiniband", files, expect=Expect(rdma_rate_bytes_per_second=25e9))
    assert meant.poll(CONFIRMED) == ()


def test_two_lanes_of_ethernet_are_what_its_speed_has() -> None:
    files = fabric(2)
    for number in range(2):
        files.set(f"mlx5_{number}", rate="200 Gb/sec (2X NDR)", link_layer="Ethernet")
    assert Watched("infiniband", files).poll(CONFIRMED) == ()


def stray(files: Files, kind: str, address: str = "0000:77:00.0") -> None:
    files.device(address, "pci0000:07/0000:07:01.0", driver="mlx5_core", device="0x1021", **{"class": kind})


def test_a_card_with_its_driver_and_no_rdma_device_is_missing_since_the_start() -> None:
    """Before: OK."""
    node = watched(2)
    stray(node.files, "0x020700")
    node.poll(CONFIRMED)
    assert node.rules() == {("infiniband.device_gone", "0000:77:00.0"): FAILED}
    assert "mlx5_core is bound" in node.component.findings[0].evidence


@pytest.mark.parametrize(
    ("sibling", "address", "found"),
    [("0x1021", "0000:77:00.0", True), ("0x101f", "0000:77:00.0", False), ("0x1021", "0000:10:00.1", False)],
    ids=["as its siblings", "another kind of card", "bonded with the other function"],
)
def test_an_ethernet_card_is_missed_where_its_siblings_offer_rdma(
    sibling: str, address: str, *, found: bool
) -> None:
    node = watched(2)
    for number in (0x10, 0x11):
        node.files.texts[f"{PCI}/0000:{number:02x}:00.0/device"] = sibling
    stray(node.files, "0x020000", address)
    node.poll(CONFIRMED)
    assert bool(node.rules()) is found


def test_a_card_without_the_rdma_core_was_never_ours() -> None:
    node = watched(0)
    stray(node.files, "0x020700")
    del node.files.texts["/sys/module/ib_core/parameters/netns_mode"]
    assert node.poll(CONFIRMED) == ()


@pytest.mark.parametrize("cards", [0, 2], ids=["alone", "beside others"])
def test_a_card_for_infiniband_without_a_driver_is_not_known_unless_it_was_handed_on(cards: int) -> None:
    """Before: OK."""
    node = watched(cards)
    stray(node.files, "0x020700")
    del node.files.links[f"{PCI}/0000:77:00.0/driver"]
    (found,) = node.poll(CONFIRMED)
    assert (found.rule, found.health) == ("infiniband.device_gone", UNKNOWN)
    assert found.evidence == "0000:77:00.0 has no driver, though it should"
    settled = Watched("infiniband", node.files, expect=Expect(rdma_ports=cards))
    assert settled.poll(CONFIRMED) == ()
    handed = Watched("infiniband", node.files)
    handed.files.texts[f"{PCI}/0000:77:00.0/driver_override"] = "vfio-pci"
    assert handed.poll(CONFIRMED) == ()


def test_a_card_for_ethernet_without_a_driver_is_unused_where_no_other_is_like_it() -> None:
    node = watched(2)
    stray(node.files, "0x020000")
    del node.files.links[f"{PCI}/0000:77:00.0/driver"]
    assert node.poll(CONFIRMED) == ()


@pytest.mark.parametrize(("booted", "health"), [(100.0, UNKNOWN), (400.0, FAILED)])
def test_after_a_boot_a_card_and_a_port_may_take_their_time(booted: float, health: Health) -> None:
    node = watched(2)
    stray(node.files, "0x020700")
    node.files.set("mlx5_1", state="2: INIT")
    node.host.told["BootTime"] = node.clock.now() - booted
    node.poll(8)
    parts = {"infiniband.port_down": "mlx5_1 port 1", "infiniband.device_gone": "0000:77:00.0"}
    assert node.rules() == dict.fromkeys(parts.items(), health)


def test_names_that_were_exchanged_carry_their_own_past() -> None:
    node = watched(2)
    node.files.set("mlx5_1", rate="100 Gb/sec (4X EDR)")
    node.poll()
    for old, new in (("mlx5_0", "spare"), ("mlx5_1", "mlx5_0"), ("spare", "mlx5_1")):
        rename(node.files, old, new)
    node.poll(CONFIRMED)
    assert node.series("rdma_port_rate_expected_bytes_per_second", device="mlx5_0") == [12.5e9]


def test_a_guid_that_cannot_be_read_for_a_moment_changes_nothing() -> None:
    node = before(2)
    node.files.texts[f"{RDMA}/mlx5_1/node_guid"] = Absent(Why.TIMEOUT, "no answer", 110)
    assert node.poll() == ()


DOWN_BY = {
    "a signal that is looked for": POLLING,
    "a port that is switched off": {**POLLING, "phys_state": "3: Disabled"},
}


@each(
    ("ports", "active", "down", "reported"),
    [
        (8, 4, "a signal that is looked for", True),
        (4, 2, "a signal that is looked for", True),
        (6, 2, "a signal that is looked for", False),
        (3, 1, "a signal that is looked for", False),
        (2, 1, "a signal that is looked for", False),
        (8, 4, "a port that is switched off", False),
        (8, 5, "a port that is switched off", False),
        (8, 6, "a port that is switched off", True),
        (4, 3, "a port that is switched off", True),
    ],
)
def test_siblings_say_what_a_port_that_never_was_active_should_be(
    ports: int, active: int, down: str, *, reported: bool
) -> None:
    node = watched(ports)
    for number in range(active, ports):
        node.files.set(f"mlx5_{number}", **DOWN_BY[down])
    node.poll(2)
    found = {(PORT_INACTIVE.name, f"mlx5_{n} port 1"): DEGRADED for n in range(active, ports)}
    assert node.rules() == (found if reported else {})


def test_two_active_ports_are_too_few_to_speak_for_one_that_is_switched_off() -> None:
    node = watched(3)
    node.policy(sibling_ratio=0.5)
    node.files.set("mlx5_2", **DOWN_BY["a port that is switched off"])
    assert node.poll(2) == ()


def test_cards_without_a_board_have_no_siblings() -> None:
    node = watched(4)
    for number in range(4):
        del node.files.texts[f"{RDMA}/mlx5_{number}/board_id"]
    node.files.set("mlx5_3", **POLLING)
    assert node.poll(2) == ()


@pytest.mark.parametrize(("cards", "reported"), [(3, False), (4, True)])
def test_more_than_three_cards_of_a_kind_without_a_signal_are_reported_beside_others(
    cards: int, *, reported: bool
) -> None:
    node = watched(2 + cards)
    for number in range(2, 2 + cards):
        node.files.set(f"mlx5_{number}", **POLLING)
        node.files.texts[f"{RDMA}/mlx5_{number}/board_id"] = "MT_STORAGE"
    node.poll(2)
    assert node.rules() == ({(PORT_INACTIVE.name, "node"): DEGRADED} if reported else {})


@pytest.mark.parametrize(("ports", "reported"), [(1, False), (2, True)])
def test_two_ports_without_a_signal_are_reported_where_no_port_works(ports: int, *, reported: bool) -> None:
    node = watched(ports)
    for number in range(ports):
        node.files.set(f"mlx5_{number}", **POLLING)
    node.poll(2)
    assert node.rules() == ({(PORT_INACTIVE.name, "node"): DEGRADED} if reported else {})


def test_one_port_that_is_switched_off_among_those_without_a_signal_says_nothing_of_all() -> None:
    node = watched(4)
    for number in range(4):
        node.files.set(f"mlx5_{number}", **POLLING)
    node.files.set("mlx5_3", phys_state="3: Disabled")
    assert node.poll(2) == ()


def test_ports_that_never_were_active_have_no_rate_that_counts() -> None:
    node = watched(6)
    node.files.set("mlx5_2", rate="200 Gb/sec (4X HDR)")
    for number in (3, 4, 5):
        node.files.set(f"mlx5_{number}", **DOWN_BY["a port that is switched off"])
    node.poll(2)
    assert node.rules() == {(PORT_SLOW.name, "mlx5_2 port 1"): DEGRADED}


def forgetting(node: Watched) -> None:
    assert COLLECTOR.forget is not None
    node.component = replace(node.component, memory=COLLECTOR.forget(node.component.memory))


def test_what_a_port_has_when_others_are_forgotten_it_must_keep() -> None:
    node = before(1)
    forgetting(node)
    node.files.set("mlx5_0", rate="200 Gb/sec (4X HDR)")
    node.poll(CONFIRMED)
    assert node.rules() == {(PORT_SLOW.name, "mlx5_0 port 1"): FAILED}


def test_a_port_that_was_down_when_it_was_forgotten_does_not_flap_when_it_comes_up() -> None:
    node = before(1)
    node.files.set("mlx5_0", **POLLING)
    node.poll(CONFIRMED)
    forgetting(node)
    node.files.set("mlx5_0", state="4: ACTIVE", phys_state="5: LinkUp")
    node.poll()
    assert node.series("rdma_port_flaps_total") == [0]


def test_lanes_of_before_are_known_after_a_restart() -> None:
    node = before(1)
    forgetting(node)
    assert COLLECTOR.lasting is not None
    for _ in range(2):
        kept = COLLECTOR.lasting.keep(node.component.memory)
        assert [(one.rate, one.lanes) for one in kept.ports] == [(50e9, 4)]
        node.files.set("mlx5_0", rate="100 Gb/sec (1X NDR)")
        node.poll()


def test_only_ports_that_were_active_outlive_the_process() -> None:
    node = watched(2)
    node.files.set("mlx5_1", **DOWN_BY["a port that is switched off"])
    node.poll()
    assert COLLECTOR.lasting is not None
    kept = COLLECTOR.lasting.keep(node.component.memory)
    assert [one.device for one in kept.ports] == ["mlx5_0"]
    assert set(kept.cards) == {"mlx5_0", "mlx5_1"}


def test_a_port_that_was_not_read_since_the_start_is_forgotten() -> None:
    node = restarted(before(2))
    forgetting(node)
    node.files.forget(f"{RDMA}/mlx5_1/ports/")
    assert node.poll() == ()


@pytest.mark.parametrize("cable", [POLLING, {**POLLING, "phys_state": "5: LinkUp"}])
def test_an_ethernet_port_that_never_was_active_is_an_empty_socket(cable: dict[str, str]) -> None:
    node = watched(2)
    node.files.set("mlx5_1", link_layer="Ethernet", **cable)
    assert node.poll(CONFIRMED) == ()
