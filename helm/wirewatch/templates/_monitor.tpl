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
{{- with $monitor.tier }}
params: {tier: [{{ . }}]}
{{- end }}
{{- include "wirewatch.given" (list 0 $monitor "tlsConfig" "basicAuth" "authorization" "proxyUrl" "honorLabels") }}
# What the rules go by: this job, the node, the cluster; never the address of a pod.
relabelings:
  - {targetLabel: job, replacement: wirewatch}
  - {sourceLabels: [__meta_kubernetes_pod_node_name], targetLabel: node}
  {{- with $values.cluster }}
  - {targetLabel: cluster, replacement: {{ . | quote }}}
  {{- end }}
  {{- range $label, $of := dict "rack" $monitor.rackLabel "leaf" $monitor.leafLabel "pool" $monitor.poolLabel }}
  {{- with $of }}
  - {sourceLabels: [__meta_kubernetes_node_label_{{ regexReplaceAll "[^a-zA-Z0-9_]" . "_" }}], targetLabel: {{ $label }}}
  {{- end }}
  {{- end }}
  {{- with $monitor.relabelings }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- include "wirewatch.given" (list 0 $monitor "metricRelabelings") }}
{{- end }}

{{- /* Metadata of a monitor or of rules, which may be in another namespace: of (the whole, the name, its values). */}}
{{- define "wirewatch.ofMonitor" -}}
{{- $more := pick (index . 2) "labels" "annotations" -}}
{{- with (index . 2).namespace }}{{ $_ := set $more "namespace" . }}{{ end -}}
{{- include "wirewatch.metadata" (list (index . 0) (index . 1) $more) }}
{{- end }}

{{- /* Labels of nodes where they are asked for; a monitor in another namespace than the agents looks for them here: of (the whole, the monitor's values). */}}
{{- define "wirewatch.elsewhere" -}}
{{- if or (index . 1).rackLabel (index . 1).leafLabel (index . 1).poolLabel (default dict (index . 1).attachMetadata).node }}
attachMetadata: {node: true}
{{- end }}
{{- $here := include "wirewatch.namespace" (index . 0) -}}
{{- if ne (default $here (index . 1).namespace) $here }}
namespaceSelector:
  matchNames: [{{ $here }}]
{{- end }}
{{- include "wirewatch.given" (list 0 (index . 1) "jobLabel" "podTargetLabels" "sampleLimit" "targetLimit" "labelLimit" "labelNameLengthLimit" "labelValueLengthLimit") }}
{{- end }}
