"""Parts of Kubernetes' own types that values of the chart hand on; a key that they do not have is refused.

Source: the Kubernetes API reference, core/v1 and networking.k8s.io/v1; the Prometheus operator's,
monitoring.coreos.com/v1.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from tools.chart.words import like


class Keys(BaseModel):
    """An object with these keys and no others."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Named(Keys):
    name: str


DnsLabel = Annotated[
    str,
    like(
        r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$",
        "a name as Kubernetes has them: at most 63 small letters, digits and '-'",
    ),
]


class Open(BaseModel):
    """An object of Kubernetes whose other keys are left to the API server."""

    model_config = ConfigDict(extra="allow", strict=True)
    name: DnsLabel


class OpenContainer(Keys):
    """A container; what is in its keys is left to the API server.

    A key that none has is refused: Helm 3 would leave it out, and the container run without it.
    """

    name: DnsLabel
    image: str
    args: object = None
    command: object = None
    env: object = None
    envFrom: object = None
    imagePullPolicy: object = None
    lifecycle: object = None
    livenessProbe: object = None
    ports: object = None
    readinessProbe: object = None
    resizePolicy: object = None
    resources: object = None
    restartPolicy: object = None
    restartPolicyRules: object = None
    securityContext: object = None
    startupProbe: object = None
    stdin: object = None
    stdinOnce: object = None
    terminationMessagePath: object = None
    terminationMessagePolicy: object = None
    tty: object = None
    volumeDevices: object = None
    volumeMounts: object = None
    workingDir: object = None


class PodTemplateSpec(BaseModel):
    """The specification of a pod; its other keys are left to the API server."""

    model_config = ConfigDict(extra="allow", strict=True)
    containers: Annotated[list[OpenContainer], Field(min_length=1)]


class PodTemplate(Keys):
    """A PodTemplateSpec, or nothing."""

    metadata: dict[str, object] | None = None
    spec: PodTemplateSpec | None = None


Quantity = Annotated[
    str,
    like(
        r"^\d+(\.\d+)?(m|k|Ki|M|Mi|G|Gi|T|Ti|P|Pi)?$", "an amount, such as 250m of a CPU, or 512Mi of memory"
    ),
]
Amount = Quantity | int | float
Texts = dict[str, str]
Duration = Annotated[
    str,
    like(r"^(\d+d)?(\d+h)?(\d+m)?(\d+s)?(\d+ms)?$", "a time, such as 30s, 5m or 1h30m", ""),
]
_V4 = r"((25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(25[0-5]|2[0-4]\d|1?\d?\d)"
ADDRESS = rf"^({_V4}|\[[0-9a-fA-F:]+\])$"
Cidr = Annotated[
    str,
    like(
        rf"^({_V4}/(3[0-2]|[12]?\d)|[0-9a-fA-F:]*:[0-9a-fA-F:]*/(12[0-8]|1[01]\d|[1-9]?\d))$",
        "a range of addresses, such as 10.0.0.0/8",
    ),
]


class Amounts(Keys):
    """No GPU among them: one that is requested is taken from a job."""

    cpu: Amount | None = None
    memory: Amount | None = None
    ephemeral_storage: Amount | None = Field(default=None, alias="ephemeral-storage")


class Resources(Keys):
    requests: Amounts | None = None
    limits: Amounts | None = None


class Requirement(Keys):
    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: list[str] | None = None


class NodeTerm(Keys):
    matchExpressions: list[Requirement] | None = None
    matchFields: list[Requirement] | None = None


class NodeSelector(Keys):
    nodeSelectorTerms: list[NodeTerm]


class PreferredNode(Keys):
    weight: int
    preference: NodeTerm


class NodeAffinity(Keys):
    requiredDuringSchedulingIgnoredDuringExecution: NodeSelector | None = None
    preferredDuringSchedulingIgnoredDuringExecution: list[PreferredNode] | None = None


class Affinity(Keys):
    """Of nodes alone: a DaemonSet has a pod on each."""

    nodeAffinity: NodeAffinity | None = None


class Toleration(Keys):
    key: str | None = None
    operator: Literal["Exists", "Equal"] | None = None
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    tolerationSeconds: int | None = None


class SeLinux(Keys):
    level: str | None = None
    role: str | None = None
    type: str | None = None
    user: str | None = None


