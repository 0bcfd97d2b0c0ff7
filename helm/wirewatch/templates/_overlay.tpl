{{- /* The way out for what no value names: parts of Kubernetes' own types that are laid over what the chart makes. */}}

{{- /* What lies over a pod, as JSON: of (podSpec, values by the names of their containers). */}}
{{- define "wirewatch.overlay" -}}
{{- $overlay := deepCopy (default dict (index . 0)) -}}
{{- range $name, $values := index . 1 -}}
{{- $own := include "wirewatch.given" (list 0 $values "livenessProbe" "readinessProbe" "startupProbe" "securityContext" "lifecycle") | fromYaml -}}
{{- if $own }}{{ $_ := set $overlay "containers" (prepend (default list $overlay.containers) (merge (dict "name" $name) $own)) }}{{ end -}}
{{- end -}}
{{ toRawJson $overlay }}
{{- end }}

{{- /* A pod's specification with what lies over it, checked: of (the text, the overlay, where it was given). */}}
{{- define "wirewatch.overlaid" -}}
{{- $pod := index . 0 | fromYaml -}}{{- $overlay := index . 1 | fromJson -}}
{{- if $overlay }}{{ $pod = (include "wirewatch.laid" (list "" $pod $overlay) | fromJson).made }}{{ end -}}
{{- include "wirewatch.onceChecks" (list (index . 2) $pod) -}}
{{- if $overlay }}{{ toYaml $pod }}{{ else }}{{ index . 0 }}{{ end -}}
{{- end }}

{{- /*
As Kubernetes merges: null takes away, a list whose items have names is merged by them, every other value is replaced: of (the key, what
is there, what goes over it). The result is `made`, as JSON.
*/}}
{{- define "wirewatch.laid" -}}
{{- $there := index . 1 -}}{{- $over := index . 2 -}}
{{- $by := get (dict "volumeMounts" "mountPath" "ports" "containerPort" "hostAliases" "ip") (index . 0) | default "name" -}}
{{- $named := and (kindIs "slice" $there) (kindIs "slice" $over) -}}
{{- if $named }}{{ range $over }}{{ $named = and $named (kindIs "map" .) (hasKey (default dict .) $by) }}{{ end }}{{ end -}}
{{- if and (kindIs "map" $there) (kindIs "map" $over) -}}
{{- range $key, $value := $over -}}
{{- if kindIs "invalid" $value }}{{ $_ := unset $there $key -}}
{{- else }}{{ $_ := set $there $key (include "wirewatch.laid" (list $key (get $there $key) $value) | fromJson).made }}{{ end -}}
{{- end -}}
{{- $over = $there -}}
{{- else if $named -}}
{{- range $item := $over -}}
{{- $made := list -}}{{- $found := false -}}
{{- range $one := $there -}}
{{- if eq (get $one $by | toString) (get $item $by | toString) }}{{ $found = true }}{{ $one = (include "wirewatch.laid" (list "" $one $item) | fromJson).made }}{{ end -}}
{{- $made = append $made $one -}}
{{- end -}}
{{- $there = ternary $made (append $made $item) $found -}}
{{- end -}}
{{- $over = $there -}}
{{- end -}}
{{ toRawJson (dict "made" $over) }}
{{- end }}

{{- /* Values by the names that other charts give them become the chart's own; of others it is said what to set instead: files/names.json. */}}
{{- define "wirewatch.usual" -}}
{{- if not (hasKey .Values "usual") -}}
{{- range $rule := .Files.Get "files/names.json" | fromJsonArray -}}
{{- $from := $.Values }}{{ range initial $rule.from }}{{ $from = get (default dict $from) . }}{{ end -}}
{{- $name := last $rule.from -}}
{{- if hasKey (default dict $from) $name -}}
{{- $value := get $from $name -}}
{{- $_ := unset $from $name -}}
{{- $off := or (empty $value) (and (kindIs "map" $value) (eq (get (default dict $value) "enabled" | toString) "false")) -}}
{{- if and $rule.words (not $off) }}{{ fail (printf "%s: not a value of this chart; %s" (join "." $rule.from) $rule.words) }}{{ end -}}
{{- if and $rule.to (not (kindIs "invalid" $value)) -}}
{{- $to := $.Values }}{{ range initial $rule.to }}{{ $to = get $to . }}{{ end -}}
{{- $name = last $rule.to -}}
{{- if and (eq $name "env") (kindIs "slice" $value) }}{{ $name = "extraEnv" }}{{ end -}}
{{- if kindIs "map" $value }}{{ $value = mergeOverwrite (default dict (get $to $name)) $value -}}
{{- else if kindIs "slice" $value }}{{ $value = concat (default list (get $to $name)) $value }}{{ end -}}
{{- $_ := set $to $name $value -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $_ := set .Values "usual" true -}}
{{- end -}}
{{- end }}
