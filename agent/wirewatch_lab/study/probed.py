"""Probes as a study: what the last good ones measured of the node's collectives."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from wirewatch.core.ports import Clock
from wirewatch.core.probe import Probed, Timed
from wirewatch.core.types import Absent, Why
from wirewatch.probe.history import History, HistoryLimits
from wirewatch.probe.restore import BUSY_SECONDS, probe_of
from wirewatch_lab.study.curve import Configuration, Curve, CurvePoint, Study
from wirewatch_lab.study.grid import EAGER, GRAPH

LAST = 5
"""Complete probes that stand for a node as it is."""
_LAUNCHES = {"graph": GRAPH, "stream": EAGER}


def history_study(path: Path, clock: Clock, gpus: Collection[str]) -> Study | Absent:
    """What the last complete probes of these GPUs measured that were not forced; nothing is written.

    Args:
        path: of the history in the state folder.
        clock: of this machine.
        gpus: UUIDs of its GPUs; probes of others are of another machine.

    Returns:
        Absent where the history cannot be read, and where it has no such probe.
    """
    if not path.exists():
        return Absent(Why.MISSING, f"{path}: no probe was kept")
    records = History(path, clock, HistoryLimits(busy=BUSY_SECONDS), read_only=True).folded(LAST, added=True)
    if isinstance(records, Absent):
        return records
    found = [probe_of(record) for record in records if record.result == "ok" and not record.forced]
    ours = [one for one in found if one is not None and set(one.plan.gpus) <= set(gpus)]
    return probes_study(ours[-LAST:], "probes of this node")


def probes_study(probes: Sequence[Probed], source: str) -> Study | Absent:
    """Curves of groups of GPUs: small messages from CUDA graphs, large ones one by one; each probe a repeat.

    Of groups with equally many GPUs the slowest time counts, as it would for a job on any of them. Probes of
    another engine, of another element type, and such as measured another set of GPUs than the last one are
    left out.

    Returns:
        Absent where none is left.
    """
    usable = [one for one in probes if one.outcome == "ok" and one.document and one.plan.in_place]
    if not usable:
        return Absent(Why.MISSING, "no complete probe")
    last = usable[-1].plan
    alike = [
        one for one in usable
        if (one.plan.gpus, one.plan.engine, one.plan.dtype) == (last.gpus, last.engine, last.dtype)
    ]  # fmt: skip
    measured: dict[tuple[str, int, str], dict[int, list[float]]] = {}
    for probed in alike:
        for key, size, seconds in _slowest(probed):
            measured.setdefault(key, {}).setdefault(size, []).append(seconds)
    curves = [
        Curve(
            op, Configuration(ranks, launch=launch),
            tuple(CurvePoint(size, tuple(sizes[size])) for size in sorted(sizes)), last.dtype,
        )
        for (op, ranks, launch), sizes in measured.items()
    ]  # fmt: skip
    if not curves:
        return Absent(Why.MISSING, f"no probe of GPUs: {last.engine}")
    environment = {"engine": last.engine, "gpus": " ".join(last.gpus)}
    last_of = "the last one" if len(alike) == 1 else f"the last {len(alike)}"
    return Study(usable[-1].at, f"{source}, {last_of}", environment, curves)


def _slowest(probed: Probed) -> Iterable[tuple[tuple[str, int, str], int, float]]:
    """Collective, ranks and launch, with a size and the time of the slowest such group."""
    found: dict[tuple[tuple[str, int, str], int], float] = {}
    for one in _right(probed):
        ranks = len(probed.plan.groups[one.group])
        at = ((one.op, ranks, _LAUNCHES[one.launch]), one.size_bytes)
        found[at] = max(one.seconds, found.get(at, 0.0))
    return [(key, size, seconds) for (key, size), seconds in found.items()]


def _right(probed: Probed) -> list[Timed]:
    """Times of two and more GPUs that stand for the node: right values, launched as a job launches."""
    held = probed.document.collectives if probed.document else ()
    groups = probed.plan.groups
    return [
        one for one in held
        if one.launch in _LAUNCHES and not one.wrong and one.seconds > 0 and one.group < len(groups)
        and len(groups[one.group]) > 1
    ]  # fmt: skip
