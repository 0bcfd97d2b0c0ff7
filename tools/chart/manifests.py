"""`make generated`: deploy/kubernetes, rendered by helm's own engine with no values and with each set."""

from collections.abc import Mapping
from pathlib import Path

import yaml

from tools.chart.helm import manifest
from tools.chart.made import ROOT

FOLDER = ROOT / "deploy" / "kubernetes"


def manifests() -> Mapping[Path, str]:
    """The texts by their paths."""
    made = {FOLDER / "default.yaml": _text("no values", {})}
    for path in sorted((FOLDER / "values").glob("*.yaml")):
        values = yaml.safe_load(path.read_text("utf-8"))
        made[FOLDER / path.name] = _text(f"values/{path.name}", values)
    return made


def _text(source: str, values: Mapping[str, object]) -> str:
    return (
        f"# Rendered by `make generated` from helm/wirewatch with {source}: do not edit.\n{manifest(values)}"
    )
