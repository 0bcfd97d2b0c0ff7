"""The chart's made parts are what they are made of, and its values are told whole."""

import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from tests.chart.documents import ROOT
from tools.chart.made import CHART, WORDS
from tools.chart.names import ANSWERED, TAKEN
from tools.chart.readme import explained
from tools.chart.schema import OURS, schema
from tools.chart.values import Values

VALUES = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
FREE = {
    "/global",
    "/extraVolumes[]",
    "/initContainers[]",
    "/sidecars[]",
    "/fleetProbe/podTemplate/metadata",
    "/fleetProbe/podTemplate/spec",
    "/fleetProbe/podTemplate/spec/containers[]",
    "/extraConfigMapVolumes[]",
    "/volumes[]",
    "/extraContainers[]",
    "/extraInitContainers[]",
    "/extraManifests[]",
    "/extraObjects[]",
    "/extraDeploy[]",
    "/daemonset",
    "/daemonSet",
    "/daemonsets",
}
"""Objects whose keys and values are not ours to know; a map has a type for its values."""
LAID = {
    "podSpec", "podSecurityContext", "containerSecurityContext", "securityContext", "livenessProbe",
    "readinessProbe", "startupProbe", "lifecycle",
}  # fmt: skip
"""Parts of Kubernetes' own types, wherever they are given."""


def test_chart_and_agent_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert chart["version"] == chart["appVersion"] == project["version"]


def test_the_defaults_are_values() -> None:
    Values.model_validate_json(json.dumps(VALUES))
    with pytest.raises(ValidationError):
        Values.model_validate(VALUES | {"x": 1})


def test_every_value_is_explained() -> None:
    rows = list(explained(CHART / "values.yaml"))
    assert len(rows) == len({name for name, *_ in rows}) > 100
    assert [name for name, _, _, about in rows if not about] == []
    assert {"affinity", "pools", "podMonitor.interval"} <= {name for name, *_ in rows}
    assert ("listen.port", "int", "`9410`") in {row[:3] for row in rows}


def objects(
    part: dict[str, Any], whole: dict[str, Any], path: str = ""
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object that the schema speaks of, with its path in the values."""
    if "$ref" in part:
        part = whole["$defs"][part["$ref"].rpartition("/")[2]]
    for one in part.get("anyOf", ()):
        yield from objects(one, whole, path)
    items = part.get("items", ())
    for one in [items] if isinstance(items, dict) else items:
        yield from objects(one, whole, f"{path}[]")
    if "object" in part.get("type", ()):
        yield path, part
        for name, one in part.get("properties", {}).items():
            yield from objects(one, whole, f"{path}/{name}")


def test_no_object_of_the_schema_takes_unknown_keys() -> None:
    given = schema()
    found = dict(objects(given, given))
    assert {"", "/prober", "/config/collectors/nvlink", "/affinity/nodeAffinity", "/tolerations[]"} <= set(
        found
    )
    for path, part in found.items():
        others = part.get("additionalProperties")
        typed = isinstance(others, dict) and bool(others)
        free = path.replace("/pools[]", "") in FREE or path.rpartition("/")[2] in LAID
        assert others is False or typed or free, path


def test_what_follows_from_other_values_is_no_key_of_the_configuration() -> None:
    given = schema()
    found = dict(objects(given, given))
    for section, keys in OURS.items():
        place = "/controller/config" if section == "controller" else f"/config/{section}"
        assert not set(keys) & set(found[place]["properties"]), section


def test_names_of_other_charts_lead_to_values_and_are_none_of_ours() -> None:
    known = {name for name, *_ in explained(CHART / "values.yaml")}
    for path in TAKEN.values():
        above = path.rpartition(".")[0]
        assert path in known or above in known or path == "imagePullSecrets", path
    assert not known & (set(TAKEN) | set(ANSWERED))
    assert not set(TAKEN) & set(ANSWERED)


def test_no_pattern_is_left_to_a_validator() -> None:
    """It would quote the pattern; files/words.json says what it means."""
    given = schema()
    assert '"pattern"' not in json.dumps(given)
    assert '"words"' not in json.dumps(given)


def test_each_rule_in_words_is_one_that_re2_takes_and_defaults_keep() -> None:
    rules = json.loads(WORDS.read_text("utf-8"))
    assert len(rules) > 60
    for rule in rules:
        for value in values_at(VALUES, rule["path"]):
            assert not isinstance(value, str) or re.search(rule["pattern"], value), rule
        assert rule["words"][0].islower() or rule["words"].startswith("NVIDIA")
        assert "(?" not in rule["pattern"]


def values_at(value: object, path: list[str]) -> Iterator[object]:
    match value, path:
        case _, []:
            yield value
        case dict(), ["*", *rest]:
            for part in value.values():
                yield from values_at(part, rest)
        case list(), ["*", *rest]:
            for part in value:
                yield from values_at(part, rest)
        case dict(), [name, *rest] if name in value:
            yield from values_at(value[name], rest)
