"""The configuration: one TOML file, one frozen model. An unknown key or a wrong type is an error."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, create_model

from wirewatch.core.collector import APART, AnyCollector, Options
from wirewatch.core.types import Expect, Tier, Unusable, whole
from wirewatch.hw.kubelet import SOCKET
from wirewatch.hw.ras import ADDRESSES, split_address
from wirewatch.probe.component import PROBE_NAME as PROBE
from wirewatch.probe.model import ProbeOptions, ProbePolicy
from wirewatch.verdict.drift.component import DriftOptions
from wirewatch.verdict.drift.watch import DriftPolicy
from wirewatch.verdict.ledger import VerdictPolicy

SPARE = 1.0
"""Seconds between two runs of others that must be left to a collector that runs apart from them."""


class ConfigError(Unusable):
    """A configuration that cannot be used; the text is one line for the user."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Listen(_Section):
    """`address` is HOST:PORT for HTTP; `socket` is a path for local callers, "" for none.

    `web_config`: the file with TLS, users and tokens for the address, "" for an open one. `hosts`: accepted
    names in the Host header; a loopback address also accepts its own, another accepts all when none is given.
    """

    address: str = "127.0.0.1:9410"
    socket: str | None = None
    web_config: str = ""
    hosts: tuple[str, ...] = ()


class StateSection(_Section):
    """`directory`: where the daemon keeps its state over restarts; "" for the default place."""

    directory: str = ""


class SlurmSection(_Section):
    """`node`: this node's name in Slurm, "" to find it out; `conf`: slurm.conf, "" for the default place."""

    node: str = ""
    conf: str = ""


class KubernetesSection(_Section):
    """`socket`: of the kubelet's pod-resources; `node_condition`: whether the node gets a condition.

    `node`: this node's name, "" for NODE_NAME; `api_server`: HOST:PORT, "" for that of the pod;
    `credentials`: the folder with `token` and `ca.crt`. In seconds: `condition_heartbeat` is the time between
    two writes when nothing changes; a verdict must hold for `condition_failed_after`,
    `condition_unknown_after` or `condition_recovered_after` before the condition follows it.
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


def _ras_address(text: str) -> str:
    split_address(text)
    return text


class JobsSection(_Section):
    """Running jobs. `rings`: the folder in which the tap inside them leaves its files, "" for none.

    No such folder is nothing to watch, and no fault. `ras`: where NCCL's RAS of a job that seems to hang is
    asked, IP address and port each; none for never.
    """

    rings: str = "/run/wirewatch-jobs"
    ras: tuple[Annotated[str, AfterValidator(_ras_address)], ...] = ADDRESSES


Percent = Annotated[str, Field(pattern=r"^(100|[0-9]{1,2})%$")]
Limit = Annotated[int, Field(ge=0)] | Percent


class BudgetSection(_Section):
    """How many nodes may be out of use at a time, for any reason, before the controller takes out no more.

    Each is a number, or a percentage of the nodes of that kind, rounded down but never to nothing. A rack is
    counted only where its nodes have a label of `racks`.
    """

    cluster: Limit = "5%"
    pool: Limit = "10%"
    rack: Limit = 1


class ControllerSection(_Section):
    """`wirewatch fleet controller`, which alone reads this.

    `dry_run`: it only says what it would do. `act`: what takes a node out of use; "undo" takes back whatever
    it ever did. `selector`: labels of the nodes, as kubectl has them; "" for those with the condition.
    `pools`, `racks`: labels by which nodes are one pool or rack, the first that a node has.
    `dedicated_taints`: keys of taints that only reserve nodes for some pods, and so keep no node out of use.
    In seconds: `confirm` and `recover` are between the condition's change and a heartbeat that repeats it;
    a heartbeat older than `stale` says nothing. `lease` of a leader, renewed three times in it; `period`
    between two looks at nodes where nothing changes.
    """

    listen: str = "127.0.0.1:9411"
    dry_run: bool = True
    act: Literal["taint", "cordon", "nvsentinel", "undo"] = "taint"
    budget: BudgetSection = BudgetSection()
    selector: str = ""
    pools: tuple[str, ...] = (
        "karpenter.sh/nodepool", "eks.amazonaws.com/nodegroup", "cloud.google.com/gke-nodepool",
        "kubernetes.azure.com/agentpool", "node.kubernetes.io/instance-type",
    )  # fmt: skip
    racks: tuple[str, ...] = ("topology.kubernetes.io/rack", "nvidia.com/gpu.clique")
    dedicated_taints: tuple[str, ...] = ("nvidia.com/gpu",)
    confirm: float = Field(default=120.0, ge=0, le=86400)
    recover: float = Field(default=120.0, ge=0, le=86400)
    stale: float = Field(default=900.0, ge=120, le=3600)
    namespace: str = Field(default="", pattern=r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$")
    name: str = Field(default="wirewatch-controller", pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")
    lease: int = Field(default=15, ge=6, le=300)
    period: float = Field(default=15.0, ge=1, le=300)


class MetricsSection(_Section):
    """`tier` of `/metrics` where a scrape asks for none: `core`, what many nodes need, or `full`."""

    tier: Tier = Tier.FULL


class PageSection(_Section):
    """The status page; `runbook`: the URL where people read docs/runbook.md, "" for none."""

    runbook: str = Field(default="", pattern=r"^(https?://[^\s]+)?$")


class ExpectSection(_Section):
    """What this node must have; what is left out is not checked."""

    gpus: int | None = Field(default=None, ge=1)
    nvlink_links: int | None = Field(default=None, ge=0)
    rdma_ports: int | None = Field(default=None, ge=1)
    rdma_rate_bytes_per_second: float | None = Field(default=None, gt=0)
    gpudirect: bool | None = None


class Config(_Section):
    """The sections that do not depend on the collectors."""

    listen: Listen = Listen()
    state: StateSection = StateSection()
    expect: ExpectSection = ExpectSection()
    probe: ProbeOptions = ProbeOptions()
    drift: DriftOptions = DriftOptions()
    slurm: SlurmSection = SlurmSection()
    kubernetes: KubernetesSection = KubernetesSection()
    jobs: JobsSection = JobsSection()
    metrics: MetricsSection = MetricsSection()
    page: PageSection = PageSection()
    controller: ControllerSection = ControllerSection()
    collectors: Any = None
    policy: Any = None


RESTART: Mapping[str, Sequence[str]] = {
    **{
        section: tuple(kind.model_fields)
        for section, kind in (
            ("listen", Listen), ("state", StateSection), ("slurm", SlurmSection),
            ("kubernetes", KubernetesSection), ("jobs", JobsSection), ("metrics", MetricsSection),
            ("page", PageSection),
        )
    },
    "probe": ("enabled", "prober"),
    "drift": ("enabled",),
}  # fmt: skip
"""Keys that are read at the start alone, by section: sockets, folders and what talks to other programs."""


def model(collectors: Sequence[AnyCollector]) -> type[Config]:
    """The model of a file, with the options and the policy of each collector."""
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
        ConfigError: the file is missing, unreadable or not TOML, or it has an unknown key, a wrong type or an
            impossible value.
    """
    try:
        data = tomllib.loads(path.read_text("utf-8")) if path else {}
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    try:
        # By way of JSON, where strict models take objects for dataclasses and arrays for tuples.
        config = model(collectors).model_validate_json(json.dumps(data))
    except TypeError as error:
        raise ConfigError(f"{path}: dates and times are not supported ({error})") from error
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


