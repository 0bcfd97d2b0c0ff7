"""values.schema.json: the values' types, and the agent's own configuration below `config`.

Draft 7, which every Helm 3 and 4 understands. Helm validates what was given together with the defaults of
values.yaml, so that nearly every key is required: it is missing only where a user sets it to null.
"""

from typing import Any

from pydantic import BaseModel

from tools.alerting import alerts
from tools.chart.names import ANSWERED, TAKEN
from tools.chart.values import Values
from tools.chart.words import KEY, rules
from wirewatch.catalogue import discover
from wirewatch.config import RENAMED, model

Json = dict[str, Any]
DRAFT = "http://json-schema.org/draft-07/schema#"
OURS = {
    "listen": ("address", "socket", "web_config"),
    "state": ("directory",),
    "probe": ("enabled", "prober"),
    "jobs": ("rings",),
    "controller": ("listen", "namespace", "name"),
    "kubernetes": ("socket", "node_condition", "node", "api_server", "credentials"),
}
"""Keys of the configuration that follow from other values."""
OF_POOLS = (
    "config", "image", "agent", "prober", "gpu", "runtimeClassName", "state", "gate", "jobs",
    "supplementalGroups", "maxUnavailable", "updateStrategy", "tolerations", "affinity", "podLabels",
    "podAnnotations", "extraVolumes", "initContainers", "sidecars", "daemonSetLabels", "daemonSetAnnotations",
    "podSpec", "dnsPolicy", "dnsConfig", "hostAliases",
)  # fmt: skip
"""Values that may differ from pool to pool; all others belong to what there is once, such as the port."""
PATTERNS = {
    r"^(100|[0-9]{1,2})%$": "a percentage from 0% to 100%, nor a whole number",
    r"^(https?://[^\s]+)?$": "an http or https address, nor empty",
    r"^[^:/,=^\s]{1,15}$": "the name of a network interface",
}
"""What patterns of the agent's configuration mean; one that is not here cannot be said, and is an error."""
_PLAIN = {"integer", "number", "string", "boolean"}
_NOISE = ("title", "default", "description")


def schema() -> Json:
    """The schema of the chart's values: types and names; what texts must look like is in `words`."""
    made = _whole()
    _elsewhere(made)
    plain: Json = _worded(made)
    return plain


def words() -> list[Json]:
    """What texts must look like, with the path of each, those of pools included."""
    made = _whole()
    # All alerts are of one type: once is enough.
    made["$defs"]["PrometheusRule"]["properties"]["alerts"].pop("properties")
    return list(rules(made))


def _whole() -> Json:
    values, config = _of(Values), _of(model(discover()))
    defs = {f"config.{name}": part for name, part in config.pop("$defs").items()}
    for section, keys in OURS.items():
        part = defs[config["properties"][section]["$ref"].removeprefix("#/$defs/")]
        for key in keys:
            part["properties"].pop(key, None)
    for old, new in RENAMED.items():
        *sections, before = old.split(".")
        part = config
        for name in sections:
            part = defs[part["properties"][name]["$ref"].removeprefix("#/$defs/")]
        part["properties"][before] = part["properties"][new.rpartition(".")[2]]
    for name, value in defs.items():
        defs[name] = _said(value)
    made = {"$schema": DRAFT, "title": "Values of the chart wirewatch", **values}
    made["$defs"] |= {"config": config, **defs}
    # As a subchart it is handed the values that all charts share.
    made["$defs"]["Controller"]["properties"]["config"] = config["properties"].pop("controller")
    made["properties"] |= {"config": {"$ref": "#/$defs/config"}, "global": {"type": "object"}}
    # For editors; an unknown name is refused by a template, which names the nearest one.
    alerting = made["$defs"]["PrometheusRule"]["properties"]["alerts"]
    names = sorted({one.name for one in alerts()})
    alerting["properties"] = dict.fromkeys(names, alerting["additionalProperties"])
    # Null is no affinity, too: there is no default that it could take away.
    for name in ("Affinity", "PodsAffinity"):
        made["$defs"][name]["type"] = ["object", "null"]
    _pools(made)
    return made


def _pools(made: Json) -> None:
    """A pool may have part of each of these values."""
    made["$defs"]["Pool"]["properties"] |= {name: _part(made, made["properties"][name]) for name in OF_POOLS}


def _part(made: Json, one: Json) -> Json:
    """A value of which some keys may be left out."""
    name = one.get("$ref", "").rpartition("/")[2]
    if "required" not in made["$defs"].get(name, {}):
        return one
    made["$defs"][f"part.{name}"] = {k: v for k, v in made["$defs"][name].items() if k != "required"}
    return {"$ref": f"#/$defs/part.{name}"}


def _elsewhere(made: Json) -> None:
    """Names that other charts give: with the type of what they become, or any where they are answered."""
    for name, path in TAKEN.items():
        parent, last = _place(made, path)
        found = _part(made, parent["properties"].get(last, {}))
        if last == "env":
            found = {"anyOf": [found, _place(made, "agent.extraEnv")[0]["properties"]["extraEnv"]]}
        owner, own = _place(made, name)
        owner["properties"][own] = found
    for name in ANSWERED:
        owner, own = _place(made, name)
        owner["properties"][own] = owner["properties"].get(own, {})


def _place(made: Json, path: str) -> tuple[Json, str]:
    """The object at a path without its last name, and that; an object of no value of ours is made."""
    *above, last = path.split(".")
    part = made
    for name in above:
        part = part["properties"].setdefault(
            name, {"type": "object", "properties": {}, "additionalProperties": True}
        )
        if "$ref" in part:
            part = made["$defs"][part["$ref"].rpartition("/")[2]]
        part.setdefault("properties", {})
    return part, last


def _said(part: Any) -> Any:
    """Patterns of the agent's configuration with their words."""
    if isinstance(part, list):
        return [_said(one) for one in part]
    if not isinstance(part, dict):
        return part
    made = {key: _said(value) for key, value in part.items()}
    if isinstance(pattern := made.pop("pattern", None), str):
        made[KEY] = {"pattern": pattern, "not": [], KEY: PATTERNS[pattern]}
    elif pattern is not None:
        made["pattern"] = pattern
    return made


def _worded(part: Any) -> Any:
    """Without what is said in words; these describe it."""
    if isinstance(part, list):
        return [_worded(one) for one in part]
    if not isinstance(part, dict):
        return part
    told = {"description": f"Must be {part[KEY][KEY]}."} if isinstance(part.get(KEY), dict) else {}
    return {key: _worded(value) for key, value in part.items() if not told or key != KEY} | told


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
    rest = {key: part for key, part in made.items() if key != "anyOf"}
    if kinds and all(isinstance(kind.get("type"), str) and kind["type"] in _PLAIN for kind in kinds):
        # As one, of which a validator can say which types it wants; limits are for numbers, words for texts.
        merged = {key: part for kind in kinds for key, part in kind.items()}
        types = list(dict.fromkeys(kind["type"] for kind in kinds))
        return {**rest, **merged, "type": types if len(types) > 1 else types[0]}
    return made if len(kinds) != 1 else {**rest, **kinds[0]}


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
