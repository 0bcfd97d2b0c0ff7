"""The sections of probes: results against expectations, copies between GPUs, stragglers. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from wirewatch.core.probe import PastProbe
from wirewatch.core.words import GB, first, percent, span
from wirewatch.core.words import size as human
from wirewatch.documents.probes import CollectiveResult, HostLinkResult, PeerCopy, ProbeDocument, Straggler
from wirewatch.page.content import PageContent
from wirewatch.page.model import Cell, Column, Details, Point, Section, Sentence, Table, Tone
from wirewatch.page.tables import GpuName, Readings, known, moment, number, order, table, unknown, when
from wirewatch.probe.collector import PROBE_NAME
from wirewatch.probe.gate import UNPROBEABLE
from wirewatch.probe.model import ProbePolicy
from wirewatch.verdict.straggler.signals import Resource, StragglerPolicy

SMALL = 1 << 20
"""Bytes below which a message measures latency and no bandwidth."""
PAST = 8
"""How many of the newest probes are shown."""
LOW = ProbePolicy().ratio
"""Default share of the expected value: the finding itself is judged by the configuration's."""
STEPS: Sequence[tuple[float, Tone, str]] = (
    (0.25, "slow3", "25 % and more below"),
    (0.10, "slow2", "10 % to 25 % below"),
    (0.05, "slow1", "5 % to 10 % below"),
    (-0.05, "", "within 5 % of the median"),
    (float("-inf"), "fast", "5 % and more above"),
)
"""Parts of the median by which a copy is below it; from 10 % a straggler is DEGRADED, from 25 % FAILED."""
SPEAK = 0.05
"""A smaller deviation is shown by the number alone."""
NONE = Sentence("Not known: the last probe made no copies between GPUs.", "unknown")
SCORE = StragglerPolicy().score
"""Standard deviations from which on a part may be a straggler, by default."""
ABOUT = {
    Resource.COMPUTE: "matrix products", Resource.MEMORY: "copies within", Resource.SOURCE: "sends",
    Resource.DESTINATION: "receives", Resource.PAIR: "worst pair", Resource.LINK: "worst link",
    Resource.HOST: "host link",
}  # fmt: skip
WHOLE = "the whole node"


def nothing(content: PageContent, here: Readings) -> Sentence:
    """The sentence that says why there is no complete probe."""
    gate = content.probes.gate
    if PROBE_NAME not in here.collectors:
        return Sentence("Probing is switched off.", "quiet")
    if gate.reason in {one.value for one in UNPROBEABLE}:
        return Sentence(f"There is nothing to probe on this node: {gate.meaning} ({gate.detail}).", "quiet")
    wait = "one may run now" if gate.open else f"{gate.meaning} ({gate.detail})"
    return Sentence(f"Not known: no probe has completed yet; {wait}.", "unknown")


def probes_section(content: PageContent, why: Sentence) -> Section:
    """Return the last complete probe against its expectations, the gate, and the newest probes."""
    lines, past = tuple(_lines(content, why)), content.probes.past
    last = [content.probes.last] if content.probes.last and content.probes.last.results else []
    tables = [*map(_results, last), *([_past(past, content.at)] if past else ())]
    details = tuple(part for one in last for part in _derivations(one.results))
    return Section("probes", "Probes against what is expected", lines, tuple(tables), details)


def matrix_section(content: PageContent, why: Sentence) -> Section:
    """Return the rates of copies between GPUs; `why` is shown without a probe."""
    probe = content.probes.last
    if probe is None or not probe.copies:
        return Section("peers", "Copies between GPUs", (why if probe is None else NONE,))
    middle = median(one.bytes_per_second for one in probe.copies)
    old = "" if content.probes.fresh else " The probe is old: the rates now are not known."
    said = (
        "From each GPU to each other one, in GB/s, while disjoint pairs copy in both directions. "
        f"Median {middle / GB:.1f}.{old} Measured"
    )
    line = Sentence(said, "" if content.probes.fresh else "unknown", at=moment(probe.at, content.at))
    return Section("peers", "Copies between GPUs", (line,), (_table(probe.copies, middle),))


def hosts_section(content: PageContent, why: Sentence) -> Section:
    """Return the rates of copies between each GPU and the host; `why` is shown without a probe."""
    probe = content.probes.last
    if probe is None or not probe.hosts:
        reason = f": {probe.no_hosts}" if probe and probe.no_hosts else ""
        none = Sentence(f"Not known: the last probe measured no host links{reason}.", "unknown")
        return Section("hosts", "Host links", (why if probe is None else none,))
    said = "Between each GPU and pinned memory of the host, in GB/s, alone and while all GPUs copy. Measured"
    line = Sentence(said, "" if content.probes.fresh else "unknown", at=moment(probe.at, content.at))
    rates = ("To it", "From it", "Both, each", "All to", "All from", "Of expected")
    columns = (Column("GPU"), *(Column(one, number=True) for one in rates), Column("Shares an uplink with"))
    rows = [(Cell(f"GPU {one.gpu}"), _host(one)) for one in probe.hosts]
    shown = table("host-table", "Copies to and from the host in GB/s", columns, rows)
    return Section("hosts", "Host links", (line,), (shown,))


