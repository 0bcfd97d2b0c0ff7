"""What a log of NCCL says of a job: the wire of the hot collective, and what that rests on."""

import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.nccl.texts import (
    ALL,
    V2_14,
    V2_18,
    V2_21,
    V2_23,
    V2_27,
    V2_28,
    V2_30,
    init,
    links,
    pointer,
    say,
)
from tests.recorded import HERE
from tests.rows import each
from wirewatch.core.types import Absent, Why
from wirewatch.nccl import log as nccl_log
from wirewatch.nccl.log import Seen
from wirewatch_lab.study.logsummary import LogSummary, Quote, path_name, quotes_of
from wirewatch_lab.study.nccllog import read_log

REDUCE = "AllReduce: {} Bytes -> Algo {} proto {} channel{{Lo..Hi}}={{0..{}}}"
SETUP = (
    say("NCCL version 2.28.9+cuda13.0")
    + say(init("START", 0))
    + say(init("START", 1), 1)
    + say(init("COMPLETE", 0))
    + say(init("COMPLETE", 1), 1)
)
GRAPH = "Pattern 4, crossNic 0, nChannels 12, bw 30.000000/30.000000, type {}/PIX, sameChannels 1"
OFFER = "NVLS multicast support is {}available on dev 0"
SUMMARIES = Path(__file__).with_name("logsummaries.txt")
MIB = 1 << 20
LINES = [line for text in ALL for line in text.splitlines(keepends=True)]


def read(text: str) -> LogSummary:
    return read_log(text.split("\n"))


def chosen(size: int, algorithm: str, protocol: str = "SIMPLE", last: int = 23) -> str:
    return say(REDUCE.format(size, algorithm, protocol, last), thread=4711)


def wires(text: str) -> list[str]:
    hot = read(text).hot
    assert hot is not None
    (only,) = hot.carried
    assert only.wires == hot.wires
    return hot.wires


def shown(text: str) -> str:
    return "\n".join(read(text).lines())


@pytest.mark.parametrize(
    ("graph", "over"),
    [
        ("NVL", "P2P over NVLink"),
        ("NVB", "P2P over NVLink"),
        ("PHB", "P2P over PCIe (farthest path PHB)"),
        ("", "P2P (NVLink or PCIe: not in the log)"),
    ],
)
def test_the_first_line_answers(graph: str, over: str) -> None:
    text = SETUP + (say(GRAPH.format(graph)) if graph else "") + links("P2P/CUMEM", 24)
    text += chosen(64 << 20, "RING") * 3 + chosen(8, "RING", "LL", 0) * 900
    first = read(text).lines()[0]
    line = text.split("\n").index(chosen(64 << 20, "RING").rstrip("\n")) + 1
    assert first == (
        "The hot collective is all_reduce of 64 MiB (3 calls, 100% of the bytes): Ring Simple in 24 "
        f"channels, on {over} (line {line})."
    )


@each(
    ("transport", "over"),
    [
        ("SHM/direct/direct", "host memory"),
        ("NET/Socket/0", "TCP sockets"),
        ("NET/IB/0", "InfiniBand or RoCE without GPUDirect RDMA"),
        ("NET/IB/0/GDRDMA", "InfiniBand or RoCE with GPUDirect RDMA"),
        ("NET/IB/1(3)/GDRDMA/Shared", "InfiniBand or RoCE with GPUDirect RDMA"),
        ("NET/AWS Libfabric/0/GDRDMA", "the network AWS Libfabric with GPUDirect RDMA"),
        ("NET/AWS Libfabric/0", "the network AWS Libfabric through host memory"),
        ("P2P/MNNVL", "P2P over NVLink between trays"),
    ],
)
def test_each_transport_is_a_wire(transport: str, over: str) -> None:
    assert wires(SETUP + links(transport) + chosen(1 << 20, "TREE", "LL128", 1)) == [over]


@pytest.mark.parametrize(
    ("said", "over", "why"),
    [
        (
            say(GRAPH.format("NVL")) + say(GRAPH.format("PHB"), 1),
            "P2P over NVLink and PCIe (farthest path PHB)",
            Quote(6, "NCCL's search for rings and trees: farthest path NVL/PHB", 2),
        ),
        (
            say(GRAPH.format("NVL")) + say(GRAPH.format("SYS"), pid=99),
            "P2P over NVLink",
            Quote(6, "NCCL's search for rings and trees: farthest path NVL"),
        ),
        (
            say(OFFER.format("")) + say(OFFER.format(""), 1),
            "P2P over NVLink",
            Quote(6, "the GPUs offer multicast, so they have NVLink"),
        ),
        (
            say(OFFER.format("")) + say(OFFER.format("not "), 1),
            "P2P (NVLink or PCIe: not in the log)",
            None,
        ),
    ],
    ids=["both", "another process has PCIe", "multicast on all", "multicast on one"],
)
def test_what_says_whether_p2p_is_nvlink_is_quoted_by_its_first_line(
    said: str, over: str, why: Quote | None
) -> None:
    found = read(SETUP + said + links("P2P/CUMEM") + chosen(MIB, "RING"))
    assert found.hot is not None
    assert found.hot.wires == [over]
    assert found.communicators[0].peers == why


