"""The chart's values as types: what values.schema.json is made of."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from tools.chart import kinds
from tools.chart.kinds import Keys, Texts

Path = Annotated[str, StringConstraints(pattern=r"^(/[A-Za-z0-9._-]+)+$")]
MaybePath = Annotated[str, StringConstraints(pattern=r"^((/[A-Za-z0-9._-]+)+)?$")]
Name = Annotated[str, StringConstraints(pattern=r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?)?$")]
File = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]+$")]
Tag = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9._-]{0,128}$"),
    # A tag that moves makes a rollback none.
    Field(json_schema_extra={"not": {"const": "latest"}}),
]
Percentage = Annotated[str, StringConstraints(pattern=r"^([1-9]|[1-9]\d|100)%$")]
Port = Annotated[int, Field(ge=1, le=65535)]
Id = Annotated[int, Field(ge=1, le=2147483647)]
"""Not root."""


class Image(Keys):
    repository: Annotated[str, StringConstraints(min_length=1)]
    tag: Tag
    digest: Annotated[str, StringConstraints(pattern=r"^(sha256:[0-9a-f]{64})?$")]
    pullPolicy: Literal["IfNotPresent", "Always", "Never"]


class Listen(Keys):
    address: Annotated[str, StringConstraints(pattern=r"^(\d{1,3}(\.\d{1,3}){3}|\[[0-9a-fA-F:]+\])$")]
    port: Port


class Agent(Keys):
    resources: kinds.Resources
    sysfs: bool
    privileged: bool
    env: Texts


class Prober(Keys):
    enabled: bool
    resources: kinds.Resources
    podResources: MaybePath
    endedPods: bool
    ncclConf: MaybePath
    shm: kinds.Quantity
    env: Texts


class Gpu(Keys):
    via: Literal["runtime", "volumeMounts", "nri", "none"]
    visibleDevices: Annotated[str, StringConstraints(min_length=1)]
    cdiDevice: Annotated[str, StringConstraints(pattern=r"^[^=\s]+/[^=\s]+=[^=\s]+$")]


class Folder(Keys):
    hostPath: MaybePath


class Jobs(Keys):
    hostPath: MaybePath
    libraryPath: MaybePath


class Switch(Keys):
    enabled: bool


class ServiceAccount(Keys):
    create: bool
    name: Name
    annotations: Texts


class RunAs(Keys):
    user: Id
    group: Id


class Web(Keys):
    secret: Name
    file: File
    tls: bool


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


class ServiceMonitor(Monitor):
    serviceDiscoveryRole: Literal["EndpointSlice", "Endpoints", ""]


class Alert(Keys):
    enabled: bool | None = None
    severities: Annotated[list[Literal["critical", "ticket", "info"]], Field(min_length=1)] | None = None
    threshold: Annotated[float, Field(gt=0)] | None = None
    for_: kinds.Duration | None = Field(default=None, alias="for")
    labels: Texts | None = None


class PrometheusRule(Keys):
    enabled: bool
    namespace: Name
    labels: Texts
    runbookBase: Annotated[str, StringConstraints(pattern=r"^(https?://[^\s\"'#{}]+/)?$")]
    gpuNodes: Annotated[str, StringConstraints(min_length=1)]
    alerts: dict[str, Alert]
    """By name; values.schema.json has the names."""


class Dashboards(Keys):
    enabled: bool
    label: Annotated[str, StringConstraints(min_length=1)]
    labelValue: str
    annotations: Texts


class NetworkPolicy(Keys):
    enabled: bool
    from_: list[kinds.Peer] = Field(alias="from")
    apiServerPorts: list[Port]


class Values(Keys):
    image: Image
    imagePullSecrets: list[kinds.Named]
    nameOverride: Name
    fullnameOverride: Name
    cluster: Annotated[str, StringConstraints(pattern=r"^[^\s\"'{}]*$")]
    listen: Listen
    config: dict[str, object]
    replay: File | Literal[""]
    agent: Agent
    prober: Prober
    gpu: Gpu
    runtimeClassName: Name
    state: Folder
    gate: Folder
    jobs: Jobs
    nodeCondition: Switch
    serviceAccount: ServiceAccount
    runAs: RunAs
    supplementalGroups: list[int]
    seLinuxOptions: kinds.SeLinux
    maxUnavailable: Annotated[int, Field(ge=1)] | Percentage
    priorityClassName: Name
    terminationGracePeriodSeconds: Annotated[int, Field(ge=6)]
    tolerations: list[kinds.Toleration]
    nodeSelector: Texts
    affinity: kinds.Affinity | None = None
    podLabels: Texts
    podAnnotations: Texts
    web: Web
    service: Switch
    podMonitor: Monitor
    serviceMonitor: ServiceMonitor
    prometheusRule: PrometheusRule
    dashboards: Dashboards
    networkPolicy: NetworkPolicy
