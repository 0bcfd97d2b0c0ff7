#!/bin/bash
# HealthCheckProgram: drains a node that has become unfit, and resumes one that was drained for our reason and is
# fit again. Slurm ignores its exit status.

part="health check"
here=${BASH_SOURCE[0]}
[[ $here == */* && ! -L $here ]] || here=$(PATH=/usr/bin:/bin readlink -f -- "$here")
here=${here%/*}
# shellcheck source=deploy/slurm/lib.sh
. "$here/lib.sh" || exit 0

# Resumes this node if it was drained for our reason. A fit node asks the controller once after each boot and after
# each drain of ours, and then no more: thousands of nodes call this every minute.
#
# Never at the first check after a boot: slurmd runs that one before it registers, and a node that is resumed by then
# is taken for one that crashed, and set down ("Node unexpectedly rebooted").
resume() {
    if [[ ! -e $RUN/booted ]]; then
        : >"$RUN/booted"
        return
    fi
    rack='' neighbours='' # a fit node needs no place
    look || return
    if [[ -z $own ]]; then
        : >"$RUN/not-ours"
    elif ours; then
        undrain && log "resumed, it was drained for: $own"
    fi
}

# The lock comes first, so that a verdict of before never takes back the drain of a prolog that knows better.
[[ -e $RUN/not-ours ]] || lock || exit 0
until='' # the time for Slurm begins after the check

# FAIL_ON is when to drain. UNKNOWN is not fit for the way back either.
fail_on=$FAIL_ON
[[ ,$FAIL_ON, == *,unknown,* ]] || fail_on+=,unknown
read_verdict --fail-on "$fail_on" "${of_node[@]}" ||
    ask "$HEALTH_DEADLINE" healthcheck --cached --fail-on "$fail_on" "${of_node[@]}"
case $verdict in
    fit)
        released
        [[ -e $RUN/not-ours ]] || resume
        ;;
    unfit)
        [[ ,$FAIL_ON, != *",${health,,},"* && $health != FAILED ]] || drain_and_tell "$answer"
        ;;
    none)
        log "wirewatch gave no verdict: $answer"
        ;;
esac
exit 0
