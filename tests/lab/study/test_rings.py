"""The way of rings between nodes: NICs, rails, GPUDirect at both ends, and the bound that follows."""

import io
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lab.study.jobs import DrawnJob
from tests.lab.study.topologies import nic, system
from wirewatch_lab.study.logsummary import FIRST, LogSummary
from wirewatch_lab.study.nccllog import read_log
from wirewatch_lab.study.rings import RingAudit
from wirewatch_lab.study.topologyxml import NcclTopology, read_topology

JOB = DrawnJob()
RATE = "+ NET[50.0] - NET/{} (a2761f0003bd70c4/1/50.000000)"
RATES = tuple(RATE.format(number) for number in range(4))
CROSSED = """\
node-03:1541487:1541487 [0] NCCL INFO NCCL version 2.30.7+cuda13.3
node-03:1541487:1541487 [0] NCCL INFO comm 0x55dae9e8f270 rank 0 nRanks 8 nNodes 4 localRanks 2 localRank 0 MNNVL 0
node-04:847972:847972 [0] NCCL INFO comm 0x55dae9e8f280 rank 4 nRanks 8 nNodes 4 localRanks 2 localRank 0 MNNVL 0
node-03:1541489:1541489 [2] NCCL INFO comm 0x55dae9e8f290 rank 2 nRanks 8 nNodes 4 localRanks 2 localRank 0 MNNVL 0
node-03:1541487:1541487 [0] NCCL INFO Channel 03/0 : 7[3] -> 0[0] [receive] via NET/IB/0/GDRDMA
node-04:847975:847975 [3] NCCL INFO Channel 03/0 : 7[3] -> 0[0] [send] via NET/IB/1/GDRDMA
"""  # noqa: E501
"""As in a public report (NVIDIA/nccl#2345), with other names of hosts."""
OLD = """\
node-1:8162:8221 [3] NCCL INFO Ring 00 : 3[3] -> 2[2] via P2P/IPC
node-2:8542:8600 [5] NCCL INFO Ring 00 : 13[5] -> 15[7] via P2P/IPC
node-1:8161:8219 [2] NCCL INFO Ring 00 : 2[2] -> 6[6] via P2P/IPC
node-2:8544:8601 [7] NCCL INFO Ring 00 : 15 -> 0 [send] via NET/Socket/0
node-1:8166:8224 [7] NCCL INFO Ring 00 : 7 -> 8 [send] via NET/Socket/0
node-2:8542:8600 [5] NCCL INFO Ring 01 : 13[5] -> 15[7] via P2P/IPC
"""
"""As in a public report (NVIDIA/nccl#398), of NCCL 2.4."""


def read(lines: Sequence[str]) -> LogSummary:
    return read_log(lines)


def audited(lines: Sequence[str]) -> RingAudit:
    (only,) = read(lines).rings
    return only


def idle(found: RingAudit) -> list[tuple[str, int, int]]:
    """Hosts that have NICs without a ring, and the log shows it: NICs with one, and all."""
    hosts = ((one.host, len(one.nics), one.listed) for one in found.by_host if one.whole)
    return [one for one in hosts if one[1] < one[2]]


def first(lines: Sequence[str]) -> str:
    return "\n".join(read(lines).first())


def test_a_hop_whose_ends_are_two_numbers_crosses_rails() -> None:
    found = audited(CROSSED.splitlines())
    (hop,) = found.hops
    assert (hop.channel, hop.source, hop.destination, hop.rail) == (3, 7, 0, "cross")
    assert (hop.send.host, hop.send.nic, hop.send.line) == ("node-04", 1, 6)
    assert (hop.receive.host, hop.receive.nic, hop.receive.line) == ("node-03", 0, 5)
    assert (hop.send.gpudirect, hop.receive.gpudirect) == (True, True)
    assert (found.ranks, found.nodes, found.hosts) == (8, 4, ["node-03", "node-04"])
    text = first(CROSSED.splitlines())
    assert "Of 8 ranks only 4 ranks, on 2 hosts (of 4 nodes), wrote to this log" in text
    assert "channel 03, 7 -> 0: leaves node-04 by NIC 1 (6), reaches node-03 by NIC 0 (5)" in text
    assert "; rails are crossed by 1 hop between nodes." in text