def reloaded(running: Config, new: Config) -> tuple[Config, tuple[str, ...]]:
    """What holds when `new` is read while `running` holds, and the keys whose change needs a restart."""
    kept: dict[str, Any] = {}
    restart = []
    for section, names in RESTART.items():
        before, now = getattr(running, section), getattr(new, section)
        changed = [name for name in names if getattr(before, name) != getattr(now, name)]
        restart += [f"{section}.{name}" for name in changed]
        old = {name: getattr(before, name) for name in changed}
        kept[section] = now.model_copy(update=old) if isinstance(now, BaseModel) else replace(now, **old)
    return new.model_copy(update=kept), tuple(restart)


def expectations(config: Config) -> Expect:
    """What the node must have, as the collectors take it."""
    return Expect(**config.expect.model_dump())


def address(text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT` or `[V6]:PORT`.

    Raises:
        ConfigError: the text is not of that form.
    """
    host, _, port = text.rpartition(":")
    number = whole(port)
    if not host or number is None or number > 65535:  # noqa: PLR2004
        raise ConfigError(f"not HOST:PORT: {text!r}")
    return host.strip("[]"), number


def _no_gap(collector: AnyCollector, running: Mapping[str, Options]) -> str:
    """Why the others leave no gap for a collector that runs apart from them; empty when they leave one."""
    others = {name: running[name].interval for name in collector.apart if name in running}
    # Each run of each takes this share of the time; whatever their phases, together they must leave some.
    if sum((2 * APART + SPARE) / interval for interval in others.values()) <= 1:
        return ""
    names = " and ".join(f"{name} (every {interval:g} s)" for name, interval in others.items())
    apart = f"it must run {APART:g} s apart from {names}"
    return f"{apart}, and they leave no time for that: let them run less often"


def _first(error: ValidationError) -> str:
    """The first error in one line: where, what, and the given value."""
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] in {"extra_forbidden", "unexpected_keyword_argument"}:
        return f"unknown key {place!r}"
    return f"{place}: {first['msg']}, got {first['input']!r}"
