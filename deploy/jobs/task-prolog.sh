#!/bin/bash
# Slurm's TaskProlog: the tap in each task that does not bring a profiler of its own. It takes some milliseconds, and whatever is
# missing, the task starts without the tap. Rings go into the job's own folder where prolog.sh has made one, else to those of all users
# of the node. Containers of pyxis need enroot-hook.sh too, which mounts what this names.
#
# The first task of a job on a node that the brake of deploy/slurm keeps in use has a line about it in its output.
library=${WIREWATCH_TAP:-/opt/wirewatch/lib/libwirewatch-tap.so}
rings=${WIREWATCH_TAP_DIR:-/run/wirewatch-jobs}
own=$rings/slurm/$SLURM_JOB_ID
brake=${WIREWATCH_BRAKE:-/run/wirewatch-slurm/brake}

if [ "${SLURM_LOCALID:-0}" = 0 ] && [ -r "$brake" ]; then
    { read -r _ && read -r line; } <"$brake" && echo "print wirewatch: ${SLURMD_NODENAME:-this node} is $line"
fi

# Set to nothing is a choice as well.
[ -n "${NCCL_PROFILER_PLUGIN+set}" ] && exit 0
if [ -r "$library" ] && [ -d "$rings" ]; then
    echo "export NCCL_PROFILER_PLUGIN=$library"
    [ -n "$SLURM_JOB_ID" ] && [ -w "$own" ] && echo "export WIREWATCH_TAP_DIR=$own"
fi
exit 0
