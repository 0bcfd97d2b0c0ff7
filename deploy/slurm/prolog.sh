#!/bin/bash
# Prolog: reads the verdict of the daemon and never waits for hardware. An unfit node is drained, and the job
# goes back into the queue; whatever else happens, the job starts. README.md has the table.

part=prolog
here=${BASH_SOURCE[0]}
[[ $here == */* && ! -L $here ]] || here=$(PATH=/usr/bin:/bin readlink -f -- "$here")
here=${here%/*}
# shellcheck source=deploy/slurm/lib.sh
. "$here/lib.sh" || exit 0

# starts: the job does, and no probe is on its GPUs.
starts() {
    until_quiet
    make_rings || log "no folder for the rings of this job: they lie among those of all users, in $RINGS"
    exit 0
}

# First of all, so that a probe ends while the verdict is read.
hold
read_verdict --fail-on "$FAIL_ON" ||
    ask "$DEADLINE" "prolog-$((${SLURM_JOB_ID:-0} % 8))" --cached --fail-on "$FAIL_ON"
case $verdict in
    fit)
        if [[ $health == UNKNOWN ]]; then
            log "the job starts: $answer"
        else
            released
        fi
        starts
        ;;
    none)
        log "the job starts, wirewatch gave no verdict: $answer"
        starts
        ;;
esac

drain_and_tell "$answer"
case $outcome in
    drained | already)
        end_hold
        # Only now that the node is drained: on a node that is not, Slurm puts "Prolog error" where our reason belongs.
        exit 1
        ;;
esac
log "the job starts on an unfit node: $answer"
starts
