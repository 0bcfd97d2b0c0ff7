"""docs/faults.md: every bundled fault has its row, and what a sample of them makes is as it stands there."""

import re
from functools import cache

import pytest

from proof.rehearsal.page import table
from tools.faults.changes import begun, ended
from tools.faults.course import course
from tools.faults.daemon import ReplayedDaemon
from tools.faults.height import RECORDING
from tools.faults.page import HEAD, PAGE, outlines, row, section
from tools.prose import formatted
from wirewatch.core.types import Health
from wirewatch.hw.overlay import AnswerChange, bundled_overlays, load_overlay

SAMPLE = ("nvlink-link-down", "xid-154", "gpu-hang", "ib-port-polling")
"""A fault that is FAILED and on probation, one that latches, a driver that hangs, one that is older."""


README = PAGE.parents[1] / "README.md"

played = cache(course)


@cache
def text() -> str:
    return PAGE.read_text("utf-8")


def part(title: str) -> str:
    """What stands under a heading of the page."""
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", text(), re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def test_every_overlay_has_a_row_and_one_that_makes_a_finding_has_details() -> None:
    rows = re.findall(r"^\| \[`([a-z0-9-]+)`\]", part("The faults"), re.MULTILINE)
    quiet = re.findall(r"^\| `([a-z0-9-]+)` ", part("No faults"), re.MULTILINE)
    assert sorted([*rows, *quiet]) == bundled_overlays(), "run `make faults`"
    assert re.findall(r"^### (.+)$", part("Each fault"), re.MULTILINE) == sorted(rows)


def test_the_readme_counts_them() -> None:
    faults = len(re.findall(r"^### ", part("Each fault"), re.MULTILINE))
    counted = f"[{faults} faults](proof/claims/claims.md#faults) are bundled ([docs/faults.md]"
    assert counted in " ".join(README.read_text("utf-8").split())


def test_a_fault_that_is_not_seen_says_itself_that_it_is_none() -> None:
    for name in re.findall(r"^\| `([a-z0-9-]+)` ", part("No faults"), re.MULTILINE):
        overlay = load_overlay(name)
        assert not overlay.findings
        assert re.search("no fault|nothing", overlay.about)


@pytest.mark.parametrize("name", SAMPLE)
def test_what_stands_there_is_what_comes_of_it(name: str) -> None:
    line = formatted(table(HEAD, [row(played(name))])).splitlines()[-1]
    assert line in text(), "run `make faults`"
    assert formatted(section(played(name))).strip() in text(), "run `make faults`"


def test_a_link_that_is_down_is_failed_then_on_probation_for_a_day() -> None:
    one = played("nvlink-link-down")
    (found,) = one.found
    assert (found.rule, found.health, found.seen, found.worst) == ("nvlink.link_down", Health.FAILED, 14, 44)
    assert outlines(one.after) == "FAILED; probation after 75 s; OK after 24 h"
    assert all(stage.health is Health.FAILED for stage in one.kept)
    assert one.metrics.primary == "nvlink_links"


def test_a_daemon_that_is_started_again_knows_the_machine_before_it_polls() -> None:
    """Before: machine.json was not kept, and a restart forgot GPUs, links and ports."""
    daemon = ReplayedDaemon.on(RECORDING, [])
    daemon.play(60.0)
    memory = daemon.state.components["inventory"].memory
    for again in (daemon.restart, daemon.boot):
        again()
        assert daemon.state.components["inventory"].memory.slots == memory.slots != {}
        daemon.play(60.0)
    assert daemon.verdict.health is Health.OK


CHANGE = AnswerChange("nvml", "gpu0/X()", "set", 1, 20.0)


def test_the_first_change_begins_when_it_should_and_the_others_keep_their_distance() -> None:
    record = "4,7,5000000,-;NVRM: Xid"
    log = AnswerChange("kmsg", "Records()", "set", [record], 30.0, 40.0)
    moved, logged = begun([CHANGE, log], 100.0)
    assert (moved.start, logged.start, logged.until) == (100.0, 110.0, 120.0)
    assert logged.argument == ["4,7,85000000,-;NVRM: Xid"]


def test_what_was_counted_and_logged_is_not_taken_back() -> None:
    ramp = AnswerChange("nvml", "gpu0/X()", "ramp", 2, 20.0)
    added = AnswerChange("nvml", "gpu0/X()", "add", 2, 20.0)
    log = AnswerChange("kmsg", "Records()", "set", [], 20.0)
    over, growing, grown, kept, logged = ended([CHANGE, ramp, added, log], 50.0)
    assert (over.until, growing.until) == (50.0, 50.0)
    assert (grown.action, grown.argument, grown.start) == ("add", 60, 50.0)
    assert (kept, logged) == (added, log)
