{{- /* Names and labels that Kubernetes or Prometheus would refuse, the one of them for good: a rule file with a wrong label has no rules. */}}

{{- /* Of Services and pods: a name is a DNS label, and a label's value has 63 characters. */}}
{{- define "wirewatch.nameChecks" -}}
{{- if .Values.service.enabled -}}
{{- range include "wirewatch.pools" . | fromJsonArray -}}
{{- $name := include "wirewatch.daemons" (merge (dict "Values" .values "pool" .pool) (pick $ "Chart" "Release")) -}}
{{- if or (gt (len $name) 63) (not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name)) -}}
{{- fail (printf "fullnameOverride: %q cannot be a Service: at most 63 small letters, digits and '-', a letter first; a shorter or another fullnameOverride, or service.enabled=false" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range .Values.pools -}}
{{- if or (eq .name "controller") (hasPrefix "dashboard-" .name) }}{{ fail (printf "pools: %q: the chart has a ConfigMap of that name; take another name" .name) }}{{ end -}}
{{- $instance := printf "%s_%s" $.Release.Name .name -}}
{{- if gt (len $instance) 63 }}{{ fail (printf "pools: %q: with the release's name it is the label %q, which has more than 63 characters; a shorter name" .name $instance) }}{{ end -}}
{{- end -}}
{{- if and .Values.resourceQuota.enabled (not (or .Values.priorityClassName (and .Values.controller.enabled .Values.controller.priorityClassName))) }}{{ fail "resourceQuota.enabled: without priorityClassName there is no class for it to allow" }}{{ end -}}
{{- end }}

{{- /* Labels that are given: of (where, the labels). */}}
{{- define "wirewatch.labelChecks" -}}
{{- $where := index . 0 -}}
{{- range $key, $value := index . 1 -}}
{{- if has $key (list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/version" "app.kubernetes.io/component" "app.kubernetes.io/managed-by" "helm.sh/chart" "wirewatch.io/pool") }}{{ fail (printf "%s: %s is the chart's own" $where $key) }}{{ end -}}
{{- if not (regexMatch "^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$" $key) }}{{ fail (printf "%s: %q is not the name of a label" $where $key) }}{{ end -}}
{{- if not (regexMatch "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$" $value) }}{{ fail (printf "%s.%s: %q is not the value of a label: at most 63 letters, digits, '-', '_' and '.', a letter or a digit first and last" $where $key $value) }}{{ end -}}
{{- end -}}
{{- end }}

{{- /* Single alerts: that there are such, and what may be said of them. */}}
{{- define "wirewatch.alertChecks" -}}
{{- $severities := dict -}}{{- $thresholds := dict -}}
{{- range (.Files.Get "files/prometheus/wirewatch-alerts.yml" | fromYaml).groups -}}
{{- range .rules -}}
{{- $_ := set $severities .alert (append (get $severities .alert | default list) .labels.severity) -}}
{{- if contains "# threshold:" .expr }}{{ $_ := set $thresholds .alert (regexFind "# threshold: .*" .expr) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- range $name, $given := .Values.prometheusRule.alerts -}}
{{- $where := printf "prometheusRule.alerts.%s" $name -}}
{{- if not (hasKey $severities $name) }}{{ fail (printf "%s: there is no such alert; nearest is %s" $where (include "wirewatch.nearest" (list $name (keys $severities | sortAlpha)))) }}{{ end -}}
{{- if hasKey $given "threshold" -}}
{{- if not (hasKey $thresholds $name) }}{{ fail (printf "%s.threshold: this alert has none; the agent decides when it fires, by config.policy" $where) }}{{ end -}}
{{- if and (contains "# threshold: share" (get $thresholds $name)) (gt (float64 $given.threshold) 1.0) }}{{ fail (printf "%s.threshold: %v is not a share: 0.8 is 80 %%" $where $given.threshold) }}{{ end -}}
{{- end -}}
{{- range $severity := $given.severities -}}
{{- if not (has $severity (get $severities $name)) }}{{ fail (printf "%s.severities: it has no severity %q, but %s" $where $severity (get $severities $name | join " and ")) }}{{ end -}}
{{- end -}}
{{- include "wirewatch.ruleLabelChecks" (list (printf "%s.labels" $where) $given.labels) -}}
{{- end -}}
{{- include "wirewatch.ruleLabelChecks" (list "prometheusRule.additionalRuleLabels" .Values.prometheusRule.additionalRuleLabels) -}}
{{- end }}

{{- /* Labels of alerts: of (where they were given, the labels). */}}
{{- define "wirewatch.ruleLabelChecks" -}}
{{- range $key, $_ := index . 1 -}}
{{- if eq $key "severity" }}{{ fail (printf "%s.severity: the alert has its own; severities says which of them to keep" (index $ 0)) }}{{ end -}}
{{- if not (regexMatch "^[a-zA-Z_][a-zA-Z0-9_]*$" $key) }}{{ fail (printf "%s: %q is not a label as Prometheus has them: letters, digits and '_'" (index $ 0) $key) }}{{ end -}}
{{- end -}}
{{- end }}

{{- /* Of (a name, names) the one with the most pairs of letters in common. */}}
{{- define "wirewatch.nearest" -}}
{{- $one := lower (index . 0) -}}{{- $best := "" -}}{{- $most := -1 -}}
{{- range $name := index . 1 -}}
{{- $shared := 0 -}}
{{- range $at := until (sub (len $one) 1 | int) -}}
{{- if contains (substr $at (add $at 2 | int) $one) (lower $name) }}{{ $shared = add $shared 2 }}{{ end -}}
{{- end -}}
{{- $score := div (mul 1000 $shared) (add (len $one) (len $name)) -}}
{{- if gt (int $score) (int $most) }}{{ $most = $score }}{{ $best = $name }}{{ end -}}
{{- end -}}
{{ $best }}
{{- end }}
