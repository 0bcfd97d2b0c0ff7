"""docs/METRICS.md names what the code exports."""

from tools import pages
from wirewatch.catalogue import components
from wirewatch.documents import series
from wirewatch.kubernetes import outcome as condition
from wirewatch.server import reload
from wirewatch_fleet.controller import report as controller


def test_the_page_names_every_metric_once() -> None:
    page = pages.page()
    own = (*series.METRICS, *condition.METRICS, *reload.METRICS, *controller.METRICS)
    for metric in (*own, *(m for c in components() for m in c.metrics)):
        assert page.count(f"| `wirewatch_{metric.name}` |") == 1
