"""Settings of NCCL that guides advise to set, whatever the node: why they are left alone, what was measured.

Figures without a place were measured on four H200 (NVLink, NCCL 2.28.9) at 256 MiB, with 340 GB/s healthy.
"""

from dataclasses import dataclass

from wirewatch.busbw.references import Confidence
from wirewatch_lab.advice.settings.measured import MeasuredSetting

GUIDE = "NCCL user guide, environment variables"
OWN = "recordings of this project on H200"
BENCH = "waynehacking8/nccl-collectives-bench (4 H100, NCCL 2.29.2)"


@dataclass(frozen=True, slots=True)
class VariableAdvice:
    """One variable. `value`: null to leave it unset, which is NCCL's own choice.

    `disagree`: where public guides contradict each other or what was measured, both sides. `measured`: the
    variable's values beside NCCL's own choice, by a sweep.
    """

    name: str
    value: str | None
    reason: str
    confidence: Confidence
    when_not: str
    source: str
    disagree: str = ""
    measured: tuple[MeasuredSetting, ...] = ()


def left_alone(
    name: str, reason: str, when_not: str, source: str = GUIDE,
    confidence: Confidence = Confidence.PUBLISHED, disagree: str = "", value: str | None = None,
) -> VariableAdvice:  # fmt: skip
    """Return what is known of a variable that is commonly left to NCCL; `value` where it is not."""
    return VariableAdvice(name, value, reason, confidence, when_not, source, disagree)