def test_a_ring_over_sockets_of_an_old_version_is_said_with_its_cost() -> None:
    text = first(OLD.splitlines())
    assert "The logged connections go over TCP sockets and P2P" in text
    assert "Lines of connections are from 2 hosts" in text
    assert "2 hops over Socket" in text
    assert "10 Gb/s Ethernet carries 1.25 GB/s at most" in text
    assert "one end of 2 hops" in text


@pytest.mark.parametrize("version", ["2.18.3", "2.21.5", "2.26.2", "2.28.9"])
@pytest.mark.parametrize("mixed", [False, True])
def test_a_healthy_job_has_its_rails_and_nothing_against_it(version: str, mixed: bool) -> None:  # noqa: FBT001
    job = replace(JOB, version=version, extra=RATES)
    found = audited(job.mixed() if mixed else job.log())
    assert (found.hop_count, found.cross_rail, found.not_decided, found.one_end, found.unseen) == (
        8,
        0,
        0,
        0,
        0,
    )
    assert (found.direct, found.not_direct) == (16, 0)
    assert {(nic.sends, nic.receives, nic.rate) for nic in found.nics} == {(1, 1, 50e9)}
    assert found.bound == pytest.approx(4 * 50e9)
    assert idle(found) == []
    assert all(hop.ring and hop.why == "by name" for hop in found.hops)


def test_one_nic_for_all_channels_is_the_bound_and_the_others_are_idle() -> None:
    lines = replace(JOB, channels=8, extra=RATES, nic=lambda *_: 0).log()
    found = audited(lines)
    assert found.bound == pytest.approx(50e9)
    assert idle(found) == [("node-0", 1, 4), ("node-1", 1, 4)]
    assert "a ring's busbw is at most 50.0 GB/s: 8 of 8 channels leave node-0 by NIC 0 (mlx5_0:1)" in first(
        lines
    )
    assert "node-1: 1 of its 4 NICs, 400 Gb/s each, GPUDirect RDMA at 16 of 16 logged ends" in first(lines)
    worse = [line.replace("/GDRDMA", "") if line.startswith("node-1") else line for line in lines]
    assert [one.host for one in audited(worse).by_host] == ["node-1", "node-0"]


def test_a_cross_rail_hop_is_named_with_its_cards() -> None:
    def crossing(node: int, channel: int, received: bool) -> int:  # noqa: FBT001
        return 3 if (node, channel, received) == (0, 2, False) else channel

    lines = replace(JOB, nic=crossing).log()
    found = audited(lines)
    assert (found.cross_rail, found.hops[0].channel, found.hops[0].rail) == (1, 2, "cross")
    assert "leaves node-0 by NIC 3 (mlx5_3:1) (" in first(lines)
    assert "8 hops over IB, 1 across rails, 4 channels" in first(lines)
    assert "CROSS-RAIL: 1 of 8 hops" in first(lines)


def test_a_log_of_one_rank_says_what_it_lacks() -> None:
    found = audited(JOB.log([0]))
    assert (found.hop_count, found.one_end, found.not_decided, found.cross_rail) == (2, 2, 2, 0)
    assert found.hosts == ["node-0"]
    assert {hop.why for hop in found.hops} == {
        "the receiving end is not in the log", "the sending end is not in the log",
    }  # fmt: skip
    assert found.unseen == 4 * 8 - 2 - 3  # Its own steps to the next rank of its node are in the log.
    assert "one end of 2 hops and both ends of 27 hops of rings" in first(JOB.log([0]))


def test_where_a_host_is_missing_the_other_ends_are_open_and_no_nic_is_called_idle() -> None:
    lines = [line for line in replace(JOB, nodes=3).log() if not line.startswith("node-1:")]
    found = audited(lines)
    assert (found.hop_count, found.one_end, found.hosts) == (12, 8, ["node-0", "node-2"])
    one = audited(replace(JOB, channels=8, nic=lambda *_: 0).log([0, 1]))
    assert idle(one) == []
    assert "1 of its 4 NICs in the log" in first(replace(JOB, channels=8, nic=lambda *_: 0).log([0, 1]))


