"""The runbook that agents serve: all of it is there, and its links lead somewhere."""

import re
from posixpath import dirname, join, normpath
from urllib.parse import urldefrag

from tests.alerts.coverage import known_rules
from tests.rows import each
from tools.alerting import INDEX as INDEX_FILE
from tools.alerting import alerts, runbook_url
from tools.pages import DOCS
from wirewatch.page.findings import link
from wirewatch.page.html import INDEX, OWN, runbook

PAGES = sorted({"runbook.md", INDEX, *(runbook_url(one.name).rpartition("docs/")[2] for one in alerts())})


def served(path: str) -> str:
    made = runbook(path)
    assert made is not None, path
    return made.text.decode()


def anchors(path: str) -> set[str]:
    return set(re.findall(r'<h\d id="([^"]+)"', served(path)))


def test_each_alert_has_its_page_and_the_index_has_all() -> None:
    assert len(PAGES) > 50
    assert INDEX_FILE == DOCS / INDEX
    shown = set(re.findall(r'href="(Wirewatch\w+\.md)"', served(INDEX)))
    assert shown == {f"{one.name}.md" for one in alerts()}


@each("path", PAGES)
def test_a_link_of_a_page_leads_to_a_page_and_to_a_heading_of_it(path: str) -> None:
    found = re.findall(r'href="([^"]+)"', served(path))
    assert any(normpath(join(dirname(path), url)) == ".." for url in found), "the status page"
    for url in found:
        if url.startswith("http") or url == "data:,":
            continue
        # Never from the root of the host: an agent may be reached below a path, as by an ingress.
        assert not url.startswith("/")
        target, anchor = urldefrag(url)
        where = normpath(join(dirname(path), target)) if target else path
        if where == "..":  # What is above docs: the status page.
            continue
        assert not anchor or anchor in anchors(where), url


def test_the_status_page_leads_to_the_entry_of_each_rule() -> None:
    known = anchors("runbook.md")
    for rule in known_rules():
        target, anchor = urldefrag(link(OWN, rule))
        assert target == "docs/runbook.md"
        assert anchor in known, rule


@each("path", ["", "runbooks", "runbooks/", "../runbook.md", "runbooks/README.in.md", "\0", "a" * 9999])
def test_other_paths_are_no_page(path: str) -> None:
    assert runbook(path) is None


def test_a_page_runs_nothing_and_asks_no_other_server() -> None:
    made = runbook("runbook.md")
    assert made is not None
    assert "default-src 'none'" in made.headers["content-security-policy"]
    text = made.text.decode()
    assert "<script" not in text
    assert not re.search(r'(?:src|@import)="?http', text)
