"""Ports one guard at a time: each case has one reason alone for its answer."""

from dataclasses import replace

import pytest

from tests.node.collectors.drawn import PCI, RDMA, Files
from tests.node.collectors.test_infiniband import DEGRADED, FAILED, OK, UNKNOWN, watched
from tests.node.collectors.test_infiniband_cards import LONG, LOST, NETNS, rename, take_out
from tests.node.collectors.test_infiniband_memory import restarted
from tests.rows import each
from wirewatch.collectors.infiniband import COLLECTOR, InfinibandFacts
from wirewatch.collectors.infiniband.ibstat import _differing
from wirewatch.collectors.infiniband.judge import _NEVER, END_ACTION, ERROR_ACTION
from wirewatch.collectors.infiniband.model import CounterRefusal, PortReading, RdmaIdentity, names_now
from wirewatch.core.ports import Output
from wirewatch.core.rdma import PortFacts, Rate
from wirewatch.core.types import Absent, Why

POLLING = {"state": "1: DOWN", "phys_state": "2: Polling"}
DISABLED = {"state": "1: DOWN", "phys_state": "3: Disabled"}
PORT = "mlx5_1 port 1"


@pytest.mark.parametrize(
    "files",
    [
        {**DISABLED, "rate": "10 Gb/sec (1X SDR)"},
        {"rate": "0 Gb/sec (4X SDR)", "link_layer": "Ethernet"},
        {"phys_state": "3: Disabled", "link_layer": "Ethernet"},
        {"state": "5: ACTIVE_DEFER"},
    ],
    ids=[
        "lanes of a port that is down",
        "a rate of nothing",
        "Ethernet whatever its wire says",
        "deferred",
    ],
)
def test_ports_that_are_well_or_not_used_have_no_finding(files: dict[str, str]) -> None:
    node = watched(2)
    node.files.set("mlx5_1", **files)
    assert node.poll(4) == ()


@pytest.mark.parametrize(("file", "known"), [("state", False), ("rate", False), ("link_layer", True)])
def test_what_was_never_read_of_a_port_is_no_fault(file: str, *, known: bool) -> None:
    """Its wire is up, so that a state that is not active would be one; the layer says nothing by itself."""
    node = watched(8)
    node.files.refuse("mlx5_1", file, Why.TIMEOUT, 110)
    node.poll(4)
    assert node.rules() == ({} if known else {("infiniband.blind", PORT): UNKNOWN})


def test_a_port_that_looks_for_a_signal_and_whose_state_is_not_known_is_not_inactive() -> None:
    node = watched(8)
    node.files.set("mlx5_1", phys_state="2: Polling")
    node.files.refuse("mlx5_1", "state", Why.TIMEOUT, 110)
    node.poll(2)
    assert node.rules() == {("infiniband.blind", PORT): UNKNOWN}


def test_a_port_that_waits_for_the_subnet_manager_is_down_and_not_unused() -> None:
    node = watched(8)
    node.files.set("mlx5_1", state="2: INIT")
    node.poll()
    assert node.rules() == {("infiniband.port_down", PORT): UNKNOWN}
    words = (
        "init, physical state link_up; has been so since the agent started; it may take up to 60 s to come up"
    )
    assert node.component.findings[0].evidence == words


def test_a_port_that_is_down_is_not_slow_whatever_rate_it_shows() -> None:
    node = watched(2)
    node.poll()
    node.files.set("mlx5_1", rate="10 Gb/sec (1X SDR)", **POLLING)
    node.poll()
    assert node.rules() == {("infiniband.port_down", PORT): DEGRADED}


def test_a_port_that_has_never_been_active_has_no_expected_rate() -> None:
    node = watched(1)
    node.files.set("mlx5_0", **DISABLED)
    node.poll()
    assert node.series("rdma_port_rate_expected_bytes_per_second") == []
    assert node.series("rdma_port_rate_bytes_per_second") == []


def test_siblings_that_went_down_still_say_what_a_port_can() -> None:
    node = watched(3)
    node.files.set("mlx5_1", rate="200 Gb/sec (4X HDR)")
    node.poll()
    for name in ("mlx5_0", "mlx5_2"):
        node.files.set(name, **POLLING)
    node.poll()
    assert node.rules()["infiniband.port_slow", PORT] is DEGRADED