def test_lines_of_other_ranks_tell_where_a_silent_rank_is() -> None:
    """Rank 3 wrote nothing; a neighbour reaches it without a network."""
    hosts = {
        end.host for hop in audited(JOB.log([0, 1, 2])).hops for end in (hop.send, hop.receive) if end.line
    }
    assert hosts == {"node-0"}
    sent = [hop for hop in audited(JOB.log([0, 1, 2, 4, 5, 6, 7])).hops if hop.source == 3]
    assert [(hop.send.host, hop.send.nic, hop.send.line) for hop in sent] == [("node-0", None, 0)]


def test_hosts_of_a_table_beside_the_log_are_those_of_ranks_that_wrote_nothing() -> None:
    placement = {rank: f"table-{rank // 4}" for rank in range(8)}
    (found,) = read_log(JOB.log([0]), lambda: placement).rings
    assert {end.host for hop in found.hops for end in (hop.send, hop.receive)} == {"node-0", "table-1"}
    assert found.unseen < audited(JOB.log([0])).unseen
    (other,) = read_log(JOB.log([0]), lambda: dict.fromkeys(range(16), "another job")).rings
    assert "another job" not in {end.host for hop in other.hops for end in (hop.send, hop.receive)}


def test_a_host_that_lacks_a_nic_is_compared_by_names() -> None:
    """Its NIC 0 is the NIC 1 of the others: every hop to it crosses, though the numbers agree."""
    found = audited(
        replace(JOB, nics=lambda node: [f"mlx5_{n}:1/IB" for n in range(node, 4)], channels=3).log()
    )
    assert (found.cross_rail, {hop.why for hop in found.hops}) == (6, {"by name"})


def test_hosts_whose_cards_have_other_names_are_not_judged() -> None:
    lines = replace(JOB, nics=lambda node: [f"mlx5_{n}:1/IB" for n in range(2 * node, 4 + 2 * node)]).log()
    assert (audited(lines).cross_rail, audited(lines).not_decided) == (0, 8)
    assert "rails of 8 hops are not known: the hosts list different NICs" in first(lines)


@pytest.mark.parametrize("network", ["AWS Libfabric", "Libfabric", "Socket"])
def test_a_network_without_rails_has_no_hop_across_them(network: str) -> None:
    found = audited(replace(JOB, network=network, nic=lambda node, channel, _: (node + channel) % 4).log())
    assert (found.cross_rail, found.not_decided, {hop.rail for hop in found.hops}) == (0, 0, {"none"})


@pytest.mark.parametrize("network", ["IBext_v8", "NCCL RDMA Plugin v8", "FasTrak", "GPUDirectTCPX_v7"])
def test_a_plugin_has_rails_and_its_cards_have_names_where_the_log_has_them(network: str) -> None:
    found = audited(replace(JOB, network=network).log())
    assert (found.hop_count, {hop.rail for hop in found.hops}) == (8, {"same"})
    none = audited(replace(JOB, network=network, nics=lambda _: []).log())
    assert {hop.why for hop in none.hops} == {"by number; the log does not name both NICs"}


def test_gpudirect_at_one_end_alone_is_counted_by_end() -> None:
    lines = [line.replace("/GDRDMA", "") if "node-1" in line else line for line in JOB.log()]
    found = audited(lines)
    assert (found.direct, found.not_direct) == (8, 8)
    assert {(hop.send.gpudirect, hop.receive.gpudirect) for hop in found.hops} == {
        (True, False),
        (False, True),
    }
    assert "8 hops over IB, none across rails, 4 channels" in first(lines)
    assert "node-0: 4 of its 4 NICs, GPUDirect RDMA at 8 of 8 logged ends (10)" in first(lines)
    assert "node-1: 4 of its 4 NICs, GPUDirect RDMA at 0 of 8 logged ends (50)" in first(lines)


def test_a_nic_beside_another_rank_is_said_with_that_rank() -> None:
    lines = [line.replace("[send] via NET/IB/2/", "[send] via NET/IB/2(6)/") for line in JOB.log()]
    assert {hop.send.through for hop in audited(lines).hops if hop.channel == 2} == {6}


