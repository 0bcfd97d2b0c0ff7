{{- define "wirewatch.name" -}}
{{ default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "wirewatch.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "wirewatch.name" .) .Release.Name -}}
{{ .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name (include "wirewatch.name" .) | trunc 63 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{- define "wirewatch.namespace" -}}
{{ default .Release.Namespace .Values.namespaceOverride }}
{{- end }}

{{- /* Of a DaemonSet, its configuration and its Service. */}}
{{- define "wirewatch.daemons" -}}
{{ include "wirewatch.fullname" . }}{{ with .pool }}-{{ .name }}{{ end }}
{{- end }}

{{- /* Of a component that there is once, beside the agents; `most` letters are allowed. */}}
{{- define "wirewatch.apart" -}}
{{ include "wirewatch.fullname" . | trunc (sub .most (add1 (len .component)) | int) | trimSuffix "-" }}-{{ .component }}
{{- end }}

{{- /* A component has another name than the agents, whose Service, policies and monitors select by it. */}}
{{- define "wirewatch.selector" -}}
app.kubernetes.io/name: {{ include "wirewatch.name" . | trunc (ternary (sub 62 (len (default "" .component))) 63 (hasKey . "component") | int) | trimSuffix "-" }}{{ with .component }}-{{ . }}{{ end }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end }}

{{- /* Of the pods of one DaemonSet: a pool's have another instance, so that no selector finds those of another. */}}
{{- define "wirewatch.podSelector" -}}
{{ include "wirewatch.selector" . }}{{ with .pool }}_{{ .name }}{{ end }}
{{- end }}

{{- /* A selector of the pods of all of them. */}}
{{- define "wirewatch.everyPod" -}}
{{- if .Values.pools -}}
matchLabels:
  app.kubernetes.io/name: {{ include "wirewatch.name" . }}
matchExpressions:
  - key: app.kubernetes.io/instance
    operator: In
    values:
      - {{ .Release.Name }}
      {{- range .Values.pools }}
      - {{ $.Release.Name }}_{{ .name }}
      {{- end }}
{{- else -}}
matchLabels: {{- include "wirewatch.selector" . | nindent 2 }}
{{- end -}}
{{- end }}

{{- /* Of an object: of (the whole, its name, more). `more` has labels and annotations, and a namespace where it is another: "" for none. */}}
{{- define "wirewatch.metadata" -}}
{{- $whole := index . 0 -}}{{- $more := index . 2 -}}
name: {{ index . 1 }}
{{- with ternary (get $more "namespace") (include "wirewatch.namespace" $whole) (hasKey $more "namespace") }}
namespace: {{ . }}
{{- end }}
labels:
  {{- include "wirewatch.selector" $whole | nindent 2 }}
  app.kubernetes.io/version: {{ $whole.Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ $whole.Release.Service }}
  helm.sh/chart: {{ printf "%s-%s" $whole.Chart.Name $whole.Chart.Version }}
  {{- with $whole.pool }}
  wirewatch.io/pool: {{ .name }}
  {{- end }}
  {{- with merge (dict) (default dict $more.labels) $whole.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (default dict $more.annotations) (default dict $whole.Values.commonAnnotations) }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Those of some keys that have a value: of (indentation, the values, the keys). */}}
{{- define "wirewatch.given" -}}
{{- $values := index . 1 -}}
{{- range $key := slice . 2 -}}
{{- $value := get $values $key -}}
{{- if or $value (and (eq $key "revisionHistoryLimit") (hasKey $values $key)) }}{{ toYaml (dict $key $value) | nindent (index $ 0) }}{{ end -}}
{{- end -}}
{{- end }}

{{- define "wirewatch.image" -}}
{{- $name := .Values.image.repository -}}
{{- with default (default dict .Values.global).imageRegistry .Values.image.registry }}{{ $name = printf "%s/%s" . $name }}{{ end -}}
{{ $name }}{{ with .Values.image.digest }}@{{ . }}{{ else }}:{{ default $.Chart.AppVersion $.Values.image.tag }}{{ end }}
{{- end }}

{{- /* Why no registry has it, where that is sure; none is published. */}}
{{- define "wirewatch.noRegistry" -}}
{{- $image := include "wirewatch.image" . -}}
{{- if not (contains "/" $image) -}}
No registry has {{ $image }}, which would be an official image of Docker Hub
{{- else if regexMatch "^[^/]*\\bexample(\\.(com|org|net))?(:[0-9]+)?/" $image -}}
No registry has {{ $image }}, which is an example
{{- end -}}
{{- end }}

{{- /* Of a container whose image is the chart's. */}}
{{- define "wirewatch.pulled" -}}
image: {{ include "wirewatch.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{- /* Of a pod: those of this chart and those of all charts, by name or as Kubernetes has them. */}}
{{- define "wirewatch.pullSecrets" -}}
{{- with concat .Values.imagePullSecrets (default list (default dict .Values.global).imagePullSecrets) -}}
imagePullSecrets:
{{- range . }}
  - {name: {{ if kindIs "map" . }}{{ .name }}{{ else }}{{ . }}{{ end }}}
{{- end }}
{{- end -}}
{{- end }}

{{- /* Of a container: no privilege, no capability, nothing to write to but its volumes. */}}
{{- define "wirewatch.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- /* Who is root, of a group. */}}
{{- define "wirewatch.root" -}}
runAsNonRoot: false
runAsUser: 0
runAsGroup: {{ int64 . }}
{{- end }}

{{- /* Who runs what needs nothing of the node. OpenShift gives such a pod a user of its namespace's, and refuses any other. */}}
{{- define "wirewatch.anyUser" -}}
runAsNonRoot: true
{{- if not .Values.openshift.scc }}
runAsUser: {{ int64 .Values.runAs.user }}
runAsGroup: {{ int64 .Values.runAs.group }}
{{- end }}
{{- end }}

{{- /* What the pod of a component has beside its containers and volumes: of (the component, its values). */}}
{{- define "wirewatch.podOf" -}}
{{- $whole := index . 0 -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- include "wirewatch.given" (list 0 (index . 1) "priorityClassName" "nodeSelector" "affinity" "tolerations") }}
{{- include "wirewatch.given" (list 0 $whole.Values "dnsPolicy" "dnsConfig" "hostAliases") }}
{{- with (index . 1).topologySpreadConstraints }}
topologySpreadConstraints:
{{- range . }}
  - {{- merge (dict) . (dict "labelSelector" (dict "matchLabels" (include "wirewatch.selector" $whole | fromYaml))) | toYaml | nindent 4 }}
{{- end }}
{{- end }}
{{- with include "wirewatch.pullSecrets" $whole }}
{{ . }}
{{- end }}
securityContext:
  {{- include "wirewatch.anyUser" $whole | nindent 2 }}
  {{- if not $whole.Values.openshift.scc }}
  fsGroup: {{ int64 $whole.Values.runAs.group }}
  {{- end }}
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- /* The volume with a token of the pod's account. */}}
{{- define "wirewatch.token" -}}
- name: token
  projected:
    defaultMode: 0440
    sources:
      - serviceAccountToken: {path: token, expirationSeconds: 3600}
      - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
      - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
{{- end }}

{{- define "wirewatch.tokenMount" -}}
- {name: token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
{{- end }}

{{- /* The kubelet's questions to the port metrics: of the scheme, where it is another. */}}
{{- define "wirewatch.asked" -}}
livenessProbe:
  httpGet: {path: /livez, port: metrics{{ . }}}
  initialDelaySeconds: 10
  periodSeconds: 15
  timeoutSeconds: 5
  failureThreshold: 4
readinessProbe:
  httpGet: {path: /readyz, port: metrics{{ . }}}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{- /* Rights of an account: of (the account's name, its namespace, metadata of both objects, the kind: ClusterRole or Role, the rules). */}}
{{- define "wirewatch.rights" -}}
{{- $name := (index . 2 | fromYaml).name -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ index . 3 }}
metadata: {{- index . 2 | nindent 2 }}
rules: {{- index . 4 | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ index . 3 }}Binding
metadata: {{- index . 2 | nindent 2 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: {{ index . 3 }}, name: {{ $name }}}
subjects:
  - {kind: ServiceAccount, name: {{ index . 0 }}, namespace: {{ index . 1 }}}
{{- end }}

{{- /* What may come into the port metrics, and out to the API servers where `api` is not empty: of (the whole, api). */}}
{{- define "wirewatch.traffic" -}}
policyTypes: [Ingress, Egress]
ingress:
  # The kubelet's own probes are let in by every network: they come from the pod's node.
  - ports: [{port: metrics, protocol: TCP}]
    {{- include "wirewatch.given" (list 4 (index . 0).Values.networkPolicy "from") }}
{{- if index . 1 }}
# The API server has no label to select it by.
egress:
  - ports:
      {{- range (index . 0).Values.networkPolicy.apiServerPorts }}
      - {port: {{ . }}, protocol: TCP}
      {{- end }}
{{- else }}
egress: []
{{- end }}
{{- end }}

{{- define "wirewatch.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "wirewatch.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{ default "default" .Values.serviceAccount.name }}
{{- end -}}
{{- end }}

{{- /* A recording speaks for no node, so it patches none. */}}
{{- define "wirewatch.condition" -}}
{{- if and .Values.nodeCondition.enabled (not .Values.replay) -}}true{{ end -}}
{{- end }}

{{- /* Whether an admission policy is made: `when` is auto, always or never. */}}
{{- define "wirewatch.policies" -}}
{{- $known := .root.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy" -}}
{{- if or (eq .when "always") (and (eq .when "auto") $known) -}}true{{ end -}}
{{- end }}

{{- /* A recording has rings of its own. */}}
{{- define "wirewatch.jobs" -}}
{{- if and .Values.jobs.hostPath (not .Values.replay) -}}true{{ end -}}
{{- end }}

{{- /* Whether a container gives the folder of rings a size, and so mounts. */}}
{{- define "wirewatch.mounting" -}}
{{- if and (include "wirewatch.jobs" .) .Values.jobs.size -}}true{{ end -}}
{{- end }}

{{- define "wirewatch.fleetProbe.priorityClass" -}}
{{ default (include "wirewatch.apart" .) .Values.fleetProbe.priorityClass.name }}
{{- end }}

{{- define "wirewatch.fleetProbe.args" -}}
{{- $ours := .Values.fleetProbe -}}
- fleet
- probe
- --kubernetes
- --json
- --pod-template=/etc/wirewatch/pair.json
- --results=/results/fleet-rounds.json
- --gpu-resource={{ $ours.gpuResource }}
{{- with $ours.selector }}
- {{ printf "--selector=%s" . | quote }}
{{- end }}
{{- with $ours.queue }}
- --queue={{ . }}
{{- end }}
{{- if or $ours.priorityClass.create $ours.priorityClass.name }}
- --priority-class={{ include "wirewatch.fleetProbe.priorityClass" . }}
{{- end }}
{{- range $ours.leafLabels }}
- --leaf-label={{ . }}
{{- end }}
{{- range $ours.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{- define "wirewatch.controller.config" -}}
{{- $ours := dict "listen" (printf "%s:9411" .Values.listen.address) "name" (include "wirewatch.apart" .) -}}
{{- $table := dict "controller" (mergeOverwrite (deepCopy .Values.controller.config) $ours) -}}
{{- include "wirewatch.toml" (dict "path" "" "table" $table) -}}
{{- end }}

{{- /* What the chart knows goes over what was given. */}}
{{- define "wirewatch.config" -}}
{{- $listen := dict "address" (printf "%s:%v" .Values.listen.address .Values.listen.port) -}}
{{- if .Values.web.secret -}}
{{- $_ := set $listen "web_config" (printf "/etc/wirewatch/web/%s" .Values.web.file) -}}
{{- end -}}
{{- $probe := dict "enabled" .Values.prober.enabled -}}
{{- if .Values.prober.enabled -}}
{{- $_ := set $probe "prober" "/run/wirewatch/prober.sock" -}}
{{- end -}}
{{- $ours := dict "listen" $listen "probe" $probe -}}
{{- if not .Values.replay -}}
{{- $_ := set $ours "state" (dict "directory" "/var/lib/wirewatch") -}}
{{- end -}}
{{- if include "wirewatch.jobs" . -}}
{{- $_ := set $ours "jobs" (dict "rings" "/run/wirewatch-jobs") -}}
{{- end -}}
{{- if include "wirewatch.condition" . -}}
{{- $_ := set $ours "kubernetes" (dict "node_condition" true) -}}
{{- end -}}
{{- include "wirewatch.toml" (dict "path" "" "table" (mergeOverwrite (deepCopy .Values.config) $ours)) -}}
{{- end }}

{{- /*
TOML of a table and the tables in it. Values are written as JSON, which is TOML where no object is in it: the engine's own
toToml makes 8.0 of 8, since numbers of YAML are floats here, and a count must not be one.
*/}}
{{- define "wirewatch.toml" -}}
{{- $path := .path -}}
{{- $plain := dict -}}{{- $tables := dict -}}
{{- range $key, $value := .table -}}
{{- if kindIs "map" $value -}}{{- $_ := set $tables $key $value -}}
{{- else if not (kindIs "invalid" $value) -}}{{- $_ := set $plain $key $value -}}
{{- end -}}
{{- end -}}
{{- if and $path $plain }}
[{{ $path }}]
{{ end -}}
{{- range $key, $value := $plain }}{{ $key | toRawJson }} = {{ $value | toRawJson }}
{{ end -}}
{{- range $key, $value := $tables -}}
{{- include "wirewatch.toml" (dict "path" (ternary (printf "%s.%s" $path ($key | toRawJson)) ($key | toRawJson) (ne $path "")) "table" $value) -}}
{{- end -}}
{{- end }}

{{- /* Environment: what brings the driver in, then what was given; of (the whole, the container's values). */}}
{{- define "wirewatch.environment" -}}
{{- $gpu := (index . 0).Values.gpu -}}{{- $given := index . 1 -}}
{{- $env := dict -}}
{{- if eq $gpu.via "runtime" -}}
{{- $env = dict "NVIDIA_VISIBLE_DEVICES" $gpu.visibleDevices "NVIDIA_DRIVER_CAPABILITIES" "compute,utility" -}}
{{- else if eq $gpu.via "volumeMounts" -}}
{{- $env = dict "NVIDIA_VISIBLE_DEVICES" "/var/run/nvidia-container-devices" "NVIDIA_DRIVER_CAPABILITIES" "compute,utility" -}}
{{- else if eq $gpu.via "folder" -}}
{{- $env = dict "LD_LIBRARY_PATH" "/usr/local/nvidia/lib64" -}}
{{- end -}}
{{- include "wirewatch.variables" (list (mergeOverwrite $env $given.env) $given.extraEnv) }}
{{- end }}

{{- /* Of a container: of (environment as a map, more of it as a list). */}}
{{- define "wirewatch.variables" -}}
{{- range $key, $value := index . 0 }}
- {name: {{ $key | quote }}, value: {{ $value | quote }}}
{{- end }}
{{- with index . 1 }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Arguments: of (the command, the chart's options, those that were given). Options of every command go before it. */}}
{{- define "wirewatch.args" -}}
{{- $all := list "-v" "--verbose" -}}{{- $before := list -}}{{- $after := list -}}
{{- range $one := index . 2 }}{{ if has $one $all }}{{ $before = append $before $one }}{{ else }}{{ $after = append $after $one }}{{ end }}{{ end -}}
{{ toYaml (concat $before (index . 0) (index . 1) $after) }}
{{- end }}

{{- /*
What containers read of the node, as JSON. Not /sys as a whole: what is mounted below it (cgroups, debugfs) would stay writable. Of
volumeMounts the toolkit reads the name of the mount, not what is mounted.
*/}}
{{- define "wirewatch.read" -}}
{{- $found := list -}}{{- $prober := .Values.prober -}}{{- $both := list "agent" "prober" -}}
{{- range $name := ternary (list "bus" "class" "devices") list .Values.agent.sysfs -}}
{{- $found = append $found (dict "name" (printf "sys-%s" $name) "path" (printf "/sys/%s" $name) "type" "Directory" "of" (list "agent")) -}}
{{- end -}}
{{- if $prober.enabled -}}
{{- with $prober.podResources }}{{ $found = append $found (dict "name" "pod-resources" "path" . "at" "/var/lib/kubelet/pod-resources" "type" "Directory" "of" (list "prober")) }}{{ end -}}
{{- if $prober.endedPods -}}
{{- $found = append $found (dict "name" "pod-logs" "path" "/var/log/pods" "type" "Directory" "of" (list "prober")) -}}
{{- $found = append $found (dict "name" "cgroups" "path" "/sys/fs/cgroup" "type" "Directory" "of" (list "prober")) -}}
{{- end -}}
{{- with $prober.ncclConf }}{{ $found = append $found (dict "name" "nccl-conf" "path" . "at" "/etc/nccl.conf" "type" "File" "of" (list "prober")) }}{{ end -}}
{{- end -}}
{{- if eq .Values.gpu.via "volumeMounts" }}{{ $found = append $found (dict "name" "all-gpus" "path" "/dev/null" "at" "/var/run/nvidia-container-devices/all" "of" $both) }}{{ end -}}
{{- if eq .Values.gpu.via "folder" }}{{ $found = append $found (dict "name" "driver" "path" .Values.gpu.folder "at" "/usr/local/nvidia" "type" "Directory" "of" $both) }}{{ end -}}
{{ toRawJson $found }}
{{- end }}

{{- /* Mounts of those, then what was given: of (the whole, the container's name). */}}
{{- define "wirewatch.mounts" -}}
{{- range include "wirewatch.read" (index . 0) | fromJsonArray }}{{ if has (index $ 1) .of }}
- {name: {{ .name }}, mountPath: {{ default .path .at }}, readOnly: true}
{{- end }}{{ end }}
{{- with (get (index . 0).Values (index . 1)).extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}
