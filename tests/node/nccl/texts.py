"""Logs of our own in the forms that versions of NCCL write."""

from collections.abc import Sequence


def say(text: str, gpu: int = 0, thread: int = 0, host: str = "node7", pid: int = 4711) -> str:
    """One line by the thread that sets up `gpu`, or by another."""
    return f"{host}:{pid}:{thread or 4800 + gpu} [{gpu}] NCCL INFO {text}\n"


def pointer(gpu: int, comm: int = 0) -> str:
    return f"0x55d{comm}c{gpu:x}40"


def init(
    state: str,
    rank: int,
    ranks: int = 2,
    name: str = "ncclCommInitRankConfig ",
    rest: str = "commId 0xabc1 ",
    comm: int = 0,
    gpu: int | None = None,
    *,
    nvml: bool = True,
) -> str:
    """The line of a communicator's beginning or end; rank and GPU are the same unless told otherwise."""
    gpu = rank if gpu is None else gpu
    device = f"nvmlDev {gpu} " if nvml else ""
    return (
        f"{name}comm {pointer(gpu, comm)} rank {rank} nranks {ranks} cudaDev {gpu} {device}"
        f"busId {0x41 + gpu:x}000 {rest}- Init {state}"
    )


def links(transport: str, count: int = 2, ends: Sequence[tuple[int, int]] = ((0, 1), (1, 0))) -> str:
    return "".join(
        say(f"Channel {channel:02}/0 : {a}[{a}] -> {b}[{b}] via {transport}", a, thread=4900 + a)
        for a, b in ends
        for channel in range(count)
    )


