"""Not knowing is not "gone": seconds count only while the part is read, over restarts, boots and repairs."""

from pathlib import Path

import pytest

from tests.node.verdict.drawn import COLLECTORS, GONE, HUNG, D, Drawn, F, U
from wirewatch.core.collector import blind_finding
from wirewatch.core.types import Absent, Health, Subject, Why
from wirewatch.verdict.ledger import Stage

DOWN, XID = "nvlink.link_down", "xid.79"
PORT = Subject(device="mlx5_0", port="1")
PORT_DOWN = "infiniband.port_down"


def sick(folder: Path | None = None, rule: str = DOWN, **options: object) -> Drawn:
    node = Drawn(folder, **options)  # type: ignore[arg-type]
    node.look()
    node.find(rule, node.gpu())
    node.look(times=3)
    node.clear(rule, node.gpu())
    return node


def on_probation(folder: Path | None = None, rule: str = DOWN) -> Drawn:
    node = sick(folder, rule)
    assert node.look(times=5).health is D
    return node


@pytest.mark.parametrize("absent", [HUNG, Absent(Why.DENIED, "no permission"), Absent(Why.MALFORMED, "?")])
def test_a_collector_that_fails_repairs_nothing(absent: Absent) -> None:
    node = sick()
    node.down["nvlink"] = absent
    assert node.look(times=100).health is F
    node.down.clear()
    assert node.look(times=4).health is F
    assert node.look().health is D


def test_a_collector_that_hangs_repairs_nothing() -> None:
    node = sick()
    node.hang("nvlink")
    node.waiting = {"nvlink"}
    assert node.look(times=100).health is F
    node.waiting = set()
    node.look(times=4)
    assert node.health is F


def test_every_gap_begins_the_minute_where_it_was() -> None:
    node = sick()
    for _ in range(3):
        node.look(times=2)  # 15 s each
        node.down["nvlink"] = HUNG
        node.look(times=10)
        node.down.clear()
    assert node.entry(DOWN, node.gpu()).absent == 45.0
    assert node.look(times=2).health is D


@pytest.mark.parametrize("collector", ["pcie", "gpu", "infiniband"])
def test_another_collector_that_fails_holds_up_nothing(collector: str) -> None:
    node = sick()
    node.down[collector] = HUNG
    assert node.look(times=5).health is U
    assert node.stage(DOWN, node.gpu()) is Stage.PROBATION


def test_a_part_that_no_series_shows_is_not_repaired() -> None:
    node = sick()
    node.mute = {"GPU-a"}
    assert node.look(times=100).health is F
    (standing,) = node.verdict.standings
    assert "not seen now, because its part is not read" in standing.finding.evidence
    order = f"`wirewatch findings repaired {standing.id}`"
    assert f"if the part is gone for good: {order}" in standing.finding.action
    node.mute = set()
    assert node.look(times=5).health is D


def test_nor_is_it_when_no_series_shows_any_part() -> None:
    node = sick(gpus=("GPU-a",))
    node.gpus = []
    assert node.look(times=100).health is F


@pytest.mark.parametrize("others", [("mlx5_1",), ()])
def test_a_port_that_no_series_shows_is_not_repaired(others: tuple[str, ...]) -> None:
    node = Drawn()
    node.find(PORT_DOWN, PORT)
    node.look(times=3)
    node.clear(PORT_DOWN, PORT)
    node.ports = list(others)
    assert node.look(times=100).health is F
    node.ports = ["mlx5_1", "mlx5_0"]
    assert node.look(times=5).health is D


def test_another_port_of_the_card_is_not_this_one() -> None:
    node = Drawn()
    second = Subject(device="mlx5_0", port="2")
    node.find(PORT_DOWN, second)
    node.look(times=3)
    node.clear(PORT_DOWN, second)
    assert node.look(times=100).health is F


def test_another_port_that_is_down_holds_up_nothing() -> None:
    node = Drawn()
    node.find(PORT_DOWN, PORT)
    node.look(times=3)
    node.clear(PORT_DOWN, PORT)
    node.down_ports = {"mlx5_1"}
    assert node.look(times=5).health is D


