"""RDMA ports: what they show, what is wrong with them, and what is not their fault."""

import pytest

from tests.node.collectors.drawn import PCI, RDMA, Files, Watched
from tests.rows import each
from wirewatch.core.ports import Output
from wirewatch.core.types import Absent, Expect, Health, Why

GB = 1e9
OK, DEGRADED, UNKNOWN, FAILED = Health.OK, Health.DEGRADED, Health.UNKNOWN, Health.FAILED


def fabric(ports: int = 8) -> Files:
    files = Files()
    for number in range(ports):
        files.nic(f"mlx5_{number}", f"0000:{number + 16:02x}:00.0", f"pci0000:0{number}/0000:0{number}:01.0")
    files.texts["/sys/module/ib_core/parameters/netns_mode"] = "Y"
    return files


def watched(ports: int = 8, **expect: int) -> Watched:
    return Watched("infiniband", fabric(ports), expect=Expect(**expect))  # type: ignore[arg-type]


def test_a_healthy_fabric_has_no_finding_and_every_number() -> None:
    node = watched()
    node.files.set("mlx5_3", counters__port_xmit_data="1000", counters__port_rcv_data="2000")
    assert node.poll(5) == ()
    assert node.component.health is OK
    assert node.series("rdma_port_state", device="mlx5_3", state="active") == [1]
    assert node.series("rdma_port_physical_state", device="mlx5_3", state="polling") == [0]
    assert node.series("rdma_port_rate_bytes_per_second") == [50 * GB] * 8
    assert node.series("rdma_port_rate_expected_bytes_per_second") == [50 * GB] * 8
    assert node.series("rdma_port_transmit_bytes_total", device="mlx5_3") == [4000]
    assert node.series("rdma_port_receive_bytes_total", device="mlx5_3") == [8000]
    place = {"pci": "0000:13:00.0", "numa": "0"}
    assert node.series("rdma_port_info", device="mlx5_3", netdev="ib3", lid="18", **place) == [1]


def test_no_rdma_is_nothing_to_watch() -> None:
    node = Watched("infiniband")
    assert node.poll(2) == ()
    assert node.component.health is None


def test_ports_that_are_expected_and_are_not_there_are_a_fault() -> None:
    node = Watched("infiniband", expect=Expect(rdma_ports=8))
    node.poll()
    assert node.rules() == {("infiniband.ports_missing", "node"): DEGRADED}
    node.poll(2)
    assert node.rules() == {("infiniband.ports_missing", "node"): FAILED}
    assert node.component.findings[0].evidence == "0 of 8 expected RDMA ports are active"


def test_a_port_that_goes_down_is_failed_once_confirmed_and_shows_no_rate() -> None:
    node = watched()
    node.poll()
    node.files.set("mlx5_2", state="1: DOWN", phys_state="2: Polling", rate="400 Gb/sec (4X NDR)")
    node.poll()
    assert node.rules() == {("infiniband.port_down", "mlx5_2 port 1"): DEGRADED}
    node.poll(2)
    assert node.rules() == {("infiniband.port_down", "mlx5_2 port 1"): FAILED}
    assert "cable" in node.component.findings[0].action
    assert node.series("rdma_port_rate_bytes_per_second", device="mlx5_2") == []
    node.files.set("mlx5_2", state="4: ACTIVE", phys_state="5: LinkUp")
    node.poll()
    assert node.rules() == {}


def test_an_unused_port_is_no_fault_but_one_among_many_active_siblings_is_conspicuous() -> None:
    alone = watched(2)
    alone.files.set("mlx5_1", state="1: DOWN", phys_state="3: Disabled", rate="100 Gb/sec (4X EDR)")
    assert alone.poll(5) == ()
    many = watched(8)
    many.files.set("mlx5_1", state="1: DOWN", phys_state="2: Polling", rate="40 Gb/sec (4X QDR)")
    many.poll(5)
    assert many.rules() == {("infiniband.port_inactive", "mlx5_1 port 1"): DEGRADED}
    assert many.component.health is DEGRADED