def _host(one: HostLinkResult) -> Iterator[Cell]:
    rates = (one.to_device, one.from_device, one.both, one.all_to_device, one.all_from_device)
    yield from (number(f"{rate / GB:.1f}") for rate in rates)
    low = one.ratio is not None and one.ratio < LOW
    ratio = Cell(percent(one.ratio), "bad" if low else "good", number=True, strong=low)
    yield unknown(one.derivation[-1]) if one.ratio is None else ratio
    yield Cell(", ".join(f"GPU {gpu}" for gpu in one.shares_with) or "none known", "quiet")


def slow_section(content: PageContent, here: Readings, gpus: Sequence[GpuName], why: Sentence) -> Section:
    last = content.probes.last
    lines, tables = [], []
    if last is not None and last.stragglers:
        lines.append(Sentence("By the last probe alone; a finding needs two of three probes."))
        tables.append(_named(last.stragglers))
    elif last is not None:
        lines.append(Sentence("The last probe found no straggler."))
    if here.series.get("straggler_score"):
        tables.append(_scores(here, gpus))
    else:
        old = "Scores are not known: the last probe is too old, or measured no GPU alone."
        lines.append(why if last is None else Sentence(old, "unknown"))
    return Section("slow", "Stragglers", tuple(lines), tuple(tables))


def _lines(content: PageContent, why: Sentence) -> Iterator[Sentence]:
    last, gate = content.probes.last, content.probes.gate
    if last is None:
        yield why
        return
    yield from _last(content, last)
    shut = Sentence(f"No probe may run now: {gate.meaning} ({gate.detail}).", "quiet")
    yield Sentence("A probe may run now.") if gate.open else shut
    if gate.holds:
        yield Sentence(f"Probes are held off by {first(gate.holds)}.", "quiet")


def _last(content: PageContent, last: ProbeDocument) -> Iterator[Sentence]:
    newest = content.health.probe
    age = newest.age_seconds if newest else None
    old = "" if content.probes.fresh else " It is too old to count for now."
    ended = "" if age is None else f" It ended {span(age)} ago."
    named = ", ".join(f"{name} {value}" for name, value in last.versions.items())
    versions = f" ({named})" if named else ""
    way = f", between GPUs over {last.transport}" if last.transport else ""
    yield Sentence(
        f"Last complete probe: engine {last.engine}{versions}{way}, run by {last.by}.{ended}{old} It began",
        "" if content.probes.fresh else "unknown", at=moment(last.at, content.at),
    )  # fmt: skip
    if newest and newest.no_expectation:
        names = ", ".join(newest.no_expectation)
        judged = "this node's accepted probes and the wire judge them"
        yield Sentence(f"Nothing is expected of {names} here: {judged}.", "quiet")
    if last.slowing:
        yield Sentence(f"NCCL settings that lower bandwidth: {'; '.join(last.slowing)}.", "warn")


def _results(last: ProbeDocument) -> Table:
    rows = [(Cell(one.op), _result(one)) for one in last.results if one.size_bytes >= SMALL]
    columns = (
        Column("Collective"), Column("Size", number=True), Column("GPUs"),
        Column("Bus bandwidth", "GB/s", number=True), Column("Expected", "GB/s", number=True),
        Column("Ratio", number=True), Column("By"), Column("Wrong sums", number=True),
    )  # fmt: skip
    caption = "The last complete probe against what this topology should give"
    return table("probe-table", caption, columns, rows)


def _result(one: CollectiveResult) -> Iterator[Cell]:
    yield number(human(one.size_bytes))
    yield Cell(one.gpus)
    yield number(f"{one.busbw / GB:.1f}")
    why = one.derivation[0] if one.derivation else "nothing is known of such a topology"
    yield known(one.expected_busbw, f"{(one.expected_busbw or 0.0) / GB:.1f}", why)
    low = one.ratio is not None and one.ratio < LOW
    note = f"below {percent(LOW)}" if low else ""
    ratio = Cell(percent(one.ratio), "bad" if low else "good", note, number=True, strong=low)
    yield unknown(why) if one.ratio is None else ratio
    by = f"{one.algorithm}/{one.protocol}".strip("/")
    yield Cell(by) if by else unknown("NCCL's log does not show it")
    yield Cell(str(one.wrong), "bad", number=True, strong=True) if one.wrong else number("0", "quiet")


