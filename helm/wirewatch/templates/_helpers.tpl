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

{{- define "wirewatch.selector" -}}
app.kubernetes.io/name: {{ include "wirewatch.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* Of the pods of one DaemonSet: a pool's have another instance, so that no selector finds those of another. */}}
{{- define "wirewatch.podSelector" -}}
app.kubernetes.io/name: {{ include "wirewatch.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}{{ with .pool }}_{{ .name }}{{ end }}
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

{{- /* Labels of an object. */}}
{{- define "wirewatch.labels" -}}
{{ include "wirewatch.labelled" (list . dict) }}
{{- end }}

{{- /* The same with more: of (the whole, labels), which go before commonLabels. */}}
{{- define "wirewatch.labelled" -}}
{{- $whole := index . 0 -}}
{{ include "wirewatch.selector" $whole }}
app.kubernetes.io/version: {{ $whole.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $whole.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $whole.Chart.Name $whole.Chart.Version }}
{{- with $whole.pool }}
wirewatch.io/pool: {{ .name }}
{{- end }}
{{- with merge (dict) (index . 1) $whole.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "wirewatch.image" -}}
{{- $name := .Values.image.repository -}}
{{- with .Values.image.registry }}{{ $name = printf "%s/%s" . $name }}{{ end -}}
{{- if .Values.image.digest -}}
{{ $name }}@{{ .Values.image.digest }}
{{- else -}}
{{ $name }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end }}

{{- /* Of a DaemonSet, its configuration and its Service. */}}
{{- define "wirewatch.daemons" -}}
{{ include "wirewatch.fullname" . }}{{ with .pool }}-{{ .name }}{{ end }}
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

{{- define "wirewatch.controller" -}}
{{ include "wirewatch.fullname" . | trunc 52 | trimSuffix "-" }}-controller
{{- end }}

{{- /* Another name than the agents': their Service, policies and monitors select by it. */}}
{{- define "wirewatch.controller.selector" -}}
app.kubernetes.io/name: {{ include "wirewatch.name" . | trunc 52 | trimSuffix "-" }}-controller
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: controller
{{- end }}

{{- define "wirewatch.controller.labels" -}}
{{ include "wirewatch.controller.labelled" (list . dict) }}
{{- end }}

{{- /* The same with more: of (the whole, labels), which go before commonLabels. */}}
{{- define "wirewatch.controller.labelled" -}}
{{- $whole := index . 0 -}}
{{ include "wirewatch.controller.selector" $whole }}
app.kubernetes.io/version: {{ $whole.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $whole.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $whole.Chart.Name $whole.Chart.Version }}
{{- with merge (dict) (index . 1) $whole.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Who runs what needs nothing of the node. OpenShift gives such a pod a user of its namespace's, and refuses any other. */}}
{{- define "wirewatch.anyUser" -}}
runAsNonRoot: true
{{- if not .Values.openshift.scc }}
runAsUser: {{ int64 .Values.runAs.user }}
runAsGroup: {{ int64 .Values.runAs.group }}
{{- end }}
{{- end }}

{{- define "wirewatch.fleetProbe" -}}
{{ include "wirewatch.fullname" . | trunc 40 | trimSuffix "-" }}-fleet-probe
{{- end }}

{{- define "wirewatch.fleetProbe.labels" -}}
app.kubernetes.io/name: {{ include "wirewatch.name" . | trunc 51 | trimSuffix "-" }}-fleet-probe
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: fleet-probe
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "wirewatch.fleetProbe.priorityClass" -}}
{{ default (include "wirewatch.fleetProbe" .) .Values.fleetProbe.priorityClass.name }}
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
{{- $ours := dict "listen" (printf "%s:9411" .Values.listen.address) "name" (include "wirewatch.controller" .) -}}
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
{{- $gpu := (index . 0).Values.gpu -}}
{{- $env := dict -}}
{{- if eq $gpu.via "runtime" -}}
{{- $env = dict "NVIDIA_VISIBLE_DEVICES" $gpu.visibleDevices "NVIDIA_DRIVER_CAPABILITIES" "compute,utility" -}}
{{- else if eq $gpu.via "volumeMounts" -}}
{{- $env = dict "NVIDIA_VISIBLE_DEVICES" "/var/run/nvidia-container-devices" "NVIDIA_DRIVER_CAPABILITIES" "compute,utility" -}}
{{- else if eq $gpu.via "folder" -}}
{{- $env = dict "LD_LIBRARY_PATH" "/usr/local/nvidia/lib64" -}}
{{- end -}}
{{- range $key, $value := mergeOverwrite $env (index . 1).env }}
- {name: {{ $key | quote }}, value: {{ $value | quote }}}
{{- end }}
{{- with (index . 1).extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Mounts of what brings the driver in, then what was given; of (the whole, the container's values). */}}
{{- define "wirewatch.mounts" -}}
{{- $gpu := (index . 0).Values.gpu -}}
{{- if eq $gpu.via "volumeMounts" }}
- {name: all-gpus, mountPath: /var/run/nvidia-container-devices/all, readOnly: true}
{{- else if eq $gpu.via "folder" }}
- {name: driver, mountPath: /usr/local/nvidia, readOnly: true}
{{- end }}
{{- with (index . 1).extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}
