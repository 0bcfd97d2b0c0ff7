"""proof/rehearsal/rehearsal.md and results.json."""

import json

from proof.rehearsal.day import Lived, Step
from proof.rehearsal.faults import Played
from proof.rehearsal.fleet import shipped_rules
from proof.rehearsal.judge import Judged, Told
from proof.rehearsal.pace import in_service, waits_of
from proof.rehearsal.page import PAGE, page, spoken, unheard
from proof.rehearsal.results import Results, as_json
from proof.rehearsal.table import ALL, HARMLESS, OTHERS, WRITTEN
from tests.rows import each

SERVICE = in_service(waits_of(shipped_rules()))
COMMITTED = PAGE.read_text("utf-8")


def played(name: str, *troubles: str) -> Played:
    told = tuple(Told(str(alert), 12.3, 45.6) for alert in ALL[name].every)
    return Played(name, ALL[name], Judged(told, troubles))


def results(*troubles: str) -> Results:
    return Results(tuple(played(name) for name in ALL), Lived((Step("boot", 7.0),), ()), troubles, 420.0)


def test_the_page_has_each_fault_with_its_seconds() -> None:
    told = page(results(), SERVICE)
    line = next(line for line in told.splitlines() if line.startswith("| `nvlink-link-slow`"))
    assert line == (
        "| `nvlink-link-slow`: NVLink 7 of GPU 2 trains at a fraction of its rate |"
        " WirewatchNVLinkSlow critical (gpu 2, link 7) | 12 s | 8 min | repaired, then `findings repaired` |"
        " 46 s | 8.75 min |"
    )
    assert "This run: 420 s" in told
    assert "| boot | 7 |" in told


@each("name", [*WRITTEN, *OTHERS])
def test_the_page_that_is_kept_is_of_this_table(name: str) -> None:
    """Seconds differ from run to run; `make rehearsal WRITE=--write` makes it again, with what is derived."""
    assert f"`{name}`" in COMMITTED
    assert all(str(alert) in COMMITTED for alert in ALL[name].every)


def test_the_page_that_is_kept_is_of_a_rehearsal_that_passed() -> None:
    assert "what did not come as it should: none" in COMMITTED
    assert "never" not in COMMITTED.partition("## Faults")[2].partition("## Faults without")[0].replace(
        " never ", ""
    )


def test_alerts_that_nothing_here_raises_are_reported() -> None:
    assert {"WirewatchProbeStale", "WirewatchFleetBlind"} <= set(unheard())
    assert not {"WirewatchNVLinkDown", "WirewatchAgentDown"} & set(unheard())


def test_the_page_that_is_kept_says_what_nothing_here_raises() -> None:
    assert all(f"`{name}`" in COMMITTED for name in unheard())


def test_the_document_says_whether_it_passed_and_what_came() -> None:
    document = json.loads(as_json(results()))
    assert (document["passed"], document["schema"], len(document["faults"])) == (
        True,
        "wirewatch.rehearsal/1",
        len(ALL),
    )
    fault = next(one for one in document["faults"] if one["name"] == "xid-79")
    (alert,) = fault["alerts"]
    assert (alert["fired_seconds"], alert["cleared_seconds"]) == (12.3, 45.6)


def test_any_trouble_at_all_is_a_failure() -> None:
    assert not json.loads(as_json(results("a rule failed")))["passed"]
    ill = Results((played("xid-79", "never fired"),), Lived((), ()), (), 1.0)
    assert ill.every_trouble() == ["xid-79: never fired"]
    sad = Results((), Lived((), ("something fired",)), (), 1.0)
    assert sad.every_trouble() == ["the healthy day: something fired"]


def test_lengths_of_time_are_spoken() -> None:
    assert [spoken(s) for s in (12.4, 60, 85, 330, 5400, 86400, 400000)] == [
        "12 s", "1 min", "85 s", "5.5 min", "1.5 h", "1 d", "4.63 d",
    ]  # fmt: skip


def test_harmless_ones_are_named_as_such() -> None:
    assert all(f"`{name}`" in COMMITTED for name in HARMLESS)