def test_links_without_a_communicator_are_those_of_every_process() -> None:
    (only,) = read(links("P2P/CUMEM") + say(GRAPH.format("NVL"), pid=99)).communicators
    assert [wire.name for wire in only.wires] == ["P2P over NVLink"]


def test_of_the_hot_size_the_way_that_most_calls_went_is_named() -> None:
    text = SETUP + chosen(MIB, "RING", "LL128", 3) + chosen(MIB, "TREE", "SIMPLE", 7) * 2
    assert read(text + chosen(8, "RING", "LL", 0) * 9).answer == (
        "The hot collective is all_reduce of 1 MiB (3 calls, 100% of the bytes): mostly Tree Simple in 8 "
        "channels, on wires that are not in the log (line 7)."
    )


def test_what_moved_no_byte_has_all_of_them() -> None:
    assert "all_reduce of 0 B (1 call, 100% of the bytes)" in read(SETUP + chosen(0, "RING")).answer


def test_a_communicator_without_connections_is_no_other_way() -> None:
    """Its wires are not in the log; but where no other has any, it is the one that ran."""
    both = "".join(say(init("START", 0, rest=f"commId 0xab{n} ", comm=n)) for n in (0, 1))
    assert wires(both + links("P2P/MNNVL") + chosen(MIB, "RING")) == ["P2P over NVLink between trays"]
    assert wires(both + chosen(MIB, "RING")) == []


def test_a_log_is_these_lines() -> None:
    """Each text beside its whole summary: figures, order and words as people read them."""
    found = "".join(f"{shown(text)}\n---\n" for text in ALL)
    assert found == SUMMARIES.read_text("utf-8")


def test_the_slowest_of_several_wires_comes_first() -> None:
    text = SETUP + links("P2P/CUMEM", ends=[(0, 1)]) + links("SHM/direct/direct", ends=[(1, 0)])
    assert wires(text + chosen(1 << 20, "RING")) == ["host memory", "P2P (NVLink or PCIe: not in the log)"]
    assert (
        "1 pair of ranks on host memory (SHM/direct/direct), 2 channels each: 1->0 (8): a fallback"
        in shown(text)
    )


def test_nvls_is_the_wire_of_its_algorithm_and_offered_where_nothing_uses_it() -> None:
    assert wires(V2_28) == ["NVLS (multicast in the NVSwitch)"]
    assert read(V2_28).nvls.state == "used by 3 calls; set up on 1 logged rank"
    offered = SETUP + say("NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)")
    assert read(offered).nvls.state == "offered, not set up in this log"
    assert read(offered + chosen(8, "RING")).nvls.state == "offered, but no logged collective uses it"
    assert read(offered + say("NCCL_NVLS_ENABLE set by environment to 0.")).nvls.state == (
        "switched off by NCCL_NVLS_ENABLE"
    )
    assert read(V2_27).nvls.state == "given up after it was offered"
    assert read(V2_30).nvls.state == "not offered"
    assert read(V2_14).nvls.state == "not known: no line is about it"
    none = say(
        "24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels, 32 p2p channels per peer"
    )
    nvls = read(say(init("START", 0)) + none).nvls
    assert (nvls.state, nvls.quotes[0].line) == ("not set up, and no line says why", 2)


