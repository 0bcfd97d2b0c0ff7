{{- /* Addresses in rules and dashboards. The files have those of agents at the node's own port, http://NODE:9410/. */}}

{{- /* Where the status page of NODE is, for people; empty where nothing leads there. */}}
{{- define "wirewatch.statusPage" -}}
{{- $port := ternary .Values.listen.port .Values.listen.hostPort .Values.hostNetwork -}}
{{- if .Values.links.statusPage -}}
{{ .Values.links.statusPage }}
{{- else if $port -}}
{{ ternary "https" "http" .Values.web.tls }}://NODE:{{ int $port }}/
{{- end -}}
{{- end }}

{{- /* The text of the alerts with runbook_url and dashboard_url as they are known here, and without what is not: of (the whole, the text). */}}
{{- define "wirewatch.linkedAlerts" -}}
{{- $values := (index . 0).Values -}}
{{- $text := index . 1 -}}
{{- $status := include "wirewatch.statusPage" (index . 0) -}}
{{- with $values.links.grafana -}}
{{- $board := printf "%s/d/wirewatch-{{ if $labels.node }}node{{ else }}fleet{{ end }}?{{ with $labels.cluster }}var-cluster={{ urlquery . }}&{{ end }}{{ with $labels.node }}var-node={{ urlquery . }}{{ end }}" . -}}
{{- $text = regexReplaceAll "(?m)^( *)(runbook_url: .*)$" $text (printf "${1}${2}\n${1}dashboard_url: '%s'" (replace "$" "$$" $board)) -}}
{{- end -}}
{{- if $values.prometheusRule.runbookBase -}}
{{- $text = regexReplaceAll "\\{\\{ with printf `cluster:wirewatch_answering.*\\{\\{ end \\}\\}docs/" $text (printf "%sdocs/" (replace "$" "$$" $values.prometheusRule.runbookBase)) -}}
{{- else if $status -}}
{{- $text = replace "http://{{ . | first | label \"node\" }}:9410/" (replace "NODE" "{{ . | first | label \"node\" }}" $status) $text -}}
{{- else -}}
{{- $text = regexReplaceAll "(?m)^ *runbook_url: .*\n" $text "" -}}
{{- end -}}
{{- $text -}}
{{- end }}

{{- /* A dashboard with links to agents as they are known here, or without: of (the whole, the text). Its keys are sorted: a link ends with its url. */}}
{{- define "wirewatch.linkedBoard" -}}
{{- $base := (index . 0).Values.prometheusRule.runbookBase -}}
{{- $text := index . 1 -}}
{{- $status := include "wirewatch.statusPage" (index . 0) -}}
{{- with $base -}}
{{- $text = replace "http://${agent}:9410/docs/" (printf "%sdocs/" .) $text -}}
{{- end -}}
{{- if $status -}}
{{- $text = regexReplaceAll "http://(\\$\\{[a-z_.]+\\}):9410/" $text (replace "NODE" "${1}" (replace "$" "$$" $status)) -}}
{{- else -}}
{{- $text = regexReplaceAll ",?\\s*\\{[^{}]*\"url\": \"http://\\$\\{[a-z_.]+\\}:9410/[^\"]*\"\\s*\\}" $text "" -}}
{{- end -}}
{{- $text -}}
{{- end }}
