"""Values that the chart takes, one set for each thing that it can do, and some of them together."""

from pathlib import Path
from typing import Any

import yaml

from tools.chart.made import CHART, ROOT

Values = dict[str, Any]

WEB = {"web": {"secret": "wirewatch-web", "tls": True}}
PAIR: Values = {
    "spec": {"containers": [{"name": "pair", "image": "registry.example.org/wirewatch:0.2.0-torch"}]}
}
MONITORED = {
    "serviceMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True},
    "dashboards": {"enabled": True},
}
CONFIG = {
    "config": {
        "expect": {"gpus": 8, "nvlink_links": 18, "rdma_rate_bytes_per_second": 50e9, "gpudirect": True},
        "collectors": {
            "infiniband": {"exclude": ["mlx5_8"]},
            "nvlink": {"interval": 15, "link_detail": True},
        },
        "policy": {"nvlink": {"error_limits": {"crc": {"events": 6000, "seconds": 60.5}}}},
        "probe": {
            "bandwidth": [[4096, 5], [268435456, 2]],
            "pins": {"all_reduce@268435456": 430e9},
            "budget": 0.005,
        },
        "page": {"runbook": "https://docs.example.org/a?b=1&c=<d>"},
    }
}


def _read(path: Path) -> Values:
    read: Values = yaml.safe_load(path.read_text("utf-8"))
    return read


