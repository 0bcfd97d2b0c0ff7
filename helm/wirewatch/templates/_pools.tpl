{{- /* The DaemonSets as JSON: that of the rest, with no pool, then those of pools, each with the values as they hold there. */}}
{{- define "wirewatch.pools" -}}
{{- $found := list (dict "pool" nil "values" .Values) -}}
{{- range $pool := .Values.pools -}}
{{- $given := omit $pool "name" "nodeSelector" -}}
{{- $values := mergeOverwrite (deepCopy $.Values) (deepCopy $given) -}}
{{- /* What is a whole: given by the pool, nothing of it is left of what all have. */ -}}
{{- if hasKey $given "maxUnavailable" }}{{ $_ := set $values "updateStrategy" dict }}{{ end -}}
{{- range $whole := list "affinity" "updateStrategy" -}}
{{- if hasKey $given $whole }}{{ $_ := set $values $whole (get $given $whole) }}{{ end -}}
{{- end -}}
{{- if and $values.image.digest (hasKey (default dict $given.image) "tag") (not (hasKey $given.image "digest")) -}}
{{- $_ := set $values.image "digest" "" -}}
{{- end -}}
{{- $found = append $found (dict "pool" $pool "values" $values) -}}
{{- end -}}
{{ toRawJson $found }}
{{- end }}

{{- /* Nodes with NVIDIA GPUs, by the labels of GPU feature discovery, node feature discovery, GKE and AKS. */}}
{{- define "wirewatch.gpuAffinity" -}}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
      - matchExpressions: [{key: nvidia.com/gpu.present, operator: In, values: ["true"]}]
      - matchExpressions: [{key: feature.node.kubernetes.io/pci-10de.present, operator: In, values: ["true"]}]
      - matchExpressions: [{key: feature.node.kubernetes.io/pci-0302_10de.present, operator: In, values: ["true"]}]
      - matchExpressions: [{key: cloud.google.com/gke-accelerator, operator: Exists}]
      - matchExpressions: [{key: kubernetes.azure.com/accelerator, operator: In, values: [nvidia]}]
{{- end }}

{{- /* As given, or of nodes with GPUs; the rest keeps away from the nodes of pools, whatever else they are. */}}
{{- define "wirewatch.affinity" -}}
{{- $affinity := include "wirewatch.gpuAffinity" . | fromYaml -}}
{{- if hasKey .Values "affinity" }}{{ $affinity = deepCopy (default dict .Values.affinity) }}{{ end -}}
{{- if and .Values.pools (not .pool) -}}
{{- $key := "requiredDuringSchedulingIgnoredDuringExecution" -}}
{{- $nodes := default dict $affinity.nodeAffinity -}}
{{- $terms := default (list dict) (get (default dict (get $nodes $key)) "nodeSelectorTerms") -}}
{{- range $pool := .Values.pools -}}
{{- $without := list -}}
{{- range $term := $terms -}}
{{- range $label, $value := $pool.nodeSelector -}}
{{- $away := dict "key" $label "operator" "NotIn" "values" (list $value) -}}
{{- $without = append $without (merge (dict "matchExpressions" (append (default list $term.matchExpressions) $away)) $term) -}}
{{- end -}}
{{- end -}}
{{- $terms = $without -}}
{{- end -}}
{{- $_ := set $nodes $key (dict "nodeSelectorTerms" $terms) -}}
{{- $_ := set $affinity "nodeAffinity" $nodes -}}
{{- end -}}
{{ toYaml $affinity }}
{{- end }}