@pytest.mark.parametrize("rule", ["infiniband.ports_missing", "gpu.missing", "gpudirect.missing"])
def test_a_fault_of_the_node_ends_although_nothing_of_its_kind_is_left(rule: str, tmp_path: Path) -> None:
    """Before: FAILED 25 hours after a boot, since no series named a part that was read."""
    node = Drawn(tmp_path, plain=())
    node.find(rule, Subject())
    node.look(times=3)
    node.clear(rule, Subject())
    node.ports, node.gpus = [], []
    node.reboot()
    assert node.look(times=5).health is D
    assert node.look(seconds=3600.0, times=25).health is Health.OK


def test_a_place_within_a_gpu_is_read_with_the_gpu() -> None:
    node = Drawn()
    memory = node.gpu(device="dram")
    node.find("gpu.ecc_uncorrected", memory)
    node.look(times=3)
    node.clear("gpu.ecc_uncorrected", memory)
    assert node.look(times=5).health is D


@pytest.mark.parametrize(
    ("other", "held"),
    [(Subject(gpu="0"), True), (Subject(gpu="1"), False), (Subject(gpu="1", uuid="GPU-b"), True)],
)
def test_of_gpus_without_names_the_index_is_the_name(other: Subject, *, held: bool) -> None:
    node = Drawn()
    nameless = Subject(gpu="0")
    node.find(DOWN, nameless)
    node.look(times=3)
    node.clear(DOWN, nameless)
    node.found["nvlink.blind", other] = blind_finding("nvlink", other, GONE)
    node.look(times=10)
    assert node.stage(DOWN, nameless) is (Stage.ACTIVE if held else Stage.PROBATION)


@pytest.mark.parametrize("rule", ["infiniband.device_gone", "infiniband.pcie"])
def test_a_card_is_back_when_one_of_its_ports_is_reported(rule: str) -> None:
    node = Drawn()
    node.find(rule, Subject(device="mlx5_0"))
    node.look(times=3)
    node.clear(rule, Subject(device="mlx5_0"))
    node.ports = ["mlx5_1"]
    assert node.look(times=100).health is F
    node.ports = ["mlx5_0", "mlx5_1"]
    assert node.look(times=5).health is D


@pytest.mark.parametrize("uuid", ["GPU-a", ""])
def test_a_part_that_is_blind_is_not_repaired(uuid: str) -> None:
    node = sick()
    blind = Subject(gpu="5", uuid=uuid)
    node.found["nvlink.blind", blind] = blind_finding("nvlink", blind, GONE)
    assert node.look(times=100).health is F
    node.clear("nvlink.blind", blind)
    assert node.look(times=5).health is D


def test_another_part_that_is_blind_holds_up_nothing() -> None:
    """One port that refuses a counter for ever must not keep all the others failed."""
    node = Drawn()
    node.find(PORT_DOWN, PORT)
    node.look(times=3)
    node.clear(PORT_DOWN, PORT)
    other = Subject(device="mlx5_1", port="1")
    node.found["infiniband.blind", other] = blind_finding("infiniband", other, HUNG)
    assert node.look(times=5).health is U
    assert node.stage(PORT_DOWN, PORT) is Stage.PROBATION


def test_a_part_that_is_blind_holds_up_what_is_said_of_the_whole() -> None:
    node = Drawn()
    node.find("infiniband.ports_missing", Subject())
    node.look(times=3)
    node.clear("infiniband.ports_missing", Subject())
    node.found["infiniband.blind", PORT] = blind_finding("infiniband", PORT, HUNG)
    node.look(times=100)
    assert node.health is F


def test_on_probation_nothing_counts_while_the_part_is_not_read() -> None:
    node = on_probation()
    node.mute = {"GPU-a"}
    assert node.look(seconds=3600.0, times=50).health is D
    node.mute = set()
    assert node.look(seconds=3600.0, times=24).health is D
    assert node.look(seconds=3600.0).health is Health.OK


# A GPU that has gone


def test_a_gpu_that_fell_off_is_failed_while_the_daemon_knows_it() -> None:
    node = Drawn()
    node.look()
    node.fall_off("GPU-a")
    assert node.look(times=100).health is F


def test_a_gpu_that_fell_off_is_failed_after_a_restart_with_those_that_are_left(tmp_path: Path) -> None:
    node = Drawn(tmp_path)
    node.look()
    part = node.gpu("GPU-b")
    node.fall_off("GPU-b")
    node.look(times=3)
    node.found.clear()
    for _ in range(3):
        node.restart()
        assert node.look(times=100).health is F
        assert node.stage("gpu.lost", part) is Stage.ACTIVE


