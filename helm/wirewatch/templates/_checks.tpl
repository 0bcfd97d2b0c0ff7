{{- /* What a schema cannot say: values that cannot be meant together. */}}
{{- define "wirewatch.checks" -}}
{{- include "wirewatch.words" . -}}
{{- if eq (toString .Values.enabled) "false" }}{{ fail "enabled: false leaves out a subchart whose parent asks it (condition: wirewatch.enabled in the dependency); here nothing does" }}{{ end -}}
{{- range list "commonAnnotations" "daemonSetAnnotations" }}{{ include "wirewatch.annotationChecks" (list . (get $.Values .)) }}{{ end -}}
{{- include "wirewatch.labelChecks" (list "daemonSetLabels" (default dict .Values.daemonSetLabels)) -}}
{{- include "wirewatch.labelChecks" (list "service.labels" (default dict .Values.service.labels)) -}}
{{- include "wirewatch.labelChecks" (list "controller.podLabels" (default dict .Values.controller.podLabels)) -}}
{{- include "wirewatch.nameChecks" . -}}
{{- include "wirewatch.labelChecks" (list "commonLabels" .Values.commonLabels) -}}
{{- range $name := list "podMonitor" "serviceMonitor" "prometheusRule" "dashboards" -}}
{{- include "wirewatch.labelChecks" (list (printf "%s.labels" $name) (get (get $.Values $name) "labels")) -}}
{{- end -}}
{{- include "wirewatch.labelChecks" (list "dashboards.label, labelValue" (dict .Values.dashboards.label .Values.dashboards.labelValue)) -}}
{{- if and .Values.networkPolicy.enabled (not .Values.networkPolicy.apiServerPorts) (or (include "wirewatch.condition" .) .Values.controller.enabled) }}{{ fail "networkPolicy.apiServerPorts: none would let everything out; the API server's ports, or networkPolicy.enabled=false" }}{{ end -}}
{{- include "wirewatch.alertChecks" . -}}
{{- if and .Values.web.tls (not .Values.web.secret) }}{{ fail "web.tls: without web.secret there is no certificate" }}{{ end -}}
{{- if and .Values.replay .Values.gate.hostPath }}{{ fail "gate.hostPath: a recording (replay) says of no node whether a job may start there" }}{{ end -}}
{{- if and .Values.jobs.libraryPath (not .Values.jobs.hostPath) }}{{ fail "jobs.libraryPath: without jobs.hostPath nobody reads what jobs leave" }}{{ end -}}
{{- if and (include "wirewatch.condition" .) (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) }}{{ fail "serviceAccount.name: the namespace's default account shall not get the right to patch nodes" }}{{ end -}}
{{- if and .Values.fleetProbe.enabled (not .Values.fleetProbe.podTemplate.spec) }}{{ fail "fleetProbe.podTemplate: say which image runs the pairs: {spec: {containers: [{name: pair, image: ...}]}}; it has torch" }}{{ end -}}
{{- range (default dict .Values.fleetProbe.podTemplate.spec).containers }}{{ include "wirewatch.amountChecks" (list (printf "fleetProbe.podTemplate: %s" .name) (default dict .resources)) }}{{ end -}}
{{- if and .Values.podMonitor.enabled .Values.serviceMonitor.enabled }}{{ fail "podMonitor.enabled and serviceMonitor.enabled: each agent would be scraped twice, at twice the cost and with every series twice; set one of them to false (docs/adr/0054 says which)" }}{{ end -}}
{{- if and .Values.serviceMonitor.enabled (not .Values.service.enabled) }}{{ fail "serviceMonitor.enabled: a ServiceMonitor finds targets by the Service, which service.enabled=false leaves out; use podMonitor.enabled" }}{{ end -}}
{{- range $name := list "podMonitor" "serviceMonitor" -}}
{{- $monitor := get $.Values $name -}}
{{- if gt (include "wirewatch.milliseconds" $monitor.scrapeTimeout | int64) (include "wirewatch.milliseconds" $monitor.interval | int64) }}{{ fail (printf "%s.scrapeTimeout: %s is longer than the interval, %s; Prometheus would refuse the monitor" $name $monitor.scrapeTimeout $monitor.interval) }}{{ end -}}
{{- end -}}
{{- range .Values.networkPolicy.from -}}
{{- $selected := or (hasKey . "podSelector") (hasKey . "namespaceSelector") -}}
{{- if eq $selected (hasKey . "ipBlock") }}{{ fail "networkPolicy.from: a peer is an ipBlock, or has podSelector, namespaceSelector or both" }}{{ end -}}
{{- end -}}
{{- range $name := list "controller" "fleetProbe" }}{{ include "wirewatch.tolerationChecks" (list (printf "%s.tolerations" $name) (get $.Values $name).tolerations) }}{{ end -}}
{{- range include "wirewatch.pools" . | fromJsonArray -}}
{{- include "wirewatch.podChecks" (dict "Values" .values "where" (ternary "" (printf "pools: %s: " (default dict .pool).name) (empty .pool))) -}}
{{- end -}}
{{- include "wirewatch.poolChecks" . -}}
{{- end }}

