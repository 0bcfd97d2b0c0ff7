"""NCCL's account of itself, in the forms of its versions, and in real logs where they are here."""

import pytest

from tests.node.nccl.texts import ALL, V2_14, V2_18, V2_21, V2_23, V2_27, V2_28, V2_30, init, say
from tests.recorded import HERE
from tests.rows import each
from wirewatch.core.account import Account, Call, Channels, Comm, Connection, Device, Multicast
from wirewatch.core.types import Absent, Why
from wirewatch.nccl import log
from wirewatch.nccl.lines import (
    Called,
    Fact,
    GdrPath,
    Nic,
    NicRate,
    RingOrder,
    SearchedPaths,
    Setting,
    Spans,
    fact,
)
from wirewatch.nccl.log import Fallback, algorithms, fallbacks, logged_size, parse_nccl_log, wire

NOT_LOGGED = Absent(Why.MISSING, "not in NCCL's log")


def understood(text: str) -> Account:
    told = parse_nccl_log(text)
    assert told.not_understood == 0
    return told


def only(account: Account) -> Comm:
    (comm,) = account.comms
    return comm


def test_a_log_without_any_of_nccl_is_an_empty_account() -> None:
    told = parse_nccl_log("# nccl-tests version 2.18.3 nccl-headers=22902 nccl-library=22902\n")
    assert isinstance(told.version, Absent)
    assert (told.comms, told.calls, told.settings, told.nvls, told.warnings) == ((), (), (), (), ())
    assert (told.not_understood, told.network) == (0, "")
    assert (fallbacks(told), algorithms(told)) == ((), {})


def test_2_14_names_buses_and_logs_only_the_end_of_a_set_up() -> None:
    told = understood(V2_14)
    comm = only(told)
    assert (told.version, told.network) == ("2.14.3", "Socket")
    assert comm.devices == {
        0: Device(0, NOT_LOGGED, "0000:41:00.0"),
        1: Device(1, NOT_LOGGED, "0000:42:00.0"),
    }
    assert comm.connections == (Connection(0, 1, "P2P/IPC/read", 2), Connection(1, 0, "SHM/direct/direct", 1))
    assert comm.channels == Channels(2, NOT_LOGGED, NOT_LOGGED, 2, 2)
    assert (comm.id, comm.ranks, comm.finished) == ("0x55d0c040", 2, (0, 1))
    assert (comm.init_seconds, comm.nodes, comm.nvls) == (NOT_LOGGED, NOT_LOGGED, ())
    assert fallbacks(told) == (Fallback(1, 0, "SHM/direct/direct", "shm"),)


def test_2_18_logs_multicast_and_settings_with_and_without_a_full_stop() -> None:
    told = understood(V2_18)
    comm = only(told)
    assert (told.version, told.network) == ("2.18.3", "IBext")
    assert told.settings == (
        ("NCCL_P2P_LEVEL", "NVL"),
        ("NCCL_MIN_NCHANNELS", "4"),
        ("NCCL_NET_PLUGIN", "libnccl-net-fast.so"),
    )
    assert [(m.device, m.available) for m in told.nvls] == [(0, True), (1, False)]
    assert all(isinstance(m.channels, Absent) for m in told.nvls)
    assert comm.connections == (Connection(0, 1, "P2P/CUMEM", 2), Connection(1, 0, "P2P/CUMEM", 2))
    assert comm.devices[1] == Device(1, 1, "0000:42:00.0")
    assert comm.channels == Channels(24, NOT_LOGGED, 16, 32, 32)
    assert (comm.id, comm.nvls, comm.finished) == ("0xabc1", (0,), (0, 1))
    assert fallbacks(told) == ()


def test_2_21_numbers_algorithms_and_does_not_name_the_collective() -> None:
    told = understood(V2_21)
    comm = only(told)
    assert told.calls == (
        Call("", 33554432, "ring", "simple", None, 1),
        Call("", 33554432, "nvls", "simple", None, 2),
    )
    assert algorithms(told) == {("", 33554432): ("nvls", "simple")}
    assert told.settings == (("NCCL_TUNER_PLUGIN", "libnccl-tuner-x.so"),)
    assert (comm.nodes, comm.channels) == (2, Channels(4, 0, 0, 4, 2))
    assert comm.devices.keys() == {0}
    assert fallbacks(told) == (
        Fallback(0, 1, "NET/IB/2(1)/GDRDMA/Shared", "net_ib_gdr"),
        Fallback(0, 1, "NET/IB/3", "net_ib"),
        Fallback(1, 0, "NET/IB/2/GDRDMA", "net_ib_gdr"),
    )