@pytest.mark.parametrize("before", [DISABLED, POLLING])
def test_a_port_does_not_flap_while_it_stays_up_or_comes_up_for_the_first_time(
    before: dict[str, str],
) -> None:
    node = watched(2)
    node.files.set("mlx5_1", **before)
    node.poll(4, every=30.0)
    node.files.set("mlx5_1", state="4: ACTIVE", phys_state="5: LinkUp")
    node.poll(4, every=30.0)
    assert node.series("rdma_port_flaps_total") == [0, 0]


@pytest.mark.parametrize(
    ("down", "flaps"),
    [
        (POLLING, 1),
        (DISABLED, 0),
        ({"state": "1: DOWN", "phys_state": "4: PortConfigurationTraining"}, 0),
    ],
    ids=["no signal", "switched off", "training"],
)
def test_a_port_that_is_down_on_purpose_or_for_its_training_does_not_flap(
    down: dict[str, str], flaps: int
) -> None:
    node = watched(1)
    node.poll()
    node.files.set("mlx5_0", **down)
    node.poll(2)
    node.files.set("mlx5_0", state="4: ACTIVE", phys_state="5: LinkUp")
    node.poll()
    assert node.series("rdma_port_flaps_total") == [flaps]


def test_a_port_whose_state_could_not_be_read_at_first_was_not_down() -> None:
    first = watched(1)
    first.poll()
    node = restarted(first)
    state = node.files.texts[f"{RDMA}/mlx5_0/ports/1/state"]
    node.files.refuse("mlx5_0", "state", Why.TIMEOUT, 110)
    node.poll(3)
    node.files.texts[f"{RDMA}/mlx5_0/ports/1/state"] = state
    node.poll()
    assert node.series("rdma_port_flaps_total") == [0]


@each(
    ("state", "physical", "coming"),
    [
        ("down", "training", True),
        ("down", "recovery", True),
        ("down", "polling", False),
        ("down", "link_up", False),
        ("active", "recovery", False),
        ("active", "link_up", False),
        ("init", "link_up", True),
        ("armed", "link_up", True),
        ("init", "polling", False),
    ],
)
def test_a_port_comes_up_in_two_steps(state: str, physical: str, *, coming: bool) -> None:
    assert replace(READ, state=state, physical=physical).coming_up is coming


def test_what_is_counted_without_a_limit_is_no_fault() -> None:
    node = watched(1)
    for count in ("0", "60000"):
        node.files.set("mlx5_0", counters__port_rcv_remote_physical_errors=count)
        assert node.poll() == ()
    assert node.series("rdma_port_errors_total", kind="receive_remote_physical") == [60000]


def test_a_counter_that_was_reset_and_reaches_its_ceiling_again_is_reported() -> None:
    node = watched(1)
    for count in ("15", "0"):
        node.files.set("mlx5_0", counters__excessive_buffer_overrun_errors=count)
        assert node.poll() == ()
    node.files.set("mlx5_0", counters__excessive_buffer_overrun_errors="15")
    node.poll()
    assert ("infiniband.counter_saturated", "mlx5_0 port 1") in node.rules()


@pytest.mark.parametrize("lost", [LOST, None], ids=["not read", "not there any more"])
def test_a_counter_at_its_ceiling_stays_there_while_it_is_not_read(lost: Absent | None) -> None:
    node = watched(1)
    node.poll()
    node.files.set("mlx5_0", counters__symbol_error="65535")
    node.poll()
    path = f"{RDMA}/mlx5_0/ports/1/counters/symbol_error"
    if lost is None:
        del node.files.texts[path]
    else:
        node.files.texts[path] = lost
    node.poll(3)
    assert ("infiniband.counter_saturated", "mlx5_0 port 1") in node.rules()


@pytest.mark.parametrize(
    ("counter", "action"),
    [("counters__symbol_error", ERROR_ACTION), ("hw_counters__rnr_nak_retry_err", END_ACTION)],
)
def test_advice_names_the_wire_or_its_other_end(counter: str, action: str) -> None:
    node = watched(1)
    node.poll()
    node.files.set("mlx5_0", **{counter: "500"})
    (finding,) = node.poll()
    assert finding.action == action


