"""The numbers of `wirewatch top` one by one: rates between polls, links, orders, and what is not known."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.node.cli.topnodes import collector, finding, series, snapshot
from tests.node.jobs.explain.drawn import evidence, gpu_uuid, job
from tests.rows import each
from wirewatch.cli.jobs import topview
from wirewatch.cli.jobs.topview import GpuLine, LinkRates, view
from wirewatch.core.types import Absent, Why
from wirewatch.jobs.explain.evidence import Wall

SENT, RECEIVED = "nvlink_transmit_bytes_total", "nvlink_receive_bytes_total"


def state(
    at: float, sent: float, received: float | None, source: str = "live", *, success: bool = True
) -> Any:
    samples = [series(SENT, 0, sent), *([] if received is None else [series(RECEIVED, 0, received)])]
    made = [collector("gpu", at), collector("nvlink", at, *samples, success=success)]
    return SimpleNamespace(collectors=made, source=source)


@each(
    ("then", "rates"),
    [
        (state(12.0, 300.0, 250.0), (100.0, 25.0)),
        (state(12.0, 300.0, 200.0), (100.0, 0.0)),
        (state(12.0, 99.0, 250.0), None),
        (state(12.0, 300.0, 199.0), None),
        (state(12.0, 300.0, None), None),
        (state(12.0, 100.0, 200.0), (0.0, 0.0)),
    ],
)
def test_a_rate_is_between_two_polls_of_counters_that_grow(
    then: Any, rates: tuple[float, float] | None
) -> None:
    first = LinkRates().after(state(10.0, 100.0, 200.0))
    assert first.rates == {}
    assert first.after(then).rates == ({} if rates is None else {gpu_uuid(0): rates})


@each(
    ("then", "kept"),
    [
        (state(10.0, 300.0, 300.0), True),
        (state(9.0, 300.0, 300.0), True),
        (state(12.0, 100.0, 200.0, "replay"), True),
        (state(12.0, 300.0, 300.0, "replay"), False),
        (state(12.0, 300.0, 300.0, success=False), None),
        (SimpleNamespace(collectors=[], source="live"), None),
    ],
)
def test_rates_are_kept_while_nothing_new_was_read(then: Any, *, kept: bool | None) -> None:
    first = LinkRates().after(state(10.0, 100.0, 200.0, then.source))
    after = first.after(then)
    assert (after == LinkRates()) if kept is None else ((after is first) is kept)


@each(
    ("samples", "text"),
    [
        ([], "-"),
        ([series("nvlink_links_expected", 0, 18)], "-"),
        ([series("nvlink_links", 0, 16, state="active")], "16"),
        (
            [
                series("nvlink_links", 0, 16, state="active"),
                series("nvlink_links", 0, 2, state="sleep"),
                series("nvlink_links_expected", 0, 18),
            ],
            "18/18",
        ),
        ([series("nvlink_links", 0, 0, state="active"), series("nvlink_links_expected", 0, 18)], "0/18"),
    ],
)
def test_links_that_sleep_are_there(samples: Any, text: str) -> None:
    known = vars(topview)["_Samples"](SimpleNamespace(collectors=[collector("nvlink", 1.0, *samples)]))
    assert known.links(gpu_uuid(0)) == text
    assert list(known.gpus().values()) == ["0"] * bool(samples)


@each(
    ("sort", "order"),
    [
        ("gpu", "0123"),
        ("utilisation", "1023"),
        ("nvlink", "2013"),
        ("waiting", "3012"),
        ("findings", "3201"),
        ("unheard of", "0123"),
    ],
)
def test_the_order_of_gpus(sort: str, order: str) -> None:
    lines = [
        GpuLine("0", utilisation=0.1),
        GpuLine("1", utilisation=0.9),
        GpuLine("2", sent=1.0, received=2.0, health="degraded", findings=3),
        GpuLine("3", waiting=0.5, health="failed", findings=1),
    ]
    shown = [one.text.split()[0] for one in vars(topview)["_gpus"](lines, 80, sort)][1:]
    assert "".join(shown) == order


def test_a_node_without_anything_says_so() -> None:
    told = view(replace(snapshot(), state=replace(snapshot().state, collectors=[])), LinkRates(), 20)
    texts = [one.text for one in told.lines]
    assert {"no GPU has been read", "no job is seen on these GPUs", "none"} <= set(texts)
    assert max(map(len, texts)) <= 60


@pytest.mark.parametrize(("width", "text"), [(6, "abc\\x1bdef"[:3]), (10, "")])
def test_a_line_is_cut_at_the_width(width: int, text: str) -> None:
    cut = vars(topview)["_cut"]
    assert cut("x" * width, width) == "x" * width
    assert cut("x" * (width + 1), width) == "x" * (width - 1) + "…"
    assert text in cut("abc", width)


@each(
    ("wall", "tone"),
    [
        (Wall.HANG, "failed"),
        (Wall.SLOW_WIRE, "failed"),
        (Wall.LATE_RANK, "failed"),
        (Wall.NOT_KNOWN, "unknown"),
        (next(one for one in Wall if one not in {*topview.BAD, Wall.NOT_KNOWN}), "ok"),
    ],
)
def test_the_tone_of_a_job_is_that_of_its_wall(wall: Wall, tone: str) -> None:
    absent = Absent(Why.MISSING)
    answer = SimpleNamespace(cost=absent, wall=wall, sentence="so it is")
    lines = list(vars(topview)["_jobs"]([SimpleNamespace(evidence=evidence(job()), answer=answer)], 80))
    assert [one.tone for one in lines] == ["head", tone, "quiet"]
    assert lines[2].text == "  so it is"


def test_gpus_stand_by_their_numbers_and_those_without_one_last() -> None:
    samples = [series("gpu_power_watts", number, 1.0) for number in (10, 2)]
    odd = [
        replace(one, labels={**one.labels, "uuid": name, "gpu": name})
        for name, one in zip("x²", samples, strict=True)
    ]
    nameless = replace(samples[0], labels={"uuid": "n", "gpu": ""})
    shot = snapshot()
    state = replace(shot.state, collectors=[collector("gpu", 1.0, *odd[:1], *samples, nameless)])
    lines = topview.gpu_lines(replace(shot, state=state), LinkRates())
    assert [one.index for one in lines] == ["2", "10", "x"]


@pytest.mark.parametrize(
    ("source", "stages", "text"),
    [
        ("live", (), "wirewatch: FAILED, no job may start; 0 jobs, 0 findings"),
        ("replay", ("live", "repaired", "suppressed"),
         "wirewatch, replay: FAILED, no job may start; 0 jobs, 1 finding"),
    ],
)  # fmt: skip
def test_the_title_counts_the_findings_that_count(source: str, stages: Any, text: str) -> None:
    shot = snapshot(findings=[finding(2)])
    found = [replace(shot.findings.findings[0], stage=stage) for stage in stages]
    shot = replace(
        shot, state=replace(shot.state, source=source), findings=replace(shot.findings, findings=found)
    )
    told = view(shot, LinkRates(), 200)
    assert (told.title.text, told.title.tone) == (text, "failed")
    assert [one.tone for one in told.findings][1:] == (["failed", "quiet", "quiet"] if stages else ["quiet"])
    marks = [("(" in one.text.partition(":")[0]) for one in told.findings[1:]]
    assert marks == ([False, True, True] if stages else [False])


def test_a_gpu_has_its_worst_finding_and_its_own_job() -> None:
    shot = snapshot(evidence(job(waiting=0.2)), findings=[finding(2, "degraded"), finding(2), finding(3)])
    lines = {one.index: one for one in topview.gpu_lines(shot, LinkRates())}
    assert (lines["2"].health, lines["2"].findings, lines["4"].health) == ("failed", 2, "ok")
    assert (lines["0"].job, lines["7"].job, lines["0"].waiting is None) == ("slurm:4711", "", False)
    unknown = snapshot(evidence(Absent(Why.MISSING, "no tap")))
    line = topview.gpu_lines(unknown, LinkRates())[0]
    assert (bool(line.job), line.waiting, line.busbw) == (True, None, None)