def test_2_23_names_the_collective_and_numbers_the_algorithm() -> None:
    told = understood(V2_23)
    assert algorithms(told) == {
        ("all_reduce", 8): ("tree", "ll"),
        ("all_gather", 1024): ("pat", "ll128"),
        ("reduce_scatter", 1024): ("nvls_tree", "simple"),
        ("all_reduce", 64): ("collnet_direct", "simple"),
        ("broadcast", 64): ("collnet_chain", "simple"),
    }
    assert only(told).init_seconds == 0.84


def test_2_27_falls_back_from_nvls_without_a_warning_and_runs_symmetric_kernels() -> None:
    told = understood(V2_27)
    assert told.nvls == (Multicast(0, available=True, channels=32),)
    silent, loud = told.warnings
    assert silent.startswith(
        "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 2"
    )
    assert silent.endswith("Proceeding without NVLS support.")
    assert loud == "Failed to bind"
    assert told.calls == (Call("all_reduce", 4096, "symmetric", "AllReduce_AGxLL_R", None, 1),)
    assert told.comms == ()


def test_2_28_with_nvls_over_several_trays() -> None:
    told = understood(V2_28)
    comm = only(told)
    assert told.settings == (("NCCL_MIN_CTAS", "4"), ("NCCL_NET_PLUGIN", "none"))
    assert comm.connections == (Connection(0, 1, "P2P/MNNVL", 24), Connection(1, 0, "P2P/MNNVL", 24))
    assert (comm.init_seconds, comm.nodes, comm.nvls) == (1.44, 1, (1,))
    assert told.calls == (
        Call("all_reduce", 268435456, "nvls", "simple", (0, 15), 2),
        Call("all_reduce", 268435456, "nvls_tree", "simple", (0, 15), 1),
        Call("alltoall", 8192, "copy_engine", "", None, 1),
    )
    assert algorithms(told)["all_reduce", 268435456] == ("nvls", "simple")
    assert fallbacks(told) == ()


def test_2_30_over_host_memory_and_networks() -> None:
    told = understood(V2_30)
    comm = only(told)
    assert comm.finished == (0,)
    assert comm.connections == (
        Connection(0, 1, "SHM/direct", 2),
        Connection(1, 0, "NET/AWS Libfabric/3(1)/GDRDMA(PCI)/Shared", 1),
        Connection(1, 0, "NET/Socket/0", 1),
        Connection(1, 0, "NET/Socket/0(1)", 1),
    )
    assert [(f.source_rank, f.destination_rank, f.wire) for f in fallbacks(told)] == [
        (0, 1, "shm"),
        (1, 0, "net_other"),
        (1, 0, "net_socket"),
        (1, 0, "net_socket"),
    ]
    assert told.calls == (Call("reduce_scatter", 64, "pat", "ll128", (0, 3), 1),)
    assert told.nvls[0].available is False


@each(
    ("transport", "over"),
    [
        ("P2P/CUMEM", "p2p"),
        ("P2P/CUMEM/read", "p2p"),
        ("P2P/IPC/CE", "p2p"),
        ("P2P/direct pointer", "p2p"),
        ("P2P/MNNVL/read", "p2p"),
        ("P2P/indirect/3[3]", "p2p"),
        ("SHM/direct/direct", "shm"),
        ("SHM/CE/direct", "shm"),
        ("SHM/direct", "shm"),
        ("direct shared memory", "shm"),
        ("NET/Socket/0", "net_socket"),
        ("NET/IB/0", "net_ib"),
        ("NET/IB/0/Shared", "net_ib"),
        ("NET/IB/7(5)/GDRDMA(PCI)/Shared", "net_ib_gdr"),
        ("NET/IBext_v8/0/GDRDMA", "net_ib_gdr"),
        ("NET/AWS Libfabric/0/GDRDMA", "net_other"),
    ],
)
def test_every_transport_is_read_and_is_some_wire(transport: str, over: str) -> None:
    told = understood(say(f"Channel 03/1 : 2[2] -> 0[0] via {transport}"))
    assert only(told).connections == (Connection(2, 0, transport, 1),)
    assert only(told).id == ""
    assert wire(transport) == over


