#!/bin/bash
# The brake: how many nodes may be drained within an hour, and how many may be out of use in all. lib.sh sources this.
# By hand, `brake.sh [NODE]` prints how many are, in the cluster, and in the partitions and the rack of a node.
#
# `weigh` is a function of its input, of NODE, NEW_CLUSTER, NEW_POOL, NEW_RACK, STOCK and REASON, and of the time alone.
# agent/wirewatch_fleet/controller/brake.py has the same rule for Kubernetes; tests/brakes.py is the table of both.

# allowed SHARE NODES: sets `most`: a number, or a percentage rounded down, but not to nothing.
allowed() {
    most=$1
    [[ $1 == *% ]] || return 0
    most=$(($2 * ${1%\%} / 100))
    ((most > 0 || ${1%\%} == 0 || $2 == 0)) || most=1
}

# weigh RACK NODES: reads all nodes from standard input, a line for each of their partitions, as `look` asks for them:
# node|partition|state|when Slurm's reason was written|reason. RACK has a name, "" for none, and these NODES.
#
# Sets `own`, the reason of this node, "" where it is not drained; `scope`, what does not let it be drained, "" where
# all do: cluster, pool, rack or stock; `held`, the same in words and numbers; and `tallies`, a line for each unit.
#
# Only what we drained is ever new, for an hour from the time in our reason. All else that is out of use is stock, also
# where a person's edit has removed that time. Of a node that is drained itself, only what was drained before it counts:
# by the second of Slurm's clock and then by name, on which all nodes agree. An edit resets that clock, so what was drained
# ten minutes ago goes by its reason: clocks of nodes are within five of each other, or munge would refuse them.
weigh() {
    local -A units=() kinds=() turns=() nodes=() new=() stock=()
    local -x TZ=UTC0
    local -r ours='drained ([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})Z'
    local node pool state time reason unit share now hour soon
    printf -v now '%(%s)T' -1
    printf -v hour '%(%FT%T)T' "$((now - 3600))"
    printf -v soon '%(%FT%T)T' "$((now - 600))"
    own='' scope='' held='' tallies=''
    while IFS='|' read -r node pool state time reason; do
        [[ -n $node ]] || continue
        units[$node]+=" pool:${pool%\*}"
        [[ -z ${kinds[$node]} ]] || continue
        case $state in
            drain* | down* | fail*) kinds[$node]=out ;;
            *) kinds[$node]=in ;;
        esac
        [[ $node != "$NODE" || $state != drain* ]] || own=$reason
        [[ ${kinds[$node]} == out && " $reason" == *" $REASON: "* && $reason =~ $ours ]] || continue
        [[ ${BASH_REMATCH[1]} > $hour ]] || continue
        kinds[$node]=new
        [[ ${BASH_REMATCH[1]} > $soon ]] || time=${BASH_REMATCH[1]}
        turns[$node]="$time|$node"
    done
    for node in $2; do units[$node]+=" rack:$1"; done
    local -r mine=" cluster${units[$NODE]} "
    for node in "${!kinds[@]}"; do
        state=${kinds[$node]}
        [[ $node != "$NODE" ]] || state=in
        [[ $state != new || -z $own || ${turns[$node]} < ${turns[$NODE]} ]] || state=in
        for unit in cluster ${units[$node]}; do
            [[ $mine == *" $unit "* ]] || continue
            nodes[$unit]=$((${nodes[$unit]:-0} + 1))
            [[ $state == in ]] || stock[$unit]=$((${stock[$unit]:-0} + 1))
            [[ $state != new ]] || new[$unit]=$((${new[$unit]:-0} + 1))
        done
    done
    for unit in $mine; do
        # A partition of all nodes is no pool.
        [[ $unit != pool:* || ${nodes[$unit]} != "${nodes[cluster]}" ]] || continue
        case $unit in
            cluster) share=$NEW_CLUSTER ;;
            pool:*) share=$NEW_POOL ;;
            *) share=$NEW_RACK ;;
        esac
        allowed "$share" "${nodes[$unit]:-0}"
        time="${unit/:/ }: ${new[$unit]:-0} of ${nodes[$unit]:-0} nodes taken out within an hour, $most may be"
        tallies+="$time; ${stock[$unit]:-0} out of use in all"$'\n'
        [[ -z $held && ${new[$unit]:-0} -ge $most ]] || continue
        scope=${unit%%:*} held=$time
    done
    allowed "$STOCK" "${nodes[cluster]:-0}"
    ((most >= ${stock_least:-0})) || most=$stock_least
    [[ -z $held && ${stock[cluster]:-0} -ge $most ]] || return 0
    scope=stock held="cluster: ${stock[cluster]:-0} of ${nodes[cluster]:-0} nodes out of use, $most may be"
}

if [[ ${#BASH_SOURCE[@]} == 1 && ${BASH_SOURCE[0]} == "$0" ]]; then
    part=brake
    here=$(readlink -f -- "$0")
    here=${here%/*}
    # shellcheck source=deploy/slurm/lib.sh
    . "$here/lib.sh" || exit
    NODE=${1:-$NODE}
    look || { printf '%s\n' "$told" >&2; exit 1; }
    printf '%s' "$tallies"
    printf '%s\n' "${held:+the brake holds: $held}"
fi
