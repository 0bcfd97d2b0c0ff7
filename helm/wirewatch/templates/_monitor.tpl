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
  {{- range $label, $of := dict "rack" $monitor.rackLabel "leaf" $monitor.leafLabel }}
  {{- with $of }}
  - {sourceLabels: [__meta_kubernetes_node_label_{{ regexReplaceAll "[^a-zA-Z0-9_]" . "_" }}], targetLabel: {{ $label }}}
  {{- end }}
  {{- end }}
  {{- with $monitor.relabelings }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $monitor.metricRelabelings }}
metricRelabelings: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Labels of nodes where they are asked for; a monitor in another namespace than the agents looks for them here: of (the whole, the monitor's values). */}}
{{- define "wirewatch.elsewhere" -}}
{{- if or (index . 1).rackLabel (index . 1).leafLabel }}
attachMetadata: {node: true}
{{- end }}
{{- $here := (index . 0).Release.Namespace -}}
{{- if ne (default $here (index . 1).namespace) $here }}
namespaceSelector:
  matchNames: [{{ $here }}]
{{- end }}
{{- end }}
