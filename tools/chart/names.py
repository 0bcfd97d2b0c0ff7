"""Names that other charts give to values: of ours, which are taken too, and others, with what to set instead.

Source: values.yaml of NVIDIA's dcgm-exporter and gpu-operator, of prometheus-node-exporter and of
kube-prometheus-stack.
"""

TAKEN = {
    "labels": "commonLabels",
    "additionalLabels": "commonLabels",
    "additionalAnnotations": "commonAnnotations",
    "annotations": "daemonSetAnnotations",
    "daemonsetAnnotations": "daemonSetAnnotations",
    "daemonset.annotations": "daemonSetAnnotations",
    "daemonSet.annotations": "daemonSetAnnotations",
    "daemonsets.annotations": "daemonSetAnnotations",
    "daemonsetLabels": "daemonSetLabels",
    "daemonsets.labels": "daemonSetLabels",
    "daemonsets.priorityClassName": "priorityClassName",
    "extraObjects": "extraManifests",
    "extraDeploy": "extraManifests",
    "extraContainers": "sidecars",
    "extraInitContainers": "initContainers",
    "extraConfigMapVolumes": "extraVolumes",
    "volumes": "extraVolumes",
    "extraVolumeMounts": "agent.extraVolumeMounts",
    "volumeMounts": "agent.extraVolumeMounts",
    "extraArgs": "agent.extraArgs",
    "args": "agent.extraArgs",
    "arguments": "agent.extraArgs",
    "env": "agent.env",
    "extraEnv": "agent.extraEnv",
    "extraEnvVars": "agent.extraEnv",
    "envFrom": "agent.envFrom",
    "extraEnvFrom": "agent.envFrom",
    "resources": "agent.resources",
    "livenessProbe": "agent.livenessProbe",
    "readinessProbe": "agent.readinessProbe",
    "startupProbe": "agent.startupProbe",
    "lifecycle": "agent.lifecycle",
    "containerSecurityContext": "agent.securityContext",
    "podSecurityContext": "podSpec.securityContext",
    "hostIPC": "podSpec.hostIPC",
    "hostUsers": "podSpec.hostUsers",
    "schedulerName": "podSpec.schedulerName",
    "shareProcessNamespace": "podSpec.shareProcessNamespace",
    "clusterName": "cluster",
    "imagePullPolicy": "image.pullPolicy",
    "kubeletPath": "prober.podResources",
    "rollingUpdate": "updateStrategy.rollingUpdate",
    "image.pullSecrets": "imagePullSecrets",
    "image.sha": "image.digest",
    "service.enable": "service.enabled",
    "service.port": "listen.port",
    "serviceMonitor.additionalLabels": "serviceMonitor.labels",
    "serviceMonitor.selector": "serviceMonitor.labels",
    "podMonitor.additionalLabels": "podMonitor.labels",
    "podMonitor.selector": "podMonitor.labels",
    "prometheusRule.additionalLabels": "prometheusRule.labels",
    "prometheusRule.additionalAnnotations": "prometheusRule.annotations",
}  # fmt: skip
"""The name elsewhere, and our path."""

ANSWERED = {
    "securityContext": "podSecurityContext is the pod's, agent.securityContext a container's",
    "topologySpreadConstraints": "agents are on every node; see controller.topologySpreadConstraints",
    "hostPID": "it follows from prober.enabled",
    "replicaCount": "agents are on every node; see controller.replicas",
    "service.clusterIP": "the Service is headless, and only names targets",
    "service.internalTrafficPolicy": "the Service is headless, and only names targets",
    "service.targetPort": "listen.port is of both",
    "service.address": "listen.address and listen.port",
    "serviceAccount.automountServiceAccountToken": "the token is a volume of the agent alone",
    "hostPort": "listen.hostPort",
    "logLevel": "agent.extraArgs: [--verbose]",
    "extraEnvVarsCM": "agent.envFrom: [{configMapRef: {name: x}}]",
    "extraEnvVarsSecret": "agent.envFrom: [{secretRef: {name: x}}]",
    "daemonsets": "tolerations, updateStrategy and maxUnavailable without `daemonsets`",
    "hostPaths": "prober.podResources is the kubelet's folder, gpu.folder the driver's",
    "extraHostVolumes": "extraVolumes, as Kubernetes has them: [{name: x, hostPath: {path: /x}}]",
    "extraHostVolumeMounts": "extraVolumes and agent.extraVolumeMounts",
    "configmaps": "extraVolumes and agent.extraVolumeMounts",
    "secrets": "extraVolumes and agent.extraVolumeMounts",
    "sidecarVolumeMount": "volumeMounts of each container in sidecars",
    "terminationMessageParams": "podSpec.containers: [{name: agent, terminationMessagePolicy: File}]",
    "releaseLabel": "serviceMonitor.labels.release and prometheusRule.labels.release",
    "prometheus": "serviceMonitor or podMonitor, and prometheusRule",
    "prometheusRule.rules": "extraManifests: a PrometheusRule of yours",
    "prometheusRule.additionalGroups": "extraManifests: a PrometheusRule of yours",
    "metrics": "serviceMonitor or podMonitor, and prometheusRule",
    "networkPolicy.ingress": "networkPolicy.from has the peers",
    "kubeRBACProxy": "web.secret brings TLS and users",
    "tlsServerConfig": "web.secret and web.tls",
    "basicAuth": "users are in web.secret; what Prometheus says is podMonitor.basicAuth",
    "verticalPodAutoscaler": "extraManifests",
    "podDisruptionBudget": "extraManifests; an eviction passes a DaemonSet by",
    "ingress": "extraManifests, and links.statusPage for its address",
    "autoscaling": "agents are on every node",
    "customMetrics": "what is exported is in config.collectors and config.metrics",
    "serviceMonitor.path": "it is /metrics",
    "podMonitor.path": "it is /metrics",
    "serviceMonitor.bearerTokenFile": "authorization",
    "serviceMonitor.scheme": "it follows from web.tls",
    "podMonitor.scheme": "it follows from web.tls",
}  # fmt: skip
"""The name elsewhere, and what does the same here; said unless it is empty or `enabled: false`."""


def names() -> list[dict[str, object]]:
    """The rules of files/names.json, in the order in which they are followed."""
    taken: list[dict[str, object]] = [
        {"from": name.split("."), "to": path.split("."), "words": ""} for name, path in TAKEN.items()
    ]
    answered: list[dict[str, object]] = [
        {"from": name.split("."), "to": [], "words": words} for name, words in ANSWERED.items()
    ]
    return [*taken, *answered]