def test_the_only_gpu_that_fell_off_is_failed_after_a_restart(tmp_path: Path) -> None:
    """No series tells of any GPU then, and other components watch on."""
    node = Drawn(tmp_path, gpus=("GPU-a",))
    node.look()
    node.fall_off("GPU-a")
    node.look(times=3)
    node.found.clear()
    node.restart()
    assert node.look(times=100).health is F
    node.reboot()
    assert node.look(times=100).health is F


def test_a_gpu_without_a_name_that_fell_off_is_failed_after_a_restart(tmp_path: Path) -> None:
    node = Drawn(tmp_path)
    node.look()
    nameless = Subject(gpu="2")
    node.find("gpu.lost", nameless)
    node.look(times=3)
    node.clear("gpu.lost", nameless)
    node.restart()
    assert node.look(times=100).health is F
    node.gpus.append("GPU-c")
    assert node.look(times=6).health is D


def test_a_gpu_that_is_still_missing_after_a_boot_is_failed(tmp_path: Path) -> None:
    node = Drawn(tmp_path)
    node.look()
    node.event(XID, node.gpu("GPU-b"))
    node.fall_off("GPU-b")
    node.look(times=3)
    node.found.clear()
    node.reboot()
    assert node.look(times=100).health is F
    assert {s.finding.rule for s in node.verdict.standings} == {"gpu.lost", XID}
    node.come_back("GPU-b")
    assert node.look(times=1).health is D


def test_a_gpu_of_which_only_the_address_is_known_must_answer_after_a_boot(tmp_path: Path) -> None:
    node = Drawn(tmp_path)
    card = Subject(device=f"0000:{ord('b'):02x}:00")
    node.event(XID, card)
    node.gpus = ["GPU-a"]
    node.look(times=3)
    node.found.clear()
    node.reboot()
    assert node.look(times=100).health is F
    node.gpus = ["GPU-a", "GPU-b"]
    assert node.look().health is D


def test_another_gpu_in_its_place_ends_what_the_old_one_had(tmp_path: Path) -> None:
    node = Drawn(tmp_path)
    node.look()
    part = node.gpu("GPU-b")
    node.event(XID, part)
    node.fall_off("GPU-b")
    node.look(times=3)
    node.found.clear()
    node.gpus = ["GPU-a", "GPU-c"]
    node.reboot()
    assert node.look().health is D
    assert node.stage(XID, part) is Stage.PROBATION
    assert node.look(seconds=3600.0, times=24 * 8).health is Health.OK
    assert node.ledger.entries == {}


def test_another_gpu_besides_is_not_one_in_its_place() -> None:
    """As many answer as ever did, and whoever watches still misses one."""
    node = Drawn()
    node.look()
    node.event(XID, node.gpu("GPU-b"))
    node.look()
    node.fall_off("GPU-b")
    node.gpus.append("GPU-c")
    node.clear(XID, Subject(gpu="1", uuid="GPU-b"))
    assert node.look(times=100).health is F
    assert node.stage(XID, Subject(uuid="GPU-b")) is not Stage.PROBATION


def test_nothing_is_replaced_before_all_were_counted_once() -> None:
    node = Drawn(gpus=("GPU-a",))
    node.waiting = {"inventory"}
    node.event(XID, Subject(gpu="1", uuid="GPU-b"))
    node.look()
    node.found.clear()
    node.waiting = set()
    assert node.look().health is F


# Restarts


@pytest.mark.parametrize("name", COLLECTORS)
def test_after_a_restart_all_is_held_until_it_is_read(name: str, tmp_path: Path) -> None:
    node = sick(tmp_path)
    node.look()
    node.restart()
    node.waiting = set(COLLECTORS) - {name}
    node.look(times=100)
    held = node.stage(DOWN, node.gpu())
    assert held is (Stage.PROBATION if name == "nvlink" else Stage.ACTIVE)
    assert not node.verdict.job_ready


@pytest.mark.parametrize("looks", range(7))
def test_a_restart_in_the_middle_loses_only_its_own_time(looks: int, tmp_path: Path) -> None:
    node, twin = sick(tmp_path), sick()
    node.look(times=looks)
    twin.look(times=looks)
    node.restart()
    node.look()
    assert node.health == twin.health
    assert node.stage(DOWN, node.gpu()) == twin.stage(DOWN, twin.gpu())
    node.look(times=6)
    assert node.health is D