@pytest.mark.parametrize(
    ("transport", "over"),
    [
        ("NVLS", "nvls"),
        ("COLLNET/SHARP/0/GDRDMA", "net_other"),
        ("COLLNET/IB/0", "net_other"),
        ("", "unknown"),
    ],
)
def test_what_no_channel_says_is_some_wire_too(transport: str, over: str) -> None:
    assert wire(transport) == over


@each(
    "text",
    [
        "Channel 00/0 : 0[0] -> 1[1] via P2P/CUM",
        "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/re",
        "Channel 00/0 : 0[0] -> 1[1] via NET/IB/0/GDRD",
        "Channel 00/0 : 0[0] -> 1[1] via NET/IB/",
        "Channel 00/0 : 0[0] -> 1",
        "Channel 00/0 : 0[0] -> 1[1] via LASER/0",
        "AllReduce: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..1",
        "AllReduce: 8 Bytes -> Algo 9 proto 2 time 1.0",
        "AllReduce: 8 Bytes -> A",
        "AllReduce [Symmetric]: 8 Bytes -> Kern",
        "comm 0x5 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 41000 commId 0xab - Init CO",
        "24 coll channels, 24 collnet channels, 16 nvls ch",
        "NVLS multicast support is avail",
        "NCCL_ALGO set by envir",
        "Using network",
        "Init timings - ncclCommInitRank: rank 0 nranks 2 total 1.",
        "AllReduce: opCount 0 sendbuff 0x7f0 recvbuff 0x7f0 count 33554432 datatype 9 op 0 root 0 comm 0x5",
        "AllReduce: opCount 0 sendbuff 0x7f0 recvbuff 0x7f0 count 8 datatype 12 op 0 root 0 comm 0x5 [n",
        "+ NET[50.0] - NET/0 (a2761f0003bd70c4/1/50.0",
        "Ring 00 : 7 -> 0 -> ",
        "comm 0x5 rank 0 nRanks 2 nNodes 1",
    ],
)
def test_a_line_that_is_cut_or_of_a_new_form_is_counted_and_says_nothing(text: str) -> None:
    told = parse_nccl_log(say(text))
    assert told.not_understood == 1
    assert (told.comms, told.calls, told.settings, told.nvls, told.network) == ((), (), (), (), "")


@each(
    "text",
    [
        "Channel 00/24 : 0 1",
        "Connected all rings, use ring PXN 0 GDR 1",
        "comm 0x5 rank 0 nRanks 2 cudaDev 0 busId 41000 - Abort START",
        "NCCL_SOCKET_IFNAME set to eth0",
        "NVLS Creating Multicast group nranks 2 size 2097152 on rank 0",
        "P2P Chunksize set to 524288",
    ],
)
def test_other_lines_are_not_missed(text: str) -> None:
    assert parse_nccl_log(say(text)).not_understood == 0


def test_what_is_not_read_is_counted() -> None:
    told = log.NcclLog().read(["of a program\n", say("P2P Chunksize set to 524288"), "NCCL of a program\n"])
    assert (told.count, told.other, told.lines, told.foreign) == (1, 1, 3, 2)