@each(
    ("version", "pair", "words"),
    [
        ("2.10.3", "GPU 41000 / HCA 0 (distance 6 > 4)", "SYS (6) is beyond PXB (4)"),
        ("2.18.3", "GPU 41000 / HCA 1 (distance 7 > 4)", "SYS (7) is beyond PXB (4)"),
        ("2.23.4", "GPU 41000 / HCA 1 (distance 6 > 4)", "PHB (6) is beyond PXB (4)"),
        ("2.26.2", "GPU 0 / HCA 1 (distance 7 > 5)", "PHB (7) is beyond PXB (5)"),
        ("2.27.3", "GPU 0 / HCA 1 (distance 8 > 7)", "PHB (8) is beyond P2C (7)"),
        ("2.28.9", "GPU 0 / HCA 1 (distance 8 > 6)", "PHB (8) is beyond P2C (6)"),
        ("2.29.2", "GPU/0-60 (rank 0) - NET/0-1 (distance 9 > 6)", "SYS (9) is beyond P2C (6)"),
        (
            "2.29.2",
            "GPU/0-60 (rank 0) - NET/0-1 ( using PXN via GPU/0-70, distance 9 > 6)",
            "SYS (9) is beyond P2C (6)",
        ),
    ],
)
def test_why_gpudirect_is_not_in_use_in_each_version_s_words(version: str, pair: str, words: str) -> None:
    line = say(f"GPU Direct RDMA Disabled for {pair}")
    said = read(say(f"NCCL version {version}+cuda12.4") + SETUP + line + links("NET/IB/0"))
    assert said.not_understood == 0
    assert said.gpudirect.state == (
        "not in use on any of 2 network connections that are logged; why, in the log's words:"
    )
    (quote,) = said.gpudirect.quotes
    assert quote.text.endswith(words)
    assert quote.line == 7


@each(
    "line",
    [
        "GPU Direct RDMA Enabled for GPU 41000 / HCA 0 (distance 4 <= 4), read 1",
        "GPU Direct RDMA Enabled for GPU 0 / HCA 1 (distance 4 <= 5), read 0 mode Default",
        "GPU Direct RDMA Enabled for GPU/0-41000 (rank 0) - NET/0-1 (distance 4 <= 6, read 1, mode PCI)",
        "NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'",
        "NET/IBext_v8 : GPU Direct RDMA Disabled for HCA 3 'mlx5_3'",
        "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0' (no module)",
        "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.7<0>",
        "Connected all rings, use ring PXN 0 GDR 1",
        "Connected all rings",
        "DMA-BUF is available on GPU device 0",
        "CollNet 00/0 : 0 [send] via COLLNET/SHARP/0/GDRDMA",
        "Could not enable P2P between dev 0(=41000) and dev 1(=42000)",
    ],
)
def test_lines_about_the_network_of_all_versions_are_understood(line: str) -> None:
    said = read(SETUP + say(line) + links("NET/IB/0/GDRDMA"))
    assert said.not_understood == 0
    assert said.gpudirect.state == "in use on all 2 network connections that are logged"


@pytest.mark.parametrize(
    "cut", ["GPU Direct RDMA Enabled for GPU 0 / HCA 1 (dist", "NET/IB : GPU Direct RDMA En"]
)
def test_a_torn_line_about_gpudirect_is_counted_and_shown(cut: str) -> None:
    said = read(SETUP + say(cut))
    assert (said.not_understood, said.not_understood_lines[0].text) == (1, cut)


def test_why_gpudirect_is_not_in_use_where_the_log_does_not_say() -> None:
    state = read(SETUP + links("NET/IB/0")).gpudirect.state
    assert state.endswith("NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH,TUNING,ENV")
    assert read(SETUP + links("NET/Socket/0")).gpudirect.state.endswith("TCP sockets have none")
    assert read(SETUP + links("P2P/IPC")).gpudirect.state == "no connection goes over a network"
    assert read(SETUP).gpudirect.state == "not known: no connection is logged"
    half = SETUP + links("NET/IB/0", ends=[(0, 1)]) + links("NET/IB/0/GDRDMA", ends=[(1, 0)])
    assert read(half).gpudirect.state.startswith("in use on 1 of 2 network connections")
    new = say("NCCL version 2.30.7+cuda13.2") + say("NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'")
    state = read(new + SETUP + links("NET/IB/0")).gpudirect.state
    assert state.endswith("why is not known: NCCL 2.30 and later do not log it")
    no_module = read(SETUP + links("NET/IB/0") + say("NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'"))
    assert "cannot register GPU memory" in no_module.gpudirect.quotes[0].text


def test_a_network_inside_a_node_is_a_fallback_and_between_nodes_is_not() -> None:
    spans = "comm {} rank 0 nRanks 2 nNodes {} localRanks 2 localRank 0 MNNVL 0"
    lines = {
        nodes: shown(
            say(init("START", 0))
            + say(init("START", 1), 1, host="node7" if nodes == 1 else "node8")
            + say(spans.format(pointer(0), nodes))
            + links("NET/IB/0", ends=[(0, 1)])
        )
        for nodes in (1, 2)
    }
    assert "a fallback inside a node" in lines[1]
    assert "fallback" not in lines[2]


def test_fallbacks_are_named_pair_by_pair() -> None:
    ends = [(a, b) for a in range(4) for b in range(3)]
    (shm,) = read(links("SHM/direct/direct", ends=ends)).communicators[0].wires
    (near,) = read(links("P2P/IPC", ends=ends)).communicators[0].wires
    assert (len(shm.examples), len(near.examples), shm.pairs) == (12, 4, 12)


