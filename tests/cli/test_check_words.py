"""An answer as the one line that people and Slurm read, and as a document."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from tests.cli.schemas import complaints
from wirewatch.cli.check.answer import (
    LIMIT,
    Grounds,
    Terms,
    decide,
    document,
    duration,
    line,
    plain,
    shortened,
)
from wirewatch.core.types import LEVELS, Health
from wirewatch.documents.health import HEALTH_NAMES, CheckDocument, CheckFinding, Probe

NOW = 1_795_000_000.0
CHECK = TypeAdapter(CheckDocument)
DOWN = CheckFinding(
    "0123abcd", "live", "nvlink.link_down", "failed", {"gpu": "3", "uuid": "GPU-3", "link": "5"},
    "down in 3 polls", "reset the GPU", 100.0,
)  # fmt: skip
WARM = CheckFinding("", "", "gpu.throttled", "degraded", {"gpu": "1"}, "half of it.", "see the fans", 90.0)
YOUNG = Probe(NOW - 650, 600.0, fresh=True, required=False)
OLD = Probe(NOW - 9000, 7200.0, fresh=False, required=False)
NEVER = Probe(0.0, None, fresh=False, required=False)
texts = st.text() | st.text(alphabet=st.characters(categories=("Cc", "Cf", "Cs", "Zl", "Zp", "Zs")))
findings = st.builds(
    CheckFinding,
    rule=texts,
    health=st.sampled_from(tuple(HEALTH_NAMES.values())),
    subject=st.dictionaries(st.sampled_from(LEVELS), texts),
    evidence=texts,
    action=texts,
    since=st.floats(0, 2e9),
    id=texts,
    stage=st.sampled_from(("", "live", "latched", "probation", "acknowledged", "suppressed")),
)
grounds = st.builds(
    Grounds,
    health=st.sampled_from(Health),
    source=st.sampled_from(("daemon", "own", "none")),
    why=texts,
    verdict_at=st.floats(0, 2e9),
    findings=st.lists(findings, max_size=4).map(tuple),
    probe=st.sampled_from((None, YOUNG, OLD, NEVER)),
    required=st.booleans(),
)


def said(told: Grounds) -> str:
    return line(decide(told, Terms(), NOW))


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (Grounds(Health.OK, "daemon", probe=YOUNG), "OK"),
        (Grounds(Health.OK, "daemon", probe=OLD), "OK; the last probe is 2 h old"),
        (Grounds(Health.OK, "daemon", probe=NEVER), "OK; no probe yet"),
        (Grounds(Health.OK, "daemon"), "OK"),
        (Grounds(Health.UNKNOWN, "none", "nobody there"), "UNKNOWN; nobody there"),
        (
            Grounds(Health.FAILED, "daemon", findings=(WARM, DOWN), probe=YOUNG),
            "FAILED nvlink.link_down GPU 3 link 5: down in 3 polls. reset the GPU; 1 more finding",
        ),
        (
            Grounds(Health.DEGRADED, "own", "nobody", findings=(WARM, WARM, WARM), probe=NEVER),
            "DEGRADED gpu.throttled GPU 1: half of it. see the fans; nobody; no probe yet; 2 more findings",
        ),
        (
            Grounds(Health.OK, "own", required=True),
            "UNKNOWN; a fresh probe is required and none is known",
        ),
    ],
)
def test_the_line_has_the_worst_first(told: Grounds, words: str) -> None:
    assert said(told) == words


def test_what_is_suppressed_is_no_reason() -> None:
    hidden = replace(DOWN, stage="suppressed")
    assert said(Grounds(Health.DEGRADED, "daemon", findings=(hidden, WARM))) == (
        "DEGRADED gpu.throttled GPU 1: half of it. see the fans"
    )


@given(told=grounds, require=st.booleans())
def test_the_line_is_one_line_whatever_is_told(told: Grounds, *, require: bool) -> None:
    given = decide(told, Terms(require=require), NOW)
    text = line(given)
    assert text.splitlines() == [text]
    assert all(c.isprintable() for c in text)
    assert len(text.encode()) <= LIMIT
    assert text.startswith(given.health.name)


@given(told=grounds, max_age=st.sampled_from((None, 0.0, 1e9)), require=st.booleans())
def test_every_document_is_as_its_schema_says(told: Grounds, max_age: float | None, *, require: bool) -> None:
    made = document(decide(told, Terms(max_age=max_age, require=require), NOW))
    read = CHECK.validate_json(json.dumps(made), strict=True)
    assert CHECK.dump_python(read) == made


def test_the_document_tells_all_findings_and_what_was_applied() -> None:
    told = Grounds(Health.FAILED, "daemon", "", NOW - 3, (DOWN, WARM), YOUNG)
    made: dict[str, Any] = document(decide(told, Terms(max_age=60.0, require=True), NOW))
    assert (made["health"], made["may_start"], made["fail_on"]) == ("failed", False, ["unknown", "failed"])
    assert made["probe"] == {"at": NOW - 650, "age_seconds": 600.0, "fresh": False, "required": True}
    assert [row["id"] for row in made["findings"]] == ["0123abcd", ""]
    assert made["verdict_at"] == NOW - 3
    assert complaints("wirewatch.check.1", json.dumps(made)) == []


@given(st.text(), st.integers(4, 60))
def test_a_text_is_cut_between_two_characters(text: str, limit: int) -> None:
    text = plain(text)
    cut = shortened(text, limit)
    assert len(cut.encode()) <= limit
    assert cut == text or (cut.endswith("…") and text.startswith(cut[:-1]))


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0, "0 s"), (59.4, "59 s"), (60.0, "1 min"), (3599.0, "60 min"), (7200.0, "2 h"), (2e6, "23 d")],
)
def test_ages_are_in_units_of_people(seconds: float, words: str) -> None:
    assert duration(seconds) == words
