"""Each collective beside what it usually gives on this node, by the node's own accepted probes. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from wirewatch.busbw.references import LEAST_BYTES
from wirewatch.core.probe import Probed
from wirewatch.nccl.settings import slowing_settings
from wirewatch.probe.measurement import Measured
from wirewatch.verdict.ratehistory import AcceptedRates


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective at one size over GPUs by UUID; `conditions`: engine, NCCL, and what slows it."""

    op: str
    size_bytes: int
    gpus: tuple[str, ...]
    conditions: str


CollectiveRates = AcceptedRates[Collective]
"""Bus bandwidths of accepted probes by collective."""


def beside_usual(
    probed: Probed, measured: Sequence[Measured], history: CollectiveRates, least: int
) -> tuple[Measured, ...]:
    """What was measured, with what is usual where at least `least` accepted probes say so."""
    usual = {id(one): history.of(key, "", least) for key, one in _collectives(probed, measured)}
    return tuple(replace(one, usual=usual.get(id(one))) for one in measured)


def learn_collectives(
    history: CollectiveRates, probed: Probed, measured: Sequence[Measured]
) -> CollectiveRates:
    """The history after a probe that found nothing."""
    rates = {key: one.busbw for key, one in _collectives(probed, measured)}
    return history.learned("", rates, probed.at)


def _collectives(probed: Probed, measured: Sequence[Measured]) -> Iterator[tuple[Collective, Measured]]:
    """Those that measure the bandwidth of GPUs: smaller messages measure latency, gloo processors."""
    if not probed.gpus:
        return
    version = probed.document.versions.get("nccl", "") if probed.document else ""
    slowing = (f"{name}={value}" for name, value, _ in slowing_settings(probed.settings))
    conditions = " ".join((probed.plan.engine, version, *sorted(slowing)))
    for one in measured:
        if not one.latency and one.size_bytes >= LEAST_BYTES:
            gpus = tuple(probed.plan.gpus[place] for place in probed.plan.groups[one.group])
            yield Collective(one.op, one.size_bytes, gpus, conditions), one
