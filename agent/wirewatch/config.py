"""One TOML file, one frozen model. An unknown key or a wrong type is an error, never ignored."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from wirewatch.core.collector import APART, AnyCollector, Options
from wirewatch.core.types import Expect, Unusable
from wirewatch.hw.kubelet import SOCKET
from wirewatch.probe.component import PROBE_NAME as PROBE
from wirewatch.probe.model import ProbeOptions, ProbePolicy
from wirewatch.verdict.drift.component import DriftOptions
from wirewatch.verdict.drift.watch import DriftPolicy
from wirewatch.verdict.ledger import VerdictPolicy


class ConfigError(Unusable):
    """A configuration that cannot be used; the text is one line for the user."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Listen(_Section):
    """`address` is HOST:PORT for HTTP; `socket` a path for local callers, "" for none.

    `web_config`: the file that says who may ask at the address and how, "" for anybody. `hosts`: names by
    which the address may be asked; on a loopback address beside its own, elsewhere any when there are none.
    """

    address: str = "127.0.0.1:9410"
    socket: str | None = None
    web_config: str = ""
    hosts: tuple[str, ...] = ()


class StateSection(_Section):
    """`directory`: where the daemon keeps what it must know again after a restart; "" for the usual place."""

    directory: str = ""


class SlurmSection(_Section):
    """`node`: this node's name in Slurm, where it is not told; `conf`: slurm.conf, "" for the usual place."""

    node: str = ""
    conf: str = ""


class KubernetesSection(_Section):
    """`socket`: of the kubelet's pod-resources; `node_condition`: whether Kubernetes is told of this node.

    `node`: this node's name, "" for NODE_NAME; `api_server`: HOST:PORT, "" for what a pod is told;
    `credentials`: the folder with `token` and `ca.crt`. In seconds: `condition_heartbeat` between two writes
    when nothing changes; `condition_failed_after`, `condition_unknown_after` and `condition_recovered_after`
    for which a verdict must hold until the condition follows it.
    """

    socket: str = SOCKET
    node_condition: bool = False
    node: str = ""
    api_server: str = ""
    credentials: str = "/var/run/secrets/kubernetes.io/serviceaccount"
    condition_heartbeat: float = Field(default=300.0, ge=60, le=600)
    condition_failed_after: float = Field(default=60.0, ge=1, le=3600)
    condition_unknown_after: float = Field(default=300.0, ge=1, le=86400)
    condition_recovered_after: float = Field(default=300.0, ge=1, le=86400)


class PageSection(_Section):
    """The status page; `runbook`: where docs/runbook.md is served for people, "" for nowhere."""

    runbook: str = Field(default="", pattern=r"^(https?://[^\s]+)?$")


class ExpectSection(_Section):
    """What this node must have; leave out what need not be checked."""

    gpus: int | None = Field(default=None, ge=1)
    nvlink_links: int | None = Field(default=None, ge=0)
    rdma_ports: int | None = Field(default=None, ge=1)
    rdma_rate_bytes_per_second: float | None = Field(default=None, gt=0)
    gpudirect: bool | None = None


class Config(_Section):
    """The sections that are the same whatever collectors there are."""

    listen: Listen = Listen()
    state: StateSection = StateSection()
    expect: ExpectSection = ExpectSection()
    probe: ProbeOptions = ProbeOptions()
    drift: DriftOptions = DriftOptions()
    slurm: SlurmSection = SlurmSection()
    kubernetes: KubernetesSection = KubernetesSection()
    page: PageSection = PageSection()
    collectors: Any = None
    policy: Any = None


def model(collectors: Sequence[AnyCollector]) -> type[Config]:
    """The model of a file: with a section for each collector, of its own options and policy."""
    options: dict[str, Any] = {c.name: (type(c.options), c.options) for c in collectors}
    policies: dict[str, Any] = {c.name: (type(c.policy), c.policy) for c in collectors}
    policies["probe"] = (ProbePolicy, ProbePolicy())
    policies["drift"] = (DriftPolicy, DriftPolicy())
    policies["verdict"] = (VerdictPolicy, VerdictPolicy())
    section: dict[str, Any] = {"__base__": _Section}
    options_model = create_model("Collectors", **section, **options)
    policy_model = create_model("Policy", **section, **policies)
    return create_model(
        "File",
        __base__=Config,
        collectors=(options_model, options_model()),
        policy=(policy_model, policy_model()),
    )


def load(path: Path | None, collectors: Sequence[AnyCollector]) -> tuple[Config, tuple[AnyCollector, ...]]:
    """The configuration, and the enabled collectors with their options and policies set.

    Without a file everything has its default.

    Raises:
        ConfigError: file missing or unreadable, not TOML, unknown key, wrong type, impossible value.
    """
    try:
        data = tomllib.loads(path.read_text("utf-8")) if path else {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    try:
        # By way of JSON, where strict models take objects for dataclasses and arrays for tuples.
        config = model(collectors).model_validate_json(json.dumps(data))
    except TypeError as error:
        raise ConfigError(f"{path}: dates and times mean nothing here ({error})") from error
    except ValidationError as error:
        raise ConfigError(f"{path}: {_first(error)}") from error
    ready = [
        replace(c, options=getattr(config.collectors, c.name), policy=getattr(config.policy, c.name))
        for c in collectors
    ]
    for collector in ready:
        if min(collector.options.interval, collector.options.deadline) <= 0:
            raise ConfigError(f"{path}: collectors.{collector.name}: interval and deadline must be above 0 s")
    policy = config.policy
    judged = ((f"policy.{c.name}", c.policy) for c in ready if hasattr(c.policy, "wrong"))
    for section, values in (
        ("probe", config.probe), ("policy.probe", policy.probe), ("policy.verdict", policy.verdict),
        ("drift", config.drift), ("policy.drift", policy.drift), *judged,
    ):  # fmt: skip
        if wrong := values.wrong():
            raise ConfigError(f"{path}: {section}: {wrong}")
    enabled = tuple(c for c in ready if c.options.enabled)
    running = {c.name: c.options for c in enabled} | ({PROBE: config.probe} if config.probe.enabled else {})
    for collector in enabled:
        if wrong := _no_gap(collector, running):
            raise ConfigError(f"{path}: collectors.{collector.name}: {wrong}")
    return config, enabled


SPARE = 1.0
"""Seconds between two turns of others that must be left to a collector that runs apart from them."""


def _no_gap(collector: AnyCollector, running: Mapping[str, Options]) -> str:
    """Why those that a collector must be apart from leave no gap for it, in words; empty when they do."""
    others = {name: running[name].interval for name in collector.apart if name in running}
    # Each turn of each takes so much of the time; whatever their phases, together they must leave some.
    if sum((2 * APART + SPARE) / interval for interval in others.values()) <= 1:
        return ""
    told = " and ".join(f"{name} (every {interval:g} s)" for name, interval in others.items())
    return (
        f"it must run {APART:g} s apart from {told}, and they leave no time for that: let them run less often"
    )


def expectations(config: Config) -> Expect:
    return Expect(**config.expect.model_dump())


def _first(error: ValidationError) -> str:
    """The first complaint in one line: where, what, and what was given."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] in {"extra_forbidden", "unexpected_keyword_argument"}:
        return f"unknown key {place!r}"
    return f"{place}: {first['msg']}, got {first['input']!r}"


def address(text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT` or `[V6]:PORT`.

    Raises:
        ConfigError: not of that form.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:  # noqa: PLR2004
        raise ConfigError(f"not HOST:PORT: {text!r}")
    return host.strip("[]"), int(port)
