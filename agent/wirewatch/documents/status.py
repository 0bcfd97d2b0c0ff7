"""The document of `wirewatch status`: a node in few values, made of the documents that the daemon gives."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from wirewatch.core.hostlist import natural
from wirewatch.core.statistics import grouped
from wirewatch.documents.adapter import TypeAdapter
from wirewatch.documents.health import (
    CollectorAge,
    GpuStatus,
    HeadlineProbe,
    NicStatus,
    PathStatus,
    PortStatus,
    StatusDocument,
    StatusJob,
)
from wirewatch.documents.jobs import ExplainedJob, JobsDocument
from wirewatch.documents.probes import ProbeDocument, ProbesDocument
from wirewatch.documents.state import PREFIX, CollectorState, FindingsDocument, StateDocument
from wirewatch.jobs.explain.spending import ledger_shares

ALL_REDUCE = "all_reduce"


@dataclass(frozen=True, slots=True)
class NodeSnapshot:
    """The node at one moment: the documents of the daemon, or of a poll or a play of this command."""

    state: StateDocument
    findings: FindingsDocument
    jobs: JobsDocument


STATUS = TypeAdapter(StatusDocument)
DOCUMENTS: dict[str, TypeAdapter[Any]] = {"wirewatch.status.1": STATUS}


def status(
    node: NodeSnapshot, probes: ProbesDocument, by: Literal["daemon", "demo", "own"], why: str = ""
) -> StatusDocument:
    """The document of a node as its documents say."""
    state, series = node.state, SeriesIndex(node.state.collectors)
    info: Mapping[str, str] = next(iter(series.labels("node_info")), {})
    return StatusDocument(
        "wirewatch.status/1", state.at, state.health, state.job_ready, state.source, by, why,
        info.get("product", ""), info.get("driver", ""), list(_gpus(series)), list(_ports(series)),
        list(_paths(series)),
        {one["check"]: one["state"] for one in series.labels("gpudirect_check_state")},
        _headline(probes.last, state.at), probes.gate,
        [_job(one) for one in node.jobs.jobs],
        node.findings.findings, [_age(one, state.at) for one in state.collectors], list(_nics(series)),
        node.findings.host,
    )  # fmt: skip


def _job(one: ExplainedJob) -> StatusJob:
    evidence, answer = one.evidence, one.answer
    return StatusJob(
        evidence.name, len(evidence.gpus), answer.wall.value, answer.sentence, ledger_shares(evidence.ledger)
    )


class SeriesIndex:
    """The newest samples of a state, by name without prefix; a collector that cannot read now has none."""

    def __init__(self, collectors: Iterable[CollectorState]) -> None:
        every = (one for collector in collectors for one in collector.samples)
        self._series = grouped((one.name.removeprefix(PREFIX), (one.labels, one.value)) for one in every)

    def every(self, name: str) -> Sequence[tuple[Mapping[str, str], float]]:
        """Labels and value of each series of this name."""
        return self._series.get(name, ())

    def labels(self, name: str) -> list[Mapping[str, str]]:
        """The labels of each series of this name with the value 1."""
        return [labels for labels, value in self.every(name) if value == 1]

    def value(self, name: str, **labels: str) -> float | None:
        """The value of the first series with these labels; None where there is none."""
        return next((value for own, value in self.every(name) if labels.items() <= own.items()), None)

    def number(self, name: str, **labels: str) -> int | None:
        """The same, as a whole number."""
        value = self.value(name, **labels)
        return None if value is None else round(value)

    def gpus(self) -> Mapping[str, str]:
        """The number of each GPU that has any series, by its UUID; in the order of the numbers."""
        known = {
            labels["uuid"]: labels["gpu"]
            for series in self._series.values()
            for labels, _ in series
            if labels.get("uuid") and labels.get("gpu")
        }
        return dict(sorted(known.items(), key=lambda item: natural(item[1])))


def _gpus(series: SeriesIndex) -> Iterator[GpuStatus]:
    for uuid, index in series.gpus().items():
        links = series.number("nvlink_links", uuid=uuid, state="active")
        asleep = series.number("nvlink_links", uuid=uuid, state="sleep") or 0
        yield GpuStatus(
            index, uuid, series.value("gpu_temperature_celsius", uuid=uuid, sensor="core"),
            series.value("gpu_power_watts", uuid=uuid), series.value("gpu_utilization_ratio", uuid=uuid),
            None if links is None else links + asleep, series.number("nvlink_links_expected", uuid=uuid),
            series.number("pcie_generation", uuid=uuid), series.number("pcie_generation_max", uuid=uuid),
            series.number("pcie_width", uuid=uuid), series.number("pcie_width_max", uuid=uuid),
        )  # fmt: skip


def _ports(series: SeriesIndex) -> Iterator[PortStatus]:
    for one in series.labels("rdma_port_state"):
        place = {"device": one["device"], "port": one["port"]}
        yield PortStatus(
            one["device"], one["port"], one["state"],
            series.value("rdma_port_rate_bytes_per_second", **place),
            series.value("rdma_port_rate_expected_bytes_per_second", **place),
        )  # fmt: skip


def _nics(series: SeriesIndex) -> Iterator[NicStatus]:
    for place, at in series.every("probe_nic_last_success_timestamp_seconds"):
        rates = {
            labels["gpudirect"]: rate
            for labels, rate in series.every("probe_nic_bytes_per_second")
            if place.items() <= labels.items()
        }
        yield NicStatus(place["device"], place["port"], at or None, rates)


def _paths(series: SeriesIndex) -> Iterator[PathStatus]:
    near = [one for one in series.labels("gpu_nic_path_info") if one["nearest"] == "true"]
    for index in sorted({one["gpu"] for one in near}, key=natural):
        own = [one for one in near if one["gpu"] == index]
        yield PathStatus(index, own[0]["path"], sorted(one["device"] for one in own))


def _headline(last: ProbeDocument | None, at: float) -> HeadlineProbe | None:
    if last is None or not last.results:
        return None
    # The all-reduce of most ranks and bytes tells most: it is bound by the wires.
    best = max(last.results, key=lambda one: (one.op == ALL_REDUCE, one.ranks, one.size_bytes))
    return HeadlineProbe(
        last.at, max(at - last.at, 0.0), best.op, best.size_bytes, best.ranks, best.busbw,
        best.expected_busbw, best.ratio,
    )  # fmt: skip


def _age(one: CollectorState, at: float) -> CollectorAge:
    seconds = max(at - one.last_success, 0.0) if one.last_success else None
    error = "" if one.success else one.error or ("overdue" if one.overdue_since else "not read yet")
    return CollectorAge(one.collector, one.health, one.applicable, seconds, error)
