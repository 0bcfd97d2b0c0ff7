"""The probe's series. Results only while they are fresh: an old busbw says nothing about now."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from wirewatch.core.probe import Document, Probed
from wirewatch.core.types import Kind, Metric, Sample
from wirewatch.nccl.log import Wire, wire
from wirewatch.probe.gate import Reason
from wirewatch.probe.measurement import Measured, comms_of
from wirewatch.probe.model import Memory, Reading

OUTCOMES = ("ok", "preempted", "no_engine", "out_of_memory", "failed", "timeout", "garbage", "stuck", "away")
WORST_FIRST: tuple[Wire, ...] = (
    "net_socket", "net_other", "unknown", "net_ib", "net_ib_gdr", "shm", "p2p", "nvls",
)  # fmt: skip
UNEVEN, RULES, LINK = "probe.uneven", "straggler.", "link"
"""The rules that name a slow part, and the signal of the one that has a name of its own."""
_AT = ("op", "size_bytes", "ranks", "gpus")
_UNPROVEN = "8 GPUs, islands, NVLink SHARP, PCIe and bridges"

BUSBW = Metric(
    "probe_busbw_bytes_per_second", Kind.GAUGE, _AT,
    "Bus bandwidth as nccl-tests counts it, by size of the message; gpus is `all` or indexes.", _UNPROVEN,
)  # fmt: skip
EXPECTED = Metric(
    "probe_expected_busbw_bytes_per_second", Kind.GAUGE, _AT,
    "What NCCL's defaults should give on this topology at that size; no series where nothing is known.",
    _UNPROVEN,
)  # fmt: skip
RATIO = Metric(
    "probe_busbw_ratio", Kind.GAUGE, _AT, "Measured over expected at that size; below 0.7 is a fault.",
    _UNPROVEN,
)  # fmt: skip
PEAK_RATIO = Metric(
    "probe_busbw_peak_ratio", Kind.GAUGE, _AT,
    "Measured over the wire of one GPU each way; a healthy ring reaches 0.76, NVLink SHARP may exceed 1.",
    _UNPROVEN,
)  # fmt: skip
KNOWN = Metric(
    "probe_expected_known",
    Kind.GAUGE,
    _AT,
    "1 when there is something to compare this busbw with.",
    undrawn="where nothing is expected there is no ratio",
)
LATENCY = Metric(
    "probe_latency_seconds", Kind.GAUGE, ("op", "ranks", "gpus"),
    "Time of the smallest message, launched as a CUDA graph.", _UNPROVEN,
)  # fmt: skip
PATH = Metric(
    "probe_path_info", Kind.INFO, ("op", "ranks", "gpus", "transport", "algorithm", "protocol", "engine"),
    "How NCCL says that the largest message went; transport is the worst between two GPUs.", _UNPROVEN,
)  # fmt: skip
RUNS = Metric("probe_runs_total", Kind.COUNTER, ("result",), "Probes by how they ended, since start.")
SKIPS = Metric(
    "probe_skips_total", Kind.COUNTER, ("reason",),
    "Times a probe was due and did not run; a lasting reason counts once in the time between probes.",
)  # fmt: skip
LAST = Metric(
    "probe_last_success_timestamp_seconds", Kind.GAUGE, (), "When the last complete probe began; 0 for never."
)
DURATION = Metric(
    "probe_duration_seconds", Kind.GAUGE, (), "How long the newest probe took, from start to its end."
)
SECONDS = Metric(
    "probe_gpu_seconds_total", Kind.COUNTER, (),
    "GPU-seconds for which probes held contexts, since start: seconds times GPUs.",
)  # fmt: skip
FRESH = Metric("probe_fresh", Kind.GAUGE, (), "1 while the results of the last complete probe are exported.")
PEER = Metric(
    "peer_bandwidth_bytes_per_second", Kind.GAUGE, ("src", "dst"),
    "Copy between the memories of two GPUs by index, while both directions of disjoint pairs run.", _UNPROVEN,
)  # fmt: skip
SCORE = Metric(
    "straggler_score", Kind.GAUGE, ("gpu", "uuid", "signal"),
    "How much slower this part of a GPU is than its own history or its peers, in standard deviations of the "
    "noise; what is above 4 and costs enough is a straggler. Below 0 it is faster.", _UNPROVEN,
)  # fmt: skip
STRAGGLER = Metric(
    "straggler", Kind.GAUGE, ("gpu", "uuid", "signal"),
    "1 for a GPU that is believed to be slow, by what of it is; no series where nothing is.", _UNPROVEN,
)  # fmt: skip
METRICS = (
    BUSBW, EXPECTED, RATIO, PEAK_RATIO, KNOWN, LATENCY, PATH, RUNS, SKIPS, LAST, DURATION, SECONDS, FRESH,
    PEER, SCORE, STRAGGLER,
)  # fmt: skip


def samples(_reading: Reading, memory: Memory) -> Iterator[Sample]:
    for outcome in OUTCOMES:
        yield RUNS.sample(memory.runs.get(outcome, 0), outcome)
    for reason in Reason:
        yield SKIPS.sample(memory.skips.get(reason, 0), reason.value)
    yield LAST.sample(memory.last.at if memory.last else 0)
    yield SECONDS.sample(memory.gpu_seconds)
    yield FRESH.sample(memory.fresh)
    if memory.tried is not None:
        yield DURATION.sample(memory.tried.seconds)
    yield from _named(memory)
    if memory.fresh and memory.last is not None:
        yield from results(memory.last, memory.measured)
        yield from _scores(memory, memory.last)


def results(probed: Probed, measured: Sequence[Measured]) -> Iterator[Sample]:
    """What one complete probe measured."""
    for one in measured:
        if not one.latency:
            yield from _bandwidth(one)
    yield from _latencies(measured)
    yield from _paths(probed, measured)
    if probed.document is not None:
        yield from _peers(probed, probed.document)


def _named(memory: Memory) -> Iterator[Sample]:
    """As long as it is held, as findings are: nobody looks while GPUs are busy."""
    for found in memory.held:
        signal = LINK if found.rule == UNEVEN else found.rule.removeprefix(RULES)
        if found.subject.uuid and (found.rule == UNEVEN or found.rule.startswith(RULES)):
            yield STRAGGLER.sample(1, found.subject.gpu, found.subject.uuid, signal)


def _scores(memory: Memory, probed: Probed) -> Iterator[Sample]:
    places = {gpu.uuid: str(gpu.index) for gpu in probed.gpus}
    for unit, score in memory.stragglers.named.scores.items():
        if unit.uuid in places:
            yield SCORE.sample(score, places[unit.uuid], unit.uuid, unit.resource.value)


def _bandwidth(one: Measured) -> Iterator[Sample]:
    labels = (one.op, str(one.size_bytes), str(one.ranks), one.gpus)
    yield BUSBW.sample(one.busbw, *labels)
    yield KNOWN.sample(one.trusted is not None, *labels)
    if one.trusted is not None:
        yield EXPECTED.sample(one.trusted.busbw, *labels)
    for metric, ratio in ((RATIO, one.ratio), (PEAK_RATIO, one.peak_ratio)):
        if ratio is not None:
            yield metric.sample(ratio, *labels)


def _latencies(measured: Iterable[Measured]) -> Iterator[Sample]:
    smallest: dict[tuple[str, str, str], Measured] = {}
    for one in measured:
        key = (one.op, str(one.ranks), one.gpus)
        if one.latency and (key not in smallest or one.size_bytes < smallest[key].size_bytes):
            smallest[key] = one
    for key, one in smallest.items():
        yield LATENCY.sample(one.seconds, *key)


def _paths(probed: Probed, measured: Iterable[Measured]) -> Iterator[Sample]:
    largest: dict[tuple[str, str, str], Measured] = {}
    for one in measured:
        key = (one.op, str(one.ranks), one.gpus)
        if not one.latency and (key not in largest or one.size_bytes > largest[key].size_bytes):
            largest[key] = one
    for key, one in largest.items():
        way = transport(probed, (one.group,))
        yield PATH.sample(1, *key, way, one.algorithm, one.protocol, probed.plan.engine)


def transport(probed: Probed, groups: Collection[int]) -> str:
    """The worst way between two GPUs of these groups; empty where NCCL's log does not tell."""
    ways = {wire(c.transport) for comm in comms_of(probed, groups) for c in comm.connections}
    return next((way for way in WORST_FIRST if way in ways), "")


def _peers(probed: Probed, document: Document) -> Iterator[Sample]:
    names = [str(gpu.index) for gpu in probed.gpus]
    for copy in document.copies if names else ():
        yield PEER.sample(copy.size_bytes / copy.seconds, names[copy.source], names[copy.destination])
