{{- /* Folders of the node that a value may name: none of the system's, and none for two purposes. */}}

{{- /* The kernel's and the boot loader's: never, nor anything in them. */}}
{{- define "wirewatch.kernels" }}/proc /sys /dev /boot{{ end }}

{{- /* Of one program or of the system's own files: in them only a folder of which a name says wirewatch. */}}
{{- define "wirewatch.owned" -}}
/bin /sbin /lib /lib32 /lib64 /libx32 /etc /usr /root /snap /nix /ostree /sysroot /lost+found /home/kubernetes /opt/cni /opt/containerd
/opt/amazon /opt/slurm /run/systemd /run/udev /run/dbus /run/user /run/lock /run/log /run/mount /run/netns /run/secrets
/run/credentials /run/initramfs /run/sshd /run/containerd /run/crio /run/docker /run/docker.sock /run/containers /run/podman /run/runc
/run/crun /run/k3s /run/k0s /run/rke2 /run/cni /run/flannel /run/calico /run/cilium /run/kubernetes /run/nvidia /run/nvidia-fabricmanager
/run/nvidia-persistenced /run/munge /run/slurm /run/slurmd /run/NetworkManager /run/lvm /run/nscd /run/chrony /run/cdi /run/nri
/run/wirewatch-holds /var/lib/kubelet /var/lib/containerd /var/lib/docker /var/lib/containers /var/lib/crio /var/lib/cni /var/lib/calico
/var/lib/cilium /var/lib/etcd /var/lib/rancher /var/lib/k0s /var/lib/minikube /var/lib/kubernetes /var/lib/buildkit /var/lib/cloud
/var/lib/systemd /var/lib/dbus /var/lib/dpkg /var/lib/apt /var/lib/rpm /var/lib/dnf /var/lib/snapd /var/lib/NetworkManager /var/lib/nfs
/var/lib/sss /var/lib/polkit-1 /var/lib/pam /var/lib/private /var/lib/machines /var/lib/libvirt /var/lib/lxc /var/lib/lxd /var/lib/munge
/var/lib/slurm /var/lib/slurmd /var/lib/nvidia /var/lib/mysql /var/lib/postgresql /var/lib/prometheus /var/lib/grafana /var/lib/node_exporter
/var/lib/chrony /var/lib/ntp /var/lib/dhcp /var/lib/dhclient /var/lib/logrotate /var/lib/iscsi /var/lib/longhorn /var/lib/rook /var/log/pods
/var/log/containers /var/log/journal /var/log/audit /var/spool/cron /var/spool/slurm /var/spool/slurmd /var/spool/slurmctld /var/snap
/var/cache/apt /var/cache/ldconfig /var/db /var/mail /var/backups /var/crash /var/empty /var/lock
{{- end }}

{{- /* Of many: not they themselves. */}}
{{- define "wirewatch.shared" }}/home /opt /srv /mnt /media /tmp /run /var /var/lib /var/log /var/cache /var/spool /var/tmp /var/opt /var/local{{ end }}

{{- /* What speaks against a folder: of (the path, whether the chart writes there), or empty. */}}
{{- define "wirewatch.againstFolder" -}}
{{- $path := regexReplaceAll "^/var/run(/|$)" (index . 0) "/run$1" -}}
{{- $kernels := printf " %s " (include "wirewatch.kernels" .) -}}
{{- $owned := printf " %s " (regexReplaceAll "\\s+" (include "wirewatch.owned" .) " ") -}}
{{- $all := printf "%s%s%s " $kernels $owned (include "wirewatch.shared" .) -}}
{{- if contains (printf " %s " $path) $all -}}
is a folder of the system
{{- else if contains (printf " %s/" $path) $all -}}
holds folders of the system
{{- else if index . 1 -}}
{{- $ours := regexMatch "/[^/]*wirewatch[^/]*(/|$)" $path -}}
{{- $above := "" -}}{{- $in := "" -}}
{{- range splitList "/" (dir $path | trimPrefix "/") -}}
{{- $above = printf "%s/%s" $above . -}}
{{- if contains (printf " %s " $above) (ternary $kernels (print $kernels $owned) $ours) }}{{ $in = $above }}{{ end -}}
{{- end -}}
{{- if $in -}}
is in {{ $in }}, which is the system's
{{- else if and (eq $above "/home") (not $ours) -}}
is somebody's home
{{- end -}}
{{- end -}}
{{- end }}

{{- /* Each folder that values of a DaemonSet name: of (the values, where they were given). */}}
{{- define "wirewatch.folderChecks" -}}
{{- $values := index . 0 -}}{{- $where := index . 1 -}}
{{- $written := dict "state.hostPath" $values.state.hostPath "gate.hostPath" $values.gate.hostPath "jobs.hostPath" $values.jobs.hostPath "jobs.libraryPath" $values.jobs.libraryPath -}}
{{- $read := dict "prober.podResources" $values.prober.podResources "prober.ncclConf" $values.prober.ncclConf -}}
{{- if eq $values.gpu.via "folder" }}{{ $_ := set $read "gpu.folder" $values.gpu.folder }}{{ end -}}
{{- $seen := dict -}}
{{- range $name := concat (keys $written | sortAlpha) (keys $read | sortAlpha) -}}
{{- with get (merge (dict) $written $read) $name -}}
{{- with include "wirewatch.againstFolder" (list . (hasKey $written $name)) }}{{ fail (printf "%s%s: %s %s; give wirewatch a folder of its own, such as /var/lib/wirewatch" $where $name (get (merge (dict) $written $read) $name) .) }}{{ end -}}
{{- $path := regexReplaceAll "^/var/run/" . "/run/" -}}
{{- range $other, $there := $seen -}}
{{- if eq $path $there }}{{ fail (printf "%s%s and %s: %s is one folder for two purposes; give each its own" $where $other $name $path) }}{{ end -}}
{{- if or (hasPrefix (printf "%s/" $path) $there) (hasPrefix (printf "%s/" $there) $path) }}{{ fail (printf "%s%s and %s: of %s and %s one holds the other; give each a folder of its own" $where $other $name $there $path) }}{{ end -}}
{{- end -}}
{{- $_ := set $seen $name $path -}}
{{- end -}}
{{- end -}}
{{- end }}