@each(
    ("text", "stated"),
    [
        ("GPU Direct RDMA Enabled for GPU 41000 / HCA 42000 (distance 3 <= 5), read 0",
         GdrPath("41000", "42000", enabled=True, distance=3, most=5)),
        ("GPU Direct RDMA Disabled for GPU/0-41000 (rank 1) - NET/0-2 (distance 6 > 5)",
         GdrPath("GPU/0-41000 (rank 1)", "NET/0-2", enabled=False, distance=6, most=5)),
        ("Channel 00/04 :    0   1   3   2", RingOrder(0, 4, (0, 1, 3, 2), closed=True)),
        ("Channel 11/16 :    0   1  13  1...", RingOrder(11, 16, (0, 1, 13), closed=False)),
        ("Ring 03 : 7 -> 0 -> 1", RingOrder(3, NOT_LOGGED, (7, 0, 1), closed=False)),
        ("Gather: opCount 1f sendbuff 0x7 recvbuff 0x8 count 64 datatype 9 op 0 root 0 comm 0x5b [nranks=16]",
         Called("gather", 64, 9, "0x5b", 16)),
        ("+ NET[1.2] - NET/b (0/0/1.250000)", NicRate(11, "", 1.25e9)),
        ("NET/IB: [3] mlx5_5:uverbs5:2/RoCE speed=200000 context=0x7 pciPath=/x ar=0",
         NicRate(NOT_LOGGED, "mlx5_5:2", 25e9)),
        ("comm 0x5 rank 1 nRanks 4 nNodes 2 localRanks 2 localRank 1 MNNVL 0", Spans("0x5", 1, 4, 2)),
        ("NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'", Nic("IB", 0, "mlx5_0", direct=False)),
        ("NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'", Nic("IB", 0, "mlx5_0", direct=True)),
        ("Pattern 4, crossNic 0, nChannels 12, bw 30.0/30.0, type NVL/PIX, sameChannels 1",
         SearchedPaths("NVL", "PIX")),
    ],
)  # fmt: skip
def test_a_line_about_paths_states_one_fact(text: str, stated: Fact) -> None:
    assert fact(text) == stated


def test_values_of_settings_keep_what_is_theirs() -> None:
    told = understood(
        say("NCCL_NVLS_ENABLE set by environment to 0.")
        + say("NCCL_NVLS_ENABLE set by environment to 0.", 1)
        + say("NCCL_BUFFSIZE set by environment to -1.")
        + say("NCCL_ALGO set by environment to allreduce:ring,tree;allgather:^nvls")
        + say("NCCL_TOPO_FILE set by environment to /etc/a b/topo.v2.")
        + say("Comm config graphUsageMode reset to 2 by NCCL_GRAPH_MIXING_SUPPORT=1")
    )
    assert dict(told.settings) == {
        "NCCL_NVLS_ENABLE": "0",
        "NCCL_BUFFSIZE": "-1",
        "NCCL_ALGO": "allreduce:ring,tree;allgather:^nvls",
        "NCCL_TOPO_FILE": "/etc/a b/topo.v2.",
        "NCCL_GRAPH_MIXING_SUPPORT": "1",
    }
    assert len(told.settings) == 5


def test_warnings_of_all_versions_are_reported_once_each() -> None:
    told = understood(
        "\nnode7:4711:4800 [0] misc/socket.cc:484 NCCL WARN socketPollConnect returned Connection refused\n"
        "\n[2026-03-04 05:06:07] node7:4711:4801 [1] init.cc:88 NCCL WARN Cuda failure 2 'out of memory'\n"
        "[2026-03-04 05:06:08] node7:4711:4802 [2] init.cc:88 NCCL WARN Cuda failure 2 'out of memory'\n"
        "[2026-03-04 05:06:08] node7:4711:4802 [2] init.cc:88 NCCL WARN\n"
    )
    assert told.warnings == (
        "socketPollConnect returned Connection refused",
        "Cuda failure 2 'out of memory'",
    )


@each(
    ("op", "version", "told"),
    [
        ("all_gather", "2.28.9", 128),
        ("reduce_scatter", "2.24.3", 128),
        ("all_gather", "2.23.4", 1024),
        ("all_reduce", "2.28.9", 1024),
        ("all_gather", Absent(Why.MISSING), 128),
    ],
)
def test_the_size_in_the_log_is_a_rank_s_or_the_whole(op: str, version: str | Absent, told: int) -> None:
    assert logged_size(op, 1024, 8, version) == told


@pytest.mark.parametrize(("size", "told"), [(64, 8), (160, 16), (1280, 160)])
def test_a_share_is_a_multiple_of_sixteen_bytes_where_it_is_as_large(size: int, told: int) -> None:
    assert logged_size("all_gather", size, 8, "2.28.9") == told