_TEST = "to look for a fault, as long as that takes"
CANDIDATES: tuple[VariableAdvice, ...] = (
    left_alone(
        "NCCL_DEBUG",
        "prints what went wrong and nothing else; without it a job has an error code alone",
        "a trial for `wirewatch parse`: INFO with NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING,NET,ENV and "
        "NCCL_DEBUG_FILE=/tmp/nccl.%h.%p, so that lines of ranks do not tear each other",
        value="WARN",
    ),
    left_alone(
        "NCCL_ALGO",
        "NCCL chooses by size and wires. Recorded on 8 H200 without NVLS: Ring at all sizes, by LL up to "
        "2 MiB and LL128 up to 32 MiB; inside a node trees are chains and save no steps",
        "one algorithm is under suspicion: leave that one out, such as allreduce:^tree. From 2.24 on a list "
        "without ring fails broadcast and reduce, and an unknown word, such as auto, fails init",
        f"{OWN}; {BENCH}; src/graph/tuning.cc",
        Confidence.MEASURED,
        "A guide for inference starts with Tree (23.4 to 44.1 GB/s between nodes, which is algbw: busbw is "
        "35.1 and 66.3, above one 400 Gb/s port's 50 GB/s), then advises Ring for small messages and Tree "
        "above 256 MB; others say Tree for small ones. Measured: Ring at small sizes, and Tree last at large",
    ),
    left_alone(
        "NCCL_PROTO",
        "NCCL takes LL for small messages by itself, which is what makes them fast; Simple alone takes that "
        "away. `auto` is not a value: from 2.24 on init fails",
        "data is wrong and LL128 is under suspicion: ^LL128. LL128 by force corrupts data where NCCL would "
        "not take it",
        f"{OWN}; {GUIDE}",
        Confidence.MEASURED,
        "The same guide advises Simple for inference, and says that LL makes messages under 8 KB faster",
    ),
    left_alone(
        "NCCL_BUFFSIZE",
        "4 MiB by default for each connection of each channel. Less of it makes more and shorter steps",
        "memory for many communicators is short; then measure what it costs",
        f"{GUIDE}; {OWN}",
        Confidence.MEASURED,
        "A guide advises 2 MiB for inference, with negligible cost; nobody measured that for small messages",
    ),
    left_alone(
        "NCCL_NTHREADS",
        "512 by default on recent GPUs; NCCL takes fewer for small messages by itself. Threads belong to a "
        "channel's one SM: fewer threads free no SM",
        "never for speed; 64 with 2 channels measured 20 GB/s of 340",
        f"{GUIDE}; {OWN}",
        Confidence.MEASURED,
        disagree="A guide advises 256 for inference, to free 1 or 2 SMs; channels take SMs, threads do not",
    ),
    left_alone(
        "NCCL_MIN_NCHANNELS",
        "NCCL takes as many channels as a message is worth, few for small ones. Deprecated since 2.17 in "
        "favour of NCCL_MIN_CTAS",
        "a sweep of your sizes shows that more channels pay",
    ),
    left_alone(
        "NCCL_MAX_NCHANNELS",
        "it holds for all messages, prefill's large ones too: 4 measured 98 GB/s, 1 measured 25, of 340. "
        "Deprecated since 2.17 in favour of NCCL_MAX_CTAS",
        "computation runs beside communication all the time and its SMs are worth more: then by measurement",
        f"{OWN}; {GUIDE}",
        Confidence.MEASURED,
        "A guide advises 4 for inference and 8 to 16 for training, at a cost that it does not name",
    ),
    left_alone(
        "NCCL_NVLS_ENABLE",
        "2 by default: NVLink SHARP wherever GPUs and switch have it. 1 adds no speed: it skips the test for "
        "multicast, so that init fails where resources lack; from 2.29 on so does 2",
        "init fails for want of NVLS's resources, as beside a program with all multicast slots: 0, which "
        "costs 460-480 down to about 366 GB/s on 8 H100 for large messages. NCCL_ALGO=Ring beside it: unused",
        f"{GUIDE}; src/transport/nvls.cc",
    ),
    left_alone(
        "NCCL_CUMEM_ENABLE",
        "on by default since 2.19 where the system has it; NVLS' registered buffers, symmetric memory and "
        "NVLink between nodes need it",
        "a container or checkpoint tool that cannot share cuMem memory: 0",
    ),
    left_alone(
        "NCCL_P2P_DISABLE",
        "off by default. 1 sends all through host memory: measured 26 GB/s of 340; NCCL_P2P_LEVEL=LOC, 23",
        _TEST,
        f"{GUIDE}; {OWN}",
        Confidence.MEASURED,
    ),
    left_alone(
        "NCCL_SHM_DISABLE",
        "off by default. With NCCL_P2P_DISABLE=1 sockets remain: measured 4.4 GB/s of 340",
        f"{_TEST}, so that a loss of P2P shows as sockets; if /dev/shm is too small, enlarge it",
        f"{GUIDE}; {OWN}",
        Confidence.MEASURED,
    ),
    left_alone(
        "NCCL_RAS_ENABLE",
        "on by default since 2.24: a hung job can be asked what it waits for, at localhost:28028",
        "several jobs share a node: give each its own NCCL_RAS_ADDR, such as localhost:28029",
    ),
    left_alone(
        "NCCL_SOCKET_IFNAME",
        "the ranks of one node find each other over any interface; it carries no data where GPUs reach each "
        "other or an RDMA port is used",
        "the first interface that is not docker or lo does not reach the other nodes: then `=eth0`, with =, "
        "for a name without it is a prefix",
    ),
)  # fmt: skip
TRAINING = {
    "NCCL_ALGO": "NCCL takes NVLS or Ring for large messages. Measured on 4 H100 at 8 GiB: NVLS 376, Ring "
    "366, Tree 259 GB/s; Tree alone on 4 H200 at 256 MiB: 234 of 340",
    "NCCL_PROTO": "NCCL takes Simple for large messages by itself; LL alone measured 150 GB/s, LL128 alone "
    "312, of 340",
    "NCCL_BUFFSIZE": "4 MiB by default; 64 KiB measured 131 GB/s of 340",
    "NCCL_MAX_NCHANNELS": "4 measured 98 GB/s, 1 measured 25, of 340 (NCCL takes 24 channels on Hopper)",
}  # fmt: skip
"""Reasons of these where a job trains."""
