# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154  # variables go from here to the three scripts, and the other way
#
# What prolog.sh, epilog.sh and healthcheck.sh share; they set `part` and `here` and source this.
#
# Neither `set -e` nor `set -u`: a slip in here must not become an exit status that drains a node.

# slurmd gives its scripts no PATH, the health check no SLURM_CONF either.
PATH=/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin
PATH+=:/opt/slurm/bin:/usr/local/slurm/bin:/cm/local/apps/slurm/current/bin
LC_ALL=C SLURM_TIME_FORMAT=standard
export PATH LC_ALL SLURM_TIME_FORMAT

# Defaults; wirewatch-slurm.conf says what they mean.
WIREWATCH=/usr/local/bin/wirewatch
CHECK_OPTIONS=()
GATE_OPTIONS=()
FAIL_ON=failed
VERDICT=
DEADLINE=3
HEALTH_DEADLINE=40
EPILOG_FOR=gpus
EPILOG_DEADLINE=60
MAX_AGE=2h
NEW_CLUSTER=
NEW_POOL=10%
NEW_RACK=10%
STOCK=
MAX_DRAINED=
SHARED=
MAX_AWAY=3
REASON=wirewatch
SLURM_DEADLINE=6
NODE=${SLURMD_NODENAME:-}
LOGGER=/usr/bin/logger
LOG_DEADLINE=2
RUN=/run/wirewatch-slurm
RINGS=/run/wirewatch-jobs
RINGS_SIZE=64m
HOLDS=/run/wirewatch-holds
HOLD=3600
HOLD_DEADLINE=3

# log TEXT: a line for the syslog; one that does not take a line gets no more. Nothing ever goes to standard output
# or error, which slurmd keeps as a failure's.
log() {
    [[ -z $deaf ]] || return
    { timeout --signal=KILL "$LOG_DEADLINE" "$LOGGER" -t wirewatch-slurm -p daemon.warning -- \
        "$part${SLURM_JOB_ID:+ of job $SLURM_JOB_ID} on $NODE: ${1//[![:print:]]/ }" </dev/null; } >/dev/null 2>&1
    [[ $? != 137 ]] || deaf=yes
}

# number NAME DEFAULT: a setting that is no number gets its default.
number() {
    [[ ${!1} =~ ^(0|[1-9][0-9]{0,5})$ ]] && return
    log "$1 is no number: '${!1}'; taking $2"
    printf -v "$1" %s "$2"
}

# share NAME DEFAULT: the same for a setting that is a number of nodes or a percentage.
share() {
    [[ ${!1} =~ ^(0|[1-9][0-9]{0,5}|(100|[0-9]{1,2})%)$ ]] && return
    log "$1 is no number of nodes and no percentage: '${!1}'; taking $2"
    printf -v "$1" %s "$2"
}

configure() {
    local -r conf=$here/wirewatch-slurm.conf
    local wrong=
    if [[ -e $conf ]]; then
        # shellcheck source=deploy/slurm/wirewatch-slurm.conf
        . "$conf" >/dev/null 2>&1 || wrong=yes
    fi
    NODE=${NODE:-$(hostname -s)}
    [[ -z $wrong ]] || log "$conf cannot be read to its end; the rest has its defaults"
    number LOG_DEADLINE 2
    number DEADLINE 3
    number HEALTH_DEADLINE 40
    number EPILOG_DEADLINE 60
    number MAX_AWAY 3
    number SLURM_DEADLINE 6
    number HOLD 3600
    number HOLD_DEADLINE 3
    if [[ -z $SLURM_CONF && -e /run/slurm/conf/slurm.conf ]]; then
        SLURM_CONF=/run/slurm/conf/slurm.conf # where a configless slurmd keeps it
    fi
    [[ -z $SLURM_CONF ]] || export SLURM_CONF
    # Without it no check begins, and that is told. The daemon, which is not root, reads there.
    [[ -d $RUN ]] || (umask 022 && mkdir -p "$RUN") 2>/dev/null || true
    if [[ -n $MAX_DRAINED && -z $NEW_CLUSTER ]]; then
        number MAX_DRAINED 4
        NEW_CLUSTER=$MAX_DRAINED
        [[ -n $STOCK ]] || stock_least=$MAX_DRAINED
        if [[ ! -e $RUN/migrated ]]; then
            log "MAX_DRAINED=$MAX_DRAINED is taken for NEW_CLUSTER, nodes drained within an hour, whatever else is in repair, and for \
the least of STOCK, nodes out of use; write these two"
            { : >"$RUN/migrated"; } 2>/dev/null
        fi
    fi
    : "${NEW_CLUSTER:=5%}" "${STOCK:=20%}"
    share NEW_CLUSTER 5%
    share NEW_POOL 10%
    share NEW_RACK 10%
    share STOCK 20%
}