{{- /* The same of one DaemonSet: of its values, and where they were given. */}}
{{- define "wirewatch.podChecks" -}}
{{- $values := .Values -}}{{- $where := .where -}}
{{- $prober := $values.prober -}}
{{- include "wirewatch.folderChecks" (list $values $where) -}}
{{- if eq $values.gpu.via "folder" -}}
{{- if not $values.agent.privileged }}{{ fail (printf "%sgpu.via=folder: a container without privileges cannot open the node's GPUs; set agent.privileged=true" $where) }}{{ end -}}
{{- if and $prober.enabled (not $prober.privileged) }}{{ fail (printf "%sgpu.via=folder: the prober cannot open the node's GPUs without privileges; set prober.privileged=true, or prober.enabled=false for no probe" $where) }}{{ end -}}
{{- end -}}
{{- if and $values.hostNetwork $values.listen.hostPort (ne (int $values.listen.hostPort) (int $values.listen.port)) }}{{ fail (printf "%slisten.hostPort: with hostNetwork the port is the node's already; set it to 0" $where) }}{{ end -}}
{{- if not (has (get (default dict $values.updateStrategy.rollingUpdate) "maxSurge" | toString) (list "" "0" "0%")) }}{{ fail (printf "%supdateStrategy.rollingUpdate.maxSurge: two agents on one node would contend for its state; use maxUnavailable" $where) }}{{ end -}}
{{- $ours := list "config" "run" "state" "jobs" "tap" "sys-bus" "sys-class" "sys-devices" "web" "token" "tmp" "shm" "pod-resources" "pod-logs" "cgroups" "nccl-conf" "all-gpus" "driver" -}}
{{- $volumes := list -}}
{{- range $values.extraVolumes -}}
{{- $sources := keys (omit . "name") | sortAlpha -}}
{{- if not $sources }}{{ fail (printf "%sextraVolumes: %q has no source; a volume has one, such as emptyDir, hostPath or secret" $where .name) }}{{ end -}}
{{- if gt (len $sources) 1 }}{{ fail (printf "%sextraVolumes: %q has %s; a volume has one source, such as emptyDir, hostPath or secret" $where .name (join " and " $sources)) }}{{ end -}}
{{- if has .name $ours }}{{ fail (printf "%sextraVolumes: the chart has a volume %q of its own; take another name" $where .name) }}{{ end -}}
{{- if has .name $volumes }}{{ fail (printf "%sextraVolumes: %q is there twice" $where .name) }}{{ end -}}
{{- $volumes = append $volumes .name -}}
{{- end -}}
{{- range $name, $of := dict "agent" (list "NODE_NAME" "RUNTIME_DIRECTORY") "prober" (list "HOME") -}}
{{- $container := get $values $name -}}
{{- range $container.extraVolumeMounts -}}
{{- if not (has .name $volumes) }}{{ fail (printf "%s%s.extraVolumeMounts: no volume %q in extraVolumes" $where $name .name) }}{{ end -}}
{{- end -}}
{{- $set := concat $of (list "NVIDIA_VISIBLE_DEVICES" "NVIDIA_DRIVER_CAPABILITIES") (keys $container.env) -}}
{{- range $key, $_ := $container.env }}{{ include "wirewatch.variableChecks" (list (printf "%s%s.env" $where $name) $key) }}{{ end -}}
{{- range $container.extraEnv -}}
{{- include "wirewatch.variableChecks" (list (printf "%s%s.extraEnv" $where $name) .name) -}}
{{- if and (hasKey . "valueFrom") (ne (len .valueFrom) 1) }}{{ fail (printf "%s%s.extraEnv: %s: valueFrom has one source, such as fieldRef; here are %d" $where $name .name (len .valueFrom)) }}{{ end -}}
{{- if has .name $set }}{{ fail (printf "%s%s.extraEnv: %s is set already, by the chart or in %s.env" $where $name .name $name) }}{{ end -}}
{{- $set = append $set .name -}}
{{- end -}}
{{- range $key := $of -}}
{{- if hasKey $container.env $key }}{{ fail (printf "%s%s.env: %s is set by the chart" $where $name $key) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- $containers := list "agent" "prober" "folders" "mount" "rings" "tap" -}}
{{- range concat $values.sidecars $values.initContainers -}}
{{- if has .name $containers }}{{ fail (printf "%ssidecars, initContainers: %q is a container of the chart's, or there twice; take another name" $where .name) }}{{ end -}}
{{- $containers = append $containers .name -}}
{{- end -}}
{{- include "wirewatch.tolerationChecks" (list (printf "%stolerations" $where) $values.tolerations) -}}
{{- include "wirewatch.labelChecks" (list (printf "%spodLabels" $where) $values.podLabels) -}}
{{- range $key, $_ := $values.podAnnotations -}}
{{- if or (eq $key "checksum/config") (eq $key "kubectl.kubernetes.io/default-container") (and (eq $values.gpu.via "nri") (hasPrefix "nvidia.cdi.k8s.io/container." $key)) }}{{ fail (printf "%spodAnnotations: %s is the chart's own" $where $key) }}{{ end -}}
{{- end -}}
{{- end }}