def test_a_card_that_comes_back_from_a_pod_with_a_fault_has_kept_it() -> None:
    node = watched(2)
    node.files.texts[NETNS] = "N"
    node.poll()
    node.files.set("mlx5_1", **POLLING)
    node.poll(2)
    texts, links = take_out(node.files, "mlx5_1")
    node.poll(2)
    node.files.texts |= texts  # type: ignore[arg-type]
    node.files.links |= links  # type: ignore[arg-type]
    node.poll()
    assert node.rules() == {("infiniband.port_down", PORT): FAILED}


def test_a_port_that_was_down_when_its_card_was_lent_does_not_count_as_lent() -> None:
    node = watched(2, rdma_ports=2)
    node.files.texts[NETNS] = "N"
    node.files.set("mlx5_1", **DISABLED)
    node.poll()
    take_out(node.files, "mlx5_1")
    node.poll(3)
    assert node.rules() == {("infiniband.ports_missing", "node"): FAILED}


def test_a_lost_card_that_a_virtual_machine_has_got_since_is_not_lost() -> None:
    node = watched(2)
    node.poll()
    take_out(node.files, "mlx5_1")
    node.poll(3)
    assert node.rules() == {("infiniband.device_gone", "mlx5_1"): FAILED}
    node.files.links[f"{PCI}/0000:11:00.0/driver"] = "/sys/bus/pci/drivers/vfio-pci"
    assert node.poll() == ()


def test_a_lost_card_stays_lost_while_its_place_cannot_be_read() -> None:
    node = watched(2)
    node.poll()
    take_out(node.files, "mlx5_1")
    node.poll()
    node.files.links[f"{PCI}/0000:11:00.0/driver"] = LOST
    node.poll(4)
    assert node.rules() == {
        ("infiniband.device_gone", "mlx5_1"): DEGRADED,
        ("infiniband.blind", "mlx5_1"): UNKNOWN,
    }


def test_a_stray_card_whose_driver_cannot_be_read_is_not_ours_to_report() -> None:
    node = watched(2)
    node.files.device("0000:77:00.0", "pci0000:07/0000:07:01.0", driver="mlx5_core", device="0x1021")
    node.files.links[f"{PCI}/0000:77:00.0/driver"] = LOST
    assert node.poll(3) == ()


@pytest.mark.parametrize("file", ["ports/1/state", "board_id"])
def test_a_missing_port_is_not_confirmed_by_polls_that_could_not_read_all(file: str) -> None:
    node = watched(2, rdma_ports=3)
    node.poll()
    node.options(identity_interval=0.0)
    node.files.texts[f"{RDMA}/mlx5_1/{file}"] = LOST
    node.poll(5)
    assert node.rules()["infiniband.ports_missing", "node"] is DEGRADED


def without_ports(files: Files, name: str) -> None:
    files.forget(f"{RDMA}/{name}/ports/")


def test_a_port_that_never_was_active_and_is_not_listed_is_not_known() -> None:
    node = watched(2)
    node.files.set("mlx5_1", **DISABLED)
    node.poll()
    without_ports(node.files, "mlx5_1")
    node.poll(LONG)
    assert node.rules() == {("infiniband.blind", PORT): UNKNOWN}


def test_a_port_that_is_not_listed_in_a_look_that_failed_is_not_down() -> None:
    node = watched(2)
    node.poll()
    node.options(identity_interval=0.0)
    without_ports(node.files, "mlx5_1")
    node.files.texts[f"{RDMA}/mlx5_1/board_id"] = LOST
    node.poll(4)
    assert set(node.rules().values()) == {UNKNOWN}


@pytest.mark.parametrize("file", ["max_link_width", "max_link_speed"])
def test_a_link_whose_most_cannot_be_read_is_not_narrow(file: str) -> None:
    node = watched(2)
    node.files.texts[f"{PCI}/0000:10:00.0/{file}"] = LOST
    assert node.poll(3) == ()


def test_the_signal_of_a_disabled_port_that_cannot_be_read_is_not_known() -> None:
    node = watched(2)
    node.files.set("mlx5_1", link_layer="Ethernet")
    node.poll()
    node.files.set("mlx5_1", **DISABLED)
    node.files.texts["/sys/class/net/ib1/carrier"] = LOST
    node.poll()
    assert ("infiniband.blind", PORT) in node.rules()


