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
    path = FOLDER / "controller" / "controller.yaml"
    values = yaml.safe_load(path.with_name("values.yaml").read_text("utf-8"))
    made[path] = _text("controller/values.yaml, the controller's alone", values, "controller")
    condition = {"nodeCondition": {"admissionPolicy": "always"}}
    source = "nodeCondition.admissionPolicy=always; another namespace or release has another account"
    made[FOLDER / "examples" / "admission-policy.yaml"] = _text(source, condition, "condition-policy")
    return made


def _text(source: str, values: Mapping[str, object], only: str = "") -> str:
    """With the documents of all templates, or of those whose names begin so."""
    head = f"# Rendered by `make generated` from helm/wirewatch with {source}: do not edit."
    return f"{head}\n{manifest(values, only=only)}"