def test_the_log_says_which_part_of_the_job_it_shows() -> None:
    assert read(SETUP).part == "All 2 ranks of the largest communicator, on host node7, wrote to this log."
    one = say(init("START", 3, ranks=16))
    assert read(one).part.startswith("Of 16 ranks only rank 3, on host node7, wrote to this log")
    two = one + say(init("START", 4, ranks=16), host="node8")
    assert read(two).part.startswith("Of 16 ranks only 2 ranks, on 2 hosts, wrote to this log")
    assert "not known" in read(say("Using network IB")).part


def test_a_hot_collective_of_one_of_several_communicators_says_so() -> None:
    both = "".join(
        say(init(state, 0, rest=f"commId 0xab{n} ", comm=n))
        for n in (0, 1)
        for state in ("START", "COMPLETE")
    )
    said = read(both + chosen(1 << 20, "RING"))
    assert said.hot is not None
    assert said.hot.communicators == 2
    assert "in one of 2 communicators" in said.answer
    assert "on wires that are not in the log" in said.answer


def comm(number: int, ranks: int) -> str:
    return "".join(
        say(init(state, 0, ranks, rest=f"commId 0xab{number} ", comm=number), thread=6000 + number)
        for state in ("START", "COMPLETE")
    )


def test_communicators_with_the_same_wires_are_said_with_the_most_ranks() -> None:
    text = "".join(
        comm(number, ranks) + say("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM")
        for number, ranks in enumerate((2, 8, 4))
    )
    hot = read(text + chosen(1 << 20, "RING")).hot
    assert hot is not None
    assert [(one.communicators, one.ranks) for one in hot.carried] == [(["0xab0", "0xab1", "0xab2"], 8)]


def test_a_communicator_without_its_set_up_has_ranks_that_are_not_known() -> None:
    hot = read(say("Channel 00/0 : 0[0] -> 1[1] via SHM/direct") + chosen(1 << 20, "RING")).hot
    assert hot is not None
    assert [(one.wires, one.communicators, one.ranks) for one in hot.carried] == [(["host memory"], [], None)]


def test_sizes_with_the_same_choice_are_a_range_from_its_first_line() -> None:
    text = SETUP + chosen(32, "RING", last=3) + chosen(8, "RING", last=7) + chosen(16, "RING", last=1)
    text += chosen(64, "TREE") + chosen(128, "RING") * 2
    first = len(SETUP.splitlines()) + 1
    found = [
        (one.low_bytes, one.high_bytes, one.algorithm, one.channels, one.calls, one.line)
        for one in read(text).choices
    ]
    assert found == [
        (8, 32, "ring", (2, 8), 3, first), (64, 64, "tree", (24, 24), 1, first + 3),
        (128, 128, "ring", (24, 24), 2, first + 4),
    ]  # fmt: skip


def test_people_are_shown_eight_communicators_and_three_times_as_many_choices() -> None:
    text = "".join(comm(number, 2) for number in range(10))
    text += "".join(chosen(8 << n, "RING" if n % 2 else "TREE") for n in range(26))
    said = shown(text)
    assert said.count("Communicator 0xab") == 8
    assert "  and 2 more communicators\n" in said
    assert "  and 2 more\n" in said


def test_which_communicator_would_mean_which_wire() -> None:
    text = comm(0, 8) + say("Channel 00/0 : 0[0] -> 5[5] [send] via NET/IB/0/GDRDMA")
    text += comm(1, 2) + say("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM") + comm(2, 2)
    answer = read(text + chosen(1 << 20, "RING")).answer
    assert answer == (
        "The hot collective is all_reduce of 1 MiB (1 call, 100% of the bytes, in one of 3 communicators): "
        "Ring Simple in 24 channels, on InfiniBand or RoCE with GPUDirect RDMA if it ran in 0xab0 (8 ranks) "
        "or on P2P (NVLink or PCIe: not in the log) if it ran in 0xab1 (2 ranks) (line 9)."
    )


def test_a_choice_of_a_process_without_a_rank_0_is_of_the_communicators_that_it_is_in() -> None:
    """The line that names its rank 0 is lost."""
    text = "".join(
        say(init(state, rank, 4, rest=f"commId 0xab{number} ", comm=number), rank, pid=5000 + number)
        for number, rank in ((0, 0), (1, 1))
        for state in ("START", "COMPLETE")
    )
    line = REDUCE.format(1 << 20, "RING", "SIMPLE", 3)
    for pid, ids in ((5000, ["0xab0"]), (5001, ["0xab1"])):
        hot = read(text + say(line, thread=4711, pid=pid)).hot
        assert hot is not None
        assert (hot.communicators, [one.communicators for one in hot.carried]) == (1, [ids])


