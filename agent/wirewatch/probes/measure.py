"""From what a probe timed to bus bandwidths, beside what they should be. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from wirewatch.busbw.expected import Expectation, expect
from wirewatch.busbw.formulas import asymptote, busbw
from wirewatch.busbw.references import Confidence
from wirewatch.core.probe import Probed, Timed
from wirewatch.core.types import Absent, Why
from wirewatch.nccl.log import algorithms, size_told

GPU_ENGINES = frozenset({"nccl", "torch"})
NOT_GPUS = Absent(Why.UNSUPPORTED, "the gloo engine measures this machine's processors, not its GPUs")


@dataclass(frozen=True, slots=True)
class Measured:
    """One collective at one size over one group: bus bandwidths in bytes per second.

    `best` is that of the fastest single run. `algorithm` and `protocol` as NCCL told, empty where it did not.
    """

    group: int
    gpus: str
    ranks: int
    op: str
    size_bytes: int
    seconds: float
    busbw: float
    best: float
    lowest: float
    wrong: int
    latency: bool
    algorithm: str
    protocol: str
    expected: Expectation | Absent

    @property
    def trusted(self) -> Expectation | None:
        """The expectation, unless it is of low confidence: that is for people, not for verdicts."""
        if isinstance(self.expected, Absent) or self.expected.confidence is Confidence.LOW:
            return None
        return self.expected

    @property
    def ratio(self) -> float | None:
        """Of what is expected at that size; None where nothing is known well enough to compare with."""
        reference = self.trusted
        return None if reference is None else self.busbw / reference.busbw

    @property
    def best_ratio(self) -> float | None:
        reference = self.trusted
        return None if reference is None else self.best / reference.busbw

    @property
    def peak_ratio(self) -> float | None:
        """Of the wire of one GPU each way."""
        if isinstance(self.expected, Absent) or isinstance(self.expected.peak, Absent):
            return None
        return self.busbw / self.expected.peak


def measure(probed: Probed) -> tuple[Measured, ...]:
    """Everything timed, in the order of the plan; nothing for a probe that was broken off."""
    document = probed.document
    if document is None or probed.outcome != "ok":
        return ()
    told = algorithms(probed.account) if probed.account else {}
    version = probed.account.version if probed.account else Absent(Why.MISSING)
    small = frozenset(probed.plan.latency_sizes)
    found = []
    for timed in document.collectives:
        ranks = len(probed.plan.groups[timed.group])
        asked = size_told(timed.op, timed.size_bytes, ranks, version)
        algorithm, protocol = told.get((timed.op, asked)) or told.get(("", asked)) or ("", "")
        found.append(
            Measured(
                group=timed.group,
                gpus=gpu_names(probed, timed.group),
                ranks=ranks,
                op=timed.op,
                size_bytes=timed.size_bytes,
                seconds=timed.seconds,
                busbw=_busbw(timed, ranks, timed.seconds),
                best=_busbw(timed, ranks, timed.low),
                lowest=_busbw(timed, ranks, timed.high),
                wrong=timed.wrong,
                latency=timed.size_bytes in small,
                algorithm=algorithm,
                protocol=protocol,
                expected=_expected(probed, timed),
            )
        )
    return tuple(found)


def _busbw(timed: Timed, ranks: int, seconds: float) -> float:
    return busbw(timed.op, ranks, timed.size_bytes, seconds) if seconds > 0 else 0.0


def _expected(probed: Probed, timed: Timed) -> Expectation | Absent:
    if probed.plan.engine not in GPU_ENGINES:
        return NOT_GPUS
    conditions = probed.conditions[timed.group]
    if isinstance(conditions.multicast, Absent) and probed.account and probed.account.nvls:
        # Whether the driver offers what NVLS needs is known once NCCL has asked it.
        offered = all(device.available for device in probed.account.nvls)
        conditions = replace(conditions, multicast=offered)
    return expect(conditions, timed.op, timed.size_bytes)


def gpu_names(probed: Probed, group: int) -> str:
    """The GPUs of a group by index: `all`, or like `0-3` and `0,2,4`."""
    members = probed.plan.groups[group]
    if len(members) == len(probed.plan.gpus):
        return "all"
    indexes = sorted(probed.gpus[p].index if p < len(probed.gpus) else p for p in members)
    parts: list[list[int]] = []
    for index in indexes:
        if parts and index == parts[-1][-1] + 1:
            parts[-1].append(index)
        else:
            parts.append([index])
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


def asymptotes(measured: Iterable[Measured]) -> dict[tuple[int, str], float]:
    """Bus bandwidth that ever larger messages tend to, by group and op, of the line through all sizes."""
    points: dict[tuple[int, str], list[Measured]] = {}
    for one in measured:
        if not one.latency:
            points.setdefault((one.group, one.op), []).append(one)
    found = {}
    for key, ones in points.items():
        value = asymptote(key[1], ones[0].ranks, [(one.size_bytes, one.seconds) for one in ones])
        if not isinstance(value, Absent):
            found[key] = value
    return found
