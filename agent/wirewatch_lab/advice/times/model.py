"""Times of collectives inside one node by their structure: steps, protocols, launches. Pure.

NCCL's tuner decides which algorithm runs (src/graph/tuning.cc and its cost of each algorithm and protocol,
2.28 to 2.30). Its own latencies and bandwidths reproduce its logs. On 8 H200 they give Ring throughout: LL up
to 2 MiB, LL128 from 4 to 32 MiB, Simple from 64 MiB. A few figures give its time:

    time on the GPUs = base + steps x hop + (steps + tail) x size / ranks / rate

`base` and `hop` by protocol; `rate` is a share of the wire. A ring has one further pass, in which a GPU
receives the last piece and sends nothing. The share `tail` of it counts, less for large messages. Therefore
two GPUs reach less of the wire than eight. A separately launched operation takes at least as long as its
launch on the host.

These figures reproduce busbw.curves; proof/lab/times.md says how well.
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
    """Seconds of a protocol: its start, and each step."""

    base: float
    hop: float


_TUNED: Mapping[str, Latency] = {
    LL: Latency(6.6e-6, 0.6e-6), LL128: Latency(14.0e-6, 1.9e-6), SIMPLE: Latency(8.4e-6, 3.4e-6),
}  # fmt: skip
"""Latencies by which NCCL chooses, Ring over NVLink; its real latencies differ."""
_TUNED_PCIE: Mapping[str, float] = {LL: 1.0e-6, LL128: 2.5e-6, SIMPLE: 5.7e-6}
"""Seconds of a Ring step over PCIe, by which NCCL chooses."""
_TUNED_SHARE = 360 / 478.1
"""Share of the wire that NCCL's search gives a ring: 24 channels of 15 GB/s on Hopper."""
_TUNED_LL: Mapping[str, float] = {"Volta": 39e9, "Ampere": 87.7e9, "Hopper": 141e9, "Blackwell": 282e9}
"""The highest busbw that NCCL assumes for LL on one node, in bytes per second."""
_TUNED_NVLS = Latency(25e-6, 0.0)
_TOOK: Mapping[str, Latency] = {
    LL: Latency(4.7e-6, 1.02e-6), LL128: Latency(13.9e-6, 1.7e-6), SIMPLE: Latency(22.2e-6, 0.94e-6),
}  # fmt: skip
"""Measured latencies over NVLink, on 2 and 8 H200 and 4 H100."""
_PASSING, _TOOK_PASSING = frozenset({ALL_GATHER, REDUCE_SCATTER}), Latency(4.3e-6, 1.7e-6)
"""LL latency where the ring only gathers or scatters: 6.0 us on 2 H200, 9.7 on 4."""
_LL_GROWS, _LL_GROWS_FROM, _LL_DOUBLINGS = 0.013e-6, 8, 15
"""Extra seconds of an LL step for each doubling of the message, from 8 B to 256 KiB: 2 and 4 H200."""
_LL_OPENS = 0.22e-6
"""Seconds for each doubling of the channels that LL opens: 2 and 4 H200."""
_LL_RATE = 1.42
"""Ratio of LL's reached rate to `_TUNED_LL` with its channels open: 200 GB/s on 2 and 4 H200."""
_LL_CHANNEL = 30e9
"""Bytes per second of an LL channel; NCCL adds a channel for each 32 KiB."""
_CHANNEL, _CHANNELS = 32 * KIB, 24
SHARES: Mapping[WireKind, float] = {WireKind.PCIE: 0.85}
"""Share of the wire that Simple reaches, where it is not `SHARE`: 4 RTX 4090 on one host bridge."""
SHARE = 0.767
_LL128_SHARE = 120 / 128
_PAIRWISE_SHARE = 0.7
"""Share of the wire in alltoall: 8 H200, from 64 MiB to 4 GiB."""
_PAIRWISE = 38e-6
_PAIRWISE_LL = 16 * KIB
"""Bytes up to which NCCL sends between two ranks by LL (src/enqueue.cc)."""
_SIMPLE_PAIR = 5.0e-6
"""Seconds that Simple saves between two GPUs, which pass no piece on: 2 H200."""
_TAIL, _TAIL_BENDS, _TAIL_FROM = 0.49, 0.26, 128 * MIB
"""Share of the last pass, equal for all collectives, up to `_TAIL_FROM`; above that it falls."""
_NVLS_TOOK, _NVLS_SHARE = 55e-6, 0.56
"""Seconds and share of NVLS: each GPU sends its message once, and the switch adds up. It gives 251 GB/s on 4
H100, 266 on 6."""
_HOST: Mapping[str, float] = {ALL_REDUCE: 5.75e-6, ALL_GATHER: 4.2e-6, REDUCE_SCATTER: 5.35e-6}
"""Seconds of a launch by nccl-tests, on the host of 4 H100; the host of 8 H200 took 6 us."""
_HOST_OTHER, _HOST_PAIRWISE = 4.8e-6, 8.5e-6
_HOST_DOUBLING, _HOST_FROM, _HOST_DOUBLINGS = 0.15e-6, 4 * KIB, 7
"""Extra seconds of a launch with more channels, for each doubling of the message from 4 KiB to 512 KiB. It
was 0.17 us on the host of 4 H100, 0.09 on the host of 4 H200."""
_HOST_JOB = next(c for c in CURVES if c.launch == "eager" and not c.one_process)
HOST_JOB, HOST_JOB_SOURCE = _HOST_JOB.sizes[0][1], _HOST_JOB.source
"""Seconds of a torch.distributed operation in a job with a process for each GPU."""