def test_a_wire_that_is_up_without_a_subnet_manager_is_a_fault_from_the_start() -> None:
    node = watched(1)
    node.files.set("mlx5_0", state="2: INIT", phys_state="5: LinkUp")
    node.poll(4)
    assert node.rules() == {("infiniband.port_down", "mlx5_0 port 1"): UNKNOWN}
    node.poll()
    assert node.rules() == {("infiniband.port_down", "mlx5_0 port 1"): FAILED}
    assert "subnet manager" in node.component.findings[0].action


def test_a_port_slower_than_it_was_is_failed_and_one_slower_than_its_siblings_only_degraded() -> None:
    node = watched()
    node.files.set("mlx5_5", rate="200 Gb/sec (4X HDR)")
    node.poll(4)
    assert node.rules() == {("infiniband.port_slow", "mlx5_5 port 1"): DEGRADED}
    node.files.set("mlx5_6", rate="100 Gb/sec (1X NDR)")
    node.poll(3)
    assert node.rules()["infiniband.port_slow", "mlx5_6 port 1"] is FAILED
    evidence = {f.subject.device: f.evidence for f in node.component.findings}
    assert evidence["mlx5_6"] == "active at 100 Gb/s (1X NDR), expected 400 Gb/s"


def test_ports_of_another_network_are_not_measured_by_the_others() -> None:
    node = watched()
    node.files.set("mlx5_7", rate="100 Gb/sec (4X EDR)", link_layer="Ethernet")
    assert node.poll(4) == ()
    assert node.series("rdma_port_rate_expected_bytes_per_second", device="mlx5_7") == [12.5 * GB]


def test_a_rate_that_the_operator_expects_is_the_measure() -> None:
    node = watched(1, rdma_rate_bytes_per_second=100 * GB)  # type: ignore[arg-type]
    node.poll(3)
    assert node.rules() == {("infiniband.port_slow", "mlx5_0 port 1"): FAILED}


def test_three_outages_within_half_a_day_are_noticed_and_are_failed_if_they_are_long() -> None:
    node = watched(1)
    node.poll()

    def flap(polls: int) -> None:
        node.files.set("mlx5_0", state="1: DOWN", phys_state="2: Polling")
        node.poll(polls)
        node.files.set("mlx5_0", state="4: ACTIVE", phys_state="5: LinkUp")
        node.poll(5)

    for count in (1, 2):
        flap(1)
        assert node.series("rdma_port_flaps_total") == [count]
        assert node.rules() == {}
    for _ in range(3):
        flap(1)
        assert node.rules() == {("infiniband.port_flapping", "mlx5_0 port 1"): DEGRADED}
    assert "5 times within 12 h, 0 of them for 25 s or longer" in node.component.findings[0].evidence
    for _ in range(3):
        flap(2)
    assert node.rules() == {("infiniband.port_flapping", "mlx5_0 port 1"): FAILED}
    node.poll(2, every=43200.0)
    assert node.rules() == {}


def test_an_outage_that_no_poll_sees_counts_by_the_counter_of_its_wire() -> None:
    node = watched(1)
    node.poll()
    for count in (1, 2, 3):
        node.files.set("mlx5_0", counters__link_downed=str(count))
        node.poll(2)
        assert node.series("rdma_port_flaps_total") == [count]
    assert node.rules()["infiniband.port_flapping", "mlx5_0 port 1"] is DEGRADED


def test_an_outage_that_poll_and_counter_see_is_one() -> None:
    node = watched(1)
    node.poll()
    node.files.set("mlx5_0", state="1: DOWN", phys_state="2: Polling", counters__link_downed="1")
    node.poll()
    node.files.set("mlx5_0", state="4: ACTIVE", phys_state="5: LinkUp", counters__link_downed="2")
    node.poll(2)
    assert node.series("rdma_port_flaps_total") == [1]


