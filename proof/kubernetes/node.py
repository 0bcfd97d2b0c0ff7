"""A node: a kubelet on containerd and runc, with a bridge for its pods."""

import json
from pathlib import Path

from proof.containers import attempt, run
from proof.kubernetes.enclosure import GROUP, NODE_ADDRESS
from proof.kubernetes.image import PAUSE
from proof.kubernetes.programs import Programs
from tests.waiting import until

NAME = "gpu-node-0"
LABEL = "nvidia.com/gpu.present=true"
"""What GPU feature discovery sets, and the chart goes by."""

_CONTAINERD = """
version = 2
root = "{folder}/root"
state = "{folder}/state"
oom_score = 0
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
"""
_BRIDGE = {
    "type": "bridge",
    "bridge": "pods0",
    "isGateway": True,
    "ipam": {
        "type": "host-local",
        "ranges": [[{"subnet": "10.201.244.0/24"}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    },
}
_KUBELET = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
cgroupRoot: /{group}
failSwapOn: false
oomScoreAdj: 0
maxOpenFiles: 4096
enforceNodeAllocatable: [pods]
imageGCHighThresholdPercent: 100
evictionHard: {{memory.available: 100Mi}}
makeIPTablesUtilChains: false
readOnlyPort: 0
volumePluginDir: {folder}/volumes
authentication: {{anonymous: {{enabled: true}}, webhook: {{enabled: false}}}}
authorization: {{mode: AlwaysAllow}}
"""


class Node:
    """Its files are in a folder."""

    def __init__(self, folder: Path, kubelet: Path, programs: Programs) -> None:
        self._folder, self._kubelet, self._programs = folder, kubelet, programs
        self._socket = folder / "containerd.sock"
        (folder / "cni").mkdir(parents=True)
        configuration = _CONTAINERD.format(folder=folder, pause=PAUSE)
        (folder / "containerd.toml").write_text(configuration, "utf-8")
        (folder / "kubelet.yaml").write_text(_KUBELET.format(folder=folder, group=GROUP), "utf-8")
        ipam = {**_BRIDGE["ipam"], "dataDir": str(folder / "ipam")}  # type: ignore[dict-item]
        network = {"cniVersion": "0.4.0", "name": "pods", "plugins": [{**_BRIDGE, "ipam": ipam}]}
        (folder / "cni" / "10-pods.conflist").write_text(json.dumps(network), "utf-8")

    def up(self, kubeconfig: Path, *images: Path) -> None:
        """Started, with images from archives; not yet Ready."""
        folder = self._folder
        self._programs.start("containerd", ("containerd", "--config", str(folder / "containerd.toml")))
        until("containerd answers", lambda: self._ctr_answers() or None, 30)
        for image in images:
            run(
                "ctr", "--address", str(self._socket), "--namespace", "k8s.io", "images", "import", str(image)
            )
        self._programs.start(
            "kubelet",
            (
                str(self._kubelet), f"--config={folder / 'kubelet.yaml'}", f"--kubeconfig={kubeconfig}",
                f"--hostname-override={NAME}", f"--node-ip={NODE_ADDRESS}", f"--node-labels={LABEL}",
                "--container-runtime=remote", f"--container-runtime-endpoint=unix://{self._socket}",
                f"--cert-dir={folder / 'certs'}",
            ),
        )  # fmt: skip

    def _ctr_answers(self) -> bool:
        self._programs.alive("containerd")
        return attempt("ctr", "--address", str(self._socket), "version", seconds=10).returncode == 0