def test_hosts_that_share_a_name_set_no_bound() -> None:
    found = audited(replace(JOB, hosts=lambda _: "localhost", extra=RATES).log())
    assert (found.bound, found.hop_count) == (None, 8)
    text = first(replace(JOB, hosts=lambda _: "localhost").log())
    assert "All 8 ranks of the largest communicator, on host localhost (of 2 nodes)" in text


def test_without_an_order_of_ranks_each_channel_must_leave_a_host_once() -> None:
    lines = replace(JOB, orders=False, extra=RATES).log()
    assert audited(lines).bound == pytest.approx(4 * 50e9)
    tree = lines[-1].partition(" NCCL INFO ")[0]
    more = f"{tree} NCCL INFO Channel 00/0 : 7[3] -> 3[3] [send] via NET/IB/3/GDRDMA"
    assert audited([*lines, more]).bound is None
    assert audited([*replace(JOB, extra=RATES).log(), more]).bound == pytest.approx(4 * 50e9)


def test_neighbours_that_ranks_name_are_an_order_too() -> None:
    job = replace(JOB, orders=False, extra=RATES)
    lines = []
    for rank in range(job.ranks):
        own = job.of(rank)
        for channel in range(job.channels):
            order = job.ring(channel)
            at = order.index(rank)
            before, after = order[at - 1], order[(at + 1) % len(order)]
            start = own[0].partition(" NCCL INFO ")[0]
            own.insert(4, f"{start} NCCL INFO Ring {channel:02} : {before} -> {rank} -> {after}")
        lines += own
    found = audited(lines)
    assert all(hop.ring for hop in found.hops)
    assert found.unseen == 0
    assert found.bound == pytest.approx(200e9)


def test_an_order_that_nccl_cut_is_known_as_far_as_it_goes() -> None:
    found = audited(replace(JOB, nodes=16, gpus=8, nics=lambda _: []).log())
    assert {hop.ring for hop in found.hops} == {True, None}
    assert found.unseen == 0


def test_a_torn_order_is_no_ring_of_fewer_ranks() -> None:
    lines = [line[:-9] if "Channel 00/04 :" in line else line for line in JOB.log()]
    assert {hop.ring for hop in audited(lines).hops if hop.channel == 0} <= {True, None}


@pytest.mark.parametrize(
    ("line", "rate"),
    [
        ("+ NET[1.2] - NET/0 (0/0/1.250000)", 1.25e9),
        ("+ NET[25.0] - NET/0-0 (0/a2761f0003bd70c4/1/25.000000)", 25e9),
        ("NET/IB: [0] mlx5_0:uverbs0:1/IB provider=Mlx5 speed=400000 context=0x7f pciPath=/sys/x ar=1", 50e9),
        ("NET/IB : Made virtual device [0] name=mlx5_0 speed=200000 ndevs=1", 25e9),
    ],
)
def test_the_rate_of_a_nic_in_each_form(line: str, rate: float) -> None:
    found = audited(replace(JOB, extra=(line,)).log())
    assert {nic.rate for nic in found.nics if nic.number == 0} == {rate}


@pytest.mark.parametrize(
    ("listed", "name"),
    [
        ("[0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>", "mlx5_1:1"),
        ("[0]mlx5_0:1/IB/SHARP [1]mlx5_1:1/IB/SHARP [RO]; OOB bond0:192.168.11.9<0>", "mlx5_1:1"),
        ("[0]={[0] a_0:1/IB, [1] a_1:1/IB} [1]={[2] a_2:1/IB, [3] a_3:1/IB} ; OOB x", "a_2:1+a_3:1"),
        ("[0]enp0s12:10.0.0.6<0> [1]enp6s0f0:fe80::1%enp6s0f0<0>", "enp6s0f0"),
    ],
)  # fmt: skip
def test_the_name_of_a_nic_in_each_form(listed: str, name: str) -> None:
    extra = (f"NET/IB : Using {listed}",)
    found = audited(replace(JOB, nics=lambda _: [], extra=extra, channels=2).log())
    assert {hop.send.name for hop in found.hops if hop.channel == 1} == {name}


