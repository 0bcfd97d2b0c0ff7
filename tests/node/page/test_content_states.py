"""The page of nodes in all kinds of states: valid, whole, and never better than what is known."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.node.page.pages import Strict, html_of
from tests.node.page.states import MANY, STATES, faulty, of, state
from tests.node.page.test_content import LATER
from tests.rows import each
from tests.support import EPOCH
from wirewatch import __version__
from wirewatch.documents.health import ProbeStatus
from wirewatch.page import html
from wirewatch.page.content import PageContent
from wirewatch.page.model import Cell, Page, Section, Table

each_state = pytest.mark.parametrize("name", STATES)


def page(name: str) -> Page:
    return html.page(state(name))


def section(name: str, which: str) -> Section:
    return next(one for one in page(name).sections if one.id == which)


def table(name: str, which: str) -> Table:
    return next(one for part in page(name).sections for one in part.tables if one.id == which)


def row(name: str, which: str, head: str) -> tuple[Cell, ...]:
    return next(one.cells for one in table(name, which).rows if one.head.text == head)


def texts(cells: tuple[Cell, ...]) -> list[str]:
    return [one.text for one in cells]


@each_state
def test_a_page_is_valid_and_says_what_health_says(name: str) -> None:
    told = state(name)
    found = Strict(html_of(told))
    (word,) = found.all("h1")
    assert word.text == told.health.health.upper()
    assert found.all("title")[0].text == f"{word.text} · gpu-017 · wirewatch"
    text = found.all("body")[0].text
    assert ("No job may start" in text) != told.health.job_ready
    for one in told.findings.findings:
        (command,) = found.all("code", id=f"finding-{one.id}")
        assert command.text == f"wirewatch findings show {one.id}"
        card = command.within("li")
        assert card is not None
        assert one.rule in card.text


@each_state
def test_tables_are_whole_and_nothing_is_blank(name: str) -> None:
    for part in page(name).sections:
        assert part.lines or part.tables or part.drawing
        assert all(line.text.strip() for line in part.lines)
        for one in part.tables:
            assert one.rows
            for row in one.rows:
                assert 1 + sum(cell.span for cell in row.cells) == len(one.columns)
                for cell in (row.head, *row.cells):
                    assert cell.text.strip()
                    assert not {"None", "nan", "inf"} & set(cell.text.split())
                    assert bool(cell.why) == cell.text.startswith("not known")
                    assert not cell.why or cell.mark or cell.span > 1


@each_state
def test_every_landmark_and_table_has_a_name(name: str) -> None:
    found = Strict(html_of(state(name)))
    named = [
        *found.all("section"),
        *found.all("nav"),
        *found.all("div", role="region"),
        *found.all("svg", role="img"),
    ]
    assert all({"aria-label", "aria-labelledby"} & set(one.attributes) for one in named)
    assert len(found.all("main")) == len(found.all("h1")) == 1
    tables = found.all("table")
    assert len(found.all("caption")) == len(tables)
    assert all(one.attributes.get("scope") in {"row", "col"} for one in found.all("th"))


def test_a_gpu_that_is_lost_has_no_numbers_but_the_reason() -> None:
    lost = row("gpu-lost", "gpu-table", "GPU 5")
    assert lost[0].text == "FAILED"
    assert lost[1].text.startswith("not known: lost: GPU has fallen off the bus")
    assert lost[1].span == 8
    assert texts(row("gpu-lost", "gpu-table", "GPU 4"))[:2] == ["OK", "18 of 18"]


def test_no_gpu_is_ok_while_a_collector_of_gpus_is_stale() -> None:
    assert row("stale", "gpu-table", "GPU 2")[0].text == "FAILED"
    other = row("stale", "gpu-table", "GPU 3")
    assert (other[0].text, other[0].note) == ("UNKNOWN", "not read: gpu, nvlink")
    assert other[3].text == "gen 5 x16"
    (gpu,) = [one for one in table("stale", "collector-table").rows if one.head.text == "gpu"]
    assert gpu.cells[0].text == "stale: overdue"
    assert "(1 min 10 s ago)" not in gpu.cells[0].note
    assert gpu.cells[0].note.endswith("1 min 10 s ago")
    drawing = section("stale", "topology").drawing
    assert drawing is not None
    assert {box.style for box in drawing.boxes if box.text.startswith("GPU")} == {"unknown", "bad"}
    assert {wire.style for wire in drawing.wires if wire.y2 < wire.y1} == {"unknown"}


def test_a_link_that_is_down_is_drawn_broken_and_told_in_words() -> None:
    drawing = section("link-down", "topology").drawing
    assert drawing is not None
    (broken,) = [wire for wire in drawing.wires if wire.broken]
    assert (broken.text, broken.style) == ("17/18", "bad")
    assert "17 of 18 NVLink links up to the switch, link 7 down" in drawing.words[2]
    assert [box.style for box in drawing.boxes if box.text == "GPU 2"] == ["bad"]
    assert len([wire for wire in drawing.wires if wire.text == "18/18"]) == 7


@pytest.mark.parametrize(
    ("name", "texts", "look"),
    [
        ("port-down", {"400", "200", "down"}, "bad"),
        ("port-unreadable", {"400", "200", "?"}, "unknown"),
        ("denied", {"?"}, "unknown"),
    ],
)
def test_the_wire_of_a_port_is_drawn_as_the_port_is(name: str, texts: set[str], look: str) -> None:
    drawing = section(name, "topology").drawing
    assert drawing is not None
    ports = [wire for wire in drawing.wires if wire.y2 > wire.y1 and wire.text]
    assert {wire.text for wire in ports} == texts
    assert {wire.style for wire in ports} <= {"good", look}
    assert [wire.broken for wire in ports].count(True) == (look == "bad")
    assert ("mlx5_2, 0000:4f:00.0, NUMA node 0: port 1 InfiniBand, down." in drawing.words) == (look == "bad")


def test_pcie_that_is_narrow_is_drawn_broken_and_no_other_wire() -> None:
    for name, text in (("pcie-x8", "GPU 1"), ("nic-pcie-x8", "mlx5_2")):
        drawing = html.page(of(faulty(name))).sections[7].drawing
        assert drawing is not None
        (broken,) = [wire for wire in drawing.wires if wire.broken]
        (box,) = [box for box in drawing.boxes if box.text == text]
        assert box.x < broken.x1 < box.x + box.width


@each_state
def test_a_drawing_keeps_its_parts_apart_and_inside(name: str) -> None:
    drawing = section(name, "topology").drawing
    if drawing is None:
        return
    for one in drawing.boxes:
        assert one.x >= 0
        assert one.x + one.width <= drawing.width
        assert one.y + one.height <= drawing.height
        for other in drawing.boxes:
            apart = (
                one.x + one.width <= other.x or other.x + other.width <= one.x
                or one.y + one.height <= other.y or other.y + other.height <= one.y
            )  # fmt: skip
            assert one is other or apart, (one, other)


def test_the_matrix_shows_who_sends_slowly() -> None:
    slow = row("straggler", "peer-table", "from 5")
    assert [one.tone for one in slow] == [*["slow3"] * 5, "quiet", *["slow3"] * 2]
    assert all(one.strong and one.aside.endswith("% below the median") for one in slow if one.text != "·")
    others = [c.tone for one in table("straggler", "peer-table").rows[:5] for c in one.cells if c.text != "·"]
    assert set(others) == {""}
    assert row("straggler", "score-table", "GPU 5")[2].strong


def test_a_probe_stands_beside_what_was_expected() -> None:
    told = row("healthy", "probe-table", "all_reduce")
    assert texts(told) == ["64 MiB", "all", "321.0", "322.3", "100 %", "ring/simple", "0"]
    details = section("healthy", "probes").details
    assert any("NVLink links" in line for one in details[0].points for line in one.under)


def test_of_what_nothing_is_expected_the_page_says_what_judges_it() -> None:
    lines = [line.text for line in section("unknown-product", "probes").lines]
    said = "Nothing is expected of all_reduce, all_gather, reduce_scatter here: "
    assert any(line.startswith(said) for line in lines)
    assert not any("Nothing is expected" in line.text for line in section("healthy", "probes").lines)
    details = section("unknown-product", "probes").details
    assert any("478.1 GB/s each way" in line for one in details[0].points for line in one.under)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mig", "There is nothing to probe on this node: a GPU is in MIG mode"),
        ("one-gpu", "There is nothing to probe on this node: there are not two GPUs"),
        ("first-seconds", "Not known: no probe has completed yet"),
        ("gpu-lost", "Not known: no probe has completed yet; who uses the GPUs could not be read"),
        ("nothing-watched", "Probing is switched off."),
    ],
)
def test_why_there_is_no_probe_is_said_everywhere(name: str, words: str) -> None:
    for which in ("peers", "probes", "slow"):
        assert any(line.text.startswith(words) for line in section(name, which).lines), which


def test_what_is_not_there_is_not_called_unknown() -> None:
    assert section("one-gpu", "ports").lines[0].text == "This node has no RDMA port, and none is expected."
    assert texts(row("one-gpu", "gpu-table", "GPU 0"))[1:3] == ["none"] * 2
    assert texts(row("mig", "gpu-table", "GPU 0"))[1:3] == ["not watched"] * 2
    assert section("no-gpus", "gpus").lines[0].text == "The driver lists no GPU."


def test_what_cannot_be_read_is_not_called_absent() -> None:
    words = "Not known: denied: /sys/class/infiniband: Permission denied."
    assert [line.text for line in section("denied", "ports").lines] == [words]
    assert section("denied", "paths").lines[0].text == words
    assert section("first-seconds", "gpus").lines[0].text.startswith("Not known")
    assert section("nothing-watched", "collectors").lines[0].text.startswith("All are switched off")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("no-gpus", ["There is neither a GPU nor an RDMA NIC to draw."]),
        ("nothing-watched", ["Not known now: the collector topology is switched off."]),
        (
            "healthy",
            [
                "Where each part is connected, as it was read",
                "Above the GPUs: NVLink links up, of those expected. Below the NICs: Gb/s of each port.",
            ],
        ),
    ],
)
def test_a_drawing_says_when_it_was_read_and_its_absence_why(name: str, told: list[str]) -> None:
    assert [line.text for line in section(name, "topology").lines] == told


def test_a_graph_of_a_collector_that_is_gone_has_no_time() -> None:
    content = _in_state(state("healthy"), collectors=[])
    topology = next(one for one in html.page(content).sections if one.id == "topology")
    assert topology.drawing is not None
    assert [line.text for line in topology.lines] == [
        "Not known now: the collector topology is switched off."
    ]


def test_a_port_that_is_down_has_no_rate() -> None:
    down = row("port-down", "port-table", "mlx5_2 port 1")
    assert texts(down)[:3] == ["down", "polling", "not known"]
    assert table("port-down", "port-table").notes[down[2].mark - 1] == "it has none while it is down"
    unread = row("port-unreadable", "port-table", "mlx5_7 port 1")
    assert unread[0].why


def test_hints_of_running_jobs_have_a_place_of_their_own_and_change_no_verdict() -> None:
    told = [(one.head.text, *texts(one.cells)[:2]) for one in table("hinted", "hint-table").rows]
    assert told == [
        ("collectives slower", "the node", "NVLink carries <b>200</b> GB/s"),
        ("has more work", "GPU 3", "GPU 3 has 11% more work"),
    ]
    assert page("hinted").verdict.health == page("healthy").verdict.health == "ok"
    assert "hints" not in [one.id for one in page("straggler").sections]


def test_running_jobs_say_who_is_waited_for_and_what_the_wire_gives() -> None:
    late = texts(row("jobs", "job-table", "slurm:4711"))
    assert late[0] == "0, 1, 2, 3"
    assert late[3] == "GPU 2, 9 % of the time"
    wires = {one.head.text: texts(one.cells) for one in table("jobs", "job-wire-table").rows}
    assert wires["slurm:4711"][:3] == ["all_reduce", "256 MiB", "4"]
    assert wires["slurm:4711"][-1] == "Ring, Simple"
    assert wires["pid:9000"][-1] == "Tree, Simple"
    silent = row("jobs", "job-table", "pid:9100")
    assert "nothing was timed" in silent[1].text
    assert "pid:9100" not in wires
    assert [one.rules[0].name for one in page("jobs").findings] == ["jobs.slow_wire"]
    assert "NCCL_ALGO=Tree" in page("jobs").findings[0].evidence
    assert "jobs" not in [one.id for one in page("healthy").sections]


def test_jobs_that_hang_come_before_those_that_did() -> None:
    now, over = table("hung", "hang-table").rows
    assert [row.head.text for row in (now, over)] == ["asymmetric", "asymmetric"]
    assert (now.head.tone, over.head.tone) == ("warn", "quiet")
    assert [texts(row.cells)[2] for row in (now, over)] == ["slurm:41", "slurm:41"]
    assert "rank 2" in now.cells[-1].text
    assert "py-spy" in now.cells[-1].text
    assert "rank 1" in over.cells[-1].text
    assert page("hung").verdict.health == "ok"
    assert "hangs" not in [one.id for one in page("healthy").sections]


def test_a_hundred_findings_are_all_there_worst_first() -> None:
    cards = page("many").findings
    assert len(cards) == MANY
    assert [one.health for one in cards] == ["failed"] * 50 + ["degraded"] * 50
    assert page("many").verdict.reason.endswith("And 99 more findings.")


def test_one_driver_that_hangs_is_one_card() -> None:
    (card,) = page("silent").findings
    blind = [one.name.removesuffix(".blind") for one in card.rules]
    assert set(blind) >= {"drift", "gpu", "inventory", "nvlink", "pcie", "topology"}
    why = "timeout: no result after 10 s; still waiting"
    assert page("silent").verdict.reason == f"Cannot be read now ({why}): {', '.join(blind)}."
    (lost,) = page("gpu-lost").findings
    assert {one.name for one in lost.rules} == {"gpu.lost", "gpu.blind", "nvlink.blind", "pcie.blind"}


def test_a_release_is_reported_before_the_verdict() -> None:
    told = page("released")
    (notice,) = told.notices
    assert notice.text.startswith("The GPUs are released until 2026-11-21 01:16:30 UTC (in 6 min 40 s)")
    assert notice.code == "wirewatch release --end"
    assert told.verdict.health == "unknown"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("straggler", "Not live: this is a recording"),
        ("degraded", "Not a real node"),
        ("stopped", "A loop of the daemon has stopped"),
    ],
)
def test_what_makes_the_page_unfit_is_reported_first(name: str, words: str) -> None:
    (notice,) = page(name).notices
    assert notice.text.startswith(words)
    assert page("healthy").notices == ()


UNFIT: Mapping[str, tuple[str, Callable[[PageContent], PageContent]]] = {
    "replay": ("Not live: this is a recording", lambda one: _in_state(one, source="replay")),
    "synthetic": (
        "Not a real node: the recording was changed",
        lambda one: _in_state(one, source="synthetic"),
    ),
    "released": ("The GPUs are released until", lambda one: _in_health(one, released_until=one.at + 60)),
    "stopped": ("A loop of the daemon has stopped", lambda one: _in_health(one, turning=False)),
    "quiet": ("Nothing has been polled for 2 min 1 s", lambda one: _in_health(one, polled_at=one.at - 121)),
}
"""How a page becomes unfit, and how its notice begins."""


def _in_state(one: PageContent, **but: Any) -> PageContent:
    return replace(one, state=replace(one.state, **but))


def _in_health(one: PageContent, **but: Any) -> PageContent:
    return replace(one, health=replace(one.health, **but))


@pytest.mark.parametrize("name", ["healthy", "link-down", "suppressed", "stale", "first-seconds"])
@pytest.mark.parametrize(
    "ways",
    [[way] for way in UNFIT] + [["replay", "released", "stopped", "quiet"], ["synthetic", "stopped"]],
    ids="+".join,
)
def test_nothing_else_on_a_page_hides_what_makes_it_unfit(name: str, ways: Sequence[str]) -> None:
    content = state(name)
    content = _in_health(content, polled_at=content.at)
    for way in ways:
        content = UNFIT[way][1](content)
    found = [one.text for one in html.page(content).notices]
    assert len(found) == len(ways)
    assert all(text.startswith(UNFIT[way][0]) for text, way in zip(found, ways, strict=True))


@pytest.mark.parametrize("ago", [None, 120.0])
def test_a_poll_of_two_minutes_ago_is_not_long_ago_and_none_is_no_old_one(ago: float | None) -> None:
    content = state("healthy")
    polled = 0.0 if ago is None else content.at - ago
    assert html.page(_in_health(content, polled_at=polled)).notices == ()


@pytest.mark.parametrize("fresh", [True, False])
def test_an_old_probe_is_called_old_in_each_section_and_a_fresh_one_in_none(*, fresh: bool) -> None:
    content = state("straggler")
    content = replace(content, probes=replace(content.probes, fresh=fresh))
    parts = {one.id: one for one in html.page(content).sections}
    last, peers = parts["probes"].lines[0], parts["peers"].lines[0]
    assert last.text.startswith("Last complete probe: ")
    assert ("It is too old to count for now." in last.text) is not fresh
    assert ("The probe is old: the rates now are not known." in peers.text) is not fresh
    assert last.tone == peers.tone == ("" if fresh else "unknown")


ASKED = "Jobs may start, but `wirewatch check` asks for a fresh probe first, and there is none."
MAY = "The next job may start on this node."


@each(
    ("guard", "ready", "probe", "said"),
    [
        ("a finding stops jobs", False, (False, True), "No job may start on this node."),
        ("a probe is required and old", True, (False, True), ASKED),
        ("a probe is required and fresh", True, (True, True), MAY),
        ("an old probe that is not required", True, (False, False), MAY),
        ("nothing to probe", True, None, MAY),
    ],
)
def test_whether_a_job_may_start_is_said_with_what_it_takes(
    guard: str, *, ready: bool, probe: tuple[bool, bool] | None, said: str
) -> None:
    asked = None if probe is None else ProbeStatus(0.0, None, fresh=probe[0], required=probe[1])
    content = _in_health(state("healthy"), job_ready=ready, probe=asked)
    assert html.page(content).verdict.start == said, guard


@pytest.mark.parametrize(
    ("name", "stage", "ends"),
    [
        ("link-down", "live", LATER),
        ("unseen", "live", "1 min without it, of which 15 s have passed; then probation"),
        (
            "probation",
            "probation",
            "23 h 59 min more of watching without it, and clean probes: 0 of 3 so far; ",
        ),
        (
            "latched",
            "latched",
            "a reboot, the reset that the driver asked for, a replaced GPU, or `wirewatch",
        ),
        (
            "suppressed",
            "suppressed",
            "2026-11-22 01:04:50 UTC, a worse health, or `wirewatch findings unsuppress ",
        ),
        ("repaired", "repaired", "its return: then it counts again"),
        ("drifted", "live", "the next poll that does not find it"),
        ("degraded", "live", "the next poll that does not find it"),
    ],
)
def test_a_finding_gives_its_stage_and_what_ends_it(name: str, stage: str, ends: str) -> None:
    told = page(name)
    (card,) = (*told.findings, *told.apart)
    assert card.stage == stage
    assert card.ends.startswith(ends)
    assert bool(told.apart) == (stage in {"suppressed", "repaired"})
    assert card.since is not None
    assert card.rules[0].runbook.startswith("https://docs.example.org/runbook.html#")


def test_what_an_operator_said_stays_on_the_page() -> None:
    (card,) = page("suppressed").apart
    assert card.said == ("Suppressed by night-shift, 2026-11-21 01:05:40 UTC (40 s ago): part is ordered",)
    assert page("suppressed").verdict.reason.endswith("an operator repaired or suppressed 1 finding.")
    assert row("suppressed", "gpu-table", "GPU 2")[0].note == "nvlink.link_down suppressed"


def test_a_change_is_reported_with_how_to_accept_it() -> None:
    told = section("drifted", "drift")
    assert told.lines[1].code.startswith("wirewatch topology accept")
    (change,) = table("drifted", "drift-table").rows
    assert (change.cells[0].text, change.cells[1].note) == ("FAILED", "nvlink_lost")
    assert "links 6, 7 down" in change.cells[1].text
    assert [line.text for line in section("healthy", "drift").lines][-1] == "Nothing has changed."


def test_the_page_names_node_version_and_source() -> None:
    found = Strict(html_of(state("healthy")))
    assert "gpu-017 8 x NVIDIA H200, driver 580.159.04" in found.all("header")[0].text
    assert f"wirewatch {__version__}, source live" in found.all("footer")[0].text
    assert page("healthy").at.iso == "2026-11-21T01:09:50Z"
    assert state("healthy").at == EPOCH + 300