def test_new_firmware_shows_after_a_while_and_another_card_at_once() -> None:
    node = watched(2)
    node.poll()
    node.files.texts[f"{RDMA}/mlx5_0/fw_ver"] = "28.99"
    node.poll(2)
    assert node.series("rdma_port_info", firmware="28.99") == []
    node.poll(LONG)
    assert node.series("rdma_port_info", firmware="28.99") == [1]
    for old, new in (("mlx5_0", "spare"), ("mlx5_1", "mlx5_0"), ("spare", "mlx5_1")):
        rename(node.files, old, new)
    node.poll()
    assert node.series("rdma_port_info", device="mlx5_1", firmware="28.99") == [1]


def test_ibstat_does_not_run_where_the_operator_does_not_want_it() -> None:
    node = watched(2)
    node.options(ibstat=False)
    node.poll(2)
    assert node.programs.runs == 0


def test_ibstat_that_lists_a_card_which_the_kernel_does_not_is_reported() -> None:
    node = watched(1)
    node.programs.printed = Output(0, "CA 'mlx5_0'\n\tCA type: MT4129\nCA 'mlx5_9'\n\tCA type: MT4129\n")
    node.poll(2)
    assert node.rules() == {("infiniband.ibstat_disagrees", "mlx5_9"): DEGRADED}
    assert node.component.findings[0].evidence == "ibstat lists it, sysfs does not"


def test_two_disagreements_at_two_places_are_two_first_ones() -> None:
    node = watched(2)
    node.programs.printed = Output(0, "CA 'mlx5_0'\n\tCA type: MT4129\n")
    node.poll()
    node.programs.printed = Output(0, "CA 'mlx5_1'\n\tCA type: MT4129\n")
    assert node.poll() == ()
    node.poll()
    assert node.rules() == {("infiniband.ibstat_disagrees", "mlx5_0"): DEGRADED}


def test_an_ibstat_that_is_taken_off_takes_back_what_it_said() -> None:
    node = watched(2)
    node.programs.printed = Output(255, "", "ibpanic")
    node.poll(2)
    node.programs.printed = Absent(Why.MISSING, "not installed")
    assert node.poll(LONG) == ()


READ = PortReading("active", "link_up", "InfiniBand", Rate(50e9, 4, "NDR"), 1)
SAME = PortFacts("active", "link_up", 50e9, "InfiniBand", 1)


@each(
    ("printed", "kernel", "words"),
    [
        (SAME, READ, []),
        (PortFacts(), READ, []),
        (SAME, PortReading(_NEVER, _NEVER, _NEVER, _NEVER, _NEVER), []),
        (replace(SAME, state="down"), READ, ["state: ibstat down, sysfs active"]),
        (replace(SAME, rate=49.875e9), READ, ["rate: ibstat 399 Gb/s, sysfs 400 Gb/s"]),
        (replace(SAME, rate=49.9e9), READ, []),
    ],
    ids=["alike", "nothing printed", "nothing read", "state", "rate", "rounded"],
)
def test_only_what_both_say_can_differ(printed: PortFacts, kernel: PortReading, words: list[str]) -> None:
    assert list(_differing(printed, kernel)) == words


def card(guid: str, pci: str = "0000:10:00.0", board: str = "B") -> RdmaIdentity:
    return RdmaIdentity(pci, "", "", "", board, guid, (), {})


ONE, TWO = "0000:0000:0000:0001", "0000:0000:0000:0002"


@each(
    ("before", "now", "names"),
    [
        ({"a": card(ONE)}, {"b": card(ONE, "0000:20:00.0")}, {"a": "b"}),
        ({"a": card("")}, {"a": card("")}, {"a": "a"}),
        ({"a": card("")}, {"b": card("")}, {"a": "b"}),
        ({"a": card("", "")}, {"b": card("", "")}, {}),
        ({"a": card(ONE)}, {"a": card(TWO)}, {}),
        ({"a": card(ONE)}, {"a": card(ONE, board="C")}, {"a": "a"}),
        ({"a": card("")}, {"a": card("", board="C")}, {}),
        ({"a": card(ONE), "b": card(ONE, "0000:20:00.0")}, {"a": card(ONE), "b": card(ONE, "0000:20:00.0")},
         {"a": "a", "b": "b"}),
        ({"a": card("")}, {"a": card("", "0000:30:00.0"), "b": card("")}, {}),
        ({"a": card(ONE), "b": card("", "0000:20:00.0")}, {"a": card(ONE, "0000:20:00.0")}, {"a": "a"}),
        ({"a": card(ONE), "b": card(ONE, "0000:20:00.0")}, {"c": card(ONE, "0000:40:00.0")}, {}),
    ],
    ids=[
        "a GUID in another place", "the same name and place", "another name in the same place",
        "no place and no GUID", "another GUID", "a GUID names the card", "another board",
        "a GUID that two share names none", "another card has its name",
        "a card with a GUID is in the place of another", "a GUID that two shared",
    ],
)  # fmt: skip
def test_cards_are_known_by_guid_and_else_by_place(
    before: dict[str, RdmaIdentity], now: dict[str, RdmaIdentity], names: dict[str, str]
) -> None:
    assert names_now(before, now) == names