{{- /* That a variable has a name: of (where it was given, the name). */}}
{{- define "wirewatch.variableChecks" -}}
{{- if not (regexMatch "^[-._a-zA-Z][-._a-zA-Z0-9]*$" (index . 1)) }}{{ fail (printf "%s: %q is not the name of a variable: letters, digits, '_', '-' and '.', and no digit first" (index . 0) (index . 1)) }}{{ end -}}
{{- end }}

{{- /* Names of annotations: of (where they were given, the annotations). */}}
{{- define "wirewatch.annotationChecks" -}}
{{- range $key, $_ := default dict (index . 1) -}}
{{- if not (regexMatch "^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$" $key) }}{{ fail (printf "%s: %q is not the name of an annotation" (index $ 0) $key) }}{{ end -}}
{{- end -}}
{{- end }}

{{- /* What the API server refuses of tolerations: of (where they were given, the tolerations). */}}
{{- define "wirewatch.tolerationChecks" -}}
{{- $where := index . 0 -}}
{{- range index . 1 -}}
{{- $exists := eq (default "Equal" .operator) "Exists" -}}
{{- if and $exists .value }}{{ fail (printf "%s: with operator Exists there is no value; for one value the operator is Equal" $where) }}{{ end -}}
{{- if not (or $exists .key) }}{{ fail (printf "%s: without a key the operator is Exists" $where) }}{{ end -}}
{{- if and (hasKey . "tolerationSeconds") (ne (default "" .effect) "NoExecute") }}{{ fail (printf "%s: tolerationSeconds is for effect NoExecute alone" $where) }}{{ end -}}
{{- end -}}
{{- end }}

{{- /* A time such as 1m30s in milliseconds. */}}
{{- define "wirewatch.milliseconds" -}}
{{- $units := dict "d" 86400000 "h" 3600000 "m" 60000 "s" 1000 "ms" 1 -}}
{{- $sum := 0 -}}
{{- range regexFindAll "[0-9]+[a-z]+" . -1 -}}
{{- $sum = add $sum (mul (regexFind "[0-9]+" . | int64) (get $units (regexFind "[a-z]+" .))) -}}
{{- end -}}
{{ $sum }}
{{- end }}

{{- /* That nothing is requested above its limit: the API server would refuse each pod, not the DaemonSet. Of (whose it is, the resources). */}}
{{- define "wirewatch.amountChecks" -}}
{{- $limits := default dict (index . 1).limits -}}
{{- range $name, $wanted := (index . 1).requests -}}
{{- with get $limits $name -}}
{{- if gt (include "wirewatch.amount" $wanted | float64) (include "wirewatch.amount" . | float64) }}{{ fail (printf "%s.resources: requests.%s, %v, is above limits.%s, %v; no pod would be made" (index $ 0) $name $wanted $name .) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* A quantity, such as 250m or 1.5Gi, as a number. */}}
{{- define "wirewatch.amount" -}}
{{- $units := dict "" 1.0 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 -}}
{{- $text := toString . -}}
{{ mulf (regexFind "^[0-9.]+(e[+-]?[0-9]+)?" $text | float64) (get $units (regexFind "[A-Za-z]*$" $text) | default 1.0) }}
{{- end }}

