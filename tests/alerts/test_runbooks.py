"""Each alert has a text in the runbook, and each text an alert; what a text names exists."""

import re
import shlex
from collections.abc import Mapping

import click
import pytest

from dashboards.runbook import PAGE, code, entries, page
from tests.alerts.coverage import EXAMPLES, known_rules, levels_of, selection
from tests.rows import each
from tools import alerting, promql
from tools.alerting import PARTS, alerts, made_alerts, records, slug, texts
from wirewatch.cli import cli

SERIES = promql.recorded((one.name, one.expr, one.labels) for one in records())
TEXTS = texts(page())
WIREWATCH = re.compile(r"(?<!`)`(wirewatch [^`]+)`|^ *(wirewatch [a-z].*)$", re.MULTILINE)

each_alert = each("name", sorted(TEXTS))


def whole(told: Mapping[str, str]) -> str:
    return "\n".join(told.values())


def test_each_alert_that_is_written_by_hand_has_a_text_and_each_text_an_alert() -> None:
    assert set(TEXTS) == {alert.name for alert in alerts()} - set(made_alerts())


@each_alert
def test_a_text_is_whole(name: str) -> None:
    told = TEXTS[name]
    assert tuple(told) == PARTS
    assert all(told.values())
    assert re.search(r"^ *```(?:bash)?\n *\S", told["Confirm"], re.MULTILINE), "no command to confirm it with"
    assert told["Do"].startswith("1. ")
    assert told["When it is wrong"].startswith("- ")


@each_alert
def test_resets_begin_with_release(name: str) -> None:
    do = TEXTS[name]["Do"]
    for found in re.finditer(r"reset the GPU|reset it, take it back|--gpu-reset", do):
        before = do[: found.start()]
        following = do[found.start() :]
        assert "wirewatch release --for" in before or "\n   wirewatch release --for" in following


@each_alert
def test_the_commands_of_a_text_are_ours(name: str) -> None:
    for line in (one or other for one, other in WIREWATCH.findall(whole(TEXTS[name]))):
        words = shlex.split(line)[1:]
        command: click.Command = cli
        while isinstance(command, click.Group):
            found = command.get_command(click.Context(command), words.pop(0))
            assert found is not None, line
            command = found
        options = {name for one in command.params for name in one.opts}
        assert {word for word in words if word.startswith("--")} <= options, line


@each_alert
def test_the_queries_of_a_text_ask_for_what_exists(name: str) -> None:
    text = whole(TEXTS[name])
    for query in re.findall(r"^ {4,}(.*wirewatch[_:].*)$", text, re.MULTILINE):
        promql.labels_of(query, SERIES)
    for series in re.findall(r"\b(?:\w+:)*wirewatch_[a-z_]+(?::\w+)?", " ".join(code(text))):
        assert series in SERIES, series


def test_the_pages_that_descriptions_name_are_there() -> None:
    for text in (one.annotations["description"] for one in alerts()):
        for path in re.findall(r"\b(?:deploy|docs)/[\w./-]*\w", text):
            assert (alerting.ROOT / path).exists(), path


def test_links_of_the_page_about_prometheus_lead_somewhere() -> None:
    page_of = alerting.PROMETHEUS / "README.md"
    for path, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", page_of.read_text("utf-8")):
        if path.startswith("http"):
            continue
        target = (page_of.parent / path).resolve() if path else page_of
        assert target.exists(), path
        heads = re.findall(r"^#+ (.+)$", target.read_text("utf-8"), re.MULTILINE) if anchor else []
        assert not anchor or anchor in {slug(head) for head in heads}, f"{path}#{anchor}"


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_a_text_leads_to_the_entry_of_each_finding_that_its_alert_reports(name: str) -> None:
    text = whole(TEXTS[name])
    for alert in (one for one in alerts() if one.name == name):
        selects = selection(alert)
        if selects is None:
            continue
        mine = {r for r in known_rules() if levels_of(r) and selects.takes(r)}
        for rule in mine:
            named = next((pattern for pattern, rules in EXAMPLES.items() if rule in rules), rule)
            wanted = [one for one in entries() if rule in one.names] or [
                one for one in entries() if named in one.names
            ]
            assert any(f"#{slug(one.title)})" in text for one in wanted), rule


@each("name", sorted(made_alerts()))
def test_a_made_alert_leads_to_the_entry_of_its_first_rule(name: str) -> None:
    first = made_alerts()[name][0].name
    assert any(slug(one.title) == alerting.anchor(name) for one in entries() if first in one.names)
    assert PAGE.read_text("utf-8").count(f"[{name}](#{alerting.anchor(name)}) |") == 1
