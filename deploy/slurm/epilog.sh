#!/bin/bash
# Epilog: probes the wires when the last probe is older than MAX_AGE, while the GPUs still are the job's and Slurm
# starts no other job on this node. An unfit node is drained. The exit status is always 0: any other would drain
# the node for the reason "Epilog error".

part=epilog
here=${BASH_SOURCE[0]}
[[ $here == */* && ! -L $here ]] || here=$(PATH=/usr/bin:/bin readlink -f -- "$here")
here=${here%/*}
# shellcheck source=deploy/slurm/lib.sh
. "$here/lib.sh" || exit 0

remove_rings
end_hold
case $EPILOG_FOR in
    gpus) [[ -n $SLURM_JOB_GPUS ]] || exit 0 ;;
    all) ;;
    *) exit 0 ;;
esac
[[ -n $SLURM_JOB_ID ]] || exit 0

read_verdict --fail-on "$FAIL_ON" --max-age "$MAX_AGE" "${of_node[@]}" ||
    ask "$EPILOG_DEADLINE" "epilog-$((SLURM_JOB_ID % 8))" --owner "slurm:$SLURM_JOB_ID" --max-age "$MAX_AGE" \
        --fail-on "$FAIL_ON" "${of_node[@]}"
case $verdict in
    fit) [[ $health == UNKNOWN ]] || released ;;
    unfit) drain_and_tell "$answer" ;;
    none) log "wirewatch gave no verdict: $answer" ;;
esac
exit 0
