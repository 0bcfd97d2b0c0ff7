"""NVLink on the recorded 8-GPU node, healthy and with its answers changed."""

from collections.abc import Sequence

import pytest

from tests.node.collectors.drawn import Gpus, Watched
from tests.support import Node
from wirewatch.core.ports import Answer, Question
from wirewatch.core.types import Absent, ErrorLimit, Expect, Health, Why

LINKS = 18
KIB = 1024
FABRIC = {"clusterUuid": "", "status": 0, "cliqueId": 0, "state": 3, "healthMask": 0, "healthSummary": 0}


def states_of(node: Node, gpu: int, value: int) -> None:
    node.change(f"gpu{gpu}/Field(165,*)", "set", value)
    node.change(f"gpu{gpu}/Field(165,18)", "code", 3)


def test_a_healthy_node_has_no_finding_and_all_its_links() -> None:
    node = Node()
    node.poll("nvlink", times=20)
    assert node.health_of("nvlink") is Health.OK
    assert node.findings() == ()
    assert node.series("nvlink_links", state="active") == [LINKS] * 8
    assert node.series("nvlink_links_expected") == [LINKS] * 8
    assert node.series("nvlink_peak_bytes_per_second") == pytest.approx([LINKS * 26.562e9] * 8)


def test_bytes_are_the_recorded_kib_counter_in_bytes() -> None:
    node = Node()
    node.clock.seconds = 138.6
    node.poll("nvlink")
    assert node.series("nvlink_transmit_bytes_total", gpu="0") == [3231466509 * KIB]
    assert all(v > 3e12 for v in node.series("nvlink_receive_bytes_total"))


def test_a_link_that_goes_down_is_degraded_at_first_sight_and_failed_when_it_stays() -> None:
    node = Node()
    node.poll("nvlink")
    down = node.change("gpu2/Field(165,7)", "set", 0)
    node.poll("nvlink")
    assert node.rules() == {("nvlink.link_down", "2", "7", Health.DEGRADED)}
    node.poll("nvlink", times=2)
    assert node.rules() == {("nvlink.link_down", "2", "7", Health.FAILED)}
    (finding,) = node.findings()
    assert finding.evidence == "inactive; 17 of 18 links up"
    assert finding.since == node.clock.now() - 45
    node.undo(down)
    node.poll("nvlink")
    assert node.findings() == ()


def test_one_bad_poll_is_never_failed() -> None:
    node = Node()
    for _ in range(10):
        down = node.change("gpu2/Field(165,7)", "set", 0)
        node.poll("nvlink")
        assert node.health_of("nvlink") is Health.DEGRADED
        node.undo(down)
        node.poll("nvlink")
        assert node.health_of("nvlink") is Health.OK


def test_a_link_that_is_active_at_one_sixteenth_of_its_speed_is_found() -> None:
    node = Node()
    node.change("gpu5/Field(164,3)", "set", 1562)
    node.poll("nvlink", times=3)
    (finding,) = node.findings()
    assert (finding.rule, finding.subject.gpu, finding.subject.link) == ("nvlink.link_slow", "5", "3")
    assert finding.health is Health.FAILED
    assert finding.evidence == "active at 1.562 GB/s, usual 26.562 GB/s"


def test_a_gpu_whose_links_are_all_slow_is_one_finding() -> None:
    node = Node()
    node.change("gpu5/Field(164,*)", "set", 1562)
    node.change("gpu5/Field(164,18)", "code", 3)
    node.poll("nvlink")
    assert node.rules() == {("nvlink.slow", "5", "", Health.DEGRADED)}


def test_a_gpu_whose_links_are_all_down_is_one_finding() -> None:
    node = Node()
    states_of(node, 1, 0)
    node.poll("nvlink", times=3)
    assert node.rules() == {("nvlink.down", "1", "", Health.FAILED)}
    assert node.series("nvlink_peak_bytes_per_second", gpu="1") == [0]