PRESETS = {f"preset {path.stem}": _read(path) for path in sorted((CHART / "presets").glob("*.yaml"))}
MATRIX: dict[str, Values] = {
    **PRESETS,
    "restricted namespace": _read(ROOT / "deploy/kubernetes/values/restricted.yaml"),
    "nothing": {},
    "config": CONFIG,
    "digest": {"image": {"repository": "registry.example.org/x/wirewatch", "digest": f"sha256:{'0a' * 32}"}},
    "tag": {
        "image": {"repository": "localhost:5000/wirewatch", "tag": "1.2.3-rc.1"},
        "imagePullSecrets": [{"name": "x"}],
    },
    "names": {"nameOverride": "wires", "fullnameOverride": "gpu-wires", "podLabels": {"team": "sre"}},
    "ipv6": {"listen": {"address": "[::]", "port": 9999}},
    "no prober": {"prober": {"enabled": False}},
    "prober alone": {"prober": {"podResources": "", "endedPods": False, "ncclConf": "/etc/nccl.conf"}},
    "prober's environment": {
        "prober": {"env": {"NCCL_P2P_LEVEL": "NVL", "NVIDIA_DRIVER_CAPABILITIES": "all"}}
    },
    "no sysfs": {"agent": {"sysfs": False}},
    "volume mounts": {"gpu": {"via": "volumeMounts"}},
    "nri": {"gpu": {"via": "nri"}, "podAnnotations": {"a": "b"}},
    "nri, no prober": {"gpu": {"via": "nri"}, "prober": {"enabled": False}},
    "no driver": {"gpu": {"via": "none"}},
    "runtime class": {
        "runtimeClassName": "nvidia",
        "supplementalGroups": [44],
        "seLinuxOptions": {"type": "spc_t"},
    },
    "no state": {"state": {"hostPath": ""}},
    "gate": {"gate": {"hostPath": "/run/wirewatch"}},
    "gate, no state, no prober": {
        "gate": {"hostPath": "/run/wirewatch"},
        "state": {"hostPath": ""},
        "prober": {"enabled": False},
    },
    "jobs": {"jobs": {"hostPath": "/run/wirewatch-jobs", "libraryPath": "/opt/wirewatch/lib"}},
    "jobs, no state, no prober": {
        "jobs": {"hostPath": "/run/wirewatch-jobs", "size": "1Gi"},
        "state": {"hostPath": ""},
        "prober": {"enabled": False},
    },
    "jobs of a recording": {
        "jobs": {"hostPath": "/run/wirewatch-jobs"},
        "replay": "demo-dgx-h200",
        "gpu": {"via": "none"},
    },
    "no condition": {"nodeCondition": {"enabled": False}},
    "account": {"serviceAccount": {"create": False, "name": "mine"}},
    "no condition, no account": {"nodeCondition": {"enabled": False}, "serviceAccount": {"create": False}},
    "another user": {"runAs": {"user": 4711, "group": 4712}},
    "rollout": {"maxUnavailable": 3, "priorityClassName": "", "terminationGracePeriodSeconds": 60},
    "anywhere": {"affinity": {}, "tolerations": [], "nodeSelector": {"pool": "gpu"}},
    "anywhere, as before": {"affinity": None},
    "large numbers": {"runAs": {"user": 1000700000, "group": 1000700000}},
    "registry without a network": {
        "image": {"registry": "registry.example.org:5000/mirror", "repository": "wirewatch", "tag": "0.1.0"},
        "imagePullSecrets": [{"name": "mirror"}],
        "commonLabels": {"team": "gpu", "app.kubernetes.io/part-of": "monitoring"},
        "podLabels": {"team": "sre"},
    },
    "on delete": {"updateStrategy": {"type": "OnDelete"}},
    "limits that a namespace asks for": {
        "agent": {"resources": {"limits": {"ephemeral-storage": "64Mi"}}},
        "prober": {"resources": {"requests": {"ephemeral-storage": 1}}},
    },
    "volumes of all kinds of containers": {
        "extraVolumes": [{"name": "a", "emptyDir": {}}],
        "initContainers": [
            {"name": "b", "image": "b:1", "volumeMounts": [{"name": "state", "mountPath": "/state"}]}
        ],
        "sidecars": [{"name": "c", "image": "c:1", "volumeMounts": [{"name": "a", "mountPath": "/a/"}]}],
    },
    "all at once": {"maxUnavailable": 1000000},
    "five at once": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 5}}},
    "quota": {"resourceQuota": {"enabled": True}},
    "port of the node": {"listen": {"hostPort": 9410}},
    "network of the host": {"hostNetwork": True},
    "driver from a folder": {
        "gpu": {"via": "folder"},
        "agent": {"privileged": True},
        "prober": {"privileged": True},
    },
    "more of everything": {
        "commonLabels": {"team": "gpu"},
        "extraVolumes": [
            {"name": "ca", "secret": {"secretName": "ca"}},
            {"name": "efa", "hostPath": {"path": "/opt/amazon/efa"}},
        ],
        "agent": {
            "extraEnv": [
                {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b", "optional": True}}},
            ],
            "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ca", "readOnly": True}],
        },
        "prober": {
            "extraEnv": [{"name": "FI_PROVIDER", "value": "efa"}],
            "extraVolumeMounts": [{"name": "efa", "mountPath": "/opt/amazon/efa", "readOnly": True}],
        },
        "initContainers": [{"name": "wait", "image": "busybox:1.36", "command": ["true"]}],
        "sidecars": [
            {
                "name": "shipper",
                "image": "fluent-bit:3.1",
                "volumeMounts": [{"name": "ca", "mountPath": "/ca"}],
            }
        ],
        "dashboards": {"enabled": True, "namespace": "monitoring", "labels": {"release": "grafana"}},
    },
    "an init container alone": {
        "initContainers": [{"name": "wait", "image": "busybox:1.36"}],
        "state": {"hostPath": ""},
    },
    "pools": {
        "config": {"expect": {"gpus": 8}},
        "pools": [
            {"name": "h100", "nodeSelector": {"gpu": "h100"}, "config": {"expect": {"nvlink_links": 18}}},
            {
                "name": "l40s",
                "nodeSelector": {"gpu": "l40s", "zone": "b"},
                "config": {"expect": {"gpus": 4}},
                "prober": {"enabled": False},
                "image": {"tag": "0.2.0-rc.1"},
                "affinity": {},
                "maxUnavailable": 1,
            },
        ],
        "podMonitor": {"enabled": True},
    },
    "pools, by a Service": {
        "affinity": {},
        "pools": [{"name": "h100", "nodeSelector": {"gpu": "h100"}}],
        "serviceMonitor": {"enabled": True},
    },
    "OpenShift with jobs": {"openshift": {"scc": True}, "jobs": {"hostPath": "/run/wirewatch-jobs"}},
    "OpenShift without a prober": {"openshift": {"scc": True}, "prober": {"enabled": False}},
    "OpenShift with a port and privileges": {
        "openshift": {"scc": True},
        "listen": {"hostPort": 9410},
        "agent": {"privileged": True},
        "prober": {"privileged": True},
        "pools": [{"name": "a", "nodeSelector": {"x": "1"}}],
    },
    "OpenShift with a volume": {
        "openshift": {"scc": True},
        "hostNetwork": True,
        "extraVolumes": [{"name": "data", "nfs": {"server": "nfs.example.org", "path": "/data"}}],
    },
    "web": WEB,
    "monitored": {**MONITORED, "cluster": "lab"},
    "monitored over TLS": {
        **WEB,
        "serviceMonitor": {
            "enabled": True,
            "labels": {"release": "prometheus"},
            "tlsConfig": {"insecureSkipVerify": True},
            "authorization": {"credentials": {"name": "x", "key": "token"}},
        },
        "prometheusRule": {"enabled": True, "runbookBase": "https://git.example.org/wirewatch/blob/main/"},
    },
    "agents held to their nodes": {"nodeCondition": {"admissionPolicy": "always"}},
    "agents not held to their nodes": {"nodeCondition": {"admissionPolicy": "never"}},
    "controller with its policy": {"controller": {"enabled": True, "admissionPolicy": "always"}},
    "controller that acts, without a policy": {
        "controller": {
            "enabled": True,
            "admissionPolicy": "never",
            "replicas": 2,
            "config": {"dry_run": False, "act": "cordon", "budget": {"rack": 1}},
        }
    },
    "rounds of pairs": {
        "fleetProbe": {"enabled": True, "podTemplate": PAIR},
        "commonLabels": {"team": "gpu"},
    },
    "rounds of pairs with everything": {
        "image": {"registry": "mirror.example.org:5000", "digest": f"sha256:{'a' * 64}"},
        "imagePullSecrets": [{"name": "pull"}],
        "fleetProbe": {
            "enabled": True,
            "schedule": "@weekly",
            "suspend": True,
            "podTemplate": {
                "metadata": {"annotations": {"k8s.v1.cni.cncf.io/networks": "rdma-net"}},
                "spec": {**PAIR["spec"], "hostNetwork": True, "tolerations": [{"operator": "Exists"}]},
            },
            "selector": "gpu in (h100, h200),!broken",
            "queue": "low",
            "priorityClass": {"create": False, "name": "lowest", "value": 0},
            "gpuResource": "nvidia.com/gpu.shared",
            "leafLabels": ["topology.kubernetes.io/rack", "leaf"],
            "extraArgs": ["--rounds=4", "--size=256M", "--env=NCCL_DEBUG=INFO"],
            "deadline": 600,
            "history": 0,
            "nodeSelector": {"pool": "system"},
            "tolerations": [{"key": "system", "operator": "Exists"}],
        },
    },
    "links": {
        **MONITORED,
        "links": {"grafana": "https://grafana.example.org/g", "statusPage": "https://gpus.example.org/NODE/"},
    },
    "racks and a tier": {
        **MONITORED,
        "serviceMonitor": {
            "enabled": True,
            "tier": "core",
            "rackLabel": "topology.kubernetes.io/zone",
            "leafLabel": "x.y/leaf-1",
            "poolLabel": "cloud.google.com/gke-nodepool",
        },
    },
    "racks of pods": {"podMonitor": {"enabled": True, "tier": "full", "rackLabel": "rack"}},
    "monitored by pods": {
        **MONITORED,
        "serviceMonitor": {"enabled": False},
        "podMonitor": {
            "enabled": True,
            "labels": {"release": "prometheus"},
            "relabelings": [{"sourceLabels": ["__meta_kubernetes_pod_label_team"], "targetLabel": "team"}],
            "metricRelabelings": [
                {"sourceLabels": ["__name__"], "regex": "wirewatch_burst_.*", "action": "drop"}
            ],
        },
        "service": {"enabled": False},
    },
    "monitored from another namespace": {
        "podMonitor": {"enabled": True, "namespace": "monitoring"},
        "prometheusRule": {"enabled": True, "namespace": "monitoring"},
    },
    "monitored by an older operator": {
        "serviceMonitor": {"enabled": True, "serviceDiscoveryRole": "", "namespace": "monitoring"},
    },
    "alerts of one's own": {
        "prometheusRule": {
            "enabled": True,
            "gpuNodes": 'kube_node_labels{label_pool="gpu"}',
            "alerts": {
                "WirewatchMinorityVersion": {"enabled": False},
                "WirewatchPortDown": {"severities": ["critical"], "for": "5m", "labels": {"team": "net"}},
                "WirewatchBusbwBelowBaseline": {"threshold": 0.8},
                "WirewatchProbeStale": {"threshold": 604800, "enabled": True},
            },
        }
    },
    "labels on everything": {
        "commonLabels": {"team": "gpu", "grafana_dashboard": "no"},
        "podLabels": {"tier": "node"},
        "controller": {"enabled": True},
        "podMonitor": {"enabled": True, "labels": {"team": "prometheus"}, "namespace": "monitoring"},
        "prometheusRule": {"enabled": True, "labels": {"team": "prometheus"}},
        "dashboards": {"enabled": True, "labels": {"team": "grafana", "grafana_dashboard": "no"}},
    },
    "controllers apart": {
        "runAs": {"user": 1000700000, "group": 1000700000},
        "controller": {
            "enabled": True,
            "replicas": 2,
            "affinity": {
                "podAntiAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "topologyKey": "kubernetes.io/hostname",
                            "labelSelector": {"matchLabels": {"app.kubernetes.io/component": "controller"}},
                        }
                    ]
                }
            },
        },
    },
    "a controller on GKE": {**PRESETS["preset gke"], "controller": {"enabled": True}},
    "a controller on OpenShift": {**PRESETS["preset openshift"], "controller": {"enabled": True}},
    "a pool of another tag and another rollout": {
        "image": {"digest": f"sha256:{'0a' * 32}"},
        "updateStrategy": {"type": "OnDelete"},
        "pools": [
            {"name": "a", "nodeSelector": {"gpu": "a"}, "image": {"tag": "1.2"}, "maxUnavailable": 3},
            {"name": "b", "nodeSelector": {"gpu": "b"}, "updateStrategy": {}},
            {"name": "c", "nodeSelector": {"gpu": "c"}, "tolerations": [], "prober": {"podResources": ""}},
        ],
    },
    "network policy, no condition": {
        "nodeCondition": {"enabled": False},
        "networkPolicy": {
            "from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}],
        },
    },
    "replay": {"replay": "demo-dgx-h200", "gpu": {"via": "none"}},
}

