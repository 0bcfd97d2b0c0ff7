{{- /* One DaemonSet: of the whole with the values of a pool merged in, or of the rest. */}}
{{- define "wirewatch.daemonset" -}}
{{- $name := include "wirewatch.daemons" . }}
{{- $prober := .Values.prober }}
{{- $state := and .Values.state.hostPath (not .Values.replay) }}
{{- $folders := list }}
{{- if $state }}{{ $folders = append $folders "/var/lib/wirewatch" }}{{ end }}
{{- if .Values.gate.hostPath }}{{ $folders = append $folders "/run/wirewatch" }}{{ end }}
{{- $jobs := include "wirewatch.jobs" . -}}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ $name }}
  namespace: {{ .Release.Namespace }}
  labels: {{- include "wirewatch.labels" . | nindent 4 }}
spec:
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
        nvidia.cdi.k8s.io/container.agent: {{ .Values.gpu.cdiDevice }}
        {{- if $prober.enabled }}
        nvidia.cdi.k8s.io/container.prober: {{ .Values.gpu.cdiDevice }}
        {{- end }}
        {{- end }}
        {{- with .Values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ include "wirewatch.serviceAccount" . }}
      # The agent alone gets a token, and only for the node's condition: see the volume of that name.
      automountServiceAccountToken: false
      {{- if $prober.enabled }}
      # Of the whole pod: Kubernetes has no PID namespace for one container. The prober needs it.
      hostPID: true
      {{- end }}
      {{- if .Values.hostNetwork }}
      hostNetwork: true
      dnsPolicy: ClusterFirstWithHostNet
      {{- end }}
      enableServiceLinks: false
      {{- with .Values.runtimeClassName }}
      runtimeClassName: {{ . }}
      {{- end }}
      {{- with .Values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- with .Values.imagePullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      terminationGracePeriodSeconds: {{ int64 .Values.terminationGracePeriodSeconds }}
      {{- with merge (dict) (default dict (default dict .pool).nodeSelector) .Values.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with include "wirewatch.affinity" . | fromYaml }}
      affinity: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        fsGroup: {{ int64 .Values.runAs.group }}
        {{- with .Values.supplementalGroups }}
        supplementalGroups: {{- toYaml . | nindent 10 }}
        {{- end }}
        {{- with .Values.seLinuxOptions }}
        seLinuxOptions: {{- toYaml . | nindent 10 }}
        {{- end }}
        seccompProfile:
          type: RuntimeDefault
      {{- if or $folders $jobs .Values.initContainers }}
      initContainers:
      {{- end }}
      {{- if include "wirewatch.mounting" . }}
        # The memory that rings may take: jobs write there, and shall not fill the node's /run. The mount outlives this pod, and with it
        # the rings. Where there is one it stays, and rings of jobs that run are not hidden by a new one.
        - name: mount
          image: {{ include "wirewatch.image" $ }}
          imagePullPolicy: {{ $.Values.image.pullPolicy }}
          command: [sh, -ec]
          args:
            - |
              at=/run/wirewatch-jobs
              while read -r _ _ _ root where _; do [ "$where" != $at ] || own=$root; done < /proc/self/mountinfo
              if [ "$own" = / ] || [ -n "$(find $at -name '*.ring')" ]; then exit 0; fi
              mount -t tmpfs -o size={{ .Values.jobs.size | trimSuffix "i" | lower }},nr_inodes=0,mode=0750,nosuid,nodev,noexec wirewatch-jobs $at
          resources:
            requests: {cpu: 10m, memory: 16Mi}
            limits: {memory: 64Mi}
          securityContext:
            # To mount for the node as a whole takes this; it sees nothing of the node but this folder.
            privileged: true
            runAsNonRoot: false
            runAsUser: 0
            runAsGroup: 0
            readOnlyRootFilesystem: true
          volumeMounts:
            - {name: jobs, mountPath: /run/wirewatch-jobs, mountPropagation: Bidirectional}
      {{- end }}
      {{- if or $folders $jobs }}
        # fsGroup does nothing for hostPath. Root without any capability may change what it owns, and give it to its own group.
        - name: folders
          image: {{ include "wirewatch.image" $ }}
          imagePullPolicy: {{ $.Values.image.pullPolicy }}
          command: [sh, -ec]
          args:
            - |
              [ $# = 0 ] || find "$@" -xdev -user 0 ! -type l -exec chgrp "$(id -g)" {} + -exec chmod g+rwX {} +
              {{- if $jobs }}
              # The kubelet makes the folders of pods with the mode and the group of theirs: any user of a pod writes, the agent removes.
              # None but root and the agent comes here otherwise, so that nobody else gives a folder its name.
              cd /run/wirewatch-jobs
              if [ -O . ]; then chgrp "$(id -g)" .; chmod 0750 .; fi
              mkdir -p pods
              if [ -O pods ]; then chgrp "$(id -g)" pods; chmod 2773 pods; fi
              {{- end }}
            - folders
            {{- with $folders }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          resources:
            requests: {cpu: 10m, memory: 16Mi}
            limits: {memory: 64Mi}
          securityContext:
            runAsNonRoot: false
            runAsUser: 0
            runAsGroup: {{ int64 $.Values.runAs.group }}
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities:
              drop: [ALL]
          volumeMounts:
            {{- if $state }}
            - {name: state, mountPath: /var/lib/wirewatch}
            {{- end }}
            {{- if $.Values.gate.hostPath }}
            - {name: run, mountPath: /run/wirewatch}
            {{- end }}
            {{- if $jobs }}
            - {name: jobs, mountPath: /run/wirewatch-jobs}
            {{- end }}
        {{- if $jobs }}
        {{- if .Values.jobs.libraryPath }}
        # Root's, so that the agent cannot change what every job loads.
        - name: tap
          image: {{ include "wirewatch.image" $ }}
          imagePullPolicy: {{ $.Values.image.pullPolicy }}
          args: [jobs, install, /host{{ .Values.jobs.libraryPath }}]
          resources:
            requests: {cpu: 10m, memory: 64Mi}
            limits: {memory: 128Mi}
          securityContext:
            runAsNonRoot: false
            runAsUser: 0
            runAsGroup: 0
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities:
              drop: [ALL]
          volumeMounts:
            - {name: tap, mountPath: /host{{ .Values.jobs.libraryPath }}}
        {{- end }}
        {{- end }}
      {{- end }}
      {{- with .Values.initContainers }}
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: agent
          image: {{ include "wirewatch.image" . }}
          imagePullPolicy: {{ .Values.image.pullPolicy }}
          args:
            - serve
            - --config=/etc/wirewatch/wirewatch.toml
            {{- with .Values.replay }}
            - --replay={{ . }}
            - --loop
            {{- end }}
          ports:
            - name: metrics
              containerPort: {{ .Values.listen.port }}
              {{- with .Values.listen.hostPort }}
              hostPort: {{ . }}
              {{- end }}
              protocol: TCP
          env:
            - name: NODE_NAME
              valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
            - {name: RUNTIME_DIRECTORY, value: /run/wirewatch}
            {{- include "wirewatch.environment" (list . .Values.agent) | trim | nindent 12 }}
          # The loops turn, and the first polls have ended. Neither is the verdict: a sick GPU restarts no pod.
          livenessProbe:
            httpGet: {path: /livez, port: metrics{{ if .Values.web.tls }}, scheme: HTTPS{{ end }}}
            initialDelaySeconds: 10
            periodSeconds: 15
            timeoutSeconds: 5
            failureThreshold: 4
          readinessProbe:
            httpGet: {path: /readyz, port: metrics{{ if .Values.web.tls }}, scheme: HTTPS{{ end }}}
            periodSeconds: 5
            timeoutSeconds: 5
          {{- with .Values.agent.resources }}
          resources: {{- toYaml . | nindent 12 }}
          {{- end }}
          securityContext:
            readOnlyRootFilesystem: true
            {{- if .Values.agent.privileged }}
            privileged: true
            runAsNonRoot: false
            runAsUser: 0
            runAsGroup: {{ int64 .Values.runAs.group }}
            {{- else }}
            runAsNonRoot: true
            runAsUser: {{ int64 .Values.runAs.user }}
            runAsGroup: {{ int64 .Values.runAs.group }}
            allowPrivilegeEscalation: false
            capabilities:
              drop: [ALL]
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
            {{- if .Values.agent.sysfs }}
            - {name: sys-bus, mountPath: /sys/bus, readOnly: true}
            - {name: sys-class, mountPath: /sys/class, readOnly: true}
            - {name: sys-devices, mountPath: /sys/devices, readOnly: true}
            {{- end }}
            {{- if .Values.web.secret }}
            - {name: web, mountPath: /etc/wirewatch/web, readOnly: true}
            {{- end }}
            {{- if include "wirewatch.condition" . }}
            - {name: token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
            {{- end }}
            {{- with include "wirewatch.mounts" (list . .Values.agent) | trim }}
            {{- . | nindent 12 }}
            {{- end }}
        {{- if $prober.enabled }}
        - name: prober
          image: {{ include "wirewatch.image" . }}
          imagePullPolicy: {{ .Values.image.pullPolicy }}
          args:
            - prober
            - --config=/etc/wirewatch/wirewatch.toml
            - --socket=/run/wirewatch/prober.sock
            - --group={{ int64 .Values.runAs.group }}
            {{- with .Values.replay }}
            - --replay={{ . }}
            - --loop
            {{- end }}
          env:
            # CUDA keeps compiled kernels below HOME.
            - {name: HOME, value: /tmp}
            {{- include "wirewatch.environment" (list . $prober) | trim | nindent 12 }}
          # Whether its loop turns: any answer will do.
          livenessProbe:
            exec:
              command:
                - python3
                - -ISc
                - |
                  import socket
                  with socket.socket(socket.AF_UNIX) as asking:
                      asking.settimeout(8)
                      asking.connect("/run/wirewatch/prober.sock")
                      asking.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                      assert asking.recv(9) == b"HTTP/1.1 "
            initialDelaySeconds: 20
            periodSeconds: 60
            timeoutSeconds: 10
            failureThreshold: 3
          {{- with $prober.resources }}
          resources: {{- toYaml . | nindent 12 }}
          {{- end }}
          securityContext:
            runAsNonRoot: false
            runAsUser: 0
            runAsGroup: 0
            {{- if $prober.privileged }}
            privileged: true
            readOnlyRootFilesystem: true
            {{- else }}
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities:
              drop: [ALL]
            {{- end }}
          volumeMounts:
            - {name: config, mountPath: /etc/wirewatch/wirewatch.toml, subPath: wirewatch.toml, readOnly: true}
            - {name: run, mountPath: /run/wirewatch}
            - {name: tmp, mountPath: /tmp}
            - {name: shm, mountPath: /dev/shm}
            {{- if $prober.podResources }}
            - {name: pod-resources, mountPath: /var/lib/kubelet/pod-resources, readOnly: true}
            {{- end }}
            {{- if $prober.endedPods }}
            - {name: pod-logs, mountPath: /var/log/pods, readOnly: true}
            - {name: cgroups, mountPath: /sys/fs/cgroup, readOnly: true}
            {{- end }}
            {{- if $prober.ncclConf }}
            - {name: nccl-conf, mountPath: /etc/nccl.conf, readOnly: true}
            {{- end }}
            {{- with include "wirewatch.mounts" (list . $prober) | trim }}
            {{- . | nindent 12 }}
            {{- end }}
        {{- end }}
        {{- with .Values.sidecars }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      volumes:
        - name: config
          configMap: {name: {{ $name }}}
        - name: run
          {{- if .Values.gate.hostPath }}
          hostPath: {path: {{ .Values.gate.hostPath }}, type: DirectoryOrCreate}
          {{- else }}
          # Sockets, and the files of a probe while it runs: NCCL's log is of no known length.
          emptyDir: {sizeLimit: 64Mi}
          {{- end }}
        {{- if not .Values.replay }}
        - name: state
          {{- if $state }}
          hostPath: {path: {{ .Values.state.hostPath }}, type: DirectoryOrCreate}
          {{- else }}
          emptyDir: {}
          {{- end }}
        {{- end }}
        {{- if $jobs }}
        - name: jobs
          hostPath: {path: {{ .Values.jobs.hostPath }}, type: DirectoryOrCreate}
        {{- with .Values.jobs.libraryPath }}
        - name: tap
          hostPath: {path: {{ . }}, type: DirectoryOrCreate}
        {{- end }}
        {{- end }}
        {{- if .Values.agent.sysfs }}
        # Not /sys as a whole: what is mounted below it (cgroups, debugfs) would stay writable.
        - name: sys-bus
          hostPath: {path: /sys/bus, type: Directory}
        - name: sys-class
          hostPath: {path: /sys/class, type: Directory}
        - name: sys-devices
          hostPath: {path: /sys/devices, type: Directory}
        {{- end }}
        {{- with .Values.web.secret }}
        - name: web
          secret: {secretName: {{ . }}, defaultMode: 0440}
        {{- end }}
        {{- if include "wirewatch.condition" . }}
        - name: token
          projected:
            defaultMode: 0440
            sources:
              - serviceAccountToken: {path: token, expirationSeconds: 3600}
              - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
              - downwardAPI: {items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]}
        {{- end }}
        {{- if $prober.enabled }}
        - name: tmp
          emptyDir: {sizeLimit: 256Mi}
        - name: shm
          emptyDir: {medium: Memory, sizeLimit: {{ $prober.shm }}}
        {{- with $prober.podResources }}
        - name: pod-resources
          hostPath: {path: {{ . }}, type: Directory}
        {{- end }}
        {{- if $prober.endedPods }}
        - name: pod-logs
          hostPath: {path: /var/log/pods, type: Directory}
        - name: cgroups
          hostPath: {path: /sys/fs/cgroup, type: Directory}
        {{- end }}
        {{- with $prober.ncclConf }}
        - name: nccl-conf
          hostPath: {path: {{ . }}, type: File}
        {{- end }}
        {{- end }}
        {{- if eq .Values.gpu.via "volumeMounts" }}
        # The toolkit reads the name of the mount, not what is mounted.
        - name: all-gpus
          hostPath: {path: /dev/null}
        {{- end }}
        {{- if eq .Values.gpu.via "folder" }}
        - name: driver
          hostPath: {path: {{ .Values.gpu.folder }}, type: Directory}
        {{- end }}
        {{- with .Values.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- end }}
