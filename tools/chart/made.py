"""What of the chart is made of something else: nothing in it is written twice by hand."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tools.chart.names import names
from tools.chart.readme import readme
from tools.chart.schema import schema, words

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "wirewatch"
FILES = CHART / "files"
WORDS = FILES / "words.json"
NAMES = FILES / "names.json"
RULES = ROOT / "deploy" / "prometheus"
DASHBOARDS = ROOT / "dashboards" / "json"


def made() -> Mapping[Path, str]:
    """The texts by their paths; copies, since a chart can read what is in it alone."""
    return {
        CHART / "values.schema.json": json.dumps(schema(), indent=1) + "\n",
        WORDS: _lines(words()),
        NAMES: _lines(names()),
        CHART / "README.md": readme((CHART / "README.in.md").read_text("utf-8"), CHART / "values.yaml"),
        **{copy: source.read_text("utf-8") for copy, source in _copies()},
    }


def stray() -> tuple[Path, ...]:
    """Copies of what is no more."""
    copies = {WORDS, NAMES, *(copy for copy, _ in _copies())}
    return tuple(path for path in sorted(FILES.rglob("*")) if path.is_file() and path not in copies)


def _lines(rules: Iterable[object]) -> str:
    return "[\n" + ",\n".join(json.dumps(one) for one in rules) + "\n]\n"


def _copies() -> Iterator[tuple[Path, Path]]:
    for name in ("wirewatch-recording.yml", "wirewatch-alerts.yml"):
        yield FILES / "prometheus" / name, RULES / name
    for source in sorted(DASHBOARDS.glob("*.json")):
        yield FILES / "dashboards" / source.name, source
