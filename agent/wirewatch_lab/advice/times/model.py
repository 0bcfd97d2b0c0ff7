"""How long a collective takes inside one node, by its structure: steps, protocols, launches. Pure.

NCCL's tuner (src/graph/tuning.cc and its cost of each algorithm and protocol, 2.28 to 2.30) decides what
runs: its own latencies and bandwidths reproduce what its logs name, of 8 H200 for instance Ring throughout,
LL up to 2 MiB, LL128 from 4 to 32 MiB, Simple from 64 MiB. How long that takes follows from few figures:

    time on the GPUs = base + steps x hop + (steps + tail) x size / ranks / rate

`base` and `hop` by protocol; `rate` is a share of the wire. A ring of so many steps has one pass more, in
which a GPU takes in the last piece and sends nothing; of it the share `tail` counts, less for large
messages. That is why two GPUs reach less of the wire than eight. Launched one by one, an operation takes no
less time than its launch takes the host.

The figures are those with which busbw.curves is reproduced; proof/lab/times.md says how well.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from wirewatch.busbw.curves import CURVES, H100_4
from wirewatch.busbw.formulas import DIRECT, NVLS, PAIRWISE, RING
from wirewatch.core.probe import ALL_GATHER, ALL_REDUCE, BROADCAST, KIB, MIB, REDUCE, REDUCE_SCATTER, SENDRECV
from wirewatch.core.topology import WireKind

LL, LL128, SIMPLE = "LL", "LL128", "Simple"
PAIR = 2


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds of a protocol: once, and of each step."""

    base: float
    hop: float


_TUNED: Mapping[str, Latency] = {
    LL: Latency(6.6e-6, 0.6e-6), LL128: Latency(14.0e-6, 1.9e-6), SIMPLE: Latency(8.4e-6, 3.4e-6),
}  # fmt: skip
"""By which NCCL chooses, Ring over NVLink; they are not what it then takes."""
_TUNED_PCIE: Mapping[str, float] = {LL: 1.0e-6, LL128: 2.5e-6, SIMPLE: 5.7e-6}
"""A step of Ring over PCIe, by which NCCL chooses."""
_TUNED_SHARE = 360 / 478.1
"""Share of the wire that NCCL's search gives a ring: 24 channels of 15 GB/s on Hopper."""
_TUNED_LL: Mapping[str, float] = {"Volta": 39e9, "Ampere": 87.7e9, "Hopper": 141e9, "Blackwell": 282e9}
"""The most that NCCL credits LL with on one node, busbw in bytes per second."""
_TUNED_NVLS = Latency(25e-6, 0.0)
_TOOK: Mapping[str, Latency] = {
    LL: Latency(4.7e-6, 1.02e-6), LL128: Latency(13.9e-6, 1.7e-6), SIMPLE: Latency(22.2e-6, 0.94e-6),
}  # fmt: skip
"""What they took over NVLink, on 2 and 8 H200 and 4 H100."""
_PASSING, _TOOK_PASSING = frozenset({ALL_GATHER, REDUCE_SCATTER}), Latency(4.3e-6, 1.7e-6)
"""LL where the ring only gathers or scatters: 6.0 us on 2 H200, 9.7 on 4."""
_LL_GROWS, _LL_GROWS_FROM, _LL_DOUBLINGS = 0.013e-6, 8, 15
"""A step of LL takes longer for each doubling of the message, from 8 B to 256 KiB: 2 and 4 H200."""
_LL_OPENS = 0.22e-6
"""Seconds for each doubling of the channels that LL opens: 2 and 4 H200."""
_LL_RATE = 1.42
"""What LL reached of `_TUNED_LL` once its channels were open: 200 GB/s on 2 and 4 H200."""
_LL_CHANNEL = 30e9
"""Bytes per second of one channel of LL; NCCL takes another for each 32 KiB."""
_CHANNEL, _CHANNELS = 32 * KIB, 24
SHARES: Mapping[WireKind, float] = {WireKind.PCIE: 0.85}
"""Share of the wire that Simple reaches, where it is not `SHARE`: 4 RTX 4090 on one host bridge."""
SHARE = 0.767
_LL128_SHARE = 120 / 128
_PAIRWISE_SHARE = 0.7
"""8 H200, alltoall from 64 MiB to 4 GiB."""
_PAIRWISE = 38e-6
_PAIRWISE_LL = 16 * KIB
"""Bytes up to which NCCL sends between two ranks by LL (src/enqueue.cc)."""
_SIMPLE_PAIR = 5.0e-6
"""Seconds that Simple starts earlier between two GPUs, where no piece is passed on: 2 H200."""
_TAIL, _TAIL_BENDS, _TAIL_FROM = 0.49, 0.26, 128 * MIB
"""The same for all messages up to the last, and of all collectives; then less and less."""
_NVLS_TOOK, _NVLS_SHARE = 55e-6, 0.56
"""Each GPU sends its message once, and the switch adds up: 251 GB/s on 4 H100, 266 on 6."""
_HOST: Mapping[str, float] = {ALL_REDUCE: 5.75e-6, ALL_GATHER: 4.2e-6, REDUCE_SCATTER: 5.35e-6}
"""Of one launch by nccl-tests, on the host of 4 H100; that of 8 H200 took 6."""
_HOST_OTHER, _HOST_PAIRWISE = 4.8e-6, 8.5e-6
_HOST_DOUBLING, _HOST_FROM, _HOST_DOUBLINGS = 0.15e-6, 4 * KIB, 7
"""A launch with more channels takes longer: for each doubling of the message from 4 KiB to 512 KiB, 0.17 us
on the host of 4 H100, 0.09 on that of 4 H200."""
_HOST_JOB = next(c for c in CURVES if c.launch == "eager" and not c.one_process)
HOST_JOB, HOST_JOB_SOURCE = _HOST_JOB.sizes[0][1], _HOST_JOB.source
"""Seconds of one operation of torch.distributed in a job that gives each GPU a process."""