{{- /* What must be there once in each container of a pod, as it is rendered: of (where it was given, the pod's specification). */}}
{{- define "wirewatch.onceChecks" -}}
{{- $where := index . 0 -}}{{- $pod := index . 1 -}}
{{- $volumes := list -}}
{{- range $pod.volumes }}{{ $volumes = append $volumes .name }}{{ end -}}
{{- range $one := concat (default list $pod.initContainers) $pod.containers -}}
{{- $paths := list -}}
{{- if not $one.image }}{{ fail (printf "%spodSpec: container %q has no image, and the chart has none of that name here" $where $one.name) }}{{ end -}}
{{- include "wirewatch.amountChecks" (list (printf "%s%s" $where $one.name) (default dict $one.resources)) -}}
{{- range $one.volumeMounts -}}
{{- if not (has .name $volumes) }}{{ fail (printf "%s%s: no volume %q in this pod; give it in extraVolumes" $where $one.name .name) }}{{ end -}}
{{- $path := trimSuffix "/" .mountPath -}}
{{- if has $path $paths }}{{ fail (printf "%s%s: two volumes at %s" $where $one.name $path) }}{{ end -}}
{{- $paths = append $paths $path -}}
{{- end -}}
{{- range $one.env -}}
{{- if and .value .valueFrom }}{{ fail (printf "%s%s: %s has a value and valueFrom; give one of them" $where $one.name .name) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* That no node can be in two pools: each two of them ask one label for different values. */}}
{{- define "wirewatch.poolChecks" -}}
{{- range $at, $one := .Values.pools -}}
{{- range $other := slice $.Values.pools (add1 $at | int) -}}
{{- if eq $one.name $other.name }}{{ fail (printf "pools: %q is there twice" $one.name) }}{{ end -}}
{{- $apart := false -}}
{{- range $label, $value := $one.nodeSelector -}}
{{- if and (hasKey $other.nodeSelector $label) (ne $value (get $other.nodeSelector $label)) }}{{ $apart = true }}{{ end -}}
{{- end -}}
{{- if not $apart }}{{ fail (printf "pools: a node can be in both %q and %q, and would run two agents; give the nodeSelector of both one label with different values" $one.name $other.name) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* What a value must look like, in words: a schema would quote its pattern. files/words.json is made of the values' types. */}}
{{- define "wirewatch.words" -}}
{{- $wrong := list -}}
{{- range $rule := .Files.Get "files/words.json" | fromJsonArray -}}
{{- $wrong = concat $wrong (include "wirewatch.word" (list "" $.Values $rule.path $rule) | fromJsonArray) -}}
{{- end -}}
{{- if $wrong }}{{ fail (join "\n" $wrong) }}{{ end -}}
{{- end }}

{{- /* What is wrong at a path, as JSON: of (where it is, what is there, the rest of the path, the rule); * is each part. */}}
{{- define "wirewatch.word" -}}
{{- $at := index . 0 -}}{{- $value := index . 1 -}}{{- $path := index . 2 -}}{{- $rule := index . 3 -}}
{{- $wrong := list -}}
{{- if not $path -}}
{{- if and (kindIs "string" $value) (or (not (regexMatch $rule.pattern $value)) (has $value (default list $rule.not))) -}}
{{- $wrong = list (printf "%s: %q is not %s" (trimPrefix "." $at) $value $rule.words) -}}
{{- end -}}
{{- else if eq (first $path) "*" -}}
{{- if or (kindIs "map" $value) (kindIs "slice" $value) -}}
{{- range $key, $part := $value -}}
{{- $wrong = concat $wrong (include "wirewatch.word" (list (printf "%s.%v" $at $key) $part (rest $path) $rule) | fromJsonArray) -}}
{{- end -}}
{{- end -}}
{{- else if and (kindIs "map" $value) (hasKey (default dict $value) (first $path)) -}}
{{- $wrong = include "wirewatch.word" (list (printf "%s.%s" $at (first $path)) (get $value (first $path)) (rest $path) $rule) | fromJsonArray -}}
{{- end -}}
{{ toRawJson $wrong }}
{{- end }}