@pytest.mark.parametrize("state", [2])
def test_a_sleeping_link_is_not_down(state: int) -> None:
    node = Node()
    node.change("gpu1/Field(165,4)", "set", state)
    node.poll("nvlink", times=5)
    assert node.findings() == ()


def test_twelve_of_eighteen_is_healthy_where_bridges_decide() -> None:
    node = Node()
    node.change("gpu*/Name()", "set", "NVIDIA H100 PCIe")
    for link in (4, 5, 10, 11, 16, 17):
        node.change(f"gpu*/Field(165,{link})", "set", 0)
    node.poll("nvlink", times=5)
    assert node.findings() == ()
    assert node.series("nvlink_links_expected") == [12] * 8
    node.change("gpu3/Field(165,0)", "set", 0)
    node.poll("nvlink", times=3)
    assert node.rules() == {("nvlink.link_down", "3", "0", Health.FAILED)}


def test_an_unbridged_card_is_healthy_without_any_link() -> None:
    node = Node()
    node.change("gpu*/Name()", "set", "NVIDIA H100 PCIe")
    for gpu in range(8):
        states_of(node, gpu, 0)
    node.poll("nvlink", times=5)
    assert node.findings() == ()


def test_seventeen_from_birth_is_found_by_product_data() -> None:
    node = Node()
    node.change("gpu6/Field(165,9)", "set", 0)
    node.poll("nvlink", times=3)
    assert node.rules() == {("nvlink.link_down", "6", "9", Health.FAILED)}


def test_an_unlisted_product_is_compared_with_what_it_had() -> None:
    node = Node()
    node.change("gpu*/Name()", "set", "NVIDIA X999")
    node.poll("nvlink", times=3)
    assert node.findings() == ()
    node.change("gpu6/Field(165,8)", "set", 0)
    node.change("gpu7/Field(164,8)", "set", 13000)
    node.poll("nvlink", times=3)
    assert node.rules() == {
        ("nvlink.link_down", "6", "8", Health.FAILED),
        ("nvlink.link_slow", "7", "8", Health.FAILED),
    }


def test_under_mig_there_is_nothing_to_watch() -> None:
    node = Node()
    node.change("gpu*/MigMode()", "set", [1, 1])
    for gpu in range(8):
        states_of(node, gpu, 0)
    node.poll("nvlink", times=5)
    component = node.state.components["nvlink"]
    assert component.applicable is False
    assert component.health is None
    assert component.samples == ()


def test_a_gpu_that_mig_splits_beside_whole_ones_has_no_finding_of_its_links() -> None:
    node = Node()
    node.poll("nvlink", times=2)
    node.change("gpu3/MigMode()", "set", [1, 1])
    states_of(node, 3, 0)
    node.poll("nvlink", times=5)
    assert node.findings() == ()
    assert node.state.components["nvlink"].applicable


def without_nvlink(node: Node) -> None:
    for question in ("Field(1[0-9][0-9],*)", "Field(91)", "Field(90)", "NvLinkState(*)", "GpuFabricInfoV()"):
        node.change(f"gpu*/{question}", "code", 3)


def test_gpus_without_nvlink_have_no_series_and_no_finding() -> None:
    node = Node()
    node.change("gpu*/Name()", "set", "NVIDIA L40S")
    without_nvlink(node)
    node.poll("nvlink", times=5)
    component = node.state.components["nvlink"]
    assert component.samples == ()
    assert component.findings == ()
    assert component.health is None


def test_the_operator_can_say_that_nvlink_must_be_there() -> None:
    node = Node(expect=Expect(nvlink_links=18))
    without_nvlink(node)
    node.poll("nvlink", times=3)
    assert {r[0] for r in node.rules()} == {"nvlink.links_missing"}
    assert node.health_of("nvlink") is Health.FAILED


