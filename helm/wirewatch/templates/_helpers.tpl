{{- /* What a schema cannot say: values that cannot be meant together. */}}
{{- define "wirewatch.checks" -}}
{{- if and .Values.web.tls (not .Values.web.secret) }}{{ fail "web.tls: without web.secret there is no certificate" }}{{ end -}}
{{- if and .Values.replay .Values.gate.hostPath }}{{ fail "gate.hostPath: a recording (replay) says of no node whether a job may start there" }}{{ end -}}
{{- if and .Values.jobs.libraryPath (not .Values.jobs.hostPath) }}{{ fail "jobs.libraryPath: without jobs.hostPath nobody reads what jobs leave" }}{{ end -}}
{{- if and (include "wirewatch.condition" .) (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) }}{{ fail "serviceAccount.name: the namespace's default account shall not get the right to patch nodes" }}{{ end -}}
{{- if and .Values.podMonitor.enabled .Values.serviceMonitor.enabled }}{{ fail "podMonitor.enabled and serviceMonitor.enabled: each agent would be scraped twice, at twice the cost and with every series twice; set one of them to false (docs/adr/0054 says which)" }}{{ end -}}
{{- if and .Values.serviceMonitor.enabled (not .Values.service.enabled) }}{{ fail "serviceMonitor.enabled: a ServiceMonitor finds targets by the Service, which service.enabled=false leaves out; use podMonitor.enabled" }}{{ end -}}
{{- end }}

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

{{- define "wirewatch.labels" -}}
{{ include "wirewatch.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "wirewatch.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
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

{{- /* A recording has rings of its own. */}}
{{- define "wirewatch.jobs" -}}
{{- if and .Values.jobs.hostPath (not .Values.replay) -}}true{{ end -}}
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
{{- $_ := set $ours "jobs" (dict "rings" "/run/wirewatch-jobs/rings") -}}
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

{{- /* What brings the driver in, then what was given: of (the whole, a map). */}}
{{- define "wirewatch.environment" -}}
{{- $gpu := (index . 0).Values.gpu -}}
{{- $env := dict -}}
{{- if eq $gpu.via "runtime" -}}
{{- $env = dict "NVIDIA_VISIBLE_DEVICES" $gpu.visibleDevices "NVIDIA_DRIVER_CAPABILITIES" "compute,utility" -}}
{{- else if eq $gpu.via "volumeMounts" -}}
{{- $env = dict "NVIDIA_VISIBLE_DEVICES" "/var/run/nvidia-container-devices" "NVIDIA_DRIVER_CAPABILITIES" "compute,utility" -}}
{{- end -}}
{{- range $key, $value := mergeOverwrite $env (index . 1) }}
- {name: {{ $key | quote }}, value: {{ $value | quote }}}
{{- end -}}
{{- end }}

{{- /* Labels of a monitor or of rules: the chart's own, then what was given; of (the whole, what was given). */}}
{{- define "wirewatch.labelled" -}}
{{ include "wirewatch.labels" (index . 0) }}
{{- with (index . 1) }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Where agents are scraped, for both kinds of monitors: of (the whole, the monitor's values). */}}
{{- define "wirewatch.endpoint" -}}
{{- $values := (index . 0).Values -}}
{{- $monitor := index . 1 -}}
port: metrics
interval: {{ $monitor.interval }}
scrapeTimeout: {{ $monitor.scrapeTimeout }}
{{- if $values.web.tls }}
scheme: https
{{- end }}
{{- with $monitor.tlsConfig }}
tlsConfig: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $monitor.basicAuth }}
basicAuth: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $monitor.authorization }}
authorization: {{- toYaml . | nindent 2 }}
{{- end }}
# What the rules go by: this job, the node, the cluster; never the address of a pod.
relabelings:
  - {targetLabel: job, replacement: wirewatch}
  - {sourceLabels: [__meta_kubernetes_pod_node_name], targetLabel: node}
  {{- with $values.cluster }}
  - {targetLabel: cluster, replacement: {{ . | quote }}}
  {{- end }}
  {{- with $monitor.relabelings }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $monitor.metricRelabelings }}
metricRelabelings: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* A monitor in another namespace than the agents looks for them here: of (the whole, the monitor's values). */}}
{{- define "wirewatch.elsewhere" -}}
{{- $here := (index . 0).Release.Namespace -}}
{{- if ne (default $here (index . 1).namespace) $here }}
namespaceSelector:
  matchNames: [{{ $here }}]
{{- end }}
{{- end }}
