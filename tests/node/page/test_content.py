"""The words that say what ends a finding, by its stage and its entry; each row differs in one thing."""

from dataclasses import replace
from typing import Any

import pytest

from tests.rows import each
from tests.support import EPOCH
from wirewatch.core.collector import Component, NodeState
from wirewatch.core.types import Absent, Failed, Finding, Health, Ok, OperatorNote, Subject, Why
from wirewatch.jobs.times import JobsFacts
from wirewatch.page.content import _facts, endings
from wirewatch.probe.collector import PROBE_NAME
from wirewatch.verdict.ledger import Entry, Ledger, Stage, Suppression, VerdictPolicy
from wirewatch.verdict.node import (
    LATCHED,
    LIVE,
    PROBATION,
    REPAIRED,
    SUPPRESSED,
    Judged,
    Standing,
    Verdict,
)

SAID = OperatorNote("night-shift", "part is ordered", EPOCH)
FINDING = Finding("nvlink.link_down", Health.FAILED, Subject("2", "GPU-2", "7"), "evidence", "action")
ENTRY = Entry(
    FINDING.rule, FINDING.subject, "nvlink", Health.FAILED, Stage.PROBATION, "evidence", "action", EPOCH,
    EPOCH, absent=3600.0, probes=2, mono=1.0,
)  # fmt: skip
XID = replace(ENTRY, rule="xid.79", stage=Stage.LATCHED)
SUPPRESSION = Suppression(FINDING.rule, FINDING.subject, Health.FAILED, EPOCH + 60, SAID)
ID = Standing(FINDING, LIVE, "nvlink").id
RESET = "a reboot, the reset that the driver asked for"
BACK = "FAILED at once if it comes back"


def ends(
    finding: Finding, entry: Entry | None, probe: Component | None, stage: str = LIVE, **more: Any
) -> str:
    standing = Standing(finding, stage, "nvlink", **more)
    ledger = Ledger(entries={} if entry is None else {standing.key: entry})
    state = NodeState({} if probe is None else {PROBE_NAME: probe})
    judged = Judged(state, Verdict(Health.FAILED, (finding,), (standing,)), ledger)
    (found,) = endings(judged, VerdictPolicy()).values()
    return found.replace(standing.id, "ID")


PROBED = Component(PROBE_NAME, None, applicable=True)
LATER = "1 min in which it is not seen, and then 1 d of probation: it counts as DEGRADED, and jobs may start"


@each(
    ("why", "change", "text"),
    [
        ("a fault that is measured", {}, LATER),
        ("of a rule that latches", {"rule": "xid.79"},
         f"{RESET}, or `wirewatch findings repaired ID` once it is repaired; time alone does not end it"),
        ("of a rule that a person puts right", {"rule": "topology.shape"},
         "the next poll that does not find it"),
        ("degraded", {"health": Health.DEGRADED}, "the next poll that does not find it"),
        ("blind", {"health": Health.UNKNOWN, "rule": "gpu.blind"}, "the next poll that can read it again"),
        ("an event", {"health": Health.DEGRADED, "last": EPOCH},
         "time: it is shown for a while after the last event"),
    ],
)  # fmt: skip
def test_what_ends_a_finding_that_is_measured(why: str, change: dict[str, Any], text: str) -> None:
    finding = replace(FINDING, **change)
    assert ends(finding, ENTRY, PROBED, measured=finding.health) == text, why


@pytest.mark.parametrize(
    ("why", "entry", "text"),
    [
        ("counted", ENTRY, "1 min without it, of which 1 h have passed; then probation"),
        ("not counted now", replace(ENTRY, mono=None), "nothing until its part can be read again"),
        ("unknown to the ledger", None, "nothing until its part can be read again"),
        ("of a rule that latches", XID, RESET),
    ],
)
def test_what_ends_a_finding_that_is_not_seen(why: str, entry: Entry | None, text: str) -> None:
    assert ends(FINDING, entry, PROBED) == text, why


@each(
    ("why", "entry", "probe", "text"),
    [
        ("some time is left", ENTRY, PROBED,
         f"23 h more of watching without it, and clean probes: 2 of 3 so far; {BACK}"),
        ("its time is over", replace(ENTRY, absent=90_000.0), PROBED,
         f"its time has passed, and clean probes: 2 of 3 so far; {BACK}"),
        ("more probes than are needed", replace(ENTRY, probes=9), PROBED,
         f"23 h more of watching without it, and clean probes: 3 of 3 so far; {BACK}"),
        ("probing is off", ENTRY, None, f"23 h more of watching without it; {BACK}"),
        ("nothing can be probed", ENTRY, replace(PROBED, applicable=False),
         f"23 h more of watching without it; {BACK}"),
        ("not known whether", ENTRY, replace(PROBED, applicable=None),
         f"23 h more of watching without it, and clean probes: 2 of 3 so far; {BACK}"),
        ("said to be repaired", replace(ENTRY, stage=Stage.LATCHED), PROBED, f"1 d without it; {BACK}"),
        ("unknown to the ledger", None, PROBED, f"1 d without it; {BACK}"),
    ],
)  # fmt: skip
def test_what_ends_probation(why: str, entry: Entry | None, probe: Component | None, text: str) -> None:
    assert ends(FINDING, entry, probe, PROBATION) == text, why


@pytest.mark.parametrize(
    ("stage", "more", "text"),
    [
        (SUPPRESSED, {"suppression": SUPPRESSION},
         ("2026-11-21 01:05:50 UTC, a worse health, or `wirewatch findings unsuppress ID`; "
         "it does not count until then")),
        (REPAIRED, {}, "its return: then it counts again; an operator said that it is repaired"),
        (LATCHED, {},
         (f"{RESET}, a replaced GPU, or `wirewatch findings repaired ID` once it is repaired; "
         "time alone does not end it")),
    ],
)  # fmt: skip
def test_what_ends_what_is_remembered(stage: str, more: dict[str, Any], text: str) -> None:
    assert ends(FINDING, ENTRY, PROBED, stage, **more) == text


FACTS = JobsFacts(EPOCH, 60.0)


@pytest.mark.parametrize(
    ("why", "one", "found"),
    [
        ("read", Component("jobs", None, Ok(None, EPOCH, 0.0), facts=FACTS), FACTS),
        ("not now", Component("jobs", None, Failed(Absent(Why.LOST, "gone"), EPOCH, 0.0), facts=FACTS), None),
        ("of another type", Component("jobs", None, Ok(None, EPOCH, 0.0), facts="else"), None),
    ],
)
def test_jobs_are_shown_while_their_collector_reads(
    why: str, one: Component, found: JobsFacts | None
) -> None:
    assert _facts(Judged(NodeState({"jobs": one}), Verdict(Health.OK, ())), JobsFacts) == found, why