@pytest.mark.parametrize(
    ("question", "metric"),
    [
        ("Field(138,all)", "nvlink_transmit_bytes_total"),
        ("Field(163,all)", "nvlink_errors_total"),
        ("Field(139,all)", "nvlink_receive_bytes_total"),
    ],
)
def test_one_unsupported_field_costs_its_series_and_nothing_else(question: str, metric: str) -> None:
    whole = Node()
    whole.poll("nvlink", times=2)
    node = Node()
    node.change(f"gpu4/{question}", "code", 3)
    node.poll("nvlink", times=2)
    assert node.findings() == ()
    assert len(node.series(metric, gpu="4")) < len(whole.series(metric, gpu="4"))
    lost = len(whole.state.components["nvlink"].samples) - len(node.state.components["nvlink"].samples)
    assert lost == len(whole.series(metric, gpu="4")) - len(node.series(metric, gpu="4"))


def test_one_unreadable_field_makes_that_gpu_unknown_and_leaves_the_rest() -> None:
    node = Node()
    node.change("gpu4/Field(162,all)", "code", 999)
    node.poll("nvlink")
    assert node.rules() == {("nvlink.blind", "4", "", Health.UNKNOWN)}
    assert "recovery errors" in node.findings()[0].evidence
    assert node.series("nvlink_errors_total", gpu="4", kind="recovery") == []
    assert node.series("nvlink_errors_total", gpu="4", kind="replay") == [0]
    assert len(node.series("nvlink_transmit_bytes_total")) == 8


def test_errors_name_the_link_at_once_and_are_forgotten_after_an_hour() -> None:
    node = Node()
    node.poll("nvlink")
    node.change("gpu2/Field(162,all)", "set", 3)
    node.change("gpu2/Field(162,14)", "set", 3)
    node.change("gpu2/Field(162,1[0-35-7])", "set", 0)
    node.change("gpu2/Field(162,[0-9])", "set", 0)
    node.poll("nvlink")
    (finding,) = node.findings()
    assert finding.rule == "nvlink.recovery_errors"
    assert finding.health is Health.DEGRADED
    assert finding.evidence == "errors: 3 in 3600 s, 3 since reset; link 14: 3"
    node.poll("nvlink", times=239)
    assert node.findings() == (finding,)
    node.poll("nvlink", times=2)
    assert node.findings() == ()


def test_what_a_counter_showed_before_we_looked_is_not_news() -> None:
    node = Node()
    node.change("gpu2/Field(162,all)", "set", 505)
    node.poll("nvlink", times=3)
    assert node.findings() == ()


def test_a_counter_that_shrank_was_reset_and_counts_from_zero() -> None:
    node = Node()
    high = node.change("gpu2/Field(161,all)", "set", 70)
    node.poll("nvlink")
    node.undo(high)
    node.change("gpu2/Field(161,all)", "set", 2)
    node.poll("nvlink")
    assert [f.evidence for f in node.findings()] == ["errors: 2 in 3600 s, 2 since reset"]


def test_an_error_limit_of_the_operator_replaces_ours() -> None:
    node = Node()
    node.policy("nvlink", error_limits={"crc": ErrorLimit(2, 60.0)})
    node.poll("nvlink")
    crc = node.change("gpu2/Field(163,all)", "set", 1)
    node.poll("nvlink")
    assert node.findings() == ()
    node.undo(crc)
    node.change("gpu2/Field(163,all)", "set", 2)
    node.poll("nvlink")
    assert [f.rule for f in node.findings()] == ["nvlink.crc_errors"]


def test_a_payload_counter_that_stands_still_while_its_twin_moves_is_a_gap_and_not_a_zero_rate() -> None:
    node = Node()
    node.poll("nvlink")
    node.change("gpu0/Field(140,all)", "add", 1 << 20)
    node.poll("nvlink")
    assert node.series("nvlink_transmit_bytes_total", gpu="0") == []
    assert node.series("nvlink_receive_bytes_total", gpu="0") == [0]
    assert node.findings() == ()
    node.change("gpu0/Field(138,all)", "add", 1 << 20)
    node.poll("nvlink")
    assert node.series("nvlink_transmit_bytes_total", gpu="0") == [KIB << 20]