def test_no_more_than_three_ways_are_named() -> None:
    text, ranks = "", 2
    for number, kind in enumerate(("P2P/CUMEM", "SHM/direct", "NET/Socket/0", "NET/IB/0", "NET/IB/0/GDRDMA")):
        text += "".join(
            say(init(state, 0, ranks, rest=f"commId 0xab{number} ", comm=number), thread=6000 + number)
            for state in ("START", "COMPLETE")
        ) + say(f"Channel 00/0 : 0[0] -> 1[1] via {kind}")
    answer = read(text + chosen(1 << 20, "RING")).answer
    assert answer.count(" if it ran in ") == 3
    assert " or in 2 other ways (line " in answer


def test_hosts_that_share_a_name_are_not_taken_for_one_node() -> None:
    spans = "comm {} rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0"
    both = SETUP + say(spans.format(pointer(0))) + links("NET/IB/0/GDRDMA")
    assert not any(wire.fallback for wire in read(both).communicators[0].wires)


def test_without_tuning_lines_it_says_what_to_set_or_that_the_version_has_none() -> None:
    assert "Not in the log: which algorithm and protocol ran (TUNING): set NCCL_DEBUG=INFO" in shown(SETUP)
    assert "NCCL 2.14.3 does not log it" in shown(V2_14)
    assert "the log has no TUNING lines" in read(V2_18).answer


def test_sizes_of_a_rank_s_part_become_those_of_the_message() -> None:
    line = "AllGather: 1048576 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..23}"
    hot = read(SETUP + say(line, thread=4711)).hot
    assert hot is not None
    assert hot.size_bytes == 2 << 20


def test_ranges_join_sizes_with_the_same_choice() -> None:
    text = SETUP + "".join(chosen(8 << n, "RING", "LL" if n < 3 else "SIMPLE", n) for n in range(6))
    first, second = read(text).choices
    assert (first.low_bytes, first.high_bytes, first.protocol, first.channels) == (8, 32, "ll", (1, 3))
    assert (second.low_bytes, second.high_bytes, second.protocol, second.calls) == (64, 256, "simple", 3)


def test_settings_that_slow_and_those_that_differ_between_processes_are_named() -> None:
    text = "".join(
        say(f"NCCL_ALGO set by environment to {value}", pid=pid)
        for pid, value in ((1, "Ring"), (2, "Ring"), (3, "Tree"))
    )
    lines = shown(text + say("NCCL_P2P_DISABLE set by environment to 1."))
    assert "NCCL_ALGO=Ring in 2 processes (1): slows: not every algorithm" in lines
    assert "NCCL_ALGO is not the same in all processes" in lines
    assert "NCCL_P2P_DISABLE=1 (4): slows: GPUs do not reach each other" in lines


def test_warnings_that_differ_in_numbers_are_one_kind() -> None:
    warning = "node7:1:2 [0] net.cc:9 NCCL WARN Call to connect returned {} for 10.0.0.{}<4711>\n"
    text = "".join(warning.format(n, n) for n in range(7)) + warning.replace("Call", "No call").format(1, 1)
    first, second = read(text).warnings
    assert (first.count, first.line, second.count, second.line) == (7, 1, 1, 8)


def test_warnings_over_the_limit_are_counted_by_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_log, "WARNINGS", 3)
    text = "".join(f"node7:1:2 [0] net.cc:9 NCCL WARN call {n} failed\n" for n in range(50))
    text += "".join(f"node7:1:2 [0] net.cc:9 NCCL WARN {word} failed\n" for word in ("a", "b", "c", "d"))
    said = read(text)
    assert (said.warnings[0].count, said.warning_kinds, said.left_out) == (50, 3, {"warnings": 2})


def test_a_line_that_asks_for_attention_is_a_warning() -> None:
    (warning,) = read("node7:1:2 [0] NCCL ATTN degraded NVLink fabric bandwidth\n").warnings
    assert warning.text == "degraded NVLink fabric bandwidth"


def test_a_text_without_nccl_has_no_message() -> None:
    said = read("step 1 loss 2.5\n\nstep 2\n")
    assert (said.messages, said.answer) == (0, "No line of NCCL's log is in this text.")


