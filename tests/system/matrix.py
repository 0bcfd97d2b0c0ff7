"""Values that the chart takes, one set for each thing that it can do, and some of them together."""

from typing import Any

Values = dict[str, Any]

WEB = {"web": {"secret": "wirewatch-web", "tls": True}}
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
MATRIX: dict[str, Values] = {
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
        "jobs": {"hostPath": "/run/wirewatch-jobs"},
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
    "anywhere": {"affinity": None, "tolerations": [], "nodeSelector": {"pool": "gpu"}},
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
    "network policy, no condition": {
        "nodeCondition": {"enabled": False},
        "networkPolicy": {
            "from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}],
        },
    },
    "replay": {"replay": "demo-dgx-h200", "gpu": {"via": "none"}},
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
    "moving tag": ({"image": {"tag": "latest"}}, "at '/image/tag'"),
    "digest": ({"image": {"digest": "sha256:1"}}, "at '/image/digest'"),
    "a peer that is none": ({"networkPolicy": {"from": [{"pods": {}}]}}, "at '/networkPolicy/from/0'"),
    "choice": ({"gpu": {"via": "magic"}}, "at '/gpu/via'"),
    "a GPU": ({"agent": {"resources": {"limits": {"nvidia.com/gpu": 1}}}}, "at '/agent/resources/limits'"),
    "root": ({"runAs": {"user": 0}}, "at '/runAs/user'"),
    "path": ({"state": {"hostPath": "var/lib"}}, "at '/state/hostPath'"),
    "no rollout": ({"maxUnavailable": "0%"}, "at '/maxUnavailable'"),
    "null": ({"image": None}, "missing property 'image'"),
    "a tap without a reader": (
        {"jobs": {"libraryPath": "/opt/x"}},
        "jobs.libraryPath: without jobs.hostPath",
    ),
    "where rings are read": ({"config": {"jobs": {"rings": "/x"}}}, "at '/config/jobs'"),
    "TLS without a certificate": ({"web": {"tls": True}}, "web.tls: without web.secret"),
    "a recording as gate": ({"replay": "x", "gate": {"hostPath": "/run/w"}}, "gate.hostPath: a recording"),
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
        "at '/prometheusRule/alerts': additional properties 'WirewatchX' not allowed",
    ),
    "a threshold where the agent decides": (
        {"prometheusRule": {"enabled": True, "alerts": {"WirewatchGPULost": {"threshold": 2}}}},
        "prometheusRule.alerts.WirewatchGPULost.threshold: this alert has none; the agent decides",
    ),
    "everybody may patch": (
        {"serviceAccount": {"create": False}},
        "serviceAccount.name: the namespace's default",
    ),
}