@dataclass(frozen=True, slots=True)
class NcclChoice:
    """What NCCL runs: its algorithm and protocol by the names in its log."""

    algorithm: str
    protocol: str

    def __str__(self) -> str:
        return self.algorithm if self.algorithm == DIRECT else f"{self.algorithm} {self.protocol}"


@dataclass(frozen=True, slots=True)
class CollectiveModel:
    """One collective of so many GPUs of one node.

    `wire`: bytes per second of one GPU each way. `nvls`: the tuner may take NVLS here. Sizes are nccl-tests'.
    """

    op: str
    ranks: int
    kind: WireKind
    architecture: str
    wire: float
    nvls: bool = False

    def taken(self, size_bytes: float) -> NcclChoice:
        """What NCCL's tuner chooses for a size."""
        return _taken(self, size_bytes)

    def gpu_seconds(self, size_bytes: float) -> float:
        """From the first step to the last, as operations of one CUDA graph take."""
        return self._start(size_bytes) + self._moving(size_bytes)

    def latency_share(self, size_bytes: float) -> float:
        """The part of that time which does not grow with the message."""
        return self._start(size_bytes) / self.gpu_seconds(size_bytes)

    def _start(self, size_bytes: float) -> float:
        taken = self.taken(size_bytes)
        if taken.algorithm == DIRECT:
            ring = _TOOK[LL].base + 2 * (_TOOK[LL].hop + self._farther(LL))
            return ring if self._short(size_bytes) else _PAIRWISE
        if taken.algorithm == NVLS:
            return _NVLS_TOOK
        if taken.protocol == LL:
            return self._ll_start(size_bytes)
        took = _TOOK[taken.protocol]
        earlier = _SIMPLE_PAIR if taken.protocol == SIMPLE and self.ranks == PAIR else 0.0
        return took.base - earlier + self.steps * (took.hop + self._farther(taken.protocol))

    def _ll_start(self, size_bytes: float) -> float:
        """Of LL, whose steps and channels cost more for larger messages."""
        took = _TOOK_PASSING if self.op in _PASSING else _TOOK[LL]
        doublings = min(math.log2(max(size_bytes / _LL_GROWS_FROM, 1.0)), _LL_DOUBLINGS)
        step = took.hop + _LL_GROWS * doublings + self._farther(LL)
        return took.base + self.steps * step + _LL_OPENS * math.log2(_channels(size_bytes))

    def _moving(self, size_bytes: float) -> float:
        taken = self.taken(size_bytes)
        if taken.algorithm == DIRECT:
            short = self._short(size_bytes)
            return self._sent(size_bytes) / (self._ll_rate if short else _PAIRWISE_SHARE * self.wire)
        if taken.algorithm == NVLS:
            return size_bytes / (_NVLS_SHARE * self.wire)
        if taken.protocol == LL:
            return self._ll(size_bytes)
        rate = SHARES.get(self.kind, SHARE) * self.wire
        rate *= _LL128_SHARE if taken.protocol == LL128 else 1.0
        return self._passes(size_bytes) * size_bytes / self.ranks / rate

    def host_seconds(self, size_bytes: float, *, one_process: bool, level: float = 1.0) -> float:
        """Of the launches of one operation, where no graph spares them.

        `level`: by what factor this host takes longer to launch a small one; what a larger one takes more
        does not grow with it.
        """
        if not one_process:
            return level * HOST_JOB
        each = _HOST_PAIRWISE if self.op in PAIRWISE - {SENDRECV} else _HOST.get(self.op, _HOST_OTHER)
        doublings = math.log2(max(size_bytes, _HOST_FROM) / _HOST_FROM)
        return self.ranks * (level * each + _HOST_DOUBLING * min(doublings, _HOST_DOUBLINGS))

    def host_source(self, *, one_process: bool) -> str:
        """Where the time of a launch is from."""
        return H100_4 if one_process else HOST_JOB_SOURCE

    @property
    def steps(self) -> int:
        """Of a ring; of the chain of broadcast and reduce NCCL counts the ranks."""
        if self.op == ALL_REDUCE:
            return 2 * (self.ranks - 1)
        return self.ranks if self.op in {BROADCAST, REDUCE} else self.ranks - 1

    def protocols(self) -> tuple[str, ...]:
        """NCCL trusts LL128 over NVLink alone."""
        return (LL, SIMPLE) if self.kind is WireKind.PCIE else (LL, LL128, SIMPLE)

    def cost(self, protocol: str, size_bytes: float) -> float:
        """NCCL's own estimate."""
        most = _TUNED_SHARE * self.wire
        rate = {LL: min(most / 2, self._tuned_ll), LL128: 0.92 * most, SIMPLE: most}[protocol]
        tuned = _TUNED[protocol]
        hop = _TUNED_PCIE[protocol] if self.kind is WireKind.PCIE else tuned.hop
        return tuned.base + self.steps * hop + size_bytes * self.steps / self.ranks / rate

    def _farther(self, protocol: str) -> float:
        """By how much a step over PCIe takes longer, as NCCL has it."""
        return _TUNED_PCIE[protocol] - _TUNED[protocol].hop if self.kind is WireKind.PCIE else 0.0

    @property
    def _tuned_ll(self) -> float:
        return _TUNED_LL.get(self.architecture, _TUNED_LL["Ampere"])

    def _ll(self, size_bytes: float) -> float:
        """LL sends eight bytes for four: its rate is that of all channels, or of the few that NCCL takes."""
        channels = _channels(size_bytes)
        rate, piece = self._ll_rate, size_bytes / self.ranks
        one = min(_LL_CHANNEL, rate)
        return max(self.steps * piece / channels / one, self._passes(size_bytes) * piece / rate)

    def _passes(self, size_bytes: float) -> float:
        return self.steps + _TAIL * math.pow(max(size_bytes / _TAIL_FROM, 1.0), -_TAIL_BENDS)

    def _short(self, size_bytes: float) -> bool:
        """Whether sends and receives go by LL, which is taken to be as quick as in a ring."""
        return self._sent(size_bytes) <= _PAIRWISE_LL * (1 if self.op == SENDRECV else self.ranks - 1)

    @property
    def _ll_rate(self) -> float:
        return min(_LL_RATE * self._tuned_ll, SHARES.get(self.kind, SHARE) * self.wire / 2)

    def _sent(self, size_bytes: float) -> float:
        """Bytes over the busiest GPU's wire."""
        return size_bytes if self.op == SENDRECV else size_bytes * (self.ranks - 1) / self.ranks


@lru_cache(1 << 12)
def _taken(model: CollectiveModel, size_bytes: float) -> NcclChoice:
    if model.op in PAIRWISE:
        return NcclChoice(DIRECT, SIMPLE)
    costs = {NcclChoice(RING, protocol): model.cost(protocol, size_bytes) for protocol in model.protocols()}
    if model.nvls:
        share = size_bytes * model.steps / model.ranks / (_TUNED_SHARE * model.wire)
        costs[NcclChoice(NVLS, SIMPLE)] = _TUNED_NVLS.base + share
    return min(costs, key=lambda one: costs[one])


def _channels(size_bytes: float) -> float:
    """How many LL takes."""
    return min(max(size_bytes / _CHANNEL, 1.0), _CHANNELS)
