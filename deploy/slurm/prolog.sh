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

# verdict_of OPTION...: sets `verdict` by the file of the daemon, or by the daemon.
verdict_of() {
    read_verdict --fail-on "$FAIL_ON" "$@" ||
        ask "$DEADLINE" "prolog-$((${SLURM_JOB_ID:-0} % 8))" --cached --fail-on "$FAIL_ON" "$@"
}

# First of all, so that a probe ends while the verdict is read.
hold
of_job=()
[[ $SHARED != yes ]] || of_job=(--gpus "$SLURM_JOB_GPUS")
verdict_of "${of_job[@]}"
# Slurm numbers the GPUs that it has. Where it has not all of the node, its numbers are of others.
if [[ $verdict == fit && $answer == *" not of this job"* ]]; then
    gpus_of_slurm
    [[ -n $count ]] && of_job+=(--of "$count") || of_job=()
    verdict_of "${of_job[@]}"
fi
case $verdict in
    fit)
        [[ $health != UNKNOWN && $answer != *" not of this job"* ]] || log "the job starts: $answer"
        [[ $health == UNKNOWN ]] || released
        starts
        ;;
    none)
        log "the job starts, wirewatch gave no verdict: $answer"
        starts
        ;;
esac

if [[ $SHARED == yes ]]; then
    why=$answer
    verdict_of --without-gpus
    if [[ $verdict != unfit ]]; then
        turn_away
        case $outcome in
            away)
                log "turned away: $why"
                end_hold
                exit 0
                ;;
            brake) log "brake: not turned away, Slurm has started this job $MAX_AWAY times again" ;;
        esac
        log "the job starts on an unfit GPU: $why"
        starts
    fi
fi
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
