"""The text of `wirewatch advise cost`: a sentence first, then tables that answer in a screen."""

from collections.abc import Iterator, Sequence

from wirewatch.busbw.formulas import NVLS, factor
from wirewatch.cli.tables import table
from wirewatch.core.probe import ALL_REDUCE
from wirewatch.core.words import size as human
from wirewatch_lab.advice.cost.cliff import CliffStep, bars
from wirewatch_lab.advice.cost.document import (
    AlgorithmRow,
    CostDocument,
    EstimatedCollective,
    Figure,
    LaunchCost,
    PassRow,
    ServingCost,
    TrainingCost,
    basis,
)
from wirewatch_lab.advice.cost.tokens import FREE
from wirewatch_lab.advice.cost.training import ENOUGH, TORCH_BUCKET
from wirewatch_lab.advice.shapes import HEAD, OPTIONS
from wirewatch_lab.study.summary import count

GB = 1e9
BAR = 40
EAGER, GRAPH = "eager", "graph"
_WORDS = {EAGER: "launched one by one", GRAPH: "in a CUDA graph"}


def cost_lines(made: CostDocument, *, collectives: bool, explain: bool) -> Iterator[str]:
    """All lines; `collectives`: with times and algorithms by size."""
    if made.serving is not None:
        yield from _serving(made, made.serving)
    if made.training is not None:
        yield from _spaced(made.serving is not None)
        yield from _training(made.training)
    modelled = made.serving is not None or made.training is not None
    yield from _spaced(modelled) if modelled else _first(made)
    yield from _cliff(made)
    if collectives:
        yield from _times(made)
        yield from _algorithms(made)
    yield from _sources(made, collectives=collectives)
    if explain:
        for one in made.figures:
            yield from _figure(one)


def _figure(one: Figure) -> Iterator[str]:
    yield ""
    yield f"{one.figure}:"
    yield f"  {one.derivation}"
    yield f"  source: {one.source}; confidence: {one.confidence}"
    yield f"  not when: {one.when_not}"


def _first(made: CostDocument) -> Iterator[str]:
    """The answer without a model: the smallest and the largest message that was asked for."""
    known = [one for one in made.times if one.seconds is not None and one.launch == EAGER]
    if not known:
        alone = made.gpus * made.nodes == 1
        why = "one GPU has no collective" if alone else "no time of a collective is known"
        yield f"{made.machine}: {why}."
        yield ""
        return
    least, most = (pick(known, key=lambda one: one.size_bytes) for pick in (min, max))
    of = made.machine if most.domains == 1 else f"{most.domains} x {made.machine}"
    rate = f"{(most.busbw or 0) / GB:.0f} GB/s busbw"
    large = f"{_size(most.size_bytes)} takes {(most.seconds or 0) * 1e3:.3g} ms ({rate})"
    small = f", {_size(least.size_bytes)} {(least.seconds or 0) * 1e6:.3g} us" if least is not most else ""
    yield f"{most.op} over {most.ranks} GPUs, {of}: {large}{small}, {most.basis}."
    yield ""


def _spaced(wanted: bool) -> Iterator[str]:  # noqa: FBT001
    if wanted:
        yield ""


def _serving(made: CostDocument, one: ServingCost) -> Iterator[str]:
    yield from _sentences(made, one)
    yield ""
    yield from table(
        (
            "TP", "GB each", "reading ms", "all-reduces", "us each", "communication ms", "token ms",
            "all hidden", "share",
        ),
        [_row(row) for row in one.decode],
    )  # fmt: skip
    yield "  eager / CUDA graph; share: communication as a share of the token's time, none of it hidden"
    if one.prefill:
        yield ""
        yield f"prefill of {one.prompt:,} tokens, {one.batch} at once:"
        yield from table(
            ("TP", "message", "all-reduces", "us each", "communication ms", "pass ms", "all hidden", "share"),
            [_filled(row) for row in one.prefill],
        )


def _sentences(made: CostDocument, one: ServingCost) -> Iterator[str]:
    row = next(row for row in one.decode if row.tp == one.tp)
    nodes = f"{made.nodes} x " if made.nodes > 1 else ""
    batch = f"batch {one.batch}, {one.context:,} tokens of context"
    yield f"{one.model} in {one.dtype}, {batch}, TP {one.tp} on {nodes}{made.machine}:"
    if one.heads % one.tp:
        assumed = f", {HEAD} wide as assumed" if one.shape_source == OPTIONS else ""
        heads = count(one.heads, "head")
        yield f"TP {one.tp} does not divide the model's {heads}{assumed}: engines refuse that."
    if row.fits is False:
        yield f"It does not fit: {row.held / GB:.0f} GB on each GPU, more than {FREE:.0%} of its memory."
    launch = next(found for found in row.launches if found.launch == one.judged_by)
    yield from _token(one, row, launch)
    if one.stops is None:
        yield f"Where decode stops gaining is not known: {one.why}."
    elif one.best is not None and len(one.decode) > 1:
        yield _gains(made, one, one.stops, one.best)


