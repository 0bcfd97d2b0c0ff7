{{- /* One DaemonSet: of the whole with the values of a pool merged in, or of the rest. */}}
{{- define "wirewatch.daemonset" -}}
{{- $where := ternary "" (printf "pools: %s: " (default dict .pool).name) (empty .pool) -}}
{{- $containers := dict "agent" .Values.agent -}}
{{- if .Values.prober.enabled }}{{ $_ := set $containers "prober" .Values.prober }}{{ end -}}
{{- with include "wirewatch.noRegistry" . }}
# {{ . }}: set image.repository, unless every node has it already.
{{- end }}
apiVersion: apps/v1
kind: DaemonSet
metadata: {{- include "wirewatch.metadata" (list . (include "wirewatch.daemons" .) (dict "labels" .Values.daemonSetLabels "annotations" .Values.daemonSetAnnotations)) | nindent 2 }}
spec:
  {{- include "wirewatch.given" (list 2 .Values "revisionHistoryLimit" "minReadySeconds") }}
  selector:
    matchLabels: {{- include "wirewatch.podSelector" . | nindent 6 }}
  updateStrategy:
    {{- if .Values.updateStrategy }}
    {{- toYaml .Values.updateStrategy | nindent 4 }}
    {{- else }}
    type: RollingUpdate
    rollingUpdate:
      maxUnavailable: {{ toJson .Values.maxUnavailable }}
    {{- end }}
  template:
    metadata:
      labels:
        {{- include "wirewatch.podSelector" . | nindent 8 }}
        {{- with .pool }}
        wirewatch.io/pool: {{ .name }}
        {{- end }}
        {{- with merge (dict) .Values.podLabels .Values.commonLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        kubectl.kubernetes.io/default-container: agent
        checksum/config: {{ include "wirewatch.config" . | sha256sum }}
        {{- if eq .Values.gpu.via "nri" }}
        {{- range $name, $_ := $containers }}
        nvidia.cdi.k8s.io/container.{{ $name }}: {{ $.Values.gpu.cdiDevice }}
        {{- end }}
        {{- end }}
        {{- with .Values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      {{- include "wirewatch.overlaid" (list (include "wirewatch.pod" .) (include "wirewatch.overlay" (list .Values.podSpec $containers)) $where) | nindent 6 }}
{{- end }}

{{- define "wirewatch.pod" -}}
{{- $prober := .Values.prober }}
{{- $state := and .Values.state.hostPath (not .Values.replay) }}
{{- $jobs := include "wirewatch.jobs" . -}}
{{- $made := list -}}
{{- if $state }}{{ $made = append $made (dict "name" "state" "mountPath" "/var/lib/wirewatch") }}{{ end }}
{{- if .Values.gate.hostPath }}{{ $made = append $made (dict "name" "run" "mountPath" "/run/wirewatch") }}{{ end }}
{{- if $jobs }}{{ $made = append $made (dict "name" "jobs" "mountPath" "/run/wirewatch-jobs") }}{{ end -}}
serviceAccountName: {{ include "wirewatch.serviceAccount" . }}
# The agent alone gets a token, and only for the node's condition: see the volume of that name.
automountServiceAccountToken: false
{{- if $prober.enabled }}
# Of the whole pod: Kubernetes has no PID namespace for one container. The prober needs it.
hostPID: true
{{- end }}
{{- if .Values.hostNetwork }}
hostNetwork: true
{{- if not .Values.dnsPolicy }}
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
{{- end }}
enableServiceLinks: false
{{- include "wirewatch.given" (list 0 .Values "runtimeClassName" "priorityClassName" "dnsPolicy" "dnsConfig" "hostAliases" "tolerations") }}
{{- with include "wirewatch.pullSecrets" . }}
{{ . }}
{{- end }}
terminationGracePeriodSeconds: {{ int64 .Values.terminationGracePeriodSeconds }}
{{- $nodes := dict "nodeSelector" (merge (dict) (default dict (default dict .pool).nodeSelector) .Values.nodeSelector) "affinity" (include "wirewatch.affinity" . | fromYaml) }}
{{- include "wirewatch.given" (list 0 $nodes "nodeSelector" "affinity") }}
securityContext:
  fsGroup: {{ int64 .Values.runAs.group }}
  {{- include "wirewatch.given" (list 2 .Values "supplementalGroups" "seLinuxOptions") }}
  seccompProfile:
    type: RuntimeDefault
{{- if or $made .Values.initContainers }}
initContainers:
{{- end }}
{{- if include "wirewatch.mounting" . }}
  - name: mount
    {{- include "wirewatch.pulled" . | nindent 4 }}
    command: [sh, -ec]
    args:
      - |
        {{- .Files.Get "scripts/mount.sh" | trim | nindent 8 }}
      - mount
      - {{ .Values.jobs.size | trimSuffix "i" | lower }}
    resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 64Mi}}
    terminationMessagePolicy: FallbackToLogsOnError
    securityContext:
      # To mount for the node as a whole takes this; it sees nothing of the node but this folder.
      privileged: true
      {{- include "wirewatch.root" 0 | nindent 6 }}
      readOnlyRootFilesystem: true
    volumeMounts:
      - {name: jobs, mountPath: /run/wirewatch-jobs, mountPropagation: Bidirectional}
{{- end }}
{{- if $made }}
  - name: folders
    {{- include "wirewatch.pulled" . | nindent 4 }}
    command: [sh, -ec]
    args:
      - |
        {{- .Files.Get "scripts/folders.sh" | trim | nindent 8 }}
      - folders
      {{- range $made }}
      - {{ .mountPath }}
      {{- end }}
    resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {memory: 64Mi}}
    terminationMessagePolicy: FallbackToLogsOnError
    securityContext:
      {{- include "wirewatch.root" .Values.runAs.group | nindent 6 }}
      {{- include "wirewatch.confined" . | nindent 6 }}
    volumeMounts: {{- toYaml $made | nindent 6 }}
{{- end }}
{{- if and $jobs .Values.jobs.libraryPath }}
  # Root's, so that the agent cannot change what every job loads.
  - name: tap
    {{- include "wirewatch.pulled" . | nindent 4 }}
    args: [jobs, install, /host{{ .Values.jobs.libraryPath }}]
    resources: {requests: {cpu: 10m, memory: 64Mi}, limits: {memory: 128Mi}}
    terminationMessagePolicy: FallbackToLogsOnError
    securityContext:
      {{- include "wirewatch.root" 0 | nindent 6 }}
      {{- include "wirewatch.confined" . | nindent 6 }}
    volumeMounts:
      - {name: tap, mountPath: /host{{ .Values.jobs.libraryPath }}}
{{- end }}
{{- with .Values.initContainers }}
  {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  {{- $replay := list }}
  {{- with .Values.replay }}{{ $replay = list (printf "--replay=%s" .) "--loop" }}{{ end }}
  - name: agent
    {{- include "wirewatch.pulled" . | nindent 4 }}
    args: {{- include "wirewatch.args" (list (list "serve" "--config=/etc/wirewatch/wirewatch.toml") $replay .Values.agent.extraArgs) | nindent 6 }}
    ports:
      - name: metrics
        containerPort: {{ .Values.listen.port }}
        {{- include "wirewatch.given" (list 8 .Values.listen "hostPort") }}
        protocol: TCP
    env:
      - name: NODE_NAME
        valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
      - {name: RUNTIME_DIRECTORY, value: /run/wirewatch}
      {{- include "wirewatch.environment" (list . .Values.agent) | trim | nindent 6 }}
    # The loops turn, and the first polls have ended. Neither is the verdict: a sick GPU restarts no pod.
    {{- include "wirewatch.asked" (ternary ", scheme: HTTPS" "" .Values.web.tls) | nindent 4 }}
    {{- include "wirewatch.given" (list 4 .Values.agent "envFrom" "resources") }}
    securityContext:
      {{- if .Values.agent.privileged }}
      readOnlyRootFilesystem: true
      privileged: true
      {{- include "wirewatch.root" .Values.runAs.group | nindent 6 }}
      {{- else }}
      runAsNonRoot: true
      runAsUser: {{ int64 .Values.runAs.user }}
      runAsGroup: {{ int64 .Values.runAs.group }}
      {{- include "wirewatch.confined" . | nindent 6 }}
      {{- end }}
    volumeMounts:
      - {name: config, mountPath: /etc/wirewatch/wirewatch.toml, subPath: wirewatch.toml, readOnly: true}
      - {name: run, mountPath: /run/wirewatch}
      {{- if not .Values.replay }}
      - {name: state, mountPath: /var/lib/wirewatch}
      {{- end }}
      {{- if $jobs }}
      - {name: jobs, mountPath: /run/wirewatch-jobs}
      {{- end }}
      {{- if .Values.web.secret }}
      - {name: web, mountPath: /etc/wirewatch/web, readOnly: true}
      {{- end }}
      {{- if include "wirewatch.condition" . }}
      {{- include "wirewatch.tokenMount" . | nindent 6 }}
      {{- end }}
      {{- with include "wirewatch.mounts" (list . "agent") | trim }}{{ . | nindent 6 }}{{ end }}
  {{- if $prober.enabled }}
  - name: prober
    {{- include "wirewatch.pulled" . | nindent 4 }}
    {{- $options := list "--config=/etc/wirewatch/wirewatch.toml" "--socket=/run/wirewatch/prober.sock" (printf "--group=%d" (int64 .Values.runAs.group)) }}
    args: {{- include "wirewatch.args" (list (prepend $options "prober") $replay $prober.extraArgs) | nindent 6 }}
    env:
      # CUDA keeps compiled kernels below HOME.
      - {name: HOME, value: /tmp}
      {{- include "wirewatch.environment" (list . $prober) | trim | nindent 6 }}
    # Whether its loop turns: any answer will do.
    livenessProbe:
      exec:
        command:
          - python3
          - -ISc
          - |
            {{- .Files.Get "scripts/lives.py" | trim | nindent 12 }}
      initialDelaySeconds: 20
      periodSeconds: 60
      timeoutSeconds: 10
      failureThreshold: 3
    {{- include "wirewatch.given" (list 4 $prober "envFrom" "resources") }}
    securityContext:
      {{- include "wirewatch.root" 0 | nindent 6 }}
      {{- if $prober.privileged }}
      privileged: true
      readOnlyRootFilesystem: true
      {{- else }}
      {{- include "wirewatch.confined" . | nindent 6 }}
      {{- end }}
    volumeMounts:
      - {name: config, mountPath: /etc/wirewatch/wirewatch.toml, subPath: wirewatch.toml, readOnly: true}
      - {name: run, mountPath: /run/wirewatch}
      - {name: tmp, mountPath: /tmp}
      - {name: shm, mountPath: /dev/shm}
      {{- with include "wirewatch.mounts" (list . "prober") | trim }}{{ . | nindent 6 }}{{ end }}
  {{- end }}
  {{- with .Values.sidecars }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
volumes:
  - name: config
    configMap: {name: {{ include "wirewatch.daemons" . }}}
  - name: run
    {{- if .Values.gate.hostPath }}
    hostPath: {path: {{ .Values.gate.hostPath }}, type: DirectoryOrCreate}
    {{- else }}
    # Sockets, and the files of a probe while it runs: NCCL's log is of no known length.
    emptyDir: {sizeLimit: 64Mi}
    {{- end }}
  {{- if $state }}
  - name: state
    hostPath: {path: {{ .Values.state.hostPath }}, type: DirectoryOrCreate}
  {{- else if not .Values.replay }}
  - {name: state, emptyDir: {}}
  {{- end }}
  {{- if $jobs }}
  - name: jobs
    hostPath: {path: {{ .Values.jobs.hostPath }}, type: DirectoryOrCreate}
  {{- with .Values.jobs.libraryPath }}
  - name: tap
    hostPath: {path: {{ . }}, type: DirectoryOrCreate}
  {{- end }}
  {{- end }}
  {{- with .Values.web.secret }}
  - name: web
    secret: {secretName: {{ . }}, defaultMode: 0440}
  {{- end }}
  {{- if include "wirewatch.condition" . }}
  {{- include "wirewatch.token" . | nindent 2 }}
  {{- end }}
  {{- if $prober.enabled }}
  - name: tmp
    emptyDir: {sizeLimit: 256Mi}
  - name: shm
    emptyDir: {medium: Memory, sizeLimit: {{ $prober.shm }}}
  {{- end }}
  {{- range include "wirewatch.read" . | fromJsonArray }}
  - name: {{ .name }}
    hostPath: {{ pick . "path" "type" | toJson }}
  {{- end }}
  {{- with .Values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
