#!/bin/bash
# /etc/enroot/hooks.d/60-wirewatch.sh: the tap in every container of enroot, and so of pyxis. It mounts the library and the folder of
# rings where they lie outside, and names the library to NCCL. Whatever is missing, the container starts without the tap.
library=/opt/wirewatch/lib/libwirewatch-tap.so
rings=/run/wirewatch-jobs

[ -r "$library" ] && [ -d "$rings" ] || exit 0
# The image or the user has a profiler, or wants none.
grep -qs '^NCCL_PROFILER_PLUGIN=' "$ENROOT_ENVIRON" && exit 0

enroot-mount --root "$ENROOT_ROOTFS" - <<END || exit 0
$library $library none x-create=file,bind,ro,nosuid,nodev
$rings $rings none x-create=dir,bind,rw,nosuid,nodev,noexec
END
echo "NCCL_PROFILER_PLUGIN=$library" >> "$ENROOT_ENVIRON"
exit 0
