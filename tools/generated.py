"""Everything that is made from something else, by one command: `make generated`.

With `--check` nothing is written: each file that is not as it is made is named in a line, and the end is 1.
Golden texts and docs/answers.md are held by their own tests, and deploy/kubernetes needs Helm's package.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from tests.lab.goldens import made as lab_golden
from tests.node.goldens import made as golden
from tools import (
    alerting,
    answers,
    architecture,
    claims,
    commands,
    explained,
    ncclversions,
    options,
    pages,
    products,
    runbook,
    schemas,
    sources,
    transcripts,
    version,
)
from tools.chart import made as charted

ROOT = Path(__file__).parents[1]
Files = Mapping[Path, str]


def docs() -> Files:
    """METRICS.md, config.md, recordings.md, products.md and schemas, and what commands print in docs."""
    described = {pages.DOCS / "schemas" / name: text for name, text in schemas.schemas().items()}
    made = {pages.DOCS / "METRICS.md": pages.page(), pages.DOCS / "recordings.md": pages.recordings()}
    made |= {explained.PAGE: explained.page(explained.PAGE.read_text("utf-8"))}
    made |= {path: transcripts.page(path.read_text("utf-8")) for path in transcripts.PAGES}
    made |= sources.files()
    return {**made, **options.files(), **commands.files(), products.PAGE: products.page(), **described}


def rules() -> Files:
    """The alerts of collectors' rules, their test, and the entries and alerts of the runbook."""
    made = {
        runbook.PAGE: runbook.page(runbook.PAGE.read_text("utf-8")),
        alerting.ALERTS: alerting.alerts_text(),
    }
    return made | {alerting.CASES: alerting.cases()} if alerting.made_alerts() else made


def alerts() -> Files:
    """Grafana's twin of the alerts."""
    return {alerting.GRAFANA: alerting.grafana()}


def boards() -> Files:
    """dashboards/json."""
    # It reads docs/runbook.md when it is imported.
    from dashboards.boards import FOLDER, files  # noqa: PLC0415

    return {FOLDER / name: text for name, text in files().items()}


def reasons() -> Files:
    """What the package carries of the runbook."""
    return {**runbook.reasons(), **runbook.carried()}


def chart() -> Files:
    """The chart's schema, README and copies."""
    return charted.made()


def manifests() -> Files:
    """deploy/kubernetes."""
    if find_spec("helm_python") is None:
        print("deploy/kubernetes is left as it is: Helm's engine comes with `make .venv/.helm`")
        return {}
    from tools.chart.manifests import manifests as rendered  # noqa: PLC0415 - it needs that package

    return rendered()


def goldens() -> Files:
    """tests/node/goldens and tests/lab/goldens."""
    return {**golden.made(), **lab_golden.made()}


def drawing() -> Files:
    """docs/architecture.md and its pictures: the way of the data, and the imports between rooms."""
    return architecture.files()


STEPS: tuple[Callable[[], Files], ...] = (
    version.made,
    claims.files,
    ncclversions.files,
    docs,
    rules,
    alerts,
    reasons,
    boards,
    chart,
    manifests,
    drawing,
)
"""In the order in which one reads what another has written."""


def stray() -> Iterator[Path]:
    """Files that were made, and of which nothing is the source any more."""
    yield from charted.stray()
    yield from golden.stray()
    yield from _stray_boards()
    if alerting.CASES.exists() and not alerting.made_alerts():
        yield alerting.CASES


def _stray_boards() -> Iterator[Path]:
    made = boards()
    folder = next(iter(made)).parent
    yield from (path for path in sorted(folder.iterdir()) if path not in made)


def stale() -> Iterator[Path]:
    """What is not as it is made, but for golden texts and answers."""
    for step in STEPS:
        for path, text in step().items():
            if not path.exists() or path.read_text("utf-8") != text:
                yield path
    yield from stray()


def write() -> None:
    if {path: path.read_text("utf-8") for path in version.made()} != version.made():
        for path, text in version.made().items():
            path.write_text(text, "utf-8")
        # What is imported here still has the version before.
        os.execv(sys.executable, (sys.executable, "-m", "tools.generated"))  # noqa: S606
    for step in (*STEPS, goldens, answers.files):
        for path, text in step().items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
    for path in list(stray()):
        path.unlink()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="name what is stale, and write nothing")
    if not parser.parse_args().check:
        write()
        return 0
    found = [f"stale: {path.relative_to(ROOT)}: run make generated" for path in stale()]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
