"""The kubelet port: the devices that the kubelet gave to pods, by its pod-resources socket.

This is the only user of grpcio, which is loaded once there is a socket to ask. It costs 24 MB, 0.1 s, and six
threads that sleep. A call, with a connection of its own, costs 1 ms.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from wirewatch.core.extras import install
from wirewatch.core.ports import Pod
from wirewatch.core.types import Absent, Why
from wirewatch.hw.files import absent_errno

if TYPE_CHECKING:
    from wirewatch.hw import podresources_pb2

SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"
DEADLINE = 10.0
"""Seconds; a healthy kubelet answers in milliseconds."""
LIMIT = 16 << 20
"""Bytes of an answer."""
SERVICE = "PodResourcesLister"
_OPTIONS = (
    ("grpc.max_receive_message_length", LIMIT),
    ("grpc.default_authority", "localhost"),  # the default is the path, which some servers refuse
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # else a connection outlives its channel
)
_WHY = {
    "DEADLINE_EXCEEDED": Why.TIMEOUT,
    "PERMISSION_DENIED": Why.DENIED,
    "UNAUTHENTICATED": Why.DENIED,
    "UNIMPLEMENTED": Why.UNSUPPORTED,
    "INTERNAL": Why.MALFORMED,
    "DATA_LOSS": Why.MALFORMED,
}


class SystemKubelet:
    """The kubelet of this machine; `deadline` in seconds."""

    def __init__(self, socket: str = SOCKET, deadline: float = DEADLINE) -> None:
        self._socket = socket
        self._deadline = deadline

    def pods(self) -> Sequence[Pod] | Absent:
        refused = _refused(self._socket)
        if refused is not None:
            return refused
        try:
            import grpc
            from google.protobuf.message import DecodeError

            from wirewatch.hw import podresources_pb2 as wire
        except ImportError as error:
            detail = f"{error}; to ask the kubelet: {install('kubernetes')}"
            return Absent(Why.UNSUPPORTED, detail)
        service = wire.DESCRIPTOR.services_by_name[SERVICE].full_name
        with grpc.insecure_channel(f"unix:{self._socket}", options=_OPTIONS) as channel:
            try:
                ask: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{service}/List")
                data = ask(b"", timeout=self._deadline)
            except grpc.RpcError as error:
                return _absent(error.code().name, error.details() or "")
        try:
            listed = wire.ListPodResourcesResponse.FromString(data)
        except DecodeError as error:
            return Absent(Why.MALFORMED, f"kubelet: {error}")
        pods = (_pod(pod) for pod in listed.pod_resources)
        return tuple(pod for pod in pods if pod.devices or pod.claims)


def _refused(path: str) -> Absent | None:
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - a socket's name, no path to walk
    except OSError as error:
        return absent_errno(error.errno, path)
    if not stat.S_ISSOCK(mode):
        return Absent(Why.MALFORMED, f"{path}: not a socket")
    if not os.access(path, os.R_OK | os.W_OK, effective_ids=True):
        return Absent(Why.DENIED, f"{path}: may not be used by user {os.geteuid()}")
    return None


def _absent(status: str, details: str) -> Absent:
    """Return why a call failed: a kubelet that is restarting or asks for patience is LOST."""
    return Absent(_WHY.get(status, Why.LOST), f"kubelet: {status} {details}".rstrip())


def _pod(listed: "podresources_pb2.PodResources") -> Pod:
    containers = listed.containers
    devices = [(d.resource_name, i) for c in containers for d in c.devices for i in d.device_ids]
    dynamic = [r for c in containers for d in c.dynamic_resources for r in d.claim_resources]
    claims = [claim for resource in dynamic for claim in _claims(resource)]
    return Pod(listed.namespace, listed.name, tuple(devices), tuple(claims))


def _claims(claim: "podresources_pb2.ClaimResource") -> Iterator[tuple[str, str, str]]:
    """Driver, pool and device; before Kubernetes 1.31 there are only names of CDI devices, `kind=device`."""
    if claim.driver_name or not claim.cdi_devices:
        yield claim.driver_name, claim.pool_name, claim.device_name
        return
    for device in claim.cdi_devices:
        kind, _, name = device.name.rpartition("=")
        yield kind, "", name
