"""The presets for clouds, which nobody has run there: what each is for is in what it renders."""

from typing import Any

import pytest

from tests.chart.documents import by_pool, container, containers, documents, of_kind, pod_of, the
from tests.chart.openshift import more_than_needed, not_admitted, read_constraints
from tests.chart.policies import selects
from tests.chart.restricted import refused
from tests.system.matrix import MATRIX, PRESETS
from tools.chart.helm import hooks, manifest
from tools.chart.made import CHART

pytestmark = pytest.mark.system
SCC = [name for name, values in MATRIX.items() if values.get("openshift", {}).get("scc")]


def terms(values: dict[str, Any]) -> list[dict[str, Any]]:
    affinity = pod_of(documents(manifest(values)))["affinity"]["nodeAffinity"]
    found: list[dict[str, Any]] = affinity["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    return found


def test_there_are_three_and_each_says_that_it_is_unproven() -> None:
    assert set(PRESETS) == {"preset gke", "preset eks", "preset openshift"}
    for path in (CHART / "presets").glob("*.yaml"):
        assert "Unproven" in path.read_text("utf-8").splitlines()[0]


def test_gke_mounts_the_folder_of_the_driver_and_may_open_the_devices() -> None:
    given = documents(manifest(PRESETS["preset gke"]))
    pod = pod_of(given)
    (driver,) = (one for one in pod["volumes"] if one["name"] == "driver")
    assert driver["hostPath"]["path"] == "/home/kubernetes/bin/nvidia"
    for name in ("agent", "prober"):
        one = container(pod, name)
        assert one["securityContext"]["privileged"]
        assert {"name": "driver", "mountPath": "/usr/local/nvidia", "readOnly": True} in one["volumeMounts"]
        assert {"name": "LD_LIBRARY_PATH", "value": "/usr/local/nvidia/lib64"} in one["env"]
    assert [one["name"] for one in pod["initContainers"] if one["securityContext"].get("privileged")] == []
    quota = the(given, "ResourceQuota")["spec"]["scopeSelector"]["matchExpressions"]
    assert quota[0]["values"] == [pod["priorityClassName"]]
    labels = {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}
    assert any(selects(one, labels) for one in terms(PRESETS["preset gke"]))


@pytest.mark.parametrize(
    ("labels", "runs"),
    [
        ({"node.kubernetes.io/instance-type": "p5.48xlarge"}, True),
        ({"karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia"}, True),
        ({"eks.amazonaws.com/instance-gpu-manufacturer": "nvidia"}, True),
        ({"k8s.amazonaws.com/accelerator": "nvidia-h100"}, True),
        ({"node.kubernetes.io/instance-type": "m7i.48xlarge"}, False),
        ({"karpenter.k8s.aws/instance-gpu-manufacturer": "amd"}, False),
    ],
)
def test_eks_knows_its_nodes_without_gpu_feature_discovery(labels: dict[str, str], *, runs: bool) -> None:
    assert any(selects(one, labels) for one in terms(PRESETS["preset eks"])) is runs


@pytest.mark.parametrize("name", SCC)
def test_openshift_admits_the_pods_and_no_more(name: str) -> None:
    given = documents(manifest(MATRIX[name]))
    by = read_constraints(the(given, "SecurityContextConstraints"))
    account = pod_of(next(by_pool(given)))["serviceAccountName"]
    assert by.users == [f"system:serviceaccount:wirewatch:{account}"]
    for one in by_pool(given):
        assert list(not_admitted(by, pod_of(one))) == []
        assert list(more_than_needed(by, pod_of(one))) == []


def test_openshift_gives_pods_without_rights_a_user_of_the_namespaces() -> None:
    """`restricted-v2` is what a ServiceAccount without an SCC has: it refuses users of one's own."""
    values = MATRIX["a controller on OpenShift"]
    given = [*documents(manifest(values)), *documents(hooks(values))]
    pods = [the(given, "Deployment")["spec"]["template"]["spec"], the(given, "Pod")["spec"]]
    for pod in pods:
        for context in (pod["securityContext"], *(one["securityContext"] for one in pod["containers"])):
            assert not {"runAsUser", "runAsGroup", "fsGroup", "seLinuxOptions"} & set(context)
        assert any(
            one.get("runAsNonRoot")
            for one in (pod["securityContext"], *(one["securityContext"] for one in pod["containers"]))
        )


def test_gke_takes_pods_of_each_class_that_the_chart_has() -> None:
    given = documents(manifest(MATRIX["a controller on GKE"]))
    (scope,) = the(given, "ResourceQuota")["spec"]["scopeSelector"]["matchExpressions"]
    classes = [
        one["spec"]["template"]["spec"]["priorityClassName"]
        for kind in ("DaemonSet", "Deployment")
        for one in of_kind(given, kind)
    ]
    assert scope["values"] == classes == ["system-node-critical", "system-cluster-critical"]


def test_constraints_that_are_too_narrow_or_too_wide_are_reported() -> None:
    given = documents(manifest(MATRIX["preset openshift"]))
    document = the(given, "SecurityContextConstraints")
    narrow = read_constraints(document | {"allowHostPID": False, "volumes": ["configMap"]})
    assert {"hostPID", "volume hostPath", "volume emptyDir", "volume projected"} <= set(
        not_admitted(narrow, pod_of(given))
    )
    wide = read_constraints(document | {"allowPrivilegedContainer": True, "volumes": ["*"]})
    assert set(more_than_needed(wide, pod_of(given))) == {"privileged", "every volume"}


def test_openshift_has_the_type_that_may_use_folders_of_the_host() -> None:
    pod = pod_of(documents(manifest(PRESETS["preset openshift"])))
    assert pod["securityContext"]["seLinuxOptions"] == {"type": "spc_t"}
    assert pod["runtimeClassName"] == "nvidia"


def test_a_restricted_namespace_takes_its_set_and_no_privileged_one() -> None:
    assert list(refused(pod_of(documents(manifest(MATRIX["restricted namespace"]))))) == []
    assert "agent: privileges" in refused(pod_of(documents(manifest(PRESETS["preset gke"]))))


def test_a_cluster_without_a_network_gets_every_image_from_its_registry() -> None:
    given = documents(manifest(MATRIX["registry without a network"]))
    images = {one["image"] for one in containers(pod_of(given))}
    assert images == {"registry.example.org:5000/mirror/wirewatch:0.1.0"}
    assert pod_of(given)["imagePullSecrets"] == [{"name": "mirror"}]
    assert of_kind(given, "SecurityContextConstraints") == []
