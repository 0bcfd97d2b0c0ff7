"""OpenShift's SecurityContextConstraints, which no package has the schema of: keys, and what they allow.

Source: the API reference of OpenShift 4, security.openshift.io/v1; fields without a default are required.
"""

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from tests.chart.documents import Document, containers


class _Keys(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Strategy(_Keys):
    type: Literal["RunAsAny", "MustRunAs", "MustRunAsNonRoot", "MustRunAsRange"]


class Constraints(_Keys):
    apiVersion: Literal["security.openshift.io/v1"]
    kind: Literal["SecurityContextConstraints"]
    metadata: dict[str, Any]
    allowHostDirVolumePlugin: bool
    allowHostIPC: bool
    allowHostNetwork: bool
    allowHostPID: bool
    allowHostPorts: bool
    allowPrivilegedContainer: bool
    allowPrivilegeEscalation: bool | None = None
    allowedCapabilities: list[str] | None
    defaultAddCapabilities: list[str] | None
    priority: int | None
    readOnlyRootFilesystem: bool
    requiredDropCapabilities: list[str] | None
    volumes: list[str] | None
    runAsUser: Strategy
    seLinuxContext: Strategy
    fsGroup: Strategy
    supplementalGroups: Strategy
    seccompProfiles: list[str]
    groups: list[str]
    users: list[str]


def read_constraints(document: Document) -> Constraints:
    """Raises:
    pydantic.ValidationError: a key or a type is wrong.
    """
    return Constraints.model_validate(document)


def not_admitted(by: Constraints, pod: Document) -> Iterator[str]:
    """What of a pod they do not allow; each user and SELinux type is, as `RunAsAny` says."""
    for key, allowed in (
        ("hostPID", by.allowHostPID), ("hostNetwork", by.allowHostNetwork), ("hostIPC", by.allowHostIPC),
    ):  # fmt: skip
        if pod.get(key) and not allowed:
            yield key
    for volume in pod["volumes"]:
        yield from (f"volume {kind}" for kind in set(volume) - {"name"} - set(by.volumes or ()))
    for one in containers(pod):
        context = one["securityContext"]
        if context.get("privileged") and not by.allowPrivilegedContainer:
            yield f"{one['name']}: privileged"
        if context.get("allowPrivilegeEscalation", True) and not by.allowPrivilegeEscalation:
            yield f"{one['name']}: may gain privileges"
        if by.readOnlyRootFilesystem and not context.get("readOnlyRootFilesystem"):
            yield f"{one['name']}: writable root"
        dropped = context.get("capabilities", {}).get("drop", [])
        if not set(by.requiredDropCapabilities or ()) <= set(dropped):
            yield f"{one['name']}: capabilities"
        if any("hostPort" in port for port in one.get("ports", ())) and not by.allowHostPorts:
            yield f"{one['name']}: a port of the host"


def more_than_needed(by: Constraints, pod: Document) -> Iterator[str]:
    """What they allow and a pod does not have."""
    privileged = any(one["securityContext"].get("privileged") for one in containers(pod))
    ports = any("hostPort" in port for one in containers(pod) for port in one.get("ports", ()))
    for key, allowed, used in (
        ("hostPID", by.allowHostPID, pod.get("hostPID")),
        ("hostIPC", by.allowHostIPC, pod.get("hostIPC")),
        ("hostNetwork", by.allowHostNetwork, pod.get("hostNetwork")),
        ("a port of the host", by.allowHostPorts, ports or pod.get("hostNetwork")),
        ("privileged", by.allowPrivilegedContainer, privileged),
        ("a capability", bool(by.allowedCapabilities), False),
        ("every volume", "*" in (by.volumes or ()), False),
    ):
        if allowed and not used:
            yield key