V2_14 = (
    say("NCCL version 2.14.3+cuda11.7")
    + say("Channel 00/02 :    0   1")
    + say("NET/Socket : Using [0]eth0:10.0.0.7<0>")
    + say("Using network Socket")
    + say("Channel 00/0 : 0[41000] -> 1[42000] via P2P/IPC/read")
    + say("Channel 01/0 : 0[41000] -> 1[42000] via P2P/IPC/read")
    + say("Channel 00 : 1[42000] -> 0[41000] via SHM/direct/direct", 1)
    + say("2 coll channels, 2 p2p channels, 2 p2p channels per peer")
    + say(init("COMPLETE", 0, name="", rest="", nvml=False))
    + say(init("COMPLETE", 1, name="", rest="", nvml=False), 1)
)
V2_18 = (
    "NCCL version 2.18.3+cuda12.1\n"
    + say("NCCL version 2.18.3+cuda12.1")
    + say("NCCL_P2P_LEVEL set by environment to NVL")
    + say("NCCL_MIN_NCHANNELS set by environment to 4.")
    + say("Plugin name set by env to libnccl-net-fast.so")
    + say("Using network IBext")
    + say(init("START", 0, name=""))
    + say(init("START", 1, name=""), 1)
    + say("NVLS multicast support is available on dev 0")
    + say("NVLS multicast support is not available on dev 1", 1)
    + links("P2P/CUMEM")
    + say("24 coll channels, 16 nvls channels, 32 p2p channels, 32 p2p channels per peer")
    + say(f"NVLS comm {pointer(0)} headRank 0 nHeads 2 buffSize 4194304 memSize 2097152")
    + say(init("COMPLETE", 0, name=""))
    + say(init("COMPLETE", 1, name=""), 1)
)
V2_21 = (
    say("NCCL version 2.21.5+cuda12.4")
    + say("TUNER/Plugin: Plugin name set by env to libnccl-tuner-x.so")
    + say(init("START", 0, name="ncclCommInitRank "))
    + say(f"comm {pointer(0)} rank 0 nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0")
    + say("Channel 00/0 : 1[1] -> 0[0] [receive] via NET/IB/2/GDRDMA")
    + say("Channel 00/0 : 0[0] -> 1[1] [send] via NET/IB/2(1)/GDRDMA/Shared")
    + say("Channel 01/0 : 0[0] -> 1[1] [send] via NET/IB/3")
    + say("4 coll channels, 0 collnet channels, 0 nvls channels, 4 p2p channels, 2 p2p channels per peer")
    + say(init("COMPLETE", 0, name="ncclCommInitRank "))
    + say("33554432 Bytes -> Algo 1 proto 2 time 412.500000", thread=4711)
    + say("33554432 Bytes -> Algo 4 proto 2 time 340.125000", thread=4711)
    + say("33554432 Bytes -> Algo 4 proto 2 time 340.125000", thread=4711)
)
V2_23 = (
    say("NCCL version 2.23.4+cuda12.6")
    + say(init("START", 0))
    + say(init("COMPLETE", 0))
    + say("Init timings - ncclCommInitRankConfig: rank 0 nranks 2 total 0.84 (kernels 0.41, alloc 0.2)")
    + say("AllReduce: 8 Bytes -> Algo 0 proto 0 time 11.000000", thread=4711)
    + say("AllGather: 1024 Bytes -> Algo 6 proto 1 time 9.500000", thread=4711)
    + say("ReduceScatter: 1024 Bytes -> Algo 5 proto 2 time 9.500000", thread=4711)
    + say("AllReduce: 64 Bytes -> Algo 2 proto 2 time 9.500000", thread=4711)
    + say("Broadcast: 64 Bytes -> Algo 3 proto 2 time 9.500000", thread=4711)
)
V2_27 = (
    say("NCCL version 2.27.7+cuda12.9")
    + say("NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 32)")
    + say(
        "Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : "
        "CUDA error 2 'out of memory'. Proceeding without NVLS support."
    )
    + say(
        "AllReduce [Symmetric]: 4096 Bytes -> Kernel AllReduce_AGxLL_R nchannels 8 nthreads 512", thread=4711
    )
    + "\n[2026-03-04 05:06:07] node7:4711:4800 [0] transport/nvls.cc:271 NCCL WARN Failed to bind\n"
)
V2_28 = (
    say("NCCL version 2.28.9+cuda13.0")
    + say("Comm config nvlinkCentricSched set to 1")
    + say("Comm config minCTAs reset to NCCL_MIN_CTAS=4")
    + say("NCCL_NET_PLUGIN set by environment to none")
    + say("MNNVL busId 0x41000 fabric UUID 1f.2e cliqueId 0x7ffe state 3 healthMask 0x0")
    + say(init("START", 0))
    + say(init("START", 1), 1)
    + say("MNNVL 1 cliqueId 7ffe cliqueSize 2 cliqueRank 0")
    + say(f"comm {pointer(0)} rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 1")
    + say(f"NVLS comm {pointer(1)} headRank 1 nHeads 2 nvlsRanks 2 buffSize 1 nvlsPerRankSize 2", 1)
    + say(
        "24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels, 32 p2p channels per peer"
    )
    + say(init("COMPLETE", 0))
    + say(init("COMPLETE", 1), 1)
    + say("Init timings - ncclCommInitRankConfig: rank 0 nranks 2 total 1.30 (kernels 0.81, alloc 0.20)")
    + say("Init timings - ncclCommInitRankConfig: rank 1 nranks 2 total 1.44 (kernels 0.92, alloc 0.21)", 1)
    + links("P2P/MNNVL", 24)
    + say("AllReduce: 268435456 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..15}", thread=4711)
    + say("AllReduce: 268435456 Bytes -> Algo NVLS_TREE proto SIMPLE channel{Lo..Hi}={0..15}", thread=4711)
    + say("AllReduce: 268435456 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..15}", thread=4711)
    + say("AlltoAll [Copy Engine]: 8192 Bytes -> cudaMemcpy; CE synchronization with NVLS", thread=4711)
    + say(f"comm {pointer(0)} rank 0 nranks 2 cudaDev 0 busId 41000 - Destroy COMPLETE")
)
V2_30 = (
    say("NCCL version 2.30.7+cuda13.2")
    + say("[Rank 0] " + init("START", 0))
    + say("[Rank 1] " + init("START", 1), 1)
    + say("NVLS multicast support is not available on dev 0")
    + say("Channel 00 : 0[0] -> 1[1] via SHM/direct")
    + say("Channel 01 : 0[0] -> 1[1] via SHM/direct")
    + say("Channel 00/0 : 1[1] -> 0[0] [send] via NET/Socket/0(1)", 1)
    + say("Channel 00/0 : 1[1] -> 0[0] [receive] via NET/Socket/0")
    + say("Channel 01/0 : 1[1] -> 0[0] [send] via NET/AWS Libfabric/3(1)/GDRDMA(PCI)/Shared", 1)
    + say("ReduceScatter: 64 Bytes -> Algo PAT proto LL128 channel{Lo..Hi}={0..3}", thread=4711)
    + say(init("COMPLETE", 0))
)
ALL = (V2_14, V2_18, V2_21, V2_23, V2_27, V2_28, V2_30)