@each(
    ("counter", "growth", "kind"),
    [
        ("counters__symbol_error", 120, "symbol"),
        ("counters__link_error_recovery", 5, "link_recovery"),
        ("counters__link_downed", 1, "link_downed"),
        ("counters__local_link_integrity_errors", 1, "local_integrity"),
        ("counters__excessive_buffer_overrun_errors", 1, "buffer_overrun"),
        ("counters__port_rcv_errors", 600, "receive"),
        ("counters__port_xmit_discards", 6000, "transmit_discards"),
        ("hw_counters__rnr_nak_retry_err", 1, "rnr_retry"),
        ("hw_counters__local_ack_timeout_err", 60, "ack_timeout"),
    ],
)
def test_errors_count_from_when_we_look_and_to_the_limit(counter: str, growth: int, kind: str) -> None:
    node = watched(1)
    node.files.set("mlx5_0", **{counter: "7"})
    assert node.poll(2) == ()
    node.files.set("mlx5_0", **{counter: str(7 + growth - 1)})
    assert node.poll() == () or growth == 1
    node.files.set("mlx5_0", **{counter: str(7 + growth)})
    node.poll()
    assert node.rules() == {(f"infiniband.{kind}_errors", "mlx5_0 port 1"): DEGRADED}


def test_congestion_is_no_fault() -> None:
    node = watched(1)
    node.poll()
    node.files.set("mlx5_0", counters__port_xmit_wait="2489603687", hw_counters__np_cnp_sent="99999999")
    assert node.poll(2) == ()
    assert node.series("rdma_port_congestion_total", kind="wait") == [2489603687]


def test_a_counter_that_was_at_its_ceiling_is_blind_and_one_that_reaches_it_is_reported() -> None:
    node = watched(1)
    node.files.set("mlx5_0", counters__excessive_buffer_overrun_errors="15")
    assert node.poll(3) == ()
    assert node.series("rdma_port_counters_saturated") == [1]
    node.files.set("mlx5_0", counters__symbol_error="65535")
    node.poll(2)
    assert node.rules() == {
        ("infiniband.symbol_errors", "mlx5_0 port 1"): DEGRADED,
        ("infiniband.counter_saturated", "mlx5_0 port 1"): DEGRADED,
    }
    assert node.series("rdma_port_counters_saturated") == [2]
    node.poll(2, every=4000.0)
    assert node.rules() == {("infiniband.counter_saturated", "mlx5_0 port 1"): DEGRADED}
    node.files.set("mlx5_0", counters__symbol_error="0", counters__excessive_buffer_overrun_errors="0")
    assert node.poll() == ()
    assert node.series("rdma_port_counters_saturated") == [0]


def test_an_excluded_device_is_never_opened_nor_is_ibstat_which_would() -> None:
    node = watched()
    node.options(exclude=("mlx5_[67]",))
    node.poll(3)
    of_excluded = {p for p in node.files.opened if "mlx5_6" in p or "mlx5_7" in p}
    assert of_excluded <= {f"{RDMA}/mlx5_6/device", f"{RDMA}/mlx5_7/device"}, "links, which are no files"
    assert node.programs.runs == 0
    assert len(node.series("rdma_port_rate_bytes_per_second")) == 6
    # Where it is, and which cards no device claims, is looked at now and then.
    assert node.files.opened.count(f"{RDMA}/mlx5_6/device") == 1
    assert node.files.opened.count(PCI) == 2


def test_a_counter_that_the_device_refuses_is_left_alone_for_longer_each_time() -> None:
    node = watched(1)
    path = f"{RDMA}/mlx5_0/ports/1/counters/symbol_error"
    node.files.texts[path] = Absent(Why.UNSUPPORTED, "EINVAL", 22)
    assert node.poll(200) == ()
    asked = node.files.opened.count(path)
    assert asked == 3  # at 0 s, after 10 and after 30 minutes
    node.files.texts[path] = "4"
    node.poll(200)
    assert node.series("rdma_port_errors_total", kind="symbol") == [4]


def test_a_card_in_another_namespace_or_passed_to_a_virtual_machine_is_away_and_not_gone() -> None:
    node = watched(8, rdma_ports=8)
    node.poll()
    node.files.texts["/sys/module/ib_core/parameters/netns_mode"] = "N"
    node.files.forget(f"{RDMA}/mlx5_4")
    assert node.poll(4) == ()
    assert node.series("rdma_device_away_info", device="mlx5_4") == [1]
    node.files.links[f"{PCI}/0000:14:00.0/driver"] = "/sys/bus/pci/drivers/vfio-pci"
    assert node.poll(4) == ()
    assert node.component.samples


