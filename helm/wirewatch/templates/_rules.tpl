{{- /* The selector of nodes with GPUs, as the recording rules have it. */}}
{{- define "wirewatch.gpuNodes" -}}
kube_node_status_capacity{resource=~"nvidia_com_(gpu|mig_.+)"}
{{- end }}

{{- /* Rules with what prometheusRule.alerts and gpuNodes say: of (the whole, the document). A group without rules is left out. */}}
{{- define "wirewatch.rules" -}}
{{- $root := index . 0 -}}
{{- $values := $root.Values.prometheusRule -}}
{{- $groups := list -}}
{{- range $group := (index . 1).groups -}}
{{- $kept := list -}}
{{- range $one := $group.rules -}}
{{- $given := get $values.alerts (default "" $one.alert) | default dict -}}
{{- $severities := default (list "critical" "ticket" "info") $given.severities -}}
{{- if or (not $one.alert) (and (ne (toString $given.enabled) "false") (has $one.labels.severity $severities)) -}}
{{- $_ := set $one "expr" (replace (include "wirewatch.gpuNodes" $root) $values.gpuNodes $one.expr) -}}
{{- if hasKey $given "threshold" -}}
{{- $_ := set $one "expr" (regexReplaceAll "[0-9.]+(\\s*# threshold:)" $one.expr (printf "%v${1}" $given.threshold)) -}}
{{- end -}}
{{- with $given.for }}{{ $_ := set $one "for" . }}{{ end -}}
{{- if $one.alert -}}
{{- $_ := set $one "labels" (merge $one.labels (default dict $given.labels) (default dict $values.additionalRuleLabels)) -}}
{{- $_ := set $one "annotations" (merge $one.annotations (default dict $values.additionalRuleAnnotations)) -}}
{{- end -}}
{{- $kept = append $kept $one -}}
{{- end -}}
{{- end -}}
{{- if $kept -}}
{{- $_ := set $group "rules" $kept -}}
{{- $groups = append $groups $group -}}
{{- end -}}
{{- end -}}
{{ toYaml (dict "groups" $groups) }}
{{- end }}
