"""Helm's own engine, from the wheel helm-python-sdk, for tests and for rendering (`make .venv/.helm`)."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import helm_python

from tools.chart.made import CHART

NAME = "wirewatch"
"""Of the namespace, and of the release unless another is given."""
NOTES = "NOTES.txt"
TESTS = "test-"
"""Templates with this beginning are for `helm test`."""


class Refused(Exception):
    """Values that the chart does not take; the text is helm's."""


def rendered(values: Mapping[str, Any], chart: Path = CHART, *, release: str = NAME) -> dict[str, str]:
    """Texts by their templates' names; those that came out empty are left out.

    Raises:
        Refused: the schema or a template does not take the values.
    """
    try:
        with _loaded(chart) as one:
            one.validate_schema(dict(values))
            made = one.render(dict(values), name=release, namespace=NAME)
    except helm_python.HelmError as error:
        raise Refused(str(error)) from error
    return {path.rpartition("/")[2]: text for path, text in sorted(made.items()) if text.strip()}


def manifest(values: Mapping[str, Any], chart: Path = CHART, only: str = "") -> str:
    """What `helm template --skip-tests` prints, without notes; `only`: of templates whose names begin so."""
    made = rendered(values, chart).items()
    return _joined(
        text for name, text in made if name != NOTES and not name.startswith(TESTS) and name.startswith(only)
    )


def hooks(values: Mapping[str, Any], chart: Path = CHART) -> str:
    """What `helm test` makes."""
    return _joined(text for name, text in rendered(values, chart).items() if name.startswith(TESTS))


def _joined(given: Iterable[str]) -> str:
    texts = [text.strip("\n") for text in given]
    return "---\n" + "\n---\n".join(text.removeprefix("---\n") for text in texts) + "\n"


def _loaded(chart: Path) -> Any:
    if chart.is_file():
        return helm_python.Chart.load_archive(chart.read_bytes())
    return helm_python.Chart.load(str(chart))


def complaints(values: Mapping[str, Any], chart: Path = CHART) -> list[str]:
    """Of a strict lint; a missing icon does not count."""
    linted = helm_python.lint(str(chart), dict(values), strict=True)
    return [each["error"] for each in linted["messages"] if each["error"] != "icon is recommended"]