class Labels(Keys):
    matchLabels: Texts | None = None
    matchExpressions: list[Requirement] | None = None


class PodTerm(Keys):
    topologyKey: str
    labelSelector: Labels | None = None
    namespaceSelector: Labels | None = None
    namespaces: list[str] | None = None


class PreferredPods(Keys):
    weight: int
    podAffinityTerm: PodTerm


class PodAffinity(Keys):
    requiredDuringSchedulingIgnoredDuringExecution: list[PodTerm] | None = None
    preferredDuringSchedulingIgnoredDuringExecution: list[PreferredPods] | None = None


class PodsAffinity(Affinity):
    """Of other pods too, for what has a few pods in the cluster."""

    podAffinity: PodAffinity | None = None
    podAntiAffinity: PodAffinity | None = None


class Spread(Keys):
    maxSkew: int
    topologyKey: str
    whenUnsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    labelSelector: Labels | None = None
    matchLabelKeys: list[str] | None = None
    minDomains: int | None = None
    nodeAffinityPolicy: Literal["Honor", "Ignore"] | None = None
    nodeTaintsPolicy: Literal["Honor", "Ignore"] | None = None


class DnsOption(Keys):
    name: str
    value: str | None = None


class DnsConfig(Keys):
    nameservers: list[str] | None = None
    searches: list[str] | None = None
    options: list[DnsOption] | None = None


class HostAlias(Keys):
    ip: str
    hostnames: list[str]


class IpBlock(Keys):
    cidr: Cidr
    except_: list[Cidr] | None = Field(default=None, alias="except")


class Peer(Keys):
    podSelector: Labels | None = None
    namespaceSelector: Labels | None = None
    ipBlock: IpBlock | None = None


class KeyOf(Keys):
    """A key of a Secret or a ConfigMap."""

    name: str
    key: str
    optional: bool | None = None


class BasicAuth(Keys):
    username: KeyOf | None = None
    password: KeyOf | None = None


class Authorization(Keys):
    type: str | None = None
    credentials: KeyOf | None = None


class SecretOrConfigMap(Keys):
    secret: KeyOf | None = None
    configMap: KeyOf | None = None


class TlsConfig(Keys):
    ca: SecretOrConfigMap | None = None
    cert: SecretOrConfigMap | None = None
    keySecret: KeyOf | None = None
    serverName: str | None = None
    insecureSkipVerify: bool | None = None
    minVersion: Literal["TLS12", "TLS13"] | None = None


class FieldOf(Keys):
    fieldPath: str
    apiVersion: str | None = None


class ResourceOf(Keys):
    resource: str
    containerName: str | None = None
    divisor: Amount | None = None


class ValueFrom(Keys):
    secretKeyRef: KeyOf | None = None
    configMapKeyRef: KeyOf | None = None
    fieldRef: FieldOf | None = None
    resourceFieldRef: ResourceOf | None = None


class EnvironmentVariable(Keys):
    name: str
    value: str | None = None
    valueFrom: ValueFrom | None = None


class Reference(Keys):
    name: str
    optional: bool | None = None


class EnvironmentSource(Keys):
    prefix: str | None = None
    configMapRef: Reference | None = None
    secretRef: Reference | None = None


class VolumeMount(Keys):
    name: str
    mountPath: str
    readOnly: bool | None = None
    subPath: str | None = None
    subPathExpr: str | None = None
    mountPropagation: Literal["None", "HostToContainer", "Bidirectional"] | None = None
    recursiveReadOnly: Literal["Disabled", "IfPossible", "Enabled"] | None = None


class Rollout(Keys):
    maxUnavailable: int | str | None = None
    maxSurge: int | str | None = None


class UpdateStrategy(Keys):
    type: Literal["RollingUpdate", "OnDelete"] | None = None
    rollingUpdate: Rollout | None = None


Action = Literal[
    "replace", "keep", "drop", "hashmod", "labelmap", "labeldrop", "labelkeep", "lowercase", "uppercase",
    "keepequal", "dropequal",
]  # fmt: skip


class Relabeling(Keys):
    sourceLabels: list[str] | None = None
    separator: str | None = None
    targetLabel: str | None = None
    regex: str | None = None
    modulus: int | None = None
    replacement: str | None = None
    action: Action | None = None