def test_idle_protocol_without_payload_is_a_measurement() -> None:
    node = Node()
    node.poll("nvlink")
    node.change("gpu0/Field(140,all)", "add", 4000)
    node.poll("nvlink")
    assert node.series("nvlink_transmit_bytes_total", gpu="0") == [0]


@pytest.mark.parametrize(
    ("info", "rule", "health"),
    [
        ({"state": 1}, "fabric.state", Health.UNKNOWN),
        ({"state": 2}, "fabric.state", Health.UNKNOWN),
        ({"status": 3}, "fabric.status", Health.FAILED),
        ({"healthMask": 0b01}, "fabric.degraded_bandwidth", Health.DEGRADED),
        ({"healthMask": 0b01 << 2}, "fabric.route_recovery", Health.DEGRADED),
        ({"healthMask": 0b01 << 4}, "fabric.route_unhealthy", Health.FAILED),
        ({"healthMask": 5 << 8}, "fabric.insufficient_nvlinks", Health.FAILED),
        ({"healthSummary": 2}, "fabric.summary", Health.FAILED),
        ({"healthSummary": 3}, "fabric.summary", Health.DEGRADED),
    ],
)
def test_fabric_trouble_is_found(info: dict[str, int], rule: str, health: Health) -> None:
    node = Node()
    node.change("gpu7/GpuFabricInfoV()", "set", FABRIC | info)
    node.poll("nvlink", times=3)
    assert node.rules() == {(rule, "7", "", health)}


@pytest.mark.parametrize("info", [{"state": 4}, {"state": -1}, {"healthSummary": 4}, {"healthSummary": -1}])
def test_a_fabric_state_or_summary_that_is_not_known_is_not_healthy(info: dict[str, int]) -> None:
    node = Node()
    node.change("gpu7/GpuFabricInfoV()", "set", FABRIC | info)
    node.poll("nvlink", times=3)
    assert node.rules() == {("nvlink.blind", "7", "", Health.UNKNOWN)}
    (finding,) = node.findings()
    assert finding.evidence.endswith(f"is not known: {next(iter(info.values()))}")


def test_a_healthy_fabric_mask_is_not_zero_and_no_trouble() -> None:
    healthy = 0b10 | 0b10 << 2 | 0b10 << 4 | 0b10 << 6 | 1 << 8 | 1 << 12 | 1 << 14
    node = Node()
    info = FABRIC | {"healthMask": healthy, "healthSummary": 1, "cliqueId": 7, "clusterUuid": "ab" * 16}
    node.change("gpu*/GpuFabricInfoV()", "set", info)
    node.poll("nvlink", times=5)
    assert node.findings() == ()
    assert node.series("fabric_health", state="healthy") == [1] * 8
    assert node.series("fabric_info", clique="7", cluster_uuid="ab" * 16) == [1] * 8


def test_blackwell_counters_are_bytes_and_its_bit_error_rate_is_judged() -> None:
    node = Node()
    blackwell(node)
    node.poll("nvlink", times=2)
    assert node.findings() == ()
    assert node.series("nvlink_transmit_bytes_total", gpu="0") == [5_000_000]
    assert node.series("nvlink_errors_total", gpu="0", kind="recovery_failed") == [0]
    assert node.series("nvlink_errors_total", gpu="0", kind="replay") == []
    node.change("gpu3/Field(220,all)", "set", 3 << 8 | 9)
    node.poll("nvlink")
    (finding,) = node.findings()
    assert (finding.rule, finding.subject.gpu) == ("nvlink.ber", "3")
    assert finding.evidence == "effective bit error rate 3e-09, limit 1e-12"


