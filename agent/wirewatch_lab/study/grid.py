"""The measurements of a sweep: curves from its options, and gaps of an operation or of this machine. Pure.

The rules follow NCCL 2.30 on one node: src/graph/tuning.cc (ncclTopoTuneModel) lists the algorithms and
protocols of each operation. A communicator's limits are in src/enqueue.cc (updateCollCostTable) and
src/init.cc (initTransportsRank). NVLS depends on src/transport/nvls.cc (ncclNvlsInit) and src/graph/search.cc
(ncclTopoCompute). Sizes are rounded as in nccl-tests (src/*.cu, GetCollByteCount).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

from wirewatch.busbw.formulas import NVLS, PAIRWISE, RING, TREE
from wirewatch.core import probe, words
from wirewatch.nccl.settings import NVLS_ENABLE, number
from wirewatch_lab.study.curve import AUTO, Configuration

COLLNET_DIRECT, COLLNET_CHAIN, NVLS_TREE, PAT = "CollNetDirect", "CollNetChain", "NVLSTree", "PAT"
SIMPLE, LL, LL128 = "Simple", "LL", "LL128"
ALGORITHMS = (RING, TREE, NVLS, NVLS_TREE, COLLNET_DIRECT, COLLNET_CHAIN, PAT)
PROTOCOLS = (SIMPLE, LL, LL128)
"""Protocols by the names that NCCL_PROTO takes, as algorithms by NCCL_ALGO's (src/init.cc)."""
EAGER, GRAPH = "eager", "graph"
SMALLEST = 8
"""Bytes of the smallest message."""
PIECE = 16
"""nccl-tests rounds each rank's piece down to a multiple of these bytes."""
_REDUCES = frozenset({probe.ALL_REDUCE, probe.REDUCE_SCATTER})
_HAVE: Mapping[str, frozenset[str]] = {
    **dict.fromkeys((TREE, NVLS_TREE, COLLNET_CHAIN), frozenset({probe.ALL_REDUCE})),
    **dict.fromkeys((NVLS, COLLNET_DIRECT), frozenset(probe.OPS)),
    RING: frozenset({*probe.OPS, probe.BROADCAST, probe.REDUCE}),
    PAT: frozenset({probe.ALL_GATHER, probe.REDUCE_SCATTER}),
}
"""The operations of each algorithm."""
_ANY_PROTOCOL = frozenset({AUTO, RING, TREE})
_BETWEEN_NODES = {
    NVLS_TREE: "NCCL uses it between nodes alone",
    COLLNET_DIRECT: "it takes a network that reduces, and two nodes",
    COLLNET_CHAIN: "it takes a network that reduces, and two nodes",
    PAT: "NCCL connects it with one GPU a node alone",
}
_NVLS_TYPES = frozenset(probe.DTYPES) - {"int8", "uint8"}
"""Element types that NVLS adds up (src/include/device.h, ncclNvlsSupported)."""
_NEW = frozenset({"Hopper", "Blackwell"})
"""Architectures with NVLS, and with LL128 also between different architectures."""


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """The options of a sweep.

    No `sizes` (bytes): powers of two up to what memory allows; no `ranks`: all GPUs.

    `varied`: settings of NCCL with their values, where an empty value leaves the setting as it is found.
    `iterations`: timed runs of each size, None for a number that suits it. `repeats`: passes over everything.
    """

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid"}

    engine: str
    ops: tuple[str, ...] = probe.OPS
    sizes: tuple[int, ...] = ()
    algorithms: tuple[str, ...] = (AUTO,)
    protocols: tuple[str, ...] = (AUTO,)
    ranks: tuple[int, ...] = ()
    registered: tuple[bool, ...] = (False,)
    launches: tuple[str, ...] = (EAGER,)
    varied: tuple[tuple[str, tuple[str, ...]], ...] = ()
    dtype: str = "float32"
    in_place: bool = True
    iterations: int | None = None
    repeats: int = 5

    def runs_in_place(self, op: str) -> bool:
        """Return whether an operation runs in place."""
        return self.in_place and op not in probe.OUT_OF_PLACE


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The machine's means for a sweep.

    `gpus`: number of GPUs, or of processes of the gloo engine. `nvlink`: how many of the first GPUs all reach
    each other over NVLink, through a switch if `switch`. `architectures` of the GPUs, without unknown
    architectures. `multicast`: whether the driver supports NVLS, None where not known. `settings`: NCCL's, as
    found. `memory`: bytes available to a buffer. `without`: operations that the engine lacks.
    """

    engine: str
    gpus: int
    memory: int
    nvlink: int = 0
    switch: bool = False
    architectures: frozenset[str] = frozenset()
    multicast: bool | None = None
    settings: tuple[tuple[str, str], ...] = ()
    without: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class GridCurve:
    """A curve to measure: sizes in bytes, the smallest first."""

    __pydantic_config__: ClassVar[dict[str, object]] = {"extra": "forbid"}

    op: str
    configuration: Configuration
    sizes: tuple[int, ...]

    def case(self, size_bytes: int, iterations: int | None) -> probe.Case:
        """Return the measurement of a size; without `iterations`, as many runs as suit the size."""
        launch: probe.Launch = "graph" if self.configuration.launch == GRAPH else "stream"
        return probe.Case(0, self.op, size_bytes, launch, iterations or usual_iterations(size_bytes))


@dataclass(frozen=True, slots=True)
class Grid:
    """All curves of a sweep; `not_offered`: requested parts that do not exist, in words, each once."""

    curves: tuple[GridCurve, ...]
    not_offered: tuple[str, ...]


def make_grid(options: SweepOptions, here: Capabilities) -> Grid:
    """Return all combinations of the options that exist here."""
    curves: list[GridCurve] = []
    missing: dict[str, None] = {}
    large = [size for size in options.sizes if size > here.memory]
    if large:
        missing[f"{words.size(min(large))} and more: a buffer has {words.size(here.memory)} at most"] = None
    for op, configuration in product(options.ops, configurations(options, here.gpus)):
        why = not_offered(op, configuration, here, options.dtype)
        sizes = () if why else fitting(options, op, configuration.ranks, here.memory)
        if sizes:
            curves.append(GridCurve(op, configuration, sizes))
        elif why or not large:
            missing[why or f"{op}: no size has {PIECE} B for each of {configuration.ranks} ranks"] = None
    return Grid(tuple(curves), tuple(missing))


def configurations(options: SweepOptions, gpus: int) -> Iterator[Configuration]:
    """Yield all combinations, whether they exist or not."""
    names = [name for name, _ in options.varied]
    every = product(*(values for _, values in options.varied))
    settings = [tuple(sorted(one for one in zip(names, values, strict=True) if one[1])) for values in every]
    ranks, ways = options.ranks or (gpus,), (options.algorithms, options.protocols, options.launches)
    for chosen in product(ranks, *ways, options.registered, settings):
        yield Configuration(*chosen)


def fitting(options: SweepOptions, op: str, ranks: int, memory: int) -> tuple[int, ...]:
    """Return a curve's sizes in bytes, rounded as nccl-tests does, each once; none of zero bytes."""
    asked = options.sizes or powers(SMALLEST, memory)
    found = {aligned(op, size, ranks, probe.DTYPES[options.dtype]) for size in asked if size <= memory}
    return tuple(sorted(found - {0}))