@pytest.mark.parametrize("before", ["", "[1,0]<stdout>:", "0: ", "worker-0: "])
def test_every_line_number_is_that_of_the_file(before: str) -> None:
    text = "epoch 1\n" + "".join(before + line + "\n" for line in (SETUP + links("P2P/IPC")).splitlines())
    said = read(text)
    (comm,) = said.communicators
    lines = text.split("\n")
    assert "Init START" in lines[comm.line - 1]
    assert "via P2P/IPC" in lines[comm.wires[0].line - 1]
    assert (said.line_count, said.foreign) == (len(lines), 2)


def test_over_the_limit_it_says_what_it_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nccl_log, "AT_MOST", 50)
    text = "".join(say(f"Channel 00/0 : {n}[0] -> {n + 1}[1] via P2P/IPC") for n in range(60))
    text += "".join(say(f"NCCL_X{n} set by environment to {n}.") for n in range(60))
    said = read(text + text)
    assert said.left_out == {"Link": 20, "Setting": 20}
    assert "Left out, because the log has too much that differs: 20 of Link, 20 of Setting" in said.lines()


def test_a_line_that_is_repeated_changes_nothing_but_its_count() -> None:
    once = SETUP + links("P2P/CUMEM")
    many = read(once + links("P2P/CUMEM") * 500)
    assert many.communicators == read(once).communicators
    assert many.left_out == {}


_PIECES = st.lists(
    st.sampled_from([*LINES, "step 3 loss 2.1\n", "\x00\xff\n", "NCCL INFO \n"]).flatmap(
        lambda line: st.integers(0, len(line)).map(lambda end: line[:end])
    ),
    max_size=25,
)


@given(_PIECES)
def test_lines_cut_joined_and_out_of_order_are_some_summary(pieces: list[str]) -> None:
    text = "".join(pieces)
    said = read(text)
    assert said.lines()[0] == said.answer
    count = len(text.split("\n"))
    assert said.line_count == count
    quotes = [*said.not_understood_lines, *said.warnings, *said.network, *said.versions]
    numbers = [quote.line for quote in quotes] + [one.line for one in said.settings]
    assert all(0 < line <= count for line in numbers + [one.line for one in said.choices])
    assert said.messages >= said.other + said.not_understood


@given(st.permutations(V2_28.splitlines() + V2_21.splitlines()), st.integers(1, 2000))
def test_blocks_of_any_length_give_the_same(lines: list[str], block: int) -> None:
    """But that a torn host is known by the lines of its block alone, and here none is torn."""
    whole = read_log(lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wirewatch.nccl.messages.BLOCK", block)
        assert read_log(lines) == whole


def job(length: int) -> Iterator[str]:
    """A log of as many characters, of one job: what is distinct in it does not grow."""
    lines = [line for text in (V2_18, V2_21, V2_23, V2_27, V2_28, V2_30) for line in text.splitlines()]
    size = 0
    while size < length:
        for line in (*lines, "step 4 loss 2.0 lr 0.1", chosen(8 << size % 28, "RING")):
            size += len(line)
            yield line


def peak(length: int) -> int:
    tracemalloc.start()
    try:
        read_log(job(length))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_what_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wirewatch.nccl.messages.BLOCK", 1 << 15)
    peak(1 << 16)
    assert peak(1 << 19) < 1.3 * peak(1 << 17)


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        (
            "h200x8/nccl-tests_all_reduce_NCCL_DEBUG_rank0.txt",
            "all_reduce of 4 GiB (3 calls, 50% of the bytes): Ring Simple in 24 channels, on P2P over NVL",
        ),
        (
            "published/nccltests.2.18.3.h100x2.ring.tuning_log.txt",
            "all_reduce of 8 GiB (3 calls, 51% of the bytes): Ring Simple in 24 channels, on P2P over NV",
        ),
    ],
)
def test_real_logs_are_answered(name: str, answer: str) -> None:
    with (HERE / name).open(encoding="utf-8") as lines:
        said = read_log(lines)
    assert answer in said.answer
    assert (said.not_understood, said.left_out) == (0, {})


def test_what_stands_against_gpudirect_is_quoted_and_nothing_else() -> None:
    """Levels, cards and settings; a remark that it works is none."""
    text = SETUP + links("NET/IB/0")
    for line in (
        "NET/IB : GPU Direct RDMA Disabled for HCA 0 'mlx5_0'",
        "NCCL_NET_GDR_LEVEL set by environment to LOC",
        "NCCL_NET_GDR_READ set by environment to 0.",
        "NCCL_DEBUG set by environment to INFO.",
        "GPU Direct RDMA Enabled for GPU 0 / HCA 1 (distance 4 <= 5), read 0 mode Default",
        "NET/IB : GPU Direct RDMA Enabled for HCA 1 'mlx5_1'",
        "DMA-BUF is available on GPU device 0",
    ):
        text += say(line)
    quotes = [quote.text for quote in read(text).gpudirect.quotes]
    assert quotes == [
        "NET/IB: mlx5_0 cannot register GPU memory: no peermem, no DMA-BUF",
        "NCCL_NET_GDR_LEVEL=LOC",
        "NCCL_NET_GDR_READ=0",
    ]