# within SECONDS COMMAND...: runs it no longer than that; sets `status`, 124 for no end, and `told`, all it printed.
#
# The wait is for the pipe and not for a death: what hangs in a driver or on a file system outlives SIGKILL.
# The pipe is all that the command has of ours: slurmd waits for everybody who holds its own.
within() {
    local -r seconds=$1
    local fd
    shift
    exec {fd}< <(
        exec 2>&1 </dev/null
        [[ -z $locked ]] || exec {locked}>&-
        timeout --signal=KILL "$seconds.2" "$@"
        printf '\n%d\0' "$?"
    )
    status=124 told=
    if IFS= read -r -d '' -t "$seconds.4" told <&"$fd"; then
        status=${told##*$'\n'} told=${told%$'\n'*}
    fi
    exec {fd}<&-
}

# judge: what `status` and `told` of a gate or a check mean. Sets `verdict`: "fit", "unfit", or "none" for no answer
# that is one, `health`: OK, DEGRADED, FAILED or UNKNOWN, and `answer`, the line for people.
#
# An exit status alone is no verdict: a shell ends with 1 and 2 as well.
judge() {
    local -r nl=$'\n'
    local -r form="$nl((OK|DEGRADED|FAILED|UNKNOWN)([ ;:][^$nl]*)?)$nl"
    verdict=none health=''
    answer="exit status $status${told:+: $told}"
    [[ $nl$told$nl =~ $form ]] || return
    case $status${BASH_REMATCH[2]} in
        0OK | 0DEGRADED | 0FAILED | 0UNKNOWN) verdict=fit ;;
        1DEGRADED | 2FAILED | 3UNKNOWN) verdict=unfit ;;
        *) return ;;
    esac
    answer=${BASH_REMATCH[1]} health=${BASH_REMATCH[2]}
}