def powers(first: int, last: int, factor: int = 2) -> tuple[int, ...]:
    """Return `first`, then sizes that each multiply the last by `factor`, up to `last`; all in bytes."""
    sizes = []
    while first <= last:
        sizes.append(first)
        first *= factor
    return tuple(sizes)


def aligned(op: str, size_bytes: int, ranks: int, element_bytes: int) -> int:
    """Return the message size that nccl-tests runs for a requested size, in bytes; 0 if it is too small."""
    if op not in probe.DIVIDED:
        return size_bytes // element_bytes * element_bytes
    return size_bytes // ranks // PIECE * PIECE * ranks


def usual_iterations(size_bytes: int) -> int:
    """Return how often to time a size in a row: as nccl-tests, small sizes more often, the largest less."""
    if size_bytes <= 64 * probe.KIB:
        return 50
    return 20 if size_bytes <= 512 * probe.MIB else 10


def not_offered(op: str, wanted: Configuration, here: Capabilities, dtype: str) -> str:
    """Return why an operation lacks this configuration here, in words; empty where it exists."""
    if wanted.ranks > here.gpus:
        return f"{wanted.ranks} GPUs: there are {here.gpus}"
    if wanted.ranks < 2:  # noqa: PLR2004
        return f"{wanted.ranks} GPU: it has nothing to send to"
    by_kind = _by_engine(op, wanted, here) or _by_operation(op, wanted)
    return by_kind or _by_algorithm(op, wanted, here, dtype) or _by_protocol(wanted, here)


