"""The configuration: one TOML file, one frozen model. An unknown key or a wrong type is an error."""

import inspect
import json
import logging
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    create_model,
    field_validator,
)
from pydantic_core import PydanticCustomError

from wirewatch.core.amounts import SIZE, TIME, Amount, Seconds, WholeSeconds
from wirewatch.core.collector import APART, AnyCollector, Options
from wirewatch.core.names import did_you_mean
from wirewatch.core.types import Expect, Tier, Unusable, utf8, whole
from wirewatch.hw.kubelet import SOCKET
from wirewatch.jobs.ras.client import ADDRESSES, split_address
from wirewatch.probe.collector import PROBE_NAME as PROBE
from wirewatch.probe.model import ProbeOptions, ProbePolicy
from wirewatch.probe.nics import NICS_NAME
from wirewatch.verdict.drift.component import DriftOptions
from wirewatch.verdict.drift.watch import DriftPolicy
from wirewatch.verdict.ledger import VerdictPolicy
from wirewatch.verdict.pairs import PairsOptions, PairsPolicy

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

log = logging.getLogger(__name__)
SPARE = 1.0
"""Seconds between two runs of others that a collector which runs apart from them needs."""
_NUMBERS: Mapping[str, str] = {
    "float_type": "must be a number", "int_type": "must be a whole number",
    "int_from_float": "must be a whole number", "finite_number": "must be a finite number",
    "greater_than": "must be above {gt:g}", "greater_than_equal": "must be {ge:g} or more",
    "less_than": "must be below {lt:g}", "less_than_equal": "must be {le:g} or less",
}  # fmt: skip
_MUST: Mapping[str, str] = {
    **_NUMBERS,
    "string_type": "must be a text in quotes", "bool_type": "must be true or false",
    "literal_error": "must be {expected}", "enum": "must be {expected}",
    "string_pattern_mismatch": "must match the pattern {pattern}", "missing": "is missing",
    "tuple_type": "must be a list", "list_type": "must be a list", "model_type": "must be a table",
    "dataclass_type": "must be a table", "mapping_type": "must be a table", "dict_type": "must be a table",
}  # fmt: skip
"""Our words for pydantic's errors, by its names."""


_AMOUNTS: Mapping[str, Amount] = {"seconds": TIME, "bytes": SIZE}
RENAMED: Mapping[str, str] = {
    "probe.every": "probe.probe_interval",
    "probe.nics.every": "probe.nics.probe_interval",
}
"""Former keys, which are read with a warning, by their present names."""


class Problem(NamedTuple):
    """The fault of a key of a file, in words that name the key."""

    key: tuple[str, ...]
    text: str