# read_verdict OPTION...: takes the verdict from the file that the daemon keeps, in milliseconds. False where the
# file has none, or `wirewatch check` may know more: then `ask`.
#
# As `within`, but without another program: a shell of its own reads, and is not waited for when it hangs.
read_verdict() {
    local file=$VERDICT fd gate
    # Options of the check may change its answer, or ask another daemon.
    [[ -n $file || ${#CHECK_OPTIONS[@]} -gt 0 ]] || file=/run/wirewatch/verdict
    [[ $file == /* ]] || return
    exec {fd}< <(
        exec 2>&1 </dev/null
        [[ -z $locked ]] || exec {locked}>&-
        # shellcheck source=deploy/slurm/gate.sh
        . "$here/gate.sh" --file "$file" --defer "$@" "${GATE_OPTIONS[@]}"
    )
    gate=$! told=
    IFS= read -r -d '' -t "$DEADLINE" told <&"$fd"
    status=$?
    exec {fd}<&-
    # Above 128: not yet at its end. A bash before 4.4 cannot wait for it, and the check is asked.
    ((status > 128)) || { wait "$gate" 2>/dev/null; status=$?; }
    judge
    [[ $verdict != none ]]
}

# ask SECONDS LOCK OPTION...: asks `wirewatch check`, and judges what it says. A check that does not die keeps its
# lock, and the next with the same lock is not started: so there are never many.
ask() {
    local -r seconds=$1 lock=$RUN/$2.lock
    shift 2
    within "$seconds" flock --conflict-exit-code 75 --wait "$((seconds > 1 ? seconds - 1 : 0)).5" "$lock" \
        "$WIREWATCH" check --deadline "${seconds}s" "$@" "${CHECK_OPTIONS[@]}"
    judge
    case $status in
        124 | 137) verdict=none health='' answer="no answer within $seconds s" ;;
        75) answer="an earlier check does not end" ;;
    esac
}

# lock: of all scripts on this node, one at a time changes the node's state. Held until the script's end.
lock() {
    [[ -z $locked ]] || return 0
    : "${until:=$((SECONDS + SLURM_DEADLINE))}"
    exec {locked}>"$RUN/state.lock" || return
    flock --wait "$SLURM_DEADLINE" "$locked" && return
    exec {locked}>&-
    locked=
    return 1
}

# ask_slurm COMMAND...: a question or an order to the controller; all of them, and the lock, have SLURM_DEADLINE s.
ask_slurm() {
    : "${until:=$((SECONDS + SLURM_DEADLINE))}"
    local -r left=$((until - SECONDS))
    within "$((left > 1 ? left : 1))" "$@"
    [[ $status == 0 ]]
}

# slurm COMMAND...: the same, and a line in the syslog where it fails.
slurm() {
    ask_slurm "$@" && return
    log "$1: exit status $status: $told"
    return 1
}

# beside: sets `rack`, the leaf switch or block of this node, and `neighbours`, its nodes; both "" where Slurm says that it
# has no topology, or this node no place in it, which may be an error to it. False where it does not answer: who does not
# know a rack must not pass its brake. Newer versions want a word before the name.
beside() {
    local line words
    rack='' neighbours=''
    for words in "$NODE" "node=$NODE"; do
        ask_slurm scontrol --oneliner show topology "$words" || [[ $told == *opology\ information* ]] || break
        while IFS= read -r line; do
            [[ $line =~ ^(SwitchName=([^\ ]+)\ Level=0|BlockName=([^\ ]+))\ .*Nodes=([^\ ]+) ]] || continue
            rack=${BASH_REMATCH[2]}${BASH_REMATCH[3]}
            slurm scontrol show hostnames "${BASH_REMATCH[4]}" || break 2
            neighbours=$told
            return
        done <<<"$told"
    done
    [[ $status == 0 || $told == *opology\ information* ]] && return
    log "Slurm does not say where this node is in its topology: exit status $status: $told"
    unset rack
    return 1
}

# look: asks how all nodes are, and weighs them (brake.sh).
look() {
    [[ -n ${rack+set} ]] || beside || return
    TZ=UTC0 slurm sinfo --noheader --all --Node --format='%N|%R|%T|%H|%E' || return
    weigh "$rack" "$neighbours" <<<"$told"
}

# signed TEXT: the text with its checksum, by which our reason is known from one that a person has edited.
signed() {
    local sum
    read -r sum _ < <(printf %s "$1" | cksum)
    printf '%s #%08x' "$1" "$sum"
}

# ours: whether this node is drained, and for our reason as we wrote it.
ours() {
    [[ " $own" == *" $REASON: "* && $own == "$(signed "${own% #*}")" ]]
}

# reason ANSWER: what `scontrol show node` will say: printable, no quotes, and below the 255 bytes that accounting keeps.
# `sinfo -R` shows 20 characters, so the part comes first, such as GPU2 link7. The time is that of the drain, for `weigh`.
reason() {
    local text="$REASON: ${1#FAILED[ ;:]}" part='' word now
    if [[ ${1%%: *} =~ ^[A-Z]+\ ([a-z][a-z0-9_.]*)(\ (.+))?$ ]]; then
        part=${BASH_REMATCH[3]}
        [[ -n $part && $part != node ]] || part=${BASH_REMATCH[1]}
        for word in GPU link port; do part=${part//$word /$word}; done
        text="${part:0:20} $text"
    fi
    TZ=UTC0 printf -v now '%(%FT%TZ)T' -1
    text=${text//[![:print:]]/ }
    text=${text//[\"\'\\]/}
    signed "${text:0:200} drained $now"
}

set_state() {
    slurm scontrol update "NodeName=$NODE" "$@"
}

# drain ANSWER: drains this node, unless the brake holds. Sets `outcome`: "drained", now; "already", by us or by somebody
# else; "brake", it is not drained; "lost", nothing is known, since the controller or the lock was not to be had.
#
# Many nodes may fail at once, and all see room at first. So each looks again after its own drain, once the second of it
# has passed: whoever was before it is then on the list, and nobody comes before it later. Those for whom there is no room
# take their own drain back. One that could not look again does so in the next health check.
drain() {
    outcome=lost
    lock || return
    look || return
    if [[ -z $own ]]; then
        outcome=brake
        [[ -z $held ]] || return
        outcome=lost
        rm -f "$RUN/not-ours"
        : >"$RUN/unsure"
        set_state State=DRAIN "Reason=$(reason "$1")" || return
        sleep 1
        if ! look; then
            undrain
            return
        fi
        [[ -n $own ]] || return # a person was quick to resume it
        outcome=drained
    else
        outcome=already
        [[ -e $RUN/unsure ]] || return
    fi
    if [[ -z $held ]] || ! ours; then
        rm -f "$RUN/unsure"
        return
    fi
    outcome=lost
    undrain && outcome=brake
}

# undrain: takes our drain back, within 2 s more if need be; UNDRAIN, unlike RESUME, leaves a node down that is.
undrain() {
    ((until >= SECONDS + 2)) || until=$((SECONDS + 2))
    set_state State=UNDRAIN
}

# drain_and_tell ANSWER: drain, and a line in the syslog. While the brake holds, $RUN/brake says so, for the daemon, which
# makes a metric of its first line, and for the job that starts (deploy/jobs/task-prolog.sh).
drain_and_tell() {
    drain "$1"
    case $outcome in
        drained) log "drained: $1; before it ${tallies%%$'\n'*}" ;;
        brake)
            log "brake: not drained, $held: $1"
            printf '%s\n' "$scope" "not fit for jobs, but in use, since the brake holds ($held): $1" >"$RUN/brake.new" &&
                chmod 0644 "$RUN/brake.new" && mv -f "$RUN/brake.new" "$RUN/brake"
            return
            ;;
        lost)
            log "not drained, Slurm could not be asked: $1"
            return
            ;;
    esac
    released
}

# released: the brake does not hold this node.
released() {
    [[ ! -e $RUN/brake ]] || rm -f "$RUN/brake"
}

# gpus_of_slurm: sets `count`, the GPUs that Slurm has on this node; "" where the controller does not say it.
gpus_of_slurm() {
    local one
    local -a found
    count=
    slurm scontrol show node --oneliner "$NODE" && [[ $told =~ \ Gres=([^ ]+)\  ]] || return
    count=0
    IFS=, read -r -a found <<<"${BASH_REMATCH[1]}"
    for one in "${found[@]%%(*}"; do
        [[ ! $one =~ ^gpu(:[^:]+)*:([0-9]{1,4})$ ]] || ((count += 10#${BASH_REMATCH[2]}))
    done
}

# turn_away: gives the job of this prolog back to Slurm, which starts it on another node; a job that cannot be queued
# again ends. Sets `outcome`: "away"; "brake", it was started again MAX_AWAY times already; "lost", the controller did not
# do it.
#
# The prolog then has to end with 0: Slurm drains the node of one that fails.
turn_away() {
    local excluded
    outcome=lost
    [[ $SLURM_JOB_ID =~ ^[1-9][0-9]*$ ]] && slurm scontrol show job --oneliner "$SLURM_JOB_ID" || return
    if [[ ! $told =~ \ Restarts=([0-9]+)\  ]] || ((BASH_REMATCH[1] >= MAX_AWAY)); then
        outcome=brake
        return
    fi
    [[ ! $told =~ \ ExcNodeList=([^ ]+) || ${BASH_REMATCH[1]} == "(null)" ]] || excluded=${BASH_REMATCH[1]},
    if slurm scontrol requeue "$SLURM_JOB_ID"; then
        # Before this prolog has ended Slurm does not start the job again.
        slurm scontrol update "JobId=$SLURM_JOB_ID" "ExcNodeList=$excluded$NODE"
    else
        slurm scancel "$SLURM_JOB_ID" || return
    fi
    outcome=away
}

# hold: keeps the probes of wirewatch off the GPUs of this job until `end_hold`, for HOLD seconds at most, by a file whose
# name says everything (docs/giving-way.md). Begins nothing and waits for nothing; a job without GPUs holds nothing.
hold() {
    local uptime rest file end gpus=all count=0
    local -a past=()
    [[ $SLURM_JOB_ID =~ ^[1-9][0-9]*$ && -d $HOLDS && -O $HOLDS ]] || return
    ((HOLD > 0)) && [[ -n $SLURM_JOB_GPUS || $EPILOG_FOR == all ]] || return
    read -r uptime rest </proc/uptime || return
    for file in "$HOLDS"/*:*.*.*; do
        end=${file##*/} end=${end#*.} end=${end%%.*}
        [[ $end =~ ^[0-9]{1,10}$ ]] || continue
        ((count += 1))
        ((10#$end > ${uptime%.*})) || past+=("$file")
    done
    ((${#past[@]} == 0)) || rm -f -- "${past[@]}"
    # 256 others hold every probe off as well.
    ((count - ${#past[@]} < 256)) || return
    [[ ! $SLURM_JOB_GPUS =~ ^[0-9]{1,4}(,[0-9]{1,4}){0,24}$ ]] || gpus=$SLURM_JOB_GPUS
    file=$HOLDS/slurm:$SLURM_JOB_ID.$((${uptime%.*} + 1 + (HOLD < 86400 ? HOLD : 86400))).$gpus
    if { : >"$file"; } 2>/dev/null; then
        held_off=yes
    else
        log "no hold could be made in $HOLDS: a probe may meet the job's start"
    fi
}

# until_quiet: waits until no probe is on the GPUs any more that `hold` holds, which kills the one that runs.
until_quiet() {
    local fd
    [[ -n $held_off ]] || return
    if { exec {fd}<"$HOLDS/lock"; } 2>/dev/null; then
        flock --exclusive --wait "$HOLD_DEADLINE" "$fd" </dev/null >/dev/null 2>&1 ||
            log "a probe of these GPUs or others is not gone within $HOLD_DEADLINE s: the job starts"
        exec {fd}<&-
    else
        log "$HOLDS/lock cannot be read: a probe may meet the job's start"
    fi
}

# end_hold: probes may run again on the GPUs of this job.
end_hold() {
    local file
    [[ $SLURM_JOB_ID =~ ^[1-9][0-9]*$ ]] || return
    for file in "$HOLDS/slurm:$SLURM_JOB_ID".*; do
        [[ ! -e $file ]] || rm -f -- "$file"
    done
}

# in_rings: goes into the folder of the rings of Slurm's jobs; false where there is none that is root's alone. All that
# follows names no path: the folder of rings belongs to the agent, who could put a link into it.
in_rings() {
    [[ $RINGS == /* && -d $RINGS && $SLURM_JOB_ID =~ ^[1-9][0-9]*$ ]] || return
    [[ -d $RINGS/slurm ]] || mkdir -m 0751 "$RINGS/slurm"
    cd -P "$RINGS/slurm" && [[ $PWD == "$RINGS/slurm" && -O . && $(stat -c %a .) =~ ^2?751$ ]]
}

# make_rings: a folder for the rings of this job, of a size of its own, to which no other user comes. Without it, the job's
# rings lie among those of all users; whatever goes wrong here, the job starts.
make_rings() (
    [[ -d $RINGS ]] || exit 0
    in_rings && [[ $SLURM_JOB_UID =~ ^[0-9]+$ ]] && mkdir -m 0700 "$SLURM_JOB_ID" || exit 1
    options=size=$RINGS_SIZE,nr_inodes=1k,mode=2770,uid=$SLURM_JOB_UID,gid=$(stat -c %g ..),nosuid,nodev,noexec
    timeout --signal=KILL 2 mount --no-canonicalize -t tmpfs -o "$options" wirewatch-rings "./$SLURM_JOB_ID" && exit
    rmdir "$SLURM_JOB_ID"
    exit 1
) </dev/null >/dev/null 2>&1

# remove_rings: the folder of this job's rings goes; the agent keeps open what it has not read.
remove_rings() (
    in_rings && [[ -d $SLURM_JOB_ID ]] || exit
    timeout --signal=KILL 2 umount --no-canonicalize --lazy "./$SLURM_JOB_ID"
    rmdir "$SLURM_JOB_ID"
) </dev/null >/dev/null 2>&1

locked='' held_off='' until='' deaf='' of_node=() stock_least=0
unset rack
# shellcheck source=deploy/slurm/brake.sh
. "$here/brake.sh" || exit 0
configure
# On a shared node the findings of its GPUs keep jobs away, and drain no node.
[[ $SHARED != yes ]] || of_node=(--without-gpus)