def blackwell(node: Node) -> None:
    """Turn the node's answers into those of NVLink 5; synthetic, from the header's field numbers."""
    node.change("gpu*/Field(1[46][0-3],*)", "code", 3)
    node.change("gpu*/Name()", "set", "NVIDIA B200")
    node.change("gpu*/Field(164,*)", "set", 53125)
    for field in (202, 204):
        node.change(f"gpu*/Field({field},*)", "set", 5_000_000)
    for field in (201, 203, *range(206, 216), 219, 221):
        node.change(f"gpu*/Field({field},*)", "set", 0)
    node.change("gpu*/Field(220,*)", "set", 15 << 8 | 255)


def test_chip_to_chip_links_are_watched_where_present() -> None:
    node = Node()
    node.change("gpu0/Field(170)", "set", 2)
    node.change("gpu0/Field(171,*)", "set", 1)
    node.change("gpu0/Field(172,*)", "set", 45000)
    node.poll("nvlink")
    assert node.findings() == ()
    assert node.series("c2c_links", gpu="0", state="active") == [2]
    assert node.series("c2c_peak_bytes_per_second", gpu="0") == [90e9]
    node.change("gpu0/Field(171,1)", "set", 0)
    node.poll("nvlink", times=3)
    assert node.rules() == {("c2c.link_down", "0", "1", Health.FAILED)}


def test_chip_to_chip_links_whose_number_cannot_be_read_at_the_start_are_not_healthy() -> None:
    node = Node()
    lost = node.change("gpu0/Field(170)", "code", 15)
    node.poll("nvlink")
    assert node.rules() == {("nvlink.blind", "0", "", Health.UNKNOWN)}
    node.undo(lost)
    node.poll("nvlink")
    assert node.findings() == ()


@pytest.mark.parametrize("count", [-1, 2**32 - 1])
def test_a_number_of_links_that_no_gpu_has_is_not_asked_for_one_by_one(count: int) -> None:
    node = Node()
    node.change("gpu0/Field(91)", "set", count)
    node.change("gpu1/Field(170)", "set", count)
    node.poll("nvlink")
    assert node.rules() == {("nvlink.blind", "1", "", Health.UNKNOWN)}
    assert node.series("nvlink_links", state="active") == [LINKS] * 8


def test_link_detail_is_read_on_its_own_interval() -> None:
    node = Node()
    node.options("nvlink", link_detail=True, link_detail_interval=600.0)
    node.poll("nvlink")
    assert len(node.series("nvlink_link_up")) == 8 * LINKS
    assert node.series("nvlink_link_speed_bytes_per_second", gpu="0", link="17") == [26.562e9]
    assert node.series("nvlink_link_transmit_bytes_total", gpu="0", link="0") == [0]
    node.change("gpu0/Field(138,0)", "set", 7)
    node.poll("nvlink", times=30)
    assert node.series("nvlink_link_transmit_bytes_total", gpu="0", link="0") == [0]
    node.poll("nvlink", times=10)
    assert node.series("nvlink_link_transmit_bytes_total", gpu="0", link="0") == [7 * KIB]


def test_detail_that_cannot_be_read_is_withdrawn() -> None:
    node = Node()
    node.options("nvlink", link_detail=True, link_detail_interval=15.0)
    node.poll("nvlink")
    node.change("gpu0/Field(13[89],[0-9])", "code", 10)
    node.change("gpu0/Field(13[89],1[0-9])", "code", 10)
    node.change("gpu0/Field(16[123],[0-9])", "code", 10)
    node.change("gpu0/Field(16[123],1[0-9])", "code", 10)
    node.poll("nvlink")
    assert node.series("nvlink_link_transmit_bytes_total", gpu="0") == []
    assert ("nvlink.blind", "0", "", Health.UNKNOWN) in node.rules()


