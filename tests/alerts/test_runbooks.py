"""Each alert has a page, each page an alert; what a page names exists."""

import re
import shlex
from pathlib import Path

import click
import pytest

from dashboards.runbook import code, entries
from tests.alerts.coverage import EXAMPLES, known_rules, levels_of, selection
from tests.rows import each
from tools import alerting, promql
from tools.alerting import HEADINGS, INDEX, RUNBOOKS, alerts, records, sections
from wirewatch.cli import cli

SERIES = promql.recorded((one.name, one.expr, one.labels) for one in records())
PAGES = sorted(path for path in RUNBOOKS.glob("*.md") if not path.name.startswith("README"))
WIREWATCH = re.compile(r"(?<!`)`(wirewatch [^`]+)`|^ *(wirewatch [a-z].*)$", re.MULTILINE)

each_page = each("page", PAGES, ids=lambda path: path.stem)


def test_each_alert_has_a_page_and_each_page_an_alert() -> None:
    assert {path.stem for path in PAGES} == {alert.name for alert in alerts()}


@each_page
def test_a_page_is_whole(page: Path) -> None:
    text = page.read_text("utf-8")
    assert text.startswith(f"# {page.stem}\n")
    told = sections(page)
    assert tuple(told) == HEADINGS
    assert all(told.values())
    assert re.search(r"^ *```(?:bash)?\n *\S", told["Confirm"], re.MULTILINE), "no command to confirm it with"
    assert told["Do"].startswith("1. ")
    assert told["When it is wrong"].startswith("- ")


@each_page
def test_resets_begin_with_release(page: Path) -> None:
    do = sections(page)["Do"]
    for found in re.finditer(r"reset the GPU|reset it, take it back|--gpu-reset", do):
        before = do[: found.start()]
        following = do[found.start() :]
        assert "wirewatch release --for" in before or "\n   wirewatch release --for" in following


@each_page
def test_the_commands_of_a_page_are_ours(page: Path) -> None:
    for line in (one or other for one, other in WIREWATCH.findall(page.read_text("utf-8"))):
        words = shlex.split(line)[1:]
        command: click.Command = cli
        while isinstance(command, click.Group):
            found = command.get_command(click.Context(command), words.pop(0))
            assert found is not None, line
            command = found
        options = {name for one in command.params for name in one.opts}
        assert {word for word in words if word.startswith("--")} <= options, line


@each_page
def test_the_queries_of_a_page_ask_for_what_exists(page: Path) -> None:
    text = page.read_text("utf-8")
    lines = re.findall(r"^ {4,}(.*wirewatch[_:].*)$", text, re.MULTILINE)
    for query in lines:
        promql.labels_of(query, SERIES)
    for name in re.findall(r"\b(?:\w+:)*wirewatch_[a-z_]+(?::\w+)?", " ".join(code(text))):
        assert name in SERIES, name


def test_the_pages_that_the_alerts_name_are_there() -> None:
    for alert in alerts():
        assert (alerting.ROOT / alert.annotations["runbook_url"].removeprefix(alerting.ANSWERING)).is_file()
    for text in (one.annotations["description"] for one in alerts()):
        for path in re.findall(r"\b(?:deploy|docs)/[\w./-]*\w", text):
            assert (alerting.ROOT / path).exists(), path


@each("page", [*PAGES, INDEX, alerting.PROMETHEUS / "README.md"], ids=lambda path: path.stem)
def test_links_lead_somewhere(page: Path) -> None:
    for path, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", page.read_text("utf-8")):
        if path.startswith("http"):
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), path
        assert not anchor or anchor in _anchors(target), f"{path}#{anchor}"


def _anchors(page: Path) -> set[str]:
    return {_slug(head) for head in re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)}


def _slug(head: str) -> str:
    return re.sub(r"[^a-z0-9_ -]", "", head.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_page_leads_to_the_entry_of_each_finding_that_its_alert_reports(page: Path) -> None:
    text = page.read_text("utf-8")
    for alert in (one for one in alerts() if one.name == page.stem):
        selects = selection(alert)
        if selects is None:
            continue
        mine = {r for r in known_rules() if levels_of(r) and selects.takes(r)}
        for rule in mine:
            named = next((pattern for pattern, rules in EXAMPLES.items() if rule in rules), rule)
            wanted = [one for one in entries() if rule in one.names] or [
                one for one in entries() if named in one.names
            ]
            assert any(f"#{_slug(one.title)})" in text for one in wanted), rule