def test_a_nic_has_its_name_from_the_line_about_gpudirect() -> None:
    extra = ("NET/Libfabric : GPU Direct RDMA Enabled for HCA 0 'rdmap16s27'",)
    found = audited(replace(JOB, network="Libfabric", nics=lambda _: [], extra=extra).log())
    assert {hop.send.name for hop in found.hops} == {"rdmap16s27", ""}


def test_a_topology_file_names_and_rates_the_nics_that_the_log_does_not() -> None:
    body = system([nic(f"0000:1{n}:00.0", f"mlx5_{n}").replace('dev="0"', f'dev="{n}"') for n in range(4)])
    machine = read_topology(io.BytesIO(body))
    assert isinstance(machine, NcclTopology)
    (found,) = read_log(replace(JOB, nics=lambda _: []).log(), topology=machine).rings
    assert {hop.why for hop in found.hops} == {"by name"}
    assert found.bound == pytest.approx(200e9)
    assert {nic.name for nic in found.nics} == {f"mlx5_{n}" for n in range(4)}
    own = read_log(
        replace(JOB, extra=(RATE.format(0).replace("50.0", "25.0"),)).log(), topology=machine
    ).rings
    assert {(nic.name, nic.rate) for nic in own[0].nics if nic.number < 2} == {
        ("mlx5_0:1", 25e9),
        ("mlx5_1:1", 50e9),
    }


def test_two_jobs_in_one_log_are_two_audits_the_larger_first() -> None:
    other = replace(JOB, nodes=3, commid="0xbeef", hosts=lambda node: f"other-{node}")
    found = read([*JOB.log(), *other.log()]).rings
    assert [(one.communicator, one.hop_count) for one in found] == [("0xbeef", 12), ("0xc0ffee", 8)]
    assert "and 1 more communicator between nodes" in first([*JOB.log(), *other.log()])


def test_sends_and_receives_of_single_ranks_are_no_hops_of_rings() -> None:
    lines = [line.replace("/0 : ", "/1 : ") for line in JOB.log()]
    assert read(lines).rings == []


def test_a_first_answer_has_no_more_lines_than_it_may() -> None:
    lines = replace(JOB, nic=lambda node, *_: node, extra=RATES).log([0, 1, 2, 3, 4])
    start = lines[0].partition(" NCCL INFO ")[0]
    for word in ("one", "two", "three", "four"):
        lines += [f"{start} net.cc:9 NCCL WARN {word}"]
    for name in ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE", "NCCL_NVLS_ENABLE"):
        lines += [f"{start} NCCL INFO {name} set by environment to {int('NVLS' not in name)}."]
    text = read(lines).first()
    assert len(text) == FIRST + 1
    assert text[-1].endswith("more lines, and all else: --explain")


@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 120)), min_size=1, max_size=60))
def test_torn_lines_never_make_a_hop_cross_that_does_not(cuts: list[tuple[int, int]]) -> None:
    """Only what is in the log counts, and what a torn line has is less."""
    lines = replace(JOB, extra=RATES).mixed()
    for line, end in cuts:
        at = line % len(lines)
        lines[at] = lines[at][:end]
    for found in read(lines).rings:
        assert found.cross_rail == 0
        assert found.bound is None or found.bound == pytest.approx(200e9)


def test_beside_a_table_what_may_be_a_cause_comes_first() -> None:
    lines = replace(JOB, nic=lambda node, *_: node).log()
    start = lines[0].partition(" NCCL INFO ")[0]
    lines += [
        f"{start} net.cc:9 NCCL WARN port error",
        f"{start} NCCL INFO NCCL_P2P_DISABLE set by environment to 1.",
    ]
    words = [line.split()[0] for line in read(lines).first(beside=True) if line[0] != " "]
    assert words == ["WARNING", "SLOWS", "Between", "Which"]
    assert [line.split()[0] for line in read(lines).first() if line[0] != " "] == [
        "Which", "Between", "WARNING", "SLOWS", "Not",
    ]  # fmt: skip