@each(
    ("state", "shown", "rate"),
    [
        ("1: DOWN", "down", False),
        ("2: INIT", "init", True),
        ("3: ARMED", "armed", True),
        ("4: ACTIVE", "active", True),
        ("5: ACTIVE_DEFER", "active", True),
    ],
)
def test_the_series_of_a_state_and_of_the_rate_that_it_has(state: str, shown: str, *, rate: bool) -> None:
    node = watched(1)
    node.files.set("mlx5_0", state=state)
    node.poll()
    series = {
        name: node.series("rdma_port_state", state=name) for name in ("down", "init", "armed", "active")
    }
    assert series == {name: [float(name == shown)] for name in series}
    assert node.series("rdma_port_rate_bytes_per_second") == ([50e9] if rate else [])


def test_facts_are_of_ports_that_were_read() -> None:
    node = watched(4)
    node.files.set("mlx5_1", **POLLING)
    node.files.refuse("mlx5_2", "state", Why.TIMEOUT, 110)
    node.files.refuse("mlx5_3", "rate", Why.TIMEOUT, 110)
    node.poll()
    facts = node.component.facts
    assert isinstance(facts, InfinibandFacts)
    assert facts.inactive == {("mlx5_1", "1")}
    assert facts.rates == {("mlx5_0", "1"): 50e9}


def test_a_port_without_a_place_on_pci_does_not_outlive_the_process() -> None:
    node = watched(1)
    port = {
        "state": "4: ACTIVE",
        "phys_state": "5: LinkUp",
        "link_layer": "Ethernet",
        "rate": "25 Gb/sec (1X EDR)",
    }
    node.files.texts |= {f"{RDMA}/rxe0/ports/1/{file}": text for file, text in port.items()}
    node.poll()
    assert node.component.health in {OK, UNKNOWN}
    assert COLLECTOR.lasting is not None
    kept = COLLECTOR.lasting.keep(node.component.memory)
    assert [one.device for one in kept.ports] == ["mlx5_0"]
    assert {(one.rate, one.lanes) for one in kept.ports} == {(50e9, 4)}


def test_a_counter_is_left_alone_for_a_day_at_most() -> None:
    node = watched(1)
    path = f"{RDMA}/mlx5_0/ports/1/counters/symbol_error"
    node.files.texts[path] = Absent(Why.UNSUPPORTED, "EINVAL", 22)
    memory = replace(node.component.memory, refused={path: CounterRefusal(0.0, 60)})
    node.component = replace(node.component, memory=memory)
    node.poll()
    refusal = node.component.memory.refused[path]
    assert (refusal.times, refusal.until - (node.clock.mono() - 15.0)) == (61, 86400.0)


@pytest.mark.parametrize("physical", ["2: Polling", "6: LinkErrorRecovery", "7: Phy Test"])
def test_an_infiniband_port_that_stays_active_without_its_wire_is_not_known(physical: str) -> None:
    """Linux, drivers/infiniband/core/sysfs.c: state and phys_state are two answers of one query."""
    node = watched(8)
    node.files.set("mlx5_1", phys_state=physical)
    assert node.poll(2) == ()
    node.poll()
    assert node.rules() == {("infiniband.port_down", PORT): UNKNOWN}
    node.files.set("mlx5_1", phys_state="5: LinkUp")
    assert node.poll() == ()


def test_a_port_that_cannot_be_read_says_nothing_of_a_gpu() -> None:
    node = watched(8)
    node.files.refuse("mlx5_1", "rate", Why.LOST, 22)
    (found,) = node.poll()
    assert found.rule == "infiniband.blind"
    assert "XID" not in found.action