def test_a_text_is_quoted_once_by_its_first_line() -> None:
    said = [("a", Seen(7, 1)), ("b", Seen(5, 2)), ("a", Seen(3, 4))]
    assert quotes_of(said) == [Quote(3, "a", 5), Quote(5, "b", 2)]


def test_a_network_between_hosts_that_share_a_node_is_a_fallback_where_ranks_are_apart() -> None:
    """Both ranks are on one host of a job of two nodes whose other ranks did not log."""
    spans = "comm {} rank 0 nRanks 4 nNodes 2 localRanks 2 localRank 0 MNNVL 0"
    one = say(init("START", 0, ranks=4)) + say(init("START", 1, ranks=4), 1)
    text = one + say(spans.format(pointer(0))) + links("NET/IB/0", ends=[(0, 1)])
    assert [wire.fallback for wire in read(text).communicators[0].wires] == [True]
    apart = one + say(spans.format(pointer(0))) + links("NET/IB/0", ends=[(0, 2)])
    assert [wire.fallback for wire in read(apart).communicators[0].wires] == [False]


def test_links_between_ranks_of_hosts_that_are_not_known_are_no_fallback() -> None:
    (only,) = read(links("NET/IB/0").replace("node7:4711:", "")).communicators
    assert [wire.fallback for wire in only.wires] == [False]


@each(
    ("number", "version", "name"),
    [
        (0, "2.28.9", "LOC"), (11, "2.28.9", "DIS"), (12, "2.28.9", ""), (99, "2.28.9", ""),
        (6, "2.11.4", "SYS"), (7, "2.11.4", ""), (7, "2.26.2", "PHB"), (0, Absent(Why.MISSING), ""),
        (0, "new", ""),
    ],
)  # fmt: skip
def test_a_number_is_a_path_where_that_version_has_it(number: int, version: str | Absent, name: str) -> None:
    assert path_name(number, version) == name


CALL = (
    "{}: opCount {:x} sendbuff 0x7f{} recvbuff 0x7f0 count {} datatype {} op 0 root 0 comm {} "
    "[nranks={}] stream 0x11"
)


def call(
    op: str, elements: int, comm: int = 0, ranks: int = 8, *, dtype: int = 9, gpu: int = 0, times: int = 1
) -> str:
    lines = (
        say(CALL.format(op, n, n, elements, dtype, pointer(gpu, comm), ranks), gpu, thread=4711)
        for n in range(times)
    )
    return "".join(lines)


def test_calls_say_which_communicator_is_hot() -> None:
    text = comm(0, 8) + comm(1, 16) + say("Channel 00/0 : 0[0] -> 5[5] via P2P/CUMEM", thread=6000)
    found = read(
        text
        + call("AllReduce", 1 << 25, times=2)
        + call("AllGather", 1 << 20, 1, 16)
        + call("Send", 4, dtype=7)
    )
    assert [
        (one.op, one.size_bytes, one.dtype, one.communicator, one.ranks, one.calls, one.line)
        for one in found.calls
    ] == [
        ("all_reduce", 64 << 20, "bfloat16", "0xab0", 8, 2, 6),
        ("all_gather", 32 << 20, "bfloat16", "0xab1", 16, 1, 8),
        ("send", 16, "float32", "0xab0", 8, 1, 9),
    ]
    assert found.answer.startswith(
        "The hot collective is all_reduce of 64 MiB bfloat16 (2 calls, 80% of the bytes) in communicator "
        "0xab0 of 8 ranks, on "
    )
    assert found.answer.endswith("(line 6). Which algorithm ran it is not in the log.")
    assert (
        "all_gather of 32 MiB bfloat16 in 0xab1 of 16 ranks: 1 call, by 1 of its ranks here (8)"
        in "\n".join(found.lines())
    )


def test_a_call_of_a_communicator_that_is_not_in_the_log_says_so() -> None:
    found = read(comm(0, 8) + call("AllReduce", 64, 3) + call("AllReduce", 64, 0, 4))
    assert {one.communicator for one in found.calls} == {""}
    assert "in communicator that the log does not name of 8 ranks" in found.answer


