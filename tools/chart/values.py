"""The chart's values as types: what values.schema.json and files/words.json are made of."""

import re
from typing import Annotated, Literal

import click
from pydantic import Field
from pydantic.fields import FieldInfo

from tools.chart import kinds
from tools.chart.kinds import Keys, Texts
from tools.chart.words import like
from wirewatch.cli.prober import prober
from wirewatch.cli.serve import serve
from wirewatch.hw.recording import bundled_names
from wirewatch_fleet.cli.controller import controller

_FOLDERS = r"(/\.?[A-Za-z0-9_-][A-Za-z0-9._-]*)"
"""None of them is `.` or `..`, which Kubernetes refuses."""
Path = Annotated[str, like(rf"^{_FOLDERS}+$", "an absolute path, such as /var/lib/wirewatch")]
MaybePath = Annotated[str, like(rf"^{_FOLDERS}*$", "an absolute path, such as /var/lib/wirewatch, nor empty")]
Name = Annotated[
    str,
    like(
        r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)?$",
        "a name as Kubernetes has them, of small letters, digits, '-' and '.', nor empty",
    ),
]
File = Annotated[str, like(r"^[A-Za-z0-9._-]+$", "the name of a file, without a folder")]
Percentage = Annotated[
    str, like(r"^([1-9]|[1-9]\d|100)%$", "a percentage from 1% to 100%, nor a whole number")
]
Port = Annotated[int, Field(ge=1, le=65535)]
Id = Annotated[int, Field(ge=1, le=2147483647)]
"""Not root."""


NodeLabel = Annotated[
    str,
    like(r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?(/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?)?$",
         "the name of a label of nodes, such as topology.kubernetes.io/zone"),
]  # fmt: skip


_HOST, _PART = r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:\d{1,5})?", r"[a-z0-9]+([._-]+[a-z0-9]+)*"
"""Of an image's name: the registry, and what is between slashes."""


class Image(Keys):
    registry: Annotated[
        str,
        like(
            rf"^({_HOST}(/{_PART})*)?$",
            "a registry, such as registry.example.org:5000/mirror: no https://, and no slash at the end",
        ),
    ]
    repository: Annotated[
        str,
        like(
            rf"^({_HOST}/)?{_PART}(/{_PART})*$",
            "the name of an image, such as registry.example.org/wirewatch: no https:// and no tag",
        ),
    ]
    # A tag that moves makes a rollback none.
    tag: Annotated[
        str,
        like(r"^[A-Za-z0-9._-]{0,128}$", "the tag of one image; 'latest' is none, since it moves", "latest"),
    ]
    digest: Annotated[
        str, like(r"^(sha256:[0-9a-f]{64})?$", "a digest: sha256: and 64 digits of 0-9 and a-f, nor empty")
    ]
    pullPolicy: Literal["IfNotPresent", "Always", "Never"]


class Listen(Keys):
    address: Annotated[
        str,
        like(
            kinds.ADDRESS,
            "an address to listen at, such as 0.0.0.0, or [::] in brackets",
        ),
    ]
    port: Port
    hostPort: Annotated[int, Field(ge=0, le=65535)]


Part = dict[str, object] | None
"""A part of Kubernetes' own types, whose keys are left to the API server."""


def _options(command: click.Command, *ours: str) -> FieldInfo:
    """For an argument: one option of a command, with its value, that the chart does not set itself."""
    flags = ["-v", "--verbose"]
    valued: list[str] = []
    for one in command.params:
        if isinstance(one, click.Option) and not set(one.opts) & {f"--{name}" for name in ours}:
            (flags if one.is_flag else valued).extend([*one.opts, *one.secondary_opts])
    parts = [*flags, *(f"{name}=.+" for name in valued)]
    known = ", ".join([*flags, *(f"{name}=..." for name in valued)])
    words = f"an option of `wirewatch {command.name}` that the chart leaves open: {known}"
    return like(f"^({'|'.join(parts)})$", words)


class Laid(Keys):
    """What a container has beside what the chart makes of it."""

    envFrom: list[kinds.EnvironmentSource] | None = None
    securityContext: Part = None
    livenessProbe: Part = None
    readinessProbe: Part = None
    startupProbe: Part = None
    lifecycle: Part = None


class Container(Laid):
    resources: kinds.Resources
    privileged: bool
    env: Texts
    extraEnv: list[kinds.EnvironmentVariable]
    extraVolumeMounts: list[kinds.VolumeMount]


class Agent(Container):
    sysfs: bool
    extraArgs: (
        list[
            Annotated[
                str,
                _options(serve, "config", "listen", "socket", "web-config", "replay", "loop", "demo"),
            ]
        ]
        | None
    ) = None


class Prober(Container):
    enabled: bool
    extraArgs: (
        list[Annotated[str, _options(prober, "config", "socket", "group", "replay", "loop")]] | None
    ) = None
    podResources: MaybePath
    endedPods: bool
    ncclConf: MaybePath
    shm: kinds.Quantity


