"""Where a run loses bandwidth: parts with their lines, that never sum up to more than the loss."""

import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.lab.study import printed
from tests.lab.study.jobs import DrawnJob
from tests.lab.study.test_judge import of_busbw
from tests.lab.study.test_nccltests import read
from tests.lab.study.topologies import LINK, gpu, nic, switch, system
from wirewatch_lab.advice.described import network_of
from wirewatch_lab.study.basis import RunGrounds, logged_network
from wirewatch_lab.study.judge import judge
from wirewatch_lab.study.loss import LossAccount, LossEvidence, _Limit, _steps, account
from wirewatch_lab.study.nccllog import read_log
from wirewatch_lab.study.topologyxml import NcclTopology, read_topology

GB, GIB = 1e9, 1 << 30
SLOT = 'link_speed="16.0 GT/s PCIe" link_width="8"'
PORTS = [f"mlx5_{number}:1/IB" for number in range(8)]
RATES = tuple(f"+ NET[50.0] - NET/{number} (0/{number}/1/50.000000)" for number in range(8))
SPEEDS = tuple(
    f"NET/IB: [{number}] mlx5_{number}:uverbs0:1/IB provider=Mlx5 speed=400000 context=0x7f "
    for number in range(8)
)
JOB = DrawnJob(gpus=8, channels=16, nics=lambda _: PORTS, nic=lambda _, channel, __: channel % 8, extra=RATES)
ONE = replace(JOB, nic=lambda *_: 0)
CHOSEN = "AllReduce: {} Bytes -> Algo {} proto SIMPLE channel{{Lo..Hi}}={{0..15}}"


def machine(link: str = LINK, uplink: str = LINK) -> NcclTopology:
    """Eight switches with a GPU and a NIC each; NICs have a link of their own."""
    cards = [nic(f"0000:f{n}:00.0", f"mlx5_{n}", link=link).replace('"0"', f'"{n}"') for n in range(8)]
    gpus = [gpu(f"0000:{n * 16 + 24:02x}:00.0", dev=n) for n in range(8)]
    each = [switch(f"0000:{n:02x}:00.0", gpus[n], cards[n]).replace(LINK, uplink, 1) for n in range(8)]
    found = read_topology(io.BytesIO(system(each)))
    assert isinstance(found, NcclTopology)
    return found