def test_an_agent_that_starts_while_a_pod_has_a_card_does_not_miss_its_port() -> None:
    node = watched(8, rdma_ports=8)
    node.files.texts["/sys/module/ib_core/parameters/netns_mode"] = "N"
    node.files.forget(f"{RDMA}/mlx5_4")
    assert node.poll(4) == ()


@pytest.mark.parametrize(
    ("left", "words"),
    [
        ({}, "offers no RDMA device"),
        ({"driver": ""}, "has no driver"),
        ({"device": ""}, "no PCI device"),
        ({"core": ""}, "ib_core"),
    ],
)
def test_a_card_that_has_gone_is_failed(left: dict[str, str], words: str) -> None:
    node = watched()
    node.poll()
    node.files.forget(f"{RDMA}/mlx5_4")
    if "driver" in left:
        del node.files.links[f"{PCI}/0000:14:00.0/driver"]
    if "device" in left:
        node.files.forget(f"{PCI}/0000:14:00.0")
    if "core" in left:
        del node.files.texts["/sys/module/ib_core/parameters/netns_mode"]
    node.poll(3)
    assert node.rules() == {("infiniband.device_gone", "mlx5_4"): FAILED}
    assert words in node.component.findings[0].evidence


def test_where_a_card_is_that_cannot_be_reported_is_not_known() -> None:
    node = watched()
    node.poll()
    node.files.forget(f"{RDMA}/mlx5_4")
    node.files.texts["/sys/module/ib_core/parameters/netns_mode"] = Absent(Why.DENIED, "no", 13)
    node.poll(3)
    assert node.rules() == {("infiniband.blind", "mlx5_4"): UNKNOWN}


def test_one_port_that_cannot_be_read_does_not_sink_the_others() -> None:
    node = watched()
    node.poll()
    node.files.refuse("mlx5_1", "state", Why.LOST, 19)
    node.poll()
    assert node.rules() == {("infiniband.blind", "mlx5_1 port 1"): UNKNOWN}
    assert len(node.series("rdma_port_state", state="active")) == 7


def test_a_fault_is_held_while_it_cannot_be_read_and_is_not_confirmed_by_that() -> None:
    node = watched()
    node.poll()
    node.files.set("mlx5_1", state="1: DOWN", phys_state="2: Polling")
    node.poll()
    node.files.refuse("mlx5_1", "state", Why.TIMEOUT, 110)
    node.poll(5)
    assert node.rules()["infiniband.port_down", "mlx5_1 port 1"] is DEGRADED
    node.files.set("mlx5_1", state="1: DOWN")
    node.poll(2)
    assert node.rules() == {("infiniband.port_down", "mlx5_1 port 1"): FAILED}
    node.files.refuse("mlx5_1", "state", Why.TIMEOUT, 110)
    node.poll(2)
    assert node.rules()["infiniband.port_down", "mlx5_1 port 1"] is FAILED


def test_a_card_in_a_narrow_slot_runs_as_fast_as_the_slot_and_one_below_it_is_a_fault() -> None:
    node = watched(2)
    root = f"{PCI}/0000:00:01.0"
    node.files.texts |= {f"{root}/max_link_width": "8", f"{root}/max_link_speed": "16.0 GT/s PCIe"}
    at = f"{PCI}/0000:10:00.0"
    node.files.texts |= {f"{at}/current_link_width": "8", f"{at}/current_link_speed": "16.0 GT/s PCIe"}
    assert node.poll(4) == ()
    node.files.texts[f"{at}/current_link_width"] = "4"
    node.poll(3)
    assert node.rules() == {("infiniband.pcie", "mlx5_0"): FAILED}
    assert "4 of 8 lanes" in node.component.findings[0].evidence
    # A card whose registers read all ones does not answer: that is no repair.
    node.files.texts[f"{at}/current_link_width"] = "63"
    node.poll(3)
    assert node.rules() == {("infiniband.pcie", "mlx5_0"): FAILED}


def ibstat(*ports: str) -> Output:
    text = "".join(
        f"CA '{name}'\n\tCA type: MT4129\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n"
        "\t\tRate: 400\n\t\tBase lid: 18\n\t\tLink layer: InfiniBand\n"
        for name in ports
    )
    return Output(0, text)


