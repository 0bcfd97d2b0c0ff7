"""The verdict in words, the cards and the notices, by findings drawn by hand."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.node.page.states import state
from tests.rows import each
from tests.support import EPOCH
from wirewatch.documents.health import NodeFinding, SameCause
from wirewatch.page.content import NO_CONTEXT, PageContent
from wirewatch.page.findings import cards, notices, verdict
from wirewatch.page.html import choice, render, runbook, ticked
from wirewatch.page.html import page as page_of

ONE = NodeFinding(
    "nvlink.link_down", "failed", {"gpu": "2"}, "inactive.", "reseat it", EPOCH, "0123abcd", "live", 1, 0.0,
    None, None, 0.0,
)  # fmt: skip
BLIND = replace(ONE, rule="gpu.blind", health="unknown", subject={}, evidence="no answer.")
SAME = SameCause("nvlink.blind", "unknown", {}, "no answer", "wait", EPOCH, "4567abcd")
ASIDE = replace(ONE, stage="suppressed")


def content(health: str, *counted: NodeFinding, every: Sequence[NodeFinding] = ()) -> PageContent:
    """A node of this health with these findings."""
    known = state("healthy")
    return replace(
        known,
        health=replace(known.health, health=health, findings=list(counted)),  # type: ignore[arg-type]
        findings=replace(known.findings, findings=list(every or counted)),
    )


def waiting(*names: str) -> PageContent:
    known = content("unknown")
    collectors = [replace(one, health="unknown") for one in known.state.collectors if one.collector in names]
    return replace(known, state=replace(known.state, collectors=collectors))


@each(
    ("why", "told", "reason"),
    [
        ("one", content("failed", ONE), "GPU 2: inactive."),
        ("two", content("failed", ONE, ONE), "GPU 2: inactive. And 1 more finding."),
        (
            "worse and better",
            content("failed", ONE, replace(ONE, health="degraded", evidence="slow")),
            "GPU 2: inactive. And 1 more finding.",
        ),
        (
            "better and worse",
            content("failed", replace(ONE, health="degraded", evidence="slow"), ONE),
            "GPU 2: inactive. And 1 more finding.",
        ),
        ("the part is named", content("failed", replace(ONE, evidence="GPU 2 is hot")), "GPU 2 is hot."),
        ("of the node", content("failed", replace(ONE, subject={})), "The node: inactive."),
        (
            "blind as a whole",
            content("unknown", replace(BLIND, same_cause=[SAME])),
            "Cannot be read now (no answer): gpu, nvlink.",
        ),
        (
            "a part that is blind",
            content("unknown", replace(BLIND, subject={"gpu": "2"})),
            "GPU 2: no answer.",
        ),
        (
            "the node, and not blind",
            content("unknown", replace(BLIND, rule="gpu.odd")),
            "The node: no answer.",
        ),
        ("not polled yet", waiting("gpu", "xid"), "Not polled yet: gpu, xid."),
        ("nothing is watched", waiting(), "Nothing on this node is watched."),
        ("nothing wrong", content("ok"), "No fault is found in anything that is watched."),
        (
            "set aside",
            content("ok", every=[ASIDE]),
            "No finding counts: an operator repaired or suppressed 1 finding.",
        ),
    ],
)
def test_the_worst_is_said_in_a_line(why: str, told: PageContent, reason: str) -> None:
    assert verdict(told).reason == reason, why


@pytest.mark.parametrize(
    ("sinces", "since"),
    [([EPOCH - 5, EPOCH - 9], EPOCH - 9), ([EPOCH - 5, 0.0], EPOCH - 5), ([0.0], None), ([], None)],
)
def test_the_verdict_is_as_old_as_its_first_finding(sinces: list[float], since: float | None) -> None:
    older = replace(ONE, health="degraded", since=EPOCH - 5000)
    told = content("failed", *(replace(ONE, since=one) for one in sinces), older)
    found = verdict(told).since
    assert (found and found.iso) == (since and f"2026-11-21T01:04:{50 - (EPOCH - since):02.0f}Z")


def test_a_card_has_its_times_its_rules_and_what_was_said() -> None:
    told = content("failed", replace(ONE, last=EPOCH - 3, times=2, same_cause=[SAME]))
    (card,) = cards(told, apart=False)
    assert (card.stage, card.ends) == ("live, 2 times within days", "not known")
    assert card.last is not None
    assert [(rule.name, rule.id) for rule in card.rules] == [
        ("nvlink.link_down", "0123abcd"), ("nvlink.blind", "4567abcd"),
    ]  # fmt: skip
    (card,) = cards(content("failed", replace(ONE, since=0.0)), apart=False)
    assert (card.since, card.last, card.stage) == (None, None, "live")
    assert cards(content("ok", every=[ASIDE]), apart=False) == ()
    assert len(cards(content("ok", every=[ASIDE]), apart=True)) == 1


@pytest.mark.parametrize(
    ("source", "about", "told"),
    [
        ("live", "this machine", []),
        ("replay", "", ["Not live: this is a recording."]),
        ("replay", "h200x8", ["Not live: this is a recording: h200x8."]),
        ("synthetic", "", ["Not a real node: the recording was changed or made up."]),
    ],
)
def test_a_page_says_what_it_is_of(source: str, about: str, told: list[str]) -> None:
    known = content("ok")
    known = replace(known, place=replace(NO_CONTEXT, about=about), state=replace(known.state, source=source))
    assert [one.text for one in notices(known)] == told


@pytest.mark.parametrize(
    ("asked", "chosen", "header"),
    [("5", "5", "5"), ("off", "off", None), ("7", "15", "15"), ("", "15", "15")],
)
def test_the_page_reloads_itself_as_asked(asked: str, chosen: str, header: str | None) -> None:
    assert choice(asked) == chosen
    assert render(page_of(content("ok")), asked).headers.get("refresh") == header


def test_the_runbook_may_be_kept_for_five_minutes() -> None:
    assert runbook().headers["cache-control"] == "max-age=300"


@pytest.mark.parametrize(
    ("text", "html"),
    [("a `b` c", "a <code>b</code> c"), ("a ` b", "a ` b"), ("<", "&lt;"), ("`<`", "<code>&lt;</code>")],
)
def test_parts_between_backticks_are_code(text: str, html: str) -> None:
    assert ticked(text) == html


def of_collector(**change: Any) -> list[tuple[str, str]]:
    known = content("ok")
    one = next(one for one in known.state.collectors if one.collector == "gpu")
    one = replace(one, last_success=EPOCH, **change)
    page = page_of(replace(known, state=replace(known.state, collectors=[one])))
    (row,) = next(part for part in page.sections if part.id == "collectors").tables[0].rows
    return [(cell.text, cell.tone) for cell in row.cells[:3]]


@each(
    ("why", "change", "told"),
    [
        ("well", {}, [("answers", "good"), ("OK", "good"), ("5 min ago", "")]),
        ("nothing to watch", {"health": None},
         [("answers", "good"), ("nothing to watch on this node", "quiet"), ("5 min ago", "")]),
        ("overdue", {"overdue_since": EPOCH, "error": "x", "success": False},
         [("stale: overdue", "bad"), ("OK", "good"), ("5 min ago", "unknown")]),
        ("failed", {"error": "x", "success": False, "health": "unknown"},
         [("stale: cannot read", "unknown"), ("UNKNOWN", "unknown"), ("5 min ago", "unknown")]),
        ("running for the first time", {"success": False},
         [("first run not ended", "unknown"), ("OK", "good"), ("5 min ago", "unknown")]),
    ],
)  # fmt: skip
def test_a_collector_has_its_state(why: str, change: dict[str, Any], told: list[tuple[str, str]]) -> None:
    assert of_collector(**change) == told, why


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"health": "unknown", "last_success": 0.0, "success": False}, ["not known", "never", "not known"]),
        ({"health": "ok", "last_success": 0.0, "success": False}, ["OK", "never", "not known"]),
    ],
)
def test_a_collector_that_never_read_has_no_numbers(change: dict[str, Any], told: list[str]) -> None:
    known = content("ok")
    one = next(one for one in known.state.collectors if one.collector == "gpu")
    one = replace(one, error="denied", **change)
    page = page_of(replace(known, state=replace(known.state, collectors=[one])))
    section = next(part for part in page.sections if part.id == "collectors")
    (row,) = section.tables[0].rows
    assert [cell.text for cell in row.cells[1:4]] == told
    assert [cell.why for cell in row.cells if cell.why] == ["denied"] * told.count("not known")
    assert [line.text for line in section.lines] == ["1 of 1 collector has no current data."]


def test_the_node_is_named_with_its_driver_where_that_is_known() -> None:
    known = content("ok")
    about = page_of(known).about
    assert about.endswith(", driver 580.159.04")
    collectors = [
        replace(one, samples=[replace(s, labels={**s.labels, "driver": ""}) for s in one.samples])
        if one.collector == "inventory"
        else one
        for one in known.state.collectors
    ]
    bare = replace(known, state=replace(known.state, collectors=collectors))
    assert page_of(bare).about == about.removesuffix(", driver 580.159.04")
    assert page_of(replace(known, state=replace(known.state, collectors=[]))).about == ""