def lost(
    log: Sequence[str], busbw: float, *, op: str = "all_reduce", network: str = "", algorithm: str = "",
    topology: NcclTopology | None = None, ranks: int = 16,
) -> LossAccount:  # fmt: skip
    """The account of a table of two nodes of 8 H100 beside a log."""
    rows = (of_busbw(op, ranks, 4 * GIB, busbw),)
    table = printed.Job(op=op, ranks=ranks, hosts=ranks // 8, product="NVIDIA H100 80GB HBM3", rows=rows)
    (run,) = read(printed.lines(table)).runs
    said = read_log(log, topology=topology)
    had = {one.name: one.value for one in said.settings} | ({"NCCL_ALGO": algorithm} if algorithm else {})
    named = network_of(network) if network else None
    grounds = RunGrounds(had, logged=logged_network(said), network=named)
    free = replace(grounds, settings={}, known={}).basis(run)
    found = account(
        judge(run, grounds.basis), grounds.basis(run), LossEvidence(said, "log:{}".format, "xml", free)
    )
    assert found is not None
    if found.expected is not None:
        parts = [one.lost for one in found.parts if one.lost is not None]
        assert found.unexplained is not None
        total = sum(parts) + found.unexplained
        assert total == pytest.approx(max(found.expected - found.measured, 0.0), abs=1.0)
        assert min([*parts, found.unexplained]) >= 0
    return found


def said(found: LossAccount) -> str:
    return "\n".join(found.lines())


def test_one_nic_of_eight_is_the_loss_with_its_line() -> None:
    found = lost(ONE.log(), 89e9)
    (part,) = found.parts
    assert "1 of its 8 NICs of 400 Gb/s in use" in part.what
    hop, rate = (ONE.log()[int(one.removeprefix("log:")) - 1] for one in part.at.split(", "))
    assert "via NET/IB/0/GDRDMA" in hop
    assert "NET/0 (0/0/1/50" in rate
    assert part.limit == pytest.approx(100e9)
    assert part.lost == pytest.approx((found.expected or 0) - 100e9)
    assert found.unexplained == pytest.approx(11e9, rel=1e-4)


def test_only_a_ring_is_held_by_the_nic_with_the_most_channels() -> None:
    """Trees of two nodes send half as much, and load NICs otherwise."""
    uneven = replace(JOB, nic=lambda _, channel, __: int(channel == 5))
    assert "if it ran as rings, at most 53.3 GB/s: node-0: 15 of 16 channels by mlx5_0:1" in said(
        lost(uneven.log(), 52e9)
    )
    ring = lost(uneven.log(), 52e9, algorithm="Ring")
    assert [round((one.limit or 0) / GB) for one in ring.parts] == [357, 100, 53]
    assert ring.parts[0].what == "NCCL_ALGO=Ring"
    assert "15 of 16 channels" in ring.parts[2].what
    start = uneven.log()[0].partition(" NCCL INFO ")[0].replace("NCCL version", "")
    for algorithm, parts in (("RING", 2), ("TREE", 1)):
        line = f"node-0:1000:2000 [0] NCCL INFO {CHOSEN.format(4 * GIB, algorithm)}"
        assert len(lost([*uneven.log(), line], 52e9).parts) == parts, start


@pytest.mark.parametrize(
    ("nodes", "more", "limit"),
    [
        (2, "", 100e9),
        (3, "", 75e9),
        (4, "", 200e9 / 3),
        (4, "NCCL_COLLNET_ENABLE set by environment to 1.", 100e9),
    ],
)
def test_trees_and_reductions_in_switches_send_less_than_rings(nodes: int, more: str, limit: float) -> None:
    log = [*replace(ONE, nodes=nodes).log(), f"node-0:1000:2000 [0] NCCL INFO {more}"]
    found = lost(log, 40e9, ranks=8 * nodes)
    assert [one.limit for one in found.parts if "NICs" in one.what] == [pytest.approx(limit)]


def test_a_bound_that_the_run_exceeds_costs_nothing_and_is_said() -> None:
    found = lost(ONE.log(), 150e9)
    assert found.parts == []
    assert "at most 100.0 GB/s, and more was measured" in found.others[0].what


def test_a_slot_below_its_port_is_a_part_by_the_topology_file() -> None:
    found = lost(JOB.log(), 100e9, topology=machine(SLOT), op="all_gather")
    (part,) = [one for one in found.parts if "slot" in one.what]
    assert part.limit == pytest.approx(8 * 15.75e9, rel=1e-3)
    assert part.at.partition(", ")[2].startswith("xml:") or part.at.startswith("xml:")


@pytest.mark.parametrize(("direct", "priced"), [("/GDRDMA", False), ("", True)])
def test_without_gpudirect_a_byte_passes_the_switch_above_twice(direct: str, priced: bool) -> None:  # noqa: FBT001
    """A GPU and its NIC below one switch of PCIe 4 x8: 15.75 GB/s up and down, for both ways of the ring."""
    log = replace(JOB, direct=direct).log()
    found = lost(log, 50e9, topology=machine(uplink=SLOT), op="all_gather")
    twice = [one for one in found.parts if "twice" in one.what]
    assert bool(twice) == priced
    if priced:
        assert twice[0].limit == pytest.approx(8 * 15.75e9 / 2, rel=1e-3)
        assert not any("no GPUDirect" in one.what for one in found.others)


def test_gpudirect_off_without_a_topology_file_has_no_figure() -> None:
    log = [line.replace("/GDRDMA", "") if line.startswith("node-1") else line for line in JOB.log()]
    found = lost(log, 89e9)
    (other,) = found.others
    assert other.what.startswith("node-1: no GPUDirect RDMA at 32 of 32 ends; two GH200 reached")
    assert "via NET/IB/" in log[int(found.others[0].at.removeprefix("log:")) - 1]
    assert found.unexplained == pytest.approx((found.expected or 0) - 89e9)


@pytest.mark.parametrize(
    ("product", "ranks", "busbw", "limit"),
    [
        ("NVIDIA H200", 4, 26.0, 27.9),
        ("NVIDIA H200", 4, 40.0, 63.0),
        ("NVIDIA H100 80GB HBM3", 8, 26.0, 63.0),
        ("NVIDIA A100-SXM4-80GB", 8, 20.0, 31.5),
        ("NVIDIA L40S", 8, 5.0, None),
        ("NVIDIA Unheard-of", 8, 5.0, None),
    ],
)
def test_through_host_memory_gpus_have_their_pcie_links_or_what_was_recorded(
    product: str, ranks: int, busbw: float, limit: float | None
) -> None:
    """Cards without NVLink are expected below their PCIe link; of an unknown product nothing is."""
    rows = (of_busbw("all_reduce", ranks, 4 * GIB, busbw * GB),)
    table = printed.Job(op="all_reduce", ranks=ranks, hosts=1, product=product, rows=rows)
    (run,) = read(printed.lines(table)).runs
    logged = read_log(["n0:7:9 [0] NCCL INFO NCCL_P2P_DISABLE set by environment to 1."])
    grounds, free = RunGrounds({"NCCL_P2P_DISABLE": "1"}), RunGrounds().basis(run)
    evidence = LossEvidence(logged, "log:{}".format, "", free)
    found = account(judge(run, grounds.basis), grounds.basis(run), evidence)
    assert found is not None
    through = [one for one in found.parts if "through host memory" in one.what]
    assert [round((one.limit or 0) / GB, 1) for one in through] == ([limit] if limit else [])
    assert all(one.at == "log:1" for one in through)
    assert not (through and any("NCCL_P2P_DISABLE" in one.what for one in found.others))


def test_a_pair_beside_those_through_host_memory_leaves_the_cost_open() -> None:
    """A ring may go around a pair that is not reached: only where no pair is, the cost is known."""
    head = "n0:7:9 [0] NCCL INFO comm 0xa rank 0 nranks 4 cudaDev 0 busId 1000 - Init COMPLETE"
    way = "n0:7:9 [0] NCCL INFO Channel {:02d}/0 : {}[{}] -> {}[{}] via {}"
    ends = [(0, 1), (1, 2), (2, 3), (3, 0)]
    rows = (of_busbw("all_reduce", 4, 4 * GIB, 20 * GB),)
    table = printed.Job(op="all_reduce", ranks=4, hosts=1, product="NVIDIA H200", rows=rows)
    (run,) = read(printed.lines(table)).runs
    for last, costs in (("SHM/direct/direct", 1), ("P2P/IPC", 0)):
        kinds = ["SHM/direct/direct"] * 3 + [last]
        lines = [way.format(0, a, a, b, b, kind) for (a, b), kind in zip(ends, kinds, strict=True)]
        basis = RunGrounds().basis(run)
        evidence = LossEvidence(read_log([head, *lines]), "log:{}".format, "", basis)
        found = account(judge(run, RunGrounds().basis), basis, evidence)
        assert found is not None
        assert sum("reach each other through host memory" in one.what for one in found.parts) == costs
        assert sum("pairs of ranks" in one.what for one in found.others) == 1 - costs


def test_gpus_of_another_machine_in_the_topology_file_say_nothing_of_switches() -> None:
    """The file's GPUs have other addresses than those of the log."""
    other = machine(uplink=SLOT)
    moved = replace(
        other,
        gpus=tuple(replace(one, place=replace(one.place, address="0001:00:00.0")) for one in other.gpus),
    )
    found = lost(replace(JOB, direct="").log(), 50e9, topology=moved, op="all_gather")
    assert not any("twice" in one.what for one in found.parts)


def test_sockets_where_another_network_was_named_are_the_cause() -> None:
    found = lost(replace(JOB, network="Socket", direct="").log(), 9e9, network="p5")
    assert any(one.what.startswith("TCP sockets") and one.at.startswith("log:") for one in found.others)


def test_where_nothing_is_expected_the_bounds_stand_alone() -> None:
    log = [line for line in replace(ONE, network="Mystery").log() if "NET/IB" not in line]
    found = lost(log, 89e9)
    assert (found.expected, found.unexplained) == (None, None)
    assert "what is expected is not known" in said(found)
    assert "at most 100.0 GB/s: node-" in said(found)


def test_a_healthy_run_has_nothing_against_it() -> None:
    found = lost(JOB.log(), 470e9)
    assert (found.parts, found.others, found.unexplained) == ([], [], 0.0)


def test_ports_of_two_possible_rates_are_a_part_that_is_not_decided() -> None:
    found = lost(replace(JOB, extra=()).log(), 89e9)
    assert found.parts[0].what.startswith("not decided: are its ports of 200 or 400 Gb/s?")
    rated = lost(replace(JOB, extra=SPEEDS).log(), 89e9)
    assert rated.parts == []
    assert rated.expected == found.expected


@pytest.mark.parametrize("change", ["one name", "trees"])
def test_where_rings_cannot_be_told_no_load_is_a_limit(change: str) -> None:
    """Two hosts of one name carry twice the channels; lines of trees are as those of rings."""
    log = replace(ONE, orders=False).log()
    if change == "one name":
        log = [line.replace("node-1", "node-0") for line in log]
    else:
        log += [line.replace("0[0] -> 9[1]", "0[0] -> 10[2]") for line in log if "0[0] -> 9[1]" in line]
    found = lost(log, 60e9, algorithm="Ring")
    assert [one.what for one in found.parts] == ["NCCL_ALGO=Ring"]


def test_of_several_communicators_the_log_explains_what_all_have_in_common() -> None:
    again = replace(ONE, commid="0xbeef")
    assert len(lost([*ONE.log(), *again.log()], 89e9).parts) == 1
    other = replace(again, nic=lambda *_: 1)
    assert lost([*ONE.log(), *other.log()], 89e9).parts == []


def test_a_log_of_another_job_explains_nothing() -> None:
    found = lost(replace(ONE, nodes=3).log(), 89e9)
    assert not any("NICs" in one.what for one in found.parts)


@given(
    st.floats(1e9, 500e9),
    st.floats(1e9, 500e9),
    st.lists(st.tuples(st.floats(1e8, 600e9), st.booleans()), max_size=8),
)
def test_parts_never_sum_up_to_more_than_the_loss(
    expected: float, measured: float, limits: list[tuple[float, bool]]
) -> None:
    parts, _ = _steps(expected, measured, [_Limit(limit, "", "", firm) for limit, firm in limits])
    assert all(one.lost is not None and one.lost >= 0 for one in parts)
    total = sum(one.lost or 0 for one in parts)
    assert total <= max(expected - measured, 0.0) + 1.0
    assert [one.limit for one in parts] == sorted((one.limit for one in parts), key=lambda one: -(one or 0))


@settings(max_examples=examples(125))
@given(st.lists(st.integers(0, 7), min_size=64, max_size=64), st.sampled_from([12.5e9, 25e9, 50e9]))
def test_a_ring_held_by_drawn_nics_is_explained_whole(nics: list[int], rate: float) -> None:
    """The rate of a ring follows from the drawn NICs alone: from that with the most channels one way."""
    extra = tuple(f"+ NET[1.0] - NET/{number} (0/{number}/1/{rate / GB:.6f})" for number in range(8))
    log = replace(
        JOB, extra=extra, nic=lambda node, channel, received: nics[node * 32 + channel * 2 + received]
    )
    loads = Counter((at // 32, at % 2, chosen) for at, chosen in enumerate(nics))
    busbw = rate * 16 / max(loads.values())
    found = lost(log.log(), busbw, op="all_gather", network="8xNDR")
    assert found.expected is not None
    if busbw < found.expected:
        assert found.unexplained == pytest.approx(0.0, abs=0.001 * found.expected)
        assert found.parts[-1].limit == pytest.approx(busbw, rel=1e-3)