def test_a_restart_on_probation_counts_on(tmp_path: Path) -> None:
    node = on_probation(tmp_path)
    for _ in range(4):
        node.look(seconds=3600.0, times=5)
        node.restart(down=7200.0)
        assert node.look().health is D
    assert node.look(seconds=3600.0, times=3).health is D
    assert node.look(seconds=3600.0).health is Health.OK
    node.restart()
    node.find(DOWN, node.gpu(), D)
    assert node.look().health is F


def test_a_restart_keeps_what_is_latched(tmp_path: Path) -> None:
    node = sick(tmp_path, latch=("nvlink.*",))
    for _ in range(3):
        assert node.look(times=100).health is F
        node.restart()
        assert node.look().health is F


def test_a_port_that_is_down_is_not_up_because_nobody_remembers_it(tmp_path: Path) -> None:
    """The collector calls a port down that it has seen active: after a restart it has seen nothing."""
    node = Drawn(tmp_path)
    node.find(PORT_DOWN, PORT)
    node.down_ports = {"mlx5_0"}
    node.look(times=3)
    node.clear(PORT_DOWN, PORT)
    for boot in ("boot-1", "boot-2"):
        node.restart(boot)
        assert node.look(times=100).health is F
    node.down_ports = set()
    assert node.look().health is D


def test_nor_does_its_probation_pass_while_it_is_down(tmp_path: Path) -> None:
    node = Drawn(tmp_path)
    node.find(PORT_DOWN, PORT)
    node.look(times=3)
    node.clear(PORT_DOWN, PORT)
    node.look(times=5)
    node.restart()
    node.down_ports = {"mlx5_0"}
    assert node.look(seconds=3600.0, times=30).health is D
    node.down_ports = set()
    node.look()
    assert node.look(seconds=3600.0, times=24).health is Health.OK


# Boots


def test_a_boot_ends_what_is_latched_once_its_part_is_read(tmp_path: Path) -> None:
    node = sick(tmp_path, latch=("nvlink.*",))
    node.look(times=9)
    node.restart("boot-2")
    node.waiting = {"nvlink"}
    node.look(times=9)
    assert node.stage(DOWN, node.gpu()) is Stage.LATCHED
    node.waiting = set()
    assert node.look().health is D
    assert node.look(seconds=3600.0, times=24).health is Health.OK


def test_a_boot_ends_what_was_not_yet_believed_to_be_gone(tmp_path: Path) -> None:
    node = sick(tmp_path)
    node.look()
    node.restart("boot-2")
    assert node.look().health is D


def test_a_boot_ends_nothing_that_is_seen_after_it(tmp_path: Path) -> None:
    node = Drawn(tmp_path)
    node.find(DOWN, node.gpu())
    node.look(times=3)
    node.reboot()
    node.find(DOWN, node.gpu(), D)
    assert node.look().health is F
    assert node.entry(DOWN, node.gpu()).boot == "boot-2"
    node.clear(DOWN, node.gpu())
    assert node.look(times=4).health is F


@pytest.mark.parametrize(("before", "now"), [("", "boot-2"), ("boot-1", ""), ("", "")])
def test_a_boot_of_which_nothing_is_known_ends_nothing(before: str, now: str, tmp_path: Path) -> None:
    node = sick(tmp_path, latch=("nvlink.*",))
    node.look(times=9)
    node.boot = before
    node.find(DOWN, node.gpu())
    node.restart(before or None)
    node.look()
    node.clear(DOWN, node.gpu())
    node.boot = now
    node.restart(now or None)
    assert node.look(times=9).health is F


def test_gpus_may_be_numbered_again(tmp_path: Path) -> None:
    node = Drawn(tmp_path)
    node.look()
    node.find(DOWN, node.gpu(link="7"))
    node.look(times=3)
    (before,) = node.verdict.standings
    node.clear(DOWN, node.gpu(link="7"))
    node.gpus.reverse()
    node.restart()
    node.look()
    (held,) = node.verdict.standings
    assert held.id == before.id
    assert str(held.finding.subject) == "GPU 1 link 7"
    node.find(DOWN, node.gpu(link="7"), D)
    node.look()
    (again,) = node.verdict.standings
    assert (again.id, again.times, again.finding.health) == (before.id, 1, F)
    assert len(node.ledger.entries) == 1