# What the rules of tests/chart say of sets that ask for it, and of no others.
_FOLDER = [
    "agent_is_not_root: agent: may be root",
    *(
        f"no_privileges: {name}: {what}"
        for name in ("agent", "prober")
        for what in ("privileged", "may gain privileges", "has capabilities")
    ),
]
ASKED_FOR: dict[str, list[str]] = {
    "network of the host": ["little_of_the_host: hostNetwork"],
    "driver from a folder": _FOLDER,
    "preset gke": _FOLDER,
    "a controller on GKE": _FOLDER,
    "OpenShift with a volume": ["little_of_the_host: hostNetwork"],
    "OpenShift with a port and privileges": _FOLDER,
}

# What 0.1 had by default, as `helm upgrade --reuse-values` brings it along, and what lets everybody in.
UNLIMITED: dict[str, Values] = {
    "as 0.1 had it": {"networkPolicy": {"enabled": False, "from": [], "apiServerPorts": [443, 6443]}},
    "no network policy": {"networkPolicy": {"enabled": False}},
    "everybody": {"networkPolicy": {"from": []}},
}

REFUSED: dict[str, tuple[Values, str]] = {
    "unknown key": ({"probber": {}}, "'probber' not allowed"),
    "unknown key below": ({"prober": {"enabld": True}}, "at '/prober'"),
    "unknown key of Kubernetes": ({"tolerations": [{"operater": "Exists"}]}, "at '/tolerations/0'"),
    "unknown key far below": ({"affinity": {"nodeAffinity": {"x": 1}}}, "at '/affinity/nodeAffinity'"),
    "unknown key of the agent": (
        {"config": {"collectors": {"nvlink": {"intervall": 3}}}},
        "at '/config/collectors/nvlink'",
    ),
    "unknown section of the agent": ({"config": {"colectors": {}}}, "at '/config'"),
    "type of the agent's": (
        {"config": {"expect": {"gpus": "8"}}},
        "at '/config/expect/gpus': got string, want integer",
    ),
    "a part of a GPU": ({"config": {"expect": {"gpus": 7.5}}}, "at '/config/expect/gpus'"),
    "what another value says": ({"config": {"probe": {"prober": "/x"}}}, "at '/config/probe'"),
    "type": ({"listen": {"port": "9410"}}, "at '/listen/port': got string, want integer"),
    "port": ({"listen": {"port": 70000}}, "at '/listen/port'"),
    "no label of a node": ({"podMonitor": {"rackLabel": "a b"}}, "podMonitor.rackLabel"),
    "a page of no node": (
        {"links": {"statusPage": "https://gpus.example.org/"}},
        "links.statusPage",
    ),
    "moving tag": (
        {"image": {"tag": "latest"}},
        "image.tag: \"latest\" is not the tag of one image; 'latest' is none, since it moves",
    ),
    "digest": (
        {"image": {"digest": "sha256:1"}},
        'image.digest: "sha256:1" is not a digest: sha256: and 64 digits',
    ),
    "a peer that is none": ({"networkPolicy": {"from": [{"pods": {}}]}}, "at '/networkPolicy/from/0'"),
    "choice": ({"gpu": {"via": "magic"}}, "at '/gpu/via'"),
    "a GPU": ({"agent": {"resources": {"limits": {"nvidia.com/gpu": 1}}}}, "at '/agent/resources/limits'"),
    "root": ({"runAs": {"user": 0}}, "at '/runAs/user'"),
    "path": (
        {"state": {"hostPath": "var/lib"}},
        'state.hostPath: "var/lib" is not an absolute path, such as /var/lib/wirewatch',
    ),
    "no rollout": ({"maxUnavailable": "0%"}, 'maxUnavailable: "0%" is not a percentage from 1% to 100%'),
    "null": ({"image": None}, "missing property 'image'"),
    "a tap without a reader": (
        {"jobs": {"libraryPath": "/opt/x"}},
        "jobs.libraryPath: without jobs.hostPath",
    ),
    "a size of rings that no mount takes": (
        {"jobs": {"hostPath": "/run/wirewatch-jobs", "size": "50%"}},
        'jobs.size: "50%" is not whole MiB or GiB',
    ),
    "pairs without an image": (
        {"fleetProbe": {"enabled": True}},
        "fleetProbe.podTemplate: say which image runs the pairs",
    ),
    "pairs without a container": (
        {"fleetProbe": {"enabled": True, "podTemplate": {"spec": {"containers": []}}}},
        "at '/fleetProbe/podTemplate/spec/containers'",
    ),
    "a schedule of six fields": (
        {"fleetProbe": {"schedule": "0 0 3 * * *"}},
        'fleetProbe.schedule: "0 0 3 * * *" is not five fields of cron',
    ),
    "an option that is none": ({"fleetProbe": {"extraArgs": ["rounds"]}}, "fleetProbe.extraArgs"),
    "a priority of the system": (
        {"fleetProbe": {"priorityClass": {"value": 2000000000}}},
        "at '/fleetProbe/priorityClass/value'",
    ),
    "where rings are read": ({"config": {"jobs": {"rings": "/x"}}}, "at '/config/jobs'"),
    "TLS without a certificate": ({"web": {"tls": True}}, "web.tls: without web.secret"),
    "a recording as gate": (
        {"replay": "h200x1-idle", "gate": {"hostPath": "/run/w"}},
        "gate.hostPath: a recording",
    ),
    "two monitors": (
        {"podMonitor": {"enabled": True}, "serviceMonitor": {"enabled": True}},
        "podMonitor.enabled and serviceMonitor.enabled: each agent would be scraped twice",
    ),
    "a monitor without a Service": (
        {"service": {"enabled": False}, "serviceMonitor": {"enabled": True}},
        "serviceMonitor.enabled: a ServiceMonitor finds targets by the Service",
    ),
    "no such alert": (
        {"prometheusRule": {"alerts": {"WirewatchX": {"enabled": False}}}},
        "prometheusRule.alerts.WirewatchX: there is no such alert; nearest is Wirewatch",
    ),
    "an alert in another case": (
        {"prometheusRule": {"alerts": {"WirewatchGpuLost": {"enabled": False}}}},
        "there is no such alert; nearest is WirewatchGPULost",
    ),
    "an alert of a word less": (
        {"prometheusRule": {"alerts": {"WirewatchBusbwBaseline": {"threshold": 0.8}}}},
        "there is no such alert; nearest is WirewatchBusbwBelowBaseline",
    ),
    "80 for 80 %": (
        {"prometheusRule": {"alerts": {"WirewatchBusbwBelowBaseline": {"threshold": 80}}}},
        "prometheusRule.alerts.WirewatchBusbwBelowBaseline.threshold: 80 is not a share: 0.8 is 80 %",
    ),
    "a severity by its label": (
        {"prometheusRule": {"alerts": {"WirewatchGPULost": {"labels": {"severity": "ticket"}}}}},
        "WirewatchGPULost.labels.severity: the alert has its own; severities says which of them to keep",
    ),
    "a severity that it has not": (
        {"prometheusRule": {"alerts": {"WirewatchProbeStale": {"severities": ["critical"]}}}},
        'WirewatchProbeStale.severities: it has no severity "critical", but ticket',
    ),
    "a label that Prometheus refuses": (
        {"prometheusRule": {"alerts": {"WirewatchGPULost": {"labels": {"a.b": "x"}}}}},
        'WirewatchGPULost.labels: "a.b" is not a label as Prometheus has them',
    ),
    "a selector that is none": (
        {"prometheusRule": {"gpuNodes": "kube_node_labels{label_x=}"}},
        "prometheusRule.gpuNodes:",
    ),
    "a group of a regular expression": ({"cluster": "a$1"}, 'cluster: "a$1" is not a name without'),
    "the name of no Service": ({"fullnameOverride": "gpu.wires"}, '"gpu.wires" cannot be a Service'),
    "a name that is too long with a pool": (
        {"fullnameOverride": "a" * 60, "pools": [{"name": "h100", "nodeSelector": {"x": "1"}}]},
        "cannot be a Service: at most 63",
    ),
    "a quota of no class": (
        {"resourceQuota": {"enabled": True}, "priorityClassName": ""},
        "resourceQuota.enabled: without priorityClassName there is no class",
    ),
    "no label": ({"commonLabels": {"a b": "c"}}, 'commonLabels: "a b" is not the name of a label'),
    "no value of a label": (
        {"podMonitor": {"labels": {"release": "a b"}}},
        'podMonitor.labels.release: "a b" is not the value of a label',
    ),
    "a monitor's label of the chart's": (
        {"podMonitor": {"labels": {"app.kubernetes.io/name": "x"}}},
        "podMonitor.labels: app.kubernetes.io/name is the chart's own",
    ),
    "an annotation of the chart's": (
        {"podAnnotations": {"checksum/config": "x"}},
        "podAnnotations: checksum/config is the chart's own",
    ),
    "a value from two places": (
        {
            "agent": {
                "extraEnv": [
                    {"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
                ]
            }
        },
        "agent: A has a value and valueFrom; give one of them",
    ),
    "two volumes at one path": (
        {
            "extraVolumes": [{"name": "x", "emptyDir": {}}],
            "agent": {"extraVolumeMounts": [{"name": "x", "mountPath": "/run/wirewatch"}]},
        },
        "agent: two volumes at /run/wirewatch",
    ),
    "a threshold where the agent decides": (
        {"prometheusRule": {"enabled": True, "alerts": {"WirewatchGPULost": {"threshold": 2}}}},
        "prometheusRule.alerts.WirewatchGPULost.threshold: this alert has none; the agent decides",
    ),
    "all that is wrong at once": (
        {"image": {"registry": "https://x/"}, "pools": [{"name": "A", "nodeSelector": {"a": "b"}}]},
        'no slash at the end\npools.0.name: "A" is not a name for a pool',
    ),
    "pools that meet": (
        {"pools": [{"name": "a", "nodeSelector": {"x": "1"}}, {"name": "b", "nodeSelector": {"y": "1"}}]},
        'pools: a node can be in both "a" and "b", and would run two agents; give the nodeSelector of both',
    ),
    "two pools of one name": (
        {"pools": [{"name": "a", "nodeSelector": {"x": "1"}}, {"name": "a", "nodeSelector": {"x": "2"}}]},
        'pools: "a" is there twice',
    ),
    "a pool of all nodes": ({"pools": [{"name": "a", "nodeSelector": {}}]}, "at '/pools/0/nodeSelector'"),
    "the agent's key in a pool": (
        {"pools": [{"name": "a", "nodeSelector": {"x": "1"}, "config": {"expct": {}}}]},
        "at '/pools/0/config': additional properties 'expct' not allowed",
    ),
    "what there is once, in a pool": (
        {"pools": [{"name": "a", "nodeSelector": {"x": "1"}, "web": {"tls": True}}]},
        "at '/pools/0': additional properties 'web' not allowed",
    ),
    "a pool's wrong folder": (
        {
            "pools": [
                {
                    "name": "a",
                    "nodeSelector": {"x": "1"},
                    "gpu": {"via": "folder"},
                    "agent": {"privileged": True},
                }
            ]
        },
        "pools: a: gpu.via=folder: the prober cannot open the node's GPUs without privileges",
    ),
    "a driver without privileges": (
        {"gpu": {"via": "folder"}},
        "gpu.via=folder: a container without privileges",
    ),
    "a volume of the chart's": (
        {"extraVolumes": [{"name": "state", "emptyDir": {}}]},
        'extraVolumes: the chart has a volume "state" of its own; take another name',
    ),
    "a mount of nothing": (
        {"agent": {"extraVolumeMounts": [{"name": "x", "mountPath": "/x"}]}},
        'agent.extraVolumeMounts: no volume "x" in extraVolumes',
    ),
    "a variable of the chart's": (
        {"agent": {"extraEnv": [{"name": "NODE_NAME", "value": "x"}]}},
        "agent.extraEnv: NODE_NAME is set already, by the chart or in agent.env",
    ),
    "a variable twice": (
        {"prober": {"env": {"A": "1"}, "extraEnv": [{"name": "A", "value": "2"}]}},
        "prober.extraEnv: A is set already, by the chart or in prober.env",
    ),
    "a container of the chart's": (
        {"sidecars": [{"name": "agent", "image": "x:1"}]},
        'sidecars, initContainers: "agent" is a container of the chart',
    ),
    "a pool with the controller's name": (
        {"pools": [{"name": "controller", "nodeSelector": {"x": "1"}}]},
        'pools: "controller": the chart has a ConfigMap of that name; take another name',
    ),
    "a pool with a dashboard's name": (
        {"pools": [{"name": "dashboard-node", "nodeSelector": {"x": "1"}}]},
        "the chart has a ConfigMap of that name",
    ),
    "every way out": (
        {"networkPolicy": {"apiServerPorts": []}},
        "networkPolicy.apiServerPorts: none would let everything out",
    ),
    "a dashboard's label of the chart's": (
        {"dashboards": {"label": "app.kubernetes.io/name"}},
        "dashboards.label, labelValue: app.kubernetes.io/name is the chart's own",
    ),
    "5 for 5 %": (
        {"controller": {"enabled": True, "config": {"budget": {"cluster": "5"}}}},
        'controller.config.budget.cluster: "5" is not a percentage from 0% to 100%, nor a whole number',
    ),
    "no address of a page": (
        {"config": {"page": {"runbook": "docs"}}},
        'config.page.runbook: "docs" is not an http or https address',
    ),
    "a label of the chart's": (
        {"commonLabels": {"app.kubernetes.io/name": "x"}},
        "commonLabels: app.kubernetes.io/name is the chart's own",
    ),
    "two agents on a node": (
        {"updateStrategy": {"rollingUpdate": {"maxSurge": 1}}},
        "updateStrategy.rollingUpdate.maxSurge: two agents on one node would contend for its state",
    ),
    "two ports of the host": (
        {"hostNetwork": True, "listen": {"hostPort": 80}},
        "listen.hostPort: with hostNetwork the port is the node's already; set it to 0",
    ),
    "a tag in the image's name": (
        {"image": {"repository": "registry.example.org/wirewatch:1.0"}},
        'image.repository: "registry.example.org/wirewatch:1.0" is not the name of an image',
    ),
    "an image by its address": (
        {"image": {"repository": "https://registry.example.org/wirewatch"}},
        'image.repository: "https://registry.example.org/wirewatch" is not the name of an image',
    ),
    "a registry by its address": (
        {"image": {"registry": "https://registry.example.org"}},
        'image.registry: "https://registry.example.org" is not a registry',
    ),
    "no recording": (
        {"replay": "demo-dgx-h300"},
        'replay: "demo-dgx-h300" is not the name of a bundled recording (demo-dgx-h200, ',
    ),
    "no address": ({"listen": {"address": "10.0.0.999"}}, 'listen.address: "10.0.0.999" is not an address'),
    "a scrape longer than its interval": (
        {"podMonitor": {"enabled": True, "interval": "1m", "scrapeTimeout": "1m30s"}},
        "podMonitor.scrapeTimeout: 1m30s is longer than the interval, 1m; Prometheus would refuse",
    ),
    "units of a time in another order": (
        {"serviceMonitor": {"interval": "30s1m"}},
        'serviceMonitor.interval: "30s1m" is not a time',
    ),
    "a time of nothing": ({"podMonitor": {"interval": ""}}, 'podMonitor.interval: "" is not a time'),
    "a way back": (
        {"state": {"hostPath": "/var/lib/../wirewatch"}},
        'state.hostPath: "/var/lib/../wirewatch" is not an absolute path',
    ),
    "a volume of two sources": (
        {"extraVolumes": [{"name": "x", "emptyDir": {}, "hostPath": {"path": "/x"}}]},
        'extraVolumes: "x" has emptyDir and hostPath; a volume has one source, such as emptyDir',
    ),
    "a volume of no source": (
        {"extraVolumes": [{"name": "x"}]},
        'extraVolumes: "x" has no source; a volume has one, such as emptyDir',
    ),
    "the name of no volume": (
        {"extraVolumes": [{"name": "Data", "emptyDir": {}}]},
        'extraVolumes.0.name: "Data" is not a name',
    ),
    "a sidecar's key of another name": (
        {"sidecars": [{"name": "x", "image": "x:1", "comand": ["true"]}]},
        "at '/sidecars/0': additional properties 'comand' not allowed",
    ),
    "a sidecar's mount of nothing": (
        {"sidecars": [{"name": "x", "image": "x:1", "volumeMounts": [{"name": "y", "mountPath": "/y"}]}]},
        'x: no volume "y" in this pod; give it in extraVolumes',
    ),
    "two volumes at one path, with a slash": (
        {
            "extraVolumes": [{"name": "x", "emptyDir": {}}],
            "prober": {"extraVolumeMounts": [{"name": "x", "mountPath": "/tmp/"}]},
        },
        "prober: two volumes at /tmp",
    ),
    "a value from nowhere": (
        {"agent": {"extraEnv": [{"name": "A", "valueFrom": {}}]}},
        "agent.extraEnv: A: valueFrom has one source, such as fieldRef; here are 0",
    ),
    "a value from two sources": (
        {
            "agent": {
                "extraEnv": [
                    {
                        "name": "A",
                        "valueFrom": {
                            "fieldRef": {"fieldPath": "status.podIP"},
                            "secretKeyRef": {"name": "a", "key": "b"},
                        },
                    }
                ]
            }
        },
        "agent.extraEnv: A: valueFrom has one source, such as fieldRef; here are 2",
    ),
    "the name of no variable": (
        {"prober": {"env": {"NCCL DEBUG": "INFO"}}},
        'prober.env: "NCCL DEBUG" is not the name of a variable',
    ),
    "an address for a range": (
        {"networkPolicy": {"from": [{"ipBlock": {"cidr": "10.0.0.1"}}]}},
        'networkPolicy.from.0.ipBlock.cidr: "10.0.0.1" is not a range of addresses, such as 10.0.0.0/8',
    ),
    "pods at addresses": (
        {"networkPolicy": {"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}]}},
        "networkPolicy.from: a peer is an ipBlock, or has podSelector, namespaceSelector or both",
    ),
    "a peer of nothing": (
        {"networkPolicy": {"from": [{}]}},
        "networkPolicy.from: a peer is an ipBlock, or has podSelector, namespaceSelector or both",
    ),
    "a toleration of any value": (
        {"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
        "tolerations: with operator Exists there is no value; for one value the operator is Equal",
    ),
    "a toleration of nothing": (
        {"controller": {"tolerations": [{"effect": "NoSchedule"}]}},
        "controller.tolerations: without a key the operator is Exists",
    ),
    "seconds of what drives nobody away": (
        {
            "pools": [
                {
                    "name": "p",
                    "nodeSelector": {"a": "b"},
                    "tolerations": [{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 9}],
                }
            ]
        },
        "pools: p: tolerations: tolerationSeconds is for effect NoExecute alone",
    ),
    "everybody may patch": (
        {"serviceAccount": {"create": False}},
        "serviceAccount.name: the namespace's default",
    ),
}
