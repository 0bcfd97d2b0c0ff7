"""values.schema.json: the values' types, and the agent's own configuration below `config`.

Draft 7, which every Helm 3 and 4 understands. Helm validates what was given together with the defaults of
values.yaml, so that nearly every key is required: it is missing only where a user sets it to null.
"""

from typing import Any

from pydantic import BaseModel

from tools.alerting import alerts
from tools.chart.values import Values
from wirewatch.collectors import discover
from wirewatch.config import model

Json = dict[str, Any]
DRAFT = "http://json-schema.org/draft-07/schema#"
OURS = {
    "listen": ("address", "socket", "web_config"),
    "state": ("directory",),
    "probe": ("enabled", "prober"),
    "jobs": ("rings",),
    "kubernetes": ("socket", "node_condition", "node", "api_server", "credentials"),
}
"""Keys of the configuration that follow from other values."""
_NOISE = ("title", "default", "description")


def schema() -> Json:
    """The schema of the chart's values."""
    values, config = _of(Values), _of(model(discover()))
    defs = {f"config.{name}": part for name, part in config.pop("$defs").items()}
    for section, keys in OURS.items():
        part = defs[config["properties"][section]["$ref"].removeprefix("#/$defs/")]
        for key in keys:
            part["properties"].pop(key, None)
    made = {"$schema": DRAFT, "title": "Values of the chart wirewatch", **values}
    # As a subchart it is handed the values that all charts share.
    made["properties"] |= {"config": config, "global": {"type": "object"}}
    made["$defs"] |= defs
    rules = made["$defs"]["PrometheusRule"]["properties"]["alerts"]
    names = sorted({one.name for one in alerts()})
    rules["properties"] = dict.fromkeys(names, rules["additionalProperties"])
    rules["additionalProperties"] = False
    return made


def _of(kind: type[BaseModel]) -> Json:
    plain = _plain(kind.model_json_schema(by_alias=True))
    if kind is not Values:
        plain = _renamed(plain)
    assert isinstance(plain, dict)
    return plain


def _plain(value: Any, *, names: bool = False) -> Any:
    """Without noise, as draft 7 has it.

    `names`: the keys are names of properties, not words of the schema.
    """
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    made = {
        key: _plain(part, names=key in {"properties", "$defs"} and not names)
        for key, part in value.items()
        if names or key not in _NOISE
    }
    if names:
        return made
    if "prefixItems" in made:
        made["items"] = made.pop("prefixItems")
    # Null takes a default away before helm validates: what is left of it is no value.
    kinds = [kind for kind in made.get("anyOf", ()) if kind != {"type": "null"}]
    return made if len(kinds) != 1 else {**{k: v for k, v in made.items() if k != "anyOf"}, **kinds[0]}


def _renamed(value: Any) -> Any:
    """References into the definitions of the configuration, which are beside those of the values."""
    if isinstance(value, list):
        return [_renamed(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: f"#/$defs/config.{part.removeprefix('#/$defs/')}" if key == "$ref" else _renamed(part)
        for key, part in value.items()
    }
