"""Ways of a chart to a cluster: as part of another chart, and as the successor of its own 0.2."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.documents import Document, documents, of_kind, pod_of
from tools.chart.helm import Refused, complaints, manifest
from tools.chart.made import CHART
from tools.yamlfile import load_yaml

pytestmark = pytest.mark.system
HERE = Path(__file__).parent / "chart"
OLD_VALUES = load_yaml((HERE / "0.2-values.yaml").read_text("utf-8"))
"""Those of 0.2, whole: what somebody has who copied values.yaml."""
OLD = load_yaml((HERE / "0.2-objects.yaml").read_text("utf-8"))
SINCE = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    """A chart of ours, of which wirewatch is a dependency that a value leaves out."""
    chart = tmp_path / "platform"
    (chart / "templates").mkdir(parents=True)
    shutil.copytree(CHART, chart / "charts" / "wirewatch")
    dependency = {"name": "wirewatch", "version": "0.x.x", "condition": "wirewatch.enabled"}
    about = {"apiVersion": "v2", "name": "platform", "version": "1.0.0", "dependencies": [dependency]}
    (chart / "Chart.yaml").write_text(yaml.safe_dump(about), "utf-8")
    (chart / "values.yaml").write_text("wirewatch: {}\n", "utf-8")
    (chart / "templates" / "own.yaml").write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: own, labels: {a: b}}\n", "utf-8"
    )
    return chart


@pytest.mark.parametrize(
    ("given", "there"), [({"enabled": True}, True), ({"enabled": False}, False), ({}, True)]
)
def test_a_parent_has_it_or_leaves_it_out(parent: Path, given: dict[str, Any], *, there: bool) -> None:
    values = {"global": {"imageRegistry": "mirror.corp"}, "wirewatch": given}
    made = documents(manifest(values, parent))
    assert bool(of_kind(made, "DaemonSet")) is there
    assert [one for one in made if one["metadata"]["name"] == "own"]
    assert complaints(values, parent) == []
    if there:
        assert pod_of(made)["containers"][0]["image"] == "mirror.corp/wirewatch:0.2.0"


def test_a_parents_wrong_value_is_refused_as_ones_own(parent: Path) -> None:
    with pytest.raises(Refused, match=r"state.hostPath: /etc is a folder of the system"):
        manifest({"wirewatch": {"enabled": True, "state": {"hostPath": "/etc"}}}, parent)


def reused(folder: Path) -> Path:
    """Return the chart as `helm upgrade --reuse-values` takes it: with the values of 0.2 for its own."""
    chart = folder / "wirewatch"
    shutil.copytree(CHART, chart)
    shutil.copy(HERE / "0.2-values.yaml", chart / "values.yaml")
    return chart


def fixed(one: Document) -> dict[str, Any]:
    """What Kubernetes does not let change, as 0.2-objects.yaml has it; pods need their selector's labels."""
    spec = one.get("spec", {})
    if one["kind"] in {"DaemonSet", "Deployment"}:
        return {"selector": spec["selector"], "labels": spec["template"]["metadata"]["labels"]}
    if one["kind"] == "Service":
        return {"clusterIP": spec["clusterIP"], "selector": spec["selector"]}
    return {key: one[key] for key in ("roleRef", "value", "preemptionPolicy") if key in one}


@pytest.mark.parametrize("way", ["new defaults", "values copied whole", "--reuse-values"])
@pytest.mark.parametrize("old", OLD, ids=lambda one: one["name"])
def test_an_upgrade_from_0_2_changes_nothing_that_cannot_be_changed(
    old: dict[str, Any], way: str, tmp_path: Path
) -> None:
    chart = reused(tmp_path) if way == "--reuse-values" else CHART
    values = dict(OLD_VALUES) if way == "values copied whole" else {}
    for key, value in old["values"].items():
        values[key] = {**values.get(key, {}), **value} if isinstance(value, dict) else value
    made = {
        (one["kind"], one["metadata"]["name"], one["metadata"].get("namespace")): fixed(one)
        for one in documents(manifest(values, chart))
        if one["kind"] not in SINCE
    }
    before = {(one["kind"], one["name"], one["namespace"]): one["fixed"] for one in old["objects"]}
    assert set(made) == set(before)
    assert made == before


def test_the_comparison_finds_a_selector_that_changes() -> None:
    made = documents(manifest({"nameOverride": "x", "fullnameOverride": "wirewatch"}))
    (before,) = (one["fixed"] for one in OLD[0]["objects"] if one["kind"] == "DaemonSet")
    assert fixed(of_kind(made, "DaemonSet")[0]) != before
