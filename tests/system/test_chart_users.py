"""Values of people who come from other charts: each is taken for what it means, or refused in one line."""

from pathlib import Path
from typing import Any

import pytest

from tests.chart.documents import Document, documents, of_kind, pod_of, the
from tests.system.test_chart import VERSIONS, natives, schema_errors
from tools.chart.helm import NOTES, Refused, hooks, manifest, rendered
from tools.yamlfile import load_yaml

pytestmark = pytest.mark.system
USERS = load_yaml((Path(__file__).parent / "chart" / "users.yaml").read_text("utf-8"))
TAKEN = [one for one in USERS if "refused" not in one]
CLUSTERS = {
    "ClusterRole", "ClusterRoleBinding", "PriorityClass", "SecurityContextConstraints",
    "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
}  # fmt: skip
"""Kinds that are in no namespace."""


def has(found: Any, wanted: Any) -> bool:
    """Whether a document has a part; null is for what is not there."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            key not in found if value is None else key in found and has(found[key], value)
            for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and all(any(has(one, part) for one in found) for part in wanted)
    return bool(found == wanted)


def test_the_table_has_each_kind_of_answer_and_no_name_twice() -> None:
    names = [one["name"] for one in USERS]
    assert len(names) == len(set(names)) >= 14 + 40
    assert len(TAKEN) > 40
    assert not has({"a": [1]}, {"a": [2]})
    assert not has({"a": {"b": 1}}, {"a": {"b": None}})


@pytest.mark.parametrize("one", TAKEN, ids=lambda one: one["name"])
def test_what_a_user_gives_is_there(one: dict[str, Any]) -> None:
    texts = rendered(one["values"])
    notes = " ".join(texts.pop(NOTES).split())
    everything = [doc for text in texts.values() for doc in documents(text)]
    given = tuple(doc for doc in everything if "helm.sh/hook" not in doc["metadata"].get("annotations", {}))
    assert schema_errors(natives(given), VERSIONS[-1]) == []
    for kind, part in one.get("has", {}).items():
        assert of_kind(given, kind)
        assert [doc["metadata"]["name"] for doc in of_kind(given, kind) if not has(doc, part)] == []
    if "pod" in one:
        assert has(pod_of(given), one["pod"]), pod_of(given)
    if "object" in one:
        assert [doc for doc in given if has(doc, one["object"])]
    assert [doc["metadata"] for doc in everything if not has(doc, one.get("every", {}))] == []
    assert [rule["alert"] for rule in alerts_of(given) if not has(rule, one.get("alerts", {}))] == []
    assert [kind for kind in one.get("without", ()) if of_kind(given, kind)] == []
    assert one.get("notes", "") in notes
    assert "quiet" not in one or one["quiet"] not in notes


def alerts_of(given: tuple[Document, ...]) -> list[dict[str, Any]]:
    groups = [group for one in of_kind(given, "PrometheusRule") for group in one["spec"]["groups"]]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


@pytest.mark.parametrize("one", [one for one in USERS if "refused" in one], ids=lambda one: one["name"])
def test_what_cannot_be_meant_is_refused_in_one_line(one: dict[str, Any]) -> None:
    with pytest.raises(Refused) as caught:
        rendered(one["values"])
    assert one["refused"] in str(caught.value)
    # What a schema refuses has a line more, with the chart's name.
    said = [line for line in str(caught.value).splitlines() if line.strip() not in {"", "wirewatch:"}]
    assert len(said) == 1


@pytest.mark.parametrize("one", [one for one in USERS if "namespace" in one], ids=lambda one: one["name"])
def test_every_object_with_a_namespace_is_in_that_one(one: dict[str, Any]) -> None:
    for doc in (*documents(manifest(one["values"])), *documents(hooks(one["values"]))):
        where = doc["metadata"].get("namespace")
        events = doc["metadata"]["name"].endswith("-events")
        assert where == (None if doc["kind"] in CLUSTERS else "default" if events else one["namespace"])
        for subject in doc.get("subjects", ()):
            assert subject["namespace"] == one["namespace"]
    assert f"-n {one['namespace']} port-forward" in rendered(one["values"])[NOTES]


def test_an_alerts_own_label_goes_before_that_of_all() -> None:
    rule = {"enabled": True, "additionalRuleLabels": {"team": "gpu"}}
    given = documents(
        manifest({"prometheusRule": {**rule, "alerts": {"WirewatchGPULost": {"labels": {"team": "sre"}}}}})
    )
    teams = {one["alert"]: one["labels"]["team"] for one in alerts_of(given)}
    assert teams.pop("WirewatchGPULost") == "sre"
    assert set(teams.values()) == {"gpu"}


def test_options_of_every_command_go_before_the_command() -> None:
    given = documents(manifest({"agent": {"extraArgs": ["--verbose"]}}))
    args = next(one["args"] for one in pod_of(given)["containers"] if one["name"] == "agent")
    assert args == ["--verbose", "serve", "--config=/etc/wirewatch/wirewatch.toml"]


def test_what_lies_over_the_pod_leaves_the_rest_as_it_was() -> None:
    before, after = (
        the(documents(manifest(values)), "DaemonSet")
        for values in ({}, {"podSpec": {"hostname": "x"}, "agent": {"lifecycle": {"preStop": {"sleep": {}}}}})
    )
    pod = after["spec"]["template"]["spec"]
    assert pod.pop("hostname") == "x"
    assert pod["containers"][0].pop("lifecycle") == {"preStop": {"sleep": {}}}
    assert before == after