def test_a_new_session_asks_again_for_what_was_not_supported() -> None:
    node = Node()
    missing = node.change("gpu4/Field(138,all)", "code", 3)
    node.poll("nvlink")
    node.undo(missing)
    node.poll("nvlink")
    assert node.series("nvlink_transmit_bytes_total", gpu="4") == []
    node.nvml.number += 1
    node.poll("nvlink")
    assert node.series("nvlink_transmit_bytes_total", gpu="4") == [0]


@pytest.mark.parametrize("direction", [138, 139])
def test_bytes_that_cannot_be_read_in_one_direction_are_not_passed_over(direction: int) -> None:
    node = Node()
    node.change(f"gpu4/Field({direction},all)", "code", 999)
    node.poll("nvlink")
    assert node.rules() == {("nvlink.blind", "4", "", Health.UNKNOWN)}
    assert (
        len(node.series("nvlink_transmit_bytes_total")) + len(node.series("nvlink_receive_bytes_total")) == 15
    )


def test_a_link_that_the_driver_does_not_list_any_more_is_down() -> None:
    node = Node()
    node.poll("nvlink")
    for question in ("Field(165,7)", "Field(164,7)", "NvLinkState(7)"):
        node.change(f"gpu2/{question}", "code", 3)
    node.poll("nvlink", times=3)
    assert node.rules() == {("nvlink.link_down", "2", "7", Health.FAILED)}
    assert node.findings()[0].evidence == "no longer reported; 17 of 18 links up"


def old_driver(node: Node) -> None:
    """A driver that shows states and speeds in the way from before NVLink's own fields."""
    node.change("gpu*/Field(165,*)", "code", 3)
    node.change("gpu*/Field(164,*)", "code", 3)
    node.change("gpu*/NvLinkState(*)", "set", 1)


def test_links_of_an_old_driver_are_read_at_the_first_poll_and_at_every_other() -> None:
    node = Node("h200x2-idle", only=("nvlink",))
    old_driver(node)
    for _ in range(3):
        node.poll()
        assert all(node.series("nvlink_links", state="active"))


@pytest.mark.parametrize(
    ("without", "series"),
    [
        ("clusterUuid", ("fabric_info", {"cluster_uuid": ""})),
        ("healthSummary", ("fabric_info", {"clique": "0"})),
    ],
)
def test_a_fabric_needs_neither_a_cluster_nor_a_summary(
    without: str, series: tuple[str, dict[str, str]]
) -> None:
    node = Node("h200x2-idle", only=("nvlink",))
    node.change("gpu*/GpuFabricInfoV()", "set", {k: v for k, v in FABRIC.items() if k != without})
    node.poll()
    assert node.findings() == ()
    name, labels = series
    assert node.series(name, **labels) == [1, 1]


@pytest.mark.parametrize(
    ("info", "states", "health"),
    [({"state": 0, "healthSummary": 1}, 0, 0), ({"healthSummary": 0}, 4, 0), ({"healthSummary": 1}, 4, 4)],
)
def test_a_fabric_that_is_not_there_has_no_series_and_one_without_summary_none_of_that(
    info: dict[str, int], states: int, health: int
) -> None:
    node = Node("h200x2-idle", only=("nvlink",))
    node.change("gpu0/GpuFabricInfoV()", "set", FABRIC | info)
    node.poll()
    assert len(node.series("fabric_state", gpu="0")) == states
    assert len(node.series("fabric_health", gpu="0")) == health


def test_a_fabric_that_cannot_be_read_confirms_no_fault() -> None:
    node = Node("h200x2-idle", only=("nvlink",))
    node.poll(times=5)
    node.change("gpu0/GpuFabricInfoV()", "set", FABRIC | {"status": 3})
    node.poll()
    assert node.rules() == {("fabric.status", "0", "", Health.DEGRADED)}
    node.change("gpu0/GpuFabricInfoV()", "code", 999)
    node.poll(times=4)
    assert node.rules() == {
        ("fabric.status", "0", "", Health.DEGRADED),
        ("nvlink.blind", "0", "", Health.UNKNOWN),
    }


