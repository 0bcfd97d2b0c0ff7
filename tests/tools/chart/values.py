"""The chart's values as types: what values.schema.json is made of."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from tests.tools.chart import kinds
from tests.tools.chart.kinds import Keys, Texts

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
Port = Annotated[int, Field(ge=1, le=65535)]
Id = Annotated[int, Field(ge=1, le=2147483647)]
"""Not root."""


class Image(Keys):
    repository: Annotated[str, StringConstraints(min_length=1)]
    tag: Tag
    digest: Annotated[str, StringConstraints(pattern=r"^(sha256:[0-9a-f]{64})?$")]
    pullPolicy: Literal["IfNotPresent", "Always", "Never"]  # noqa: N815 - as charts name it


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
    podResources: MaybePath  # noqa: N815
    endedPods: bool  # noqa: N815
    ncclConf: MaybePath  # noqa: N815
    shm: kinds.Quantity
    env: Texts


class Gpu(Keys):
    via: Literal["runtime", "volumeMounts", "nri", "none"]
    visibleDevices: Annotated[str, StringConstraints(min_length=1)]  # noqa: N815
    cdiDevice: Annotated[str, StringConstraints(pattern=r"^[^=\s]+/[^=\s]+=[^=\s]+$")]  # noqa: N815


class Folder(Keys):
    hostPath: MaybePath  # noqa: N815


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


class ServiceMonitor(Keys):
    enabled: bool
    interval: kinds.Duration
    scrapeTimeout: kinds.Duration  # noqa: N815
    labels: Texts
    tlsConfig: kinds.TlsConfig  # noqa: N815
    basicAuth: kinds.BasicAuth  # noqa: N815
    authorization: kinds.Authorization


class PrometheusRule(Keys):
    enabled: bool
    labels: Texts
    runbookBase: Annotated[str, StringConstraints(pattern=r"^(https?://[^\s\"'#{}]+/)?$")]  # noqa: N815


class Dashboards(Keys):
    enabled: bool
    label: Annotated[str, StringConstraints(min_length=1)]
    labelValue: str  # noqa: N815
    annotations: Texts


class NetworkPolicy(Keys):
    enabled: bool
    from_: list[kinds.Peer] = Field(alias="from")
    apiServerPorts: list[Port]  # noqa: N815


class Values(Keys):
    image: Image
    imagePullSecrets: list[kinds.Named]  # noqa: N815
    nameOverride: Name  # noqa: N815
    fullnameOverride: Name  # noqa: N815
    cluster: Annotated[str, StringConstraints(pattern=r"^[^\s\"'{}]*$")]
    listen: Listen
    config: dict[str, object]
    replay: File | Literal[""]
    agent: Agent
    prober: Prober
    gpu: Gpu
    runtimeClassName: Name  # noqa: N815
    state: Folder
    gate: Folder
    nodeCondition: Switch  # noqa: N815
    serviceAccount: ServiceAccount  # noqa: N815
    runAs: RunAs  # noqa: N815
    supplementalGroups: list[int]  # noqa: N815
    seLinuxOptions: kinds.SeLinux  # noqa: N815
    maxUnavailable: Annotated[int, Field(ge=1)] | Annotated[str, StringConstraints(pattern=r"^([1-9]|[1-9]\d|100)%$")]  # noqa: N815
    priorityClassName: Name  # noqa: N815
    terminationGracePeriodSeconds: Annotated[int, Field(ge=6)]  # noqa: N815
    tolerations: list[kinds.Toleration]
    nodeSelector: Texts  # noqa: N815
    affinity: kinds.Affinity | None = None
    podLabels: Texts  # noqa: N815
    podAnnotations: Texts  # noqa: N815
    web: Web
    serviceMonitor: ServiceMonitor  # noqa: N815
    prometheusRule: PrometheusRule  # noqa: N815
    dashboards: Dashboards
    networkPolicy: NetworkPolicy  # noqa: N815
