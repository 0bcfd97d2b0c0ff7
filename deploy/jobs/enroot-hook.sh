#!/bin/bash
# /etc/enroot/hooks.d/60-wirewatch.sh: the tap in every container of enroot, and so of pyxis, that runs in a Slurm job. It mounts the library
# and the job's own folder of rings, which prolog.sh makes, where they lie outside, and names both. Whatever is missing, the container
# starts without the tap. The folder of all rings is never mounted: there root of a container could write as anybody.
library=/opt/wirewatch/lib/libwirewatch-tap.so
rings=/run/wirewatch-jobs/slurm/$SLURM_JOB_ID

[ -r "$library" ] && [ -n "$SLURM_JOB_ID" ] && [ -w "$rings" ] || exit 0
# The image or the user has a profiler, or wants none.
grep -qs '^NCCL_PROFILER_PLUGIN=' "$ENROOT_ENVIRON" && exit 0

enroot-mount --root "$ENROOT_ROOTFS" - <<END || exit 0
$library $library none x-create=file,bind,ro,nosuid,nodev
$rings $rings none x-create=dir,bind,rw,nosuid,nodev,noexec
END
printf '%s\n' "NCCL_PROFILER_PLUGIN=$library" "WIREWATCH_TAP_DIR=$rings" >> "$ENROOT_ENVIRON"
exit 0