def _derivations(results: Sequence[CollectiveResult]) -> Iterator[Details]:
    points = []
    for one in results:
        if one.size_bytes >= SMALL and one.derivation:
            sure = (f"confidence: {one.confidence}",) if one.confidence else ()
            name = f"{one.op} of {human(one.size_bytes)}, GPUs: {one.gpus}"
            points.append(Point(name, (*one.derivation, *sure)))
    if points:
        yield Details("How each expectation follows", tuple(points))


def _past(past: Sequence[PastProbe], at: float) -> Table:
    rows = [(when(one.at, at), _past_probe(one)) for one in past[:PAST]]
    columns = (
        Column("Began"), Column("Outcome"), Column("Lowest ratio", number=True),
        Column("Took", "s", number=True), Column("Counts"),
    )  # fmt: skip
    return table("past-table", "The newest probes, newest first", columns, rows)


def _past_probe(one: PastProbe) -> Iterator[Cell]:
    yield Cell(one.outcome, "" if one.outcome == "ok" else "unknown", note=one.why)
    low = one.worst_ratio is not None and one.worst_ratio < LOW
    ratio = Cell(percent(one.worst_ratio), "bad" if low else "", number=True, strong=low)
    yield unknown("nothing was measured against an expectation") if one.worst_ratio is None else ratio
    yield number(f"{one.seconds:.1f}")
    yield Cell("forced: no verdict" if one.forced else "counts", "quiet")


def _table(copies: Sequence[PeerCopy], middle: float) -> Table:
    rates = {(one.source, one.destination): one for one in copies}
    places = sorted({one for pair in rates for one in pair}, key=lambda one: order(str(one)))
    columns = [Column(f"to {one}", number=True) for one in places]
    rows = [(Cell(f"from {one}"), [_copy(one, to, rates, middle) for to in places]) for one in places]
    legend = [Cell(text, tone) for _, tone, text in reversed(STEPS)]
    caption = "Copies between GPUs in GB/s: rows send, columns receive"
    return table("peer-table", caption, (Column("GPU"), *columns), rows, legend, dense=True)


def _copy(source: int, to: int, rates: Mapping[tuple[int, int], PeerCopy], middle: float) -> Cell:
    if source == to:
        return Cell("·", "quiet", aside="itself", number=True)
    one = rates.get((source, to))
    if one is None:
        return unknown("the probe did not copy between these two")
    below = 1 - one.bytes_per_second / middle if middle else 0.0
    tone = next(tone for least, tone, _ in STEPS if below >= least)
    aside = f"{percent(abs(below))} {'below' if below > 0 else 'above'} the median"
    return Cell(
        f"{one.bytes_per_second / GB:.1f}", tone, note="" if one.direct else "through the host",
        aside=aside if abs(below) >= SPEAK else "", number=True, strong=tone in {"slow2", "slow3"},
    )  # fmt: skip


def _named(stragglers: Sequence[Straggler]) -> Table:
    rows = [(Cell(_who(one)), _straggler(one)) for one in stragglers]
    columns = (
        Column("Part"), Column("What"), Column("Slower", number=True), Column("Than"),
        Column("Deviations", number=True), Column("And because of it"),
    )  # fmt: skip
    return table("slow-table", "Slow by the last probe", columns, rows)


def _who(one: Straggler) -> str:
    if one.gpu is None:
        return one.uuid or WHOLE
    return f"GPU {one.gpu}" + ("" if one.peer is None else f" to {one.peer}")


def _straggler(one: Straggler) -> Iterator[Cell]:
    yield Cell(one.resource)
    yield Cell(percent(one.lost), "warn", number=True, strong=True)
    yield Cell("its own history" if one.against == "own" else "its peers")
    yield known(one.score, f"{one.score or 0.0:.0f}", "all GPUs are slow alike, and none deviates")
    yield Cell(", ".join(one.follows) or "nothing else", "" if one.follows else "quiet")


def _scores(here: Readings, gpus: Sequence[GpuName]) -> Table:
    rows = [(Cell(f"GPU {gpu.index}"), [_score(here, gpu, one) for one in Resource]) for gpu in gpus]
    columns = [Column(ABOUT[resource], number=True) for resource in Resource]
    caption = (
        "Straggler scores: standard deviations slower than its own history or its peers; "
        f"from {SCORE:g} on a part may be a straggler"
    )
    return table("score-table", caption, (Column("GPU"), *columns), rows, dense=True)


def _score(here: Readings, gpu: GpuName, resource: Resource) -> Cell:
    value = here.by("straggler_score", gpu.part, "signal").get(resource.value)
    if value is None:
        return unknown("the last probe did not measure it")
    high = value >= SCORE
    text = f"{value:.1f}".replace("-0.0", "0.0")
    return Cell(text, "warn" if high else "", number=True, strong=high)