@dataclass(frozen=True, slots=True)
class NcclChoice:
    """NCCL's choice: algorithm and protocol by the names in its log."""

    algorithm: str
    protocol: str

    def __str__(self) -> str:
        return self.algorithm if self.algorithm == DIRECT else f"{self.algorithm} {self.protocol}"


@dataclass(frozen=True, slots=True)
class CollectiveModel:
    """A collective of so many GPUs of one node.

    `wire`: bytes per second of one GPU each way. `nvls`: the tuner may take NVLS here. Sizes are nccl-tests'.
    """

    op: str
    ranks: int
    kind: WireKind
    architecture: str
    wire: float
    nvls: bool = False

    def taken(self, size_bytes: float) -> NcclChoice:
        """Return the choice of NCCL's tuner for a size."""
        return _taken(self, size_bytes)

    def gpu_seconds(self, size_bytes: float) -> float:
        """Return seconds from the first step to the last, as for operations of one CUDA graph."""
        return self._start(size_bytes) + self._moving(size_bytes)

    def latency_share(self, size_bytes: float) -> float:
        """Return the share of that time that does not grow with the message."""
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
        """Return the start of LL, whose steps and channels cost more for larger messages."""
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
        """Return seconds of an operation's launches, where no graph avoids them.

        `level`: this host's factor for a small launch; the extra time of a larger launch does not scale with
        it.
        """
        if not one_process:
            return level * HOST_JOB
        each = _HOST_PAIRWISE if self.op in PAIRWISE - {SENDRECV} else _HOST.get(self.op, _HOST_OTHER)
        doublings = math.log2(max(size_bytes, _HOST_FROM) / _HOST_FROM)
        return self.ranks * (level * each + _HOST_DOUBLING * min(doublings, _HOST_DOUBLINGS))

    def host_source(self, *, one_process: bool) -> str:
        """Return the source of the launch time."""
        return H100_4 if one_process else HOST_JOB_SOURCE

    @property
    def steps(self) -> int:
        """Return the steps of a ring; for the chain of broadcast and reduce, NCCL counts the ranks."""
        if self.op == ALL_REDUCE:
            return 2 * (self.ranks - 1)
        return self.ranks if self.op in {BROADCAST, REDUCE} else self.ranks - 1

    def protocols(self) -> tuple[str, ...]:
        """Return the usable protocols: NCCL trusts LL128 only over NVLink."""
        return (LL, SIMPLE) if self.kind is WireKind.PCIE else (LL, LL128, SIMPLE)

    def cost(self, protocol: str, size_bytes: float) -> float:
        """Return NCCL's own estimate."""
        most = _TUNED_SHARE * self.wire
        rate = {LL: min(most / 2, self._tuned_ll), LL128: 0.92 * most, SIMPLE: most}[protocol]
        tuned = _TUNED[protocol]
        hop = _TUNED_PCIE[protocol] if self.kind is WireKind.PCIE else tuned.hop
        return tuned.base + self.steps * hop + size_bytes * self.steps / self.ranks / rate

    def _farther(self, protocol: str) -> float:
        """Return NCCL's extra time of a step over PCIe."""
        return _TUNED_PCIE[protocol] - _TUNED[protocol].hop if self.kind is WireKind.PCIE else 0.0

    @property
    def _tuned_ll(self) -> float:
        return _TUNED_LL.get(self.architecture, _TUNED_LL["Ampere"])

    def _ll(self, size_bytes: float) -> float:
        """Return LL's transfer time: LL sends eight bytes for four, over all channels or NCCL's few."""
        channels = _channels(size_bytes)
        rate, piece = self._ll_rate, size_bytes / self.ranks
        one = min(_LL_CHANNEL, rate)
        return max(self.steps * piece / channels / one, self._passes(size_bytes) * piece / rate)

    def _passes(self, size_bytes: float) -> float:
        return self.steps + _TAIL * math.pow(max(size_bytes / _TAIL_FROM, 1.0), -_TAIL_BENDS)

    def _short(self, size_bytes: float) -> bool:
        """Return whether sends and receives use LL, assumed as fast as in a ring."""
        return self._sent(size_bytes) <= _PAIRWISE_LL * (1 if self.op == SENDRECV else self.ranks - 1)

    @property
    def _ll_rate(self) -> float:
        return min(_LL_RATE * self._tuned_ll, SHARES.get(self.kind, SHARE) * self.wire / 2)

    def _sent(self, size_bytes: float) -> float:
        """Return bytes over the busiest GPU's wire."""
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
    """Return the number of channels that LL takes."""
    return min(max(size_bytes / _CHANNEL, 1.0), _CHANNELS)