def _gains(made: CostDocument, one: ServingCost, stops: int, best: int) -> str:
    """Where decode stops gaining, and what the last doubling before that saves."""
    steps = {
        row.tp: found.step
        for row in one.decode
        for found in row.launches
        if found.launch == one.judged_by and found.step is not None and row.fits is not False
    }
    half = steps.get(stops // 2)
    saves = "" if half is None else f", where doubling saves {1 - steps[stops] / half:.0%} of a token's time"
    if stops == max(steps):
        here = "in one machine" if made.nodes > 1 and stops <= made.gpus else "here"
        last = f"the most {here}" if stops == one.decode[-1].tp else "the most that is known here"
        return f"Decode still gains at TP {stops}, {last}{saves}."
    fastest = "" if best == stops else f"; TP {best} is the fastest"
    if stops == min(steps):
        return f"Decode gains less than a tenth beyond TP {stops}{fastest}."
    return f"Decode gains up to TP {stops}{saves}, and less than a tenth beyond{fastest}."


def _token(one: ServingCost, row: PassRow, launch: LaunchCost) -> Iterator[str]:
    calls = f"{row.all_reduces} all-reduces of {_size(row.message_bytes)}"
    if row.tp == 1:
        if launch.step is not None:
            yield f"{launch.step * 1e3:.2f} ms a token, all of it reading weights and keys: no all-reduce."
        return
    single = launch.collective
    if launch.communication is None or single is None or single.seconds is None:
        why = single.why if single is not None else "not known"
        yield f"A token takes {calls}; their time is not known here: {why}."
        if row.domains > 1:
            yield "Between machines it follows from their RDMA ports: describe them, such as 8xH100+8xNDR."
        return
    sent = f"{launch.communication * 1e3:.2f} ms in {calls}, {single.seconds * 1e6:.1f} us each"
    how = _WORDS[launch.launch]
    if launch.step is None or row.work is None or launch.share is None:
        yield f"{sent} {how}; reading the weights is not known here."
    else:
        work = f"{row.work * 1e3:.2f} ms reading weights and keys"
        each = f"{1 / launch.step:.0f} tokens/s"
        rate = each if one.batch == 1 else f"{each} a sequence, {one.batch / launch.step:,.0f} in all"
        yield f"{launch.step * 1e3:.2f} ms a token ({rate}) {how}: {work}, {sent} ({launch.share:.0%})."
    yield from _other(row, launch)
    if launch.budget_share is not None and one.tokens_per_second is not None:
        yield from _budget(one, row)
    if single.least is not None and single.seconds > 10 * single.least:
        wire = f"on the wire their bytes would take {single.least * 1e6:.2g} us each"
        yield f"It is latency, not bandwidth: {wire}. Fewer or cheaper all-reduces help, faster links do not."


def _other(row: PassRow, launch: LaunchCost) -> Iterator[str]:
    """The other launch beside it."""
    for found in row.launches:
        if found.launch != launch.launch and found.communication is not None and found.collective is not None:
            each = f"{(found.collective.seconds or 0) * 1e6:.1f} us each"
            step = "" if found.step is None else f", {found.step * 1e3:.2f} ms a token"
            yield f"{_WORDS[found.launch].capitalize()}: {found.communication * 1e3:.2f} ms, {each}{step}."


def _budget(one: ServingCost, row: PassRow) -> Iterator[str]:
    budget = 1e3 / (one.tokens_per_second or 1.0)
    shares = " and ".join(
        f"{found.budget_share:.0%} {_WORDS[found.launch]}"
        for found in row.launches
        if found.budget_share is not None
    )
    yield f"At {one.tokens_per_second:g} tokens/s a token has {budget:.1f} ms; all-reduces take {shares}."


def _row(row: PassRow) -> tuple[str, ...]:
    """A TP degree of decode."""
    fits = "" if row.fits is not False else " (too much)"
    return (
        str(row.tp), f"{row.held / GB:.1f}{fits}", _ms(row.work),
        "-" if row.tp == 1 else str(row.all_reduces), *_cells(row),
    )  # fmt: skip


def _filled(row: PassRow) -> tuple[str, ...]:
    return (
        str(row.tp), _size(row.message_bytes), "-" if row.tp == 1 else str(row.all_reduces), *_cells(row)
    )  # fmt: skip


def _cells(row: PassRow) -> tuple[str, ...]:
    """Eager and graph, where both are known and differ."""
    shares = [None if one.share is None else one.share * 100 for one in row.launches]
    each = [one.collective.seconds if one.collective else None for one in row.launches]
    return (
        _pair([None if s is None else s * 1e6 for s in each], 1),
        _pair([_milli(one.communication) for one in row.launches], 2) if row.tp > 1 else "-",
        _pair([_milli(one.step) for one in row.launches], 2),
        _pair([_milli(one.hidden_step) for one in row.launches], 2),
        _pair(shares, 0, " %") if row.tp > 1 else "-",
    )  # fmt: skip


def _milli(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1e3


def _pair(values: Sequence[float | None], digits: int, unit: str = "") -> str:
    texts = ["-" if one is None else f"{one:.{digits}f}{unit}" for one in values]
    return texts[0] if len(set(texts)) == 1 else " / ".join(texts)


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.2f}"


def _training(one: TrainingCost) -> Iterator[str]:
    ddp = one.schemes[0]
    where = f"{one.ranks} GPUs" + (f" in {one.nodes} nodes" if one.nodes > 1 else "")
    yield (
        f"Training {one.model} ({one.parameters / 1e9:.4g} B parameters) on {where}: a GPU sends "
        f"{_bytes(ddp.sends)} a step by DDP, {_bytes(one.schemes[2].sends)} by FSDP; weights, gradients and "
        f"Adam's state are {_bytes(one.state)} in all."
    )
    yield ""
    crosses = ("leaves the node",) if one.nodes > 1 else ()
    yield from table(
        ("scheme", "a GPU sends", *crosses, "keeps", "by"),
        [
            (
                found.scheme, "-" if found.objection else _bytes(found.sends),
                *(["-" if found.objection else _bytes(found.crosses or 0.0)] if crosses else []),
                "-" if found.memory is None or found.objection else _bytes(found.memory),
                f"not possible: {found.objection}" if found.objection else found.calls,
            )
            for found in one.schemes
        ],
    )  # fmt: skip
    split = "the model split over all of them, " if len(one.schemes) > 3 else ""  # noqa: PLR2004
    yield f"  {split}{one.tokens:,} tokens a step on each GPU; activations are not in what it keeps"
    yield from _bucket(one)


def _bucket(one: TrainingCost) -> Iterator[str]:
    best = one.bucket
    if best is None:
        yield f"  DDP's bucket size: not known: {one.why}"
        return
    enough = f"{ENOUGH:.0%} of the plateau ({best.plateau / GB:.0f} GB/s)"
    torch = f"torch's {human(TORCH_BUCKET)} {best.torch_busbw / best.plateau:.0%}"
    floor = f"the floor is {best.floor * 1e6:.1f} us"
    yield f"  DDP's buckets reach {enough} from {human(best.size)} on, {torch}; {floor}"
    nothing = (
        f"{best.seconds * 1e3:.0f} ms a step with nothing hidden ({best.torch_seconds * 1e3:.0f} by torch's)"
    )
    yield f"  {best.buckets:,} of them: {nothing}, {best.exposed * 1e3:.2f} with all but the last"


def _cliff(made: CostDocument) -> Iterator[str]:
    if not made.cliff:
        yield "Of this machine's wires nothing is known."
        return
    parts = []
    if made.nvlink_to_pcie is not None:
        parts.append(f"PCIe {_times_less(made.nvlink_to_pcie)}")
    if made.nvlink_to_network is not None:
        parts.append(f"the network {_times_less(made.nvlink_to_network)}")
    beside = f"; beside NVLink, {' and '.join(parts)}" if parts else ""
    yield f"The bandwidth cliff, one GPU, one way{beside}:"
    drawn = bars(made.cliff, BAR)
    yield from table(
        ("", "GB/s", "both ways", "", "what"),
        [_step(step, bar) for step, bar in zip(made.cliff, drawn, strict=True)],
    )
    if any(step.printed for step in made.cliff):
        yield "  both ways: what vendors print; a collective sends and receives at once, and counts one way"


def _step(step: CliffStep, bar: str) -> tuple[str, ...]:
    printed = "-" if step.printed is None else f"{step.printed / GB:.0f}"
    return step.name, f"{step.rate / GB:.1f}", printed, bar.ljust(BAR), step.what


def _times_less(ratio: float) -> str:
    return f"{ratio:.1f}x less" if ratio >= 1 else f"{1 / ratio:.1f}x more"


def _times(made: CostDocument) -> Iterator[str]:
    if not made.times:
        return
    graphs = {(one.ranks, one.op, one.size_bytes): one for one in made.times if one.launch == GRAPH}
    for ranks, domains in dict.fromkeys((one.ranks, one.domains) for one in made.times):
        yield ""
        yield f"Time of a collective over {_over(ranks, domains)}:"
        rows = [
            _timed(one, graphs[one.ranks, one.op, one.size_bytes])
            for one in made.times
            if (one.ranks, one.launch) == (ranks, EAGER)
        ]
        yield from table(("", "size", "eager us", "graph us", "busbw GB/s", "wire us", "stands on"), rows)
    yield "  wire: what the bytes take with nothing else, not added up in a switch; busbw of the eager launch"
    if made.serving is not None:
        for size, tokens in made.serving.size_tokens.items():
            yield f"  {_size(size)} is the hidden state of {tokens:,} token{'s' if tokens > 1 else ''}"
    yield from _unknown(made.times)


def _over(ranks: int, domains: int) -> str:
    return f"{ranks} GPUs" + (f" in {domains} nodes" if domains > 1 else "")


def _timed(eager: EstimatedCollective, graph: EstimatedCollective) -> tuple[str, ...]:
    known = eager if eager.seconds is not None else graph
    stands = f"{basis(known, ' ({})')}{_within(known)}" if known.basis else "not known"
    if eager.basis and graph.basis and graph.basis != eager.basis:
        stands += f"; graph {basis(graph, ' ({})')}{_within(graph)}"
    return (
        eager.op, _size(eager.size_bytes), _us(eager.seconds), _us(graph.seconds),
        "-" if known.busbw is None else f"{known.busbw / GB:.1f}", _us(eager.least), stands,
    )  # fmt: skip


def _within(one: EstimatedCollective) -> str:
    return f", within {one.within:.0%}" if one.within else ""


def _us(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1e6:.1f}" if seconds >= 1e-6 else f"{seconds * 1e6:.2g}"  # noqa: PLR2004


def _unknown(found: Sequence[EstimatedCollective]) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for one in found:
        if one.why and one.launch == EAGER:
            reasons.setdefault(one.why, []).append(f"{one.op} {_size(one.size_bytes)}")
    for why, which in reasons.items():
        yield f"  not known of {', '.join(which)}: {why}"


def _algorithms(made: CostDocument) -> Iterator[str]:
    header = ("", "algorithm", "steps", "sends", "receives", "leaves the node", "all links", "wire us")
    for ranks, nodes in dict.fromkeys((row.ranks, row.nodes) for row in made.algorithms):
        rows = [row for row in made.algorithms if row.ranks == ranks]
        yield ""
        yield f"What algorithms move, {_size(rows[0].size_bytes)} over {_over(ranks, nodes)}, a GPU:"
        yield from table(header, [_moved(row) for row in rows])
    if any(not row.traffic.nccl for row in made.algorithms):
        yield "  *: NCCL does not run it here"
    yield from _on_the_links(made)


def _moved(row: AlgorithmRow) -> tuple[str, ...]:
    one = row.traffic
    return (
        row.op, one.algorithm + ("" if one.nccl else " *"), str(one.steps), _bytes(one.sends),
        _bytes(one.receives), _bytes(one.crosses), _bytes(one.links), _us(row.least),
    )  # fmt: skip


def _on_the_links(made: CostDocument) -> Iterator[str]:
    """What busbw hides of NVLS."""
    nvls = {
        row.ranks
        for row in made.algorithms
        if (row.traffic.algorithm, row.op, row.traffic.nccl) == (NVLS, ALL_REDUCE, True)
    }
    best = max(
        ((one.busbw or 0.0, one.ranks) for one in made.times if one.op == ALL_REDUCE and one.ranks in nvls),
        default=(0.0, 0),
    )
    if best[0]:
        links = best[0] / factor(ALL_REDUCE, best[1])
        busbw = f"a busbw of {best[0] / GB:.1f} GB/s is {links / GB:.1f}"
        yield f"  by NVLS {busbw} on the links: N is sent, not 2(n-1)/n N"


def _sources(made: CostDocument, *, collectives: bool) -> Iterator[str]:
    """What the times stand on, each source once."""
    used = list(made.times) if collectives else []
    if made.serving is not None:
        rows = (*made.serving.decode, *made.serving.prefill)
        used += [one.collective for row in rows for one in row.launches if one.collective is not None]
    known = dict.fromkeys(
        f"{basis(one, ', {}')}{_within(one)}: {one.source}" for one in used if one.seconds is not None
    )
    yield from (f"  times: {line}" for line in known)


def _size(size: float) -> str:
    """In powers of 1024 where that is whole, else of 1000."""
    whole = round(size)
    if whole % 1000 == 0 and whole % 1024:
        return _bytes(whole)
    text = human(whole)
    return text if not text.endswith(" B") or whole < 10_000 else _bytes(whole)  # noqa: PLR2004


def _bytes(count: float) -> str:
    """Bytes in powers of 1000."""
    for unit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
        if count >= unit:
            return f"{count / unit:.4g} {name}"
    return f"{count:.4g} B"
