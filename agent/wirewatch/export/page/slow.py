"""Who is slow by the last probe, and how far every GPU is from its peers or its own history. Pure."""

from collections.abc import Iterator, Sequence

from wirewatch.export.page.cells import cell, known, number, table
from wirewatch.export.page.model import Cell, Head, Line, Section, Table
from wirewatch.export.page.readings import GpuName, Readings
from wirewatch.export.page.told import Told
from wirewatch.export.page.words import percent
from wirewatch.export.probedocuments import Straggler
from wirewatch.verdict.straggler.signals import Resource, StragglerPolicy

SCORE = StragglerPolicy().score
"""Standard deviations from which on a part may be a straggler, by default."""
ABOUT = {
    Resource.COMPUTE: "matrix products", Resource.MEMORY: "copies within", Resource.SOURCE: "sends",
    Resource.DESTINATION: "receives", Resource.PAIR: "worst pair", Resource.LINK: "worst link",
}  # fmt: skip
WHOLE = "the whole node"


def slow_section(told: Told, here: Readings, gpus: Sequence[GpuName], why: Line) -> Section:
    last = told.probes.last
    lines, tables = list(_slow_lines(told)), []
    if last is not None and last.stragglers:
        tables.append(_named(last.stragglers))
    if here.series.get("straggler_score"):
        tables.append(_scores(here, gpus))
    elif last is not None:
        lines.append(
            Line("Scores are not known: the last probe is too old, or measured no GPU alone.", "unknown")
        )
    else:
        lines.append(why)
    return Section("slow", "Who is slow", tuple(lines), tuple(tables))


def _slow_lines(told: Told) -> Iterator[Line]:
    last = told.probes.last
    if last is not None:
        nobody = "Nobody stood out in the last probe." if not last.stragglers else ""
        named = "By the last probe alone; a finding needs two of three." if last.stragglers else ""
        yield Line(nobody or named)


def _named(stragglers: Sequence[Straggler]) -> Table:
    rows = [(cell(_who(one)), tuple(_straggler(one))) for one in stragglers]
    heads = (
        Head("Who"), Head("What"), Head("Slower", number=True), Head("Than"), Head("Deviations", number=True),
        Head("And because of it"),
    )  # fmt: skip
    return table("slow-table", "Slow by the last probe", heads, rows)


def _who(one: Straggler) -> str:
    if one.gpu is None:
        return one.uuid or WHOLE
    return f"GPU {one.gpu}" + ("" if one.peer is None else f" to {one.peer}")


def _straggler(one: Straggler) -> Iterator[Cell]:
    yield cell(one.resource)
    yield Cell(percent(one.lost), "warn", number=True, strong=True)
    yield cell("its own history" if one.against == "own" else "its peers")
    yield known(one.score, f"{one.score or 0.0:.0f}", "it is of all GPUs alike, and no one of them deviates")
    yield cell(", ".join(one.follows) or "nothing else", "" if one.follows else "quiet")


def _scores(here: Readings, gpus: Sequence[GpuName]) -> Table:
    rows = [
        (cell(f"GPU {gpu.index}"), tuple(_score(here, gpu, resource) for resource in Resource))
        for gpu in gpus
    ]
    heads = [Head(ABOUT[resource], number=True) for resource in Resource]
    caption = (
        "Straggler scores: standard deviations slower than its own history or its peers; "
        f"{SCORE:g} is conspicuous"
    )
    return table("score-table", caption, (Head("GPU"), *heads), rows, dense=True)


def _score(here: Readings, gpu: GpuName, resource: Resource) -> Cell:
    value = here.by("straggler_score", gpu.part, "signal").get(resource.value)
    if value is None:
        return known(None, "", "the last probe tells nothing of it")
    high = value >= SCORE
    text = f"{value:.1f}".replace("-0.0", "0.0")
    return Cell(text, "warn", number=True, strong=True) if high else number(text)