def test_only_the_registration_may_take_its_time() -> None:
    node = Node("h200x2-idle", only=("nvlink",))
    node.change("gpu0/GpuFabricInfoV()", "set", FABRIC | {"state": 2, "healthMask": 0b01})
    node.poll()
    assert node.rules() == {
        ("fabric.state", "0", "", Health.UNKNOWN),
        ("fabric.degraded_bandwidth", "0", "", Health.DEGRADED),
    }


def test_a_state_that_could_never_be_read_is_no_link_that_is_down() -> None:
    node = Node("h200x2-idle", only=("nvlink",))
    node.change("gpu0/Field(165,7)", "code", 10)
    node.poll(times=4)
    assert node.rules() == {("nvlink.blind", "0", "", Health.UNKNOWN)}


def test_a_twin_that_cannot_be_read_proves_nothing() -> None:
    node = Node("h200x2-idle", only=("nvlink",))
    node.change("gpu0/Field(140,all)", "code", 999)
    node.poll(times=2)
    assert len(node.series("nvlink_transmit_bytes_total")) == 2


def test_a_gpu_that_answers_nothing_is_blind_and_the_others_are_read() -> None:
    node = Node("h200x2-idle", only=("nvlink",))
    node.change("gpu0/*", "code", 10)
    node.poll()
    assert node.rules() == {("nvlink.blind", "0", "", Health.UNKNOWN)}
    assert len(node.series("nvlink_transmit_bytes_total")) == 1
    assert node.state.components["nvlink"].applicable


def test_the_single_link_of_a_gpu_is_named_as_one() -> None:
    node = Node("h200x2-idle", only=("nvlink",))
    node.change("gpu*/Name()", "set", "NVIDIA X999")
    node.change("gpu*/Field(91)", "set", 1)
    node.poll()
    node.change("gpu0/Field(165,0)", "set", 0)
    node.change("gpu1/Field(164,0)", "set", 13000)
    node.poll(times=3)
    assert node.rules() == {
        ("nvlink.link_down", "0", "0", Health.FAILED),
        ("nvlink.link_slow", "1", "0", Health.FAILED),
    }


class Counted(Gpus):
    """One GPU with four links that notes what it is asked."""

    asked: list[tuple[str, ...]]

    def ask(self, gpu: str | None, questions: Sequence[Question]) -> Sequence[Answer]:
        self.asked.append(tuple(map(str, questions)))
        return super().ask(gpu, questions)


def test_a_poll_asks_for_no_more_than_it_needs() -> None:
    """How many links there are once, nothing in the old way, single links only where a counter moved."""
    gpus = Counted(("0000:03:00.0",))
    gpus.asked = []
    gpus.table |= {("GPU-0", "Field(91)"): 4, ("GPU-0", "Field(170)"): 0, ("GPU-0", "Field(162,all)"): 0}
    gpus.table |= {("GPU-0", f"Field({field},{n})"): 1 for field in (164, 165) for n in range(4)}
    node = Watched("nvlink", gpus=gpus)
    node.poll()
    gpus.asked.clear()
    node.poll()
    (every,) = gpus.asked
    assert "Field(165,3)" in every
    assert not {"Field(91)", "NvLinkState(0)", "Field(90)"} & {*every}
    gpus.table["GPU-0", "Field(162,all)"] = Absent(Why.TIMEOUT, "no answer", 10)
    gpus.asked.clear()
    node.poll()
    assert len(gpus.asked) == 1
    assert node.series("nvlink_link_up") == []
    gpus.table["GPU-0", "Field(162,all)"] = 1
    gpus.asked.clear()
    node.poll()
    assert gpus.asked[1:] == [tuple(f"Field(162,{link})" for link in range(4))]
