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

{{- /* The text of the alerts with runbook_url and dashboard_url as they are known here: of (the whole, the text). */}}
{{- define "wirewatch.linkedAlerts" -}}
{{- $root := index . 0 -}}
{{- $values := $root.Values -}}
{{- $text := index . 1 -}}
{{- $status := include "wirewatch.statusPage" $root -}}
{{- with $values.links.grafana -}}
{{- $board := printf "%s/d/wirewatch-{{ if $labels.node }}node{{ else }}fleet{{ end }}?{{ with $labels.cluster }}var-cluster={{ urlquery . }}&{{ end }}{{ with $labels.node }}var-node={{ urlquery . }}{{ end }}" . -}}
{{- $text = regexReplaceAll "(?m)^( *dashboard_url: ).*$" $text (printf "${1}'%s'" (replace "$" "$$" $board)) -}}
{{- end -}}
{{- $answering := "\\{\\{ with printf `cluster:wirewatch_answering.*\\{\\{ end \\}\\}docs/" -}}
{{- if $values.prometheusRule.runbookBase -}}
{{- $text = regexReplaceAll $answering $text (printf "%sdocs/" (replace "$" "$$" $values.prometheusRule.runbookBase)) -}}
{{- else if $status -}}
{{- $text = replace "http://{{ . | first | label \"node\" }}:9410/" (replace "NODE" "{{ . | first | label \"node\" }}" $status) $text -}}
{{- else -}}
{{- $text = regexReplaceAll $answering $text (printf "%s://localhost:%d/docs/" (ternary "https" "http" $values.web.tls) (int $values.listen.port)) -}}
{{- $text = regexReplaceAll "(?m)^( *)(runbook_url: .*)$" $text (printf "${1}${2}\n${1}runbook_command: '%s'" (include "wirewatch.forward" $root)) -}}
{{- end -}}
{{- $text -}}
{{- end }}

{{- /* What leads to an agent from wherever kubectl works, whatever the cluster's network. */}}
{{- define "wirewatch.forward" -}}
kubectl -n {{ include "wirewatch.namespace" . }} port-forward daemonset/{{ include "wirewatch.fullname" . }} {{ int .Values.listen.port }}
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