def test_what_is_kept_of_a_log_has_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it together takes some 250 MB at most."""
    assert (log.AT_MOST, log.WARNINGS, log.SHOWN) == (100_000, 10_000, 5)
    monkeypatch.setattr(log, "WARNINGS", 2)
    monkeypatch.setattr(log, "AT_MOST", 3)
    head = "node7:4711:4800 [0] init.cc:88 NCCL WARN"
    told = log.NcclLog()
    told.read([f"{head} rank {n} of {word}\n" for word in ("one", "two", "three", "one") for n in (1, 1)])
    assert {text: seen.count for text, seen in told.warnings.items()} == {
        "rank 1 of one": 4,
        "rank 1 of two": 2,
    }
    assert {kind: seen.count for kind, (_, seen) in told.kinds.items()} == {
        "rank # of one": 4,
        "rank # of two": 2,
    }
    assert told.left_out == {"warnings": 2}
    told.read([say(f"NCCL_X{n} set by environment to 1") for n in (0, 1, 2, 3, 0, 4)])
    assert [setting.name for setting, _, _ in told.said(Setting)] == ["NCCL_X0", "NCCL_X1", "NCCL_X2"]
    assert told.left_out == {"warnings": 2, "Setting": 2}
    told.read([say("Using network")] * 7)
    assert (told.not_understood, len(told.torn)) == (7, 5)
    told.read([say(f"Channel 0{n}/0 : 0[0] -> 1[1] via P2P/CUMEM") for n in range(5)])
    assert told.left_out["Link"] == 2


def test_lines_that_repeat_take_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each communicator may say a line, and once more is kept: here two beginnings and two channels."""
    monkeypatch.setattr(log, "AT_MOST", 4)
    begun, channel = say(init("START", 0)), say("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM")
    told = log.NcclLog().read([*[begun] * 5, *[channel] * 9])
    assert told.left_out == {}
    assert [one.comm.connections for one in told.comms()] == [(Connection(0, 1, "P2P/CUMEM", 1),)]
    assert told.read([say("Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM")]).left_out == {"Link": 1}


def test_versions_one_after_the_other_in_one_file_lose_nothing() -> None:
    told = understood("".join(ALL))
    assert told.version == "2.14.3"
    assert sum(call.count for call in told.calls) == sum(
        call.count for text in ALL for call in parse_nccl_log(text).calls
    )


def real(name: str) -> Account:
    return understood((HERE / name).read_text("utf-8"))


def test_a_real_log_of_2_28_on_eight_gpus_rank_0_s_lines() -> None:
    told = real("h200x8/nccl-tests_all_reduce_NCCL_DEBUG_rank0.txt")
    assert (told.version, told.network, told.warnings, told.nvls) == ("2.28.9", "Socket", (), ())
    assert told.settings == (("NCCL_TOPO_DUMP_FILE", "<path>"), ("NCCL_GRAPH_DUMP_FILE", "<path>"))
    assert told.comms == (
        Comm(
            "0xdb8804924fb21c8c",
            8,
            {0: Device(0, 0, "0000:00:06.0")},
            (0,),
            1.3,
            1,
            Channels(24, 24, 0, 32, 32),
            (Connection(0, 1, "P2P/direct pointer", 24),),
            (),
        ),
    )
    sizes = [8 << power for power in range(30)]
    protocols = ["ll"] * 19 + ["ll128"] * 4 + ["simple"] * 7
    last = [0] * 13 + [1, 3, 7, 15] + [23] * 13
    assert told.calls == tuple(
        Call("all_reduce", size, "ring", protocol, (0, high), 3)
        for size, protocol, high in zip(sizes, protocols, last, strict=True)
    )


def test_a_real_log_of_2_29_that_tears_the_rows_of_nccl_tests() -> None:
    told = real("published/nccltests.2.18.3.h100x2.ring.tuning_log.txt")
    assert (told.version, told.network, told.settings, told.warnings) == ("2.29.2", "Socket", (), ())
    assert told.nvls == (Multicast(0, available=True, channels=16), Multicast(1, available=True, channels=16))
    assert told.comms == (
        Comm(
            "0x1234",
            2,
            {0: Device(0, 0, "0000:41:00.0"), 1: Device(1, 1, "0000:44:00.0")},
            (0, 1),
            0.75,
            1,
            Channels(24, 24, 16, 32, 32),
            (Connection(0, 1, "P2P/direct pointer", 24), Connection(1, 0, "P2P/direct pointer", 24)),
            (),
        ),
    )
    assert told.calls == tuple(
        Call("all_reduce", 1 << power, "ring", "simple", (0, 23), 3) for power in range(28, 34)
    )
    assert fallbacks(told) == ()
