"""The runbook that agents serve: all of it is there, and its links lead somewhere."""

import re
from urllib.parse import urldefrag, urljoin

from tests.alerts.coverage import known_rules
from tests.rows import each
from tools.alerting import ANSWERING, alerts
from wirewatch.page.findings import link
from wirewatch.page.html import OWN, moved, runbook

ALERTS = sorted({one.name for one in alerts()})
AT = "http://node:9410/docs/"


def served() -> str:
    return runbook().text.decode()


def anchors() -> set[str]:
    return set(re.findall(r'<h\d id="([^"]+)"', served()))


def test_a_heading_stands_once() -> None:
    every = re.findall(r'<h\d id="([^"]+)"', served())
    assert len(every) > 150
    assert len(every) == len(set(every))


def test_each_alert_leads_to_a_heading_and_the_table_has_all() -> None:
    assert len(ALERTS) > 50
    for one in alerts():
        path, anchor = urldefrag(one.annotations["runbook_url"].removeprefix(ANSWERING))
        assert path == OWN
        assert anchor in anchors(), one.name
    assert set(re.findall(r'<a href="#[^"]+">(Wirewatch\w+)</a></td>', served())) == set(ALERTS)


def test_a_link_of_the_page_leads_to_a_heading_of_it_or_to_the_status_page() -> None:
    found = re.findall(r'href="([^"]+)"', served())
    # Never from the root of the host: an agent may be reached below a path, as by an ingress.
    assert "../" in found, "the status page"
    for url in set(found) - {"../", "data:,"}:
        assert url.startswith("http") or url.removeprefix("#") in anchors(), url


def test_the_status_page_leads_to_the_entry_of_each_rule() -> None:
    for rule in known_rules():
        target, anchor = urldefrag(link(OWN, rule))
        assert target == OWN
        assert anchor in anchors(), rule


@each("name", ALERTS)
def test_the_page_that_an_alert_of_0_2_led_to_leads_to_its_heading(name: str) -> None:
    (now,) = {one.annotations["runbook_url"] for one in alerts() if one.name == name}
    there = urljoin(f"{AT}runbooks/{name}.md", moved(f"runbooks/{name}.md"))
    assert there == f"{AT}{now.removeprefix(f'{ANSWERING}docs/')}"


def test_the_index_of_0_2_and_the_folder_lead_to_the_page() -> None:
    assert urljoin(f"{AT}runbooks/README.md", moved("runbooks/README.md")) == f"{AT}runbook.md#alerts"
    assert urljoin(AT, moved("")) == f"{AT}runbook.md"


@each("path", ["runbooks", "runbooks/", "../runbook.md", "x/runbooks/README.md", "WirewatchGPULost.md", "\0"])
def test_other_paths_are_no_page(path: str) -> None:
    assert moved(path) is None


def test_a_page_runs_nothing_and_asks_no_other_server() -> None:
    made = runbook()
    assert "default-src 'none'" in made.headers["content-security-policy"]
    text = made.text.decode()
    assert "<script" not in text
    assert not re.search(r'(?:src|@import)="?http', text)
