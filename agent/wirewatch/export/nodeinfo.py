"""The node's `_info` series, with what the inventory cannot know: the probe's NCCL, the baseline's shape."""

from collections.abc import Iterable
from functools import lru_cache

from wirewatch.collectors.inventory import NODE
from wirewatch.core.collector import NodeState
from wirewatch.core.types import Absent, Sample
from wirewatch.probe.component import PROBE_NAME as PROBE
from wirewatch.probe.model import Memory as Probes
from wirewatch.verdict.drift.component import NAME as DRIFT
from wirewatch.verdict.drift.component import State as Drift
from wirewatch.verdict.drift.graph import Graph, fingerprint


def without(samples: Iterable[Sample]) -> tuple[Sample, ...]:
    """A component's samples without that series."""
    return tuple(sample for sample in samples if sample.metric is not NODE)


def series(state: NodeState) -> Iterable[Sample]:
    """That series alone."""
    for component in state.components.values():
        yield from completed((s for s in component.samples if s.metric is NODE), state)


def completed(samples: Iterable[Sample], state: NodeState) -> Iterable[Sample]:
    """A component's samples, that series completed; a label that nobody has told yet is empty."""
    for sample in samples:
        if sample.metric is NODE:
            product, gpus, driver, *_ = sample.labels
            yield NODE.sample(sample.value, product, gpus, driver, _nccl(state), _shape(state))
        else:
            yield sample


def _nccl(state: NodeState) -> str:
    component = state.components.get(PROBE)
    memory = None if component is None else component.memory
    last = memory.last if isinstance(memory, Probes) else None
    return "" if last is None or last.document is None else last.document.versions.get("nccl", "")


def _shape(state: NodeState) -> str:
    component = state.components.get(DRIFT)
    memory = None if component is None else component.memory
    return _named(memory.baseline.graph) if isinstance(memory, Drift) and memory.baseline is not None else ""


@lru_cache(maxsize=1)
def _named(graph: Graph) -> str:
    """Worked out once for a baseline: it takes 20 ms, and is asked for with each change of the state."""
    told = fingerprint(graph)
    return "" if isinstance(told, Absent) else told
