"""The table: every bundled overlay has its line, and every line can be kept."""

from proof.rehearsal.expected import CRITICAL, TICKET, Ending
from proof.rehearsal.fleet import shipped_rules
from proof.rehearsal.pace import INTERVALS, here, in_service, waits_of
from proof.rehearsal.table import ALL, HARMLESS, OTHERS, TABLE, WRITTEN, derived
from tests.rows import each
from tools.pages import DOCS
from wirewatch.hw.overlay import bundled_overlays

WAITS = waits_of(shipped_rules())


def test_every_bundled_overlay_has_a_line_and_nothing_else_has() -> None:
    assert set(WRITTEN) <= set(TABLE) == set(bundled_overlays())
    assert not set(OTHERS) & set(TABLE)
    assert all(row.about and (row.changes or row.kills or row.crashes) for row in OTHERS.values())


def test_those_that_the_runbook_calls_no_faults_raise_nothing_and_all_others_do() -> None:
    told = (DOCS / "runbook.md").read_text("utf-8")
    harmless = " ".join(told.split()).partition("These four are not faults")[2].partition("To reset")[0]
    assert {name for name in TABLE if f"`{name}`" in harmless} == set(HARMLESS)
    assert {name for name, row in ALL.items() if not row.alerts} == set(HARMLESS)


@each("name", [name for name in ALL if name not in HARMLESS])
def test_a_line_names_alerts_and_collectors_that_there_are(name: str) -> None:
    row = ALL[name]
    assert {(alert.name, alert.severity) for alert in row.every} <= set(WAITS)
    assert row.collector in INTERVALS
    assert len(set(row.every)) == len(row.every)
    # What was FAILED does not go by itself, but for drift, which is over when it is as it was.
    paged = any(alert.severity == CRITICAL for alert in row.alerts)
    assert not (paged and row.ending is Ending.ITSELF) or row.collector == "drift"
    names = {alert.name for alert in row.alerts}
    assert all(alert.severity == TICKET for alert in row.later if alert.name in names)
    assert {(alert.name, alert.severity) for alert in row.besides} <= set(WAITS)


@each("name", [name for name in ALL if name not in HARMLESS])
def test_a_limit_of_here_is_never_longer_than_that_of_service(name: str) -> None:
    row = ALL[name]
    for alert in row.every:
        assert 0 < here(WAITS).fires(row, alert) < in_service(WAITS).fires(row, alert)
        assert 0 < here(WAITS).clears(row, alert) < in_service(WAITS).clears(row, alert)


def test_a_lost_link_is_a_page_within_so_many_seconds() -> None:
    """Three looks of 15 s, a scrape, two evaluations of two rules each 30 s, two minutes, a group's three."""
    row = TABLE["nvlink-link-down"]
    assert in_service(WAITS).fires(row, row.alerts[0]) == 3 * 15 + 15 + 2 * 60 + 120 + 180
    assert here(WAITS).fires(row, row.alerts[0]) == 3 + 1 + 8 + 8


def test_a_fault_without_a_line_is_held_to_what_its_file_says() -> None:
    row = derived("nvlink-link-slow")
    (alert,) = row.alerts
    assert (alert.name, alert.severity) == ("WirewatchNVLinkSlow", CRITICAL)
    assert dict(alert.labels) == {"gpu": "2", "link": "7", "rule": "nvlink.link_slow"}
    assert (row.collector, row.looks, row.ending) == ("nvlink", 3, Ending.ACK)
    assert derived("gpu-throttle-thermal").ending is Ending.ITSELF
