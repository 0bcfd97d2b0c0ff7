"""The component of NICs over drawn nodes: when it probes which port, whom it names, and whom it does not."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.node.probe.nicnode import NicNode, Way
from tests.node.probe.overnetwork import IB, SOCKET
from wirewatch.catalogue import discover
from wirewatch.config import ConfigError, load
from wirewatch.core.ports import Order
from wirewatch.core.probe import Probed
from wirewatch.core.types import Absent, Expect, Health, Why
from wirewatch.probe.history import History, HistoryLimits
from wirewatch.probe.model import ProbeOptions, ProbePolicy
from wirewatch.probe.network import rail_of
from wirewatch.probe.nics import nics_collector, recalled_nics

DAY = 86_400.0
SLOW = Way(gbs=20.0)


def ran(node: NicNode) -> list[str]:
    return [rail_of(order.plan) for order in node.probes.ordered]


# --- when it probes


def test_it_is_off_by_default() -> None:
    assert not ProbeOptions().nics.enabled


def test_each_port_is_probed_alone_with_and_without_gpudirect_once_a_day() -> None:
    node = NicNode()
    # Jitter brings some of the next day's forward.
    node.days(0.8)
    assert sorted(ran(node)) == sorted(f"mlx5_{n}:1" for n in range(4) for _ in range(2))
    plans = [dict(order.plan.environment) for order in node.probes.ordered]
    assert {(one["NCCL_IB_HCA"], one["NCCL_NET_GDR_LEVEL"]) for one in plans} == {
        (f"=mlx5_{n}:1", level) for n in range(4) for level in ("SYS", "LOC")
    }
    assert all(one["NCCL_P2P_DISABLE"] == one["NCCL_SHM_DISABLE"] == "1" for one in plans)
    assert all(len(order.gpus) == 2 for order in node.probes.ordered)
    near = {rail_of(order.plan): order.gpus[0].index for order in node.probes.ordered}
    # GPU 3 is named second where GPU 2 is as near as any other: plans have GPUs in the order of the node.
    assert near == {"mlx5_0:1": 0, "mlx5_1:1": 0, "mlx5_2:1": 2, "mlx5_3:1": 2}
    node.days(9.2)
    assert 72 <= len(node.probes.ordered) <= 88
    assert (node.component.findings, node.component.health) == ((), Health.OK)


def test_it_waits_for_idle_gpus_and_looks_anew_after_a_pause() -> None:
    node = NicNode()
    node.gpus.table["GPU-3", "ComputeRunningProcesses()"] = [{"pid": 4711}]
    node.poll(5, every=60.0)
    assert node.probes.ordered == []
    assert node.memory.gate.refusal is not None
    assert node.memory.gate.refusal.reason.value == "busy"
    node.gpus.table["GPU-3", "ComputeRunningProcesses()"] = []
    node.days(0.8)
    first = len(node.probes.ordered)
    assert first == 8
    # Nobody looked for most of a day: idle GPUs at both ends of it are no proof of still ones.
    started = [node.memory.tried[job] for job in node.memory.tried]
    due = min(started) + 0.9 * DAY
    node.clock.seconds += max(0.0, due - node.clock.now())
    while len(node.probes.ordered) == first:
        looked, before = node.memory.looked, node.clock.seconds
        node.poll(every=60.0)
        if node.memory.looked and not looked:
            began = before
    assert node.clock.seconds - began >= 120.0


def test_its_gpu_seconds_are_counted_and_bounded_beside_those_of_other_probes() -> None:
    node = NicNode(budget=0.001)
    node.days(1)
    spent = [at for at, _ in node.memory.gate.spent]
    # 4 GPUs x 3600 s x 0.001 = 14.4 GPU-seconds an hour, and a probe holds two GPUs for 4 s.
    assert len(spent) <= 1
    assert node.series("probe_nic_gpu_seconds_total") == [8.0 * len(node.probes.ordered)]


def test_who_comes_to_a_gpu_beside_the_probe_ends_it() -> None:
    node = NicNode()
    found: list[str | None] = []

    def comes(order: Order) -> None:
        allocations = order.allocations
        found.append(allocations())
        node.gpus.table["GPU-3", "ComputeRunningProcesses()"] = [{"pid": 4711}]
        found.append(allocations())
        node.gpus.table["GPU-3", "ComputeRunningProcesses()"] = Absent(Why.TIMEOUT, "no answer")
        found.append(allocations())
        node.gpus.table["GPU-3", "ComputeRunningProcesses()"] = []

    node.during = comes
    node.probe()
    assert node.probes.ordered[0].gpus[-1].index == 1
    assert found == [None, *("GPU 3, beside the probe, may be in use",) * 2]


def test_a_probe_that_gave_way_runs_again_and_says_nothing() -> None:
    node = NicNode()
    node.default = Way(outcome="preempted")
    node.probe(6)
    assert node.component.findings == ()
    assert not node.memory.failed
    node.default = Way()
    node.days(1)
    assert len(node.memory.results) == 8


def test_a_clock_that_was_ahead_delays_no_probe() -> None:
    node = NicNode()
    node.days(0.8)
    ahead = {job: at + 30 * DAY for job, at in node.memory.tried.items()}
    node.component = replace(node.component, memory=replace(node.memory, tried=ahead))
    node.days(0.8)
    assert len(node.probes.ordered) == 16


# --- where there is nothing to probe


@pytest.mark.parametrize(
    ("gpus", "nics", "why"),
    [(1, 1, "between two GPUs, and there are fewer"), (2, 0, "no RDMA port, so NCCL uses sockets")],
)
def test_a_node_without_a_pair_or_port_takes_no_part(gpus: int, nics: int, why: str) -> None:
    node = NicNode(count=gpus, nics=nics)
    node.poll(5, every=60.0)
    assert (node.component.applicable, node.component.health, node.component.findings) == (False, None, ())
    assert node.memory.rails is not None
    assert why in "; ".join(node.memory.rails.left_out)


def test_the_site_s_settings_choose_the_ports() -> None:
    node = NicNode()
    node.files.texts["/etc/nccl.conf"] = "NCCL_IB_HCA=mlx5_2,mlx5_3\n"
    node.probes.environment["NCCL_IB_HCA"] = "=mlx5_3:1"
    node.days(1)
    assert {*ran(node)} == {"mlx5_3:1"}


def test_a_port_that_goes_down_is_left_to_those_who_watch_its_state() -> None:
    node = NicNode()
    node.ways["mlx5_1:1"] = SLOW
    node.days(1)
    assert node.healths() == {"mlx5_1 port 1": Health.DEGRADED}
    node.files.set("mlx5_1", state="1: DOWN")
    node.days(1)
    assert node.healths() == {}
    assert node.memory.rails is not None
    assert node.memory.rails.left_out == ("mlx5_1:1 (down)",)


def test_gpus_that_cannot_be_listed_are_not_known() -> None:
    node = NicNode()
    node.gpus.absent = Absent(Why.TIMEOUT, "no answer")
    node.poll()
    assert node.component.health is Health.UNKNOWN


# --- whom it names


def test_one_slow_port_of_four_is_named_with_its_gpus_and_no_other() -> None:
    node = NicNode()
    node.ways["mlx5_2:1"] = SLOW
    node.days(2)
    found = node.only()
    assert (found.rule, found.health) == ("nics.slow", Health.DEGRADED)
    assert found.subject.levels() == {"device": "mlx5_2", "port": "1"}
    for text in (
        "mlx5_2:1 with GPUDirect, between GPU 2 (PIX) and GPU 3 (NODE): 20.0 GB/s each way",
        "42 % of 48.0 GB/s, the median of 3 ports like it",
        "mlx5_2:1 without GPUDirect",
    ):
        assert text in found.evidence
    node.ways.clear()
    node.days(2)
    assert node.component.findings == ()


def test_a_port_that_is_slow_with_gpudirect_alone_is_named_so() -> None:
    node = NicNode()
    node.direct["mlx5_2:1"] = SLOW
    node.days(2)
    said = node.only().evidence
    assert said.startswith("mlx5_2:1 with GPUDirect, ")
    assert said.endswith(
        "mlx5_2:1 without GPUDirect, between GPU 2 (PIX) and GPU 3 (NODE): 48.0 GB/s each way"
    )


def test_one_port_or_two_that_differ_name_nobody_without_a_past() -> None:
    for nics in (1, 2):
        node = NicNode(count=2, nics=nics)
        node.ways["mlx5_0:1"] = SLOW
        node.days(2)
        assert node.component.findings == ()
        assert node.series("probe_nic_bytes_per_second", device="mlx5_0") == [pytest.approx(20e9)] * 2


def test_a_majority_that_is_slow_names_nobody() -> None:
    node = NicNode()
    node.ways |= {f"mlx5_{n}:1": SLOW for n in (0, 1, 2)}
    node.days(2)
    assert node.component.findings == ()


def test_ports_of_other_rates_are_no_siblings() -> None:
    node = NicNode()
    node.files.set("mlx5_2", rate="200 Gb/sec (4X HDR)")
    # NCCL takes for each GPU what is fastest to reach, and no GPU would take this one.
    node.ways["mlx5_2:1"] = Way(gbs=24.0)
    node.days(2)
    assert node.component.findings == ()


def test_below_its_past_a_port_is_failed_when_two_probes_agree() -> None:
    node = NicNode(count=2, nics=1)
    node.days(11)
    assert node.component.findings == ()
    node.ways["mlx5_0:1"] = SLOW
    node.probe()
    assert node.only().health is Health.DEGRADED
    at = node.clock.seconds
    for _ in range(30):
        if node.only().health is Health.FAILED:
            break
        node.probe()
    assert node.only().health is Health.FAILED
    assert "42 % of 48.0 GB/s, usual in " in node.only().evidence
    assert node.clock.seconds - at < 3 * 3600.0


def test_one_slow_probe_is_degraded_until_the_next() -> None:
    node = NicNode(count=2, nics=1)
    node.days(11)
    node.ways["mlx5_0:1"] = SLOW
    node.probe()
    assert node.only().health is Health.DEGRADED
    node.ways.clear()
    node.probe()
    assert node.component.findings == ()


@pytest.mark.parametrize(("days", "named"), [(4, False), (12, True)])
def test_a_short_past_judges_nothing(days: int, named: bool) -> None:  # noqa: FBT001
    node = NicNode(count=2, nics=1)
    node.days(days)
    node.ways["mlx5_0:1"] = SLOW
    node.days(2)
    assert bool(node.component.findings) is named


def test_what_is_slower_is_not_learned() -> None:
    node = NicNode(count=2, nics=1)
    node.days(12)
    node.ways["mlx5_0:1"] = SLOW
    node.days(40)
    assert node.only().health is Health.FAILED


def test_a_port_below_half_of_what_it_carries_is_named_where_switches_alone_lie_between() -> None:
    node = NicNode(count=2, nics=1)
    path = "pci0000:10/0000:10:01.0/0000:20:00.0"
    node.files.device("0000:07:00.0", f"{path}/0000:20:03.0", numa="0")
    node.ways["mlx5_0:1"] = SLOW
    node.days(1)
    found = node.only()
    assert found.health is Health.DEGRADED
    assert "40 % of 50.0 GB/s, what port and slots carry" in found.evidence


def test_wrong_elements_are_failed_at_once() -> None:
    node = NicNode(count=2, nics=1)
    node.default = Way(wrong=3)
    node.probe()
    found = node.only()
    assert (found.rule, found.health) == ("nics.wrong_data", Health.FAILED)
    assert found.evidence.startswith("3 wrong elements: mlx5_0:1 with GPUDirect")


# --- what is not known


@pytest.mark.parametrize(
    ("way", "why"),
    [
        (Way(outcome="failed"), "failed: as drawn"),
        (Way(outcome="timeout"), "timeout: as drawn"),
        (Way(transports=("NET/AWS Libfabric/0",)), "NCCL took NET/AWS Libfabric/0"),
    ],
)
def test_what_shows_nothing_three_times_is_unknown_and_never_failed(way: Way, why: str) -> None:
    node = NicNode(count=2, nics=1)
    node.days(11)
    node.default = way
    seen = set()
    for _ in range(12):
        node.probe()
        seen |= {(one.rule, one.health) for one in node.component.findings}
    assert seen == {("nics.unproven", Health.UNKNOWN)}
    assert why in node.only().evidence
    count = len(node.probes.ordered)
    node.days(2)
    # What cannot be had is asked for once a day, and not each minute.
    assert len(node.probes.ordered) - count <= 6
    node.default = Way()
    node.days(2)
    assert node.component.findings == ()


@pytest.mark.parametrize("days", [0, 1])
def test_a_port_that_others_use_is_not_judged_and_not_unknown(days: float) -> None:
    node = NicNode(count=2, nics=1)
    node.days(days)
    node.default = Way(sent=2.0)
    node.days(2)
    assert all(count > 2 for count, _ in node.memory.failed.values())
    assert node.component.findings == ()
    (at,) = node.series("probe_nic_last_success_timestamp_seconds", device="mlx5_0", port="1")
    assert (at > 0) is (days > 0)


def test_an_interface_whose_sockets_the_kernel_turns_around_is_not_unknown() -> None:
    node = NicNode(count=2, nics=0, interfaces=("eth1",))
    node.default = Way(transports=(SOCKET,), nics=("eth1",), sent=0.0)
    node.probe(4)
    assert (node.component.findings, node.component.health) == ((), Health.OK)
    assert node.series("probe_nic_last_success_timestamp_seconds", device="eth1") == [0]


def test_a_port_that_is_measured_in_one_way_is_not_unknown_for_the_other() -> None:
    """Of what was measured once and is not any more, it is."""
    node = NicNode(count=2, nics=1)
    node.direct["mlx5_0:1"] = Way(outcome="failed")
    node.days(3)
    assert (node.component.findings, {job.direct for job in node.memory.results}) == ((), {False})
    node.direct.clear()
    node.days(2)
    node.direct["mlx5_0:1"] = Way(outcome="failed")
    node.days(3)
    assert node.only().rule == "nics.unproven"


def test_a_card_without_gpudirect_is_measured_without_it_and_nothing_is_wrong() -> None:
    node = NicNode()
    node.default = Way(transports=(IB,))
    node.days(0.8)
    assert len(node.probes.ordered) == 4
    node.days(2)
    assert node.component.findings == ()
    assert {job.direct for job in node.memory.results} == {False}


def test_gpudirect_that_is_gone_is_named_and_so_is_one_that_is_asked_for() -> None:
    node = NicNode()
    node.days(1)
    node.ways["mlx5_1:1"] = Way(transports=(IB,))
    node.days(2)
    found = node.only()
    assert (found.rule, found.health, str(found.subject)) == (
        "gpudirect.unused",
        Health.DEGRADED,
        "mlx5_1 port 1",
    )
    assert "an earlier probe had it" in found.evidence
    node.ways.clear()
    node.days(2)
    assert node.component.findings == ()
    asked = NicNode(expect=Expect(gpudirect=True))
    asked.default = Way(transports=(IB,))
    asked.days(1)
    assert {one.rule for one in asked.component.findings} == {"gpudirect.unused"}
    assert "`[expect]` asks for it" in asked.component.findings[0].evidence
    # That a probe with GPUDirect broke off is no sign of its absence.
    broken = NicNode(expect=Expect(gpudirect=True))
    broken.direct |= {f"mlx5_{n}:1": Way(outcome="failed") for n in range(4)}
    broken.days(1)
    assert {one.rule for one in broken.component.findings} == {"nics.unproven"}


def test_a_recording_without_such_a_probe_shows_nothing_and_is_not_asked_each_minute() -> None:
    node = NicNode(count=2, nics=1)
    run = node.probes.result
    assert run is not None

    def recorded(order: Order) -> Probed:
        made = run(order)
        return replace(made, by="recording", plan=replace(made.plan, environment=()))

    node.probes.result = recorded
    node.days(3)
    assert node.only().rule == "nics.unproven"
    assert "what ran is no probe of this NIC" in node.only().evidence
    assert len(node.probes.ordered) <= 14


# --- over restarts


def test_a_daemon_that_starts_knows_what_an_earlier_one_found(tmp_path: Path) -> None:
    node = NicNode()
    history = partial(History, tmp_path / "nics.sqlite", node.clock, HistoryLimits())
    node.collector = nics_collector(node.made, ProbePolicy(), node.expect, history=history, boot_id="boot-1")
    node.ways["mlx5_2:1"] = SLOW
    node.days(12)
    known = nics_collector(node.made, ProbePolicy(), node.expect, history=history).start
    assert known.results == node.memory.results
    assert known.tried == node.memory.tried
    assert known.usual == node.memory.usual
    again = NicNode(start=known)
    again.clock.seconds = node.clock.seconds
    again.poll()
    assert again.healths() == node.healths() == {"mlx5_2 port 1": Health.DEGRADED}
    assert len(again.probes.ordered) == 0
    assert again.component.observed.covers(again.only().subject)


def test_without_a_daemon_the_history_says_what_was_wrong_with_ports_that_are_here(tmp_path: Path) -> None:
    node = NicNode()
    history = partial(History, tmp_path / "nics.sqlite", node.clock, HistoryLimits())
    node.collector = nics_collector(node.made, ProbePolicy(), node.expect, history=history, boot_id="boot-1")
    node.ways |= {"mlx5_2:1": SLOW, "mlx5_1:1": Way(transports=(SOCKET,))}
    node.days(2)
    read = partial(recalled_nics, node.made, ProbePolicy(), node.expect)
    later = NicNode()
    later.clock.seconds, later.collector = node.clock.seconds, read(history(read_only=True))
    later.poll()
    assert later.healths() == node.healths()
    assert len(later.healths()) == 2
    assert later.probes.ordered == []
    assert later.series("probe_nic_last_success_timestamp_seconds", device="mlx5_1") == [0]
    gone = NicNode(nics=2)
    gone.collector = read(history(read_only=True))
    gone.poll()
    assert gone.healths() == {"mlx5_1 port 1": Health.UNKNOWN}, "mlx5_2 is not here any more"


def test_without_a_history_nothing_is_known_and_no_file_is_made(tmp_path: Path) -> None:
    path = tmp_path / "nics.sqlite"
    node = NicNode()
    history = partial(History, path, node.clock, HistoryLimits())
    known = nics_collector(node.made, ProbePolicy(), node.expect, history=history).start
    assert (known.results, path.exists()) == ({}, False)


def test_a_node_that_measured_nothing_yet_observed_no_port() -> None:
    node = NicNode()
    node.ways["mlx5_2:1"] = SLOW
    node.days(2)
    fresh = NicNode()
    fresh.poll()
    assert not fresh.component.observed.covers(node.only().subject)
    assert fresh.series("probe_nic_bytes_per_second") == []


def test_old_results_are_withdrawn_and_their_findings_stand() -> None:
    node = NicNode()
    node.ways["mlx5_2:1"] = SLOW
    node.days(2)
    node.gpus.table["GPU-3", "ComputeRunningProcesses()"] = [{"pid": 4711}]
    node.days(3)
    assert node.series("probe_nic_bytes_per_second") == []
    assert node.healths() == {"mlx5_2 port 1": Health.DEGRADED}


# --- the configuration


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("probe_interval = 0", "probe.nics.probe_interval: must be above 0 (unit: seconds), got 0"),
        ("budget = 0.0", "probe.nics.budget: must be above 0 (unit: share), got 0.0"),
        ("budget = 1.5", "probe.nics.budget: must be 1 or less (unit: share), got 1.5"),
        ("deadline = 60", "probe: must be above kill_after: 'nics.deadline'"),
        ("interval = 0", "probe: must be above 0: 'nics.interval'"),
        ('interfaces = ["mlx5_0:1"]', "probe.nics.interfaces.0: must match the pattern"),
        ("enable = true", "unknown key 'probe.nics.enable'; did you mean 'enabled'?"),
    ],
)
def test_what_cannot_be_meant_is_named(tmp_path: Path, text: str, wrong: str) -> None:
    path = tmp_path / "wirewatch.toml"
    path.write_text(f"[probe.nics]\n{text}\n", "utf-8")
    with pytest.raises(ConfigError) as error:
        load(path, discover())
    assert wrong in str(error.value)


def test_configured_interfaces_are_rails_too() -> None:
    node = NicNode(count=2, nics=1, interfaces=("eth1",))
    node.poll()
    assert node.memory.rails is not None
    assert node.memory.rails.names == ("mlx5_0:1", "eth1")