class ConfigError(Unusable):
    """A configuration that cannot be used; the text is one line for the user.

    `problems`: each wrong key, where they are known; the text has the first.
    """

    def __init__(self, text: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(text)
        self.problems = problems


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @field_validator("*")
    @classmethod
    def _without_null(cls, value: object) -> object:
        """Refuse a text that cannot name a file."""
        if isinstance(value, str) and "\0" in value:
            raise ValueError("must not hold a null byte")
        return value


class Listen(_Section):
    """Where the daemon listens."""

    address: str = "127.0.0.1:9410"
    """HOST:PORT for HTTP. The default is reached from this node alone."""
    socket: str | None = None
    """Path of the unix socket for local commands, "" for none.

    Without it: `$RUNTIME_DIRECTORY/wirewatch.sock`, or `/run/wirewatch/wirewatch.sock` as root, or
    `$XDG_RUNTIME_DIR/wirewatch/wirewatch.sock`.
    """
    web_config: str = ""
    """File with TLS, users and tokens for the address, "" for an open one: docs/security.md."""
    hosts: tuple[str, ...] = ()
    """Names that are accepted in the Host header.

    A loopback address also accepts its own names. Another address accepts every name while none is given.
    """


class StateSection(_Section):
    """What the daemon keeps over restarts."""

    directory: str = ""
    """Folder for the history of probes, the faults, the baseline and what the machine has.

    "" is `$STATE_DIRECTORY`, or `/var/lib/wirewatch` as root, or `~/.local/state/wirewatch`.
    """


class SlurmSection(_Section):
    """Slurm on this node."""

    node: str = ""
    """This node's name in Slurm, "" to find it out."""
    conf: str = ""
    """Path of slurm.conf, "" for the default place."""
    brake: str = "/run/wirewatch-slurm/brake"
    """File in which Slurm's scripts say that their brake holds (deploy/slurm), "" for none."""


class KubernetesSection(_Section):
    """The kubelet, and the node condition `InterconnectHealthy` (docs/controller.md)."""

    socket: str = SOCKET
    """The kubelet's socket for pod resources: it says which pods hold GPUs."""
    node_condition: bool = False
    """Whether the agent writes the condition of this node."""
    node: str = ""
    """This node's name in Kubernetes, "" for that in NODE_NAME."""
    api_server: str = ""
    """HOST:PORT of the API server, "" for that of the pod."""
    credentials: str = "/var/run/secrets/kubernetes.io/serviceaccount"
    """Folder with `token` and `ca.crt`."""
    condition_heartbeat: Seconds = Field(default=300.0, ge=60, le=600)
    """Time between two writes of the condition while nothing changes. [seconds]"""
    condition_failed_after: Seconds = Field(default=60.0, ge=1, le=3600)
    """How long the verdict must be FAILED before the condition says so. [seconds]"""
    condition_unknown_after: Seconds = Field(default=300.0, ge=1, le=86400)
    """How long the verdict must be UNKNOWN before the condition says so. [seconds]"""
    condition_recovered_after: Seconds = Field(default=300.0, ge=1, le=86400)
    """How long the verdict must be OK or DEGRADED before the condition says so. [seconds]"""


def _ras_address(text: str) -> str:
    split_address(text)
    return text


class JobsSection(_Section):
    """Running jobs."""

    rings: str = "/run/wirewatch-jobs"
    """Folder in which the tap inside running jobs leaves its files, "" for none: docs/jobs.md.

    A folder that does not exist is not a fault.
    """
    inspector: str = ""
    """Folder in which NCCL Inspector leaves its files, itself or in folders below it: docs/inspector.md.

    "" for none.
    """
    ras: tuple[Annotated[str, AfterValidator(_ras_address)], ...] = ADDRESSES
    """Addresses, IP and port, at which NCCL's RAS of a job is asked when the job seems to hang.

    An empty list asks nobody.
    """


Percent = Annotated[str, Field(pattern=r"^(100|[0-9]{1,2})%$")]


def _limit(given: object, validated: ValidatorFunctionWrapHandler) -> Any:
    """Make one error of both kinds, which are one value to the user."""
    try:
        return validated(given)
    except ValidationError:
        words = "must be a whole number of nodes, or a percentage such as '5%'"
        raise PydanticCustomError("limit", words) from None


Limit = Annotated[Annotated[int, Field(ge=0)] | Percent, WrapValidator(_limit)]


class BudgetSection(_Section):
    """How many nodes the controller may take out of use within an hour, and how many may be out in all.

    Each is a number, or a percentage of the nodes of that kind, rounded down but never to nothing.
    """

    cluster: Limit = "5%"
    """Nodes of the whole cluster taken out within an hour. [number or percentage]"""
    pool: Limit = "10%"
    """Nodes of one pool taken out within an hour. [number or percentage]"""
    rack: Limit = "10%"
    """Nodes of one rack (labels of `racks`) taken out within an hour. [number or percentage]"""
    stock: Limit = "20%"
    """Nodes of the cluster out of use, by whomever and since whenever. [number or percentage]"""


class ControllerSection(_Section):
    """`wirewatch fleet controller`, which alone reads this (docs/controller.md)."""

    listen: str = "127.0.0.1:9411"
    """HOST:PORT for the controller's own metrics."""
    dry_run: bool = True
    """Whether the controller only says what it would do."""
    act: Literal["taint", "cordon", "nvsentinel", "undo"] = "taint"
    """What takes a node out of use. "undo" takes back whatever the controller did."""
    budget: BudgetSection = BudgetSection()
    """The budget: the table below."""
    selector: str = ""
    """Labels of the nodes that are looked at, as kubectl writes them; "" for all nodes with the condition."""
    pools: tuple[str, ...] = (
        "karpenter.sh/nodepool", "eks.amazonaws.com/nodegroup", "cloud.google.com/gke-nodepool",
        "kubernetes.azure.com/agentpool", "node.kubernetes.io/instance-type",
    )  # fmt: skip
    """Labels that make nodes one pool: the first of these that a node has."""
    racks: tuple[str, ...] = ("topology.kubernetes.io/rack", "nvidia.com/gpu.clique")
    """Labels that make nodes one rack: the first of these that a node has."""
    outage_taints: tuple[str, ...] = (
        "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "node.kubernetes.io/unschedulable",
        "node.kubernetes.io/out-of-service", "node.cloudprovider.kubernetes.io/shutdown",
        "karpenter.sh/disrupted", "ToBeDeletedByClusterAutoscaler",
    )  # fmt: skip
    """Keys of taints of nodes that are out of use; any other taint only reserves its node for some pods."""
    dedicated_taints: tuple[str, ...] = ()
    """Not read any more, since only `outage_taints` are outages."""
    confirm: Seconds = Field(default=120.0, ge=0, le=86400)
    """How long after the condition's change a heartbeat must repeat it before a node is taken out.

    [seconds]
    """
    recover: Seconds = Field(default=120.0, ge=0, le=86400)
    """How long after the condition's change a heartbeat must repeat it before a node is given back.

    [seconds]
    """
    stale: Seconds = Field(default=900.0, ge=120, le=3600)
    """Age from which on a heartbeat says nothing any more. [seconds]"""
    namespace: str = Field(default="", pattern=r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$")
    """Namespace of the lease and of events, "" for that of the pod."""
    name: str = Field(default="wirewatch-controller", pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")
    """Name of the lease, and of the controller in events."""
    lease: WholeSeconds = Field(default=15, ge=6, le=300)
    """How long a leader holds the lease; the leader renews it three times in that time. [seconds]"""
    period: Seconds = Field(default=15.0, ge=1, le=300)
    """Time between two looks at the nodes while nothing changes. [seconds]"""


class MetricsSection(_Section):
    """What `/metrics` holds (docs/METRICS.md)."""

    tier: Tier = Tier.FULL
    """The tier where a scrape asks for none: `core` is what a large fleet needs, `full` is everything."""


class PageSection(_Section):
    """The status page."""

    runbook: str = Field(default="", pattern=r"^(https?://[^\s]+)?$")
    """URL at which people read docs/runbook.md, "" for the agent's own. Findings on the page link to it."""


class ExpectSection(_Section):
    """What this node must have. An option that is left out is compared with what the node had before."""

    gpus: int | None = Field(default=None, ge=1)
    """GPUs of the node."""
    nvlink_links: int | None = Field(default=None, ge=0)
    """Active NVLinks of each GPU."""
    rdma_ports: int | None = Field(default=None, ge=1)
    """Active InfiniBand and RoCE ports."""
    rdma_rate_bytes_per_second: float | None = Field(default=None, gt=0)
    """Rate of each port, one way; 50e9 is 400 Gb/s. [bytes/s]"""
    gpudirect: bool | None = None
    """Whether GPUDirect RDMA must work."""


class Config(_Section):
    """The sections that do not depend on the collectors."""

    listen: Listen = Listen()
    state: StateSection = StateSection()
    expect: ExpectSection = ExpectSection()
    probe: ProbeOptions = ProbeOptions()
    drift: DriftOptions = DriftOptions()
    pairs: PairsOptions = PairsOptions()
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
    "probe": ("enabled", "prober", "holds"),
    "drift": ("enabled",),
    "pairs": ("enabled",),
}  # fmt: skip
"""Keys that are read at the start alone, by section: sockets, folders and links to other programs."""


def model(collectors: Sequence[AnyCollector]) -> type[Config]:
    """Return the model of a file, with the options and the policy of each collector."""
    options: dict[str, Any] = {c.name: (type(c.options), c.options) for c in collectors}
    policies: dict[str, Any] = {c.name: (type(c.policy), c.policy) for c in collectors}
    others = {"probe": ProbePolicy, "drift": DriftPolicy, "pairs": PairsPolicy, "verdict": VerdictPolicy}
    policies |= {name: (kind, kind()) for name, kind in others.items()}
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
    """Return the configuration, and the enabled collectors with their options and policies set.

    Without a file everything has its default. Raises ConfigError for a file that is missing, unreadable or
    not TOML, and for an unknown key, a wrong type or an impossible value.
    """
    config = _read(path, model(collectors))
    ready = [
        replace(c, options=getattr(config.collectors, c.name), policy=getattr(config.policy, c.name))
        for c in collectors
    ]
    config, ready = _giving_way(config, ready)
    if wrong := next(_impossible(config, ready), ""):
        raise ConfigError(f"{path}: {wrong}")
    return config, tuple(c for c in ready if c.options.enabled)


def _read(path: Path | None, kind: type[Config]) -> Config:
    try:
        data = tomllib.loads(utf8(path.read_bytes())) if path else {}
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    _rename(data, path)
    try:
        # By way of JSON, where strict models take objects for dataclasses and arrays for tuples.
        return kind.model_validate_json(json.dumps(data))
    except TypeError as error:
        raise ConfigError(f"{path}: dates and times are not supported ({error})") from error
    except ValidationError as error:
        problems = [_problem(one, kind) for one in error.errors()]
        raise ConfigError(f"{path}: {problems[0].text}", problems) from error


def _rename(data: dict[str, Any], path: Path | None) -> None:
    """Give former keys their present names, and warn. Raises ConfigError: both names are there."""
    for old, new in RENAMED.items():
        *sections, before = old.split(".")
        table: Any = data
        for name in sections:
            table = table.get(name) if isinstance(table, dict) else None
        if not isinstance(table, dict) or before not in table:
            continue
        now = new.rpartition(".")[2]
        if now in table:
            raise ConfigError(f"{path}: {old} is {now!r} now, and both are there")
        table[now] = table.pop(before)
        log.warning("%s: %s is called %s now, and is read as that", path, old, new)


def _impossible(config: Config, collectors: Sequence[AnyCollector]) -> Iterator[str]:
    """Yield faults that types cannot express, each with its section."""
    for one in collectors:
        if min(one.options.interval, one.options.deadline) <= 0:
            yield f"collectors.{one.name}: interval and deadline must be above 0 (unit: seconds)"
    policy = config.policy
    judged = ((f"policy.{c.name}", c.policy) for c in collectors if hasattr(c.policy, "wrong"))
    for section, values in (
        ("probe", config.probe), ("policy.probe", policy.probe), ("policy.verdict", policy.verdict),
        ("drift", config.drift), ("policy.drift", policy.drift), ("pairs", config.pairs),
        ("policy.pairs", policy.pairs), *judged,
    ):  # fmt: skip
        if wrong := values.wrong():
            yield f"{section}: {_with_values(wrong, values)}"
    running = _running(config, collectors)
    for one in collectors:
        if one.options.enabled and (wrong := _no_gap(one, running)):
            yield f"collectors.{one.name}: {wrong}"


def _running(config: Config, collectors: Sequence[AnyCollector]) -> dict[str, Options]:
    running = {one.name: one.options for one in collectors if one.options.enabled}
    own = ((PROBE, config.probe), (NICS_NAME, config.probe.nics)) if config.probe.enabled else ()
    return running | {name: options for name, options in own if options.enabled}


def _giving_way(
    config: Config, collectors: Sequence[AnyCollector]
) -> tuple[Config, list[AnyCollector]]:  # fmt: skip
    """Switch off a default collector that the file does not name and that gets no gap from the others."""
    running, named = _running(config, collectors), config.collectors.model_fields_set
    off = {
        one.name: replace(one.options, enabled=False)
        for one in collectors
        if one.name in running and one.name not in named and _no_gap(one, running)
    }
    changed = config.model_copy(update={"collectors": config.collectors.model_copy(update=off)})
    return changed, [replace(one, options=off.get(one.name, one.options)) for one in collectors]


def reloaded(running: Config, new: Config) -> tuple[Config, tuple[str, ...]]:
    """Return the configuration after reading `new` over `running`, and the keys that need a restart."""
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
    """Return the parts that the node must have, in the collectors' form."""
    return Expect(**config.expect.model_dump())


def address(text: str, option: str = "listen.address") -> tuple[str, int]:
    """Return host and port of an option's `HOST:PORT` or `[V6]:PORT`; ConfigError for another text."""
    host, _, port = text.rpartition(":")
    number = whole(port)
    if not host or number is None or number > 65535:  # noqa: PLR2004
        hint = f", such as 0.0.0.0:{port} for all addresses" if number and not host else ""
        raise ConfigError(f"{option}: {text!r} is not HOST:PORT{hint}")
    return host.strip("[]"), number


def _no_gap(collector: AnyCollector, running: Mapping[str, Options]) -> str:
    """Return why the others leave no gap for a collector that runs apart from them; empty when they do."""
    others = {name: running[name].interval for name in collector.apart if name in running}
    # Each run of each takes this share of the time; whatever their phases, together they must leave some.
    if sum((2 * APART + SPARE) / interval for interval in others.values()) <= 1:
        return ""
    names = " and ".join(f"{name} (every {interval:g} s)" for name, interval in others.items())
    apart = f"it must run {APART:g} s apart from {names}"
    return f"{apart}, and they leave no time for that: let them run less often"


def _problem(error: "ErrorDetails", kind: type[Config]) -> Problem:
    """Return an error in one line: where, what, and the given value; for a slip the nearest key."""
    key = tuple(str(part) for part in error["loc"])
    place = ".".join(key)
    if error["type"] in {"extra_forbidden", "unexpected_keyword_argument"}:
        meant = did_you_mean(key[-1], list(_fields(_kind(kind, key[:-1]))), "")
        return Problem(key, f"unknown key {place!r}{'; ' if meant else ''}{meant}")
    if error["type"] == "value_error":
        return Problem(key, f"{place}: {error['ctx']['error']}")
    must = _MUST.get(error["type"], "")
    said = must.format(**error.get("ctx", {})) if must else error["msg"]
    unit = _unit_at(kind, key) if error["type"] in _NUMBERS else ""
    amount = _AMOUNTS.get(unit.partition(": ")[2].rstrip(")"))
    if amount is not None and must.startswith("must be a "):
        said = said.replace("must be a ", f"must be a {amount.name} such as '{amount.example}', or a ", 1)
    return Problem(key, f"{place}: {said}{unit}, got {error['input']!r}")


def _with_values(wrong: str, values: Any) -> str:
    """Return complaints of a section, with value and unit of each key that they end with in quotes."""

    def given(found: re.Match[str]) -> str:
        part = getattr(values, found[1]) if found[1] else values
        value = getattr(part, found[3], None)
        return found[0] if value is None else f"{found[0]}, got {value!r}{_unit(type(part), found[3])}"

    return re.sub(r"(?:(?<=^)|(?<=; ))(?:(straggler): )?([^;']*: )'(\w+)'(?=;|$)", given, wrong)


def _unit_at(kind: Any, path: Sequence[str]) -> str:
    """Return the unit of a value at a path of the model; a table or list has the unit of its values."""
    units = (_unit(_kind(kind, path[:end]), path[end]) for end in reversed(range(len(path))))
    return next(filter(None, units), "")


def _unit(kind: Any, name: str) -> str:
    """Return the unit of a key in words: the code has it in brackets at the end of the key's docstring."""
    for part in kind.__mro__ if isinstance(kind, type) else ():
        try:
            source = inspect.getsource(part)
        except (OSError, TypeError):
            # A class that is made at run time; or an installation without the code.
            continue
        if found := re.search(rf'^    {name}: [^"]*"""[^"]*\[([a-z/ ]+)\]\s*"""', source, re.MULTILINE):
            return f" (unit: {found[1]})"
    return ""


def type_at(kind: Any, path: Sequence[str]) -> Any:
    """Return the type of the value at a path of the model, with its written forms."""
    *above, name = path
    table = _kind(kind, above)
    if isinstance(table, type) and issubclass(table, BaseModel):
        field = table.model_fields[name]
        return Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    return get_type_hints(table, include_extras=True).get(name) if is_dataclass(table) else None


def _kind(kind: Any, path: Sequence[str]) -> Any:
    """Return the class of the table at a path of the model; another value where it is no table of ours."""
    for name in path:
        is_mapping = get_origin(kind) is Mapping
        kind = get_args(kind)[-1] if is_mapping else _fields(kind).get(name)
    return kind


def _fields(kind: Any) -> Mapping[str, Any]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {name: one.annotation for name, one in kind.model_fields.items()}
    if isinstance(kind, type) and is_dataclass(kind):
        return get_type_hints(kind)
    return {}
