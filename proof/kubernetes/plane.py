"""A control plane: etcd, API server, controllers, scheduler, with RBAC and an audit log."""

import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from proof.containers import attempt, run
from proof.kubernetes.enclosure import API_ADDRESS, NODE_ADDRESS, SERVICES
from proof.kubernetes.programs import Programs
from tests.waiting import until

_AUDIT = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
"""
_KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{{name: e2e, cluster: {{server: "https://{address}", certificate-authority: "{ca}"}}}}]
users: [{{name: admin, user: {{token: "{token}"}}}}]
contexts: [{{name: e2e, context: {{cluster: e2e, user: admin}}}}]
current-context: e2e
"""


@dataclass(frozen=True)
class Endpoints:
    """Where it listens; by default in namespaces of its own. `peers` are two ports of etcd."""

    api: str = API_ADDRESS
    advertised: str = NODE_ADDRESS
    port: int = 443
    peers: tuple[int, int] = (12379, 12380)

    @property
    def address(self) -> str:
        """As a client has it."""
        return f"{self.api}:{self.port}"


class Plane:
    """Its files are in a folder; `kubeconfig` is an administrator's. `more`: options of the controllers."""

    def __init__(
        self, folder: Path, binaries: Path, programs: Programs, where: Endpoints = Endpoints(),
        more: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._folder, self._binaries, self._programs = folder, binaries, programs
        self.where, self._more = where, more
        self.kubeconfig, self.ca = folder / "kubeconfig", folder / "certs" / "apiserver.crt"
        self.kubectl = (
            "kubectl",
            "--kubeconfig",
            str(self.kubeconfig),
            "--cache-dir",
            str(folder / "kubectl"),
        )
        self._audit = folder / "audit.log"
        folder.mkdir()
        self.token = secrets.token_hex(16)
        run("openssl", "genrsa", "-out", str(folder / "accounts.key"), "2048")
        (folder / "tokens.csv").write_text(f"{self.token},admin,admin,system:masters\n", "utf-8")
        (folder / "audit.yaml").write_text(_AUDIT, "utf-8")
        told = _KUBECONFIG.format(address=where.address, ca=self.ca, token=self.token)
        self.kubeconfig.write_text(told, "utf-8")

    def up(self) -> None:
        clients, peer = (f"http://127.0.0.1:{port}" for port in self.where.peers)
        self._programs.start(
            "etcd",
            (
                "etcd", "--data-dir", str(self._folder / "etcd"), "--listen-client-urls", clients,
                "--advertise-client-urls", clients, "--listen-peer-urls", peer,
                "--initial-advertise-peer-urls", peer,
                "--initial-cluster", f"default={peer}",
            ),
        )  # fmt: skip
        self.start_api_server()
        common = (f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", "--port=0", "--secure-port=0")
        self._programs.start(
            "kube-controller-manager",
            (
                str(self._binaries / "kube-controller-manager"), *common, f"--root-ca-file={self.ca}",
                f"--service-account-private-key-file={self._folder / 'accounts.key'}",
                "--use-service-account-credentials=true", f"--flex-volume-plugin-dir={self._folder / 'flex'}",
                *self._more,
            ),
        )  # fmt: skip
        self._programs.start("kube-scheduler", (str(self._binaries / "kube-scheduler"), *common))

    def start_api_server(self) -> None:
        """Until it is ready."""
        folder = self._folder
        self._programs.start(
            "kube-apiserver",
            (
                str(self._binaries / "kube-apiserver"), f"--etcd-servers=http://127.0.0.1:{self.where.peers[0]}",
                f"--secure-port={self.where.port}",
                "--bind-address=0.0.0.0", f"--advertise-address={self.where.advertised}",
                f"--cert-dir={folder / 'certs'}",
                f"--token-auth-file={folder / 'tokens.csv'}", "--authorization-mode=Node,RBAC",
                f"--service-cluster-ip-range={SERVICES}", "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={folder / 'accounts.key'}",
                f"--service-account-signing-key-file={folder / 'accounts.key'}", "--allow-privileged=true",
                "--kubelet-preferred-address-types=InternalIP",
                f"--audit-policy-file={folder / 'audit.yaml'}",
                f"--audit-log-path={self._audit}",
            ),
        )  # fmt: skip
        until("the API server is ready", self._ready, 180)

    def _ready(self) -> bool:
        self._programs.alive("kube-apiserver")
        # A disk that is slow at the moment makes programs of this size slow to start.
        told = attempt(*self.kubectl, "get", "--raw", "/readyz", "--request-timeout=10s", seconds=120)
        return told.stdout == "ok"

    def audited(self, user: str, program: str) -> Iterator[tuple[str, str, int]]:
        """What a user has asked by a program: verb, resource with its part, status of the answer."""
        for line in self._audit.read_text("utf-8").splitlines():
            event = json.loads(line)
            if event["user"].get("username") == user and event.get("userAgent", "").startswith(program):
                about = event.get("objectRef", {})
                part = f"/{about['subresource']}" if "subresource" in about else ""
                yield event["verb"], f"{about.get('resource', '')}{part}", event["responseStatus"]["code"]