def _by_engine(op: str, wanted: Configuration, here: Capabilities) -> str:
    """Return operations and values that the engine lacks."""
    engine = here.engine
    if op in here.without:
        return f"{op}: engine {engine} does not have it in that form"
    if engine == "gloo":
        names = (wanted.algorithm, wanted.protocol, *(name for name, _ in wanted.settings))
        chosen = [name for name in names if name != AUTO]
        if chosen:
            return f"{chosen[0]}: engine gloo has nothing of NCCL"
    if engine != "nccl" and wanted.registered:
        return f"registered buffers: engine {engine} registers none"
    if engine != "nccl" and wanted.launch == GRAPH:
        return f"CUDA graphs: engine {engine} launches one operation after the other"
    return ""


def _by_operation(op: str, wanted: Configuration) -> str:
    if op in PAIRWISE:
        if wanted.algorithm != AUTO:
            return f"{op} with {wanted.algorithm}: sends and receives, of which it is made, have none"
        if wanted.protocol != AUTO:
            return f"{op} with {wanted.protocol}: the protocol of sends follows from the size"
    elif wanted.algorithm != AUTO and op not in _HAVE[wanted.algorithm]:
        have = ", ".join(name for name in ALGORITHMS if op in _HAVE[name])
        return f"{op} with {wanted.algorithm}: NCCL has {have} for it"
    return ""


def _by_algorithm(op: str, wanted: Configuration, here: Capabilities, dtype: str) -> str:
    if wanted.algorithm in _BETWEEN_NODES:
        return f"{wanted.algorithm}: {_BETWEEN_NODES[wanted.algorithm]}"
    if wanted.algorithm not in _ANY_PROTOCOL and wanted.protocol not in {AUTO, SIMPLE}:
        return f"{wanted.algorithm} with {wanted.protocol}: it has {SIMPLE} alone"
    if wanted.algorithm != NVLS:
        return ""
    if dtype not in _NVLS_TYPES and op in _REDUCES:
        return f"{NVLS} with {dtype}: switches do not add that up"
    return _without_nvls(wanted, here)


def _without_nvls(wanted: Configuration, here: Capabilities) -> str:
    setting = {**dict(here.settings), **dict(wanted.settings)}.get(NVLS_ENABLE) or "2"
    if number(setting) == 0:
        return f"{NVLS}: switched off by {NVLS_ENABLE}={setting}"
    if not here.switch or wanted.ranks > here.nvlink:
        return f"{NVLS}: no NVLink switch joins these {wanted.ranks} GPUs"
    if not here.architectures <= _NEW:
        return f"{NVLS}: it takes Hopper or newer, not {', '.join(sorted(here.architectures - _NEW))}"
    if here.multicast is False and number(setting) != 1:
        return f"{NVLS}: the driver offers no multicast"
    return ""


def _by_protocol(wanted: Configuration, here: Capabilities) -> str:
    """Return why LL128 is not to be trusted; it needs stores of 128 bytes that stay whole.

    NCCL obeys NCCL_PROTO even without this guarantee.
    """
    if wanted.protocol != LL128:
        return ""
    if wanted.ranks > here.nvlink:
        return f"{LL128}: NCCL trusts it over NVLink alone, elsewhere its data may be wrong"
    if len(here.architectures) > 1 and not here.architectures <= _NEW:
        return f"{LL128}: NCCL trusts it between GPUs of one architecture alone"
    return ""