def test_calls_of_several_ranks_are_those_of_the_rank_with_the_most() -> None:
    text = SETUP + call("AllReduce", 64, ranks=2, times=3) + call("AllReduce", 64, ranks=2, gpu=1, times=2)
    (only,) = read(text).calls
    assert (only.calls, only.logged_ranks) == (3, 2)
    apart = text.replace("node7:4711:4801 [1]", "node7:4712:4801 [1]").replace(
        "node7:4711:4711 [1]", "node7:4712:4711 [1]"
    )
    (only,) = read(apart).calls
    assert (only.calls, only.logged_ranks, only.communicator) == (3, 2, "0xabc1")


def test_calls_tell_in_which_communicator_an_algorithm_ran() -> None:
    text = comm(0, 8) + say("Channel 00/0 : 0[0] -> 5[5] [send] via NET/IB/0/GDRDMA")
    text += comm(1, 2) + say("Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM")
    hot = read(text + call("AllReduce", 1 << 20, 1, 2, dtype=0) + chosen(1 << 20, "RING")).hot
    assert hot is not None
    assert (hot.communicators, hot.wires) == (1, ["P2P (NVLink or PCIe: not in the log)"])
    both = text + "".join(call("AllReduce", 1 << 20, n, r, dtype=0) for n, r in ((1, 2), (0, 8)))
    hot = read(both + chosen(1 << 20, "RING")).hot
    assert hot is not None
    assert hot.communicators == 2


def test_torn_calls_of_no_ranks_are_no_end_of_reading() -> None:
    assert read(call("AllGather", 64, ranks=0)).calls[0].size_bytes == 0


def called(pairs: Sequence[tuple[str, str, int]], calls: Mapping[str, tuple[str, int, int]]) -> list[str]:
    """Logs of four ranks on two hosts; each has a communicator of each kind, with so many calls of a size."""
    lines = []
    for rank in range(4):
        start = f"n{rank // 2}:{100 + rank}:9 [{rank % 2}] NCCL INFO "
        gpu = f"cudaDev {rank % 2} nvmlDev {rank % 2} busId {rank % 2 + 1}8000"
        done = "Init COMPLETE"
        for number, (kind, form, own) in enumerate(pairs):
            id_ = form.format(rank // 2, rank % 2)
            place, nodes = (rank % 2, 1) if own else (rank // 2, 2)
            pointer = f"0x{number + 1}{rank}"
            lines += [
                f"{start}ncclCommInitRank comm {pointer} rank {place} nranks 2 {gpu} commId {id_} - {done}",
                f"{start}comm {pointer} rank {place} nRanks 2 nNodes {nodes} localRanks {3 - nodes} ",
            ]
            op, times, count = calls[kind]
            lines += [
                f"{start}{op}: opCount {n:x} sendbuff 0x1 recvbuff 0x2 count {count} datatype 9 op 0 root 0 "
                f"comm {pointer} [nranks=2] stream 0x3"
                for n in range(times)
            ]
    return lines


KINDS = [("near", "0xa{}", 1), ("far", "0xb{1}", 0)]


@each(
    ("near", "far", "names"),
    [
        (("AllReduce", 40, 1024), ("AllReduce", 5, 1 << 20), {"0xa": "TP", "0xb": "DP"}),
        (("AllReduce", 40, 1024), ("ReduceScatter", 5, 1 << 20), {"0xa": "TP", "0xb": "DP"}),
        (("AllReduce", 15, 1024), ("AllReduce", 5, 1 << 20), {"0xa": "", "0xb": ""}),
        (("AllReduce", 40, 1 << 20), ("AllReduce", 5, 1024), {"0xa": "", "0xb": ""}),
        (("AlltoAll", 40, 1024), ("AllReduce", 5, 1 << 20), {"0xa": "EP", "0xb": ""}),
        (("AllReduce", 40, 1024), ("Send", 40, 1024), {"0xa": "", "0xb": ""}),
    ],
)
def test_groups_have_the_names_that_their_calls_show(
    near: tuple[str, int, int], far: tuple[str, int, int], names: dict[str, str]
) -> None:
    found = read_log(called(KINDS, {"near": near, "far": far}))
    assert {one.id[:3]: one.group for one in found.communicators} == names
    assert {one.communicator[:3]: one.group for one in found.calls} == names


def test_a_log_of_one_rank_names_no_group() -> None:
    lines = called(KINDS, {"near": ("AllReduce", 40, 1024), "far": ("AllReduce", 5, 1 << 20)})
    alone = read_log([line for line in lines if line.startswith("n0:100:")])
    assert {one.group for one in alone.communicators} == {""}
    text = "\n".join(read_log(lines).lines())
    assert "Communicator 0xa0 (TP): 2 ranks, 1 node" in text
    assert "all_reduce of 4 MiB bfloat16" not in text
    assert "a DP group, on" in read_log(lines).answer