class Gpu(Keys):
    via: Literal["runtime", "volumeMounts", "nri", "folder", "none"]
    visibleDevices: Annotated[str, like(r"^\S+$", "what NVIDIA_VISIBLE_DEVICES may be, such as all")]
    cdiDevice: Annotated[
        str,
        like(r"^[^=\s]+/[^=\s]+=[^=\s]+$", "the name of a CDI device, such as management.nvidia.com/gpu=all"),
    ]
    folder: Path


class Folder(Keys):
    hostPath: MaybePath


class Jobs(Keys):
    hostPath: MaybePath
    size: Annotated[str, like(r"^([1-9][0-9]{0,4}[MG]i)?$", "whole MiB or GiB, such as 256Mi, nor empty")] = (
        ""
    )
    """Not there in 0.2, whose values `helm upgrade --reuse-values` brings along."""
    libraryPath: MaybePath


class Switch(Keys):
    enabled: bool


AdmissionPolicy = Literal["auto", "always", "never"]


class NodeCondition(Keys):
    enabled: bool
    admissionPolicy: AdmissionPolicy = "auto"


class Controller(Laid):
    enabled: bool
    replicas: Annotated[int, Field(ge=1, le=5)]
    config: dict[str, object]
    admissionPolicy: AdmissionPolicy
    resources: kinds.Resources
    priorityClassName: Name
    nodeSelector: Texts
    affinity: kinds.PodsAffinity | None = None
    tolerations: list[kinds.Toleration]
    topologySpreadConstraints: list[kinds.Spread] | None = None
    annotations: Texts | None = None
    podAnnotations: Texts | None = None
    podLabels: Texts | None = None
    podSpec: Part = None
    env: Texts | None = None
    extraEnv: list[kinds.EnvironmentVariable] | None = None
    extraArgs: list[Annotated[str, _options(controller, "config", "listen")]] | None = None


class PriorityClass(Keys):
    create: bool
    name: Name
    value: Annotated[int, Field(ge=-2147483648, le=1_000_000_000)]


class FleetProbe(Keys):
    enabled: bool
    schedule: Annotated[
        str,
        like(r"^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|\S+( +\S+){4})$",
             "five fields of cron, such as 0 3 * * *"),
    ]  # fmt: skip
    suspend: bool
    podTemplate: kinds.PodTemplate
    selector: str
    queue: Name
    priorityClass: PriorityClass
    gpuResource: Annotated[
        str, like(r"^[a-z0-9.-]+/[A-Za-z0-9._-]+$", "the name of a resource, such as nvidia.com/gpu")
    ]
    leafLabels: list[NodeLabel]
    extraArgs: list[Annotated[str, like(r"^--[a-z].*$", "an option, such as --rounds=4")]]
    deadline: Annotated[int, Field(ge=60)]
    history: Annotated[int, Field(ge=0)]
    resources: kinds.Resources
    nodeSelector: Texts
    affinity: kinds.PodsAffinity | None = None
    tolerations: list[kinds.Toleration]
    topologySpreadConstraints: list[kinds.Spread] | None = None
    podSpec: Part = None


class ServiceAccount(Keys):
    create: bool
    name: Name
    annotations: Texts
    labels: Texts | None = None


class Rbac(Keys):
    create: bool


class Service(Switch):
    type: Literal["ClusterIP"] | None = None
    annotations: Texts | None = None
    labels: Texts | None = None


class Attached(Keys):
    node: bool


class RunAs(Keys):
    user: Id
    group: Id


class Web(Keys):
    secret: Name
    file: File
    tls: bool


class Openshift(Keys):
    scc: bool


class Pool(Keys):
    """`config` and what overrides values are added by tools.chart.schema."""

    name: Annotated[
        str,
        like(
            r"^[a-z0-9]([-a-z0-9]{0,18}[a-z0-9])?$",
            "a name for a pool: at most 20 small letters, digits and '-'",
        ),
    ]
    nodeSelector: Annotated[Texts, Field(min_length=1)]


Limit = Annotated[int, Field(ge=0)] | None


class Monitor(Keys):
    """What the two kinds of the Prometheus operator have in common."""

    enabled: bool
    interval: kinds.Duration
    scrapeTimeout: kinds.Duration
    namespace: Name
    labels: Texts
    relabelings: list[kinds.Relabeling]
    metricRelabelings: list[kinds.Relabeling]
    tlsConfig: kinds.TlsConfig
    basicAuth: kinds.BasicAuth
    authorization: kinds.Authorization
    tier: Literal["", "core", "full"]
    rackLabel: NodeLabel
    leafLabel: NodeLabel
    poolLabel: NodeLabel | None = None
    annotations: Texts | None = None
    apiVersion: Literal["", "monitoring.coreos.com/v1"] | None = None
    jobLabel: str | None = None
    honorLabels: bool | None = None
    proxyUrl: str | None = None
    attachMetadata: Attached | None = None
    podTargetLabels: list[str] | None = None
    sampleLimit: Limit = None
    targetLimit: Limit = None
    labelLimit: Limit = None
    labelNameLengthLimit: Limit = None
    labelValueLengthLimit: Limit = None