def test_ibstat_that_agrees_is_run_now_and_then() -> None:
    node = watched(2)
    node.programs.printed = ibstat("mlx5_0", "mlx5_1")
    assert node.poll(41) == ()
    assert node.programs.runs == 3
    assert node.series("rdma_ibstat_lines_unparsed_total") == [0]


def test_ibstat_that_disagrees_twice_is_a_finding_and_once_is_a_port_that_changed() -> None:
    node = watched(2)
    node.programs.printed = ibstat("mlx5_0", "mlx5_1")
    node.files.set("mlx5_1", rate="200 Gb/sec (4X HDR)", state="3: ARMED", phys_state="5: LinkUp")
    node.poll()
    assert "infiniband.ibstat_disagrees" not in {rule for rule, _ in node.rules()}
    node.poll()
    finding = next(f for f in node.component.findings if f.rule == "infiniband.ibstat_disagrees")
    assert finding.evidence == "state: ibstat active, sysfs armed; rate: ibstat 400 Gb/s, sysfs 200 Gb/s"
    assert node.programs.runs == 2
    node.files.set("mlx5_1", rate="400 Gb/sec (4X NDR)", state="4: ACTIVE")
    node.poll(25)
    assert node.rules() == {}


def test_ibstat_that_fails_half_way_names_the_device_that_it_misses() -> None:
    node = watched(2)
    node.programs.printed = Output(255, ibstat("mlx5_0").out, "ibpanic: stat of IB device 'mlx5_1' failed")
    node.poll(2)
    assert node.rules() == {("infiniband.ibstat_disagrees", "mlx5_1"): DEGRADED}
    assert "mlx5_1' failed" in node.component.findings[0].evidence


def test_ibstat_that_lists_nothing_is_one_trouble_and_not_one_of_each_card() -> None:
    node = watched(4)
    node.programs.printed = Output(255, "", "ibpanic: can't open UMAD port ((null):0)")
    node.poll(25)
    assert node.programs.runs == 3
    assert node.rules() == {("infiniband.ibstat_disagrees", "node"): DEGRADED}
    told = "ibstat (exit status 255) lists none of 4 devices: ibpanic: can't open UMAD port ((null):0)"
    assert node.component.findings[0].evidence == told


def test_ibstat_that_hangs_is_reported_and_one_that_is_not_installed_is_not() -> None:
    node = watched(2)
    assert node.poll(2) == ()
    assert node.programs.runs == 1
    hung = watched(2)
    hung.programs.printed = Absent(Why.TIMEOUT, "ibstat did not end within 5 s")
    hung.poll(2)
    assert hung.rules() == {("infiniband.ibstat_disagrees", "node"): DEGRADED}


def test_efa_counts_its_bytes_itself() -> None:
    node = watched(1)
    node.files.forget(f"{RDMA}/mlx5_0/ports/1/counters")
    node.files.set(
        "mlx5_0", hw_counters__tx_bytes="1000", hw_counters__rx_drops="5", link_layer="Unspecified"
    )
    assert node.poll(2) == ()
    assert node.series("rdma_port_transmit_bytes_total") == [1000]
    node.files.set("mlx5_0", hw_counters__rx_drops="6100")
    node.poll()
    assert node.rules() == {("infiniband.efa_receive_drops_errors", "mlx5_0 port 1"): DEGRADED}


def test_ibstat_rounds_to_whole_gigabits_and_that_is_no_disagreement() -> None:
    node = watched(2)
    node.programs.printed = ibstat("mlx5_0", "mlx5_1")
    node.files.set("mlx5_1", rate="400.5 Gb/sec (4X NDR)")
    node.poll(2)
    assert "infiniband.ibstat_disagrees" not in {rule for rule, _ in node.rules()}


def test_another_card_in_the_same_place_begins_without_the_past_of_the_first() -> None:
    node = watched(1)
    node.options(identity_interval=0.0)
    node.poll()
    node.files.set("mlx5_0", state="1: DOWN", phys_state="2: Polling")
    node.poll()
    assert node.rules() == {("infiniband.port_down", "mlx5_0 port 1"): DEGRADED}
    node.files.texts[f"{RDMA}/mlx5_0/node_guid"] = "0000:0000:0000:9999"
    node.poll()
    assert node.rules() == {}
