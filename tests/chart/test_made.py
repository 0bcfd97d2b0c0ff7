"""The chart's made parts are what they are made of, and its values are told whole."""

import json
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from tests.chart.documents import ROOT
from tools.chart.made import CHART
from tools.chart.readme import explained
from tools.chart.schema import OURS, schema
from tools.chart.values import Values

VALUES = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
FREE = {"/config/probe/pins", "/global"}
"""Objects whose keys are not ours to know; `Texts` beside them are maps of texts."""


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
    assert len(rows) == len({name for name, _, _ in rows}) > 60
    assert [name for name, _, about in rows if not about] == []


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
    if part.get("type") == "object":
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
        texts = part.get("additionalProperties") == {"type": "string"}
        limits = "error_limits" in path or path in FREE
        assert part.get("additionalProperties") is False or texts or limits, path


def test_what_follows_from_other_values_is_no_key_of_the_configuration() -> None:
    given = schema()
    found = dict(objects(given, given))
    for section, keys in OURS.items():
        assert not set(keys) & set(found[f"/config/{section}"]["properties"]), section