class ServiceMonitor(Monitor):
    serviceDiscoveryRole: Literal["EndpointSlice", "Endpoints", ""]
    targetLabels: list[str] | None = None


class Alert(Keys):
    enabled: bool | None = None
    severities: Annotated[list[Literal["critical", "ticket", "info"]], Field(min_length=1)] | None = None
    threshold: Annotated[float, Field(gt=0)] | None = None
    for_: kinds.Duration | None = Field(default=None, alias="for")
    labels: Texts | None = None


_MATCHER = r"""[a-zA-Z_]\w*\s*(=~|!~|!=|=)\s*("([^"\\]|\\.)*"|'([^'\\]|\\.)*')"""
"""Of one label, as PromQL has it."""


class PrometheusRule(Keys):
    enabled: bool
    namespace: Name
    labels: Texts
    annotations: Texts | None = None
    additionalRuleLabels: Texts | None = None
    additionalRuleAnnotations: Texts | None = None
    runbookBase: Annotated[
        str,
        like(
            r"^(https?://[^\s\"'#{}]+/)?$",
            "an http or https address with a slash at the end, nor empty",
        ),
    ]
    gpuNodes: Annotated[
        str,
        like(
            rf"^[a-zA-Z_:][\w:]*(\{{\s*({_MATCHER}(\s*,\s*{_MATCHER})*\s*,?\s*)?\}})?$",
            'a selector of series, such as kube_node_info{a="b"}',
        ),
    ]
    alerts: dict[str, Alert]
    """By name; values.schema.json has the names for editors, _named.tpl refuses others."""


class Links(Keys):
    grafana: Annotated[
        str,
        like(
            r"^(https?://[^\s\"'#{}]*[^\s\"'#{}/])?$", "an http or https address without a slash at the end"
        ),
    ]
    statusPage: Annotated[
        str,
        like(r"^(https?://[^\s\"'#{}]*NODE[^\s\"'#{}]*/)?$",
             "an http or https address with NODE in it and a slash at the end"),
    ]  # fmt: skip


class Dashboards(Keys):
    enabled: bool
    namespace: Name
    labels: Texts
    label: Annotated[str, like(r"^\S+$", "the name of a label")]
    labelValue: str
    annotations: Texts


class NetworkPolicy(Keys):
    enabled: bool
    from_: list[kinds.Peer] = Field(alias="from")
    apiServerPorts: list[Port]


class Values(Keys):
    enabled: bool | None = None
    image: Image
    imagePullSecrets: list[kinds.Named | str]
    nameOverride: Name
    fullnameOverride: Name
    namespaceOverride: Name | None = None
    commonLabels: Texts
    commonAnnotations: Texts | None = None
    cluster: Annotated[str, like(r"^[^\s\"'{}$]*$", "a name without spaces, quotes, braces and '$'")]
    listen: Listen
    config: dict[str, object]
    replay: Annotated[
        str,
        like(
            f"^({'|'.join(map(re.escape, bundled_names()))})?$",
            f"the name of a bundled recording ({', '.join(bundled_names())}), nor empty",
        ),
    ]
    agent: Agent
    prober: Prober
    gpu: Gpu
    runtimeClassName: Name
    state: Folder
    gate: Folder
    jobs: Jobs
    nodeCondition: NodeCondition
    controller: Controller
    fleetProbe: FleetProbe
    serviceAccount: ServiceAccount
    runAs: RunAs
    supplementalGroups: list[int]
    seLinuxOptions: kinds.SeLinux
    maxUnavailable: Annotated[int, Field(ge=1)] | Percentage
    updateStrategy: kinds.UpdateStrategy
    priorityClassName: Name
    resourceQuota: Switch
    hostNetwork: bool
    terminationGracePeriodSeconds: Annotated[int, Field(ge=6)]
    tolerations: list[kinds.Toleration]
    nodeSelector: Texts
    affinity: kinds.Affinity | None = None
    pools: list[Pool]
    daemonSetLabels: Texts | None = None
    daemonSetAnnotations: Texts | None = None
    revisionHistoryLimit: Annotated[int, Field(ge=0)] | None = None
    minReadySeconds: Annotated[int, Field(ge=0)] | None = None
    podLabels: Texts
    podAnnotations: Texts
    podSpec: Part = None
    dnsPolicy: Literal["", "ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"] | None = None
    dnsConfig: kinds.DnsConfig | None = None
    hostAliases: list[kinds.HostAlias] | None = None
    extraVolumes: list[kinds.Open]
    initContainers: list[kinds.OpenContainer]
    sidecars: list[kinds.OpenContainer]
    extraManifests: list[str | dict[str, object]] | None = None
    rbac: Rbac = Rbac(create=True)
    openshift: Openshift
    web: Web
    service: Service
    podMonitor: Monitor
    serviceMonitor: ServiceMonitor
    prometheusRule: PrometheusRule
    links: Links
    dashboards: Dashboards
    networkPolicy: NetworkPolicy
