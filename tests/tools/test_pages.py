"""The pages made from the code are those in docs/, and say what is in the code."""

from tools import pages
from wirewatch.documents import series
from wirewatch.kubernetes import outcome as condition
from wirewatch.probe.component import components
from wirewatch.server import reload


def test_the_page_on_recordings_names_every_bundled_fault() -> None:
    assert (pages.DOCS / "captures.md").read_text("utf-8") == pages.captures(), "run `make generated`"


def test_the_metrics_page_is_that_of_the_code() -> None:
    assert (pages.DOCS / "METRICS.md").read_text("utf-8") == pages.page(), "run `make generated`"


def test_the_schemas_are_those_of_the_code() -> None:
    for name, text in pages.schemas().items():
        assert (pages.DOCS / "schemas" / name).read_text("utf-8") == text, "run `make generated`"


def test_the_page_names_every_metric_once() -> None:
    page = pages.page()
    own = (*series.METRICS, *condition.METRICS, *reload.METRICS)
    for metric in (*own, *(m for c in components() for m in c.metrics)):
        assert page.count(f"| `wirewatch_{metric.name}` |") == 1
